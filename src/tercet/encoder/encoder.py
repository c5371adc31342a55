"""The Encoder: text goes in, vectors come out."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tercet.encoder.backbone import fresh_backbone, load_backbone, load_pooler, model_type_of
from tercet.encoder.batches import batches_by_length, pad
from tercet.encoder.folder import Stored, read_folder, write_folder
from tercet.encoder.names import FRESH, find_folder
from tercet.encoder.shapes import shape_config
from tercet.encoder.tokens import Tokens, load_tokenizer
from tercet.encoder.tower import READOUTS, T5_FAMILY, Dense, Tower, When, check_readout, first_bad_layer, unit_length
from tercet.errors import InputError, NonFiniteError, SettingError, TextError
from tercet.files import sha256_of_json
from tercet.progress import Advance, progress_bar
from tercet.prompts import SLOT, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

Vectors = NDArray[np.float32]
OnTruncate = Literal["count", "error"]

_PRECISIONS = {"exact": None, "fast": torch.bfloat16, "fp16": torch.float16}
_MAX_TOKENS = 512
"""The most that is read of a text where neither the model nor its tokenizer says."""

_UNLIMITED = 1_000_000
"""A tokenizer that names this or more names no limit."""


class EncoderSettings(TypedDict, total=False):
    """What can be chosen about an encoder; what is not given stays as the model has it."""

    readout: str
    """How hidden states become a vector: a name in READOUTS."""

    mlp: When
    """Whether the MLP of `cls-mlp` is used always or in training only."""

    projection: int | None
    """The width of a linear layer without bias behind the readout; None for none."""

    normalize: bool
    """Whether vectors have length 1."""

    prompt: str | None
    """A template with the slot [X], or the name of one (`gense`); None for none."""

    max_tokens: int
    """The most that the model reads: text, prompt and special tokens."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


# what each setting may be, as a check and in words
_SETTINGS: dict[str, tuple[Callable[[object], bool], str]] = {
    "readout": (lambda value: isinstance(value, str), f"one of: {', '.join(READOUTS)}"),
    "mlp": (lambda value: value in get_args(When), f"one of: {', '.join(get_args(When))}"),
    "projection": (lambda value: value is None or _is_count(value), "a width of at least 1, or null for none"),
    "normalize": (lambda value: isinstance(value, bool), "true or false"),
    "prompt": (lambda value: value is None or isinstance(value, str), "a template with the slot [X], or null for none"),
    "max_tokens": (_is_count, "a number of at least 1"),
}


class EmbedOptions(TypedDict, total=False):
    """What can be chosen for one call of `Encoder.embed`."""

    precision: str
    """`exact` (fp32, the default), `fast` (bf16, fp32 between layers), `auto` (`fast` where the machine has bf16), or
    `fp16` (never for T5, which overflows in it)."""

    dims: int | None
    """Keep only the first numbers of each vector, and scale it to length 1 again where it had that."""

    normalize: bool | None
    """Whether vectors have length 1; as the model has it where None."""

    max_batch_tokens: int
    """The most tokens, padding included, that are computed at once (4,096)."""

    on_truncate: OnTruncate
    """`count` logs how many texts were too long (the default); `error` refuses them."""

    progress: bool | Advance
    """Whether a bar is shown; or the function that moves on a bar that is there already."""


@dataclass(frozen=True)
class EmbedStats:
    """What happened while texts were embedded."""

    num_texts: int = 0
    num_tokens: int = 0
    num_truncated: int = 0

    def __add__(self, other: "EmbedStats") -> "EmbedStats":
        return EmbedStats(
            self.num_texts + other.num_texts,
            self.num_tokens + other.num_tokens,
            self.num_truncated + other.num_truncated,
        )


