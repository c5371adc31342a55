"""What is done to adapt an encoder: a recipe of two stages. All that was chosen for little data is at the top."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from tercet.data.feeding.held_out import split_rows
from tercet.data.reading.datasets import HUB
from tercet.data.rows.settings import HeldOut, RowSettings
from tercet.encoder.folder.backbone import model_type_of
from tercet.encoder.folder.names import FRESH, find_folder
from tercet.encoder.model.settings import EncoderSettings
from tercet.errors import SettingError
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_SYNTHESIZER
from tercet.synthesis.settings import SentenceSettings
from tercet.training.recipe import Recipe, make_recipe
from tercet.training.stages.contrast import ContrastStage
from tercet.training.stages.stage import REFERENCE
from tercet.training.stages.synthesize import SynthesizeStage

MIN_TRIPLETS = 20
"""With fewer accepted triplets there is nothing to learn from, and nothing to measure by."""

_NUM_SAMPLES = {"candidates": 2_000, "most": 4}
"""A small pile gets several candidates for each sentence."""

_SHARD_SENTENCES = 256
"""A killed run loses no more."""

_HELD_OUT = {"rows": 100, "least": 0.1, "most": 0.3}
"""So many triplets are held out to select and to measure by, within these shares of all."""

_STEPS = {"epochs": 3, "least": 40, "most": 1_000}
"""How long: so many times over the triplets, within these numbers of steps."""

_NUM_SCORES = 5
"""How often the encoder is scored on what is held out; the best of these is kept."""

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

_SYNTHESIZE, _CONTRAST_STAGE = "synthesize", "contrast"


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    sentences: tuple[str, ...]
    synthesizer: str = DEFAULT_SYNTHESIZER
    model: str = DEFAULT_MODEL
    own: tuple[str, ...] = ()
    """Your own tasks, as `evaluate` names them: KIND:FILE."""
    split: bool = False
    column: str | None = None
    max_sentences: int | None = None
    seed: int = 0
    changes: tuple[str, ...] = ()
    """Settings of the recipe: PATH=VALUE."""

    def command(self, out: Path, data: str | Path | None) -> str:
        """Return the command that asks for it."""
        words = ["tercet", "adapt", *self.sentences, "--out", str(out)]
        words += ["--model", self.model, "--synthesizer", self.synthesizer]
        for option, value in (("--column", self.column), ("--max-sentences", self.max_sentences), ("--data", data)):
            words += [] if value is None else [option, str(value)]
        words += ["--split"] if self.split else []
        words += ["--seed", str(self.seed)] if self.seed else []
        for option, values in (("--eval", self.own), ("--set", self.changes)):
            words += [word for value in values for word in (option, value)]
        return shlex.join(words)

    def content(self) -> dict[str, Any]:
        """Return what the recipe's file would hold, before the changes that were asked for."""
        contrast = {
            "rows": {"path": f"{REFERENCE}{_SYNTHESIZE}"},
            "steps": _STEPS,
            **_CONTRAST,
            "evaluate": {"held_out": _HELD_OUT, "every": {"times": _NUM_SCORES}, "keep": "best"},
        }
        return {
            "seed": self.seed,
            "start": self.model,
            "stages": [
                {"name": _SYNTHESIZE, "synthesize": self._synthesis()},
                {"name": _CONTRAST_STAGE, "contrast": contrast},
            ],
        }

    def _synthesis(self) -> dict[str, Any]:
        columns = {} if self.column is None else {"columns": {"text": self.column}}
        return {
            "sentences": [{"path": path, "stream": path.startswith(HUB), **columns} for path in self.sentences],
            "split": self.split,
            "max_sentences": self.max_sentences,
            "model": self.synthesizer,
            "num_samples": _NUM_SAMPLES,
            "min_triplets": MIN_TRIPLETS,
            "shard_sentences": _SHARD_SENTENCES,
            "leaks": [name.partition(":")[2] for name in self.own],
        }


@dataclass(frozen=True)
class Plan:
    """The recipe of a request, and what stands in it."""

    recipe: Recipe

    @classmethod
    def of(cls, request: Request) -> "Plan":
        """Make the plan of a request.

        Raises:
            SettingError: A setting is unknown or does not fit.
            ModelError: The model cannot be found.
        """
        recipe = make_recipe(request.content(), default_name="adapt", changes=request.changes)
        if [stage.kind for stage in recipe.stages] != [_SYNTHESIZE, _CONTRAST_STAGE]:
            raise SettingError(f"stages: are two, {_SYNTHESIZE} and {_CONTRAST_STAGE}. Change their settings alone.")
        synthesis, training = recipe.stages
        settings = cast("ContrastStage", training.settings)
        readout = _encoder_settings(settings.start or request.model, settings.revision)
        encoder = EncoderSettings(**{**readout, **settings.encoder.given()})
        training = replace(training, settings=settings.model_copy(update={"encoder": encoder}))
        plan = cls(replace(recipe, stages=(synthesis, training)))
        _ = plan.held_out
        return plan

    @property
    def contrast(self) -> ContrastStage:
        """The settings of the stage that trains."""
        return cast("ContrastStage", self.recipe.stages[1].settings)

    @property
    def sentences(self) -> SentenceSettings:
        """Which sentences are taken."""
        settings = cast("SynthesizeStage", self.recipe.stages[0].settings)
        return SentenceSettings(**settings.part(SentenceSettings))

    @property
    def held_out(self) -> HeldOut:
        """How many of the triplets nothing is learned from.

        Raises:
            SettingError: None of them, or others than those that were synthesised.
        """
        dev, sources = self.contrast.evaluate, [source.path for source in self.contrast.rows.sources]
        if dev is None or dev.held_out is None or sources != [f"{REFERENCE}{_SYNTHESIZE}"]:
            raise SettingError(
                f"stages.{_CONTRAST_STAGE}: learns from what was synthesised, and the report is about the part that is "
                "held out (evaluate.held_out). Change how much that is, and leave rows as they are."
            )
        return dev.held_out

    def held_out_rows(self, triplets: Path) -> RowSettings:
        """Return the triplets that nothing is learned from, of those in a file."""
        [source] = self.contrast.rows.sources
        sources = [source.model_copy(update={"path": str(triplets)})]
        rows = self.contrast.rows.model_copy(update={"sources": sources})
        return split_rows(rows, self.held_out, kind="triplets")[1]


def _encoder_settings(model: str, revision: str | None) -> dict[str, Any]:
    """Return how a model is read out that does not say it itself."""
    if model.startswith(FRESH):
        return {}
    folder = find_folder(model, revision=revision, weights=False)
    is_plain = (folder / "config.json").exists() and not (folder / "modules.json").exists()
    return dict(_PLAIN_T5) if is_plain and "t5" in model_type_of(folder) else {}
