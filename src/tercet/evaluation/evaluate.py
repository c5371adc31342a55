"""The verb `evaluate`: score an encoder on the tasks of the three papers, or on one's own files."""

import contextlib
import difflib
import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tercet.data.sets.folder import DataFolder, MissingDataError
from tercet.encoder.model.encoder import Encoder
from tercet.encoder.model.settings import Vectors
from tercet.errors import InputError, NonFiniteError, RowError, SettingError
from tercet.evaluation.tasks import domain, geometry, glue, speed, sts, transfer, translation
from tercet.evaluation.tasks.own import own_task
from tercet.evaluation.tasks.task import Options, Result, Task
from tercet.storage.files import check_writable, target_errors, write_json
from tercet.storage.hashing import sha256_of_json
from tercet.storage.progress import progress_bar
from tercet.vectors.cache import cache_folder, kept_vectors

_FAMILIES = (sts, transfer, glue, domain, translation, geometry, speed)
TASKS = {task.name: task for family in _FAMILIES for task in family.TASKS}

GROUPS = {
    "sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK-R"),
    "transfer": tuple(task.name for task in transfer.TASKS),
    "sentglue": tuple(task.name for task in glue.TASKS),
    "domain": tuple(task.name for task in domain.TASKS),
    "zh": ("ZH-STSB",),
}
"""Groups of tasks and of what an average is taken; STSB-dev is for selection and in none of them."""


class TextEncoder(Protocol):
    """Anything that embeds a list of texts: an Encoder, a SentenceTransformer, an API client."""

    def encode(self, sentences: list[str]) -> Any:
        """Return one vector a text."""


