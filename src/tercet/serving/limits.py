"""What the server takes and how long it waits: each limit beside what it is for."""

from tercet.storage.settings import Settings

MAX_TEXTS = 2048
"""The most texts in one request, as OpenAI has it."""


class Limits(Settings):
    """What the server takes and how long it waits."""

    max_queue: int = 8192
    """The most texts that are admitted and not yet computed, per model."""

    max_queue_tokens: int = 524_288
    """The most tokens of them: a full request of 256 tokens per text fits."""

    max_batch_tokens: int = 2048
    """The most tokens that are computed at once."""

    max_body_bytes: int = 8 * 2**20
    """The largest body of a request. The bodies of all requests together may hold eight times as much."""

    max_requests: int = 512
    """The most requests under way at once."""

    timeout_s: float = 120
    """How long a request may wait for its vectors before it is given up."""

    client_timeout_s: float = 30
    """How long a client may take to send a request, and how long it may stop reading the answer."""

    drain_s: float = 30
    """How long requests under way may take to end when the server is told to stop."""

    ready_s: float = 10
    """How old the last forward pass may be; `/ready` makes a new one where it is older."""

    stuck_s: float = 300
    """How long one batch may compute before the server says that it is dead."""
