"""Templates of the generator/discriminator to token ids: every piece and every sentence is tokenised by itself."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tercet.encoder.model.prompts import SYNTHESIS_TEMPLATES, template_pieces
from tercet.encoder.model.tokens import bare_ids
from tercet.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LABELS = ("true", "false")
"""What the discriminator writes of an entailment, and of a contradiction."""


class TemplateTokens:
    """Turns sentences in a template into token ids: pieces and sentences one after the other, and the end once.

    Published generator/discriminators were trained so. It is not the same as tokenising the whole string, in which only
    the first piece starts a new word. Only sentences are cut, each by itself: the template is always whole.

    Args:
        tokenizer: A tokenizer of a T5.
        max_tokens: The most that is read of each sentence.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_tokens: int) -> None:
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._end = end_id(tokenizer)
        self._pieces = {
            name: bare_ids(tokenizer, template_pieces(template)) for name, template in SYNTHESIS_TEMPLATES.items()
        }

    def __call__(self, template: str, *columns: Sequence[str]) -> list[list[int]]:
        """Return the ids of a named template for each row.

        Args:
            template: A name in SYNTHESIS_TEMPLATES.
            *columns: The sentences of the first slot, and of the second where there is one.
        """
        pieces = self._pieces[template]
        cut = [[ids[: self._max_tokens] for ids in bare_ids(self._tokenizer, column)] for column in columns]
        return [
            [*chain.from_iterable(chain(*zip_longest(pieces, sentences, fillvalue=()))), self._end]
            for sentences in zip(*cut, strict=True)
        ]


def target_ids(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], *, max_tokens: int) -> list[list[int]]:
    """Return what is to be written of each text: its ids and the end, together no more than `max_tokens`."""
    return [[*ids[: max_tokens - 1], end_id(tokenizer)] for ids in bare_ids(tokenizer, texts)]


def label_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the ids of `true` and `false`.

    Raises:
        ModelError: One of them is not one token of its own in the vocabulary.
    """
    found = bare_ids(tokenizer, LABELS)
    for label, ids in zip(LABELS, found, strict=True):
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            pieces = " ".join(tokenizer.convert_ids_to_tokens(ids))
            raise ModelError(
                f"the vocabulary has no token for {label!r} (it is {pieces}), which a discriminator writes. "
                "Take a model with another tokenizer."
            )
    return [ids[0] for ids in found]


def end_id(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the id that ends a text.

    Raises:
        ModelError: There is none.
    """
    end = tokenizer.eos_token_id
    if not isinstance(end, int):
        raise ModelError("the tokenizer has no end token, which a generator writes. Take the tokenizer of a T5.")
    return end
