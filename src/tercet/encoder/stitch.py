"""A T5 encoder made of layers of a BERT: least squares join them, and nothing is trained.

BERT norms after its layers and has biases; T5 norms before them and has none. But what a layer of the BERT reads is
nearly a linear map of the normed numbers that the T5 has at that place. The map is found over the tokens of sample
texts and multiplied into the layer's weights; so it bridges the layers that are left out, too. Biases are read from a
part of the token vectors that is the same for all tokens. Feed-forwards may be narrowed: what most of their hidden
numbers add to the stream is nearly a linear map of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.backbone import backbone_from_weights
from tercet.encoder.forward.bert import BertShape, PackedBert
from tercet.encoder.forward.linear import ACTIVATIONS, Trainable
from tercet.encoder.forward.pack import Pack, attend
from tercet.encoder.model.tokens import Tokens, bare_ids
from tercet.encoder.model.tower import Dense, Head, Tower, unit_length
from tercet.errors import InputError, SettingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Weights = Mapping[str, Tensor]

_RIDGE = 1e-3
"""What is added to the diagonal of the normal equations, as a share of its mean."""

_SCALES = (0.5, 1.0, 2.0, 4.0)
"""What a layer's output may be multiplied by, so that it counts in the T5's stream as it did after BERT's norms."""

_CONSTANT = 0.3
"""How large the part is that all token vectors share, relative to the rest."""

_NUM_PLACES = 64
"""Over how many of the BERT's places its vectors of places are averaged."""

_NUM_BUCKETS = 32
"""How many distances the T5 can learn to tell apart."""

_AT_A_TIME = 64

_MAX_NUMBERS = 2**27
"""How many numbers a state of all tokens may have: half a gigabyte, and there are dozens of that size."""


def stitch(
    source: Encoder,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    layers: Sequence[int],
    texts: Sequence[str],
    feed_forward: int | None = None,
    center: float = 1.0,
    max_tokens: int = 256,
) -> Encoder:
    """Return a T5 encoder (mean over tokens, a projection) that does nearly as a BERT does, with fewer layers.

    Args:
        source: The BERT, its prompt included; the T5 needs none.
        tokenizer: The T5's: each of its pieces starts as the mean of the BERT's tokens for it.
        layers: Which of the BERT's layers it has, the first one being 0.
        texts: Texts such as it will see; some thousands.
        feed_forward: How many hidden numbers its feed-forwards keep, those that count most; all where None.
        center: How much of the mean over these texts is taken from the vectors.
        max_tokens: The most that the T5 reads of a text.

    Raises:
        SettingError: The source is no BERT, or has no such layers or fewer hidden numbers, or the tokenizer is not
            a T5's.
        InputError: The texts are too few.
    """
    shape = _check(source, tokenizer, layers)
    num_hidden = source.tower.config["intermediate_size"]
    feed_forward = num_hidden if feed_forward is None else feed_forward
    if not 0 < feed_forward <= num_hidden:
        raise SettingError(f"feed_forward {feed_forward}: the model's are {num_hidden} wide. Give no more, or null.")
    if len(texts) < source.dim:
        raise InputError(
            f"stitch: {len(texts):,} texts are fewer than a vector's {source.dim} numbers. Give more texts."
        )
    weights = {name: weight.cpu() for name, weight in source.tower.weights().items()}
    with torch.no_grad():
        seen = _read(source, shape, weights, layers, texts)
        table = _input_vectors(weights, shape.eps)
        table += _constant(table[seen.pack.ids])
        made, stream = _join(weights, shape, layers, seen, table[seen.pack.ids], feed_forward)
        made["shared.weight"] = _piece_vectors(table, source.tokens, tokenizer)
        wanted = unit_length(seen.vectors - center * seen.vectors.mean(0)) * seen.vectors.shape[1] ** 0.5
        projection = Dense(stream.shape[1], wanted.shape[1], bias=False, activation="identity")
        projection.linear.weight.copy_(_fit(seen.pack.mean(_norm(stream)), wanted).T)
    config = _t5_config(source.tower.config, feed_forward, num_layers=len(layers), tokenizer=tokenizer)
    head = Head("enc-mean", stream.shape[1], dense=[projection])
    tower = Tower(backbone_from_weights(config, made, decoder=False), head)
    return Encoder(tower.eval(), Tokens(tokenizer, max_tokens=max_tokens))


