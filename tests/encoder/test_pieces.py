"""A learned tokenizer against SentencePiece's own, and against T5's conventions."""

import io

import pytest
import sentencepiece
from transformers import AutoTokenizer, BertTokenizer

from tercet import InputError, ModelError
from tercet.encoder.model.pieces import keep_pieces, keep_words, learn_tokenizer

TEXTS = [
    "A man is playing a guitar on the stage.",
    "Somebody plays an instrument in front of a crowd.",
    "The stock market fell sharply on Monday, and stocks dropped again.",
    "Two dogs run through deep snow, and a third one is waiting for them near the old wooden fence.",
    "Ünïcödé wörds, ﬁne ligatures and numbers 12345",
] * 4
NUM_PIECES = 120


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(TEXTS, num_pieces=NUM_PIECES, num_sentinels=5, character_coverage=1.0)


def test_its_pieces_and_cuts_are_those_of_sentencepiece(tokenizer):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.replace("ﬁ", "fi") for text in TEXTS),
        model_writer=model,
        vocab_size=NUM_PIECES,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        pad_piece="<pad>",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert [reference.id_to_piece(i) for i in range(len(reference))] == tokenizer.convert_ids_to_tokens(
        range(len(reference))
    )
    for text in [*TEXTS[:5], "Dogs  play on   the fence", "an unseen wordlike thing: 999"]:
        assert tokenizer.encode(text) == [*reference.encode(text), 1]


def test_its_special_tokens_are_where_t5_has_them(tokenizer):
    """The published T5 has 32,100 tokens: <pad> is 0, </s> 1, <unk> 2, <extra_id_0> 32099, <extra_id_99> 32000."""
    assert tokenizer.convert_tokens_to_ids(["<pad>", "</s>", "<unk>"]) == [0, 1, 2]
    last = len(tokenizer) - 1
    assert [last - tokenizer.convert_tokens_to_ids(f"<extra_id_{i}>") for i in range(5)] == [0, 1, 2, 3, 4]
    assert tokenizer.encode("a")[-1] == 1
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)


def test_saved_and_read_by_transformers_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in [*TEXTS[:5], "a <extra_id_3> gap"]:
        assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(TEXTS[0]), skip_special_tokens=True) == TEXTS[0]


def test_capital_letters_are_made_small_where_that_is_wanted():
    tokenizer = learn_tokenizer(TEXTS, num_pieces=NUM_PIECES, lowercase=True)
    assert tokenizer.encode("A Man") == tokenizer.encode("a man")
    assert not any(piece != piece.lower() for piece in tokenizer.get_vocab() if not piece.startswith("<"))


def test_texts_that_teach_nothing_are_refused():
    with pytest.raises(InputError, match="no pieces can be learned"):
        learn_tokenizer(["", " "], num_pieces=80)


@pytest.fixture
def bert_tokenizer():
    words = [*"abcdefghijklmnopqrstuvwxyz.", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    words += ["man", "playing", "play", "##ing", "guitar", "stage", "snow"]
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True)


def test_the_most_frequent_stay_and_the_others_are_spelled(bert_tokenizer):
    texts = ["A man playing.", "Man on a stage.", "Playing the guitar."]
    kept = keep_words(bert_tokenizer, texts, num_pieces=3 + 53 + 4, num_sentinels=2)
    assert kept.convert_tokens_to_ids(["<pad>", "</s>", "<unk>"]) == [0, 1, 2]
    assert kept.tokenize("Man playing guitar.") == ["man", "playing", "guitar", "."]
    assert kept.tokenize("snow") == ["s", "##n", "##o", "##w"]
    assert kept.encode("Man")[1:] == [1]
    assert len(kept) == 3 + 53 + 4 + 2


def test_all_of_them_cut_texts_as_the_bert_does(bert_tokenizer):
    kept = keep_words(bert_tokenizer, TEXTS, num_pieces=10_000)
    for text in ["A man is playing.", "snowplaying Stage"]:
        assert kept.tokenize(text) == bert_tokenizer.tokenize(text)


def test_what_has_no_words_is_refused(tokenizer):
    with pytest.raises(ModelError, match=r"words_of.*Name a BERT"):
        keep_words(tokenizer, TEXTS, num_pieces=80)


def test_a_t5_keeps_the_pieces_that_texts_have_most_often(tokenizer):
    tokenizer.backend_tokenizer.enable_truncation(2)  # as some saved tokenizers have it
    smaller, kept = keep_pieces(tokenizer, TEXTS[:1], num_pieces=80)
    tokenizer.backend_tokenizer.no_truncation()
    assert len(smaller) == len(kept) == 80
    assert smaller.convert_ids_to_tokens(range(80)) == tokenizer.convert_ids_to_tokens(kept)
    assert [kept[i] for i in smaller.encode(TEXTS[0])] == tokenizer.encode(TEXTS[0])
    assert smaller.encode("a")[-1] == smaller.eos_token_id == 1
    assert smaller.convert_tokens_to_ids("<extra_id_0>") == 79
    for text in TEXTS[:5]:  # what lost its piece is spelled by others
        assert smaller.decode(smaller.encode(text), skip_special_tokens=True) == tokenizer.decode(
            tokenizer.encode(text), skip_special_tokens=True
        )


def test_a_t5_that_keeps_all_pieces_cuts_texts_as_before(tokenizer):
    same, kept = keep_pieces(tokenizer, TEXTS, num_pieces=1000)
    assert kept == [*range(len(tokenizer))]
    assert [same.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_what_always_stays_may_be_more_than_what_is_wanted(tokenizer):
    smaller, kept = keep_pieces(tokenizer, TEXTS, num_pieces=8, needed=["guitar"])
    names = smaller.convert_ids_to_tokens(range(len(kept)))
    assert {*tokenizer.all_special_tokens, "a", "g", "<extra_id_4>"} <= {*names}
    assert smaller.encode("guitar") == [names.index(piece) for piece in tokenizer.tokenize("guitar")] + [1]
    assert all(
        len(name.removeprefix("▁")) == 1 for name in {*names} - {"▁", *tokenizer.tokenize("guitar")} if "<" not in name
    )


def test_pieces_of_a_bert_are_refused(bert_tokenizer):
    with pytest.raises(ModelError, match="has no unigram pieces"):
        keep_pieces(bert_tokenizer, TEXTS, num_pieces=20)
