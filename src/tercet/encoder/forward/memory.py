"""How much goes through a model at once: what is usual on a CPU, and what the memory of a GPU holds on one."""

from collections.abc import Mapping
from typing import Any

import torch

from tercet.encoder.model.readouts import T5_FAMILY

_SHARE = 0.8
"""How much of a GPU's memory is used; the rest is for what no estimate sees."""

_WEIGHT_BYTES, _TRAINED_BYTES = 4, 16
"""What a weight takes in fp32: alone, and with its gradient and two moments of an optimizer."""

_LENGTH = 512
"""How long texts are at most, for the scores of attention."""

_SCORE_BYTES = 12
"""What the score of a word takes: it, its exponential, and its gradient."""


def token_bytes(config: Mapping[str, Any], length: int) -> int:
    """Estimate what the backward pass needs of one token of a text of this length, in one layer, in fp32."""
    if config["model_type"] in T5_FAMILY:
        width, num_heads = config["d_model"], config["num_heads"]
        inner = num_heads * config["d_kv"]
        hidden = config["d_ff"] * (2 if "gated" in config["feed_forward_proj"] else 1)
    else:
        width, num_heads = config["hidden_size"], config["num_attention_heads"]
        inner, hidden = width, config["intermediate_size"]
    return int(4 * (9 * width + 5 * inner + 3 * num_heads * length + 3 * hidden))


def num_layers_of(config: Mapping[str, Any]) -> int:
    """Return how many layers an encoder has."""
    return int(config["num_layers"] if config["model_type"] in T5_FAMILY else config["num_hidden_layers"])


def room_on(device: torch.device, num_weights: int, *, trained: bool) -> int | None:
    """Return how many bytes of a GPU's memory a model leaves for what it computes; None on a CPU.

    It follows from the whole memory and not from what is free at a time, so that a run always cuts its batches alike.
    """
    if device.type != "cuda":
        return None
    total = int(torch.cuda.get_device_properties(device).total_memory)
    return max(int(_SHARE * total) - num_weights * (_TRAINED_BYTES if trained else _WEIGHT_BYTES), 0)


def tokens_at_once(
    config: Mapping[str, Any], num_weights: int, device: torch.device, *, usual: int, writes: bool = False
) -> int:
    """Return how many tokens a model reads at once without gradients.

    Args:
        config: Its configuration.
        num_weights: How many weights it has.
        device: Where it runs.
        usual: The number on a CPU, and the least one.
        writes: Whether it writes as well, and keeps keys and values of all layers.
    """
    room = room_on(device, num_weights, trained=False)
    if room is None:
        return usual
    return max(usual, room // (token_bytes(config, _LENGTH) * (num_layers_of(config) if writes else 1)))


def trained_tokens_at_once(config: Mapping[str, Any], num_weights: int, device: torch.device, *, usual: int) -> int:
    """Return how many tokens a model that scores words is trained on at once; its decoder is as deep as its encoder."""
    room = room_on(device, num_weights, trained=True)
    if room is None:
        return usual
    layers = 2 * num_layers_of(config)
    return max(usual, room // (token_bytes(config, _LENGTH) * layers + _SCORE_BYTES * int(config["vocab_size"])))
