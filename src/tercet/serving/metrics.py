"""What the server counts, in Prometheus' format."""

from typing import TYPE_CHECKING, Any

from tercet.serving.batching import Computed
from tercet.storage.extras import require

if TYPE_CHECKING:
    from tercet.serving.served import Served

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server. Paths are those of the table of endpoints, so that their number is bounded."""

    def __init__(self) -> None:
        prometheus: Any = require("prometheus_client", "serve")
        self.content_type: str = prometheus.CONTENT_TYPE_LATEST
        self._latest, self._gauge = prometheus.generate_latest, prometheus.Gauge
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        counter, histogram = prometheus.Counter, prometheus.Histogram

        def count(name: str, what: str, *labels: str) -> Any:
            return counter(f"tercet_{name}", what, labels, registry=registry)

        def spread(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Any:
            return histogram(f"tercet_{name}", what, labels, buckets=buckets, registry=registry)

        self.requests = count("requests", "Requests that were answered.", "path", "code")
        self.seconds = spread("request_seconds", "From a request to the end of its answer.", _SECONDS, "path")
        self.texts = count("texts", "Texts whose vectors were answered.", "model")
        self.tokens = count("tokens", "Tokens of these texts, prompt and special tokens included.", "model")
        self.truncated = count("truncated_texts", "Texts that were cut to the model's length.", "model")
        self._batch_texts = spread("batch_texts", "Texts of a batch.", _TEXTS, "model")
        self._batch_tokens = spread("batch_tokens", "Tokens of a batch.", _TOKENS, "model")
        self._batch_seconds = spread("batch_seconds", "Time of a forward pass.", _SECONDS, "model")
        self._wait = spread("wait_seconds", "From a request's admission to a batch of it.", _SECONDS, "model")
        self._queue = {what: self._queue_gauge(what) for what in ("texts", "tokens")}

    def watch(self, model: str, batch: Computed) -> None:
        """Count a batch."""
        self._batch_texts.labels(model).observe(batch.num_texts)
        self._batch_tokens.labels(model).observe(batch.num_tokens)
        self._batch_seconds.labels(model).observe(batch.seconds)
        for seconds in batch.waited_s:
            self._wait.labels(model).observe(seconds)

    def watch_queue(self, served: "Served") -> None:
        """Show how much waits for a model."""
        self._queue["texts"].labels(served.name).set_function(lambda: served.batcher.num_texts)
        self._queue["tokens"].labels(served.name).set_function(lambda: served.batcher.num_tokens)

    def render(self) -> bytes:
        """Return all counts."""
        return bytes(self._latest(self._registry))

    def _queue_gauge(self, what: str) -> Any:
        text = f"{what.capitalize()} that are admitted and not yet computed."
        return self._gauge(f"tercet_queue_{what}", text, ["model"], registry=self._registry)