def _check(source: Encoder, tokenizer: "PreTrainedTokenizerBase", layers: Sequence[int]) -> BertShape:
    """Return the shape of a BERT that can be stitched."""
    shape = BertShape.read(source.tower.config) if source.tower.config["model_type"] == "bert" else None
    if shape is None:
        raise SettingError("stitch: the model is not a BERT, or an unusual one. Name another.")
    if not layers or any(low >= high for low, high in pairwise([-1, *layers, shape.num_layers])):
        raise SettingError(
            f"layers {[*layers]}: the model has layers 0 to {shape.num_layers - 1}. Name some of them, in their order."
        )
    if source.tokens.prompt.suffix:
        raise SettingError("stitch: the model's prompt goes on after the text. Take one that stands before it.")
    if tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise SettingError("tokenizer: has no tokens for padding and for a text's end. Take a T5's.")
    return shape


@dataclass(frozen=True)
class _Seen:
    """What a BERT makes of texts."""

    pack: Pack
    """The tokens of the texts, and those after them; prompts and what stands before them are left out."""

    states: dict[int, Tensor]
    """[num_tokens, width]: 0 is after the embedding, 1 after the first layer's attention, 2 after the first layer;
    those that the chosen layers read, and the last one."""

    vectors: Tensor
    """[num_texts, encoder.dim]"""


def _read(source: Encoder, shape: BertShape, weights: Weights, layers: Sequence[int], texts: Sequence[str]) -> _Seen:
    """Run the BERT over texts, those of equal length side by side."""
    tokens = source.tokens
    left_out = len(tokens([""])[0][0]) - len(tokens.frame[1])
    rows = tokens(texts)[0]
    num, most = sum(map(len, rows)), _MAX_NUMBERS // source.tower.config["hidden_size"]
    if num > most:
        raise InputError(
            f"stitch: the texts have {num:,} tokens, and memory is for {most:,}. "
            "Lower max_texts, or max_tokens of the model."
        )
    by_length = sorted(zip(rows, source.embed(texts), strict=True), key=lambda each: len(each[0]))
    rows = [ids for ids, _ in by_length]
    model = PackedBert(shape.without_dropout(), weights, Trainable())
    parts: dict[int, list[Tensor]] = {2 * layer + half: [] for layer in layers for half in (0, 1)}
    parts[2 * shape.num_layers] = []
    for start in range(0, len(rows), _AT_A_TIME):
        pack = Pack.of(rows[start : start + _AT_A_TIME])
        for i, state in enumerate(model.states(pack)):
            if i in parts:
                parts[i].append(_behind(pack, state, left_out))
    return _Seen(
        pack=Pack.of([ids[left_out:] for ids in rows]),
        states={i: torch.cat(parts.pop(i)) for i in [*parts]},  # one at a time is there twice
        vectors=torch.stack([torch.from_numpy(vector) for _, vector in by_length]),
    )


def _behind(pack: Pack, x: Tensor, num_left_out: int) -> Tensor:
    """Return the rows of each text without its first ones."""
    return torch.cat([part[:, num_left_out:].flatten(0, 1) for part in pack.split(x)])


def _input_vectors(weights: Weights, eps: float) -> Tensor:
    """Return what the BERT's first layer reads for each of its tokens, at no place in particular."""
    words, places, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    norm = weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"]
    return F.layer_norm(words + places[:_NUM_PLACES].mean(0) + kinds[0], words.shape[1:], *norm, eps)


def _constant(x: Tensor) -> Tensor:
    """Return a vector in the direction in which token vectors differ least."""
    direction: Tensor = torch.linalg.eigh(torch.cov(x.T))[1][:, 0]
    return direction * x.square().sum(1).mean().sqrt() * _CONSTANT


def _t5_config(
    bert: Mapping[str, Any], feed_forward: int, *, num_layers: int, tokenizer: "PreTrainedTokenizerBase"
) -> dict[str, Any]:
    """Return the configuration of a T5 with layers as wide as the BERT's, but for the feed-forwards."""
    return {
        "model_type": "t5",
        "vocab_size": len(tokenizer),
        "d_model": bert["hidden_size"],
        "d_kv": bert["hidden_size"] // bert["num_attention_heads"],
        "d_ff": feed_forward,
        "num_heads": bert["num_attention_heads"],
        "num_layers": num_layers,
        "feed_forward_proj": bert["hidden_act"],
        "relative_attention_num_buckets": _NUM_BUCKETS,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }


