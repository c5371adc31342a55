"""What only real connections show: slow clients, clients that go, bytes that are no HTTP."""

import json
import socket
import time

import httpx
import pytest
from in_thread import running, wait_until

from tercet.serving.app import make_app

EMBED = {"input": "Stocks dropped."}


def connect(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def metric(address, name):
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[-1])


@pytest.mark.parametrize("sent", [b"", b"POST /v1/emb", b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-a"])
def test_a_connection_without_a_whole_head_is_closed(live, sent):
    with connect(live) as connection:
        connection.sendall(sent)
        start = time.monotonic()
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass
        assert 0.5 < time.monotonic() - start < 5


def test_a_head_that_drips_is_closed_too(live):
    with connect(live) as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(100):
                connection.sendall(b"GET /" if _ == 0 else b"a")
                time.sleep(0.1)


async def much(scope, receive, send):
    """An application whose answer is larger than what the system keeps for a connection."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(30_000_000)})


@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_stops_reading_is_cut_off_and_one_that_reads_slowly_is_not(reads):
    with running(much) as address, connect(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        received, end = 0, time.monotonic() + 2.5
        if not reads:
            time.sleep(2.5)
        try:
            while chunk := connection.recv(2**20):
                received += len(chunk)
                if time.monotonic() < end:
                    time.sleep(0.05)
        except ConnectionResetError:
            pass
        assert (received >= 30_000_000) == reads


def test_clients_that_go_leave_nothing_behind(encoder):
    app = make_app({"tiny": encoder})
    served = app.state.serving.models["tiny"]
    with running(app) as address:
        body = json.dumps({"input": ["two dogs run through deep snow"] * 2000}).encode()
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        for _ in range(10):
            with connect(address) as connection:
                connection.sendall(f"{head}\r\n\r\n".encode() + body)
                time.sleep(0.02)
        wait_until(lambda: served.batcher.num_texts == 0, seconds=20)
        assert served.batcher.num_tokens == 0
        assert httpx.post(f"{address}/v1/embeddings", json=EMBED).status_code == 200


def test_bytes_that_are_no_http_are_refused(live):
    for sent in (
        b"\x16\x03\x01\x00\xa5\x01",
        b"POST /x HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ):
        with connect(live) as connection:
            connection.sendall(sent + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
    with connect(live) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\nx-a: " + b"a" * 100_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert httpx.get(f"{live}/health").status_code == 200


def test_a_body_that_is_far_too_large_is_answered_before_it_has_arrived(encoder):
    from tercet.serving.limits import Limits

    with running(make_app({"tiny": encoder}, limits=Limits(max_body_bytes=100_000))) as address:
        answer = httpx.post(f"{address}/v1/embeddings", json={"input": "a" * 300_000})
        assert answer.status_code == 413
        with connect(address) as connection:
            connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n")
            connection.sendall(b"content-length: 10000000000\r\n\r\n")
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                for _ in range(1000):
                    connection.sendall(b"a" * 100_000)


def test_requests_on_one_connection_are_answered_in_order(live):
    with connect(live) as connection:
        one = b"GET /health HTTP/1.1\r\nhost: a\r\nx-request-id: %d\r\n\r\n"
        connection.sendall(b"".join(one % i for i in range(5)))
        received = b""
        while received.count(b'"status":"ok"') < 5:
            received += connection.recv(10_000)
    assert [line for line in received.split(b"\r\n") if line.startswith(b"x-request-id")] == [
        b"x-request-id: %d" % i for i in range(5)
    ]
