"""A year of STS whose pairs are in one file, as the hub has them."""

import numpy as np
import pytest

from tercet.data.sets.folder import DataFolder, MissingDataError
from tercet.evaluation.tasks.sts import TASKS
from tercet.evaluation.tasks.task import Options

STS13 = next(task for task in TASKS if task.name == "STS13")
SUBSETS = ("FNWN", "headlines", "OnWN")


def embed(texts):
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]).astype(np.float32)


def write(folder, subset, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"STS.input.{subset}.txt").write_text("".join(f"{a}\t{b}\n" for a, b, _ in rows))
    (folder / f"STS.gs.{subset}.txt").write_text("".join(f"{score}\n" for *_, score in rows))


@pytest.fixture
def rows():
    scores = np.random.default_rng(0).uniform(0, 5, size=(3, 20)).round(2)
    return {s: [(f"{s} {i}", f"{s} other {i}", scores[j, i]) for i in range(20)] for j, s in enumerate(SUBSETS)}


def run(root):
    return STS13.run(DataFolder(root), embed, Options())


def test_one_file_gives_the_score_of_all_subsets_together_and_no_means(tmp_path, rows):
    for subset in SUBSETS:
        write(tmp_path / "original/senteval/STS/STS13-en-test", subset, rows[subset])
    write(tmp_path / "hub/senteval/STS/STS13-en-test", "joined", [row for subset in SUBSETS for row in rows[subset]])
    original, joined = run(tmp_path / "original"), run(tmp_path / "hub")
    assert joined["score"] == pytest.approx(original["score"], abs=1e-9)
    assert (joined["num"], original["num"]) == (60, 60)
    assert "mean" in original and not {"mean", "weighted_mean", "subsets"} & joined.keys()
    assert joined["note"] == "1500 pairs were expected; subsets are joined in one file: no means over subsets"
    assert original["note"] == "1500 pairs were expected"


def test_original_files_are_read_where_both_are_there(tmp_path, rows):
    folder = tmp_path / "senteval/STS/STS13-en-test"
    for subset in SUBSETS:
        write(folder, subset, rows[subset])
    write(folder, "joined", rows["FNWN"])
    assert run(tmp_path)["subsets"].keys() == set(SUBSETS)
    (folder / "STS.input.OnWN.txt").unlink()
    assert run(tmp_path)["num"] == 20


def test_a_year_that_is_not_there_is_missing_by_its_original_name(tmp_path):
    with pytest.raises(MissingDataError, match=r"STS\.input\.FNWN\.txt"):
        run(tmp_path)