def _piece_vectors(table: Tensor, tokens: Tokens, pieces: "PreTrainedTokenizerBase") -> Tensor:
    """Return the mean of the vectors of the BERT's tokens for each piece of the T5's vocabulary.

    A piece of WordPiece is a token of the same name; one of SentencePiece has another mark where a word begins.
    """
    own, vocabulary, special = tokens.tokenizer, tokens.tokenizer.get_vocab(), {*pieces.all_special_ids}
    vectors = table[own.unk_token_id].repeat(len(pieces), 1)
    vectors[pieces.eos_token_id] = table[own.sep_token_id]
    names = pieces.convert_ids_to_tokens([*range(len(pieces))])
    is_wordpiece = not any(name.startswith("▁") for name in names)
    words = [name.removeprefix("▁") for name in names]  # with it, a word begins; without, BERT has another mark
    words = [word.lower() for word in words] if tokens.lowercase else words
    for i, (word, name, ids) in enumerate(zip(words, names, bare_ids(own, words), strict=True)):
        own_name = name if is_wordpiece else f"##{word}"
        if not name.startswith("▁") and (same := vocabulary.get(own_name)) is not None:
            ids = [same]
        if i not in special and ids:
            vectors[i] = table[ids].mean(0)
    return vectors


def _join(
    weights: Weights, shape: BertShape, layers: Sequence[int], seen: _Seen, stream: Tensor, feed_forward: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the weights of a T5's layers, and its stream [num_tokens, width] after the last one."""
    width = stream.shape[1]
    ones = torch.ones(width)
    made = {"encoder.final_layer_norm.weight": ones}  # distances do not count yet:
    made[f"{_attention(0)}.relative_attention_bias.weight"] = torch.zeros(_NUM_BUCKETS, shape.num_heads)
    for i, (layer, following) in enumerate(pairwise([*layers, shape.num_layers])):
        own, attention = f"encoder.layer.{layer}", _attention(i)
        normed, before, between = _norm(stream), seen.states[2 * layer], seen.states[2 * layer + 1]
        names = [f"{own}.attention.self.{name}" for name in ("query", "key", "value")]
        query, key, value = _read_by(normed, before, weights, names)
        query *= (width // shape.num_heads) ** -0.5
        qkv = normed @ torch.cat([query, key, value]).T
        heads = attend(qkv, seen.pack, num_heads=shape.num_heads, scale=1.0, bias=None, drop=None)
        out, stream = _add(stream, heads, weights[f"{own}.attention.output.dense.weight"], between)
        normed = _norm(stream)
        (up,) = _read_by(normed, between, weights, [f"{own}.intermediate.dense"])
        hidden = ACTIVATIONS[shape.activation](normed @ up.T)
        kept, down = _narrow(hidden, weights[f"{own}.output.dense.weight"], feed_forward)
        down, stream = _add(stream, hidden[:, kept], down, seen.states[2 * following])
        made |= {f"{attention}.{name}.weight": x for name, x in zip("qkvo", (query, key, value, out), strict=True)}
        dense = f"encoder.block.{i}.layer.1.DenseReluDense"
        made |= {f"{dense}.wi.weight": up[kept], f"{dense}.wo.weight": down}
        made |= {f"encoder.block.{i}.layer.{half}.layer_norm.weight": ones.clone() for half in (0, 1)}
    return made, stream


def _attention(layer: int) -> str:
    return f"encoder.block.{layer}.layer.0.SelfAttention"


def _read_by(normed: Tensor, state: Tensor, weights: Weights, names: Sequence[str]) -> list[Tensor]:
    """Return weights that make of a T5's normed stream what layers with biases make of a state of the BERT."""
    to_state, to_one = _fit(normed, torch.cat([state, torch.ones(len(state), 1)], dim=1)).split([state.shape[1], 1], 1)
    return [(to_state @ weights[f"{name}.weight"].T + to_one * weights[f"{name}.bias"]).T for name in names]


def _narrow(hidden: Tensor, weight: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Return which hidden numbers add most to a product, and a weight that makes the product out of these alone."""
    if num == hidden.shape[1]:
        return torch.arange(num), weight
    kept = (hidden.var(0) * weight.square().sum(0)).topk(num).indices.sort().values
    return kept, _fit(hidden[:, kept], hidden @ weight.T).T


def _add(stream: Tensor, x: Tensor, weight: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight, scaled so that the stream with its product tells most about a state, and that stream."""
    product = x @ weight.T

    def missed(scale: float) -> float:
        normed = _norm(stream + scale * product)
        return float((normed @ _fit(normed, state) - state).square().sum())

    scale = min(_SCALES, key=missed)
    return weight * scale, stream + scale * product


def _fit(x: Tensor, y: Tensor) -> Tensor:
    """Return the matrix [x's width, y's width] that makes most of y out of x."""
    square = x.T @ x
    square.diagonal().add_(_RIDGE * square.diagonal().mean())
    solution: Tensor = torch.linalg.solve(square, x.T @ y)
    return solution


def _norm(x: Tensor) -> Tensor:
    """Return rows of mean square 1."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)
