"""The Encoder: text goes in, vectors come out."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import torch

from tercet.encoder.assemble import assemble_fresh, assemble_stored
from tercet.encoder.batches import batches_by_length, pad
from tercet.encoder.folder import write_folder
from tercet.encoder.names import FRESH, find_folder
from tercet.encoder.settings import (
    EmbedOptions,
    EmbedStats,
    EncoderSettings,
    OnTruncate,
    Vectors,
    check_settings,
)
from tercet.encoder.tokens import Tokens, load_tokenizer
from tercet.encoder.tower import T5_FAMILY, Tower, first_bad_layer, unit_length
from tercet.errors import InputError, NonFiniteError, OutputError, SettingError, TextError
from tercet.files import sha256_of_json
from tercet.progress import Advance, progress_bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

# parts of a configuration that change no vector
_NO_CHANGE = ("_name_or_path", "architectures", "dtype", "output_hidden_states", "torch_dtype", "transformers_version")

_PRECISIONS = {"exact": None, "fast": torch.bfloat16, "fp16": torch.float16}


class Encoder:
    """A sentence encoder. `Encoder.load` makes one.

    Attributes:
        tower: The torch module: token ids to vectors.
        tokens: Texts to token ids.
        dtype: The number format that `save` writes; computing is in fp32 unless `embed` is told otherwise.
        prompts: Prefixes that the model has names for; `load` takes such a name as its `prompt`.
    """

    def __init__(
        self,
        tower: Tower,
        tokens: Tokens,
        *,
        dtype: torch.dtype = torch.float32,
        prompts: dict[str, str] | None = None,
    ) -> None:
        self.tower = tower
        self.tokens = tokens
        self.dtype = dtype
        self.prompts = prompts or {}

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
        device: str | None = None,
        revision: str | None = None,
        convert_pickle: bool = False,
        seed: int = 0,
        **settings: Unpack[EncoderSettings],
    ) -> "Encoder":
        """Load an encoder.

        Args:
            name: An embedded name (`minilm`), a model folder, a hub id, or `random:SHAPE` (`random:t5-small`) for a
                fresh model.
            tokenizer: The tokenizer of a fresh model, or another one than the model's own: a folder, a hub id or an
                object of transformers.
            device: Where it runs; a GPU if there is one, else the CPU.
            revision: The branch, tag or commit on the hub.
            convert_pickle: Whether a pickled checkpoint may be converted, weights only.
            seed: What fresh weights are drawn with.
            **settings: See `EncoderSettings`; a plain transformers checkpoint needs a `readout`.

        Raises:
            ModelError: The model cannot be found, read or trusted.
            SettingError: The settings do not fit it.
        """
        check_settings(settings)
        name = str(name)
        if tokenizer is not None and isinstance(tokenizer, str | Path):
            tokenizer = load_tokenizer(find_folder(str(tokenizer), weights=False))
        if name.startswith(FRESH):
            tower, tokens = assemble_fresh(name.removeprefix(FRESH), tokenizer, settings, seed)
            encoder = cls(tower, tokens)
        else:
            folder = find_folder(name, revision=revision, pickles=convert_pickle)
            tower, tokens, stored = assemble_stored(folder, tokenizer, settings, convert_pickle, seed)
            encoder = cls(tower, tokens, dtype=stored.dtype, prompts=stored.prompts)
        tower.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return encoder

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self.tower.width

    @property
    def settings(self) -> EncoderSettings:
        """The settings in force."""
        prompt, dense = self.tokens.prompt, self.tower.dense_layers
        return {
            "readout": self.tower.readout,
            "mlp": self.tower.mlp_when,
            "projection": dense[-1].linear.out_features if dense else None,
            "normalize": self.tower.normalize,
            "prompt": prompt.setting,
            "max_tokens": self.tokens.max_tokens,
        }

    @property
    def device(self) -> torch.device:
        """Where the encoder runs."""
        return next(self.tower.parameters()).device

    def save(self, folder: str | Path) -> None:
        """Write the encoder as a sentence-transformers model folder, in place of what was there.

        Raises:
            OutputError: The folder cannot be written; nothing is left half-written.
        """
        target = Path(folder)
        if target.is_dir() and any(target.iterdir()) and not (target / "config.json").exists():
            raise OutputError(f"{target}: holds other files than a model, which would be lost. Name a new folder.")
        write_folder(target, self.tower, self.tokens, dtype=self.dtype, prompts=self.prompts)

    def fingerprint(self) -> str:
        """Return a hash of everything that decides a vector: weights, tokenizer and settings."""
        config = self.tower.backbone.config.to_dict()
        shape = {key: value for key, value in config.items() if key not in _NO_CHANGE}
        activations = [layer.activation for layer in self.tower.dense_layers]
        described = [self.settings, self.tokens.describe(), shape, activations]
        digest = hashlib.sha256(sha256_of_json(described).encode())
        for name, tensor in self.tower.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def embed(self, texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Vectors:
        """Return the vectors of texts, in their order: float32 [n, d].

        Args:
            texts: Any number of texts; an empty text has a vector too.
            **options: See `EmbedOptions`.

        Raises:
            TextError: Something in `texts` is no text, or is too long and `on_truncate` is `error`.
            NonFiniteError: A vector is not finite; the message names the layer.
        """
        return self.embed_with_stats(texts, **options)[0]

    def embed_with_stats(
        self,
        texts: Sequence[str],
        *,
        precision: str = "exact",
        dims: int | None = None,
        normalize: bool | None = None,
        max_batch_tokens: int = 4096,
        on_truncate: OnTruncate = "count",
        progress: bool | Advance = False,
    ) -> tuple[Vectors, EmbedStats]:
        """Do as `embed`, and also return how many texts, tokens and truncated texts there were."""
        _check_texts(texts)
        if max_batch_tokens < 1:
            raise SettingError(f"max_batch_tokens {max_batch_tokens}: is less than one. Give a positive number.")
        dims = self._check_dims(dims)
        precision = self.resolve_precision(precision)
        dtype = _PRECISIONS[precision]
        compute = nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)
        ids, truncated = self.tokens(texts)
        stats = EmbedStats(len(texts), sum(map(len, ids)), sum(truncated))
        self._report_truncated(truncated, on_truncate)
        scale = self.tower.normalize if normalize is None else normalize
        vectors = np.empty((len(texts), dims), np.float32)
        bar = progress_bar("embedding", total=len(texts), unit="texts", enabled=progress is True)
        with _evaluating(self.tower), bar as own_bar:
            advance = progress if callable(progress) else own_bar
            for batch in batches_by_length([len(row) for row in ids], max_batch_tokens=max_batch_tokens):
                input_ids, mask = pad([ids[i] for i in batch], pad_id=self.tokens.pad_id)
                input_ids, mask = input_ids.to(self.device), mask.to(self.device)
                with torch.inference_mode(), compute:
                    output = self.tower.raw(input_ids, mask)
                    if not bool(output.isfinite().all()):
                        layer = first_bad_layer(self.tower, input_ids, mask)
                        raise NonFiniteError(
                            f"a vector is not finite: it went wrong in {layer}. {_finite_fix(precision)}"
                        )
                output = output[:, :dims]
                vectors[batch] = (unit_length(output) if scale else output).cpu().numpy()
                advance(len(batch), note=f"{stats.num_truncated:,} truncated" if stats.num_truncated else None)
        return vectors, stats

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        convert_to_tensor: bool = False,
        convert_to_numpy: bool = True,
        batch_size: int | None = None,
        **others: Any,
    ) -> Any:
        """Do as `embed`, under the name and with the arguments that other tools call.

        One text gives one vector. As there, `normalize_embeddings` can ask for length 1, not forbid it. Batches are cut
        by tokens, so `batch_size` is not needed; `convert_to_numpy` is what happens anyway.

        Raises:
            SettingError: Another argument was given (`prompt`), and is not None.
        """
        del batch_size, convert_to_numpy
        unknown = [name for name, value in others.items() if value is not None]
        if unknown:
            raise SettingError(f"encode has no {unknown[0]!r}. Set it when the encoder is loaded, or call embed.")
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        vectors = self.embed(
            texts, normalize=normalize_embeddings or None, dims=truncate_dim, progress=bool(show_progress_bar)
        )
        result = torch.from_numpy(vectors) if convert_to_tensor else vectors
        return result[0] if isinstance(sentences, str) else result

    def similarity(self, a: Sequence[str] | Vectors, b: Sequence[str] | Vectors) -> Vectors:
        """Return the cosine of each of `a` with each of `b`: [len(a), len(b)]. Both are texts or vectors."""
        left, right = (_unit(x if isinstance(x, np.ndarray) else self.embed(x)) for x in (a, b))
        return left @ right.T

    _FP16_REASON: ClassVar[str] = (
        "precision 'fp16': T5 was trained in bf16 and overflows to NaN in fp16, in its feed-forward layers first. "
        "Take 'fast' (bf16) or 'exact'."
    )

    def resolve_precision(self, precision: str) -> str:
        """Return what a precision stands for on this machine: `auto` is `fast` or `exact`.

        Raises:
            SettingError: There is no such precision, or not for this model.
        """
        if precision == "auto":
            return "fast" if _has_bf16(self.device) else "exact"
        if precision not in _PRECISIONS:
            raise SettingError(
                f"precision {precision!r}: there is none of that name. Known: {', '.join(_PRECISIONS)}, auto."
            )
        if precision == "fp16" and self.tower.backbone.config.model_type in T5_FAMILY:
            raise SettingError(self._FP16_REASON)
        return precision

    def _check_dims(self, dims: int | None) -> int:
        if dims is not None and not 1 <= dims <= self.dim:
            raise SettingError(f"dims {dims}: this encoder's vectors have {self.dim} numbers. Take 1 to {self.dim}.")
        return dims or self.dim

    def _report_truncated(self, truncated: list[bool], on_truncate: OnTruncate) -> None:
        num = sum(truncated)
        if num and on_truncate == "error":
            raise TextError(
                truncated.index(True),
                f"is longer than {self.tokens.max_tokens} tokens ({num} such texts). "
                "Shorten it, raise max_tokens, or set on_truncate to count.",
            )
        if num:
            logger.warning("%d of %d texts were cut to %d tokens", num, len(truncated), self.tokens.max_tokens)


@contextmanager
def _evaluating(tower: Tower) -> Iterator[None]:
    was_training = tower.training
    tower.eval()
    try:
        yield
    finally:
        tower.train(was_training)


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InputError("one string was given where a list of texts is wanted. Write [text].")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(i, f"is of type {type(text).__name__}. Give strings.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextError(i, f"is not Unicode ({error.reason}). Decode it as UTF-8.") from error


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-6), np.float32)


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _finite_fix(precision: str) -> str:
    if precision == "exact":
        return "The model's weights or numbers are broken: check how it was trained or converted."
    return "Try precision 'exact'."
