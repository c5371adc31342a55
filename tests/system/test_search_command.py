"""`tercet search`: the true nearest texts, and vectors that are kept for exactly as long as they are right."""

import json
import shutil

import numpy as np
import pytest

TEXTS = [
    "A man is playing a guitar on the stage.",
    "Somebody plays an instrument in front of a crowd.",
    "The stock market fell sharply on Monday.",
    "Stocks dropped.",
    "",
    "Two dogs run through deep snow.",
    "A third one is waiting near the old fence.",
    "An old man is waiting for the market.",
    "Snow fell on Monday.",
    "Ünïcödé, 日本語",
]
QUERY = "a guitar in the snow"


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


def kept(folder):
    """Return the files with kept vectors and what would change if one were written again."""
    files = (folder / ".tercet-cache").glob("*.npy")
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def hits_of(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def nearest(texts, query, encoder, k, **options):
    """Return rows, texts and cosines of the nearest texts, by numpy in float64."""
    vectors = encoder.embed([*texts, query], **options).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors[:-1] @ vectors[-1]
    return [(row + 1, texts[row], scores[row]) for row in np.argsort(-scores, kind="stable")[:k]]


def check_hits(done, expected, *, atol=1e-5):
    hits = hits_of(done)
    assert [(hit["row"], hit["text"]) for hit in hits] == [(row, text) for row, text, _ in expected]
    np.testing.assert_allclose([hit["score"] for hit in hits], [score for *_, score in expected], atol=atol)


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_hits_are_the_true_nearest_best_first(tercet, corpus, models, encoder, k):
    done = tercet("search", QUERY, "--in", corpus, "-k", k, "--model", models["t5"], "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, k))


def test_vectors_of_another_length_than_one_are_compared_by_their_direction(tercet, corpus, models, encoder):
    done = tercet("search", QUERY, "--in", corpus, "--model", models["t5"], "--set", "normalize=false", "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))


def test_a_file_in_the_working_folder_needs_no_full_path(tercet, corpus, models, encoder):
    done = tercet("search", QUERY, "--in", f"./{corpus.name}", "-k", "3", "--model", models["t5"], "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, 3))
    assert len(kept(corpus.parent)) == 1


def test_the_table_shows_score_row_and_text(tercet, corpus, models, encoder):
    done = tercet("search", QUERY, "--in", corpus, "-k", "2", "--model", models["t5"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[1:]
    for line, (row, text, score) in zip(lines, nearest(TEXTS, QUERY, encoder, 2), strict=True):
        assert line.split() == [f"{score:.4f}", str(row), *text.split()]


def test_texts_with_square_brackets_are_shown_as_they_are(tercet, tmp_path, models):
    (tmp_path / "in.txt").write_text("[/b] a closing tag [red]\n")
    done = tercet("search", "tag", "--in", "in.txt", "--model", models["t5"])
    assert done.returncode == 0, done.stderr
    assert "[/b] a closing tag [red]" in done.stdout


def test_rows_of_a_table_are_counted_without_its_header(tercet, tmp_path, models, encoder):
    (tmp_path / "in.csv").write_text("id,body\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    done = tercet("search", QUERY, "--in", "in.csv", "--column", "body", "--model", models["t5"], "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))


def test_the_second_search_uses_the_kept_vectors_and_embeds_no_text(tercet, corpus, models, encoder):
    args = ["--in", corpus, "-k", len(TEXTS), "--model", models["t5"], "--json"]
    check_hits(tercet("search", QUERY, *args), nearest(TEXTS, QUERY, encoder, len(TEXTS)))
    before = kept(corpus.parent)
    assert len(before) == 1
    check_hits(tercet("search", "stocks", *args), nearest(TEXTS, "stocks", encoder, len(TEXTS)))
    assert kept(corpus.parent) == before

    # With other vectors in the kept file, the hits are those of the other vectors: nothing else can be behind them.
    file = corpus.parent / ".tercet-cache" / next(iter(before))
    vectors = np.load(file)
    np.testing.assert_allclose(vectors, encoder.embed(TEXTS), atol=1e-5)
    np.save(file, vectors[::-1])
    file.with_name(f"{file.name}.sha256").unlink()
    expected = nearest(TEXTS[::-1], QUERY, encoder, len(TEXTS))
    rows = [hit["row"] for hit in hits_of(tercet("search", QUERY, *args))]
    assert rows == [row for row, *_ in expected]
    assert rows != [row for row, *_ in nearest(TEXTS, QUERY, encoder, len(TEXTS))]


CHANGES = {
    "another model": ["--model", "{question}"],
    "another precision": ["--model", "{t5}", "--precision", "fast"],
    "other dims": ["--model", "{t5}", "--dims", "32"],
    "another prompt": ["--model", "{t5}", "--set", "prompt=query: [X]"],
    "another readout": ["--model", "{t5}", "--set", "readout=enc-first"],
    "another length": ["--model", "{t5}", "--set", "max_tokens=8"],
    "a projection": ["--model", "{t5}", "--set", "projection=16"],
    "another tokenizer with the same words": ["--model", "{t5}", "--tokenizer", "tokenizer"],
}


@pytest.mark.parametrize("args", CHANGES.values(), ids=CHANGES)
def test_what_changes_a_vector_gets_vectors_of_its_own(tercet, corpus, models, args):
    change_tokenizer(models["t5"], corpus.parent / "tokenizer")
    first = tercet("search", QUERY, "--in", corpus, "--model", models["t5"], "--json")
    before = kept(corpus.parent)
    assert len(before) == 1
    changed = [arg.format(**models) for arg in args]
    second = tercet("search", QUERY, "--in", corpus, *changed, "--json")
    assert hits_of(first) != hits_of(second)
    after = kept(corpus.parent)
    assert len(after) == 2
    assert before.items() < after.items()

    expected = tercet("search", QUERY, "--in", corpus, *changed, "--json", "--no-cache")
    assert hits_of(second) == hits_of(expected)


def change_tokenizer(source, target):
    """Copy a tokenizer, such that it has the same pieces but likes short ones best."""
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target)
    settings = json.loads((target / "tokenizer.json").read_text())
    settings["model"]["vocab"] = [[piece, float(-(len(piece) ** 2))] for piece, _ in settings["model"]["vocab"]]
    (target / "tokenizer.json").write_text(json.dumps(settings))


def test_a_changed_text_gets_vectors_of_its_own(tercet, corpus, models, encoder):
    args = ["--in", corpus, "--model", models["t5"], "--json"]
    assert tercet("search", QUERY, *args).returncode == 0
    texts = [*TEXTS[:3], QUERY, *TEXTS[4:]]
    corpus.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    check_hits(tercet("search", QUERY, *args), nearest(texts, QUERY, encoder, 5))
    assert len(kept(corpus.parent)) == 2


def test_a_line_more_or_texts_in_another_order_get_vectors_of_their_own(tercet, corpus, models, encoder):
    args = ["--in", corpus, "--model", models["t5"], "--json"]
    for number, texts in enumerate([TEXTS, [*TEXTS, ""], TEXTS[::-1], ["".join(TEXTS[:2]), *TEXTS[2:]]], 1):
        corpus.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        check_hits(tercet("search", QUERY, *args), nearest(texts, QUERY, encoder, 5))
        assert len(kept(corpus.parent)) == number


def test_a_model_changed_in_place_gets_vectors_of_its_own(tercet, corpus, models, tiny):
    model = corpus.parent / "model"
    for seed in (1, 2):
        encoder = tiny("bert", readout="mean", seed=seed)
        encoder.save(model)
        done = tercet("search", QUERY, "--in", corpus, "--model", "./model", "--json")
        check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
    assert len(kept(corpus.parent)) == 2


def test_the_same_texts_in_another_format_share_their_vectors(tercet, corpus, models):
    (corpus.parent / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    one = tercet("search", QUERY, "--in", corpus, "--model", models["t5"], "--json")
    before = kept(corpus.parent)
    two = tercet("search", QUERY, "--in", "texts.jsonl", "--model", models["t5"], "--json")
    assert hits_of(one) == hits_of(two)
    assert kept(corpus.parent) == before


def test_a_broken_file_of_kept_vectors_is_made_again(tercet, corpus, models, encoder):
    args = ["--in", corpus, "--model", models["t5"], "--json"]
    assert tercet("search", QUERY, *args).returncode == 0
    file = corpus.parent / ".tercet-cache" / next(iter(kept(corpus.parent)))
    for content in (b"", b"nonsense", file.read_bytes()[:500]):
        file.write_bytes(content)
        done = tercet("search", QUERY, *args)
        check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
        assert "made again" in done.stderr
        assert np.load(file).shape == (len(TEXTS), 256)


def test_where_vectors_cannot_be_kept_the_search_only_warns(tercet, corpus, models, encoder):
    (corpus.parent / ".tercet-cache").write_text("a file in the way")
    done = tercet("search", QUERY, "--in", corpus, "--model", models["t5"], "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
    assert "not kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert (corpus.parent / ".tercet-cache").read_text() == "a file in the way"


def test_a_full_disk_only_warns_and_leaves_no_half_of_a_file(tercet, corpus, models, encoder):
    args = ["--in", corpus, "--model", models["t5"], "--json"]
    done = tercet("search", QUERY, *args, max_file_bytes=5_000)
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
    assert "not kept" in done.stderr
    assert kept(corpus.parent) == {}
    assert "not kept" not in tercet("search", QUERY, *args).stderr


def test_nothing_is_kept_where_it_is_not_wanted(tercet, corpus, models, encoder):
    done = tercet("search", QUERY, "--in", corpus, "--no-cache", "--model", models["t5"], "--json")
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
    done = tercet("search", QUERY, "--in", "-", "--model", models["t5"], "--json", stdin=corpus.read_bytes())
    check_hits(done, nearest(TEXTS, QUERY, encoder, 5))
    assert {path.name for path in corpus.parent.iterdir()} == {corpus.name}
