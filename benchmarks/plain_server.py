"""The server that one writes first: FastAPI around sentence-transformers.

python benchmarks/plain_server.py MODEL_FOLDER PORT
"""

import sys
from base64 import b64encode

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], device="cpu")
app = FastAPI()


class Request(BaseModel):
    """OpenAI's request, as far as it goes."""

    input: list[str]
    encoding_format: str = "float"


@app.post("/v1/embeddings")
def embeddings(request: Request) -> dict[str, object]:
    """Vectors of texts, in a thread of FastAPI's pool."""
    vectors = np.asarray(model.encode(request.input, show_progress_bar=False), np.float32)
    as_text = request.encoding_format == "base64"
    data = [
        {"index": i, "embedding": b64encode(vector.tobytes()).decode() if as_text else vector.tolist()}
        for i, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data}


@app.get("/ready")
def ready() -> dict[str, str]:
    """Whether it listens."""
    return {}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
