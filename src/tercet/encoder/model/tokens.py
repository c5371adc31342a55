"""Text to token ids: prompt, special tokens, and truncation that only ever cuts the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tercet.encoder.model.prompts import Prompt
from tercet.encoder.model.trusted import read_json, refuse_code
from tercet.errors import ModelError, SettingError
from tercet.storage.extras import require

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONFIG = "tokenizer_config.json"

_MAX_CHARS_PER_TOKEN, _LEAST_MOST_CHARS = 1000, 100_000
"""Of a text with more letters than this for each token that a model reads, the rest is not tokenised."""


class TokenizerFile:
    """A compiled tokenizer as it stands in its file: what is needed of it to embed, without importing transformers.

    Args:
        folder: Where `tokenizer.json` and `tokenizer_config.json` are.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.folder = folder
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.backend_tokenizer.no_padding()
        self.backend_tokenizer.no_truncation()
        config = read_json(folder / "tokenizer_config.json", kind=dict)
        pad = config["pad_token"]
        self.pad_token_id = self.backend_tokenizer.token_to_id(pad["content"] if isinstance(pad, dict) else pad)
        self.model_max_length: int = config.get("model_max_length", 0)

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of one text."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


class Tokens:
    """Turns texts into token ids.

    The ids of a text are: special tokens, prefix and text, suffix, special tokens. Prefix and text are tokenised as
    one string; the suffix by itself. Where that exceeds `max_tokens`, the end of the text is cut, nothing else.

    Args:
        tokenizer: A transformers tokenizer, or the file of one.
        prompt: The template around a text, or None.
        max_tokens: The most that the model reads, prompt and special tokens included.
        lowercase: Whether texts are lower-cased first.

    Raises:
        SettingError: The prompt leaves no room for text.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase | TokenizerFile",
        *,
        prompt: Prompt | None = None,
        max_tokens: int,
        lowercase: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self.prompt = prompt or Prompt("", "")
        self.max_tokens = max_tokens
        self.lowercase = lowercase
        self._shorter: dict[int, Tokens] = {}
        self._before, self._after = _special_ids(tokenizer)
        self._suffix = self._encode([self.prompt.suffix.lower() if lowercase else self.prompt.suffix])[0]
        self._room = max_tokens - len(self._before) - len(self._suffix) - len(self._after)
        if self._room <= len(self._encode([self.prompt.prefix])[0]):
            raise SettingError(
                f"max_tokens {max_tokens}: the prompt {self.prompt.template!r} and the special tokens leave no room "
                "for text. Raise max_tokens or shorten the prompt."
            )

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer of transformers: read when it is first asked for."""
        if isinstance(self._tokenizer, TokenizerFile):
            self._tokenizer = load_tokenizer(self._tokenizer.folder)
        return self._tokenizer

    @property
    def pad_id(self) -> int:
        """The id that fills up a batch."""
        return int(self._tokenizer.pad_token_id or 0)

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids before prefix and text, and those after: special tokens, and the prompt's suffix."""
        return self._before, self._suffix + self._after

    def describe(self) -> list[Any]:
        """Return everything that decides the ids of a text, prompt and length aside, as JSON."""
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        pieces = backend.to_str() if backend is not None else sorted(self.tokenizer.get_vocab().items())
        return [self.lowercase, self._before, self._after, self.pad_id, pieces]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return what stands for each id in the vocabulary."""
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return list(self.tokenizer.convert_ids_to_tokens(list(ids)))
        return [backend.id_to_token(i) for i in ids]

    def cut_to(self, max_tokens: int | None) -> "Tokens":
        """Return the same with fewer tokens of each text, where so many are fewer; with as many where None."""
        if max_tokens is None or max_tokens >= self.max_tokens:
            return self
        if max_tokens not in self._shorter:
            self._shorter[max_tokens] = self._other(self.prompt, max_tokens)
        return self._shorter[max_tokens]

    def prompted(self, prompt: Prompt) -> "Tokens":
        """Return the same with another prompt."""
        return self._other(prompt, self.max_tokens)

    def _other(self, prompt: Prompt, max_tokens: int) -> "Tokens":
        return Tokens(self._tokenizer, prompt=prompt, max_tokens=max_tokens, lowercase=self.lowercase)

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of each text, and for each text whether it was truncated."""
        most = max(_LEAST_MOST_CHARS, _MAX_CHARS_PER_TOKEN * self.max_tokens)
        whole, texts = texts, [text[:most] for text in texts]  # what no model reads need not be tokenised
        if self.prompt.prefix:
            texts = [self.prompt.prefix + text for text in texts]
        if self.lowercase:
            texts = [text.lower() for text in texts]
        bare = self._encode(texts)
        room, after = self._room, self._suffix + self._after
        cut = [len(ids) > room or len(text) > most for ids, text in zip(bare, whole, strict=True)]
        return [self._before + ids[:room] + after for ids in bare], cut

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return bare_ids(self._tokenizer, texts)


def bare_ids(tokenizer: "PreTrainedTokenizerBase | TokenizerFile", texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, without special tokens and whole."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # ByT5 has no compiled tokenizer: its ids are bytes
        return [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    backend.no_padding()  # a call of the tokenizer itself, by somebody else, may have switched them on
    backend.no_truncation()
    return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def load_tokenizer(source: "str | Path | PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """Return the tokenizer in a folder; an object that already is one is passed through.

    Raises:
        ModelError: The folder holds none that can be read without running foreign code.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    if isinstance(source, PreTrainedTokenizerBase):
        tokenizer = source
    else:
        _check_config(Path(source))
        _require_sentencepiece(Path(source))
        try:
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the tokenizers library raises nothing narrower
            raise ModelError(f"{source}: no tokenizer can be read ({error}). Is the folder complete?") from error
        files = tokenizer.vocab_files_names.values()
        if files and not any((Path(source) / file).exists() for file in files):  # it would be made without words
            raise ModelError(f"{source}: has no vocabulary ({', '.join(files)}). Is the folder complete?")
    return tokenizer


def tokenizer_file(folder: Path) -> TokenizerFile | None:
    """Return the tokenizer in a folder as its file has it; None where the file is not there or not complete.

    Only for folders whose file is what transformers would make of it: it builds some tokenizers anew from their words.
    """
    _check_config(folder)
    try:
        return TokenizerFile(folder)
    except Exception:  # the tokenizers library raises nothing narrower; transformers will say what is wrong
        return None


def _check_config(folder: Path) -> None:
    """Make sure that a tokenizer's configuration names no foreign code, and a length that is a number."""
    refuse_code(folder, _CONFIG)
    file = folder / _CONFIG
    length = read_json(file, kind=dict).get("model_max_length") if file.exists() else None
    if length is not None and type(length) not in (int, float):
        raise ModelError(f"{file}: model_max_length is {str(length)[:40]!r}. It has to be a number. Fetch it again.")


def _require_sentencepiece(folder: Path) -> None:
    """Say what to install where a tokenizer is only there as a SentencePiece model, as of T5 v1.1 and mT5."""
    models = list(folder.glob("*.model"))
    if models and not (folder / "tokenizer.json").exists():
        for module in ("sentencepiece", "google.protobuf"):
            require(module, "sentencepiece", needed_by=models[0], raised=ModelError)


def _special_ids(tokenizer: "PreTrainedTokenizerBase | TokenizerFile") -> tuple[list[int], list[int]]:
    """Find which ids a tokenizer puts before and after a text."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    full = tokenizer.encode("a", add_special_tokens=True)
    start = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return full[:start], full[start + len(bare) :]