class Encoder:
    """A sentence encoder. `Encoder.load` makes one.

    Attributes:
        tower: The torch module: token ids to vectors.
        tokens: Texts to token ids.
        dtype: The number format that `save` writes; computing is in fp32 unless `embed` is told otherwise.
    """

    def __init__(self, tower: Tower, tokens: Tokens, *, dtype: torch.dtype = torch.float32) -> None:
        self.tower = tower
        self.tokens = tokens
        self.dtype = dtype

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
        **settings: Unpack[EncoderSettings],
    ) -> "Encoder":
        """Load an encoder.

        Args:
            name: An embedded name (`minilm`), a model folder, a hub id, or `random:SHAPE` (`random:t5-small`) for a
                fresh model.
            tokenizer: The tokenizer of a fresh model, or another one than the model's own: a folder, a hub id or an
                object of transformers.
            device: Where it runs; a GPU if there is one, else the CPU.
            revision: The branch, tag or commit on the hub.
            convert_pickle: Whether a pickled checkpoint may be converted, weights only.
            seed: What fresh weights are drawn with.
            **settings: See `EncoderSettings`; a plain transformers checkpoint needs a `readout`.

        Raises:
            ModelError: The model cannot be found, read or trusted.
            SettingError: The settings do not fit it.
        """
        _check_settings(settings)
        name = str(name)
        if tokenizer is not None and isinstance(tokenizer, str | Path):
            tokenizer = load_tokenizer(find_folder(str(tokenizer), weights=False))
        if name.startswith(FRESH):
            encoder = cls._fresh(name.removeprefix(FRESH), tokenizer, settings, seed)
        else:
            folder = find_folder(name, revision=revision, pickles=convert_pickle)
            encoder = cls._stored(folder, tokenizer, settings, convert_pickle, seed)
        encoder.tower.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return encoder

    @classmethod
    def _fresh(
        cls, shape: str, tokenizer: "PreTrainedTokenizerBase | None", settings: EncoderSettings, seed: int
    ) -> "Encoder":
        if tokenizer is None:
            raise SettingError(f"{FRESH}{shape}: a fresh model needs a tokenizer. Give tokenizer=FOLDER.")
        readout = settings.get("readout") or ("enc-mean" if "t5" in shape else "mean")
        readout = check_readout(readout, shape_config(shape).model_type)
        decoder = READOUTS[readout].pooling == "decoder"
        backbone = fresh_backbone(shape, decoder=decoder, vocab_size=len(tokenizer), seed=seed)
        return cls._build(backbone, tokenizer, Stored(Path(), readout=readout), settings, seed)

    @classmethod
    def _stored(
        cls,
        folder: Path,
        tokenizer: "PreTrainedTokenizerBase | None",
        settings: EncoderSettings,
        convert_pickle: bool,
        seed: int,
    ) -> "Encoder":
        stored = read_folder(folder, convert_pickle=convert_pickle)
        name = settings.get("readout", stored.readout)
        if name is None:
            names = ", ".join(READOUTS)
            raise SettingError(f"{folder}: does not say how vectors are read out. Set readout to one of: {names}.")
        readout = READOUTS[check_readout(name, model_type_of(stored.transformer))]
        decoder = readout.pooling == "decoder"
        backbone, dtype = load_backbone(stored.transformer, decoder=decoder, convert_pickle=convert_pickle)
        if readout.has_mlp and stored.mlp is None:
            stored.mlp = load_pooler(stored.transformer)
        encoder = cls._build(backbone, tokenizer or load_tokenizer(stored.transformer), stored, settings, seed)
        encoder.dtype = dtype
        return encoder

    @classmethod
    def _build(
        cls,
        backbone: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        stored: Stored,
        settings: EncoderSettings,
        seed: int,
    ) -> "Encoder":
        """Join what is stored, what is asked for, and fresh layers where something is asked for that is not stored."""
        width = int(backbone.config.hidden_size)
        readout = check_readout(settings.get("readout", stored.readout or ""), backbone.config.model_type)
        mlp_when = settings.get("mlp", stored.mlp_when)
        dense = stored.dense
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            mlp = stored.mlp or Dense(width, width, bias=True, activation="tanh") if READOUTS[readout].has_mlp else None
            if "projection" in settings:
                dense = _with_projection(dense, settings["projection"], width)
        prompt = settings.get("prompt", stored.prompt)
        if prompt in stored.prompts:
            prompt = stored.prompts[prompt] + SLOT
        tower = Tower(
            backbone,
            readout=readout,
            mlp=mlp,
            mlp_when=mlp_when,
            dense=dense,
            normalize=settings.get("normalize", stored.normalize),
        ).eval()
        tokens = Tokens(
            tokenizer,
            prompt=None if prompt is None else Prompt.parse(prompt),
            max_tokens=_max_tokens(settings.get("max_tokens"), stored.max_tokens, tokenizer, backbone),
            lowercase=stored.lowercase,
        )
        return cls(tower, tokens)

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self.tower.width

    @property
    def settings(self) -> EncoderSettings:
        """The settings in force."""
        prompt, dense = self.tokens.prompt, self.tower.dense_layers
        return {
            "readout": self.tower.readout,
            "mlp": self.tower.mlp_when,
            "projection": dense[-1].linear.out_features if dense else None,
            "normalize": self.tower.normalize,
            "prompt": prompt.template if prompt.prefix or prompt.suffix else None,
            "max_tokens": self.tokens.max_tokens,
        }

    @property
    def device(self) -> torch.device:
        """Where the encoder runs."""
        return next(self.tower.parameters()).device

    def save(self, folder: str | Path) -> None:
        """Write the encoder as a sentence-transformers model folder, in place of what was there.

        Raises:
            OutputError: The folder cannot be written; nothing is left half-written.
        """
        write_folder(Path(folder), self.tower, self.tokens, dtype=self.dtype)

    def fingerprint(self) -> str:
        """Return a hash of everything that decides a vector: weights, tokenizer and settings."""
        digest = hashlib.sha256(sha256_of_json([self.settings, self.tokens.describe()]).encode())
        for name, tensor in self.tower.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def embed(self, texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Vectors:
        """Return the vectors of texts, in their order: float32 [n, d].

        Args:
            texts: Any number of texts; an empty text has a vector too.
            **options: See `EmbedOptions`.

        Raises:
            TextError: Something in `texts` is no text, or is too long and `on_truncate` is `error`.
            NonFiniteError: A vector is not finite; the message names the layer.
        """
        return self.embed_with_stats(texts, **options)[0]

    def embed_with_stats(
        self,
        texts: Sequence[str],
        *,
        precision: str = "exact",
        dims: int | None = None,
        normalize: bool | None = None,
        max_batch_tokens: int = 4096,
        on_truncate: OnTruncate = "count",
        progress: bool | Advance = False,
    ) -> tuple[Vectors, EmbedStats]:
        """Do as `embed`, and also return how many texts, tokens and truncated texts there were."""
        _check_texts(texts)
        if max_batch_tokens < 1:
            raise SettingError(f"max_batch_tokens {max_batch_tokens}: is less than one. Give a positive number.")
        dims = self._check_dims(dims)
        compute = self._compute_context(precision)
        ids, truncated = self.tokens(texts)
        stats = EmbedStats(len(texts), sum(map(len, ids)), sum(truncated))
        self._report_truncated(truncated, on_truncate)
        scale = self.tower.normalize if normalize is None else normalize
        vectors = np.empty((len(texts), dims), np.float32)
        self.tower.eval()
        with progress_bar("embedding", total=len(texts), unit="texts", enabled=progress is True) as own_bar:
            advance = progress if callable(progress) else own_bar
            for batch in batches_by_length([len(row) for row in ids], max_batch_tokens=max_batch_tokens):
                input_ids, mask = pad([ids[i] for i in batch], pad_id=self.tokens.pad_id)
                input_ids, mask = input_ids.to(self.device), mask.to(self.device)
                with torch.inference_mode(), compute:
                    output = self.tower.raw(input_ids, mask)
                    if not bool(output.isfinite().all()):
                        layer = first_bad_layer(self.tower, input_ids, mask)
                        raise NonFiniteError(
                            f"a vector is not finite: it went wrong in {layer}. {_finite_fix(precision)}"
                        )
                output = output[:, :dims]
                vectors[batch] = (unit_length(output) if scale else output).cpu().numpy()
                advance(len(batch), note=f"{stats.num_truncated:,} truncated" if stats.num_truncated else None)
        return vectors, stats

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
        **_ignored: Any,
    ) -> Any:
        """Do as `embed`, under the name and with the arguments that other tools call.

        One text gives one vector. As there, `normalize_embeddings` can ask for length 1, not forbid it.
        """
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        vectors = self.embed(texts, normalize=normalize_embeddings or None, progress=bool(show_progress_bar))
        result = torch.from_numpy(vectors) if convert_to_tensor else vectors
        return result[0] if isinstance(sentences, str) else result

    def similarity(self, a: Sequence[str] | Vectors, b: Sequence[str] | Vectors) -> Vectors:
        """Return the cosine of each of `a` with each of `b`: [len(a), len(b)]. Both are texts or vectors."""
        left, right = (_unit(x if isinstance(x, np.ndarray) else self.embed(x)) for x in (a, b))
        return left @ right.T

    _FP16_REASON: ClassVar[str] = (
        "precision 'fp16': T5 was trained in bf16 and overflows to NaN in fp16, in its feed-forward layers first. "
        "Take 'fast' (bf16) or 'exact'."
    )

    def _compute_context(self, precision: str) -> Any:
        if precision == "auto":
            precision = "fast" if _has_bf16(self.device) else "exact"
        if precision not in _PRECISIONS:
            raise SettingError(
                f"precision {precision!r}: there is none of that name. Known: {', '.join(_PRECISIONS)}, auto."
            )
        if precision == "fp16" and self.tower.backbone.config.model_type in T5_FAMILY:
            raise SettingError(self._FP16_REASON)
        dtype = _PRECISIONS[precision]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def _check_dims(self, dims: int | None) -> int:
        if dims is not None and not 1 <= dims <= self.dim:
            raise SettingError(f"dims {dims}: this encoder's vectors have {self.dim} numbers. Take 1 to {self.dim}.")
        return dims or self.dim

    def _report_truncated(self, truncated: list[bool], on_truncate: OnTruncate) -> None:
        num = sum(truncated)
        if num and on_truncate == "error":
            raise TextError(
                truncated.index(True),
                f"is longer than {self.tokens.max_tokens} tokens ({num} such texts). "
                "Shorten it, raise max_tokens, or set on_truncate to count.",
            )
        if num:
            logger.warning("%d of %d texts were cut to %d tokens", num, len(truncated), self.tokens.max_tokens)


