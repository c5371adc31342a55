"""`tercet embed`: files in, files out, the same vectors as in Python, however often it is killed."""

import contextlib
import json
import os
import random
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CLOSE = 1e-5


def read_vectors(path):
    """Return the vectors in a file that the command wrote, and its texts where it has them."""
    if path.suffix == ".npy":
        return np.load(path), None
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    else:
        rows = pq.read_table(path).to_pylist()
    return np.array([row["embedding"] for row in rows], np.float32), [row["text"] for row in rows]


def write_lines(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def write_table(path, texts, *, quote, delimiter):
    lines = [delimiter.join(["id", "body", "language"])]
    lines += [delimiter.join([str(i), quote(text), "xx"]) for i, text in enumerate(texts)]
    return write_lines(path, lines)


def write_input(folder, ending, texts):
    """Write texts into a file of a format; where it has columns, the texts are in `body`."""
    path = folder / f"input.{ending}"
    if ending in ("txt", "text"):
        return write_lines(path, texts)
    if ending in ("jsonl", "ndjson"):
        return write_lines(path, [json.dumps({"id": i, "body": text}) for i, text in enumerate(texts)])
    if ending == "csv":
        return write_table(path, texts, quote=lambda text: '"' + text.replace('"', '""') + '"', delimiter=",")
    if ending == "tsv":
        return write_table(path, texts, quote=str, delimiter="\t")
    pq.write_table(pa.table({"id": range(len(texts)), "body": texts}), path, row_group_size=3)
    return path


def test_the_command_gives_the_vectors_of_python(python, tmp_path, models, encoder, sentences):
    write_lines(tmp_path / "in.txt", sentences)
    done = python("-m", "tercet", "embed", "in.txt", "--model", models["t5"], "--out", "out.npy", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    vectors = np.load(tmp_path / "out.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, encoder.embed(sentences), atol=CLOSE)
    assert f"{len(sentences)} texts" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("ending", ["txt", "text", "jsonl", "ndjson", "csv", "tsv", "parquet"])
def test_every_input_format_gives_the_same_vectors(tercet, tmp_path, models, encoder, sentences, ending):
    source = write_input(tmp_path, ending, sentences)
    column = [] if ending in ("txt", "text") else ["--column", "body"]
    done = tercet("embed", source, *column, "--model", models["t5"], "--out", "out.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(sentences), atol=CLOSE)


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_every_output_format_has_the_vectors_and_all_but_npy_the_texts(
    tercet, tmp_path, models, encoder, sentences, ending
):
    write_lines(tmp_path / "in.txt", sentences)
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", f"out.{ending}")
    assert done.returncode == 0, done.stderr
    vectors, texts = read_vectors(tmp_path / f"out.{ending}")
    np.testing.assert_allclose(vectors, encoder.embed(sentences), atol=CLOSE)
    assert texts == (None if ending == "npy" else sentences)


@pytest.mark.parametrize("ending", ["txt", "jsonl", "csv"])
def test_standard_input_is_read_where_the_input_is_a_dash(tercet, tmp_path, models, encoder, sentences, ending):
    content = write_input(tmp_path, ending, sentences).read_bytes()
    told = [] if ending == "txt" else ["--format", ending, "--column", "body"]
    done = tercet("embed", "-", *told, "--model", models["t5"], "--out", "out.npy", stdin=content)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(sentences), atol=CLOSE)


def test_a_pipe_with_a_name_is_read_like_a_file(tercet, tmp_path, models, encoder, sentences):
    os.mkfifo(tmp_path / "pipe")
    content = "".join(f"{text}\n" for text in sentences).encode()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content])
    writer.start()
    done = tercet("embed", "pipe", "--model", models["t5"], "--out", "out.npy")
    writer.join()
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(sentences), atol=CLOSE)


def test_empty_lines_are_texts_and_keep_their_place(tercet, tmp_path, models, encoder):
    (tmp_path / "in.txt").write_bytes(b"\nfirst\n\n\nlast\n\n")
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.jsonl")
    assert done.returncode == 0, done.stderr
    vectors, texts = read_vectors(tmp_path / "out.jsonl")
    assert texts == ["", "first", "", "", "last", ""]
    np.testing.assert_allclose(vectors, encoder.embed(texts), atol=CLOSE)


