"""An Encoder under mteb: `mteb.evaluate(for_mteb(encoder), tasks)`."""

from typing import TYPE_CHECKING, Any, Unpack

from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import EmbedOptions
from tercet.errors import SettingError
from tercet.storage.extras import require
from tercet.storage.hashing import sha256_of_json

require("mteb", "mteb")
from mteb.models import ModelMeta  # noqa: E402
from mteb.models.abs_encoder import AbsEncoder  # noqa: E402
from mteb.models.model_meta import ScoringFunction  # noqa: E402

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput, EncodeKwargs, PromptType
    from torch.utils.data import DataLoader


def for_mteb(encoder: Encoder, *, name: str = "tercet/encoder", **options: Unpack[EmbedOptions]) -> "MtebEncoder":
    """Return an encoder as mteb wants one.

    Args:
        encoder: What embeds.
        name: What results call it, with a slash in it. mteb keeps results under this name and a hash of the encoder
            and the options, so that no encoder is given the results of another.
        **options: See `EmbedOptions`.

    Raises:
        SettingError: The name has no slash.
    """
    if "/" not in name:
        raise SettingError(f"name {name!r}: mteb wants an owner in it. Write owner/{name}.")
    meta = ModelMeta.create_empty(
        {
            "name": name,
            "revision": sha256_of_json([encoder.fingerprint(), *map(options.get, ("precision", "dims", "normalize"))]),
            "n_parameters": encoder.num_parameters,
            "max_tokens": encoder.tokens.max_tokens,
            "embed_dim": options.get("dims") or encoder.dim,
            "framework": ["PyTorch"],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
    )
    return MtebEncoder(encoder, meta, options)


class MtebEncoder(AbsEncoder):
    """An Encoder with mteb's methods. `for_mteb` makes one."""

    def __init__(self, encoder: Encoder, meta: ModelMeta, options: EmbedOptions) -> None:
        self.encoder = encoder
        self.mteb_model_meta = meta
        self.options = options

    def encode(
        self,
        inputs: "DataLoader[BatchedInput]",
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: "PromptType | None" = None,
        **kwargs: "Unpack[EncodeKwargs]",
    ) -> Vectors:
        """Embed the texts of all batches. Batches are ours, by tokens; the prompt is the encoder's own."""
        if "precision" in kwargs:
            raise SettingError("precision: is not for mteb to set. Give it to for_mteb.")
        texts: list[Any] = [text for batch in inputs for text in batch["text"]]
        options: EmbedOptions = {"progress": kwargs.get("show_progress_bar", False), **self.options}
        return self.encoder.embed(texts, **options)