def _check_settings(settings: EncoderSettings) -> None:
    for key, value in settings.items():
        if key not in _SETTINGS:
            raise SettingError(f"setting {key!r}: there is none of that name. Known: {', '.join(_SETTINGS)}.")
        fits, wanted = _SETTINGS[key]
        if not fits(value):
            raise SettingError(f"{key} {value!r}: does not fit. Give {wanted}.")


def _with_projection(dense: list[Dense], projection: int | None, width: int) -> list[Dense]:
    stored = bool(dense) and dense[-1].activation == "identity" and dense[-1].linear.bias is None
    if projection is None:
        return dense[:-1] if stored else dense
    if stored and dense[-1].linear.out_features != projection:
        has = dense[-1].linear.out_features
        raise SettingError(f"projection {projection}: the model has a trained one to {has}. Leave the setting out.")
    if stored:
        return dense
    in_width = dense[-1].linear.out_features if dense else width
    return [*dense, Dense(in_width, projection, bias=False, activation="identity")]


def _max_tokens(
    wanted: int | None, stored: int | None, tokenizer: "PreTrainedTokenizerBase", backbone: "PreTrainedModel"
) -> int:
    config = backbone.config
    positions = getattr(config, "max_position_embeddings", None)  # T5 has none: its positions are relative
    if positions and config.model_type in ("roberta", "xlm-roberta"):
        positions -= config.pad_token_id + 1  # its position ids start behind the padding id
    if wanted and positions and wanted > positions:
        raise SettingError(f"max_tokens {wanted}: this model has {positions} positions. Take {positions} or fewer.")
    named = tokenizer.model_max_length or 0
    default = named if 0 < named < _UNLIMITED else _MAX_TOKENS
    return min(wanted or stored or default, positions or _UNLIMITED)


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InputError("one string was given where a list of texts is wanted. Write [text].")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(i, f"is of type {type(text).__name__}. Give strings.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextError(i, f"is not Unicode ({error.reason}). Decode it as UTF-8.") from error


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-6), np.float32)


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _finite_fix(precision: str) -> str:
    if precision in ("exact", "auto"):
        return "The model's weights or numbers are broken: check how it was trained or converted."
    return "Try precision 'exact'."
