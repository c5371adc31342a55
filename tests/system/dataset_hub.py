"""A local server with datasets that speaks as much of the hub's language as `datasets` needs."""

import hashlib
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows):
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


def card(configs):
    """Return a README that tells the files of each config: {config: {split: path}}."""
    entries = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in splits.items()]}
        for name, splits in configs.items()
    ]
    return f"---\n{json.dumps({'configs': entries})}\n---\n".encode()


class Hub(ThreadingHTTPServer):
    """A server with datasets: their names, and the paths and bytes of their files.

    The connection breaks in the middle of the file `cut`. Who asks for the dataset `wait` waits until the end.
    """

    def __init__(self, repos, *, cut=None, wait=None):
        super().__init__(("127.0.0.1", 0), Answer)
        self.repos, self.cut, self.wait = repos, cut, wait
        self.asked, self.ended = threading.Event(), threading.Event()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self.ended.set()
        self.shutdown()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_GET(self):
        url, server = urlsplit(self.path), self.server
        kind, _, rest = unquote(url.path).strip("/").partition("datasets/")
        name = "/".join(rest.split("/")[:2])
        action, _, path = rest[len(name) + 1 :].partition("/")
        path = path.partition("/")[2]
        if name == server.wait:
            server.asked.set()
            server.ended.wait(60)
        files = server.repos.get(name)
        if files is None:
            self.answer(404, X_Error_Code="RepoNotFound")
        elif kind != "api/":
            self.give(files, path)
        elif action in ("", "revision"):
            about = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            self.answer(200, json.dumps(about).encode())
        else:
            self.answer(200, json.dumps(tree(files, path, "recursive=false" not in url.query)).encode())

    do_HEAD = do_GET

    def give(self, files, path):
        if path not in files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        digest = hashlib.sha256(files[path]).hexdigest()
        cut = path == self.server.cut and self.command == "GET"
        self.answer(200, files[path], cut=cut, ETag=f'"{digest}"', X_Repo_Commit=COMMIT)

    def answer(self, status, body=b"", *, cut=False, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut


def tree(files, path, recursive):
    prefix = f"{path}/" if path else ""
    below = {file: file[len(prefix) :] for file in files if file.startswith(prefix)}
    folders = {prefix + name.split("/")[0] for name in below.values() if "/" in name}
    return [{"type": "directory", "path": folder, "oid": "0"} for folder in sorted(folders)] + [
        {"type": "file", "path": file, "size": len(files[file]), "oid": hashlib.sha256(files[file]).hexdigest()}
        for file, name in below.items()
        if recursive or "/" not in name
    ]
