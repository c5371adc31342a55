"""Models from the hub: fetched once, by name and revision, never as a pickle, against a small hub on this machine."""

import hashlib
import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

SENTENCES = ["A man is playing a guitar.", "", "Stocks dropped."]


class Hub:
    """A hub of folders: `repos` maps a name to its revisions, and a revision to a folder."""

    def __init__(self):
        self.repos = {}
        self.requests = []
        self.fail = None
        self._start(0)

    def _start(self, port):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            def do_HEAD(self):
                hub.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.port = self.server.server_address[1]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def restart(self):
        self._start(self.port)

    def add(self, name, folder, *, revision="main"):
        self.repos.setdefault(name, {})[revision] = folder

    def answer(self, handler):
        path = unquote(urlsplit(handler.path).path)
        self.requests.append(path)
        if self.fail is not None and self.fail(handler, path):
            return
        if path.startswith("/api/models/"):
            name, verb, revision = _split(path.removeprefix("/api/models/"), ("/revision/", "/tree/"))
        else:
            name, verb, revision = _split(path.removeprefix("/"), ("/resolve/",))
        revisions = self.repos.get(name)
        if revisions is None:
            return _send(handler, 404, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}')
        revision, _, file = revision.partition("/")
        commits = {commit_of(name, other): other for other in revisions}
        revision = commits.get(revision, revision)
        if revision not in revisions:
            return _send(handler, 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}')
        folder, commit = revisions[revision], commit_of(name, revision)
        if verb == "/revision/":
            siblings = [{"rfilename": path} for path in _files(folder)]
            return _send_json(handler, {"id": name, "modelId": name, "sha": commit, "siblings": siblings})
        if verb == "/tree/":
            entries = [
                {"type": "file", "path": path, "size": file.stat().st_size, "oid": _etag(file)}
                for path, file in _files(folder).items()
            ]
            return _send_json(handler, entries)
        if file not in _files(folder):
            return _send(handler, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b"")
        content = (folder / file).read_bytes()
        return _send(handler, 200, {"ETag": f'"{_etag(folder / file)}"', "X-Repo-Commit": commit}, content)

    def fetched(self, name):
        """Return the files of a model that somebody asked for."""
        return {path.split("/", 5)[5] for path in self.requests if path.startswith(f"/{name}/resolve/")}


def commit_of(name, revision):
    return hashlib.sha1(f"{name}@{revision}".encode()).hexdigest()


def _split(path, verbs):
    for verb in verbs:
        name, found, rest = path.partition(verb)
        if found:
            return name, verb, rest
    return path, verbs[0], "main"


def _files(folder):
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _etag(file):
    return hashlib.sha1(file.read_bytes()).hexdigest()


def _send_json(handler, value):
    _send(handler, 200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def _send(handler, code, headers, content):
    handler.send_response(code)
    for key, value in {**headers, "Content-Length": str(len(content))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


@pytest.fixture(scope="module")
def hub():
    hub = Hub()
    yield hub
    hub.stop()


@pytest.fixture(scope="module")
def changes(hub, tmp_path_factory):
    """Return what an environment needs to use our hub and a cache of its own."""
    return {
        "remove": ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"],
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.port}",
        "HF_HOME": str(tmp_path_factory.mktemp("hub-home")),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture(scope="module")
def online(preload, changes):
    with preload(**changes) as start:
        yield start


@pytest.fixture
def embed(hub, online, tmp_path):
    """Return a function that embeds SENTENCES with a model from the hub."""
    hub.fail = None
    hub.requests.clear()
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in SENTENCES))

    def run(*args):
        out = tmp_path / "out.npy"
        out.unlink(missing_ok=True)
        with online("embed", "in.txt", "--out", "out.npy", *args, folder=tmp_path) as (_, done):
            pass
        assert "Traceback" not in done.stderr
        return (np.load(out) if out.exists() else None), done

    return run


def refused(done, *parts):
    assert done.returncode == 2, done.stderr
    message = done.stderr.splitlines()[-1]
    for part in parts:
        assert part in message


