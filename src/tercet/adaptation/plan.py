"""What is done to adapt an encoder: a recipe of two stages. All that was chosen for little data is at the top."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tercet.data.rows.settings import HUB, RowSettings
from tercet.encoder.folder.backbone import model_type_of
from tercet.encoder.folder.names import FRESH, find_folder
from tercet.errors import SettingError
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_SYNTHESIZER
from tercet.storage.hashing import text_place
from tercet.synthesis.settings import SentenceSettings
from tercet.training.recipe import Recipe, make_recipe
from tercet.training.stages.contrast import ContrastStage
from tercet.training.stages.stage import REFERENCE
from tercet.training.stages.synthesize import SynthesizeStage

MODEL, SYNTHESIZER = DEFAULT_MODEL, DEFAULT_SYNTHESIZER

MIN_TRIPLETS = 20
"""With fewer accepted triplets there is nothing to learn from, and nothing to measure by."""

_NUM_CANDIDATES, _MAX_SAMPLES = 2_000, 4
"""So many candidates are wanted: a small pile gets several for each sentence, at most so many."""

_SHARD_SENTENCES = 256
"""A killed run loses no more."""

_MIN_PREMISE_WORDS = 5
"""Fewer than GenSE's eight: sentences of one domain are often short."""

_NUM_HELD_OUT, _LEAST_HELD_OUT, _MOST_HELD_OUT = 100, 0.1, 0.3
"""So many triplets are held out to select and to measure by, within these shares of all."""

_EPOCHS, _MIN_STEPS, _MAX_STEPS = 3, 40, 1_000
"""How long: so many times over the triplets, within these numbers of steps."""

_NUM_SCORES = 5
"""How often the encoder is scored on what is held out; the best of these is kept."""

_CONTRAST: dict[str, Any] = {
    "batch": 64,
    "optimizer": "adamw",
    "learning_rate": 1.0e-4,
    "schedule": "warmup-linear",
    "warmup_fraction": 0.1,
    "temperature": 0.05,
    "mask_duplicates": True,
    "precision": "auto",
    "checkpoint_every": 20,
}

_SMALL: dict[str, Any] = {"alpha": 0.6, "min_hypothesis_words": 4, "temperature": 0.7}
"""How `mini-synth` writes, and what is accepted of it: by GenSE's rules, too little would be left."""

_SMALL_RATE = 2.0e-5
"""How fast the encoder learns from it: much of what so small a model writes is wrong, and faster does more harm."""

