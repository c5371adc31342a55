"""Adapters under the frameworks themselves, each where its package is installed (the extra `integrations`)."""

import asyncio

import numpy as np
import pytest

import tercet

TEXTS = ["A man is playing a guitar on the stage.", "Stocks dropped.", "Two dogs run through deep snow."]
QUERY = "Stocks dropped."


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A model with prompts for queries and documents."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    encoder = tiny("bert")
    encoder.prompts = {"query": "query: ", "passage": "passage: "}
    encoder.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def expected(folder):
    """The vectors of documents and query with prompts written by hand."""
    encoder = tercet.Encoder.load(folder, device="cpu")
    return encoder.embed([f"passage: {text}" for text in TEXTS]), encoder.embed(f"query: {QUERY}")


def test_a_model_without_such_prompts_is_used_as_it_is(tiny):
    from tercet.integrations.roles import Roles

    encoder = tiny("bert", prompt="query: [X]")
    for embed in (Roles(encoder).queries, Roles(encoder).documents):
        np.testing.assert_array_equal(embed(TEXTS), encoder.embed(TEXTS))


def test_langchain_stores_and_finds(folder, expected):
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from tercet.integrations.langchain import TercetEmbeddings

    embeddings = TercetEmbeddings(folder, device="cpu")
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected[0], atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(QUERY), expected[1], atol=1e-6)
    store = InMemoryVectorStore.from_texts(TEXTS, embeddings)
    best = int(np.argmax(expected[0] @ expected[1]))
    assert store.similarity_search(QUERY, k=1)[0].page_content == TEXTS[best]


def test_llama_index_embeds_texts_and_queries(folder, expected):
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import TextNode

    from tercet.integrations.llama_index import TercetEmbedding

    embedding = TercetEmbedding(folder, device="cpu", embed_batch_size=2)
    assert embedding.model_name == folder
    np.testing.assert_allclose(embedding.get_text_embedding_batch(TEXTS), expected[0], atol=1e-6)
    np.testing.assert_allclose(embedding.get_query_embedding(QUERY), expected[1], atol=1e-6)
    np.testing.assert_allclose(asyncio.run(embedding.aget_query_embedding(QUERY)), expected[1], atol=1e-6)
    nodes = embedding([TextNode(text=text) for text in TEXTS])
    np.testing.assert_allclose([node.embedding for node in nodes], expected[0], atol=1e-6)


def test_haystack_runs_and_stores_pipelines_with_both_components(folder, expected):
    pytest.importorskip("haystack")
    from haystack import Document, Pipeline

    from tercet.integrations.haystack import TercetDocumentEmbedder, TercetTextEmbedder

    pipeline = Pipeline()
    pipeline.add_component("documents", TercetDocumentEmbedder(folder, device="cpu"))
    pipeline.add_component("query", TercetTextEmbedder(folder, device="cpu"))
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=["tercet.integrations.haystack"])
    given = [Document(content=text, meta={"row": i}) for i, text in enumerate(TEXTS)]
    out = pipeline.run({"documents": {"documents": given}, "query": {"text": QUERY}})
    documents = out["documents"]["documents"]
    np.testing.assert_allclose([document.embedding for document in documents], expected[0], atol=1e-6)
    assert [document.meta for document in documents] == [document.meta for document in given]
    assert all(document.embedding is None for document in given)
    np.testing.assert_allclose(out["query"]["embedding"], expected[1], atol=1e-6)


def test_haystack_refuses_to_store_an_encoder_that_has_no_name(tiny):
    pytest.importorskip("haystack")
    from tercet.integrations.haystack import TercetTextEmbedder

    with pytest.raises(tercet.SettingError, match="can only name one"):
        TercetTextEmbedder(tiny("bert")).to_dict()


def test_chroma_keeps_the_model_with_a_collection(folder, expected, tmp_path):
    chromadb = pytest.importorskip("chromadb")
    from chromadb.config import Settings

    from tercet.integrations.chroma import TercetEmbeddingFunction

    client = chromadb.PersistentClient(str(tmp_path), settings=Settings(anonymized_telemetry=False))
    function = TercetEmbeddingFunction(folder, device="cpu")
    client.create_collection("texts", embedding_function=function).add(ids=["a", "b", "c"], documents=TEXTS)
    collection = client.get_collection("texts")  # which makes the function anew, from what is stored
    stored = collection.get(include=["embeddings"])["embeddings"]
    np.testing.assert_allclose(stored, expected[0], atol=1e-6)
    found = collection.query(query_texts=[QUERY], n_results=3)
    np.testing.assert_allclose(
        found["distances"][0], 1 - np.sort(expected[0] @ expected[1])[::-1], atol=1e-5
    )  # cosine distances, nearest first


def test_qdrant_takes_points_and_queries(folder, expected):
    qdrant = pytest.importorskip("qdrant_client")
    from tercet.integrations.qdrant import TercetEmbedder

    embedder, client = TercetEmbedder(folder, device="cpu"), qdrant.QdrantClient(":memory:")
    client.create_collection("texts", vectors_config=embedder.vectors_config)
    client.upsert("texts", embedder.points(TEXTS, payloads=[{"row": i} for i in range(3)]))
    found = client.query_points("texts", query=embedder.query(QUERY), limit=3).points
    cosines = expected[0] @ expected[1]
    assert [point.payload["row"] for point in found] == np.argsort(-cosines).tolist()
    assert found[0].payload["text"] == TEXTS[int(np.argmax(cosines))]
    np.testing.assert_allclose([point.score for point in found], np.sort(cosines)[::-1], atol=1e-5)
    client.close()
