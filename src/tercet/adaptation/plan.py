"""What is done to adapt an encoder: a recipe. All that was chosen for little data is at the top."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from tercet.data.reading.datasets import HUB
from tercet.data.rows.settings import HeldOutRule
from tercet.encoder.folder.backbone import model_type_of
from tercet.encoder.folder.names import FRESH, find_folder
from tercet.encoder.model.settings import EncoderSettings
from tercet.errors import SettingError
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_SYNTHESIZER, AdaptPlan
from tercet.synthesis.settings import SentenceSettings
from tercet.synthesis.views import views_of
from tercet.training.recipe import Recipe, Stage, make_recipe
from tercet.training.stages.contrast import ContrastStage
from tercet.training.stages.reweight import ReweightStage
from tercet.training.stages.stage import REFERENCE
from tercet.training.stages.synthesize import SynthesizeStage
from tercet.training.stages.views import ViewsStage

SPANS: Final = "spans"
TITLES: Final = "titles"
TRIPLETS: Final = "triplets"
REWEIGHT: Final = "reweight"
CONTRAST: Final = "contrast"

LEARNED_FROM: dict[AdaptPlan, tuple[str, ...]] = {
    "titles-reweight": (TITLES, SPANS),
    "titles": (TITLES,),
    "reweight": (SPANS,),
    "spans": (SPANS,),
    "mixture": (SPANS, TITLES, TRIPLETS),
    "gense": (TRIPLETS,),
}
"""What each plan learns from."""

LEARNS: dict[AdaptPlan, tuple[str, ...]] = {
    "titles-reweight": (CONTRAST, REWEIGHT),
    "titles": (CONTRAST,),
    "reweight": (REWEIGHT,),
    "spans": (CONTRAST,),
    "mixture": (CONTRAST,),
    "gense": (CONTRAST,),
}
"""The stages that change the encoder."""

HELD_OUT = HeldOutRule(rows=500, least=0.02, most=0.25)
"""So many texts nothing is learned from: the two encoders are judged by them."""

_ENOUGH_LEADS = 0.25
"""`auto` weights directions where so many texts have a first sentence and others."""

_NUM_LOOKED_AT = 1_000
"""How many texts `auto` looks at."""

_HELD_OUT_OF_A_STREAM = 0.1

MIN_WRITTEN = 20
"""With fewer titles or triplets that are accepted there is nothing to learn from."""

_NUM_VIEWS = 3
"""How many spans of each text."""

_NUM_SAMPLES = {"candidates": 2_000, "most": 4}
"""A small pile gets several candidates for each sentence."""

_SHARD_SENTENCES = 256
"""A killed run loses no more."""

_STEPS: dict[AdaptPlan, dict[str, int]] = {
    "titles-reweight": {"epochs": 4, "least": 40, "most": 200},
    "titles": {"epochs": 4, "least": 40, "most": 200},
    "spans": {"epochs": 1, "least": 20, "most": 300},
    "mixture": {"epochs": 1, "least": 30, "most": 400},
    "gense": {"epochs": 3, "least": 40, "most": 1_000},
}
"""How long: so many times over the rows, within these numbers of steps."""

_CONTRAST: dict[str, Any] = {
    "batch": 64,
    "optimizer": "adamw",
    "learning_rate": 5.0e-5,
    "schedule": "warmup-linear",
    "warmup_fraction": 0.1,
    "temperature": 0.05,
    "mask_duplicates": True,
    "precision": "auto",
    "checkpoint_every": 20,
}

_PLAIN_T5: dict[str, Any] = {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
"""How a T5 that is no sentence encoder yet is read out: as in GenSE."""


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    sentences: tuple[str, ...]
    plan: AdaptPlan = "titles"
    synthesizer: str = DEFAULT_SYNTHESIZER
    model: str = DEFAULT_MODEL
    own: tuple[str, ...] = ()
    """Your own tasks, as `evaluate` names them: KIND:FILE."""
    split: bool = False
    column: str | None = None
    max_sentences: int | None = None
    seed: int = 0
    keep_anyway: bool = False
    changes: tuple[str, ...] = ()
    """Settings of the recipe: PATH=VALUE."""

    def command(self, out: Path, data: str | Path | None) -> str:
        """Return the command that asks for it."""
        words = ["tercet", "adapt", *self.sentences, "--out", str(out), "--plan", self.plan]
        words += ["--model", self.model, "--synthesizer", self.synthesizer]
        for option, value in (("--column", self.column), ("--max-sentences", self.max_sentences), ("--data", data)):
            words += [] if value is None else [option, str(value)]
        words += ["--split"] if self.split else []
        words += ["--keep-anyway"] if self.keep_anyway else []
        words += ["--seed", str(self.seed)] if self.seed else []
        for option, values in (("--eval", self.own), ("--set", self.changes)):
            words += [word for value in values for word in (option, value)]
        return shlex.join(words)

    def sources(self, low: float, high: float) -> list[dict[str, Any]]:
        """Return a part of the texts, from one place to another."""
        columns = {} if self.column is None else {"columns": {"text": self.column}}
        return [
            {"path": path, "stream": path.startswith(HUB), "share": [low, high], **columns} for path in self.sentences
        ]

    def first_texts(self) -> SentenceSettings:
        """Return the whole texts that a plan is chosen by."""
        about = {"sentences": self.sources(0, 1), "max_premise_words": None, "max_sentences": _NUM_LOOKED_AT}
        return SentenceSettings.model_validate(about)

    def content(self, border: float) -> dict[str, Any]:
        """Return what the recipe's file would hold, before the changes that were asked for."""
        about = {"sentences": self.sources(0, border), "split": self.split, "max_sentences": self.max_sentences}
        written = {**about, "model": self.synthesizer, "shard_sentences": _SHARD_SENTENCES}
        leaks = [name.partition(":")[2] for name in self.own]
        fewest = MIN_WRITTEN if len(LEARNED_FROM[self.plan]) == 1 else 0
        made = {
            SPANS: {"views": {**about, "view": "span", "num_views": _NUM_VIEWS}},
            TITLES: {"synthesize": {**written, "strategy": "title", "min_triplets": fewest}},
            TRIPLETS: {
                "synthesize": {
                    **written,
                    "num_samples": _NUM_SAMPLES,
                    "min_triplets": fewest,
                    "leaks": leaks,
                }
            },
        }
        stages: list[dict[str, Any]] = [{"name": name, **made[name]} for name in LEARNED_FROM[self.plan]]
        start = None
        for name in LEARNS[self.plan]:
            rows = {"sources": [{"path": f"{REFERENCE}{source}"} for source in self.rows_of(name)]}
            settings = {"steps": _STEPS[self.plan], **_CONTRAST} if name == CONTRAST else {}
            stages.append({"name": name, name: {"start": start, "rows": rows, **settings}})
            start = f"{REFERENCE}{name}"
        return {"seed": self.seed, "start": self.model, "stages": stages}

    def rows_of(self, stage: str) -> tuple[str, ...]:
        """Return what a stage that changes the encoder learns from."""
        if len(LEARNS[self.plan]) == 1:
            return LEARNED_FROM[self.plan]
        return (SPANS,) if stage == REWEIGHT else (TITLES,)


