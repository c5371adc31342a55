"""What can be chosen about a synthetic corpus: its sentences, how triplets are made of them, which are accepted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from tercet.data.rows.settings import SourceSettings
from tercet.storage.choices import DEFAULT_MODEL, Strategy
from tercet.storage.settings import NUMBER, RULE, Settings, number_or_rule

Relation = Literal["entailment", "contradiction", "title"]
"""What a synthesizer writes of a text."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | Path | SourceSettings | Mapping) else value


class SentenceSettings(Settings):
    """Which sentences triplets are made of."""

    sentences: Annotated[list[SourceSettings], BeforeValidator(_as_list), Field(min_length=1)]
    """Files and datasets, read in this order; of rows with several texts, each text."""

    split: bool = False
    """Whether the texts are documents, to be split into sentences first."""

    language: str | None = None
    """Keep sentences of this language only, by its code (`en`), which the splitter uses, too."""

    min_premise_words: int = Field(default=8, ge=1)
    """The fewest words of a sentence."""

    max_premise_words: int | None = Field(default=64, ge=1)
    """The most words of a sentence; null for no limit, which is also the default for titles."""

    max_sentences: int | None = Field(default=None, ge=1)
    """The most sentences that are taken from each source."""

    deduplicate: bool = True
    """Whether a sentence is taken once, and a triplet accepted once; capital letters and punctuation do not count."""

    def part(self, kind: type[BaseModel]) -> dict[str, Any]:
        """Return the settings that a part has."""
        return {name: getattr(self, name) for name in kind.model_fields}


class Sampling(Settings):
    """Nucleus sampling: from the most likely tokens, as many as have this much of the probability together."""

    top_p: float = Field(default=0.9, gt=0, le=1)
    """The probability of the tokens that are drawn from; 1 for all."""

    top_k: int | None = Field(default=50, ge=1)
    """The most tokens that are drawn from; null for no limit."""

    temperature: float = Field(default=1.0, gt=0)
    """What logits are divided by: lower is nearer to the most likely text."""

    max_new_tokens: int = Field(default=64, ge=1)
    """The most tokens of a generated text."""


class FilterSettings(Settings):
    """Which candidates are accepted."""

    argmax: bool = True
    """Whether the discriminator must call the entailment true and the contradiction false."""

    alpha: float = Field(default=0.9, ge=0, le=1)
    """The least probability of `true` for an entailment, and of `false` for a contradiction."""

    min_hypothesis_words: int = Field(default=5, ge=1)
    """The fewest words of an entailment or contradiction."""

    min_title_words: int = Field(default=2, ge=1)
    """The fewest words of a title."""

    max_rank: int = Field(default=1, ge=1)
    """The last place that a title's text may have where it is looked for by the title, among 200 others."""

    containment: bool = True
    """Whether candidates are dropped where the sentence or hypothesis, less its last character, is in the other."""

    deduplicate: bool = True
    """Whether a triplet is accepted once."""

    leaks: list[Path] = Field(default=[])
    """Files and folders with evaluation texts: what shares a text with them is dropped."""


class SampleRule(Settings):
    """How many candidates each sentence gets, where that follows from the number of sentences."""

    candidates: int = Field(ge=1)
    """About so many in all."""

    most: int | None = Field(default=None, ge=1)
    """The most of a sentence; null for no limit."""

    def num_samples(self, num_sentences: int | None) -> int:
        """Return how many each of so many sentences gets; one where they are not counted."""
        wanted = max(1, round(self.candidates / num_sentences)) if num_sentences else 1
        return wanted if self.most is None else min(wanted, self.most)


NumSamples = Annotated[
    Annotated[int, Field(ge=1), Tag(NUMBER)] | Annotated[SampleRule, Tag(RULE)], Discriminator(number_or_rule)
]
"""How many candidates each sentence gets: a number, or `{candidates: NUMBER, most: NUMBER}`."""


class SynthesisSettings(SentenceSettings, Sampling, FilterSettings):
    """Everything about a synthetic corpus."""

    model: str
    """The synthesizer: an embedded name, a folder or a hub id."""

    revision: str | None = None
    """The branch, tag or commit of the model on the hub."""

    convert_pickle: bool = False
    """Whether models that have only pickled weights may be converted, weights only."""

    engine: Literal["auto", "transformers", "ctranslate2"] = "auto"
    """What generates."""

    precision: str = "auto"
    """In which precision it does."""

    strategy: Strategy = "generate"
    """`generate` an entailment and a contradiction; `no-negatives`: an entailment only; `retrieval`: the nearest other
    sentences by BM25; `backtranslation`: into another language and back; `title`: a short title, whose positive is the
    text. Only the first gives contradictions."""

    num_samples: NumSamples = 1
    """How many candidates each sentence gets; or `{candidates: 2000, most: 4}`: as many as give about 2,000 in all, at
    most 4, and 1 where the sentences are streamed."""

    finder: str | None = DEFAULT_MODEL
    """For titles: the encoder that looks for a text by its title; null compares words."""

    there: str | list[str] | None = None
    """For back-translation: the model into the other language, a folder or hub id; or one for each language."""

    back: str | list[str] | None = None
    """For back-translation: the model back, or the models, in the same order."""

    shard_sentences: int = Field(default=1024, ge=1)
    """How many sentences are done between two commits; a killed run loses no more."""

    @model_validator(mode="before")
    @classmethod
    def _titles_of_paragraphs(cls, value: Any) -> Any:
        is_title = isinstance(value, Mapping) and value.get("strategy") == "title"
        return {"max_premise_words": None, **value} if is_title else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        translates = self.strategy == "backtranslation"
        if translates != (self.there is not None) or translates != (self.back is not None):
            raise ValueError("there and back are the two models of the strategy backtranslation, and of no other")
        if len(as_list(self.there)) != len(as_list(self.back)):
            raise ValueError("there and back name the same number of models: one of each for a language")
        if self.max_premise_words is not None and self.max_premise_words < self.min_premise_words:
            raise ValueError("max_premise_words is less than min_premise_words")
        return self


def as_list(models: str | list[str] | None) -> list[str]:
    """Return the models of a setting that names one, several or none."""
    return [models] if isinstance(models, str) else models or []
