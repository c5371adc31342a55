"""Prompts: templates with a slot, such as `[X] Question: what can we draw from the above sentence?`."""

import re
from dataclasses import dataclass

from tercet.errors import SettingError

SLOT = "[X]"

EMBEDDING_PROMPTS = {
    "gense": "[X] Question: what can we draw from the above sentence?",
}
"""Templates that have a name. GenSE's Ts reads the first decoder output after this question."""


@dataclass(frozen=True)
class Prompt:
    """The text before and after the slot of a template."""

    prefix: str
    suffix: str

    @classmethod
    def parse(cls, template: str) -> "Prompt":
        """Read a template, or the name of one.

        Raises:
            SettingError: The template does not have exactly one slot.
        """
        template = EMBEDDING_PROMPTS.get(template, template)
        if template.count(SLOT) != 1:
            names = ", ".join(EMBEDDING_PROMPTS)
            raise SettingError(
                f"prompt {template!r}: needs the slot {SLOT} exactly once, where the text goes. Named: {names}."
            )
        prefix, suffix = template.split(SLOT)
        return cls(prefix, suffix)

    @property
    def setting(self) -> str | None:
        """The template, or None where there is nothing around the slot."""
        return self.template if self.prefix or self.suffix else None

    @property
    def template(self) -> str:
        """The template as it is written."""
        return f"{self.prefix}{SLOT}{self.suffix}"


SYNTHESIS_TEMPLATES = {
    "entailment": 'Write two sentences that are entailment. Sentence 1: "[X1]" Sentence 2:',
    "contradiction": 'Write two sentences that are contradictory. Sentence 1: "[X1]" Sentence 2:',
    "title": "Write a short title for this text: [X1]",
    "discrimination": 'if "[X1]", does this mean that "[X2]"? true or false',
}
"""What a generator/discriminator reads: GenSE's Te, Tc and Td, and ours for titles. It writes the second
sentence, the title, or `true` or `false`."""


def template_pieces(template: str) -> list[str]:
    """Return the text before, between and after a template's slots `[X1]`, `[X2]`."""
    return re.split(r"\[X\d\]", template)
