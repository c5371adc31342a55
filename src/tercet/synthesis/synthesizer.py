"""The Synthesizer: a generator/discriminator writes what sentences entail or contradict, and judges pairs of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tercet.encoder.folder.backbone import NO_CHANGE, sha256_of_weights
from tercet.encoder.forward.engine import resolve_precision
from tercet.encoder.generator import load_generator
from tercet.encoder.model.templates import TemplateTokens
from tercet.encoder.model.tokens import Tokens
from tercet.errors import InputError, SettingError
from tercet.storage.choices import check_choice
from tercet.storage.hashing import sha256_of_json
from tercet.storage.texts import check_texts
from tercet.storage.user_cache import cache_folder
from tercet.synthesis.discriminator import Discriminator
from tercet.synthesis.engines import CTranslate2Engine, Engine, TransformersEngine, has_ctranslate2
from tercet.synthesis.settings import Relation, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

EngineName = Literal["auto", "transformers", "ctranslate2"]

_GENERATE_TOKENS, _SCORE_TOKENS = 96, 128
"""The most that is read of a sentence, to generate from it and to judge it: GenSE's."""


class Synthesizer:
    """A generator/discriminator, ready for use. `Synthesizer.load` makes one.

    Args:
        tokenizer: Texts to ids and back.
        engine: What generates.
        discriminator: What judges.
        fingerprint: A hash of all that decides what it writes and says.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", engine: Engine, discriminator: Discriminator, *, fingerprint: str
    ) -> None:
        self._tokenizer, self._engine, self._discriminator = tokenizer, engine, discriminator
        self._tokens = TemplateTokens(tokenizer, max_tokens=_GENERATE_TOKENS)
        self._fingerprint = fingerprint

    def __repr__(self) -> str:
        return f"Synthesizer(generates by {type(self._engine).__name__}, in {self._engine.precision})"

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        engine: EngineName = "auto",
        device: str | None = None,
        convert_pickle: bool = False,
        precision: str = "auto",
    ) -> "Synthesizer":
        """Load a generator/discriminator.

        Args:
            name: A model folder, a hub id or an embedded name: a T5 with its language-model head.
            revision: The branch, tag or commit on the hub.
            engine: What generates: `transformers`, or `ctranslate2` (on a CPU, faster; needs the extra `ct2`), which
                `auto` takes where it is there.
            device: Where it runs; a GPU if there is one, else the CPU.
            convert_pickle: Whether a pickled checkpoint may be converted, weights only.
            precision: `exact` (fp32), `fast` (bf16) or `int8` (generation by `ctranslate2` only). `auto` generates in
                int8 with `ctranslate2`; all else is `fast` where the machine has bf16, and `exact` where not.

        Raises:
            ModelError: The model cannot be found, read or trusted, or its vocabulary has no `true` or no `false`.
            SettingError: The engine or the precision does not fit it.
        """
        if engine not in ("auto", "transformers", "ctranslate2"):
            raise SettingError(
                f"engine {engine!r}: there is none of that name. Known: transformers, ctranslate2, auto."
            )
        model, tokenizer = load_generator(str(name), revision=revision, convert_pickle=convert_pickle)
        model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        resolved = resolve_precision(precision, model_type=model.config.model_type, device=model.device)
        discriminator = Discriminator(model, tokenizer, precision=resolved, max_tokens=_SCORE_TOKENS)
        if engine == "auto":
            engine = "ctranslate2" if has_ctranslate2(model) else "transformers"
        written = "int8" if (precision, engine) == ("auto", "ctranslate2") else resolved
        config = {key: value for key, value in model.config.to_dict().items() if key not in NO_CHANGE}
        weights = sha256_of_weights(model.state_dict(), described=config)
        pieces = Tokens(tokenizer, max_tokens=_SCORE_TOKENS).describe()
        writer = _make_engine(engine, model, precision=written, fingerprint=weights)
        fingerprint = sha256_of_json([weights, pieces, engine, writer.precision, resolved])
        return cls(tokenizer, writer, discriminator, fingerprint=fingerprint)

    def generate(
        self,
        texts: Sequence[str],
        *,
        relation: Relation = "entailment",
        sampling: Sampling | None = None,
        num_samples: int = 1,
        seed: int = 0,
    ) -> list[list[str]]:
        """Write sentences that follow from texts or contradict them, or titles of texts.

        The same texts, settings and seed give the same sentences. Another list with the same text in it may not: draws
        go on from text to text.

        Args:
            texts: The premises; of each, 96 tokens are read.
            relation: `entailment`, for sentences that follow, `contradiction`, or `title`.
            sampling: How tokens are drawn.
            num_samples: How many sentences of each text.
            seed: What they are drawn with.

        Returns:
            For each text its sentences.

        Raises:
            TextError: Something in `texts` is no text.
            SettingError: There is no such relation.
        """
        check_choice("relation", relation, Relation)
        if num_samples < 1:
            raise SettingError(f"num_samples {num_samples}: is less than one. Give a positive number.")
        check_texts(texts)
        if not texts:
            return []
        found = self._engine(self._tokens(relation, texts), sampling or Sampling(), num_samples=num_samples, seed=seed)
        return [
            [text.strip() for text in self._tokenizer.batch_decode(samples, skip_special_tokens=True)]
            for samples in found
        ]

    def score(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float32]:
        """Return how likely each premise means its hypothesis: P(true), of `true` and `false` alone.

        Args:
            premises: Of each sentence, 128 tokens are read.
            hypotheses: As many.

        Raises:
            InputError: They are not as many, or something is no text.
            NonFiniteError: A score is not a number.
        """
        for texts in (premises, hypotheses):
            check_texts(texts)
        if len(premises) != len(hypotheses):
            raise InputError(f"{len(premises):,} premises and {len(hypotheses):,} hypotheses were given. Give pairs.")
        return self._discriminator(premises, hypotheses)

    def fingerprint(self) -> str:
        """Return a hash of everything that decides what is written and said: weights, tokenizer, engine, precision."""
        return self._fingerprint


def _make_engine(name: str, model: "T5ForConditionalGeneration", *, precision: str, fingerprint: str) -> Engine:
    if name == "ctranslate2":
        cache = cache_folder() / "ctranslate2"
        return CTranslate2Engine(model, precision=precision, fingerprint=fingerprint, cache=cache)
    return TransformersEngine(model, precision=precision)
