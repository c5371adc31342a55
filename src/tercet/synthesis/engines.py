"""Engines: what writes texts, token by token."""

import copy
import ctypes
import logging
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.engine import AUTOCAST
from tercet.encoder.forward.memory import tokens_at_once
from tercet.encoder.generator import head_scale
from tercet.errors import SettingError
from tercet.storage.extras import require
from tercet.storage.hashing import sha256_of_json
from tercet.storage.user_cache import cached_folder
from tercet.synthesis.settings import Sampling

if TYPE_CHECKING:
    from transformers import T5ForConditionalGeneration

logger = logging.getLogger("tercet")

Rows = Sequence[Sequence[int]]

_BATCH_TOKENS, _CT2_BATCH_TOKENS = 4096, 2048
_COMPUTE_TYPES = {"exact": "float32", "fast": "bfloat16", "int8": "int8"}
_seeding = threading.Lock()
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's numbers of its options


class Engine(Protocol):
    """Token ids of prompts to token ids of texts."""

    precision: str
    """What it really computes in."""

    def __call__(self, rows: Rows, sampling: Sampling, *, num_samples: int, seed: int) -> list[list[list[int]]]:
        """Return so many texts of each prompt, without special tokens at their ends."""


class TransformersEngine:
    """`generate` of transformers, on any device.

    Args:
        model: What generates.
        precision: `exact` (fp32) or `fast` (bf16).

    Raises:
        SettingError: It cannot compute in that precision.
    """

    def __init__(self, model: "T5ForConditionalGeneration", *, precision: str) -> None:
        if precision not in AUTOCAST:
            raise SettingError(
                f"precision {precision!r}: transformers does not generate in it. "
                "Take the engine 'ctranslate2', or 'auto'."
            )
        self.precision = precision
        self._model, self._dtype = model.eval(), AUTOCAST[precision]

    def __call__(self, rows: Rows, sampling: Sampling, *, num_samples: int, seed: int) -> list[list[list[int]]]:
        """Return so many texts of each prompt."""
        from transformers import GenerationConfig

        model, device, ids = self._model, self._model.device, self._model.config
        model.generation_config = GenerationConfig(
            do_sample=True,
            top_p=sampling.top_p,
            top_k=sampling.top_k or 0,
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_new_tokens,
            num_return_sequences=num_samples,
            pad_token_id=ids.pad_token_id or 0,
            eos_token_id=ids.eos_token_id,
            decoder_start_token_id=ids.decoder_start_token_id or 0,
        )
        texts: list[list[list[int]]] = [[] for _ in rows]
        num_weights = sum(weight.numel() for weight in model.parameters())
        most = tokens_at_once(ids.to_dict(), num_weights, device, usual=_BATCH_TOKENS, writes=True)
        batches = batches_by_length([len(row) for row in rows], max_batch_tokens=max(1, most // num_samples))
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.inference_mode():
            torch.manual_seed(_seed32(seed))
            for batch in batches:
                source, mask = (t.to(device) for t in pad([rows[i] for i in batch], pad_id=ids.pad_token_id or 0))
                with torch.autocast(device.type, self._dtype or torch.bfloat16, enabled=self._dtype is not None):
                    written = model.generate(input_ids=source, attention_mask=mask)[:, 1:].tolist()
                for i, row in enumerate(written):
                    texts[batch[i // num_samples]].append(_until(row, ids.eos_token_id))
        return texts


class CTranslate2Engine:
    """CTranslate2 on a CPU, with weights that are converted once and kept on disk.

    Its random numbers belong to a thread that it starts with a model, and are seeded there once. So every call loads
    the model anew, which starts a thread: what is drawn follows from the prompts, the settings and the seed alone. Half
    of the prompts go to one such thread and half to another, each with half of the cores: on two cores this takes four
    fifths of the time that one thread with both takes.

    Args:
        model: What generates; it is not needed afterwards.
        precision: `exact` (fp32), `fast` (bf16 where the CPU has it) or `int8`.
        fingerprint: The hash of the model's weights.
        cache: The folder that keeps converted models.

    Raises:
        SettingError: ctranslate2 is not installed, or does not know this kind of model.
    """

    def __init__(self, model: "T5ForConditionalGeneration", *, precision: str, fingerprint: str, cache: Path) -> None:
        if torch.cpu._is_avx512_supported():
            os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")  # which it takes by itself on Intel's CPUs alone
        self._ctranslate2 = library = require("ctranslate2", "ct2", needed_by="engine 'ctranslate2'")
        if not has_ctranslate2(model):
            raise SettingError("engine 'ctranslate2': is for T5 and mT5 on a CPU. Take the engine 'transformers'.")
        _keep_memory()
        if _COMPUTE_TYPES[precision] not in library.get_supported_compute_types("cpu"):
            logger.warning("this CPU has no %s: texts are generated in 32 bits", _COMPUTE_TYPES[precision])
            precision = "exact"
        self.precision, self._compute_type = precision, _COMPUTE_TYPES[precision]
        self._end = str(model.config.eos_token_id)
        key = sha256_of_json([fingerprint, self._compute_type, library.__version__])
        self._folder = cached_folder(cache / key, lambda folder: self._convert(model, folder))
        try:
            with ThreadPoolExecutor() as pool:  # opening sets the calling thread's cores, for torch as well
                pool.submit(self._open, num_threads=1).result()
        except RuntimeError as error:
            logger.warning("%s cannot be read and is made again: %s", self._folder, error)
            shutil.rmtree(self._folder)
            self._folder = cached_folder(cache / key, lambda folder: self._convert(model, folder))

    def __call__(self, rows: Rows, sampling: Sampling, *, num_samples: int, seed: int) -> list[list[list[int]]]:
        """Return so many texts of each prompt."""
        prompts = [[str(i) for i in row] for row in rows for _ in range(num_samples)]
        places = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
        halves = [half for half in (places[::2], places[1::2]) if half]
        texts: list[list[int]] = [[]] * len(prompts)
        num_threads = torch.get_num_threads()
        with ThreadPoolExecutor(max_workers=min(len(halves), num_threads)) as pool:
            written = [
                pool.submit(
                    self._write,
                    [prompts[i] for i in half],
                    sampling,
                    seed=_seed32([seed, number]),
                    num_threads=max(1, num_threads // 2),
                )
                for number, half in enumerate(halves)
            ]
            for half, results in zip(halves, written, strict=True):
                for place, result in zip(half, results.result(), strict=True):
                    texts[place] = [int(token) for token in result.hypotheses[0]]
        return [texts[i : i + num_samples] for i in range(0, len(texts), num_samples)]

    def _write(self, prompts: list[list[str]], sampling: Sampling, *, seed: int, num_threads: int) -> Any:
        options = {
            "beam_size": 1,
            "sampling_topk": sampling.top_k or 0,
            "sampling_topp": sampling.top_p,
            "sampling_temperature": sampling.temperature,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "max_batch_size": _CT2_BATCH_TOKENS,
            "batch_type": "tokens",
        }
        with _seeding:
            self._ctranslate2.set_random_seed(seed)
            translator = self._open(num_threads=num_threads)
            translator.translate_batch(prompts[:1], max_decoding_length=1, **options)  # the first draw takes the seed
        return translator.translate_batch(prompts, max_decoding_length=sampling.max_new_tokens, **options)

    def _open(self, *, num_threads: int) -> Any:
        return self._ctranslate2.Translator(
            str(self._folder),
            device="cpu",
            compute_type=self._compute_type,
            inter_threads=1,
            intra_threads=num_threads,
        )

    def _convert(self, model: "T5ForConditionalGeneration", folder: Path) -> None:
        """Write a model as CTranslate2 reads it. Its words are numbers: ids go in and out as they are."""
        from ctranslate2.converters.transformers import T5Loader

        config = model.config
        with torch.no_grad():
            spec = T5Loader().get_model_spec(copy.deepcopy(model))  # whose weights are quantised in place
        spec.decoder.scale_outputs = head_scale(
            config
        )  # which the loader would guess from a key that transformers sets
        spec.config.layer_norm_epsilon = config.layer_norm_epsilon
        words = [str(i) for i in range(model.lm_head.weight.shape[0])]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.bos_token = spec.config.decoder_start_token = str(config.decoder_start_token_id or 0)
        spec.config.eos_token = self._end
        spec.config.unk_token = str(config.pad_token_id or 0)  # no id is ever unknown, but there has to be one
        spec.validate()
        spec.optimize(quantization=self._compute_type)
        spec.save(str(folder))


def has_ctranslate2(model: "T5ForConditionalGeneration") -> bool:
    """Return whether CTranslate2 is installed, and generates with a model where it is: umT5 is not known to it."""
    known = model.config.model_type in ("t5", "mt5")
    return known and model.device.type == "cpu" and find_spec("ctranslate2") is not None


def _keep_memory() -> None:
    """Have freed memory kept for this process: fresh pages for every product would take an eighth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


def _seed32(seed: object) -> int:
    """Return a seed of 32 bits; the largest one means none to CTranslate2."""
    return int(sha256_of_json(seed)[:8], 16) % (2**32 - 1)
