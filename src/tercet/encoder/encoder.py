"""The Encoder: text goes in, vectors come out."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
import torch

from tercet.encoder.folder.assemble import assemble_fresh, assemble_stored
from tercet.encoder.folder.backbone import NO_CHANGE, sha256_of_weights
from tercet.encoder.folder.layout import EXPORT_FILE, write_folder
from tercet.encoder.folder.names import EMBEDDED, FRESH, find_folder
from tercet.encoder.folder.weights import StoredTower
from tercet.encoder.forward.batches import batches_by_length, batches_for_threads, pad
from tercet.encoder.forward.engine import BROKEN, Engine, choose_engine, evaluating, resolve_precision
from tercet.encoder.forward.memory import tokens_at_once
from tercet.encoder.forward.streams import num_threads, side_by_side
from tercet.encoder.forward.vectors import read_shape
from tercet.encoder.model.arrays import Vectors, unit
from tercet.encoder.model.prompts import Prompt
from tercet.encoder.model.readouts import READOUTS, When
from tercet.encoder.model.settings import (
    KEEP,
    Embedded,
    EmbedOptions,
    EmbedStats,
    EncoderSettings,
    Keep,
)
from tercet.encoder.model.tokens import Tokens, load_tokenizer
from tercet.encoder.model.tower import Head, Tower, first_bad_layer, unit_length
from tercet.errors import NonFiniteError, OutputError, SettingError, TextError
from tercet.storage.choices import OnTruncate
from tercet.storage.progress import Advance, progress_bar
from tercet.storage.settings import checked
from tercet.storage.texts import check_texts, list_of_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

_CHUNK_TEXTS = 8192
"""How many texts of a list are tokenised at a time, and sorted by length among each other."""

_BATCH_TOKENS = 2048
"""How many tokens are computed at once on a CPU."""

_T = TypeVar("_T")


class Encoder:
    """A sentence encoder. `Encoder.load` makes one.

    Attributes:
        tokens: Texts to token ids.
        dtype: The number format that `save` writes; computing is in fp32 unless `embed` is told otherwise.
        prompts: Prefixes that the model has names for; `load` takes such a name as its `prompt`.
        name: What it was loaded by.
        trained_dims: How many of the first numbers of a vector were trained to be good vectors by themselves.
        threads: How many threads compute on a CPU; None for as many as TERCET_THREADS says, or torch has.
    """

    def __init__(
        self,
        tower: Tower | StoredTower,
        tokens: Tokens,
        *,
        dtype: torch.dtype = torch.float32,
        prompts: dict[str, str] | None = None,
        name: str | None = None,
        trained_dims: Sequence[int] = (),
        threads: int | None = None,
    ) -> None:
        self.name, self.threads = name, threads
        self.trained_dims = tuple(trained_dims)
        self._tower = tower
        self._engines: dict[str, tuple[object, Engine]] = {}
        self.tokens = tokens
        self.dtype = dtype
        self.prompts = prompts or {}

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
        device: str | None = None,
        revision: str | None = None,
        convert_pickle: bool = False,
        seed: int = 0,
        readout: str | None = None,
        mlp: When | None = None,
        projection: int | Keep | None = KEEP,
        normalize: bool | None = None,
        prompt: str | Keep | None = KEEP,
        max_tokens: int | None = None,
        threads: int | None = None,
    ) -> "Encoder":
        """Load an encoder.

        Args:
            name: An embedded name (`mini`), a model folder, a hub id, or `random:SHAPE` (`random:t5-small`) for a
                fresh model.
            tokenizer: The tokenizer of a fresh model, or another one than the model's own: a folder, a hub id or an
                object of transformers.
            device: Where it runs; a GPU if there is one, else the CPU.
            revision: The branch, tag or commit on the hub.
            convert_pickle: Whether a pickled checkpoint may be converted, weights only.
            seed: What fresh weights are drawn with.
            readout: How hidden states become a vector (`enc-mean`, `encdec-first`, `cls` ...). A plain transformers
                checkpoint needs one.
            mlp: Whether the MLP of `cls-mlp` is used `always` or in `training` only.
            projection: The width of a linear layer after the readout; None for none.
            normalize: Whether vectors have length 1.
            prompt: A template with the slot [X], or the name of one (`gense`); None for none.
            max_tokens: The most that the model reads: text, prompt and special tokens.
            threads: How many threads compute on a CPU; as TERCET_THREADS says where None, or as torch has.

        Raises:
            ModelError: The model cannot be found, read or trusted.
            SettingError: The settings do not fit it.
        """
        chosen = {"readout": readout, "mlp": mlp, "normalize": normalize, "max_tokens": max_tokens}
        given: dict[str, object] = {key: value for key, value in chosen.items() if value is not None}
        given |= {key: value for key, value in (("projection", projection), ("prompt", prompt)) if value is not KEEP}
        settings = checked(EncoderSettings, given)
        name, _ = str(name), num_threads(threads)
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if tokenizer is not None and isinstance(tokenizer, str | Path):
            tokenizer = load_tokenizer(find_folder(str(tokenizer), weights=False))
        if name.startswith(FRESH):
            tower, tokens = assemble_fresh(name.removeprefix(FRESH), tokenizer, settings, seed)
            return cls(tower.to(where), tokens, name=name, threads=threads)
        folder = find_folder(name, revision=revision, pickles=convert_pickle)
        if (folder / EXPORT_FILE).exists():
            return _open_exported(folder, tokenizer, device, settings, threads)
        stored_tower, tokens, stored = assemble_stored(
            folder, tokenizer, settings, convert_pickle, seed, device=where, embedded=name in EMBEDDED
        )
        if isinstance(stored_tower, Tower):
            stored_tower.to(where)
        return cls(
            stored_tower,
            tokens,
            dtype=stored.dtype,
            prompts=stored.prompts,
            name=name,
            trained_dims=stored.trained_dims,
            threads=threads,
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_engines": {}}  # prepared weights cannot be pickled, and are quickly made again

    def __sklearn_clone__(self) -> "Encoder":
        return self  # an estimator's clone shares the weights: fitting it does not change them

    def __repr__(self) -> str:
        millions, what = self.num_parameters / 1e6, self.head.readout
        return f"Encoder({self.name!r}, {millions:.1f}M parameters, {self.dim} numbers a vector, readout {what})"

    @property
    def tower(self) -> Tower:
        """The torch module, with the transformer of transformers in it: read when it is first asked for."""
        if isinstance(self._tower, StoredTower):
            self._tower = self._tower.load()
        return self._tower

    @property
    def head(self) -> Head:
        """What makes a vector of the transformer's hidden states."""
        return self._tower.head

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self.head.width

    @property
    def num_parameters(self) -> int:
        """How many weights the encoder has."""
        return sum(weight.numel() for weight in [*self._tower.weights().values(), *self.head.parameters()])

    @property
    def settings(self) -> EncoderSettings:
        """The settings in force."""
        dense = self.head.dense_layers
        return EncoderSettings(
            readout=self.head.readout,
            mlp=self.head.mlp_when,
            projection=dense[-1].linear.out_features if dense else None,
            normalize=self.head.normalize,
            prompt=self.tokens.prompt.setting,
            max_tokens=self.tokens.max_tokens,
        )

    @property
    def device(self) -> torch.device:
        """Where the encoder runs."""
        return self._tower.device

    def to(self, device: "str | torch.device") -> "Encoder":
        """Move the encoder to a device, such as `cuda` or `cpu`, and return it."""
        where = torch.device(device)
        if where != self.device:
            self.tower.to(where)
            self._engines.clear()
        return self

    def save(self, folder: str | Path) -> None:
        """Write the encoder as a sentence-transformers model folder, in place of what was there.

        Raises:
            OutputError: The folder cannot be written; nothing is left half-written.
        """
        target = Path(folder)
        if target.is_dir() and any(target.iterdir()) and not (target / "config.json").exists():
            raise OutputError(f"{target}: holds other files than a model, which would be lost. Name a new folder.")
        write_folder(
            target,
            self.tower,
            self.tokens,
            dtype=self.dtype,
            prompts=self.prompts,
            made_from=self.name,
            trained_dims=self.trained_dims,
        )

    def fingerprint(self) -> str:
        """Return a hash of everything that decides a vector: weights, tokenizer and settings."""
        config = self._tower.config
        shape, layers = read_shape(config), READOUTS[self.head.readout].layers
        described = [
            self.settings.model_dump(),
            self.tokens.describe(),
            {key: value for key, value in config.items() if key not in NO_CHANGE} if shape is None else repr(shape),
            [layer.activation for layer in self.head.dense_layers],
            *([layers] if layers != (-1,) else []),
        ]
        return sha256_of_weights(self._tower.weights() | self.head.state_dict(), described=described)

    def _fingerprint_of_weights(self) -> str:
        """Return a hash of what decides the numbers between products."""
        described = [repr(read_shape(self._tower.config)), self.head.readout, self.tokens.describe()]
        return sha256_of_weights(self._tower.weights() | self.head.state_dict(), described=described)

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        precision: str = "exact",
        dims: int | None = None,
        normalize: bool | None = None,
        max_batch_tokens: int | None = None,
        on_truncate: OnTruncate = "count",
        progress: bool | Advance = False,
    ) -> Vectors:
        """Return the vectors of texts, in their order: float32 [n, d]; of one string, its vector [d].

        Args:
            texts: Any number of texts: a list, an array, a column of a table, a generator. An empty text has a vector
                too. Equal texts are embedded once.
            precision: `exact` (fp32), `fast` (bf16, fp32 between layers), `int8` (on a CPU), `auto` or `fp16`.
            dims: Keep only the first numbers of each vector, and scale it to length 1 again where it had that.
            normalize: Whether vectors have length 1; as the model has it where None.
            max_batch_tokens: The most tokens that are computed at once; where None, 2,048 on a CPU, and what its memory
                holds on a GPU.
            on_truncate: `count` logs how many texts were too long; `error` refuses them.
            progress: Whether a bar is shown; or the function that moves on a bar that is there already.

        Raises:
            InputError: `texts` is no list of texts, such as a whole table.
            TextError: Something in it is no text (a TypeError too), or is too long and `on_truncate` is `error`.
            NonFiniteError: A vector is not finite; the message names the layer.
        """
        vectors, _ = self.embed_with_stats(
            [texts] if isinstance(texts, str) else texts,
            precision=precision,
            dims=dims,
            normalize=normalize,
            max_batch_tokens=max_batch_tokens,
            on_truncate=on_truncate,
            progress=progress,
        )
        return vectors[0] if isinstance(texts, str) else vectors

    def embed_with_stats(self, texts: Iterable[str], **options: Unpack[EmbedOptions]) -> tuple[Vectors, EmbedStats]:
        """Do as `embed` of several texts, and also return how many texts, tokens and truncated texts there were."""
        texts = list_of_texts(texts)
        check_texts(texts)
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        different = list(places)
        chunks = (different[start : start + _CHUNK_TEXTS] for start in range(0, len(different), _CHUNK_TEXTS))
        embedded = Embedded.empty(len(different), self._check_dims(options.get("dims")))
        show = options.get("progress", False)
        with progress_bar("embedding", total=len(texts), unit="texts", enabled=show is True) as bar:
            advance = options["progress"] = show if callable(show) else bar
            num = 0
            try:
                for part in self.embed_each(chunks, **options):
                    embedded[num : num + len(part.vectors)] = part
                    num += len(part.vectors)
            except TextError as error:
                raise TextError(texts.index(different[num + error.position]), error.problem) from error
            if len(different) < len(texts):
                embedded = embedded[np.array([places[text] for text in texts])]
                advance(len(texts) - len(different))
        stats = embedded.stats
        if stats.num_truncated:
            cut = (stats.num_truncated, stats.num_texts, self.tokens.max_tokens)
            logger.warning("%d of %d texts were cut to %d tokens", *cut)
        return embedded.vectors, stats

    def embed_each(
        self,
        chunks: Iterable[Sequence[str]],
        *,
        precision: str = "exact",
        dims: int | None = None,
        normalize: bool | None = None,
        max_batch_tokens: int | None = None,
        on_truncate: OnTruncate = "count",
        progress: bool | Advance = False,
    ) -> Iterator[Embedded]:
        """Embed chunks of texts as they come, and yield each one's vectors and what was read of it.

        The next chunk is read and tokenised, in a thread of its own, while one is computed; no more than that is in
        memory. A TextError counts positions within its chunk. The options are those of `embed`.
        """
        max_batch_tokens = self.batch_tokens(max_batch_tokens)
        if max_batch_tokens < 1:
            raise SettingError(f"max_batch_tokens {max_batch_tokens}: is less than one. Give a positive number.")
        dims = self._check_dims(dims)
        precision = self.resolve_precision(precision)
        engine = self._engine(precision)
        scale = self.head.normalize if normalize is None else normalize
        num_truncated = 0
        for rows, truncated in _one_ahead(map(self._tokenize, chunks)):
            num_truncated += sum(truncated)
            if on_truncate == "error" and num_truncated:
                raise self._too_long(truncated)
            vectors = np.empty((len(rows), dims), np.float32)
            lengths = [len(row) for row in rows]
            for batch, output in self._compute(engine, rows, max_batch_tokens):
                output = self._finite(output, [rows[i] for i in batch], precision)[:, :dims]
                vectors[batch] = (unit_length(output) if scale else output).cpu().numpy()
                if callable(progress):
                    progress(len(batch), note=f"{num_truncated:,} truncated" if num_truncated else None)
            yield Embedded(vectors, np.array(lengths, np.int32), np.array(truncated))

    def batch_tokens(self, given: int | None) -> int:
        """Return how many tokens are computed at once: as many as given, or as fit."""
        if given is not None or self.device.type != "cuda":
            return _BATCH_TOKENS if given is None else given
        return tokens_at_once(self._tower.config, self.num_parameters, self.device, usual=_BATCH_TOKENS)

    def embed_ids(self, rows: list[list[int]], *, precision: str = "exact") -> Vectors:
        """Return the vectors of token ids, as `tokens` makes them of texts, computed at once: float32 [n, dim].

        Raises:
            SettingError: There is no such precision, or not for this model.
            NonFiniteError: A vector is not finite; the message names the layer.
        """
        precision = self.resolve_precision(precision)
        engine, vectors = self._engine(precision), np.empty((len(rows), self.dim), np.float32)
        most = self.batch_tokens(None) if not engine.padded else max(map(len, rows), default=1) * len(rows)
        for batch, output in self._compute(engine, rows, most):
            output = self._finite(output, [rows[i] for i in batch], precision)
            vectors[batch] = (unit_length(output) if self.head.normalize else output).cpu().numpy()
        return vectors

    def _compute(
        self, engine: Engine, rows: list[list[int]], max_batch_tokens: int
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Yield batches of rows by their positions, and what was computed of each: side by side where not padded."""
        lengths = [len(row) for row in rows]
        if engine.padded:
            for batch in batches_by_length(lengths, max_batch_tokens=max_batch_tokens):
                yield batch, engine([rows[i] for i in batch])
            return
        threads = num_threads(self.threads)
        batches = batches_for_threads(lengths, max_batch_tokens=max_batch_tokens, threads=threads)
        with evaluating(self.head):
            yield from side_by_side(lambda batch: engine([rows[i] for i in batch]), batches, threads=threads)

    def pads(self, precision: str = "exact") -> bool:
        """Return whether texts that are computed at once are filled up to the longest of them."""
        return self._engine(self.resolve_precision(precision)).padded

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        check_texts(texts)
        return self.tokens(texts)

    def _engine(self, precision: str) -> Engine:
        """Return what computes at a precision, prepared anew where weights have changed since the last time."""
        state, engine = self._engines.get(precision, (None, None))
        if engine is None or state != self._tower.state():
            bare = self.tokens.prompted(Prompt("", ""))  # twins with other prompts have the same engine
            engine = choose_engine(
                self._tower, precision, load=lambda: self.tower, tokens=bare, fingerprint=self._fingerprint_of_weights
            )
            self._engines[precision] = self._tower.state(), engine
        return engine

    def _finite(self, output: torch.Tensor, rows: list[list[int]], precision: str) -> torch.Tensor:
        if bool(output.isfinite().all()):
            return output
        input_ids, mask = (tensor.to(self.device) for tensor in pad(rows, pad_id=self.tokens.pad_id))
        layer = first_bad_layer(self.tower, input_ids, mask)
        fix = BROKEN if precision == "exact" else "Try precision 'exact'."
        raise NonFiniteError(f"a vector is not finite: it went wrong in {layer}. {fix}")

    def _too_long(self, truncated: list[bool]) -> TextError:
        fix = "Shorten it, raise max_tokens, or set on_truncate to count."
        return TextError(truncated.index(True), f"is longer than {self.tokens.max_tokens} tokens. {fix}")

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        convert_to_tensor: bool = False,
        convert_to_numpy: bool = True,
        batch_size: int | None = None,
        **others: Any,
    ) -> Any:
        """Do as `embed`, under the name and with the arguments that sentence-transformers has and other tools call.

        One text gives one vector. As there, `prompt_name` names one of `prompts`, `prompt` is a prefix by itself, each
        in place of the model's default prompt, and `normalize_embeddings` can ask for length 1, not forbid it. Batches
        are cut by tokens, so `batch_size` is not needed; `convert_to_numpy` is what happens anyway.

        Raises:
            SettingError: There is no prompt of that name, or another argument was given and is not None.
        """
        del batch_size, convert_to_numpy
        unknown = [name for name, value in others.items() if value is not None]
        if unknown:
            raise SettingError(f"encode has no {unknown[0]!r}. Set it when the encoder is loaded, or call embed.")
        if prompt is None and prompt_name is not None:
            prompt = self._prompt_named(prompt_name)
        vectors = (self if prompt is None else self.prefixed(prompt)).embed(
            sentences, normalize=normalize_embeddings or None, dims=truncate_dim, progress=bool(show_progress_bar)
        )
        return torch.from_numpy(vectors) if convert_to_tensor else vectors

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Do as `encode`, with the prompt that the model has for queries; without one where it has none."""
        return self.encode(sentences, **_role(options, "query"))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Do as `encode`, with the prompt that the model has for documents; without one where it has none."""
        return self.encode(sentences, **_role(options, "document"))

    def _prompt_named(self, name: str) -> str:
        prompts = {"query": "", "document": "", **self.prompts}
        if name not in prompts:
            raise SettingError(f"prompt_name {name!r}: the model has none of that name. Known: {', '.join(prompts)}.")
        return prompts[name]

    def prefixed(self, prefix: str) -> "Encoder":
        """Return the encoder with a prefix in place of its default one; weights and what is prepared are shared."""
        own = self.tokens.prompt
        of_model = self.head.needs_decoder or own.suffix  # a template that sentence-transformers keeps, too
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.tokens = self.tokens.prompted(Prompt((own.prefix if of_model else "") + prefix, own.suffix))
        return twin

    def similarity(self, a: Sequence[str] | Vectors, b: Sequence[str] | Vectors) -> Vectors:
        """Return the cosine of each of `a` with each of `b`: [len(a), len(b)]. Both are texts or vectors."""
        left, right = (unit(np.atleast_2d(x if isinstance(x, np.ndarray) else self.embed(x))) for x in (a, b))
        return np.asarray(left, np.float32) @ np.asarray(right, np.float32).T

    def resolve_precision(self, precision: str) -> str:
        """Return what a precision stands for on this machine: `auto` is `fast` or `exact`.

        Raises:
            SettingError: There is no such precision, or not for this model.
        """
        return resolve_precision(precision, model_type=self._tower.config["model_type"], device=self.device)

    def _check_dims(self, dims: int | None) -> int:
        if dims is not None and not 1 <= dims <= self.dim:
            raise SettingError(f"dims {dims}: this encoder's vectors have {self.dim} numbers. Take 1 to {self.dim}.")
        return dims or self.dim


def _open_exported(
    folder: Path, tokenizer: object, device: str | None, settings: EncoderSettings, threads: int | None
) -> Encoder:
    from tercet.encoder.graph import Exported  # which is an Encoder itself

    if tokenizer is not None or device not in (None, "cpu"):
        raise SettingError(f"{folder}: an exported graph has its own tokenizer and runs on the CPU. Leave them out.")
    return Exported(folder, settings, threads=threads)


def _role(options: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of `encode` with a prompt's name, where they choose no prompt."""
    chosen = options.get("prompt") is not None or options.get("prompt_name") is not None
    return options if chosen else options | {"prompt_name": name}


def _one_ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield what an iterator yields, but let it make the next one in a thread meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
