"""The stage `views`: pairs of the parts of a text, for later stages to learn from; no model is needed."""

import json
from typing import Any

from pydantic import Field

from tercet.errors import InputError
from tercet.storage.choices import View
from tercet.storage.files import atomic_write
from tercet.storage.progress import progress_bar
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings
from tercet.synthesis.views import views_of
from tercet.training.stages.stage import Context, Kind, StageSettings


class ViewsStage(StageSettings, SentenceSettings):
    """The settings of a stage that makes pairs of the parts of texts."""

    max_premise_words: int | None = Field(default=None, ge=1)
    """The most words of a text; null for no limit."""

    view: View = "span"
    """Which part of a text asks for the rest of it. `span`: 3 to 9 words in a row, against the text without them;
    `words`: its 2 to 6 rarest words, against the text without half of them; `lead`: its first sentence, against the
    others; `sentence`: any one of its sentences, against the others."""

    num_views: int = Field(default=1, ge=1)
    """How many pairs each text gives."""

    def names(self) -> list[str]:
        """Return the files that the stage uses."""
        return [source.path for source in self.sentences]


class _Views:
    def __init__(self, settings: ViewsStage, context: Context) -> None:
        self._settings, self._context = settings, context
        sources = [source.model_copy(update={"path": context.place(source.path)}) for source in settings.sentences]
        about = SentenceSettings(**{**settings.part(SentenceSettings), "sentences": sources})
        self._sentences = Sentences(about, rank=context.processes.rank)
        self.inputs = {"sentences": self._sentences.rows.describe()}

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        num_pairs = 0
        with (
            atomic_write(context.folder / KIND.output, "w") as stream,
            progress_bar(
                f"making pairs ({context.name})", total=None, unit="pairs", enabled=context.progress
            ) as advance,
        ):
            pairs = views_of(self._sentences, settings.view, num_views=settings.num_views, seed=context.seed)
            for anchor, positive in pairs:
                stream.write(json.dumps({"anchor": anchor, "positive": positive}, ensure_ascii=False) + "\n")
                num_pairs += 1
                advance(1)
            if not num_pairs:
                raise InputError(
                    f"{settings.sentences[0].path}: no text has a view {settings.view!r}. Give longer texts."
                )
        return {"num_pairs": num_pairs, "sentences": self._sentences.audit()}


KIND = Kind(ViewsStage, _Views, output="pairs.jsonl", rows="texts")
