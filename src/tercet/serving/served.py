"""A model that is served: its tokenizer in one thread, its inference in another."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors, unit
from tercet.encoder.model.settings import Embedded
from tercet.serving.batching import Batcher, Computed, Rows
from tercet.serving.limits import Limits
from tercet.serving.refusals import Refusal
from tercet.storage.choices import OnTruncate

_FREE_TOKENS, _STEP_TOKENS = 64, 32
"""Batches of more tokens are filled up to a multiple of the step.

oneDNN keeps memory for every number of rows that it ever multiplied: 0.8 GB after 800 batches of different sizes.
"""


def _missing(num_tokens: int) -> int:
    return 0 if num_tokens <= _FREE_TOKENS else -num_tokens % _STEP_TOKENS


class Served:
    """An encoder under the name that requests call it by.

    Args:
        name: What requests call it.
        encoder: What embeds.
        precision: What it computes in.
        on_truncate: Whether texts that are too long are counted or refused.
        limits: How much may wait.
        watch: Is told of each batch.
    """

    def __init__(
        self,
        name: str,
        encoder: Encoder,
        *,
        precision: str,
        on_truncate: OnTruncate,
        limits: Limits,
        watch: Callable[[Computed], None],
    ) -> None:
        self.name, self.encoder, self.on_truncate, self.limits = name, encoder, on_truncate, limits
        self.precision = encoder.resolve_precision(precision)
        encoder.embed_ids(encoder.tokens(["A first text."])[0], precision=self.precision)  # prepares the weights
        self._tokenizer = ThreadPoolExecutor(1, thread_name_prefix=f"tokenizer of {name}")
        self.batcher = Batcher(
            f"inference of {name}",
            self._compute,
            width=encoder.dim,
            padded=encoder.pads(self.precision),
            limits=limits,
            watch=watch,
        )

    async def tokenize(self, texts: Sequence[str]) -> tuple[Rows, list[bool]]:
        """Return the token ids of texts, and which of them were cut.

        Raises:
            Refusal: There is no room for so many texts.
        """
        self.batcher.reserve(len(texts))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._tokenizer, self.encoder.tokens, texts)
        finally:
            self.batcher.release(len(texts))

    async def embed(self, texts: Sequence[str], *, dims: int | None = None, refuse_long: bool = False) -> Embedded:
        """Return the vectors of texts. Cancelled, it drops what is not computed yet.

        Raises:
            Refusal: There is no room, a text is too long where these are refused, or the model fails.
        """
        if dims is not None and not 1 <= dims <= self.encoder.dim:
            message = f"dimensions: {dims} is out of range. Give 1 to {self.encoder.dim}."
            raise Refusal(400, message, code="invalid_dimensions", param="dimensions")
        rows, truncated = await self.tokenize(texts)
        if any(truncated) and (refuse_long or self.on_truncate == "error"):
            raise self._too_long(truncated)
        self.batcher.reserve(len(texts))
        try:
            result = self.batcher.submit(rows)
        except Refusal:
            self.batcher.release(len(texts))
            raise
        vectors = await asyncio.wrap_future(result)
        if dims is not None:
            vectors = unit(vectors[:, :dims]) if self.encoder.head.normalize else vectors[:, :dims]
        return Embedded(vectors, np.array([len(row) for row in rows], np.int32), np.array(truncated))

    async def check_ready(self) -> str | None:
        """Return why the model is not ready; None where a forward pass ended within the last seconds or does now."""
        if time.monotonic() - self.batcher.last_forward <= self.limits.ready_s:
            return None
        try:
            await asyncio.wait_for(self.embed(["Is anybody there?"]), self.limits.ready_s)
        except TimeoutError:
            return f"no forward pass ended within {self.limits.ready_s:g} s"
        except Refusal as refusal:
            return refusal.message
        return None

    def _compute(self, rows: Rows) -> Vectors:
        """Return the vectors of a batch, which has one text more where its number of tokens would be a new one."""
        missing = 0 if self.batcher.padded else _missing(sum(map(len, rows)))
        filled = [*rows, [self.encoder.tokens.pad_id] * missing] if missing else rows
        return self.encoder.embed_ids(filled, precision=self.precision)[: len(rows)]

    def close(self, timeout_s: float | None = None) -> None:
        """End both threads."""
        self._tokenizer.shutdown(wait=False, cancel_futures=True)
        self.batcher.close(timeout_s)

    def _too_long(self, truncated: list[bool]) -> Refusal:
        first, limit = truncated.index(True), self.encoder.tokens.max_tokens
        message = f"input: text {first} is longer than {limit} tokens, and the server refuses such texts. Shorten it."
        return Refusal(400, message, code="context_length_exceeded", param="input")
