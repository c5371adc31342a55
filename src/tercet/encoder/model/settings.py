"""What can be chosen about an encoder and about one call of it, and what a call reports."""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, StrictBool, field_validator, model_serializer

from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.readouts import READOUTS, When
from tercet.storage.choices import OnTruncate
from tercet.storage.progress import Advance
from tercet.storage.settings import Settings


class Keep(Enum):
    """The default of settings for which None means something: nothing was given, and the model's own value stays."""

    AS_STORED = "as the model has it"

    def __repr__(self) -> str:
        return self.value


KEEP = Keep.AS_STORED

Count = Annotated[int, Field(strict=True, ge=1)]


class EncoderSettings(Settings):
    """What can be chosen about an encoder; what is not given stays as the model has it."""

    readout: str | None = None
    """How hidden states become a vector: `enc-mean`, `encdec-first`, `cls` and others."""

    mlp: When | None = None
    """Whether the MLP of `cls-mlp` is used `always` or in `training` only."""

    projection: Count | None = None
    """The width of a linear layer without bias after the readout; null for none."""

    normalize: StrictBool | None = None
    """Whether vectors have length 1."""

    prompt: str | None = None
    """A template with the slot [X], or the name of one (`gense`); null for none."""

    max_tokens: Count | None = None
    """The most that the model reads: text, prompt and special tokens."""

    @field_validator("readout", "mlp", "normalize", "max_tokens")
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("null has no meaning here: leave the setting out")
        return value

    @field_validator("readout")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in READOUTS:
            raise ValueError(f"there is no such readout; known: {', '.join(READOUTS)}")
        return value

    @model_serializer(mode="wrap")
    def _given_alone(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}

    def given(self) -> dict[str, Any]:
        """Return what was given; None stands for no projection or no prompt."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class EmbedOptions(TypedDict, total=False):
    """What can be chosen for one call of `Encoder.embed`."""

    precision: str
    """`exact` (fp32, the default), `fast` (bf16, fp32 between layers), `int8` (on a CPU), `auto` (`fast` where the
    machine has bf16, else `exact`), or `fp16` (never for T5, which overflows in it)."""

    dims: int | None
    """Keep only the first numbers of each vector, and scale it to length 1 again where it had that."""

    normalize: bool | None
    """Whether vectors have length 1; as the model has it where None."""

    max_batch_tokens: int | None
    """The most tokens, padding included where there is any, that are computed at once; where None, 2,048 on a CPU, and
    what its memory holds on a GPU."""

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
    max_tokens: int | None = None
    """What truncated texts were cut to, where it is told."""

    shards: dict[str, Any] | None = None
    """How the shards were made on a cluster: how many, retries, lost workers, the slowest one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return asdict(self)

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