@pytest.fixture
def pickled(models, tmp_path):
    """Return a model folder whose weights are a pickle."""
    folder = tmp_path / "pickled"
    shutil.copytree(models["t5"], folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


LOAD = """
import json, sys
from tercet import Encoder
encoder = Encoder.load(sys.argv[1])
print(json.dumps(encoder.embed(json.loads(sys.argv[2])).tolist()))
"""


def test_a_model_is_fetched_and_gives_the_vectors_of_its_folder(python, hub, changes, models, encoder, tmp_path):
    hub.add("acme/tiny-st5", models["t5"])
    done = python("-c", LOAD, "acme/tiny-st5", json.dumps(SENTENCES), folder=tmp_path, changes=changes)
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in hub.fetched("acme/tiny-st5")
    np.testing.assert_allclose(json.loads(done.stdout), encoder.embed(SENTENCES), atol=1e-5)


JUDGE = """
import json, sys
from tercet import Synthesizer
synthesizer = Synthesizer.load(sys.argv[1], engine="transformers", precision="exact")
texts = json.loads(sys.argv[2])
print(json.dumps([synthesizer.generate(texts, seed=3), synthesizer.score(texts, texts[::-1]).tolist()]))
"""


def test_a_synthesizer_is_fetched_and_writes_and_judges_as_its_folder(
    python, hub, changes, synthesizer_folder, tmp_path
):
    from tercet import Synthesizer

    hub.add("acme/tiny-synthesizer", synthesizer_folder())
    done = python("-c", JUDGE, "acme/tiny-synthesizer", json.dumps(SENTENCES), folder=tmp_path, changes=changes)
    assert done.returncode == 0, done.stderr
    written, judged = json.loads(done.stdout)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= hub.fetched("acme/tiny-synthesizer")
    own = Synthesizer.load(synthesizer_folder(), engine="transformers", device="cpu", precision="exact")
    assert written == own.generate(SENTENCES, seed=3)
    np.testing.assert_allclose(judged, own.score(SENTENCES, SENTENCES[::-1]), atol=1e-5)


def test_a_model_with_a_decoder_a_projection_and_a_prompt_is_fetched_whole(embed, hub, tiny, tmp_path):
    encoder = tiny("t5", readout="encdec-first", prompt="gense", projection=16)
    encoder.save(tmp_path / "model")
    hub.add("acme/question", tmp_path / "model")
    vectors, done = embed("--model", "acme/question")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(vectors, encoder.embed(SENTENCES), atol=1e-5)


def test_a_model_is_fetched_once_and_comes_from_the_cache_without_the_hub(embed, hub, models, encoder):
    hub.add("acme/cached", models["t5"])
    assert embed("--model", "acme/cached")[1].returncode == 0
    hub.requests.clear()
    assert embed("--model", "acme/cached")[1].returncode == 0
    assert hub.fetched("acme/cached") == set()
    hub.stop()
    try:
        vectors, done = embed("--model", "acme/cached")
    finally:
        hub.restart()
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(vectors, encoder.embed(SENTENCES), atol=1e-5)


def test_a_hub_that_cannot_be_reached_is_an_error_within_seconds(embed, hub, changes):
    hub.stop()
    start = time.monotonic()
    try:
        _, done = embed("--model", "acme/never-seen")
    finally:
        hub.restart()
    refused(done, "acme/never-seen: not on this machine", changes["HF_ENDPOINT"], "refused")
    assert time.monotonic() - start < 10


def test_a_model_that_the_hub_does_not_have_is_an_error_with_near_matches(embed):
    refused(embed("--model", "acme/t5-small")[1], "acme/t5-small: no model of that name", "random:t5-small")
    refused(embed("--model", "minlm")[1], "minlm: no model of that name", "Did you mean: minilm")


def test_a_revision_is_a_branch_a_tag_or_a_commit(embed, hub, models, tiny, tmp_path):
    other = tiny("t5", seed=5)
    other.save(tmp_path / "other")
    hub.add("acme/versions", models["t5"])
    hub.add("acme/versions", tmp_path / "other", revision="v2")
    main, done = embed("--model", "acme/versions")
    assert done.returncode == 0, done.stderr
    for revision in ("v2", commit_of("acme/versions", "v2")):
        vectors, done = embed("--model", "acme/versions", "--revision", revision)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(vectors, other.embed(SENTENCES), atol=1e-5)
        assert np.abs(vectors - main).max() > 0.01


def test_a_revision_that_does_not_exist_is_an_error(embed, hub, models):
    hub.add("acme/one-version", models["t5"])
    refused(embed("--model", "acme/one-version", "--revision", "v9")[1], "acme/one-version: has no revision 'v9'")


def test_pickled_weights_are_refused_and_not_even_fetched(embed, hub, pickled):
    hub.add("acme/pickled", pickled)
    for _ in range(2):
        refused(embed("--model", "acme/pickled")[1], "acme/pickled: has only pickled weights", "convert_pickle=True")
    assert "config.json" in hub.fetched("acme/pickled")
    assert not any(name.endswith(".bin") for name in hub.fetched("acme/pickled"))


def test_pickled_weights_are_refused_from_the_cache_too(embed, hub, pickled):
    hub.add("acme/pickled-cached", pickled)
    refused(embed("--model", "acme/pickled-cached")[1], "pickled weights")
    hub.stop()
    start = time.monotonic()
    try:
        _, done = embed("--model", "acme/pickled-cached")
    finally:
        hub.restart()
    refused(done, "model.safetensors")
    assert time.monotonic() - start < 10


def test_pickled_weights_are_converted_where_that_is_asked_for(embed, hub, pickled, encoder):
    hub.add("acme/converted", pickled)
    vectors, done = embed("--model", "acme/converted", "--convert-pickle")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(vectors, encoder.embed(SENTENCES), atol=1e-5)
    vectors, done = embed("--model", "acme/converted")  # once is enough
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(vectors, encoder.embed(SENTENCES), atol=1e-5)


def test_only_what_a_model_is_made_of_is_fetched(embed, hub, models, tmp_path):
    shutil.copytree(models["t5"], tmp_path / "model")
    for name in ("modeling_x.py", "pytorch_model.bin", "README.md", "onnx/model.onnx"):
        (tmp_path / "model" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes(b"not to be fetched")
    hub.add("acme/with-more", tmp_path / "model")
    assert embed("--model", "acme/with-more")[1].returncode == 0
    assert hub.fetched("acme/with-more") == {*_files(models["t5"])} - {"SHA256SUMS", "README.md"}


def test_a_tokenizer_is_fetched_without_weights(embed, hub, pickled, models):
    hub.add("acme/words", models["t5"])
    hub.add("acme/pickled-words", pickled)
    for name in ("acme/words", "acme/pickled-words"):
        vectors, done = embed("--model", "random:t5-tiny", "--tokenizer", name)
        assert done.returncode == 0, done.stderr
        assert vectors.shape == (len(SENTENCES), 256)
        assert "tokenizer.json" in hub.fetched(name)
        assert not any(file.endswith((".bin", ".safetensors")) for file in hub.fetched(name))


def test_a_model_behind_a_login_is_an_error_that_says_so(embed, hub, models):
    hub.add("acme/gated", models["t5"])

    def gated(handler, _path):
        _send(handler, 403, {"X-Error-Code": "GatedRepo"}, b'{"error": "Access to this model is restricted"}')
        return True

    hub.fail = gated
    refused(embed("--model", "acme/gated")[1], "acme/gated: the hub wants a login", "hf auth login")


def test_a_download_that_breaks_off_is_an_error_and_can_be_done_again(embed, hub, models, encoder):
    hub.add("acme/broken", models["t5"])

    def break_off(handler, path):
        if handler.command != "GET" or not path.endswith("model.safetensors"):
            return False
        content = (models["t5"] / "model.safetensors").read_bytes()
        handler.send_response(200)
        handler.send_header("ETag", f'"{_etag(models["t5"] / "model.safetensors")}"')
        handler.send_header("X-Repo-Commit", commit_of("acme/broken", "main"))
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.close_connection = True
        return True

    hub.fail = break_off
    refused(embed("--model", "acme/broken")[1], "acme/broken: ")
    hub.fail = None
    vectors, done = embed("--model", "acme/broken")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(vectors, encoder.embed(SENTENCES), atol=1e-5)


def test_a_hub_in_trouble_is_an_error(embed, hub, models):
    hub.add("acme/trouble", models["t5"])
    hub.fail = lambda handler, _path: _send(handler, 500, {}, b"<html>\nInternal error\n</html>") or True
    refused(embed("--model", "acme/trouble")[1], "acme/trouble: not on this machine", "500")
