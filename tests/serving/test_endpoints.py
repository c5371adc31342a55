"""What each endpoint answers, compared with the encoder, its tokenizer and numpy."""

import base64
import logging

import numpy as np
import pytest
from starlette.testclient import TestClient

from tercet.serving.app import make_app

TEXTS = ["A man plays a guitar.", "", "Two dogs run through deep snow.", "日本語 and emoji 🙂", "A man plays a guitar."]
LONG = "a man plays a guitar and two dogs run " * 20


def vectors_of(answer):
    assert answer.status_code == 200, answer.text
    return np.array([each["embedding"] for each in answer.json()["data"]], np.float32)


def error_of(answer):
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    return answer.json()["error"]


def test_embeddings_are_those_of_the_encoder(client, encoder, t5_tokenizer):
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "tiny"})
    np.testing.assert_allclose(vectors_of(answer), encoder.embed(TEXTS), atol=1e-6)
    num_tokens = sum(len(t5_tokenizer(text).input_ids) for text in TEXTS)
    body = answer.json()
    assert body["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "truncated_texts": 0}
    assert (body["object"], body["model"]) == ("list", "tiny")
    assert [(each["object"], each["index"]) for each in body["data"]] == [("embedding", i) for i in range(5)]


def test_one_text_is_a_list_of_one_and_the_model_may_be_left_out(client, encoder):
    answer = client.post("/v1/embeddings", json={"input": "Stocks dropped.", "user": "somebody"})
    np.testing.assert_allclose(vectors_of(answer), encoder.embed(["Stocks dropped."]), atol=1e-6)


def test_base64_has_the_bits_of_the_numbers(client):
    numbers = vectors_of(client.post("/v1/embeddings", json={"input": TEXTS}))
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "base64"})
    decoded = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in answer.json()["data"]]
    np.testing.assert_array_equal(np.stack(decoded), numbers)


def test_dimensions_cut_a_vector_and_scale_it_again(client, encoder):
    vectors = vectors_of(client.post("/v1/embeddings", json={"input": TEXTS, "dimensions": 5}))
    np.testing.assert_allclose(vectors, encoder.embed(TEXTS, dims=5), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert vectors_of(client.post("/v1/embeddings", json={"input": "a", "dimensions": 5.0})).shape == (1, 5)
    for dims in (0, 17, 5.5):
        answer = client.post("/v1/embeddings", json={"input": TEXTS, "dimensions": dims})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "dimensions"


def test_vectors_that_are_not_of_length_1_stay_so(tiny):
    encoder = tiny("bert", readout="mean", normalize=False)
    with TestClient(make_app({"bert": encoder})) as client:
        for dims in (None, 7):
            vectors = vectors_of(client.post("/v1/embeddings", json={"input": TEXTS, "dimensions": dims}))
            np.testing.assert_allclose(vectors, encoder.embed(TEXTS, dims=dims), atol=1e-5)


def test_truncated_texts_are_counted_in_the_answer_or_refused(client, encoder):
    answer = client.post("/v1/embeddings", json={"input": [LONG, "short", LONG]})
    assert answer.json()["usage"]["truncated_texts"] == 2
    assert answer.headers["x-truncated-texts"] == "2"
    assert answer.json()["usage"]["prompt_tokens"] > 2 * 64
    assert 'tercet_truncated_texts_total{model="tiny"} 2.0' in client.get("/metrics").text
    with TestClient(make_app({"tiny": encoder}, on_truncate="error")) as strict:
        answer = strict.post("/v1/embeddings", json={"input": ["short", LONG]})
        assert answer.status_code == 400
        assert error_of(answer)["message"].startswith("input: text 1 is longer than 64 tokens")
        assert strict.post("/v1/embeddings", json={"input": ["short"]}).status_code == 200


@pytest.mark.parametrize("ids", [[1, 2, 3], [[1, 2], [3]], [[7]]])
def test_token_ids_are_refused_with_the_setting_to_change(client, ids):
    answer = client.post("/v1/embeddings", json={"input": ids})
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "token_ids"
    assert "check_embedding_ctx_length=False" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": []}, "input: is empty"),
        ({"input": ["a"] * 2049}, "input: has 2,049 items, and at most 2,048 are allowed"),
        ({"input": 5}, "input: should be a valid string"),
        ({"input": None}, "input: should be a valid string"),
        ({"input": [["a"]]}, "input.0: should be a valid string"),
        ({"input": ["a", 1]}, "input.1: should be a valid string"),
        ({}, "input: is missing"),
        ([], "the body: "),
        ({"input": "a", "input_type": "query"}, "input_type: is not a field of this request"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format: should be 'float' or 'base64'"),
        ({"input": "a", "dimensions": "5"}, "dimensions: should be a valid integer"),
    ],
)
def test_a_request_that_is_wrong_is_told_which_field(client, body, said):
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert error_of(answer)["message"].startswith(said)
    assert error_of(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"input": "\\ud800"}', b"[" * 100_000, b'{"input": NaN}'])
