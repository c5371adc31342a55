"""The command `evaluate`: a raw checkpoint in one command, the table, results.json, missing data, bad input."""

import json
import sys

import pytest
import torch
from transformers import T5Model

from tercet.cli import main
from tercet.encoder.model.shapes import shape_config

WORDS = "a man is playing on the stage two dogs run through deep snow stocks dropped".split()
PAIRS = "".join(
    f"{' '.join(WORDS[i % 7 : i % 7 + 5])}\t{' '.join(WORDS[i * i % 11 :][: 2 + i % 4])}\t{i % 6}\n" for i in range(20)
)


@pytest.fixture(scope="module")
def checkpoint(t5_tokenizer, tmp_path_factory):
    """A plain transformers checkpoint, as the papers' untuned rows start from."""
    folder = tmp_path_factory.mktemp("raw") / "t5"
    torch.manual_seed(0)
    T5Model(shape_config("t5-tiny", vocab_size=len(t5_tokenizer))).save_pretrained(folder)
    t5_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def tercet(monkeypatch, capsys, tmp_path):
    """Run the command line in this process and return its exit code and what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TERCET_DATA", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tercet", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, capsys.readouterr()

    return run


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "zh_stsb").mkdir(parents=True)
    (tmp_path / "data" / "zh_stsb" / "sts-b-test.txt").write_text(PAIRS)
    return tmp_path / "data"


@pytest.mark.parametrize("readout", ["enc-first", "enc-mean", "encdec-first"])
def test_a_raw_checkpoint_is_scored_with_a_readout_from_the_command(tercet, checkpoint, data, tmp_path, readout):
    out = tmp_path / "out"
    code, printed = tercet(
        "evaluate",
        "--model",
        checkpoint,
        "--set",
        f"readout={readout}",
        "--tasks",
        "zh,sts",
        "--data",
        data,
        "--out",
        out,
    )
    assert code == 0
    results = json.loads((out / "results.json").read_text())
    assert results["settings"]["readout"] == readout
    assert set(results["tasks"]) == {"ZH-STSB"}
    assert set(results["missing"]) == {"STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK-R"}
    assert results["averages"] == {}
    assert f"{results['tasks']['ZH-STSB']['score']:.2f}" in printed.out
    assert printed.out.count("missing") == 7


def test_the_readouts_of_a_raw_checkpoint_give_different_scores(tercet, checkpoint, data, tmp_path):
    scores = set()
    for readout in ("enc-first", "enc-mean", "encdec-first"):
        tercet(
            "evaluate",
            "--model",
            checkpoint,
            "--set",
            f"readout={readout}",
            "--tasks",
            "zh",
            "--data",
            data,
            "--out",
            tmp_path / readout,
        )
        scores.add(json.loads((tmp_path / readout / "results.json").read_text())["tasks"]["ZH-STSB"]["score"])
    assert len(scores) == 3


def test_a_file_is_scored_without_saying_what_it_holds(tercet, checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-pairs.tsv").write_text("Sentence_A\tSentence_B\trelatedness_score\n" + PAIRS)
    model = ("--model", checkpoint, "--set", "readout=enc-mean")
    scores = []
    for name in ("my-pairs.tsv", "scored:my-pairs.tsv"):
        code, _ = tercet("evaluate", *model, "--tasks", name, "--out", tmp_path / "out")
        assert code == 0
        tasks = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]
        assert [*tasks] == ["scored:my-pairs.tsv"]
        scores.append(tasks["scored:my-pairs.tsv"]["score"])
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "STS122"], "STS12"),
        (["--tasks", "sts"], "--data"),
        (["--tasks", "sts", "--data", "nowhere"], "nowhere: no such folder"),
        (["--tasks", "scored:missing.tsv"], "missing.tsv"),
        (["--tasks", "missing.tsv"], "missing.tsv: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tercet, checkpoint, arguments, message):
    code, printed = tercet("evaluate", "--model", checkpoint, "--set", "readout=enc-mean", *arguments)
    assert code == 2
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_an_evaluation_without_any_score_ends_with_code_1_and_says_what_to_fetch(tercet, checkpoint, tmp_path):
    (tmp_path / "eval").mkdir()
    for tasks, fix in (("sts", "tercet data fetch sts"), ("MR,STSB", "tercet data fetch MR STSB")):
        args = ("--model", checkpoint, "--set", "readout=enc-mean", "--tasks", tasks, "--data", tmp_path / "eval")
        code, printed = tercet("evaluate", *args)
        assert code == 1
        assert printed.err.splitlines()[-1] == f"Nothing was scored: the data is not there. Run: {fix}"
