"""The plan of `adapt`: what follows from the sentences, the triplets and the settings that were asked for."""

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from tercet.adaptation.findings import own_tasks
from tercet.adaptation.plan import Plan, Request
from tercet.data.feeding.sources import open_rows
from tercet.training.loop.settings import interval


def plan_of(*changes, **more):
    request = {"sentences": ("in.txt",), "model": "random:t5-tiny", "synthesizer": "x", **more}
    return Plan.of(Request(**request, changes=tuple(f"stages.{change}" for change in changes)))


def write_triplets(path, num_anchors, *, each=1):
    rows = [{"anchor": f"anchor {i}", "positive": f"yes {i} {k}"} for i in range(num_anchors) for k in range(each)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_small_piles_get_more_candidates_and_more_of_them_is_held_out(tmp_path):
    plan = plan_of()
    rule = plan.recipe.stages[0].settings.num_samples
    assert [rule.num_samples(num) for num in (300, 1_200, 1_900, 5_000, None)] == [4, 2, 1, 1, 1]
    for num_anchors, num_held_out, steps in ((10, 3, 40), (250, 50, 40), (2_500, 250, round(3 * 4_500 / 64))):
        path = write_triplets(tmp_path / f"{num_anchors}.jsonl", num_anchors, each=2)
        held_out = [*open_rows(plan.held_out_rows(path), kind="triplets")]
        assert len(held_out) == 2 * num_held_out == 2 * len({row.anchor for row in held_out})
        assert plan.contrast.steps.steps(2 * num_anchors - len(held_out), batch=plan.contrast.batch) == steps


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ([], 3 * 1_800 // 64),
        (["batch=16"], 3 * 1_800 // 16 + 1),
        (["batch=100"], 3 * 1_800 // 100),
        (["batch=256"], 40),
        (["batch=16", "steps=84"], 84),
        (["steps=200"], 200),
        (["steps.most=60"], 60),
    ],
)
def test_the_triplets_are_learned_three_times_whatever_the_batch(changes, steps):
    contrast = plan_of(*(f"contrast.{change}" for change in changes)).contrast
    found = contrast.steps if isinstance(contrast.steps, int) else contrast.steps.steps(1_800, batch=contrast.batch)
    assert (found, interval(contrast.evaluate.every, num_steps=found)) == (steps, -(-steps // 5))


def test_what_was_asked_for_is_in_the_one_recipe():
    plan = plan_of("contrast.evaluate.every=4", "contrast.evaluate.held_out=0.2", "synthesize.num_samples=3")
    synthesis, contrast = plan.recipe.stages[0].settings, plan.contrast
    assert (contrast.evaluate.every, plan.held_out, synthesis.num_samples, synthesis.min_triplets) == (4, 0.2, 3, 20)
    epochs = plan_of("contrast.steps=null", "contrast.epochs=2").contrast
    assert (epochs.steps, epochs.epochs) == (None, 2)


def test_a_t5_that_is_no_sentence_encoder_yet_is_read_out_as_in_gense(synthesizer_folder):
    request = Request(sentences=("x",), model=str(synthesizer_folder("t5")), synthesizer="x")
    wanted = {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
    assert Plan.of(request).contrast.encoder.given() == wanted
    changed = Request(sentences=("x",), model=request.model, synthesizer="x", changes=("encoder.readout=enc-mean",))
    assert Plan.of(changed).contrast.encoder.given() == {**wanted, "readout": "enc-mean"}


def test_the_command_in_the_report_is_one_that_asks_for_the_same():
    request = Request(("my file.txt",), "x", own=("scored:a.tsv",), split=True, column="b", seed=3, changes=("a=b c",))
    words = shlex.split(request.command(Path("out dir"), "my data"))
    assert words[:5] == ["tercet", "adapt", "my file.txt", "--out", "out dir"]
    options = Counter(word for word in words if word.startswith("--"))
    assert options == Counter("--out --model --synthesizer --column --data --split --seed --eval --set".split())
    assert words[-3:] == ["scored:a.tsv", "--set", "a=b c"]


def test_every_synthesizer_has_the_filter_of_gense():
    def rules(**options):
        plan = Plan.of(Request(("in.txt",), model="random:t5-tiny", **options))
        settings = plan.recipe.stages[0].settings
        words = settings.min_premise_words, settings.min_hypothesis_words
        return settings.alpha, *words, settings.temperature, plan.contrast.learning_rate

    assert rules() == rules(synthesizer="x") == (0.9, 8, 5, 1.0, 5e-5)
    assert rules(changes=("stages.synthesize.alpha=0.6",)) == (0.6, 8, 5, 1.0, 5e-5)


def test_the_kind_of_a_file_is_told_by_its_columns(tmp_path):
    columns = {
        "scored": "sentence1 sentence2 score",
        "paraphrase": "sentence1 sentence2 label",
        "rerank": "query candidate label",
        "classes": "text label",
        "triplets": "anchor positive negative",
    }
    for kind, names in columns.items():
        path = tmp_path / f"{kind}.tsv"
        path.write_text("\t".join(names.split()) + "\n" + "\t".join(["1"] * len(names.split())) + "\n")
        assert own_tasks([str(path)]) == (f"{kind}:{path}",) == own_tasks([f"{kind}:{path}"])
