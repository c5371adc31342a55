"""A tower whose transformer is only weights, as they stand in a file: enough to embed, and nothing to import."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tercet.encoder.folder.backbone import backbone_from_weights, model_type_of
from tercet.encoder.folder.limits import check_floats, check_unused
from tercet.encoder.forward.vectors import read_shape
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tower import Head, Tower
from tercet.encoder.model.trusted import read_json

Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class StoredTower:
    """A transformer's configuration and weights, and its head: what a Tower is made from when one is needed."""

    config: dict[str, Any]
    stored: dict[str, Tensor]
    """The transformer's weights, in the number format of the file; they stay there until they are used."""

    head: Head
    device: ClassVar[torch.device] = torch.device("cpu")

    def weights(self) -> dict[str, Tensor]:
        """Return the transformer's weights by name, in fp32."""
        return {name: weight.float() for name, weight in self.stored.items()}

    def state(self) -> object:
        """Return something that is another thing after the weights have changed: these never do."""
        return None

    def load(self) -> Tower:
        """Return the tower, with a model of transformers in it."""
        backbone = backbone_from_weights(self.config, self.weights(), decoder=self.head.needs_decoder)
        return Tower(backbone, self.head).eval()


def read_weights(folder: Path, *, decoder: bool) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Return the configuration and the weights of a transformer for its packed forward.

    None where it has none, or where its files are not in the usual form: transformers reads those, or says why not.
    """
    model_type_of(folder)
    config, file = read_json(folder / "config.json"), folder / "model.safetensors"
    if not file.exists():
        return None
    try:
        if read_shape(config) is None:
            return None
        wanted = _t5_sizes(config, decoder) if config["model_type"] in T5_FAMILY else _bert_sizes(config)
        found = load_file(file)
    except (KeyError, TypeError, ValueError, OSError, SafetensorError):
        return None
    weights = {name: found.get(name) for name in wanted}
    if any(weight is None or weight.shape != wanted[name] for name, weight in weights.items()):
        return None
    used = {name: weight for name, weight in weights.items() if weight is not None}
    check_unused(found.keys() - used.keys(), folder, decoder=decoder)
    check_floats(used, folder)
    return config, used


def _t5_sizes(config: Mapping[str, Any], decoder: bool) -> Sizes:
    width, num_heads, hidden = config["d_model"], config["num_heads"], config["d_ff"]
    inner = num_heads * config["d_kv"]
    ups = ("wi_0", "wi_1") if "gated" in config.get("feed_forward_proj", "relu") else ("wi",)
    sizes: Sizes = {"shared.weight": (config["vocab_size"], width)}

    def attention(prefix: str, kind: str) -> None:
        sizes[f"{prefix}.layer_norm.weight"] = (width,)
        sizes.update({f"{prefix}.{kind}.{name}.weight": (inner, width) for name in "qkv"})
        sizes[f"{prefix}.{kind}.o.weight"] = (width, inner)

    def side(name: str, num_layers: int, attentions: tuple[str, ...]) -> None:
        sizes[f"{name}.final_layer_norm.weight"] = (width,)
        for i in range(num_layers):
            prefix = f"{name}.block.{i}.layer"
            for j, kind in enumerate(attentions):
                attention(f"{prefix}.{j}", kind)
            if i == 0 or config["model_type"] == "umt5":
                bias = (config.get("relative_attention_num_buckets", 32), num_heads)
                sizes[f"{prefix}.0.SelfAttention.relative_attention_bias.weight"] = bias
            feed_forward = f"{prefix}.{len(attentions)}"
            sizes[f"{feed_forward}.layer_norm.weight"] = (width,)
            sizes.update({f"{feed_forward}.DenseReluDense.{up}.weight": (hidden, width) for up in ups})
            sizes[f"{feed_forward}.DenseReluDense.wo.weight"] = (width, hidden)

    side("encoder", config["num_layers"], ("SelfAttention",))
    if decoder:
        num_layers = config.get("num_decoder_layers") or config["num_layers"]
        side("decoder", num_layers, ("SelfAttention", "EncDecAttention"))
    return sizes


def _bert_sizes(config: Mapping[str, Any]) -> Sizes:
    width, hidden = config["hidden_size"], config["intermediate_size"]
    tables = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    sizes: Sizes = {f"embeddings.{table}_embeddings.weight": (config[size], width) for table, size in tables.items()}
    linears = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
    linears |= {"attention.output.dense": (width, width)}
    linears |= {"intermediate.dense": (hidden, width), "output.dense": (width, hidden)}
    norms = ["embeddings.LayerNorm"]
    for i in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{i}"
        sizes |= {f"{prefix}.{name}.weight": size for name, size in linears.items()}
        sizes |= {f"{prefix}.{name}.bias": size[:1] for name, size in linears.items()}
        norms += [f"{prefix}.attention.output.LayerNorm", f"{prefix}.output.LayerNorm"]
    return sizes | {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
