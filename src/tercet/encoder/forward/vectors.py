"""The packed forward of an encoder: which models have one, and vectors from it, with gradients or without."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.batches import pad
from tercet.encoder.forward.bert import BertShape, PackedBert
from tercet.encoder.forward.linear import MakeLinear, Trainable
from tercet.encoder.forward.pack import Pack
from tercet.encoder.forward.t5 import PackedT5, PackedT5WithDecoder, T5Shape
from tercet.encoder.model.readouts import BERT_FAMILY, READOUTS, T5_FAMILY
from tercet.encoder.model.tower import Head, Tower

Shape = T5Shape | BertShape
Packed = PackedT5 | PackedBert


def read_shape(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a transformer by its configuration; None where it has no packed forward."""
    model_type = config.get("model_type")
    if model_type in T5_FAMILY:
        return T5Shape.read(config)
    return BertShape.read(config) if model_type in BERT_FAMILY else None


def packed_shape(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Shape | None:
    """Return the shape of a transformer that is computed packed, with gradients or without; None where it is not.

    Models of the usual kinds are, on a CPU, with all of their weights in this process, and without LoRA.

    Args:
        config: Its configuration.
        weights: Its weights by name, where they are computed with.
    """
    plain = all(
        weight.device.type == "cpu" and not hasattr(weight, "full_tensor") and "lora_" not in name
        for name, weight in weights.items()
    )
    return read_shape(config) if plain else None


def make_packed(
    shape: Shape, weights: Mapping[str, Tensor], make: MakeLinear, *, decoder: bool, training: bool = False
) -> Packed:
    """Prepare the packed forward of a transformer, at the precision of `make`."""
    if isinstance(shape, BertShape):
        return PackedBert(shape, weights, make, training=training)
    return (PackedT5WithDecoder if decoder else PackedT5)(shape, weights, make, training=training)


def read_out(model: Packed, pack: Pack, head: Head) -> Tensor:
    """Return the vectors of packed texts, in fp32, before normalisation."""
    readout = READOUTS[head.readout]
    hidden = model.encode(pack, readout.layers)
    if isinstance(model, PackedT5WithDecoder):
        x = model.decode(hidden, pack)
    else:
        x = pack.first(hidden) if readout.pooling == "first" else pack.mean(hidden)
    vectors: Tensor = head(x)
    return vectors


def embed_rows(tower: Tower, rows: Sequence[Sequence[int]], *, pad_id: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return the vectors of token ids before normalisation [n, width], in fp32, so that gradients flow.

    Dropout is as the tower has it. Packed on a CPU for the models that can be; padded for all others, with LoRA,
    and where weights are divided among processes.

    Args:
        tower: What embeds.
        rows: The token ids of each text.
        pad_id: What fills up a batch where it is padded.
        dtype: What products are computed in: fp32 where None, or bf16 with an fp32 residual stream.
    """
    weights = tower.weights()
    shape = packed_shape(tower.config, weights)
    if shape is None:
        device = next(iter(weights.values())).device
        input_ids, mask = pad(rows, pad_id=pad_id)
        with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            return tower.raw(input_ids.to(device), mask.to(device))
    if not tower.training:
        shape = shape.without_dropout()
    order, places = _by_length(rows)
    model = make_packed(shape, weights, Trainable(dtype), decoder=tower.head.needs_decoder, training=True)
    return read_out(model, Pack.of([rows[i] for i in order]), tower.head)[places]


def encode_rows(
    shape: T5Shape, weights: Mapping[str, Tensor], rows: Sequence[Sequence[int]], *, dtype: torch.dtype | None
) -> Tensor:
    """Return a T5 encoder's outputs for token ids [n, length of the longest, width], so that gradients flow.

    Args:
        shape: What `packed_shape` returned for the weights.
        weights: The live parameters.
        rows: The token ids of each text. Behind its own, a text's outputs are 0.
        dtype: What products are computed in: fp32 where None.
    """
    order, places = _by_length(rows)
    pack = Pack.of([rows[i] for i in order])
    hidden = PackedT5(shape, weights, Trainable(dtype), training=True).encode(pack)
    length = pack.groups[-1][1]
    return torch.cat([F.pad(part, (0, 0, 0, length - part.shape[1])) for part in pack.split(hidden)])[places]


def _by_length(rows: Sequence[Sequence[int]]) -> tuple[list[int], Tensor]:
    """Return the numbers of the rows by length, and where each row stands then."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    places = torch.empty(len(rows), dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(len(rows))
    return order, places