_PLAIN_T5: dict[str, Any] = {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
"""How a T5 that is no sentence encoder yet is read out: as in GenSE."""

_SYNTHESIZE, _CONTRAST_STAGE = "synthesize", "contrast"


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    sentences: tuple[str, ...]
    synthesizer: str = SYNTHESIZER
    model: str = MODEL
    own: tuple[str, ...] = ()
    """Tasks of one's own, as `evaluate` names them: KIND:FILE."""
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

    def content(
        self,
        *,
        num_sentences: int | None = None,
        anchors: Sequence[str] = (),
        first: ContrastStage | None = None,
    ) -> dict[str, Any]:
        """Return the recipe.

        Args:
            num_sentences: How many sentences there are; None where they are streamed, or not counted yet.
            anchors: The anchor of each accepted triplet; none where nothing is accepted yet.
            first: How the encoder would be trained without what follows from the settings that were asked for.
        """
        rows = f"{REFERENCE}{_SYNTHESIZE}"
        border = _border(anchors)
        batch = first.batch if first else _CONTRAST["batch"]
        steps = round(_EPOCHS * sum(text_place(anchor) < border for anchor in anchors) / batch)
        steps = min(max(steps, _MIN_STEPS), _MAX_STEPS)
        every = -(-((first and first.steps) or steps) // _NUM_SCORES)
        dev = {"rows": {"path": rows, "share": [border, 1.0]}, "every": every, "keep": "best"}
        contrast = {"rows": {"path": rows, "share": [0.0, border]}, "steps": steps, **_CONTRAST, "evaluate": dev}
        if self.synthesizer == SYNTHESIZER:
            contrast["learning_rate"] = _SMALL_RATE
        return {
            "seed": self.seed,
            "start": self.model,
            "encoder": _encoder_settings(first.start or self.model, first.revision) if first else {},
            "stages": [
                {"name": _SYNTHESIZE, "synthesize": self._synthesis(num_sentences)},
                {"name": _CONTRAST_STAGE, "contrast": contrast},
            ],
        }

    def _synthesis(self, num_sentences: int | None) -> dict[str, Any]:
        columns = {} if self.column is None else {"columns": {"text": self.column}}
        wanted = max(1, round(_NUM_CANDIDATES / num_sentences)) if num_sentences else 1
        return {
            "sentences": [{"path": path, "stream": path.startswith(HUB), **columns} for path in self.sentences],
            "split": self.split,
            "max_sentences": self.max_sentences,
            "min_premise_words": _MIN_PREMISE_WORDS,
            "model": self.synthesizer,
            "num_samples": min(wanted, _MAX_SAMPLES),
            "shard_sentences": _SHARD_SENTENCES,
            "leaks": [name.partition(":")[2] for name in self.own],
            **(_SMALL if self.synthesizer == SYNTHESIZER else {}),
        }


@dataclass(frozen=True)
class Plan:
    """The recipe of a request, and what stands in it."""

    recipe: Recipe

    @classmethod
    def of(cls, request: Request, **known: Any) -> "Plan":
        """Make the plan of a request.

        Args:
            request: What was asked for.
            **known: What is known by now: see `Request.content`.

        Raises:
            SettingError: A setting is unknown or does not fit.
            ModelError: The model cannot be found.
        """
        plan = cls(make_recipe(request.content(**known), default_name="adapt", changes=request.changes))
        for _ in range(2):  # the steps follow from the batch, and when to score from the steps
            content = request.content(**known, first=plan.contrast)
            plan = cls(make_recipe(content, default_name="adapt", changes=request.changes))
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
    def held_out(self) -> RowSettings:
        """The triplets that nothing is learned from.

        Raises:
            SettingError: There are none.
        """
        dev = self.contrast.evaluate
        held_out = None if dev is None else dev.rows
        shares = [
            source.share
            for rows in (self.contrast.rows, held_out)
            if rows is not None
            for source in rows.sources
            if source.path == f"{REFERENCE}{_SYNTHESIZE}" and isinstance(source.share, tuple)
        ]
        if held_out is None or len(shares) != 2 or len(self.contrast.rows.sources + held_out.sources) != 2:
            raise SettingError(
                f"stages.{_CONTRAST_STAGE}: rows and evaluate.rows are two parts of what was synthesised, and the "
                "report is about the second. Change nothing but their shares: [FROM, TO]."
            )
        (low, high), (dev_low, dev_high) = shares
        if low < dev_high and dev_low < high:
            raise SettingError(
                f"stages.{_CONTRAST_STAGE}.rows.share [{low}, {high}]: has triplets of evaluate.rows.share "
                f"[{dev_low}, {dev_high}], which nothing may be learned from. Make them disjoint."
            )
        return held_out


def _border(anchors: Sequence[str]) -> float:
    """Return from which place on triplets are held out: behind it lies the wanted share of all sentences, exactly."""
    if not anchors:
        return 1 - _MOST_HELD_OUT
    share = min(max(_NUM_HELD_OUT / len(anchors), _LEAST_HELD_OUT), _MOST_HELD_OUT)
    places = sorted({text_place(anchor) for anchor in anchors})
    return places[-max(1, round(share * len(places)))]


def _encoder_settings(model: str, revision: str | None) -> dict[str, Any]:
    """Return how a model is read out that does not say it itself."""
    if model.startswith(FRESH):
        return {}
    folder = find_folder(model, revision=revision, weights=False)
    is_plain = (folder / "config.json").exists() and not (folder / "modules.json").exists()
    return dict(_PLAIN_T5) if is_plain and "t5" in model_type_of(folder) else {}
