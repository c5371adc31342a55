"""A sequence-to-sequence model that translates, for back-translation."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tercet.encoder.folder.backbone import read_model
from tercet.encoder.folder.names import find_folder, sha256_of_model
from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.model.tokens import load_tokenizer
from tercet.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

_BATCH_TOKENS = 2048
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
        for batch in batches_by_length([len(row) for row in ids], max_batch_tokens=_BATCH_TOKENS):
            padded = self._tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt")
            made = self._model.generate(
                **{name: ids.to(self._model.device) for name, ids in padded.items()},
                num_beams=max(_BEAMS, num_samples),
                num_return_sequences=num_samples,
                max_new_tokens=max_new_tokens,
                do_sample=False,
            )
            decoded = self._tokenizer.batch_decode(made, skip_special_tokens=True)
            for place, i in enumerate(batch):
                translations[i] = [text.strip() for text in decoded[place * num_samples : (place + 1) * num_samples]]
        return translations
