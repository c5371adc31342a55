"""Real clients against a real port, and requests that are made from the server's own OpenAPI document."""

import asyncio
import base64

import numpy as np
import pytest
from in_thread import running
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests

from tercet.serving.app import make_app

TEXTS = ["A man plays a guitar.", "Two dogs run through deep snow.", "Stocks dropped."]


@pytest.fixture(scope="module")
def keyed(encoder):
    """The address of a server that needs the key `secret`."""
    with running(make_app({"tiny": encoder}, api_keys=["secret"]), client_timeout_s=30) as address:
        yield f"{address}/v1"


@pytest.fixture
def openai(keyed):
    from openai import OpenAI

    with OpenAI(base_url=keyed, api_key="secret", max_retries=0) as client:
        yield client


def test_the_openai_client_gets_vectors_in_both_formats(openai, encoder):
    for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        answer = openai.embeddings.create(model="tiny", input=TEXTS, **more)
        vectors = [each.embedding for each in answer.data]
        if more.get("encoding_format") == "base64":  # which the client hands on as it came
            vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
        np.testing.assert_allclose(vectors, encoder.embed(TEXTS), atol=1e-6)
        assert answer.usage.total_tokens == sum(map(len, encoder.tokens(TEXTS)[0]))
    short = openai.embeddings.create(model="tiny", input=TEXTS[0], dimensions=4)
    np.testing.assert_allclose(short.data[0].embedding, encoder.embed(TEXTS[:1], dims=4)[0], atol=1e-6)


def test_the_openai_client_lists_models_and_reads_the_request_id(openai):
    assert [model.id for model in openai.models.list()] == ["tiny"]
    assert openai.models.retrieve("tiny").owned_by == "tercet"
    raw = openai.embeddings.with_raw_response.create(model="tiny", input="a")
    assert raw.status_code == 200
    assert len(raw.headers["x-request-id"]) == 32
    assert raw.headers["x-truncated-texts"] == "0"
    assert len(raw.parse().data[0].embedding) == 16


def test_the_async_openai_client_gets_the_same(keyed, encoder):
    from openai import AsyncOpenAI

    async def ask():
        async with AsyncOpenAI(base_url=keyed, api_key="secret", max_retries=0) as client:
            answers = [client.embeddings.create(model="tiny", input=[text]) for text in TEXTS]
            return [answer.data[0].embedding for answer in await asyncio.gather(*answers)]

    np.testing.assert_allclose(asyncio.run(ask()), encoder.embed(TEXTS), atol=1e-6)


def test_the_openai_client_knows_each_error(openai, keyed):
    import openai as library

    with pytest.raises(library.NotFoundError, match="is not served") as error:
        openai.embeddings.create(model="text-embedding-3-small", input="a")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(library.BadRequestError, match="token ids"):
        openai.embeddings.create(model="tiny", input=[[1, 2, 3]])
    with library.OpenAI(base_url=keyed, api_key="wrong", max_retries=0) as client:
        with pytest.raises(library.AuthenticationError):
            client.embeddings.create(model="tiny", input="a")


class TestLangchain(EmbeddingsIntegrationTests):
    """langchain's own tests of embeddings."""

    @pytest.fixture(autouse=True)
    def _address(self, keyed):
        self.address = keyed

    @property
    def embeddings_class(self):
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self):
        return {
            "model": "tiny",
            "base_url": self.address,
            "api_key": "secret",
            "check_embedding_ctx_length": False,
        }


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it has no way to close its connections
def test_llama_index_gets_the_vectors(keyed, encoder):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    client = OpenAILikeEmbedding(model_name="tiny", api_base=keyed, api_key="secret")
    np.testing.assert_allclose(client.get_text_embedding_batch(TEXTS), encoder.embed(TEXTS), atol=1e-6)
    np.testing.assert_allclose(client.get_query_embedding(TEXTS[0]), encoder.embed(TEXTS)[0], atol=1e-6)
    found = asyncio.run(client.aget_text_embedding_batch(TEXTS))
    np.testing.assert_allclose(found, encoder.embed(TEXTS), atol=1e-6)


@pytest.fixture(scope="module")
def document(encoder):
    """The server's document, as schemathesis reads it."""
    schemathesis = pytest.importorskip("schemathesis")
    return schemathesis.openapi.from_asgi("/openapi.json", make_app({"tiny": encoder}))


OPERATIONS = [
    ("POST", "/v1/embeddings"),
    ("POST", "/similarity"),
    ("POST", "/rerank"),
    ("POST", "/tokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (*each, mode)
        for each in OPERATIONS
        for mode in ("positive", "negative")
        if mode == "positive" or each[0] == "POST"
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_answers_are_as_the_openapi_document_says_whatever_is_asked(document, method, path, mode):
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode

    once = settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    answered = []

    @once
    @given(case=document[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    def check(case):
        answer = case.call_and_validate()
        assert answer.status_code < 500
        answered.append(answer.status_code)

    check()
    assert answered