@pytest.mark.parametrize("ending", ["txt", "csv", "tsv", "jsonl"])
def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_text(tercet, tmp_path, models, ending):
    texts = ["one", "two words", "three"]
    source = write_input(tmp_path, ending, texts)
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    column = [] if ending == "txt" else ["--column", "body"]
    done = tercet("embed", source, *column, "--model", models["t5"], "--out", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert read_vectors(tmp_path / "out.jsonl")[1] == texts


def test_a_last_line_without_a_line_end_counts(tercet, tmp_path, models):
    (tmp_path / "in.txt").write_bytes(b"one\ntwo")
    assert tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.jsonl").returncode == 0
    assert read_vectors(tmp_path / "out.jsonl")[1] == ["one", "two"]


def test_quotes_commas_and_line_ends_inside_csv_fields_are_text(tercet, tmp_path, models):
    (tmp_path / "in.csv").write_text('text\n"a ""quoted"", text\nin two lines"\nplain\n')
    assert tercet("embed", "in.csv", "--model", models["t5"], "--out", "out.jsonl").returncode == 0
    assert read_vectors(tmp_path / "out.jsonl")[1] == ['a "quoted", text\nin two lines', "plain"]


def test_the_only_column_needs_no_name(tercet, tmp_path, models):
    (tmp_path / "in.csv").write_text("sentence\none\ntwo\n")
    assert tercet("embed", "in.csv", "--model", models["t5"], "--out", "out.jsonl").returncode == 0
    assert read_vectors(tmp_path / "out.jsonl")[1] == ["one", "two"]


def test_vectors_are_in_the_order_of_the_texts_over_batches_and_shards(tercet, tmp_path, models, encoder):
    texts = many_texts(90, seed=1)
    write_lines(tmp_path / "in.txt", texts)
    options = ["--batch-tokens", "64", "--shard-texts", "25"]
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.parquet", *options)
    assert done.returncode == 0, done.stderr
    vectors, written = read_vectors(tmp_path / "out.parquet")
    assert written == texts
    np.testing.assert_allclose(vectors, encoder.embed(texts), atol=CLOSE)
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.parquet", "out.parquet.sha256"}


def test_options_reach_the_encoder(tercet, tmp_path, models, sentences):
    from tercet import Encoder

    write_lines(tmp_path / "in.txt", sentences)
    settings = ["--set", "prompt=query: [X]", "--set", "readout=enc-first", "--set", "max_tokens=32"]
    options = ["--dims", "24", "--precision", "fast"]
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.npy", *settings, *options)
    assert done.returncode == 0, done.stderr
    encoder = Encoder.load(models["t5"], device="cpu", prompt="query: [X]", readout="enc-first", max_tokens=32)
    expected = encoder.embed(sentences, dims=24, precision="fast")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-3)
    assert expected.shape == (len(sentences), 24)


def test_a_model_with_prompt_and_decoder_works_from_its_folder_alone(tercet, tmp_path, models, tiny, sentences):
    write_lines(tmp_path / "in.txt", sentences)
    assert tercet("embed", "in.txt", "--model", models["question"], "--out", "out.npy").returncode == 0
    expected = tiny("t5", readout="encdec-first", prompt="gense").embed(sentences)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=CLOSE)


def test_cut_texts_are_counted_in_the_last_line(tercet, tmp_path, models):
    write_lines(tmp_path / "in.txt", ["short", "word " * 200, "short", "word " * 300])
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.npy", "--shard-texts", "3")
    assert done.returncode == 0, done.stderr
    assert "4 texts" in done.stderr.splitlines()[-1]
    assert "2 cut to 64 tokens" in done.stderr.splitlines()[-1]


def test_an_old_target_is_replaced(tercet, tmp_path, models):
    write_lines(tmp_path / "in.txt", ["one", "two"])
    (tmp_path / "out.npy").write_bytes(b"old")
    assert tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.npy").returncode == 0
    assert np.load(tmp_path / "out.npy").shape == (2, 256)


# Kill and resume: shards of 12 texts, so that there are many borders to be killed at.

NUM_TEXTS, NUM_KILLED_TEXTS, SHARD_TEXTS = 84, 600, 12


def many_texts(num, *, seed):
    """Return texts of many lengths, some of them empty and some twice."""
    rng = random.Random(seed)
    words = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday".split()
    return [" ".join(rng.choices(words, k=rng.choice([0, 1, 2, 3, 4, 5, 12]))) for _ in range(num)]


@pytest.fixture
def command(tmp_path, models):
    """Return a function that gives the arguments of one long run."""
    write_lines(tmp_path / "in.txt", many_texts(NUM_TEXTS, seed=2))

    def args(out, *more):
        return ["embed", "in.txt", "--model", models["t5"], "--out", out, "--shard-texts", SHARD_TEXTS, *more]

    return args


