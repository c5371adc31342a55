"""What every command says, and where: --quiet, --verbose, --log-file, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    return "in.txt"


def test_quiet_says_nothing_but_errors(tercet, texts, models):
    command = ("embed", texts, "--model", models["t5"], "--out", "out.npy", "--quiet")
    done = tercet(*command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = tercet(*command, "--dims", "9999")
    assert done.returncode == 2
    assert done.stderr.startswith("dims 9999")


def test_warnings_are_shown_and_hidden_by_quiet(tercet, texts, models):
    command = ("embed", texts, "--model", models["t5"], "--set", "max_tokens=2", "--out", "out.npy")
    assert "texts were cut to 2 tokens" in tercet(*command).stderr
    assert tercet(*command, "--quiet").stderr == ""


def test_verbose_names_the_model_and_the_input(tercet, texts, models):
    done = tercet("embed", texts, "--model", models["t5"], "--out", "out.npy", "--verbose")
    assert "in.txt: 2 texts in the column 'text'" in done.stderr
    assert "Encoder(" in done.stderr and "on cpu" in done.stderr
    assert "Encoder(" not in tercet("embed", texts, "--model", models["t5"], "--out", "out.npy").stderr


def test_a_log_file_gets_everything_with_times_whatever_is_shown(tercet, texts, models, tmp_path):
    command = ("embed", texts, "--model", models["t5"], "--out", "out.npy", "--quiet", "--log-file", "log.txt")
    assert tercet(*command).stderr == ""
    assert tercet(*command, "--dims", "9999").returncode == 2
    log = (tmp_path / "log.txt").read_text()
    assert log.count("tercet embed in.txt") == 2
    assert "2 texts in the column" in log
    assert " tokens: out.npy" in log
    assert "dims 9999" in log and "Traceback" in log
    assert all(line[:4].isdigit() for line in log.splitlines() if " INFO " in line or " DEBUG " in line)


def test_a_log_file_that_cannot_be_written_is_an_error(tercet, texts, models):
    done = tercet("embed", texts, "--model", models["t5"], "--out", "out.npy", "--log-file", "no/log.txt")
    assert done.returncode == 2
    assert "cannot write no/log.txt" in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["embed", "-", "-o", "out.npy"], "What is done is kept. To go on, run it again: tercet embed - -o out.npy"),
        (["search", "a b", "--in", "-"], "To start again: tercet search 'a b' --in -"),
    ],
)  # fmt: skip
def test_ctrl_c_says_in_one_line_how_to_go_on(tmp_path, command, said):
    (tmp_path / "tmp").mkdir()
    # a shell's background job, in which tests may run, hands on that SIGINT is ignored
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from tercet.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    ) as process:
        process.stdin.write("one\n" * 10_000)
        process.stdin.flush()
        while process.poll() is None and not [*(tmp_path / "tmp").glob("tercet-*/standard-input")]:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 128 + signal.SIGINT
        assert process.stderr.read() == f"Stopped. {said}\n"


def test_a_key_is_in_no_log(tercet, tmp_path):
    for key in (["--api-key", "secret"], ["--api-key=secret"]):
        tercet("serve", *key, "--host", "0.0.0.0", "--port", "-1", "--log-file", "log.txt")
    log = (tmp_path / "log.txt").read_text()
    assert log.count("--api-key") == 2 and "secret" not in log
