"""The folder of a stage: other settings, damage, other people's files; nothing that took long is thrown away."""

import shutil

import pytest
import torch
import yaml

import tercet
from tercet import InputError, OutputError
from tercet.training.objectives.contrast import Contrast
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe


@pytest.fixture(scope="module")
def start(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    tiny("bert", readout="mean").save(folder / "model")
    (folder / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))
    stage = {"rows": str(folder / "rows.tsv"), "batch": 4, "steps": 2, "learning_rate": 1e-3, "checkpoint_every": 1}
    content = {"start": str(folder / "model"), "stages": [{"name": "a", "contrast": stage}]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture
def run(start, tmp_path):
    def go(*changes, folder=tmp_path / "run", **more):
        return run_recipe(read_recipe(start / "recipe.yaml", changes=changes), folder, **more)

    return go


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "stages" / "01-a"


@pytest.fixture
def stopped(run, folder, monkeypatch):
    """Run one of two steps."""
    step, num = Contrast.step, [0]

    def stop(self, batch):
        num[0] += 1
        if num[0] == 2:
            raise KeyboardInterrupt
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Contrast, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert (folder / "checkpoints" / "step-00000001").is_dir()


def weights(folder):
    return (folder / "encoder" / "model.safetensors").read_bytes()


def flip(file, place=3):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_stage_of_other_settings_is_kept_and_comes_back_with_them(run, folder, tmp_path, caplog):
    first = run()
    made = weights(folder)
    assert not run("seed=3", force=True).stages[0].skipped
    assert "what was there is kept in" in caplog.text
    [kept] = (tmp_path / "run" / "kept").iterdir()
    assert kept.name == f"a-{first.stages[0].output.key[:12]}"
    assert weights(kept) == made != weights(folder)
    assert run(force=True).stages[0].skipped
    assert weights(folder) == made == weights(tmp_path / "run")
    assert run("seed=3", force=True).stages[0].skipped


def test_a_stage_that_was_not_done_is_kept_with_its_checkpoints(run, stopped, folder, tmp_path):
    run("seed=3")
    [kept] = (tmp_path / "run" / "kept").iterdir()
    assert (kept / "checkpoints" / "step-00000001" / "weights.safetensors").exists()


def test_a_finished_run_of_other_settings_is_not_replaced(run, folder, tmp_path):
    run()
    (tmp_path / "run" / "results.json").write_text('{"tasks": {"STSB": {"score": 83.214}}, "averages": {}}')
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    found = r"stages\.a\.contrast\.steps was 2, now 1.+ encoder/ and results\.json \(STSB 83\.21\) would be replaced"
    with pytest.raises(OutputError, match=found):
        run("stages.a.steps=1")
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert before == after
    assert run("stages.a.log_every=3", "stages.a.checkpoint_every=7").stages[0].skipped


def test_a_finished_run_of_other_rows_is_not_replaced(run, start, tmp_path):
    own = tmp_path / "rows.tsv"
    own.write_text((start / "rows.tsv").read_text())
    run(f"stages.a.rows={own}")
    own.write_text("anchor\tpositive\n" + "One\tTwo\n" * 8)
    with pytest.raises(OutputError, match=r"the stage a has other inputs now.+ encoder/ would be replaced"):
        run(f"stages.a.rows={own}")
    assert tercet.verify(tmp_path / "run").is_whole


def test_prune_removes_what_is_kept(run, folder, tmp_path):
    run()
    run("seed=4", force=True)
    removed = tercet.prune(tmp_path / "run")
    assert [path.parent.name for path in removed] == ["kept"]
    assert not (tmp_path / "run" / "kept").exists() and folder.exists()
    assert tercet.prune(tmp_path / "run") == []
    with pytest.raises(InputError, match="is no run"):
        tercet.prune(tmp_path)


@pytest.mark.parametrize("name", ["key", "key.sha256"])
def test_a_flipped_bit_in_a_key_is_named_and_its_checkpoints_are_gone_on_with(
    run, stopped, folder, tmp_path, caplog, name
):
    flip(folder / name)
    result = run()
    assert result.stages[0].notes["num_steps"] == 2
    assert not (tmp_path / "run" / "kept").exists()
    assert ("key: is damaged" in caplog.text) == (name == "key")
    whole = run(folder=tmp_path / "whole")
    assert weights(folder) == weights(whole.stages[0].folder)


@pytest.mark.parametrize("name", ["stage.json", "SHA256SUMS", "metrics.jsonl"])
def test_a_flipped_bit_in_the_record_of_a_stage_that_is_done_costs_no_training(run, folder, caplog, name):
    run()
    for place in (3, 40, -9):
        flip(folder / name, place)
        assert run().stages[0].skipped
        assert (f"{name}: " in caplog.text) == (name != "metrics.jsonl")


def test_a_flipped_bit_in_what_a_stage_made_is_named_and_it_is_made_again(run, folder, tmp_path, caplog):
    run()
    made = weights(folder)
    flip(folder / "encoder" / "model.safetensors", -9)
    assert not run().stages[0].skipped
    assert "model.safetensors is not as it was written, so it starts again" in caplog.text
    assert weights(folder) == made
    assert [path.name for path in (tmp_path / "run" / "kept").iterdir()] == ["a-damaged"]


def test_a_stage_of_an_earlier_version_has_no_manifest_and_is_used(run, folder, tmp_path):
    run()
    (folder / "SHA256SUMS").unlink()
    (folder / "key.sha256").unlink()
    assert run().stages[0].skipped
    flip(folder / "encoder" / "model.safetensors", -9)
    (folder / "SHA256SUMS").unlink()
    assert not run().stages[0].skipped


@pytest.mark.parametrize("names", [[".lock", "thesis.txt"], [".bashrc"], ["recipe.yaml"], [".lock", ".app.settings"]])
def test_a_folder_with_other_files_is_no_run_and_is_left_alone(run, tmp_path, names):
    (tmp_path / "run").mkdir()
    for name in names:
        (tmp_path / "run" / name).write_text("of value")
    with pytest.raises(OutputError, match="holds other files than a run"):
        run()
    assert {path.name: path.read_text() for path in (tmp_path / "run").iterdir()} == dict.fromkeys(names, "of value")


def test_hidden_files_of_other_people_in_a_run_stay(run, tmp_path):
    run()
    names = [".app.settings", "stages/.notes.12345678", "stages/01-a/.cache.abcdefgh"]
    for name in names:
        (tmp_path / "run" / name).write_text("of value")
    assert run().stages[0].skipped
    assert all((tmp_path / "run" / name).read_text() == "of value" for name in names)


def test_links_in_a_run_are_not_followed(run, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "victim").write_text("of value")
    run()
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="01-a: is a link, which is not followed"):
        run()
    folder.unlink()
    folder.mkdir()
    (folder / "metrics.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(OutputError, match=r"metrics\.jsonl"):
        run()
    assert (tmp_path / "victim").read_text() == "of value"
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_every_kept_file_of_a_run_is_verified(run, tmp_path, folder):
    run()
    whole = tercet.verify(tmp_path / "run")
    assert whole.is_whole and whole.num_files > 15
    unhashed = {".lock", "README.md"}  # a model card may be edited
    for file in sorted(each for each in (tmp_path / "run").rglob("*") if each.is_file()):
        before = file.read_bytes()
        if file.name in unhashed or not before:
            continue
        flip(file, len(before) // 2)
        found = tercet.verify(tmp_path / "run")
        assert not found.is_whole, file
        assert str(file) in found.damaged or file.name.endswith(("SHA256SUMS", ".sha256")), file
        file.write_bytes(before)
    assert tercet.verify(tmp_path / "run") == whole


def test_an_encoder_that_has_collapsed_is_named(run, caplog, tiny, tmp_path):
    changes = ["stages.a.learning_rate=1e-9", "stages.a.steps=1"]
    run(*changes)
    assert "collapsed" not in caplog.text
    encoder = tiny("bert", readout="mean")
    norm = encoder.tower.backbone.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.zero_()
        norm.bias.fill_(1.0)
    encoder.save(tmp_path / "collapsed")
    run(f"start={tmp_path / 'collapsed'}", *changes, force=True)
    assert "a: the encoder has collapsed: it gives 16 different texts the same vector" in caplog.text
