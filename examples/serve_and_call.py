"""Serve an encoder, and call it as OpenAI's clients do: needs `pip install 'tercet[serve]'`.

Usage: `python examples/serve_and_call.py`
"""

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

with socket.create_server(("127.0.0.1", 0)) as free:
    address = f"http://127.0.0.1:{free.getsockname()[1]}"


def ask(path: str, **body: object) -> dict:
    """Return the answer to a request."""
    request = Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


command = [sys.executable, "-m", "tercet", "serve", "--model", "mini", "--port", address.rpartition(":")[2]]
server = subprocess.Popen([*command, "--no-access-log"])
try:
    while True:
        with contextlib.suppress(OSError):
            if urlopen(f"{address}/ready", timeout=30).status == 200:
                break
        time.sleep(0.2)
    answer = ask("/v1/embeddings", model="mini", input=["A man plays a guitar.", "Somebody makes music."])
    print("vectors:", [len(each["embedding"]) for each in answer["data"]], "tokens:", answer["usage"]["total_tokens"])
    messages = Path(__file__).with_name("bicycle-shop.txt").read_text(encoding="utf-8").splitlines()
    ranked = ask("/v1/rerank", query="how do I stop the squeaking", documents=messages, top_n=3)
    for result in ranked["results"]:
        print(f"  {result['relevance_score']:.2f}  {messages[result['index']]}")
finally:
    server.terminate()
    server.wait(60)
