"""A tokenizer learned from texts: SentencePiece's unigram pieces, with T5's conventions."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tercet.errors import InputError, ModelError
from tercet.storage.extras import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
"""The first three tokens, in this order."""

FIRST = "<s>"
"""The last one, where every text begins with a token of its own."""

_BLANK = "▁"
_AT_A_TIME = 1024


def learn_tokenizer(
    texts: Iterable[str],
    *,
    num_pieces: int,
    num_sentinels: int = 100,
    lowercase: bool = False,
    character_coverage: float = 0.9995,
    first_token: bool = False,
) -> "PreTrainedTokenizerFast":
    """Return a tokenizer: pad 0, end 1, unknown 2, the pieces, and the sentinels, of which `<extra_id_0>` is last.

    Texts are brought into Unicode's form NFKC and runs of blanks into one blank, in learning and in use.

    Args:
        texts: What the pieces are learned from.
        num_pieces: How many there are, the first three included; fewer where the texts do not have so many.
        num_sentinels: How many tokens stand for gaps in span corruption.
        lowercase: Whether capital letters are made small.
        character_coverage: The share of the texts' characters that have a piece; all others are unknown.
        first_token: Whether every text begins with a token of its own, for readouts of the first token.

    Raises:
        InputError: The texts are too few to learn from.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    normalizer = _normalizer(lowercase)
    pieces = _learn_pieces(map(normalizer.normalize_str, texts), num_pieces, character_coverage)
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _with_special_tokens(tokenizer, num_sentinels, first_token=first_token)


def keep_words(
    source: "PreTrainedTokenizerBase", texts: Iterable[str], *, num_pieces: int, num_sentinels: int = 100
) -> "PreTrainedTokenizerFast":
    """Return a tokenizer with a BERT's words, those that texts have most often, and with T5's special tokens.

    A word that is left out is spelled with shorter ones: ASCII characters always stay.

    Args:
        source: The BERT's tokenizer.
        texts: What words are counted in.
        num_pieces: How many there are, padding, end and unknown included; fewer where the source does not have so many.
        num_sentinels: How many tokens stand for gaps in span corruption.

    Raises:
        ModelError: The source has no WordPiece words.
    """
    from tokenizers import Tokenizer, models

    theirs = getattr(source, "backend_tokenizer", None)
    if theirs is None or not isinstance(theirs.model, models.WordPiece):
        raise ModelError("words_of: the model's tokenizer has no WordPiece words. Name a BERT, or learn pieces.")
    prefix = theirs.model.continuing_subword_prefix
    counts = _count(theirs, texts)
    ids, special = theirs.get_vocab(), {*source.all_special_tokens}
    vocabulary = [word for word in sorted(ids, key=ids.__getitem__) if word not in special]
    always = {word for word in vocabulary if len(bare := word.removeprefix(prefix)) == 1 and bare.isascii()}
    ranked = sorted(vocabulary, key=lambda word: (word not in always, -counts[ids[word]]))
    kept = {*ranked[: num_pieces - 3]}
    words = [PAD, END, UNKNOWN, *(word for word in vocabulary if word in kept)]
    model = models.WordPiece(
        {word: i for i, word in enumerate(words)},
        unk_token=UNKNOWN,
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=theirs.model.max_input_chars_per_word,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = theirs.normalizer, theirs.pre_tokenizer
    tokenizer.decoder = theirs.decoder
    return _with_special_tokens(tokenizer, num_sentinels)


def keep_pieces(
    source: "PreTrainedTokenizerBase", texts: Iterable[str], *, num_pieces: int, needed: Sequence[str] = ()
) -> "tuple[PreTrainedTokenizerFast, list[int]]":
    """Return a tokenizer with a T5's pieces, those that texts have most often, and their ids in the source.

    A piece that is left out is spelled with shorter ones: single characters always stay, and so do special tokens.

    Args:
        source: The T5's tokenizer.
        texts: What pieces are counted in.
        num_pieces: How many there are, special tokens included; fewer where the source does not have so many, and more
            where so many always stay.
        needed: Texts whose pieces all stay.

    Raises:
        ModelError: The source has no unigram pieces.
    """
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    theirs = getattr(source, "backend_tokenizer", None)
    if theirs is None or not isinstance(theirs.model, models.Unigram):
        raise ModelError("num_pieces: the model's tokenizer has no unigram pieces. Take a T5's, or leave it out.")
    whole = Tokenizer.from_str(theirs.to_str())
    whole.no_truncation()
    whole.no_padding()
    counts, always = _count(whole, texts), {*_count(whole, needed)}
    content = json.loads(whole.to_str())
    pieces, added = content["model"]["vocab"], {token["content"]: token["id"] for token in content["added_tokens"]}
    apart = {name: number for name, number in added.items() if number >= len(pieces)}  # they come after the pieces

    always |= {i for i, (piece, _) in enumerate(pieces) if piece in added or len(piece.removeprefix(_BLANK)) <= 1}
    ranked = sorted(range(len(pieces)), key=lambda number: (number not in always, -counts[number]))
    kept = sorted(ranked[: max(num_pieces - len(apart), len(always))])
    names = [*(pieces[i][0] for i in kept), *sorted(apart, key=apart.__getitem__)]
    places = {name: number for number, name in enumerate(names)}
    content["model"] |= {"vocab": [pieces[i] for i in kept], "unk_id": kept.index(content["model"]["unk_id"])}
    content["added_tokens"] = [token | {"id": places[token["content"]]} for token in content["added_tokens"]]
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [places[name] for name in token["tokens"]]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        pad_token=source.pad_token,
        eos_token=source.eos_token,
        unk_token=source.unk_token,
    )
    return tokenizer, [*kept, *sorted(apart.values())]


def _count(tokenizer: "Tokenizer", texts: Iterable[str]) -> Counter[int]:
    """Return how often texts have each token."""
    counts, remaining = Counter[int](), iter(texts)
    for some in iter(lambda: [*islice(remaining, _AT_A_TIME)], []):
        for encoding in tokenizer.encode_batch_fast(some, add_special_tokens=False):
            counts.update(encoding.ids)
    return counts


def _with_special_tokens(
    tokenizer: "Tokenizer", num_sentinels: int, *, first_token: bool = False
) -> "PreTrainedTokenizerFast":
    """Return a tokenizer whose texts end with the end, with sentinels."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    sentinels = [f"<extra_id_{i}>" for i in range(num_sentinels)]
    first = [FIRST] if first_token else []
    tokenizer.add_special_tokens([PAD, END, UNKNOWN, *reversed(sentinels), *first])
    one = " ".join([*first, "$A", END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=one,
        pair=f"{one} $B {END}",
        special_tokens=[(END, 1), *((token, tokenizer.token_to_id(token)) for token in first)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        extra_special_tokens=[*sentinels, *first],
    )


def _normalizer(lowercase: bool) -> "normalizers.Normalizer":
    from tokenizers import Regex, normalizers

    small = [normalizers.Lowercase()] if lowercase else []
    blanks = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([normalizers.NFKC(), *small, *blanks])


def _learn_pieces(texts: Iterable[str], num_pieces: int, character_coverage: float) -> list[tuple[str, float]]:
    require("sentencepiece", "sentencepiece", raised=ModelError)
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(text for text in texts if text),
            model_writer=model,
            model_type="unigram",
            vocab_size=num_pieces,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            pad_piece=PAD,
            eos_piece=END,
            unk_piece=UNKNOWN,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise InputError(f"rows: no pieces can be learned from these texts ({error}). Give more texts.") from error
    processor = SentencePieceProcessor(model_proto=model.getvalue())
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]
