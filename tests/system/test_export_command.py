"""`tercet export`: a folder that the other commands take as a model."""

import numpy as np
import pytest

from tercet import SettingError, export


def test_an_exported_model_embeds_as_the_model_itself(tercet, models, tmp_path):
    done = tercet("export", "--model", models["bert"], "--format", "onnx", "--out", "exported")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "exported: on sample texts" in done.stderr
    (tmp_path / "texts.txt").write_text("A man is playing a guitar.\nStocks dropped.\n\n")
    for model, out in ((models["bert"], "wanted.npy"), ("exported", "found.npy")):
        done = tercet("embed", "texts.txt", "--model", model, "--out", out)
        assert done.returncode == 0, done.stderr
    wanted, found = np.load(tmp_path / "wanted.npy"), np.load(tmp_path / "found.npy")
    assert np.abs(found - wanted).max() < 1e-4


def test_a_format_that_is_unknown_is_refused_before_the_model_is_read(tmp_path):
    with pytest.raises(SettingError, match="format 'tflite': there is none of that name"):
        export("no-such-model", tmp_path / "exported", format="tflite")
    assert list(tmp_path.iterdir()) == []
