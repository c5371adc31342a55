"""The stage `tokenizer`: pieces are learned from the texts of rows."""

from typing import Any

from pydantic import Field

from tercet.data.rows.settings import RowSettings
from tercet.encoder.folder.names import find_folder
from tercet.encoder.model.pieces import keep_words, learn_tokenizer
from tercet.encoder.model.tokens import load_tokenizer
from tercet.storage.files import atomic_folder
from tercet.storage.manifest import write_manifest
from tercet.training.stages.stage import Context, Kind, StageSettings
from tercet.training.stages.texts import different_texts, open_texts


class TokenizerStage(StageSettings):
    """The settings of a stage that learns a tokenizer."""

    rows: RowSettings
    """Whose texts it learns from, each once; every kind of rows will do."""

    num_pieces: int = Field(default=16_000, ge=8)
    """How many pieces there are, with padding, end and unknown; fewer where the texts do not have so many."""

    num_sentinels: int = Field(default=100, ge=0)
    """How many tokens there are besides that stand for gaps in span corruption."""

    lowercase: bool = False
    """Whether capital letters are made small."""

    character_coverage: float = Field(default=0.9995, gt=0, le=1)
    """The share of the texts' characters that have a piece."""

    words_of: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """A BERT, or `@NAME`: its words, those that the texts have most often, in place of learned pieces. Capital letters
    are as the BERT has them."""

    first_token: bool = False
    """Whether every text begins with a token of its own, for a BERT that is read out there (`cls`)."""

    def names(self) -> list[str]:
        """Return the files that the stage uses."""
        return [*([self.words_of] if self.words_of else []), *(source.path for source in self.rows.sources)]


class _Tokenizer:
    def __init__(self, settings: TokenizerStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._rows = open_texts(settings.rows, context)
        self.inputs: dict[str, Any] = {"rows": self._rows.describe()}
        if settings.words_of is not None:
            self.inputs["words_of"] = context.describe_model(settings.words_of, weights=False)

    def run(self) -> dict[str, Any]:
        if not self._context.processes.is_main:
            return {}
        settings, texts = self._settings, different_texts(self._rows)
        if settings.words_of is None:
            tokenizer = learn_tokenizer(texts, **settings.model_dump(exclude={"rows", "words_of"}))
        else:
            source = load_tokenizer(find_folder(self._context.place(settings.words_of), weights=False))
            tokenizer = keep_words(source, texts, **settings.model_dump(include={"num_pieces", "num_sentinels"}))
        with atomic_folder(self._context.folder / KIND.output) as folder:
            tokenizer.save_pretrained(folder)
            write_manifest(folder)
        return {"num_tokens": len(tokenizer)}


KIND = Kind(TokenizerStage, _Tokenizer, output="tokenizer", rows="texts")
