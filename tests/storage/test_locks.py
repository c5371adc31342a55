"""One process at a time."""

import ast
import builtins
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tercet
from tercet import OutputError
from tercet.evaluation.timing import peak_rss_gb
from tercet.storage.locks import hold

HOLDS = """
import sys, time
from pathlib import Path
from tercet.storage.locks import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Return another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path / ".lock"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_that_another_process_holds_is_an_output_error_until_that_process_is_killed(tmp_path, holder):
    said = rf"another run is going on here: process {holder.pid} \(-c .* since .*\. Wait, or name another\."
    with pytest.raises(OutputError, match=f"^{tmp_path}: {said}"):
        hold(tmp_path / ".lock").__enter__()
    holder.kill()
    holder.wait()
    with hold(tmp_path / ".lock"):
        pass


def test_who_waits_gets_the_lock_when_it_is_released(tmp_path, holder):
    killing = threading.Timer(0.3, holder.kill)
    killing.start()
    with hold(tmp_path / ".lock", wait=True):
        killing.join()
        assert holder.wait() != 0


def test_the_file_of_a_lock_stays_and_is_none_of_the_block_s_errors(tmp_path):
    with pytest.raises(ZeroDivisionError), hold(tmp_path / ".lock"):
        raise ZeroDivisionError
    with hold(tmp_path / ".lock"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_lock_where_nothing_can_be_written_is_an_output_error(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(OutputError, match=r"^cannot write .*\.lock: Is a directory"):
        hold(tmp_path / ".lock").__enter__()


def test_no_module_needs_unix_to_be_imported():
    unix = {"fcntl", "resource", "pwd", "grp", "termios"}
    for path in Path(tercet.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                assert not unix & {alias.name for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in unix, path


def test_where_nobody_counts_memory_the_peak_is_not_a_number(monkeypatch):
    real = builtins.__import__

    def on_windows(name, *args):
        if name == "resource":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", on_windows)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert peak_rss_gb() != peak_rss_gb()
