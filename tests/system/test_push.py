"""A model folder goes to the hub: every file, after a dry run that lists them, against a small hub on this machine."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Hub:
    """Takes uploads as the hub does: small files in the commit, large ones (`.safetensors`) by themselves."""

    def __init__(self):
        hub = self
        self.repos, self.objects, self.requests, self.token = {}, {}, [], "right"

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                hub.post(self)

            def do_PUT(self):
                content = self.rfile.read(int(self.headers["Content-Length"]))
                hub.objects[hashlib.sha256(content).hexdigest()] = content
                hub.send(self, {})

            def do_GET(self):
                hub.send(self, {"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def post(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append(handler.path)
        if handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(handler, {"error": "Invalid credentials"}, 401)
        if handler.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.repos.setdefault(name, {"files": {}, "private": asked.get("visibility") == "private"})
            return self.send(handler, {"url": f"{self.address}/{name}"})
        if handler.path == "/api/validate-yaml":
            return self.send(handler, {"errors": [], "warnings": []})
        if "/preupload/" in handler.path:
            modes = {True: "lfs", False: "regular"}
            files = [
                {
                    "path": file["path"],
                    "uploadMode": modes[file["path"].endswith(".safetensors")],
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self.send(handler, {"files": files})
        if handler.path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.address}/upload/{each['oid']}", "header": {}}}}
                for each in json.loads(body)["objects"]
            ]
            return self.send(handler, {"transfer": "basic", "objects": objects})
        if "/commit/" in handler.path:
            name = handler.path.removeprefix("/api/models/").partition("/commit/")[0]
            self.commit(name, body)
            url = f"{self.address}/{name}/commit/{'0' * 40}"
            done = {"success": True, "commitOid": "0" * 40, "commitUrl": url, "hookOutput": ""}
            return self.send(handler, done)
        return self.send(handler, {"error": handler.path}, 500)

    def commit(self, name, body):
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.repos[name]["files"][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.repos[name]["files"][value["path"]] = self.objects[value["oid"]]
            else:
                self.repos[name]["summary"] = value["summary"]

    def send(self, handler, value, code=200, headers=None):
        content = json.dumps(value).encode()
        handler.send_response(code)
        for key, each in {"Content-Type": "application/json", **(headers or {})}.items():
            handler.send_header(key, each)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


@pytest.fixture(scope="module")
def hub():
    hub = Hub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture(scope="module")
def online(hub, preload, tmp_path_factory):
    changes = {
        "remove": ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"],
        "HF_ENDPOINT": hub.address,
        "HF_TOKEN": "right",
        "HF_HOME": str(tmp_path_factory.mktemp("hub-home")),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",  # the hub's protocol for large files is compiled, and speaks to a server of its own
        "NO_PROXY": "127.0.0.1",
    }
    with preload(**changes) as start:
        yield start


@pytest.fixture
def push(hub, online, tiny, tmp_path):
    """Return a function that runs `tercet push model ARGS` for a saved encoder."""
    hub.requests.clear()
    hub.repos.clear()
    hub.token = "right"
    tiny("t5", projection=16).save(tmp_path / "model")
    (tmp_path / "model" / ".hidden").write_text("of nobody's business")

    def run(*args):
        with online("push", "model", *args, folder=tmp_path) as (_, done):
            pass
        return done

    return run


def test_a_dry_run_lists_all_files_and_uploads_nothing(push, hub, tmp_path):
    done = push("hub:me/my-encoder")
    assert done.returncode == 0
    names = {line.split()[1] for line in done.stdout.splitlines()[:-1]}
    here = {
        path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*") if path.is_file()
    }
    assert names == here - {".hidden"} and {"README.md", "model.safetensors", "2_Dense/model.safetensors"} <= names
    assert done.stdout.splitlines()[-1].endswith("nothing was uploaded to me/my-encoder yet")
    assert hub.requests == []


def test_every_file_arrives_as_it_is(push, hub, tmp_path):
    done = push("hub:me/my-encoder", "--upload", "--private")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"uploading \d+ files, [\d.]+ MB\n", done.stderr)
    repo = hub.repos["me/my-encoder"]
    for name, content in repo["files"].items():
        assert content == (tmp_path / "model" / name).read_bytes(), name
    assert len(repo["files"]) == len(done.stdout.splitlines()) - 1
    assert repo["private"] is True and repo["summary"] == "Upload model with Tercet"
    assert done.stdout.splitlines()[-1].endswith(f"uploaded to {hub.address}/me/my-encoder")


def test_a_wrong_login_is_one_line(push, hub):
    hub.token = "another"
    done = push("hub:me/my-encoder", "--upload")
    assert done.returncode == 2
    [_, line] = done.stderr.splitlines()
    assert line.startswith(f"me/my-encoder: {hub.address} did not take it (") and "hf auth login" in line
    assert hub.repos == {}


@pytest.mark.parametrize("name", ["me/my-encoder", "hub:my-encoder", "hub:a/b/c", "hub:/b"])
def test_what_is_no_name_on_the_hub_is_refused(push, name):
    done = push(name, "--upload")
    assert done.returncode == 2
    assert done.stderr == f"{name}: is no name on the hub. Write hub:USER/NAME.\n"


def test_a_damaged_folder_stays_here_and_an_edited_card_may_go(push, hub, tmp_path):
    (tmp_path / "model" / "README.md").write_text("# My encoder\n")
    assert push("hub:me/my-encoder", "--upload").returncode == 0
    assert hub.repos["me/my-encoder"]["files"]["README.md"] == b"# My encoder\n"
    (tmp_path / "model" / "modules.json").write_text("[]")
    done = push("hub:me/my-encoder", "--upload")
    assert done.returncode == 2 and "modules.json: is not as it was written" in done.stderr


def test_a_link_out_of_the_folder_is_not_followed(push, tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "model" / "notes.txt").symlink_to(tmp_path / "secret")
    done = push("hub:me/my-encoder")
    assert done.returncode == 2 and "notes.txt: is a link to a file elsewhere" in done.stderr


def test_a_folder_that_is_no_model_is_refused(push, tmp_path):
    for path in (tmp_path / "model").glob("*.json"):
        path.unlink()
    done = push("hub:me/my-encoder")
    assert done.returncode == 2 and done.stderr.startswith("model: is no model folder")
