"""Packed tokens: the texts of a batch end to end, without padding, texts of equal length side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import torch
from torch import Tensor
from torch.nn import functional as F

Dropout = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Pack:
    """The token ids of several texts, end to end."""

    ids: Tensor
    """[num_tokens]"""

    groups: tuple[tuple[int, int], ...]
    """Runs of texts of equal length: how many, and how long."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Pack":
        """Pack the ids of texts; where texts of equal length are side by side, there are fewer groups."""
        groups = tuple((len(list(run)), length) for length, run in groupby(map(len, rows)))
        return cls(torch.tensor(list(chain.from_iterable(rows))), groups)

    def split(self, x: Tensor) -> Iterator[Tensor]:
        """Yield the rows of a tensor [num_tokens, ...] group by group: [num_texts, length, ...]."""
        parts = x.split([num * length for num, length in self.groups])
        for part, group in zip(parts, self.groups, strict=True):
            yield part.unflatten(0, group)

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of each text's rows: [num_texts, ...]."""
        return torch.cat([part.mean(1) for part in self.split(x)])

    def first(self, x: Tensor) -> Tensor:
        """Return the first row of each text: [num_texts, ...]."""
        return torch.cat([part[:, 0] for part in self.split(x)])


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Return `F.dropout` of a tensor on a CPU, with one random number for four elements: 16 bits decide on each."""
    if not training or not p:
        return x
    drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = drawn.view(torch.int16)[: x.numel()].view(x.shape) >= round(p * 2**16) - 2**15
    return x * kept.to(x.dtype).div_(1 - p)


def attend(
    qkv: Tensor, pack: Pack, *, num_heads: int, scale: float, bias: Callable[[int], Tensor] | None, drop: Dropout | None
) -> Tensor:
    """Return self-attention within each text: [num_tokens, num_heads * head_width].

    Args:
        qkv: Queries, keys and values side by side [num_tokens, 3 * num_heads * head_width].
        pack: Which rows are whose.
        num_heads: How many heads there are.
        scale: What scores are multiplied with.
        bias: Gives what is added to the scores of texts of a length [1, num_heads, length, length].
        drop: Dropout on the weights; None for a faster way that gradients cannot flow through.
    """
    outputs = []
    for part in pack.split(qkv):
        query, key, value = part.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
        mask = None if bias is None else bias(part.shape[1])
        if drop is None:
            output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        else:
            scores = query @ key.transpose(-1, -2) * scale
            output = drop((scores if mask is None else scores + mask).softmax(-1)) @ value
        outputs.append(output.transpose(1, 2).flatten(2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
