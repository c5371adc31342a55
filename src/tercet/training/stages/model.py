"""A model that a stage uses besides the one that it starts from: a teacher, a source."""

from typing import Any

from tercet.encoder.choice import ModelSettings
from tercet.encoder.encoder import Encoder
from tercet.training.stages.stage import Context


class StageModel(ModelSettings):
    """Which encoder it is: a model by its name, or `@NAME`, the encoder of an earlier stage."""

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

    def load_in(self, context: Context) -> Encoder:
        """Load it where the run computes."""
        tokenizer = self.tokenizer and context.place(self.tokenizer)
        placed = self.model_copy(update={"model": context.place(self.model), "tokenizer": tokenizer})
        return placed.load(device=str(context.processes.device), seed=context.seed + 1)  # a fresh one is no twin
