"""The plan of `adapt`: what follows from the sentences, the triplets and the settings that were asked for."""

import shlex
from collections import Counter
from pathlib import Path

import pytest

from tercet.adaptation.judges import own_tasks
from tercet.adaptation.plan import Plan, Request, chosen_plan


def plan_of(*changes, num_texts=1_000, **more):
    request = {"sentences": ("in.txt",), "model": "random:t5-tiny", "synthesizer": "x", **more}
    request = Request(**request, changes=tuple(f"stages.{change}" for change in changes))
    return Plan.of(request, num_texts=num_texts)


@pytest.mark.parametrize(
    ("plan", "stages"),
    [
        ("titles", ["titles", "contrast"]),
        ("reweight", ["spans", "reweight"]),
        ("spans", ["spans", "contrast"]),
        ("mixture", ["spans", "titles", "triplets", "contrast"]),
        ("gense", ["triplets", "contrast"]),
    ],
)
def test_every_plan_learns_from_all_that_its_stages_make(plan, stages):
    made = plan_of(plan=plan)
    assert [stage.name for stage in made.recipe.stages] == stages
    assert [source.path for source in made.learning.rows.sources] == [f"@{name}" for name in stages[:-1]]


def test_directions_are_weighted_after_training():
    plan = plan_of(plan="titles-reweight")
    names = [stage.name for stage in plan.recipe.stages]
    assert names == ["titles", "spans", "contrast", "reweight"]
    contrast, reweight = (stage.settings for stage in plan.recipe.stages[plan.first :])
    assert (contrast.start, reweight.start) == ("random:t5-tiny", "@contrast")
    assert [source.path for stage in (contrast, reweight) for source in stage.rows.sources] == ["@titles", "@spans"]


def test_texts_of_several_sentences_are_weighted_by_their_parts():
    several, one = "Two dogs run through snow. They do not stop today.", "Two dogs run through the snow, and on."
    assert chosen_plan([several] * 25 + [one] * 75) == "titles-reweight"
    assert chosen_plan([several] * 24 + [one] * 76) == "titles"
    assert chosen_plan([]) == "titles"


@pytest.mark.parametrize(("num_texts", "share"), [(100, 0.25), (5_000, 0.1), (1_000_000, 0.02), (None, 0.1)])
def test_so_many_texts_are_held_out(num_texts, share):
    plan = plan_of(num_texts=num_texts)
    assert plan.border == pytest.approx(1 - share)
    assert [source.share for source in plan.texts(held_out=True).sentences] == [(plan.border, 1.0)]
    assert [source.share for source in plan.sentences().sentences] == [(0.0, plan.border)]


def test_documents_are_split_to_learn_from_and_judged_whole():
    plan = plan_of(split=True)
    assert plan.sentences().split and not plan.texts(held_out=True).split


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ([], 3_000 // 64 + 1),
        (["batch=16"], 188),
        (["batch=1000"], 20),
        (["batch=2"], 300),
        (["steps=84"], 84),
        (["steps.most=30"], 30),
    ],
)
def test_the_rows_are_learned_once_whatever_the_batch(changes, steps):
    contrast = plan_of(*(f"contrast.{change}" for change in changes), plan="spans").learning
    found = contrast.steps if isinstance(contrast.steps, int) else contrast.steps.steps(3_000, batch=contrast.batch)
    assert found == steps


def test_a_t5_that_is_no_sentence_encoder_yet_is_read_out_as_in_gense(synthesizer_folder):
    request = Request(sentences=("x",), model=str(synthesizer_folder("t5")), synthesizer="x")
    wanted = {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
    assert Plan.of(request, num_texts=9).learning.encoder.given() == wanted
    changed = Request(sentences=("x",), model=request.model, synthesizer="x", changes=("encoder.readout=enc-mean",))
    assert Plan.of(changed, num_texts=9).learning.encoder.given() == {**wanted, "readout": "enc-mean"}


def test_the_command_in_the_report_is_one_that_asks_for_the_same():
    request = Request(
        ("my file.txt",),
        synthesizer="x",
        own=("scored:a.tsv",),
        split=True,
        column="b",
        seed=3,
        keep_anyway=True,
        changes=("a=b c",),
    )
    words = shlex.split(request.command(Path("out dir"), "my data"))
    assert words[:5] == ["tercet", "adapt", "my file.txt", "--out", "out dir"]
    options = Counter(word for word in words if word.startswith("--"))
    assert options == Counter(
        "--out --plan --model --synthesizer --column --data --split --keep-anyway --seed --eval --set".split()
    )
    assert words[-3:] == ["scored:a.tsv", "--set", "a=b c"]


def test_every_synthesizer_has_the_filter_of_gense():
    def rules(**options):
        plan = Plan.of(Request(("in.txt",), plan="gense", model="random:t5-tiny", **options), num_texts=9)
        settings = plan.recipe.stages[0].settings
        words = settings.min_premise_words, settings.min_hypothesis_words
        return settings.alpha, *words, settings.temperature, plan.learning.learning_rate

    assert rules() == rules(synthesizer="x") == (0.9, 8, 5, 1.0, 5e-5)
    assert rules(changes=("stages.triplets.alpha=0.6",)) == (0.6, 8, 5, 1.0, 5e-5)


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
