"""Sentence embeddings with T5-family encoders, and better encoders from unlabelled text.

    vectors = tercet.embed(["A man plays a guitar.", "Somebody makes music."])
    tercet.search("making music", ["A man plays a guitar.", "It rains."])
    tercet.adapt("sentences.txt", "adapted")

Each verb is a function here and a command of `tercet`:

    embed       texts to vectors, in memory or in a file
    search      the texts that are nearest to a query
    dedup       texts without those that nearly repeat an earlier one
    cluster     groups of texts about the same thing, with names
    mine        paraphrases, hard negatives and translations to train on
    evaluate    score an encoder on the papers' tasks, or on your own files
    adapt       make an encoder better on your own sentences, without labels; `label` makes rows to judge it by
    synthesize  triplets to train on from unlabelled sentences; `refilter` and `compare` what it made
    train       train an encoder by a recipe
    report      results beside the papers' published tables
    serve       encoders over HTTP, as OpenAI's clients ask for them
    export      an encoder as a graph for ONNX Runtime or OpenVINO
    push        a model folder to the hub
    fetch       bring evaluation data from the hub; `leaks` looks for training texts in it, `check` at training rows
    verify      whether what was written is as it was written; `prune` removes what a run no longer uses
    models      what there is to choose from; `tasks` and `recipes` likewise; `doctor` looks at the installation
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tercet.errors import (
    DivergedError,
    InputError,
    ModelError,
    NonFiniteError,
    OutputError,
    RowError,
    SettingError,
    TercetError,
    TextError,
    TextTypeError,
)

if TYPE_CHECKING:
    from tercet.adaptation.adapt import adapt
    from tercet.adaptation.label import label
    from tercet.data.sets.fetch import fetch
    from tercet.encoder.encoder import Encoder
    from tercet.encoder.export import export
    from tercet.encoder.push import push
    from tercet.evaluation.evaluate import evaluate
    from tercet.guide.doctor import doctor
    from tercet.guide.models import models
    from tercet.guide.recipes import recipes
    from tercet.guide.tasks import tasks
    from tercet.mining.cluster import cluster
    from tercet.mining.dedup import dedup
    from tercet.mining.mine import mine
    from tercet.reporting.report import report
    from tercet.serving.serve import serve
    from tercet.storage.verify import verify
    from tercet.synthesis.comparison import compare
    from tercet.synthesis.corpus import refilter, synthesize
    from tercet.synthesis.synthesizer import Synthesizer
    from tercet.training.check import check
    from tercet.training.leaks import leaks
    from tercet.training.stage_folders import prune
    from tercet.training.train import train
    from tercet.vectors.embed import embed
    from tercet.vectors.search import search

__version__ = "0.2.0"

__all__ = [
    "DivergedError",
    "Encoder",
    "InputError",
    "ModelError",
    "NonFiniteError",
    "OutputError",
    "RowError",
    "SettingError",
    "Synthesizer",
    "TercetError",
    "TextError",
    "TextTypeError",
    "adapt",
    "check",
    "cluster",
    "compare",
    "dedup",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "fetch",
    "label",
    "leaks",
    "mine",
    "models",
    "prune",
    "push",
    "recipes",
    "refilter",
    "report",
    "search",
    "serve",
    "synthesize",
    "tasks",
    "train",
    "verify",
]

# Imported on first use, so that `import tercet` and `tercet --help` stay instant.
_LAZY = {
    "Encoder": "encoder.encoder",
    "Synthesizer": "synthesis.synthesizer",
    "adapt": "adaptation.adapt",
    "check": "training.check",
    "cluster": "mining.cluster",
    "compare": "synthesis.comparison",
    "dedup": "mining.dedup",
    "doctor": "guide.doctor",
    "embed": "vectors.embed",
    "evaluate": "evaluation.evaluate",
    "export": "encoder.export",
    "fetch": "data.sets.fetch",
    "label": "adaptation.label",
    "leaks": "training.leaks",
    "mine": "mining.mine",
    "models": "guide.models",
    "prune": "training.stage_folders",
    "push": "encoder.push",
    "recipes": "guide.recipes",
    "refilter": "synthesis.corpus",
    "report": "reporting.report",
    "search": "vectors.search",
    "serve": "serving.serve",
    "synthesize": "synthesis.corpus",
    "tasks": "guide.tasks",
    "train": "training.train",
    "verify": "storage.verify",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"tercet.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'tercet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
