"""The stage `synthesize`: sentences become triplets that later stages learn from."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from tercet.data.rows.words import texts_below
from tercet.errors import InputError
from tercet.storage.files import atomic_write
from tercet.storage.hashing import sha256_of_file, sha256_of_json
from tercet.synthesis.corpus import TITLE, TRIPLETS, make_corpus, remedy
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings, SynthesisSettings, as_list
from tercet.training.stages.stage import Context, Kind, StageSettings, Work

_MODELS = ("model", "there", "back", "finder")


class SynthesizeStage(StageSettings, SynthesisSettings):
    """The settings of a stage that makes triplets."""

    min_triplets: int = Field(default=0, ge=0, exclude_if=lambda num: num == 0)
    """Fewer accepted triplets are an error, before later stages learn from them."""

    corpus: Path | None = Field(default=None, exclude_if=lambda corpus: corpus is None)
    """A folder with triplets that another run or `tercet synthesize` wrote, which are taken as they are: nothing is
    written, judged or filtered again. So several recipes share one synthetic corpus."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        if self.corpus is not None:
            return []
        used = [model for models in self.models().values() for model in as_list(models)]
        return [*used, *(source.path for source in self.sentences)]

    def models(self) -> dict[str, str | list[str]]:
        """Return the models that the stage uses, by the names of their settings."""
        named = {name: getattr(self, name) for name in _MODELS if name != "finder" or self.strategy == TITLE}
        return {name: models for name, models in named.items() if models is not None}


class _Synthesize:
    def __init__(self, settings: SynthesizeStage, context: Context) -> None:
        self._context = context
        # the candidates outlive the stage's folder, so that another filter does not generate them again
        self._candidates = context.folder.parent.with_name("candidates") / context.name
        models = {name: _each(context.place, models) for name, models in settings.models().items()}
        sources = [source.model_copy(update={"path": context.place(source.path)}) for source in settings.sentences]
        self._settings = settings.model_copy(update={"sentences": sources, **models})
        self._sentences = Sentences(
            SentenceSettings(**self._settings.part(SentenceSettings)),
            rejects=self._candidates.with_name(f"{context.name}.rejects.jsonl"),
            rank=context.processes.rank,
        )
        self.inputs = {
            "sentences": self._sentences.rows.describe(),
            "leaks": sha256_of_json(sorted(texts_below(*settings.leaks))),
        }
        for name, used in settings.models().items():
            revision = settings.revision if name == "model" else None
            describe = partial(context.describe_model, revision=revision, pickles=settings.convert_pickle)
            self.inputs[name] = _each(describe, used)

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
            cluster=context.cluster,
            progress=context.progress,
        )
        check_enough(audit, self._settings, name=context.name)
        return {"num_triplets": audit["num_triplets"]}


def _each(what: Callable[[str], Any], models: str | list[str]) -> Any:
    """Return what a function says of a model, or of each of several."""
    return what(models) if isinstance(models, str) else [what(model) for model in models]


def check_enough(audit: dict[str, Any], settings: SynthesizeStage, *, name: str) -> None:
    """Raise InputError if fewer triplets were accepted than a stage asks for, naming the rule that dropped most."""
    num, filters = audit["num_triplets"], audit["filters"]
    if num < settings.min_triplets:
        raise InputError(
            f"{settings.sentences[0].path}: {num:,} of {filters['num']:,} triplets were accepted, and "
            f"{settings.min_triplets:,} are needed. Give more sentences. "
            f"{remedy(audit, command=f'--set stages.{name}.')}"
        )


class _Shared:
    """The work of a stage whose triplets are there already."""

    def __init__(self, corpus: Path, context: Context) -> None:
        self._file, self._context = corpus / TRIPLETS, context
        if not self._file.is_file():
            raise InputError(
                f"stages.{context.name}.corpus {corpus}: has no {TRIPLETS}. Name a folder that synthesize wrote."
            )
        self.inputs = {"corpus": sha256_of_file(self._file)}

    def run(self) -> dict[str, Any]:
        """Copy the triplets into the stage's folder."""
        if not self._context.processes.is_main:
            return {}
        num = 0
        with self._file.open("rb") as source, atomic_write(self._context.folder / TRIPLETS) as target:
            for line in source:
                target.write(line)
                num += 1
        return {"num_triplets": num}


def _work(settings: SynthesizeStage, context: Context) -> Work:
    return _Synthesize(settings, context) if settings.corpus is None else _Shared(settings.corpus, context)


KIND = Kind(SynthesizeStage, _work, output=TRIPLETS)
