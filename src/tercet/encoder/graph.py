"""An encoder that runs through ONNX Runtime or OpenVINO: a graph, a tokenizer and settings, and no weights of ours."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import torch
from torch import Tensor

from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.layout import EXPORT_FILE
from tercet.encoder.folder.limits import check_files, check_tokenizer
from tercet.encoder.forward.batches import pad
from tercet.encoder.forward.engine import BROKEN
from tercet.encoder.forward.streams import num_threads
from tercet.encoder.model.prompts import SLOT, Prompt
from tercet.encoder.model.readouts import stored_readout
from tercet.encoder.model.settings import Embedded, EmbedOptions, EncoderSettings
from tercet.encoder.model.tokens import Tokens, load_tokenizer, tokenizer_file
from tercet.encoder.model.tower import Head
from tercet.encoder.model.trusted import read_json
from tercet.encoder.standalone import OPEN, Run
from tercet.errors import ModelError, NonFiniteError, SettingError
from tercet.storage.extras import require
from tercet.storage.hashing import sha256_of_file, sha256_of_json

if TYPE_CHECKING:
    from tercet.encoder.forward.engine import Engine

GRAPHS = {"onnx": "model.onnx", "openvino": "model.xml"}
"""The file of the graph, by format; weights may be in others beside it that begin with the same word."""

RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
"""The package that opens it."""


class Exported(Encoder):
    """An encoder in a folder that `export` wrote. `Encoder.load` makes one; it embeds, and cannot be trained or saved.

    Args:
        folder: Where it is.
        settings: What to choose in place of what is stored: `prompt`, and a lower `max_tokens`.

    Raises:
        ModelError: The folder is not complete, or its runtime is not installed.
        SettingError: The settings do not fit the graph.
    """

    def __init__(self, folder: Path, settings: EncoderSettings, *, threads: int | None = None) -> None:
        self.folder, self.threads = folder, threads
        try:
            self.stored = _read(folder)
            self.stored["readout"] = stored_readout(self.stored)
            _check(self.stored, settings)
            self.prompts = dict(self.stored["prompts"])
            self.tokens = _tokens(folder, self.stored, settings)
            self._head = Head(self.stored["readout"], self.stored["dims"], normalize=self.stored["normalize"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{folder / EXPORT_FILE}: is not as it should be ({error!r}). Export the model again."
            ) from error
        self.dtype, self.name = torch.float32, str(folder)
        self._run = self._open()

    def _open(self) -> Run:
        return _open(
            self.folder / GRAPHS[self.stored["format"]], self.stored["format"], threads=num_threads(self.threads)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_run"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._run = self._open()

    @property
    def tower(self) -> NoReturn:
        """There is none."""
        raise ModelError(
            f"{self.folder}: is an exported graph, which can only embed: it cannot be trained, saved or changed. "
            "Load the model that it was made from."
        )

    @property
    def head(self) -> Head:
        """What is known of how the graph reads out its vectors; its layers are in the graph."""
        return self._head

    @property
    def settings(self) -> EncoderSettings:
        """The settings in force."""
        return EncoderSettings(
            readout=self.stored["readout"],
            mlp=self.stored["mlp"],
            projection=self.stored["projection"],
            normalize=self.stored["normalize"],
            prompt=self.tokens.prompt.setting,
            max_tokens=self.tokens.max_tokens,
        )

    @property
    def device(self) -> torch.device:
        """Where the encoder runs."""
        return torch.device("cpu")

    @property
    def num_parameters(self) -> int:
        """How many weights the model has that was exported."""
        return int(self.stored["num_parameters"])

    def fingerprint(self) -> str:
        """Return a hash of everything that decides a vector: the graph with its weights, tokenizer and settings."""
        files = sorted(self.folder.glob(f"{Path(GRAPHS[self.stored['format']]).stem}.*"))
        graph = [(file.name, sha256_of_file(file)) for file in files]
        return sha256_of_json([self.settings.model_dump(), self.tokens.describe(), graph])

    def resolve_precision(self, precision: str) -> str:
        """Return `exact` for `exact` and `auto`: the graph as it is.

        Raises:
            SettingError: Another precision is asked for.
        """
        if precision not in ("exact", "auto"):
            stored = "int8" if self.stored["int8"] else "fp32"
            raise SettingError(
                f"precision {precision!r}: this is an exported graph in {stored}, which runs as it is. Leave it out."
            )
        return "exact"

    def embed_each(self, chunks: Iterable[Sequence[str]], **options: Unpack[EmbedOptions]) -> Iterator[Embedded]:
        """Do as `Encoder.embed_each`.

        Raises:
            SettingError: Vectors as they were before normalisation are asked for, and the graph normalises.
        """
        if options.get("normalize") is False and self._head.normalize:
            raise SettingError("normalize false: the exported graph scales its vectors to length 1. Leave it out.")
        return super().embed_each(chunks, **options)

    def _engine(self, _precision: str) -> "Engine":
        return GraphEngine(self._run, self.tokens.pad_id)


class GraphEngine:
    """Token ids to vectors through an exported graph."""

    padded = True

    def __init__(self, run: Run, pad_id: int) -> None:
        self.run, self.pad_id = run, pad_id

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of texts, normalised where the graph does that."""
        input_ids, mask = pad(rows, pad_id=self.pad_id)
        vectors = torch.from_numpy(self.run(input_ids.numpy(), mask.numpy()))
        if not bool(vectors.isfinite().all()):
            raise NonFiniteError(f"a vector is not finite: it went wrong in the exported graph. {BROKEN}")
        return vectors


def _read(folder: Path) -> dict[str, Any]:
    check_files(folder)
    stored: dict[str, Any] = read_json(folder / EXPORT_FILE, kind=dict)
    if stored["format"] not in GRAPHS:
        raise ValueError(f"format {stored['format']!r}")
    return stored


def _check(stored: dict[str, Any], settings: EncoderSettings) -> None:
    for name, value in settings.given().items():
        if name == "max_tokens" and value > stored[name]:
            raise SettingError(f"max_tokens {value}: the model was exported for {stored[name]}. Take that or fewer.")
        if name not in ("prompt", "max_tokens") and value != stored[name]:
            raise SettingError(f"{name} {value!r}: the exported graph has {stored[name]!r}. Export the model again.")


def _tokens(folder: Path, stored: dict[str, Any], settings: EncoderSettings) -> Tokens:
    prompt = settings.given().get("prompt", stored["prompt"])
    if prompt in stored["prompts"]:
        prompt = stored["prompts"][prompt] + SLOT
    tokenizer = tokenizer_file(folder) or load_tokenizer(folder)
    check_tokenizer(tokenizer, folder, vocab_size=None)
    return Tokens(
        tokenizer,
        prompt=None if prompt is None else Prompt.parse(prompt),
        max_tokens=settings.max_tokens or stored["max_tokens"],
        lowercase=stored["lowercase"],
    )


def _open(graph: Path, graph_format: str, *, threads: int) -> Run:
    require(RUNTIMES[graph_format], graph_format, needed_by=graph, raised=ModelError)
    try:
        return OPEN[graph_format](graph, num_threads=threads)
    except Exception as error:  # the runtimes raise nothing narrower
        raise ModelError(f"{graph}: cannot be opened ({error}). Export the model again.") from error
