"""What is said while something is going on: bars, plain lines, and nothing."""

import logging
import re
import time

import pytest

from tercet.storage import progress
from tercet.storage.progress import Shown, announce, progress_bar

LINE = r"embedding: [\d,]+ of 1,000 texts, [\d,.]+ texts/s(, \d+:\d\d left)?(, 3 truncated)?"


@pytest.fixture
def quick(monkeypatch):
    """Let a line come every 20 ms in place of every 10 s."""
    monkeypatch.setattr(progress, "EVERY_S", 0.02)


def work():
    with progress_bar("embedding", total=1000, unit="texts") as advance:
        advance(500, earlier=True)
        advance(250, note="3 truncated")
        time.sleep(0.15)
        advance(250)


def test_without_a_terminal_there_is_a_plain_line_every_few_seconds_and_one_at_the_end(quick, capsys):
    work()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all(re.fullmatch(LINE, line) for line in lines), lines
    assert "750 of 1,000" in lines[0] and "left" in lines[0]
    assert "1,000 of 1,000" in lines[-1] and "left" not in lines[-1]


def test_the_rate_leaves_out_what_an_earlier_run_did(quick, capsys):
    with progress_bar("embedding", total=1000, unit="texts") as advance:
        advance(999, earlier=True)
        time.sleep(0.1)
    assert "0.00 texts/s" in capsys.readouterr().err.splitlines()[-1]


def test_what_is_over_before_the_first_line_says_nothing(capsys):
    with progress_bar("embedding", total=1000, unit="texts") as advance:
        advance(1000)
    assert capsys.readouterr().err == ""


def test_after_an_error_there_is_no_last_line(quick, capsys):
    with pytest.raises(ZeroDivisionError), progress_bar("embedding", total=10, unit="texts"):
        time.sleep(0.1)
        raise ZeroDivisionError
    said = capsys.readouterr().err.count("\n")
    time.sleep(0.1)
    assert said and capsys.readouterr().err == ""


def test_a_log_gets_the_lines_even_where_nothing_is_shown(quick, capsys, caplog, monkeypatch):
    monkeypatch.setattr(Shown, "progress", False)
    with caplog.at_level(logging.DEBUG, logger="tercet.progress"):
        work()
        announce("judging")
    assert capsys.readouterr().err == ""
    assert all(re.fullmatch(LINE, line) for line in caplog.messages[:-1])
    assert caplog.messages[-1] == "judging"


def test_in_a_terminal_it_is_a_bar(monkeypatch, capsys, quick):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    work()
    shown = capsys.readouterr().err
    assert "1000/1000" in shown and "3 truncated" in shown
    assert not re.search(LINE, shown)
