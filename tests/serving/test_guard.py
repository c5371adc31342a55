"""Who may ask, what may be sent, what is written down."""

import asyncio
import json
import logging
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient

import tercet
from tercet import InputError, OutputError, SettingError
from tercet.serving.app import make_app
from tercet.serving.limits import Limits

EMBED = ("/v1/embeddings", {"input": "a text"})


def test_a_key_is_needed_for_all_that_says_something(encoder):
    with TestClient(make_app({"tiny": encoder}, api_keys=["first", "sécond"])) as client:
        closed = ["/metrics", "/v1/models", "/v1/models/tiny", "/nothing"]
        for key in (None, "Bearer", "Bearer wrong", "Bearer firs", "Basic first", "first", "Bearer first second"):
            headers = {} if key is None else {"authorization": key}
            answers = [client.get(path, headers=headers) for path in closed]
            answers.append(client.post(EMBED[0], json=EMBED[1], headers=headers))
            assert {answer.status_code for answer in answers} == {401}
            assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
            assert answers[0].json()["error"]["code"] == "invalid_api_key"
        for path in ("/", "/docs", "/openapi.json", "/health", "/ready"):
            assert client.get(path).status_code == 200
        for key in ("Bearer first", "bearer first", "Bearer sécond"):
            headers = {"authorization": key.encode()}
            assert client.post(EMBED[0], json=EMBED[1], headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200


def test_a_server_for_this_machine_answers_no_other_name(encoder):
    with TestClient(make_app({"tiny": encoder}, local=True), base_url="http://localhost") as client:
        for host in ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080"):
            assert client.get("/v1/models", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080"):
            assert client.get("/v1/models", headers={"host": host}).status_code == 421


def test_web_pages_elsewhere_may_ask_only_where_they_are_named(encoder):
    origin = {"origin": "https://example.org"}
    asking = origin | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with TestClient(make_app({"tiny": encoder})) as client:
        answer = client.post(EMBED[0], json=EMBED[1], headers=origin)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert client.options(EMBED[0], headers=asking).status_code == 405
    app = make_app({"tiny": encoder}, cors=["https://example.org"], api_keys=["key"])
    with TestClient(app) as client:
        allowed = client.options(EMBED[0], headers=asking)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://example.org"
        answer = client.get("/v1/models", headers={"origin": "https://evil.example", "authorization": "Bearer key"})
        assert "access-control-allow-origin" not in answer.headers


def test_only_json_is_taken_so_that_a_web_page_elsewhere_cannot_send_a_form(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = {} if kind is None else {"content-type": kind}
        answer = client.post("/v1/embeddings", content=b'{"input": "a"}', headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"]["message"].endswith("Content-Type: application/json.")
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/embeddings", content=b'{"input": "a"}', headers=headers).status_code == 200


def test_a_request_has_the_id_that_it_gave_or_a_new_one(client):
    assert client.get("/health", headers={"x-request-id": "my-id.1"}).headers["x-request-id"] == "my-id.1"
    drawn = {
        client.get("/health", headers={"x-request-id": bad}).headers["x-request-id"] for bad in ("", "a b", "a" * 65)
    }
    assert len(drawn) == 3
    assert {len(each) for each in drawn} == {32}


def test_the_log_has_a_line_of_json_for_each_request_and_no_text_of_it(client, caplog):
    with caplog.at_level(logging.INFO, "tercet.serving.access"):
        client.post("/v1/embeddings?secret=1", json={"input": ["secret words", "more"]}, headers={"x-request-id": "7"})
        client.post("/v1/embeddings", json={"input": [3], "secret": 1})
        client.get("/secret")
    lines = [json.loads(record.message) for record in caplog.records if record.name == "tercet.serving.access"]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/v1/embeddings", 200),
        ("/v1/embeddings", 400),
        ("other", 404),
    ]
    assert (lines[0]["id"], lines[0]["model"], lines[0]["num_texts"]) == ("7", "tiny", 2)
    assert "secret" not in caplog.text


def test_a_body_that_is_too_large_is_refused(encoder):
    with TestClient(make_app({"tiny": encoder}, limits=Limits(max_body_bytes=1000))) as client:
        for size, status in ((900, 200), (1100, 413), (100_000, 413)):
            answer = client.post("/v1/embeddings", json={"input": "a " * (size // 2)})
            assert answer.status_code == status
        assert answer.json()["error"]["code"] == "too_large"
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200


def test_answers_cannot_be_framed_sniffed_or_kept(client):
    for path in ("/", "/docs", "/v1/models"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in client.get("/").headers["content-security-policy"]


class Blocked:
    """Holds an application's inference thread."""

    def __init__(self, app, monkeypatch):
        self.batcher = app.state.serving.models["tiny"].batcher
        self.go, self.computed, real = threading.Event(), [], self.batcher._embed

        def embed(rows):
            assert self.go.wait(20)
            self.computed.append(len(rows))
            return real(rows)

        monkeypatch.setattr(self.batcher, "_embed", embed)


async def ask(app, body, *, gone=None, chunks=None):
    """Send a request to an application as a server would; returns status and body, None if there is no answer."""
    sent, waiting = [], iter(chunks if chunks is not None else [json.dumps(body).encode()])

    async def receive():
        chunk = next(waiting, None)
        if chunk is None:
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": chunks is not None}

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": headers, "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"] if sent else None


def test_the_work_of_a_client_that_has_gone_is_dropped(encoder, monkeypatch):
    app = make_app({"tiny": encoder}, limits=Limits(max_batch_tokens=64))
    blocked = Blocked(app, monkeypatch)

    async def scene():
        gone = asyncio.Event()
        leaving = asyncio.create_task(ask(app, {"input": ["two dogs run"] * 500}, gone=gone))
        staying = asyncio.create_task(ask(app, {"input": ["Stocks dropped."]}))
        while blocked.batcher.num_texts < 501:
            await asyncio.sleep(0.01)
        gone.set()
        assert await leaving is None
        blocked.go.set()
        assert await staying == 200
        while blocked.batcher.num_texts:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scene(), 20))
    assert sum(blocked.computed) < 50
    blocked.batcher.close()


def test_beyond_the_queue_a_request_gets_a_429_and_later_it_works(encoder, monkeypatch):
    app = make_app({"tiny": encoder}, limits=Limits(max_queue=10))
    blocked = Blocked(app, monkeypatch)
    with TestClient(app) as client:
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(client.post("/v1/embeddings", json={"input": ["a"] * 9}))
        )
        thread.start()
        while blocked.batcher.num_tokens < 9:
            pass
        refused = client.post("/v1/embeddings", json={"input": ["a", "b"]})
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert client.post("/v1/embeddings", json={"input": ["a"] * 11}).status_code == 413
        assert client.get("/health").status_code == 200
        blocked.go.set()
        thread.join(10)
        assert answers[0].status_code == 200
        assert client.post("/v1/embeddings", json={"input": ["a", "b"]}).status_code == 200


def test_too_many_requests_at_once_get_a_429(encoder, monkeypatch):
    app = make_app({"tiny": encoder}, limits=Limits(max_requests=3))
    blocked = Blocked(app, monkeypatch)

    async def scene():
        asked = [asyncio.create_task(ask(app, {"input": "a"})) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert [task.result() for task in asked if task.done()] == [429, 429]
        blocked.go.set()
        assert sorted([await task for task in asked]) == [200, 200, 200, 429, 429]

    asyncio.run(asyncio.wait_for(scene(), 20))
    blocked.batcher.close()


def test_a_request_that_is_not_computed_in_time_is_given_up(encoder, monkeypatch):
    app = make_app({"tiny": encoder}, limits=Limits(timeout_s=0.1))
    blocked = Blocked(app, monkeypatch)
    assert asyncio.run(ask(app, {"input": "a"})) == 503
    blocked.go.set()
    blocked.batcher.close()


def test_a_body_that_does_not_arrive_is_given_up_and_holds_nothing(encoder):
    limits = Limits(client_timeout_s=0.1, max_body_bytes=1000)
    app = make_app({"tiny": encoder}, limits=limits)
    for _ in range(20):  # together more than all bodies may hold
        assert asyncio.run(ask(app, None, chunks=[b'{"input": "', b"a" * 900])) == 408
    whole = json.dumps({"input": "a" * 900}).encode()
    assert asyncio.run(ask(app, None, chunks=[whole, b""])) == 408
    assert asyncio.run(ask(app, {"input": "a"})) == 200


def test_all_bodies_together_are_bounded(encoder):
    app = make_app({"tiny": encoder}, limits=Limits(client_timeout_s=2, max_body_bytes=1000))

    async def scene():
        gone = asyncio.Event()
        slow = [asyncio.create_task(ask(app, None, chunks=[b"a" * 999], gone=gone)) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert await ask(app, None, chunks=[b"a" * 100]) == 429
        gone.set()
        assert await asyncio.gather(*slow) == [None] * 8
        assert await ask(app, {"input": "a"}) == 200

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_an_unexpected_error_is_a_500_with_its_request_id_and_the_server_goes_on(encoder, monkeypatch, caplog):
    app = make_app({"tiny": encoder})
    monkeypatch.setattr(app.state.serving.metrics, "render", lambda: 1 / 0)
    with TestClient(app) as client:
        answer = client.get("/metrics", headers={"x-request-id": "abc"})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        assert "division" not in answer.text
        assert "request abc failed" in caplog.text
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"host": "0.0.0.0"}, SettingError, "others than this machine could ask"),
        ({"host": "example.org"}, SettingError, "others than this machine could ask"),
        ({"api_key": ""}, SettingError, "is empty"),
        ({"api_key_file": "no such file"}, InputError, "cannot be read"),
        ({"max_queue": 0}, SettingError, "max_queue 0"),
        ({"port": 70000}, SettingError, "port 70000"),
        ({"port": 0, "precision": "int9"}, SettingError, "precision 'int9'"),
        ({"port": 0, "models": "no such model"}, tercet.ModelError, "no such model"),
        ({"port": 0, "models": ["mini", "mini"]}, SettingError, "two have one name"),
        ({"port": 0, "models": []}, SettingError, "there is none"),
        ({"on_truncate": "ignore"}, SettingError, "on_truncate 'ignore'"),
    ],
)
def test_a_server_that_cannot_be_as_it_is_asked_for_does_not_start(options, error, said):
    with pytest.raises(error, match=said):
        tercet.serve(**({"port": 0} | options))


def test_a_port_that_is_taken_is_said_before_a_model_is_loaded():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OutputError, match="Take another --port"):
        tercet.serve("no such model", port=taken.getsockname()[1])


def test_two_servers_in_one_process_do_not_share_their_counts(encoder):
    with TestClient(make_app({"tiny": encoder})) as one, TestClient(make_app({"tiny": encoder})) as other:
        one.post(EMBED[0], json=EMBED[1])
        assert 'tercet_texts_total{model="tiny"} 1.0' in one.get("/metrics").text
        assert 'tercet_texts_total{model="tiny"}' not in other.get("/metrics").text


def test_the_vectors_of_many_requests_at_once_are_those_of_the_encoder(encoder, sentences):
    app = make_app({"tiny": encoder}, limits=Limits(max_batch_tokens=100))
    with TestClient(app) as client:
        asked = [[sentences[(i + j) % len(sentences)] for j in range(i % 7 + 1)] for i in range(40)]
        answers = {}

        def post(i):
            answers[i] = client.post("/v1/embeddings", json={"input": asked[i]}).json()

        threads = [threading.Thread(target=post, args=(i,)) for i in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    for i, texts in enumerate(asked):
        vectors = [each["embedding"] for each in answers[i]["data"]]
        np.testing.assert_allclose(vectors, encoder.embed(texts), atol=1e-5)
