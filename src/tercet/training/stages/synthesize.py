"""The stage `synthesize`: sentences become triplets that later stages learn from."""

from typing import Any

from pydantic import Field

from tercet.data.rows.words import texts_below
from tercet.errors import InputError
from tercet.storage.hashing import sha256_of_json
from tercet.synthesis.corpus import TRIPLETS, make_corpus, most_dropped
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings, SynthesisSettings
from tercet.training.stages.stage import Context, Kind, StageSettings

_MODELS = ("model", "there", "back")

_REMEDIES = {
    "alpha": ", or accept less certain ones: --set stages.{name}.alpha=0.5",
    "label": ", or try another synthesizer: this one may not know such sentences",
    "short": ", or accept shorter ones: --set stages.{name}.min_hypothesis_words=2",
    "contained": ", or accept parts of sentences: --set stages.{name}.containment=false",
    "leak": " that are not in the evaluation files",
}
"""What helps against a rule that drops too much."""


class SynthesizeStage(StageSettings, SynthesisSettings):
    """The settings of a stage that makes triplets."""

    min_triplets: int = Field(default=0, ge=0, exclude_if=lambda num: num == 0)
    """Fewer accepted triplets are an error, before later stages learn from them."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        models = [getattr(self, name) for name in _MODELS]
        return [*filter(None, models), *(source.path for source in self.sentences)]


class _Synthesize:
    def __init__(self, settings: SynthesizeStage, context: Context) -> None:
        self._context = context
        # the candidates outlive the stage's folder, so that another filter does not generate them again
        self._candidates = context.folder.parent.with_name("candidates") / context.name
        models = {name: context.place(value) for name in _MODELS if (value := getattr(settings, name))}
        sources = [source.model_copy(update={"path": context.place(source.path)}) for source in settings.sentences]
        self._settings = settings.model_copy(update={"sentences": sources, **models})
        self._sentences = Sentences(
            SentenceSettings(**self._settings.part(SentenceSettings)),
            rejects=self._candidates.with_name(f"{context.name}.rejects.jsonl"),
            rank=context.processes.rank,
        )
        self.inputs = {
            "sentences": self._sentences.rows.describe(),
            "model": context.describe_model(
                settings.model, revision=settings.revision, pickles=settings.convert_pickle
            ),
            "leaks": sha256_of_json(sorted(texts_below(*settings.leaks))),
        }
        for name in ("there", "back"):
            if (translator := getattr(settings, name)) is not None:
                self.inputs[name] = context.describe_model(translator, pickles=settings.convert_pickle)

    def run(self) -> dict[str, Any]:
        context = self._context
        if not context.processes.is_main:
            return {}
        audit = make_corpus(
            self._settings,
            context.folder,
            candidates=self._candidates,
            sentences=self._sentences,
            seed=context.seed,
            progress=context.progress,
        )
        check_enough(audit, self._settings, name=context.name)
        return {"num_triplets": audit["num_triplets"]}


def check_enough(audit: dict[str, Any], settings: SynthesizeStage, *, name: str) -> None:
    """Raise InputError if fewer triplets were accepted than a stage asks for, naming the rule that dropped most."""
    num, filters = audit["num_triplets"], audit["filters"]
    if num < settings.min_triplets:
        rule, most = most_dropped(filters)
        raise InputError(
            f"{settings.sentences[0].path}: {num:,} of {filters['num']:,} triplets were accepted, and "
            f"{settings.min_triplets:,} are needed{most}. "
            f"Give more sentences{_REMEDIES.get(rule, '').format(name=name)}."
        )


KIND = Kind(SynthesizeStage, _Synthesize, output=TRIPLETS)
