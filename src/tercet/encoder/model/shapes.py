"""Shapes by name: `t5-small`, `t5-1.1-base`, `mt5-large`, `byt5-small`, `bert-base` and so on.

The sizes are the published ones; `3b` and `11b` are what the later T5 releases call `xl` and `xxl`. `tiny` and `mini`
are the published small shapes of T5 and BERT.
"""

import difflib
from typing import TYPE_CHECKING, Any

from tercet.errors import SettingError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Sizes = dict[str, tuple[int, ...]]

# d_model, d_ff, num_heads, d_kv, num_layers
_T5: Sizes = {
    "tiny": (256, 1024, 4, 32, 4),
    "mini": (384, 1536, 8, 32, 4),
    "small": (512, 2048, 8, 64, 6),
    "base": (768, 3072, 12, 64, 12),
    "large": (1024, 4096, 16, 64, 24),
    "3b": (1024, 16384, 32, 128, 24),
    "11b": (1024, 65536, 128, 128, 24),
}
_T5_GATED: Sizes = {
    "tiny": (256, 512, 4, 32, 4),
    "mini": (384, 1024, 6, 64, 4),
    "small": (512, 1024, 6, 64, 8),
    "base": (768, 2048, 12, 64, 12),
    "large": (1024, 2816, 16, 64, 24),
    "3b": (2048, 5120, 32, 64, 24),
    "11b": (4096, 10240, 64, 64, 24),
}
# ... and num_decoder_layers
_BYT5: Sizes = {
    "tiny": (256, 512, 4, 64, 6, 2),
    "small": (1472, 3584, 6, 64, 12, 4),
    "base": (1536, 3968, 12, 64, 18, 6),
    "large": (1536, 3840, 16, 64, 36, 12),
    "3b": (2560, 6720, 32, 64, 36, 12),
    "11b": (4672, 12352, 64, 64, 36, 12),
}
# hidden_size, num_attention_heads, num_hidden_layers
_BERT: Sizes = {
    "tiny": (128, 2, 2),
    "mini": (256, 4, 4),
    "small": (512, 8, 4),
    "base": (768, 12, 12),
    "large": (1024, 16, 24),
}

_GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# family: (transformers' model type, sizes, further settings)
FAMILIES: dict[str, tuple[str, Sizes, dict[str, Any]]] = {
    "t5": ("t5", _T5, {"vocab_size": 32128}),
    "t5-1.1": ("t5", _T5_GATED, {"vocab_size": 32128, **_GATED}),
    "mt5": ("mt5", _T5_GATED, {"vocab_size": 250112, **_GATED}),
    "umt5": ("umt5", _T5_GATED, {"vocab_size": 256384, **_GATED}),
    "byt5": ("t5", _BYT5, {"vocab_size": 384, **_GATED}),
    "bert": ("bert", _BERT, {"vocab_size": 30522}),
    "roberta": (
        "roberta",
        _BERT,
        {
            "vocab_size": 50265,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
    ),
}


def shape_names() -> list[str]:
    """Return every shape that has a name."""
    return [f"{family}-{size}" for family, (_, sizes, _) in FAMILIES.items() for size in sizes]


def shape_config(shape: str, *, vocab_size: int | None = None) -> "PretrainedConfig":
    """Return the transformers configuration of a named shape.

    Args:
        shape: A family and a size, such as `t5-1.1-base`.
        vocab_size: Replaces the family's own vocabulary size.

    Raises:
        SettingError: There is no such shape; the message lists near matches.
    """
    from transformers import AutoConfig

    family, _, size = shape.rpartition("-")
    if family not in FAMILIES or size not in FAMILIES[family][1]:
        near = difflib.get_close_matches(shape, shape_names(), n=3) or shape_names()
        raise SettingError(f"shape {shape!r}: there is none of that name. Take one of: {', '.join(near)}.")
    model_type, sizes, settings = FAMILIES[family]
    numbers = sizes[size]
    if model_type in ("bert", "roberta"):
        width, num_heads, num_layers = numbers
        dimensions = {
            "hidden_size": width,
            "num_attention_heads": num_heads,
            "num_hidden_layers": num_layers,
            "intermediate_size": 4 * width,
        }
    else:
        names = ("d_model", "d_ff", "num_heads", "d_kv", "num_layers", "num_decoder_layers")
        dimensions = dict(zip(names, numbers, strict=False))
        dimensions.setdefault("num_decoder_layers", dimensions["num_layers"])
        settings = {"decoder_start_token_id": 0, **settings}
    if vocab_size is not None:
        settings = {**settings, "vocab_size": vocab_size}
    return AutoConfig.for_model(model_type, **settings, **dimensions)