def test_a_body_that_is_no_json_is_refused(client, body):
    answer = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "invalid_json"


def test_a_model_that_is_not_served_is_never_looked_for(client, tmp_path):
    for name in ("mini", "t5-base", str(tmp_path), "../tiny", ""):
        answer = client.post("/v1/embeddings", json={"input": "a", "model": name})
        assert answer.status_code == 404
        assert error_of(answer)["code"] == "model_not_found"
        assert error_of(answer)["message"].endswith("Use one of: tiny.")


def test_models_are_listed_with_their_width_and_length(encoder):
    with TestClient(make_app({"a/b": encoder, "c": encoder})) as client:
        listed = client.get("/v1/models").json()["data"]
        assert [(each["id"], each["dimensions"], each["max_tokens"]) for each in listed] == [
            ("a/b", 16, 64),
            ("c", 16, 64),
        ]
        assert client.get("/v1/models/a/b").json() == listed[0]
        assert error_of(client.get("/v1/models/d"))["code"] == "model_not_found"


def test_similarity_is_the_cosine(client, encoder):
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}}
    answer = client.post("/similarity", json=body)
    vectors = encoder.embed(TEXTS).astype(np.float64)
    np.testing.assert_allclose(answer.json(), vectors @ vectors[0], atol=1e-6)


def test_a_ranking_has_the_shape_of_the_request(client, encoder):
    vectors = encoder.embed(TEXTS).astype(np.float64)
    cosines = vectors @ vectors[2]
    order = sorted(range(5), key=lambda i: (-cosines[i], i))
    ranked = client.post("/rerank", json={"query": TEXTS[2], "texts": TEXTS}).json()
    assert [each["index"] for each in ranked] == order
    np.testing.assert_allclose([each["score"] for each in ranked], cosines[order], atol=1e-6)
    assert set(ranked[0]) == {"index", "score"}
    with_text = client.post("/rerank", json={"query": TEXTS[2], "texts": TEXTS, "return_text": True}).json()
    assert [each["text"] for each in with_text] == [TEXTS[i] for i in order]
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        documents = [{"text": text} for text in TEXTS] if path == "/rerank" else TEXTS
        body = {"query": TEXTS[2], "documents": documents, "top_n": 2, "return_documents": True, "model": "tiny"}
        answer = client.post(path, json=body)
        ranked = answer.json()
        assert [each["index"] for each in ranked["results"]] == order[:2]
        assert [each["document"]["text"] for each in ranked["results"]] == [TEXTS[i] for i in order[:2]]
        assert ranked["id"] == answer.headers["x-request-id"]


def test_a_ranking_of_as_many_texts_as_a_request_may_have_works(client):
    answer = client.post("/rerank", json={"query": "a", "texts": ["a"] * 2048})
    assert len(answer.json()) == 2048


def test_a_ranking_refuses_long_texts_where_it_may_not_cut_them(client):
    answer = client.post("/rerank", json={"query": "a", "texts": [LONG], "truncate": False})
    assert error_of(answer)["code"] == "context_length_exceeded"
    assert client.post("/rerank", json={"query": "a", "texts": [LONG]}).headers["x-truncated-texts"] == "1"


