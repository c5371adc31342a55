"""What can be chosen about the rows that a stage learns from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tercet.data.reading.datasets import HUB
from tercet.data.reading.formats import Format
from tercet.data.rows.clean import CleanSettings
from tercet.data.rows.columns import FIELDS, FileKind
from tercet.storage.settings import NUMBER, RULE, Settings, checked, number_or_rule

_FIELD_NAMES = sorted({field for fields in FIELDS.values() for field in fields})


def _with_text_keys(value: Any) -> Any:
    return {str(key): meaning for key, meaning in value.items()} if isinstance(value, Mapping) else value


def _new_name(value: Any) -> Any:
    if value == "labelled":
        raise ValueError("is now called nli (premise, hypothesis, label), or classes (text, label)")
    return value


def _text_of_path(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _within_one(value: Any) -> Any:
    low, high = value if isinstance(value, list | tuple) and len(value) == 2 else (0.0, value)
    try:
        fits = 0 <= float(low) < float(high) <= 1
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError("a share is a number above 0, at most 1, or two of them: from where to where")
    return value


class SourceSettings(Settings):
    """One source of rows. A text alone stands for `{path: TEXT}`."""

    path: Annotated[str, BeforeValidator(_text_of_path)] = Field(min_length=1)
    """A file; or a dataset of the hub: `hub:ID#CONFIG@SPLIT`; `#CONFIG` and `@SPLIT` (`train`) may be left out."""

    translations: Annotated[str, BeforeValidator(_text_of_path)] | None = None
    """The file whose line n is the translation of line n of `path`: two line-aligned files, as Moses has them."""

    kind: Annotated[FileKind | None, BeforeValidator(_new_name)] = None
    """What it holds; by its columns where null."""

    format: Format | None = None
    """How the file is written; by its ending where null, and `snli` where a .txt file begins with `gold_label`."""

    columns: dict[str, str | list[str]] | list[str] | None = None
    """Field to column, where aliases do not find it (`negative` to one or several; `a.b` is the part `b` of the column
    `a`). Or, for CSV and TSV without a header, the list of column names, with `_` for those of no use."""

    labels: Annotated[
        dict[str, Literal["entailment", "neutral", "contradiction", "-"]], BeforeValidator(_with_text_keys)
    ] = Field(default={})
    """What values of an NLI file's label column stand for, besides their own names; `-` is for rows to leave out."""

    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The share of rows (or batches) from this source, in proportion to the others' weights. All sources have one or
    none; without, an epoch has every row once."""

    share: Annotated[float | tuple[float, float], BeforeValidator(_within_one)] = Field(
        default=1.0, exclude_if=lambda share: share == 1
    )
    """How much of it is used: records are chosen by a hash of their texts, so those of a share are among those of every
    larger one. NLI pairs are chosen by their premise. Or from where to where: of `[0, 0.9]` and `[0.9, 1]` one has
    what the other has not; there triplets and pairs are chosen by their anchor, so that those of one stay together."""

    nli_negatives: int = Field(default=1, ge=1)
    """NLI pairs to triplets: at most so many contradictions of the premise go with an entailment."""

    nli_pairs: bool = True
    """NLI pairs to triplets: whether entailments without a contradiction are rows without negatives."""

    stream: bool = False
    """Hub only: read the dataset over the network again and again, in place of fetching it first. Then it has no number
    of rows and no epochs."""

    revision: str | None = None
    """Hub only: the branch, tag or commit."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _fits(self) -> "SourceSettings":
        if isinstance(self.columns, dict):
            for field, column in self.columns.items():
                if field not in _FIELD_NAMES:
                    raise ValueError(f"columns.{field}: there is no such field. Known: {', '.join(_FIELD_NAMES)}")
                if not isinstance(column, str) and field != "negative":
                    raise ValueError(f"columns.{field}: only `negative` may be several columns")
        if self.translations is not None and (self.is_hub or self.format not in (None, "lines") or self.columns):
            raise ValueError("translations is for two files of plain lines, which have neither format nor columns")
        if self.is_hub:
            if self.format is not None or isinstance(self.columns, list):
                raise ValueError("a dataset of the hub has no format and no list of columns")
        elif self.stream or self.revision is not None:
            raise ValueError("stream and revision are for datasets of the hub")
        return self

    @property
    def is_hub(self) -> bool:
        """Whether it is a dataset of the hub."""
        return self.path.startswith(HUB)