def finished(parts):
    """Return the finished shards of a run and what would change if one were written again."""
    try:
        stats = {path.name: path.stat() for path in parts.glob("[0-9]*.npy")}
    except FileNotFoundError:  # the run has removed them meanwhile
        return {}
    return {name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


def kill_when(ready, started, how=signal.SIGKILL):
    """Kill a process as soon as `ready()`, unless it has ended by itself."""
    pid, _ = started
    with contextlib.suppress(ProcessLookupError):
        while not ready():
            os.kill(pid, 0)
            time.sleep(0.001)
        os.kill(pid, how)


def after(delay_s):
    until = time.monotonic() + delay_s
    return lambda: time.monotonic() >= until


def run_until_shards(launch, args, folder, out, num, how=signal.SIGKILL):
    """Start a run, kill it as soon as `num` shards are finished, and return its exit code and what is finished then."""
    parts = folder / f"{out}.parts"
    for _ in range(20):
        with launch(*args, folder=folder) as started:
            kill_when(lambda: len(finished(parts)) >= num, started, how)
        if started[1].returncode != 0:
            return started[1].returncode, finished(parts)
        (folder / out).unlink()  # on a busy machine the run can end before the signal is sent: once more
    pytest.fail("every run ended before it could be killed")


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_killed_many_times_it_ends_with_the_same_bytes_and_no_shard_is_embedded_twice(
    launch, tercet, command, tmp_path, ending
):
    write_lines(tmp_path / "in.txt", many_texts(NUM_KILLED_TEXTS, seed=3))
    out, rng = f"killed.{ending}", random.Random(ending)
    start = time.monotonic()
    assert tercet(*command(f"whole.{ending}")).returncode == 0
    whole_s = time.monotonic() - start
    before = {path.name for path in tmp_path.iterdir()}
    parts, known, num_killed = tmp_path / f"{out}.parts", {}, 0
    for attempt in range(8):
        with launch(*command(out), folder=tmp_path) as started:
            if attempt % 2:  # somewhere from the start of the process on
                kill_when(after(rng.uniform(0.0, 0.2 * whole_s)), started)
            else:  # around the commit of a shard
                enough = len(known) + rng.randrange(1, 4)
                kill_when(lambda enough=enough: len(finished(parts)) >= enough, started)
        if started[1].returncode != -signal.SIGKILL:
            break
        num_killed += 1
        now = finished(parts)
        assert {name: now[name] for name in known} == known, "a finished shard was written again"
        assert not (tmp_path / out).exists()
        known = now
    assert num_killed >= 5
    assert len(known) >= 3

    done = tercet(*command(out))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / out).read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == before | {out, f"{out}.sha256"}
    assert f"{NUM_KILLED_TEXTS} texts" in done.stderr.splitlines()[-1]


def test_a_finished_shard_is_taken_as_it_is(launch, tercet, command, tmp_path, encoder):
    code, shards = run_until_shards(launch, command("out.npy"), tmp_path, "out.npy", 2)
    assert code == -signal.SIGKILL
    marked = tmp_path / "out.npy.parts" / "000001.npy"
    assert marked.name in shards
    shard = np.load(marked)
    shard[:, :256] = 7.0
    np.save(marked, shard)
    marked.with_name("000001.npy.sha256").unlink(missing_ok=True)
    assert tercet(*command("out.npy")).returncode == 0
    expected = encoder.embed(many_texts(NUM_TEXTS, seed=2))
    expected[SHARD_TEXTS : 2 * SHARD_TEXTS] = 7.0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=CLOSE)


def test_shards_of_other_texts_are_thrown_away(launch, tercet, command, tmp_path, encoder):
    run_until_shards(launch, command("out.npy"), tmp_path, "out.npy", 3)
    texts = ["another first text", *many_texts(NUM_TEXTS, seed=2)[1:]]
    write_lines(tmp_path / "in.txt", texts)
    done = tercet(*command("out.npy"))
    assert done.returncode == 0
    assert "other work" in done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(texts), atol=CLOSE)
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.npy", "out.npy.sha256"}


@pytest.mark.parametrize("more", [["--dims", "32"], ["--set", "readout=enc-first"], ["--set", "prompt=query: [X]"]])
def test_shards_made_with_other_settings_are_thrown_away(launch, tercet, command, tmp_path, models, more):
    from tercet import Encoder

    run_until_shards(launch, command("out.npy"), tmp_path, "out.npy", 1)
    done = tercet(*command("out.npy", *more))
    assert done.returncode == 0
    assert "other work" in done.stderr
    settings = dict([more[1].split("=")]) if more[0] == "--set" else {}
    dims = int(more[1]) if more[0] == "--dims" else None
    expected = Encoder.load(models["t5"], device="cpu", **settings).embed(many_texts(NUM_TEXTS, seed=2), dims=dims)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=CLOSE)


def test_what_a_kill_left_at_the_very_end_is_removed(launch, tercet, command, tmp_path):
    run_until_shards(launch, command("out.npy"), tmp_path, "out.npy", 1)
    (tmp_path / "out.npy.parts" / "out.npy").write_bytes(b"half of it")
    (tmp_path / "out.npy.parts" / ".000001.npy.abcdefgh.tercet").write_bytes(b"half of it")
    (tmp_path / ".out.npy.parts.removed").mkdir()
    (tmp_path / ".out.npy.parts.removed" / "000000.npy").write_bytes(b"a shard of a run that is done")
    assert tercet(*command("out.npy")).returncode == 0
    assert np.load(tmp_path / "out.npy").shape == (NUM_TEXTS, 256)
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.npy", "out.npy.sha256"}


def test_an_interrupt_keeps_the_finished_shards(launch, tercet, command, tmp_path):
    code, shards = run_until_shards(launch, command("out.npy"), tmp_path, "out.npy", 2, signal.SIGINT)
    assert code == 130
    assert len(shards) >= 2
    assert not list((tmp_path / "out.npy.parts").glob(".*")), "a temporary file was left"
    assert tercet(*command("out.npy")).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.npy", "out.npy.sha256"}
