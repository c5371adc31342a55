"""The plan of `adapt`: what follows from the sentences, the triplets and the settings that were asked for."""

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from tercet.adaptation.findings import own_tasks
from tercet.adaptation.plan import MODEL, SYNTHESIZER, Plan, Request
from tercet.data.feeding.rows import open_rows
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_SYNTHESIZER


def test_small_piles_get_more_candidates_and_more_of_them_is_held_out(tmp_path):
    request = Request(sentences=("in.txt",), model="random:t5-tiny", synthesizer="x")

    def num_samples(num):
        return request.content(num_sentences=num)["stages"][0]["synthesize"]["num_samples"]

    assert [num_samples(num) for num in (300, 1_200, 1_900, 5_000, None)] == [4, 2, 1, 1, 1]
    for num_anchors, num_held_out, steps in ((10, 3, 40), (250, 50, 40), (2_500, 250, round(3 * 4_500 / 64))):
        rows = [{"anchor": f"anchor {i}", "positive": f"yes {i} {k}"} for i in range(num_anchors) for k in range(2)]
        path = tmp_path / f"{num_anchors}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        contrast = request.content(anchors=[row["anchor"] for row in rows])["stages"][1]["contrast"]
        sources = contrast["rows"], contrast["evaluate"]["rows"]
        trained, held_out = ([*open_rows({**source, "path": path}, kind="triplets")] for source in sources)
        assert len(held_out) == 2 * num_held_out == 2 * len({row.anchor for row in held_out})
        assert len(trained) == len(rows) - len(held_out)
        assert contrast["steps"] == steps


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ([], 3 * 1_800 // 64),
        (["batch=16"], 3 * 1_800 // 16 + 1),
        (["batch=100"], 3 * 1_800 // 100),
        (["batch=256"], 40),
        (["batch=16", "steps=84"], 84),
    ],
)
def test_the_triplets_are_learned_three_times_whatever_the_batch(changes, steps):
    request = Request(
        ("x",),
        model="random:t5-tiny",
        synthesizer="x",
        changes=tuple(f"stages.contrast.{change}" for change in changes),
    )
    contrast = Plan.of(request, anchors=[f"anchor {i}" for i in range(2_000)]).contrast
    assert (contrast.steps, contrast.evaluate.every) == (steps, -(-steps // 5))


def test_scores_lie_a_fifth_of_the_steps_apart_however_many_are_asked_for():
    request = Request(("in.txt",), model="random:t5-tiny", synthesizer="x", changes=("stages.contrast.steps=200",))
    assert Plan.of(request).contrast.evaluate.every == 40


def test_a_t5_that_is_no_sentence_encoder_yet_is_read_out_as_in_gense(synthesizer_folder):
    request = Request(sentences=("x",), model=str(synthesizer_folder("t5")), synthesizer="x")
    assert Plan.of(request).contrast.encoder.given() == {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
    changed = Request(sentences=("x",), model=request.model, synthesizer="x", changes=("encoder.readout=enc-mean",))
    assert Plan.of(changed).contrast.encoder["readout"] == "enc-mean"


def test_the_command_in_the_report_is_one_that_asks_for_the_same():
    request = Request(("my file.txt",), "x", own=("scored:a.tsv",), split=True, column="b", seed=3, changes=("a=b c",))
    words = shlex.split(request.command(Path("out dir"), "my data"))
    assert words[:5] == ["tercet", "adapt", "my file.txt", "--out", "out dir"]
    options = Counter(word for word in words if word.startswith("--"))
    assert options == Counter("--out --model --synthesizer --column --data --split --seed --eval --set".split())
    assert words[-3:] == ["scored:a.tsv", "--set", "a=b c"]


def test_less_is_asked_of_the_embedded_synthesizer_where_nothing_else_is_said():
    def rules(**options):
        plan = Plan.of(Request(("in.txt",), model="random:t5-tiny", **options))
        settings = plan.recipe.stages[0].settings
        return settings.alpha, settings.min_hypothesis_words, settings.temperature, plan.contrast.learning_rate

    assert rules(synthesizer="x") == (0.9, 5, 1.0, 1e-4)
    assert rules() == (0.6, 4, 0.7, 2e-5)
    assert rules(changes=("stages.synthesize.alpha=0.9",)) == (0.9, 4, 0.7, 2e-5)


def test_the_command_has_the_defaults_of_the_function():
    assert (DEFAULT_MODEL, DEFAULT_SYNTHESIZER) == (MODEL, SYNTHESIZER)


def test_the_kind_of_a_file_is_told_by_its_columns(tmp_path):
    columns = {
        "scored": "sentence1 sentence2 score",
        "paraphrase": "sentence1 sentence2 label",
        "rerank": "query candidate label",
        "labelled": "text label",
        "triplets": "anchor positive negative",
    }
    for kind, names in columns.items():
        path = tmp_path / f"{kind}.tsv"
        path.write_text("\t".join(names.split()) + "\n" + "\t".join(["1"] * len(names.split())) + "\n")
        assert own_tasks([str(path)]) == (f"{kind}:{path}",) == own_tasks([f"{kind}:{path}"])
