"""How the next token is drawn."""

from pydantic import Field

from tercet.storage.settings import Settings


class Sampling(Settings):
    """Nucleus sampling: from the most likely tokens, as many as have this much of the probability together."""

    top_p: float = Field(default=0.9, gt=0, le=1)
    """The probability of the tokens that are drawn from; 1 for all."""

    top_k: int | None = Field(default=50, ge=1)
    """The most tokens that are drawn from; null for no limit."""

    temperature: float = Field(default=1.0, gt=0)
    """What logits are divided by: lower is nearer to the most likely text."""

    max_new_tokens: int = Field(default=64, ge=1)
    """The most tokens of a generated text."""