class RowSettings(Settings):
    """Where rows come from and in which order. A source alone, or a list of them, stands for `{sources: ...}`."""

    sources: list[SourceSettings] = Field(min_length=1)
    """Files and datasets."""

    mixing: Literal["mixed", "one_source_per_batch"] = "mixed"
    """Whether a batch has rows of all sources, or of one."""

    shuffle: bool = True
    """Whether rows come in a new order in every epoch; else as they stand, source after source."""

    shuffle_buffer: int = Field(default=65_536, ge=1)
    """How many rows of a streamed dataset are shuffled at a time. All else is shuffled as a whole; of Parquet files the
    row groups, and the rows of each."""

    no_duplicates: bool = False
    """Whether rows that share a text are kept out of one batch: the later one waits for a later batch."""

    clean: CleanSettings | None = None
    """Which parallel pairs are left out; None for none."""

    leaks: list[Path] = Field(default=[], exclude_if=lambda leaks: not leaks)
    """Files and folders with evaluation texts: rows that share a text with them are left out."""

    on_error: Literal["fail", "skip"] = "fail"
    """What a bad row does: end everything, or be left out."""

    rejects: Path | None = None
    """With `skip`, the file that tells about rows that were left out, as JSONL: file, line, reason, raw."""

    max_bad_fraction: float = Field(default=0.01, ge=0, le=1)
    """With `skip`, the most of a source's rows that may be bad."""

    @model_validator(mode="before")
    @classmethod
    def _sources_alone(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return {"sources": list(value)}
        is_source = isinstance(value, str | Path | SourceSettings) or (isinstance(value, Mapping) and "path" in value)
        return {"sources": [value]} if is_source else value

    @model_validator(mode="after")
    def _fits(self) -> "RowSettings":
        weights = [source.weight for source in self.sources]
        if self.clean is not None and self.clean.duplicates and any(source.stream for source in self.sources):
            raise ValueError("clean.duplicates: a streamed dataset is read again and again. Set it to false")
        if None in weights and any(weights):
            raise ValueError("some sources have a weight and some have none: give all of them one, or none")
        if len(weights) > 1 and weights[0] is None and any(source.stream for source in self.sources):
            raise ValueError("a streamed dataset has no number of rows: give each source a weight")
        return self

    @classmethod
    def of(cls, value: Any, *, where: str = "rows") -> "RowSettings":
        """Return settings from what a recipe has: settings, a mapping, a source, or a list of sources.

        Raises:
            SettingError: A key is unknown or a value does not fit; the message has the key's path.
        """
        return checked(cls, value, [where])


class HeldOutRule(Settings):
    """How many rows nothing is learned from: `{rows: 100, least: 0.1, most: 0.3}`."""

    rows: int = Field(ge=1)
    """About so many."""

    least: float = Field(default=0.0, ge=0, lt=1)
    """The smallest share of all rows."""

    most: float = Field(default=0.5, gt=0, lt=1)
    """The largest share of all rows."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.least > self.most:
            raise ValueError("least is more than most")
        return self

    def share(self, num_rows: int) -> float:
        """Return the share of so many rows."""
        return min(max(self.rows / num_rows, self.least), self.most)


HeldOut = Annotated[
    Annotated[float, Field(gt=0, lt=1), Tag(NUMBER)] | Annotated[HeldOutRule, Tag(RULE)],
    Discriminator(number_or_rule),
]
"""Which share of rows nothing is learned from: a number, or `{rows: NUMBER, least: SHARE, most: SHARE}`."""