def evaluate(
    encoder: TextEncoder,
    *,
    tasks: str | Sequence[str] = "sts",
    data: str | Path | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    classifier: str = "batched",
    seed: int = 1111,
    precision: str = "exact",
    cache: str | Path | None = None,
    source: TextEncoder | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Score an encoder.

    Args:
        encoder: An Encoder, or any object with `encode(list of texts)`.
        tasks: Names of tasks and groups, and files as `scored:FILE`, `paraphrase:FILE`, `rerank:FILE`, `labelled:FILE`,
            `triplets:FILE`.
        data: The folder with the evaluation data; `$TERCET_DATA/eval` where None.
        out: A folder for `results.json`; nothing is written where None.
        name: What the results call the model.
        classifier: `batched` or `sklearn`, for the transfer tasks.
        seed: What folds and batches are drawn with.
        precision: See `EmbedOptions`; only an Encoder has it.
        cache: A folder that keeps vectors for the next evaluation; only an Encoder's can be kept.
        source: Another encoder for the source side of parallel pairs, which is the English one in `retrieval`.
        progress: Whether bars are shown.

    Returns:
        The contents of `results.json`.

    Raises:
        SettingError: A task is unknown.
        InputError: Data is broken; missing data is no error but is reported as missing.
    """
    chosen = choose_tasks(tasks)
    if classifier not in ("batched", "sklearn"):
        raise SettingError(f"classifier {classifier!r}: there is none of that name. Take batched or sklearn.")
    folder = DataFolder(data_root(data, chosen))
    file = None if out is None else Path(out) / "results.json"
    if file is not None:
        with target_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        check_writable(file)
    if isinstance(encoder, Encoder):
        precision = encoder.resolve_precision(precision)
    kept = None if cache is None else Path(cache)
    store = VectorStore(encoder, precision=precision, cache=kept, progress=progress)
    options = Options(classifier=classifier, seed=seed)
    if source is not None:
        other = VectorStore(source, precision=precision, cache=kept, progress=progress)
        options = replace(options, source=other)
    results: dict[str, Any] = {
        "model": name or type(encoder).__name__,
        "num_parameters": store.num_parameters,
        "settings": _settings_of(encoder)
        | {"precision": precision, "classifier": classifier, "seed": seed}
        | ({} if source is None else {"source": _settings_of(source)}),
        "versions": versions(),
        "tasks": {},
        "missing": {},
        "averages": {},
    }
    for task in chosen:
        store.label = task.name
        folder.read.clear()
        try:
            results["tasks"][task.name] = task.run(folder, store, options) | {"data": dict(folder.read)}
        except MissingDataError as error:
            results["missing"][task.name] = str(error)
        except RowError:  # says file:line
            raise
        except (InputError, NonFiniteError) as error:
            kind = NonFiniteError if isinstance(error, NonFiniteError) else InputError  # TextError takes two values
            raise kind(f"{task.name}: {error}") from error
        results["averages"] = averages(results["tasks"], [task.name for task in chosen])
        if file is not None:  # after every task, so that an error in a later one loses no score
            write_json(file, results)
    return results


def choose_tasks(names: str | Sequence[str]) -> list[Task]:
    """Return the tasks that names of tasks, groups and files stand for, each once and in the order given.

    Raises:
        SettingError: A name is unknown; the message lists near matches.
    """
    chosen: dict[str, Task] = {}
    for name in [part.strip() for part in names.split(",")] if isinstance(names, str) else names:
        kind, colon, path = name.partition(":")
        if colon:
            chosen[name] = own_task(kind, path)
        elif name in GROUPS:
            chosen |= {task: TASKS[task] for task in GROUPS[name]}
        elif name in TASKS:
            chosen[name] = TASKS[name]
        else:
            known = [*GROUPS, *TASKS]
            near = difflib.get_close_matches(name, known, n=3) or known
            raise SettingError(f"task {name!r}: there is none of that name. Take one of: {', '.join(near)}.")
    return list(chosen.values())


def averages(scores: dict[str, Result], asked: Sequence[str]) -> dict[str, Any]:
    """Return the mean of each group that was asked for, over the tasks that have a score, and how many those are."""
    found = {}
    for group, names in GROUPS.items():
        scored = [name for name in names if name in scores]
        if scored and set(names) <= set(asked) and len(names) > 1:
            found[group] = {
                "score": float(np.mean([scores[name]["score"] for name in scored])),
                "tasks": scored,
                "num_tasks": len(scored),
                "of": len(names),
                "complete": len(scored) == len(names),
                "notes": {name: scores[name]["note"] for name in scored if "note" in scores[name]},
            }
    return found


class VectorStore:
    """Texts to vectors, each text embedded once; on disk too where there is a folder and a fingerprint.

    Args:
        encoder: What embeds.
        precision: The precision of an Encoder.
        cache: Where vectors are kept, under a hash of model, precision and texts.
        progress: Whether a bar with the task's name is shown.
    """

    def __init__(self, encoder: TextEncoder, *, precision: str, cache: Path | None, progress: bool) -> None:
        self.encoder = encoder
        self.precision = precision
        self.progress = progress
        self.label = ""
        self.precisions: tuple[str, ...] = (precision,)
        self.num_parameters: int | None = None
        self._vectors: dict[str, Vectors] = {}
        self._cache: Path | None = None
        if isinstance(encoder, Encoder):
            self.precisions = _precisions_of(encoder, precision)
            self.num_parameters = encoder.num_parameters
            self._cache = cache
            self._key = f"{encoder.fingerprint()} {encoder.device.type}" if cache else ""
        self._longest: dict[str, int] = {}

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, in their order."""
        unique = list(dict.fromkeys(texts))
        if any(text not in self._vectors for text in unique):
            self._fill(unique)
        return np.stack([self._vectors[text] for text in texts])

    def _fill(self, unique: list[str]) -> None:
        def embed_new() -> Vectors:
            new = [text for text in unique if text not in self._vectors]
            self._vectors |= dict(zip(new, self._embed(new), strict=True))
            return np.stack([self._vectors[text] for text in unique])

        self._vectors |= dict(zip(unique, kept_vectors(self._file(unique), embed_new), strict=True))

    def _file(self, unique: list[str]) -> Path | None:
        if self._cache is None:
            return None
        digest = hashlib.sha256(sha256_of_json([self._key, self.precision]).encode())
        for text in unique:
            digest.update(f"{len(text)}\0{text}".encode("utf-8", "surrogatepass"))  # what embeds it, refuses it
        return self._cache / f"{digest.hexdigest()}.npy"

    def _embed(self, texts: list[str]) -> Vectors:
        if isinstance(self.encoder, Encoder):
            with progress_bar(self.label, total=len(texts), unit="texts", enabled=self.progress) as advance:
                return self.encoder.embed(texts, precision=self.precision, progress=advance)
        vectors = np.asarray(self.encoder.encode(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise InputError(f"encode gave shape {vectors.shape} for {len(texts)} texts. It must give one row a text.")
        if not np.isfinite(vectors).all():
            row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
            raise InputError(f"the vector of {texts[row]!r} is not finite. Check the encoder.")
        return vectors

    def compute(self, texts: Sequence[str], *, precision: str, batch: int | None) -> None:
        """Embed texts, about so many at once or as the encoder likes, and keep nothing."""
        if isinstance(self.encoder, Encoder):
            if batch is None:
                self.encoder.embed(texts, precision=precision)
                return
            if texts[0] not in self._longest:  # found out once, in the round that warms up
                self._longest[texts[0]] = max(map(len, self.encoder.tokens(texts)[0]))
            self.encoder.embed(texts, precision=precision, max_batch_tokens=batch * self._longest[texts[0]])
        else:
            for start in range(0, len(texts), batch or len(texts)):
                self.encoder.encode(list(texts[start : start + (batch or len(texts))]))


def default_cache() -> Path:
    """Return where the command line keeps vectors: `$XDG_CACHE_HOME/tercet`, or `~/.cache/tercet`."""
    return cache_folder() / "vectors"


def data_root(data: str | Path | None, tasks: Sequence[Task]) -> Path:
    """Return the folder with the evaluation data: the given one, or `$TERCET_DATA/eval`.

    Raises:
        InputError: There is no such folder.
        SettingError: No folder was given, and the tasks need one.
    """
    if data is not None:
        if not Path(data).is_dir():
            raise InputError(f"{data}: no such folder. Name the folder with the evaluation data.")
        return Path(data)
    if "TERCET_DATA" in os.environ:
        return Path(os.environ["TERCET_DATA"]) / "eval"
    if all(":" in task.name or task.name == "speed" for task in tasks):
        return Path()
    raise SettingError("no data folder was given. Name one with --data, or set TERCET_DATA.")


def _settings_of(encoder: TextEncoder) -> dict[str, Any]:
    if not isinstance(encoder, Encoder):
        return {}
    return {**encoder.settings, "fingerprint": encoder.fingerprint(), "device": encoder.device.type}


def _precisions_of(encoder: Encoder, usual: str) -> tuple[str, ...]:
    """Return the usual precision and then the others that the encoder has."""
    found = [usual]
    for level in ("exact", "fast", "int8"):
        with contextlib.suppress(SettingError):
            found.append(encoder.resolve_precision(level))
    return tuple(dict.fromkeys(found))


def versions() -> dict[str, str]:
    """Return the versions of what computes a result."""
    packages = ["tercet", "torch", "transformers", "tokenizers", "numpy"]
    packages += ["scikit-learn"] if find_spec("sklearn") else []
    return {package: version(package) for package in packages} | {"python": platform.python_version()}
