"""Why a request is refused, in the form of OpenAI's errors."""

from typing import Any


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        status: The HTTP status.
        message: What is wrong, where, and the fix.
        code: The same for programs.
        param: The field of the request that it is about.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = _KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


_KINDS = {401: "authentication_error", 429: "rate_limit_error"}


def token_ids(param: str) -> Refusal:
    """Return the answer to a request with token ids in place of texts."""
    message = (
        f"{param}: has token ids. They come from another model's vocabulary, so vectors would be silently wrong. "
        "Send texts: in langchain-openai, set check_embedding_ctx_length=False; in other clients, turn off "
        "tokenisation before sending."
    )
    return Refusal(400, message, code="token_ids", param=param)


def overloaded(why: str, retry_after_s: int) -> Refusal:
    """Return the answer to a request for which there is no room now."""
    headers = {"retry-after": str(retry_after_s)}
    return Refusal(429, f"{why}. Try again in {retry_after_s} s.", code="overloaded", headers=headers)


def unavailable(why: str, *, code: str, retry_after_s: int = 1) -> Refusal:
    """Return the answer of a server that cannot compute now."""
    return Refusal(503, why, code=code, headers={"retry-after": str(retry_after_s)})