@dataclass(frozen=True)
class Plan:
    """The recipe of a request, and what stands in it."""

    recipe: Recipe
    border: float
    """The place that held-out texts lie at or after."""
    first: int
    """Which stage is the first that changes the encoder."""

    @classmethod
    def of(cls, request: Request, *, num_texts: int | None) -> "Plan":
        """Make the plan of a request.

        Args:
            request: What was asked for.
            num_texts: How many texts there are; None where nobody knows.

        Raises:
            SettingError: A setting is unknown or does not fit.
            ModelError: The model cannot be found.
        """
        border = 1 - (HELD_OUT.share(num_texts) if num_texts else _HELD_OUT_OF_A_STREAM)
        recipe = make_recipe(request.content(border), default_name="adapt", changes=request.changes)
        if [stage.name for stage in recipe.stages] != [*LEARNED_FROM[request.plan], *LEARNS[request.plan]]:
            raise SettingError("stages: are those of the plan. Change their settings alone, or choose another --plan.")
        first = len(LEARNED_FROM[request.plan])
        stages = list(recipe.stages)
        settings = cast("ContrastStage | ReweightStage", stages[first].settings)
        readout = _encoder_settings(settings.start or request.model, settings.revision)
        encoder = EncoderSettings(**{**readout, **settings.encoder.given()})
        stages[first] = replace(stages[first], settings=settings.model_copy(update={"encoder": encoder}))
        plan = cls(replace(recipe, stages=tuple(stages)), border, first)
        plan.check_held_out()
        return plan

    def check_held_out(self) -> None:
        """Raise SettingError if something is learned from texts that are held out."""
        for stage in self.learned_from:
            for source in cast("SynthesizeStage | ViewsStage", stage.settings).sentences:
                if source.share != (0.0, self.border):
                    raise SettingError(
                        f"stages.{stage.name}.sentences: some texts are held out to judge by. Name other SENTENCES, "
                        "and leave the share as it is."
                    )
        made = {f"{REFERENCE}{stage.name}" for stage in self.learned_from}
        for stage in self.recipe.stages[self.first :]:
            settings = cast("ContrastStage | ReweightStage", stage.settings)
            if {source.path for source in settings.rows.sources} - made:
                raise SettingError(f"stages.{stage.name}.rows: are what the other stages make. Choose another --plan.")

    @property
    def learning(self) -> ContrastStage | ReweightStage:
        """The settings of the first stage that changes the encoder."""
        return cast("ContrastStage | ReweightStage", self.recipe.stages[self.first].settings)

    @property
    def learned_from(self) -> tuple[Stage, ...]:
        """The stages that make what is learned from."""
        return self.recipe.stages[: self.first]

    def sentences(self) -> SentenceSettings:
        """Return which sentences are learned from."""
        settings = cast("SynthesizeStage | ViewsStage", self.learned_from[0].settings)
        return SentenceSettings(**settings.part(SentenceSettings))

    def texts(self, *, held_out: bool) -> SentenceSettings:
        """Return whole texts, those that nothing is learned from or the others."""
        settings = self.sentences()
        share = (self.border, 1.0) if held_out else (0.0, self.border)
        sources = [source.model_copy(update={"share": share}) for source in settings.sentences]
        whole = {"split": False, "max_premise_words": None, "max_sentences": 2 * HELD_OUT.rows}
        return settings.model_copy(update={"sentences": sources, **whole})


def chosen_plan(texts: Sequence[str]) -> AdaptPlan:
    """Return the plan that suits texts: directions are weighted where texts have several sentences.

    Parts of a single sentence lack what the sentence says, so they would teach and judge wrongly.
    """
    num_leads = sum(1 for _ in views_of(texts, "lead"))
    return "titles-reweight" if num_leads >= max(1, _ENOUGH_LEADS * len(texts)) else "titles"


def _encoder_settings(model: str, revision: str | None) -> dict[str, Any]:
    """Return how a model is read out that does not say it itself."""
    if model.startswith(FRESH):
        return {}
    folder = find_folder(model, revision=revision, weights=False)
    is_plain = (folder / "config.json").exists() and not (folder / "modules.json").exists()
    return dict(_PLAIN_T5) if is_plain and "t5" in model_type_of(folder) else {}
