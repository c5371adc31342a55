"""What can be chosen about an encoder and about one call of it, and what a call reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.model.tower import READOUTS, When
from tercet.errors import SettingError
from tercet.storage.progress import Advance

Vectors = NDArray[np.float32]
OnTruncate = Literal["count", "error"]


class EncoderSettings(TypedDict, total=False):
    """What can be chosen about an encoder; what is not given stays as the model has it."""

    readout: str
    """How hidden states become a vector: a name in READOUTS."""

    mlp: When
    """Whether the MLP of `cls-mlp` is used always or in training only."""

    projection: int | None
    """The width of a linear layer without bias behind the readout; None for none."""

    normalize: bool
    """Whether vectors have length 1."""

    prompt: str | None
    """A template with the slot [X], or the name of one (`gense`); None for none."""

    max_tokens: int
    """The most that the model reads: text, prompt and special tokens."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


# what each setting may be, as a check and in words
_SETTINGS: dict[str, tuple[Callable[[object], bool], str]] = {
    "readout": (lambda value: isinstance(value, str), f"one of: {', '.join(READOUTS)}"),
    "mlp": (lambda value: value in get_args(When), f"one of: {', '.join(get_args(When))}"),
    "projection": (lambda value: value is None or _is_count(value), "a width of at least 1, or null for none"),
    "normalize": (lambda value: isinstance(value, bool), "true or false"),
    "prompt": (lambda value: value is None or isinstance(value, str), "a template with the slot [X], or null for none"),
    "max_tokens": (_is_count, "a number of at least 1"),
}


class EmbedOptions(TypedDict, total=False):
    """What can be chosen for one call of `Encoder.embed`."""

    precision: str
    """`exact` (fp32, the default), `fast` (bf16, fp32 between layers), `int8` (on a CPU), `auto` (`fast` where the
    machine has bf16, else `exact`), or `fp16` (never for T5, which overflows in it)."""

    dims: int | None
    """Keep only the first numbers of each vector, and scale it to length 1 again where it had that."""

    normalize: bool | None
    """Whether vectors have length 1; as the model has it where None."""

    max_batch_tokens: int
    """The most tokens, padding included where there is any, that are computed at once (2,048)."""

    on_truncate: OnTruncate
    """`count` logs how many texts were too long (the default); `error` refuses them."""

    progress: bool | Advance
    """Whether a bar is shown; or the function that moves on a bar that is there already."""


@dataclass(frozen=True)
class EmbedStats:
    """What happened while texts were embedded."""

    num_texts: int = 0
    num_tokens: int = 0
    num_truncated: int = 0

    def __add__(self, other: "EmbedStats") -> "EmbedStats":
        return EmbedStats(
            self.num_texts + other.num_texts,
            self.num_tokens + other.num_tokens,
            self.num_truncated + other.num_truncated,
        )


@dataclass(frozen=True)
class Embedded:
    """Vectors of texts, and what was read of each."""

    vectors: Vectors
    num_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]

    @property
    def stats(self) -> EmbedStats:
        """The counts over all texts."""
        return EmbedStats(len(self.vectors), int(self.num_tokens.sum()), int(self.truncated.sum()))

    def __getitem__(self, places: "NDArray[np.int64] | slice") -> "Embedded":
        return Embedded(self.vectors[places], self.num_tokens[places], self.truncated[places])

    def __setitem__(self, places: "NDArray[np.int64] | slice", other: "Embedded") -> None:
        self.vectors[places] = other.vectors
        self.num_tokens[places] = other.num_tokens
        self.truncated[places] = other.truncated

    @classmethod
    def empty(cls, num_texts: int, dims: int) -> "Embedded":
        """Return room for the vectors of so many texts."""
        vectors = np.empty((num_texts, dims), np.float32)
        return cls(vectors, np.empty(num_texts, np.int32), np.empty(num_texts, np.bool_))


def check_settings(settings: EncoderSettings) -> None:
    """Raise SettingError if a setting is unknown or its value is of no use."""
    for key, value in settings.items():
        if key not in _SETTINGS:
            raise SettingError(f"setting {key!r}: there is none of that name. Known: {', '.join(_SETTINGS)}.")
        fits, wanted = _SETTINGS[key]
        if not fits(value):
            raise SettingError(f"{key} {value!r}: does not fit. Give {wanted}.")
