"""A model that a stage uses besides the one that it starts from: a teacher, a source."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from tercet.encoder.model.encoder import Encoder
from tercet.training.stages.stage import Context


class ModelSettings(BaseModel):
    """Which encoder it is. A text alone stands for `{model: TEXT}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    """A model by its name, or `@NAME`: the encoder of an earlier stage."""

    revision: str | None = None
    """Its branch, tag or commit on the hub."""

    convert_pickle: bool = False
    """Whether a model that has only pickled weights may be converted, weights only."""

    tokenizer: str | None = None
    """The tokenizer of a fresh model (`random:bert-mini`), or another one than the model's own."""

    encoder: dict[str, Any] = {}
    """Its readout, prompt, max_tokens and so on; what is not given is as the model has it."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    def names(self) -> list[str]:
        """Return the models that it names."""
        return [name for name in (self.model, self.tokenizer) if name is not None]

    def describe(self, context: Context) -> dict[str, Any]:
        """Return what decides it, as JSON."""
        described: dict[str, Any] = {
            **context.describe_model(self.model, revision=self.revision, pickles=self.convert_pickle)
        }
        if self.tokenizer is not None:
            described["tokenizer"] = context.describe_model(self.tokenizer, weights=False)
        return described

    def load(self, context: Context) -> Encoder:
        """Load it where the run computes."""
        return Encoder.load(
            context.place(self.model),
            tokenizer=self.tokenizer and context.place(self.tokenizer),
            device=str(context.processes.device),
            revision=self.revision,
            convert_pickle=self.convert_pickle,
            seed=context.seed + 1,  # a fresh one is not to be the start's twin
            **self.encoder,
        )
