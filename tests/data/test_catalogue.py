"""The table of what is on the hub: it has every task, and its files are what the tasks read."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tercet import InputError, RowError, SettingError
from tercet.data.sets.catalogue import FILES, NOT_ON_HUB
from tercet.data.sets.fetch import _record, choose_data, fetch
from tercet.data.sets.groups import DEV_SETS, GROUPS
from tercet.evaluation.tasks.table import TASKS


def lines_of(task, rows, *, file=0):
    return list(FILES[task][file].lines((f"owner/set:test:{i}", row) for i, row in enumerate(rows, 1)))


def test_every_task_is_on_the_hub_or_is_known_not_to_be():
    assert set(FILES) | set(NOT_ON_HUB) == set(TASKS) - {"speed"}  # which reads no data
    assert not set(FILES) & set(NOT_ON_HUB)


def test_a_group_is_fetched_with_its_dev_set_which_is_in_no_average():
    for group, names in GROUPS.items():
        assert set(names) <= TASKS.keys()
        assert choose_data(group) == [*names, *DEV_SETS.get(group, ())]
    assert {name for names in DEV_SETS.values() for name in names} == {n for n in TASKS if n.endswith("-dev")}


def test_one_path_is_always_made_in_one_way():
    made = {}
    for file in (file for files in FILES.values() for file in files):
        source = (file.dataset, getattr(file, "split", None), getattr(file, "member", None))
        assert made.setdefault(file.path, source) == source


def test_names_are_groups_and_tasks_with_commas_or_without_each_once():
    assert choose_data(["zh,STSB", "STSB", "ZH-STSB"]) == ["ZH-STSB", "ZH-STSB-dev", "STSB"]
    assert choose_data("STS12, MR") == ["STS12", "MR"]


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(SettingError, match=r"'STS21': there is none of that name. Take one of: STS16"):
        choose_data("STS21")


def test_a_task_that_is_not_on_the_hub_says_where_it_is(tmp_path):
    with pytest.raises(SettingError, match=r"not on the hub: CQADupStack \(.*useb"):
        fetch("CQADupStack", data=tmp_path)


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SettingError, match=r"pip install 'tercet\[hub\]'"):
        fetch("STS12", data=tmp_path)


def test_without_a_folder_the_environment_must_name_one(monkeypatch):
    monkeypatch.delenv("TERCET_DATA", raising=False)
    with pytest.raises(SettingError, match="--data"):
        fetch("STS12")


def test_a_text_with_tabs_and_line_ends_stays_in_its_cell():
    row = {"sentence1": "one\ttwo\r\nthree", "sentence2": "four", "score": 2.5999999046325684}
    assert lines_of("STS12", [row]) == ["one two three\tfour"]
    assert lines_of("STS12", [row], file=1) == ["2.6"]


def test_labels_become_the_words_that_the_tasks_read():
    rows = [{"premise": "p", "hypothesis": "h", "label": label} for label in (0, 1, 2)]
    words = [line.split("\t")[2] for line in lines_of("glue-MNLI-m", rows)]
    assert words == ["gold_label", "entailment", "neutral", "contradiction"]
    assert lines_of("glue-CoLA", [{"sentence": "s", "label": 0}]) == ["hub\t0\t*\ts"]
    assert lines_of("PIT", [{"text_a": "a", "text_b": "b", "label": 1}]) == ["0\thub\ta\tb\t5"]


@pytest.mark.parametrize("label", [-1, 2, "1"])
def test_an_unknown_label_is_refused_by_row(label):
    with pytest.raises(RowError, match=f"owner/set:test:1: the label {label!r} is not in 0 to 1"):
        lines_of("glue-RTE", [{"sentence1": "a", "sentence2": "b", "label": label}])


@pytest.mark.parametrize("row", [{"sentence1": "a", "score": 1.0}, {"sentence1": "a", "sentence2": None, "score": 1.0}])
def test_a_row_without_a_text_is_refused_by_row(row):
    with pytest.raises(RowError, match="owner/set:test:2: has no 'sentence2'"):
        lines_of("STS12", [{"sentence1": "a", "sentence2": "b", "score": 1.0}, row])


def test_fetches_at_one_time_lose_no_checksum(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: _record(tmp_path, {f"file {i}": {"num_rows": i}}), range(24)))
    files = json.loads((tmp_path / "checksums.json").read_text())["files"]
    assert files == {f"file {i}": {"num_rows": i} for i in range(24)}


def test_broken_checksums_are_refused_before_anything_is_fetched(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "checksums.json").write_text("[]")
    with pytest.raises(InputError, match=r"checksums\.json: is not as a fetch writes it"):
        fetch("STS12", data=tmp_path)
