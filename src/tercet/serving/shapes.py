"""Requests and answers, as pydantic reads them and the OpenAPI document shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tercet.serving.limits import MAX_TEXTS


class TokenIdsError(ValueError):
    """Token ids were sent instead of texts."""


def _no_token_ids(value: Any) -> Any:
    first = value[0] if isinstance(value, list) and value else None
    first = first[0] if isinstance(first, list) and first else first
    if isinstance(first, int):
        raise TokenIdsError
    return value


def _wrapped(value: Any) -> Any:
    """Return the text of a document that is an object with a text, as Cohere's clients may send it."""
    if isinstance(value, list):
        return [each["text"] if isinstance(each, dict) and set(each) == {"text"} else each for each in value]
    return value


def _whole(value: Any) -> Any:
    """Return 5 for 5.0, which JSON does not tell apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
OneOrMore = Annotated[str | Texts, BeforeValidator(_no_token_ids)]
ModelName = Annotated[str | None, Field(description="A name listed by `/v1/models`; the first one if left out.")]


class Request(BaseModel):
    """The base of requests: unknown fields are refused, because what they ask for would not be done."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class EmbeddingsRequest(Request):
    """OpenAI's request for embeddings."""

    input: OneOrMore
    """One text, or up to 2,048. Token ids are refused."""

    model: ModelName = None
    dimensions: Whole | None = None
    """Keep only so many numbers of each vector, and scale it to length 1 again."""

    encoding_format: Literal["float", "base64"] = "float"
    """`float` for numbers, `base64` for the bytes of little-endian float32."""

    user: str | None = None
    """Ignored."""


class Compared(Request):
    """One text, and those it is compared with."""

    source_sentence: str
    sentences: Texts


class SimilarityRequest(Request):
    """text-embeddings-inference's request for similarities."""

    inputs: Compared
    model: ModelName = None


class TextsRerankRequest(Request):
    """text-embeddings-inference's request for a ranking."""

    query: str
    texts: Texts
    model: ModelName = None
    raw_scores: bool = True
    """Has no effect: scores are always cosines."""

    return_text: bool = False
    truncate: bool = True
    """Cut texts that are too long; if false, they are refused."""


class DocumentsRerankRequest(Request):
    """Cohere's request for a ranking."""

    query: str
    documents: Annotated[Texts, BeforeValidator(_wrapped)]
    model: ModelName = None
    top_n: Whole | None = None
    return_documents: bool = False


class TokenizeRequest(Request):
    """text-embeddings-inference's request for tokens."""

    inputs: OneOrMore
    model: ModelName = None
    add_special_tokens: Literal[True] = True
    """The tokens are always those that the model reads: prompt, special tokens, cut to its length."""


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """What was read."""

    prompt_tokens: int
    total_tokens: int
    truncated_texts: int


class Embeddings(BaseModel):
    """OpenAI's answer with embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dimensions: int
    max_tokens: int


class Models(BaseModel):
    """All models that are served."""

    object: Literal["list"]
    data: list[Model]


class RankedText(BaseModel):
    """A text of text-embeddings-inference's ranking."""

    index: int
    score: float
    text: str | None = None


class Document(BaseModel):
    """A document of Cohere's ranking."""

    text: str


class RankedDocument(BaseModel):
    """A place of Cohere's ranking."""

    index: int
    relevance_score: float
    document: Document | None = None


class RankedDocuments(BaseModel):
    """Cohere's ranking."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: Usage


class Token(BaseModel):
    """A token of a text."""

    id: int
    text: str
    special: bool


class Status(BaseModel):
    """Whether the server is well, and why not."""

    status: Literal["ok", "not ok"]
    models: dict[str, str]


class Problem(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """OpenAI's form of an error."""

    error: Problem
