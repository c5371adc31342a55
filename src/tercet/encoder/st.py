"""The module that sentence-transformers loads for what its own modules cannot express.

Named in a folder's `modules.json` and imported by sentence-transformers only; nothing in Tercet needs it. It tokenises
with the prompt and reads out the vector; dense layers and normalisation stay sentence-transformers' own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import InputModule
from torch import Tensor

from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.layout import OWN_FILE, write_transformer
from tercet.encoder.forward.batches import pad
from tercet.encoder.model.readouts import describe_readout
from tercet.encoder.model.tokens import Tokens
from tercet.encoder.model.tower import Head, Tower
from tercet.storage.files import write_json


class TextReadout(InputModule):
    """Text in, readout out: the decoder readout, and prompts with text after the slot."""

    def __init__(self, tower: Tower, tokens: Tokens) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tower = tower
        self.tokens = tokens
        self.tokenizer = tokens.tokenizer

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, *, revision: str | None = None, **_kwargs: Any
    ) -> "TextReadout":
        """Load the module from a model folder or a hub id."""
        encoder = Encoder.load(model_name_or_path, revision=revision, device="cpu")
        head = encoder.tower.head
        readout_only = Tower(encoder.tower.backbone, Head(head.readout, head.in_width, normalize=False))
        return cls(readout_only.eval(), encoder.tokens)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_kwargs: Any) -> dict[str, Tensor]:
        """Return the padded ids of texts, the model's own prompt included."""
        ids, _ = self.tokens([(prompt or "") + text for text in inputs])
        input_ids, mask = pad(ids, pad_id=self.tokens.pad_id)
        return {"input_ids": input_ids, "attention_mask": mask}

    def forward(self, features: dict[str, Tensor], **_kwargs: Any) -> dict[str, Tensor]:
        """Add the readout to the features."""
        return features | {"sentence_embedding": self.tower.read(features["input_ids"], features["attention_mask"])}

    def get_embedding_dimension(self) -> int:
        """Return the width of the readout."""
        return self.tower.head.width

    @property
    def max_seq_length(self) -> int:
        """The most tokens that are read of a text, prompt included."""
        return self.tokens.max_tokens

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        old = self.tokens
        self.tokens = Tokens(old.tokenizer, prompt=old.prompt, max_tokens=value, lowercase=old.lowercase)

    def save(self, output_path: str, *_args: Any, **_kwargs: Any) -> None:
        """Write transformer, tokenizer and our settings into a model folder."""
        dtype = next(self.tower.parameters()).dtype
        write_transformer(Path(output_path), self.tower, self.tokens, dtype=dtype)
        own = describe_readout(self.tower.head.readout) | {"prompt": self.tokens.prompt.setting}
        write_json(Path(output_path) / OWN_FILE, own)
