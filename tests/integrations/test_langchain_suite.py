"""LangChain's own tests of `Embeddings`."""

import pytest

pytest.importorskip("langchain_tests")
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from tercet.integrations.langchain import TercetEmbeddings


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self):
        return TercetEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "mini", "device": "cpu"}


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self):
        return TercetEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "mini", "device": "cpu"}
