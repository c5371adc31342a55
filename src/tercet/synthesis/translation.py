"""A sequence-to-sequence model that translates, for back-translation."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tercet.encoder.folder.backbone import read_model
from tercet.encoder.folder.names import find_folder, sha256_of_model
from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.forward.memory import tokens_at_once
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tokens import load_tokenizer
from tercet.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

_BATCH_TOKENS = 2048
"""On a CPU, and the least on a GPU."""

_BEAMS = 4


class Translator:
    """Any sequence-to-sequence model of transformers, by beam search."""

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", fingerprint: str) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self.fingerprint = fingerprint

    @classmethod
    def load(cls, name: str, *, convert_pickle: bool = False, device: str | None = None) -> "Translator":
        """Load a model by its name.

        Args:
            name: A folder or a hub id.
            convert_pickle: Whether pickled weights may be converted, weights only.
            device: Where it runs; a GPU if there is one, else the CPU.

        Raises:
            ModelError: It cannot be found, read or trusted, or is no sequence-to-sequence model.
        """
        from transformers import AutoModelForSeq2SeqLM

        folder = find_folder(name, pickles=convert_pickle)
        model, missing = read_model(folder, AutoModelForSeq2SeqLM, convert_pickle=convert_pickle)
        if missing:
            raise ModelError(f"{folder}: {len(missing)} weights are missing, {missing[0]} first. Take a whole model.")
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))  # type: ignore[arg-type]  # as in generator.py
        return cls(model, load_tokenizer(folder), sha256_of_model(folder, pickles=convert_pickle))

    @torch.inference_mode()
    def translate(self, texts: Sequence[str], *, num_samples: int = 1, max_new_tokens: int = 64) -> list[list[str]]:
        """Return the best translations of each text; of long ones, of their beginning, with a warning."""
        translations: list[list[str]] = [[] for _ in texts]
        max_tokens = 2 * max_new_tokens
        whole: Any = self._tokenizer([*texts], verbose=False)["input_ids"]
        if num_cut := sum(len(row) > max_tokens for row in whole):
            message = "%d of %d texts have more than %d tokens: their ends are not translated"
            logger.warning(message, num_cut, len(texts), max_tokens)
        ids: Any = self._tokenizer([*texts], truncation=True, max_length=max_tokens)["input_ids"]
        beams = max(_BEAMS, num_samples)
        for batch in batches_by_length([len(row) for row in ids], max_batch_tokens=self.max_batch_tokens(beams)):
            padded = self._tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt")
            made = self._model.generate(
                **{name: ids.to(self._model.device) for name, ids in padded.items()},
                num_beams=beams,
                num_return_sequences=num_samples,
                max_new_tokens=max_new_tokens,
                do_sample=False,
            )
            decoded = self._tokenizer.batch_decode(made, skip_special_tokens=True)
            for place, i in enumerate(batch):
                translations[i] = [text.strip() for text in decoded[place * num_samples : (place + 1) * num_samples]]
        return translations

    def max_batch_tokens(self, beams: int) -> int:
        """Return how many tokens are read at once: on a GPU as many as its memory holds with so many beams."""
        config = self._model.config
        sizes = config.to_dict()
        if sizes["model_type"] not in T5_FAMILY:  # by the names that all configurations of transformers answer to
            names = ("model_type", "hidden_size", "num_attention_heads", "num_hidden_layers")
            sizes = {name: getattr(config, name) for name in names}
            sizes["intermediate_size"] = getattr(config, "encoder_ffn_dim", 4 * sizes["hidden_size"])
        num_weights = self._model.num_parameters()
        found = tokens_at_once(sizes, num_weights, self._model.device, usual=_BATCH_TOKENS, writes=True)
        return max(_BATCH_TOKENS, found // beams)