def test_tokens_are_those_of_the_tokenizer(client, t5_tokenizer):
    answer = client.post("/tokenize", json={"inputs": TEXTS}).json()
    for text, tokens in zip(TEXTS, answer, strict=True):
        ids = t5_tokenizer(text).input_ids
        assert [token["id"] for token in tokens] == ids
        assert [token["text"] for token in tokens] == t5_tokenizer.convert_ids_to_tokens(ids)
        assert [token["special"] for token in tokens] == [False] * (len(ids) - 1) + [True]


def test_tokens_of_a_model_without_a_compiled_tokenizer_are_there_too(tiny, byt5_tokenizer):
    with TestClient(make_app({"byt5": tiny("byt5")})) as client:
        tokens = client.post("/tokenize", json={"inputs": "ab"}).json()[0]
    assert [token["id"] for token in tokens] == byt5_tokenizer("ab").input_ids
    assert [token["text"] for token in tokens][:2] == ["a", "b"]


def test_a_server_that_computes_nothing_is_neither_alive_nor_ready(encoder, caplog, monkeypatch):
    app = make_app({"tiny": encoder})
    with TestClient(app) as client:
        assert client.get("/ready").json() == {"status": "ok", "models": {"tiny": "ok"}}
        assert client.get("/health").status_code == 200
        served = app.state.serving.models["tiny"]
        monkeypatch.setattr(served.batcher, "_embed", lambda rows: 1 / 0)
        served.batcher.last_forward = -np.inf
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        served.batcher.close()
        assert client.get("/health").status_code == 503
        assert client.get("/ready").status_code == 503
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert answer.status_code == 503
        assert error_of(answer)["type"] == "server_error"
        assert answer.headers["retry-after"] == "1"


def test_a_model_that_fails_is_a_500_that_says_nothing_of_the_text(encoder, caplog, monkeypatch):
    app = make_app({"tiny": encoder})
    with TestClient(app) as client:
        batcher = app.state.serving.models["tiny"].batcher
        monkeypatch.setattr(batcher, "_embed", lambda rows: 1 / 0)
        with caplog.at_level(logging.INFO):
            answer = client.post("/v1/embeddings", json={"input": "a secret"})
        assert answer.status_code == 500
        assert error_of(answer)["code"] == "model_error"
        assert "secret" not in answer.text + caplog.text
        monkeypatch.undo()
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200


def test_an_address_or_a_method_that_is_not_there_is_an_error_of_the_same_form(client):
    assert client.get("/v1/nothing").status_code == 404
    assert error_of(client.get("/v1/nothing"))["type"] == "invalid_request_error"
    answer = client.get("/v1/embeddings")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert error_of(answer)["message"]


def test_metrics_count_requests_texts_tokens_and_batches(client):
    for body in ({"input": ["a", "b"]}, {"input": 5}):
        client.post("/v1/embeddings", json=body)
    client.get("/somewhere/else")
    counted = client.get("/metrics").text
    for line in (
        'tercet_requests_total{code="200",path="/v1/embeddings"} 1.0',
        'tercet_requests_total{code="400",path="/v1/embeddings"} 1.0',
        'tercet_requests_total{code="404",path="other"} 1.0',
        'tercet_texts_total{model="tiny"} 2.0',
        'tercet_batch_texts_sum{model="tiny"} 2.0',
        'tercet_queue_texts{model="tiny"} 0.0',
        'tercet_queue_tokens{model="tiny"} 0.0',
        'tercet_request_seconds_count{path="/v1/embeddings"} 2.0',
    ):
        assert line in counted.splitlines()


def test_batches_have_few_different_sizes_and_vectors_of_their_texts_alone(client, encoder, monkeypatch):
    sizes, embed_ids = [], encoder.embed_ids
    monkeypatch.setattr(
        encoder, "embed_ids", lambda rows, **more: sizes.append(sum(map(len, rows))) or embed_ids(rows, **more)
    )
    for num in range(1, 30):
        texts = TEXTS[:1] * num + ["A longer text, so that lengths differ."]
        answer = client.post("/v1/embeddings", json={"input": texts}).json()
        found = [each["embedding"] for each in answer["data"]]
        np.testing.assert_allclose(found, encoder.embed(texts), atol=1e-5)
    assert max(sizes) > 200
    assert all(size <= 64 or size % 32 == 0 for size in sizes)
