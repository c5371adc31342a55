"""Recipes: what is read, what is refused and with which path, and the recipes that come with Tercet."""

import itertools
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml

from tercet import InputError, SettingError
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.settings import HeldOutRule
from tercet.synthesis.settings import SampleRule
from tercet.training.loop.settings import StepRule, TimesRule
from tercet.training.pipeline import check_tasks
from tercet.training.recipe import RecipeFile, make_recipe, read_recipe
from tercet.training.stages.adapters import LoraSettings
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.scores import DevSettings
from tercet.training.stages.trained import EncoderStartSettings, StartSettings, TrainedSettings
from tercet.training.train import train

RECIPES = Path(__file__).parents[2] / "recipes"

TWO_STAGES = """
start: t5-base
tokenizer: minilm
encoder: {readout: enc-mean, max_tokens: 64}
stages:
  - name: qa
    contrast:
      encoder: {max_tokens: 128}
      rows: [eli5.jsonl, {path: gooaq.jsonl}]
      batch: 1024
      learning_rate: 5e-5
      epochs: 1
  - name: nli
    contrast:
      start: "@qa"
      rows: nli.tsv
      batch: 512
      learning_rate: 1.0e-3
      steps: 10
      evaluate: {every: 5}
evaluate: [sts]
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text=TWO_STAGES, *changes):
        (tmp_path / "my.yaml").write_text(text)
        return read_recipe(tmp_path / "my.yaml", changes=changes)

    return from_text


def test_stages_take_what_they_do_not_say_from_the_top(read):
    recipe = read()
    qa, nli = (stage.settings for stage in recipe.stages)
    assert recipe.name == "my"
    assert (qa.start, qa.tokenizer, qa.encoder.given()) == (
        "t5-base",
        "minilm",
        {"readout": "enc-mean", "max_tokens": 128},
    )
    assert (nli.start, nli.tokenizer, nli.encoder.given()) == ("@qa", None, {"readout": "enc-mean", "max_tokens": 64})
    assert qa.learning_rate == 5e-5  # which YAML reads as a text
    assert [source.path for source in qa.rows.sources] == ["eli5.jsonl", "gooaq.jsonl"]
    assert [stage.references() for stage in recipe.stages] == [[], ["qa"]]
    assert (nli.evaluate.task, nli.evaluate.every, nli.evaluate.keep) == ("STSB-dev", 5, "best")


def test_a_resolved_recipe_is_a_recipe(read):
    recipe = read()
    again = read(recipe.as_yaml())
    assert again == recipe
    assert "min_temperature" in yaml.safe_load(recipe.as_yaml())["stages"][0]["contrast"]


def test_values_are_set_by_path(read):
    changes = ["seed=7", "start=t5-large", "stages.0.batch=256", "stages.nli.batch=128", "stages.1.contrast.steps=3"]
    more = ["stages.nli.evaluate.every=9", "stages.qa.evaluate.task=STSB", "encoder.prompt=[X] Question: what?"]
    recipe = read(TWO_STAGES, *changes, *more, "evaluate=[sts, transfer]", "stages.qa.clip=null")
    qa, nli = (stage.settings for stage in recipe.stages)
    assert recipe.seed == 7
    assert recipe.evaluate == ("sts", "transfer")
    assert (qa.start, qa.batch, qa.clip, qa.evaluate.task) == ("t5-large", 256, None, "STSB")
    assert (nli.batch, nli.steps, nli.evaluate.every) == (128, 3, 9)
    assert qa.encoder.prompt == "[X] Question: what?"


def test_a_setting_may_have_the_name_of_a_kind_of_stage(read):
    assert read(TWO_STAGES, "stages.qa.tokenizer=minilm").stages[0].settings.tokenizer == "minilm"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sed=7", r"^sed: there is no such setting\. Known here: seed"),
        ("seed=-1", r"^seed -1: "),
        ("seed", r"--set seed=VALUE"),
        ("stages.qa.bach=3", r"^stages\.qa\.contrast\.bach: there is no such setting\. Known here: batch"),
        ("stages.qa.batch=1", r"^stages\.qa\.contrast\.batch 1: "),
        ("stages.qa.batch=many", r"^stages\.qa\.contrast\.batch 'many': "),
        ("stages.qa.learning_rate=NaN", r"^stages\.qa\.contrast\.learning_rate nan: "),
        ("stages.qa.optimizer=sgd", r"^stages\.qa\.contrast\.optimizer 'sgd': .*'adafactor', 'adamw' or 'rmsprop'"),
        ("stages.qa.temperature=0", r"^stages\.qa\.contrast\.temperature 0: "),
        ("stages.qa.steps=5", r"^stages\.qa\.contrast: exactly one of steps and epochs"),
        ("stages.qa.rows=[]", r"^stages\.qa\.contrast\.rows\.sources: "),
        ("stages.qa.rows.sources=[]", r"'sources' is no place in a list\. Take a number below 2"),
        (
            "stages.qa.rows.0.weight=2",
            r"^--set stages\.qa\.rows\.0\.weight=2: 'eli5\.jsonl' has no settings of its own",
        ),
        ("stages.qa.rows.0.columns.anchor=x", r"^--set stages\.qa\.rows\.0\.columns\.anchor=x: 'eli5\.jsonl' has no"),
        ("stages.qa.rows=null", r"^stages\.qa\.contrast\.rows None: "),
        ("stages.nli.evaluate.evry=2", r"^stages\.nli\.contrast\.evaluate\.evry: there is no such.*: every\."),
        ("stages.nli.lora.rang=2", r"^stages\.nli\.contrast\.lora\.rang: there is no such.*: rank\."),
        ("stages.nli.encoder.redout=cls", r"^stages\.nli\.contrast\.encoder\.redout: there is no such.*: readout\."),
        ("stages.nli.start=@other", r"^stages\.nli: @other is no earlier stage\. Earlier ones: qa\."),
        ("stages.qa.start=@nli", r"^stages\.qa: @nli is no earlier stage\. Earlier ones: none\."),
        ("stages.nli.rows=@synthetic", r"^stages\.nli: @synthetic is no earlier stage"),
        ("stages.nli.name=qa", r"^stages\.1\.name 'qa': another stage has it"),
        ("stages.nli.name=a/b", r"^stages\.1\.name 'a/b': does not fit"),
        ("stages.nli.classify={}", r"^stages\.nli: has 2 kinds"),
        ("stages.2.batch=3", r"^stages\.2: there is no such stage\. Take a number below 2, or one of: qa, nli"),
        ("stages.nli.rows=${TERCET_NO_SUCH_VARIABLE}/x.tsv", r"^\$\{TERCET_NO_SUCH_VARIABLE\}: the environment has no"),
        ("stages=[]", r"^stages: "),
        ('stages=[{"contrat": {}}]', r"^stages\.0\.contrat: there is no such kind of stage\. Known: tokenizer"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(read, change, message):
    with pytest.raises(SettingError, match=message):
        read(TWO_STAGES, change)


def test_a_stage_without_a_name_is_called_by_its_kind(read):
    content = {
        "start": "t5-base",
        "stages": [{"contrast": {"rows": "a.tsv", "batch": 8, "steps": 1, "learning_rate": 1}}],
    }
    recipe = read(yaml.safe_dump(content), "stages.contrast.batch=9", "stages.contrast.contrast.steps=2")
    assert (recipe.stages[0].settings.batch, recipe.stages[0].settings.steps) == (9, 2)
    with pytest.raises(SettingError, match=r"^stages\.classify: there is no such stage\. .*one of: contrast"):
        read(yaml.safe_dump(content), "stages.classify.batch=9")


@pytest.mark.parametrize("task", ["sts", "STSB-dev,sts"])
def test_tasks_select_and_no_group(read, task):
    recipe = read(TWO_STAGES, f"stages.nli.evaluate.task={task}")
    with pytest.raises(SettingError, match=r"^stages\.nli\.evaluate\.task 'sts': is 7 tasks.*Name those .*: STS12, ST"):
        check_tasks(recipe)
    check_tasks(read(TWO_STAGES, "stages.nli.evaluate.task=STSB-dev,SICK-R"))


@pytest.mark.parametrize(("text", "problem"), [("a: [", "is not YAML"), ("- 1", "is not a mapping"), ("", "mapping")])
def test_a_file_that_is_no_recipe_is_refused(read, text, problem):
    with pytest.raises(InputError, match=problem):
        read(text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_variables_of_the_environment_are_put_in(read, monkeypatch):
    monkeypatch.setenv("TERCET_WHERE", "/somewhere")
    recipe = read(TWO_STAGES, "stages.nli.rows=${TERCET_WHERE}/nli.tsv")
    assert recipe.stages[1].settings.rows.sources[0].path == "/somewhere/nli.tsv"


def test_other_variables_are_put_in_only_where_they_are_allowed_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "xyzzy")
    (tmp_path / "r.yaml").write_text(TWO_STAGES)
    change = ["stages.nli.rows=acme/${SECRET}"]
    with pytest.raises(SettingError, match=r"\$\{SECRET\}: is not for recipes, .* --env SECRET\.") as refused:
        read_recipe(tmp_path / "r.yaml", changes=change)
    assert "xyzzy" not in str(refused.value)
    recipe = read_recipe(tmp_path / "r.yaml", changes=change, env=["SECRET"])
    assert recipe.stages[1].settings.rows.sources[0].path == "acme/xyzzy"


def test_leaks_follow_the_folder_with_the_evaluation_data(monkeypatch):
    monkeypatch.setenv("TERCET_DATA", "/root-of-data")
    for data, folder in (("/elsewhere", "/elsewhere"), (None, "/root-of-data/eval")):
        stages = read_recipe(RECIPES / "gense-domain.yaml", data=data).stages
        assert {str(path) for stage in stages for path in getattr(stage.settings, "leaks", [])} == {folder}
    monkeypatch.delenv("TERCET_DATA")
    assert str(read_recipe(RECIPES / "gense.yaml").stages[0].settings.leaks[0]) == "eval"
    for path in RECIPES.rglob("*.yaml"):
        assert not re.search(r"leaks:[^\n\[]*\[(?!\"\$\{DATA\})", path.read_text(encoding="utf-8")), path


def test_a_run_is_given_the_folder_of_its_data(tmp_path):
    (tmp_path / "my.yaml").write_text(
        "start: mini\nstages:\n  - contrast: {rows: {sources: [a.txt], leaks: ['${DATA}']}, batch: 8, steps: 1, "
        "learning_rate: 1.0e-3}\n"
    )
    found = train(tmp_path / "my.yaml", tmp_path / "run", data=tmp_path, dry_run=True).recipe
    assert found.stages[0].settings.rows.leaks == [tmp_path]
    swept = train(tmp_path / "my.yaml", tmp_path / "runs", data=tmp_path, dry_run=True, sweep=["seed=0,1"])
    assert {run.recipe.stages[0].settings.rows.leaks[0] for run in swept.runs.values()} == {tmp_path}


def test_a_change_of_one_stage_does_not_reach_what_an_alias_shares(read):
    recipe = read(
        "stages:\n"
        "  - {name: one, contrast: &both {start: mini, rows: [a.tsv], batch: 8, learning_rate: 1.0e-4, epochs: 1}}\n"
        "  - {name: two, contrast: *both}\n",
        "stages.two.rows.0=b.tsv",
        "stages.two.batch=16",
    )
    one, two = (stage.settings for stage in recipe.stages)
    assert (one.batch, two.batch) == (8, 16)
    assert [settings.rows.sources[0].path for settings in (one, two)] == ["a.tsv", "b.tsv"]


# The recipes that come with Tercet.


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(RECIPES)))
def test_every_recipe_is_valid(path, monkeypatch):
    monkeypatch.setenv("TERCET_DATA", "/data")
    monkeypatch.setenv("TERCET_TEXT", "/text")
    monkeypatch.setenv("TERCET_DOMAIN", "/domain")
    recipe = read_recipe(path)
    check_tasks(recipe)
    assert recipe.name == path.stem
    assert all(stage.settings.start for stage in recipe.stages if isinstance(stage.settings, StartSettings))


def test_every_recipe_has_a_mini_version_and_sizes_are_set_by_start(monkeypatch):
    monkeypatch.setenv("TERCET_DATA", "/data")
    names = {path.name for path in RECIPES.glob("*.yaml")}
    assert len(names) >= 10
    assert names <= {path.name for path in (RECIPES / "mini").glob("*.yaml")}
    for name in names:
        whole, mini = read_recipe(RECIPES / name), read_recipe(RECIPES / "mini" / name)
        stages = [stage for stage in mini.stages if stage.kind != "tokenizer"]  # which a fresh model may need
        assert [(s.name, s.kind) for s in whole.stages] == [(s.name, s.kind) for s in stages]
        for ours, theirs in zip(stages, whole.stages, strict=True):
            if isinstance(theirs.settings, EncoderStartSettings):
                for key in ("prompt",) if name == "parallel-designs.yaml" else ("readout", "prompt"):
                    assert getattr(ours.settings.encoder, key) == getattr(theirs.settings.encoder, key)
        changed = read_recipe(RECIPES / name, changes=["start=some-large"])
        starts = [stage.settings.start for stage in changed.stages if isinstance(stage.settings, StartSettings)]
        assert starts[0] == "some-large"


def test_a_stage_that_trains_a_t5_to_write_has_no_readout():
    loop = {"rows": ["a.txt"], "batch": 8, "steps": 1, "learning_rate": 1e-3}
    content = {"start": "x", "encoder": {"readout": "enc-mean"}, "stages": [{"denoise": loop}, {"contrast": loop}]}
    first, second = make_recipe(content, default_name="x").stages
    assert "encoder" not in first.dump()
    assert second.dump()["encoder"] == {"readout": "enc-mean"}
    content["stages"][0] = {"denoise": {**loop, "encoder": {"readout": "enc-mean"}}}
    with pytest.raises(SettingError, match=r"stages\.denoise\.denoise\.encoder"):
        make_recipe(content, default_name="x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, r"stages\.contrast\.contrast\.steps 0: Input should be greater"),
        ({"steps": "some"}, r"stages\.contrast\.contrast\.steps 'some': Input should be a valid integer"),
        ({"steps": {"epochs": 0}}, r"contrast\.steps\.epochs 0: "),
        ({"steps": {"epochs": 1, "leest": 3}}, r"contrast\.steps\.leest: there is no such setting\. .+ least"),
        ({"steps": {"epochs": 1}, "epochs": 1}, "exactly one of steps and epochs"),
        ({"steps": {"epochs": 1}, "rows": {"path": "hub:a/b", "stream": True}}, "steps: .+ a stream has none"),
        ({"evaluate": {"every": {"times": 0}}}, r"contrast\.evaluate\.every\.times 0: "),
        ({"trajectory": {"every": {}}}, r"contrast\.trajectory\.every\.times: is missing"),
        ({"evaluate": {"held_out": 1.0}}, r"contrast\.evaluate\.held_out 1\.0: Input should be less than 1"),
        ({"evaluate": {"held_out": {"rows": 9, "least": 0.5, "most": 0.2}}}, "held_out: least is more than most"),
        ({"evaluate": {"held_out": 0.1, "task": "STSB"}}, "three things to score on: give one of them"),
        ({"evaluate": {"held_out": 0.1}, "rows": {"path": "hub:a/b", "stream": True}}, "hub:a/b: no part of a stream"),
        ({"evaluate": {"held_out": 0.1}, "rows": {"path": "a", "share": 0.5}}, r"from where to where: \[0, 0\.5\]"),
    ],
)
def test_a_number_or_a_rule_that_does_not_fit_is_named_by_its_path(settings, message):
    loop = {"rows": "a.txt", "batch": 8, "learning_rate": 1e-3, "start": "x"}
    length = {} if "steps" in settings else {"steps": 1}
    with pytest.raises(SettingError, match=message):
        make_recipe({"stages": [{"contrast": {**loop, **length, **settings}}]}, default_name="x")


def test_rules_are_in_the_recipe_that_a_run_writes_and_numbers_stay_numbers():
    loop = {"rows": "a.txt", "batch": 8, "learning_rate": 1e-3, "start": "x"}
    rules = {"steps": {"epochs": 3, "least": 40, "most": 1_000}, "evaluate": {"every": {"times": 5}, "held_out": 0.1}}
    content = {
        "stages": [{"name": "a", "contrast": {**loop, **rules}}, {"name": "b", "contrast": {**loop, "steps": 7}}]
    }
    recipe = make_recipe(content, default_name="x")
    assert make_recipe(yaml.safe_load(recipe.as_yaml()), default_name="x") == recipe
    first, second = (stage.dump() for stage in recipe.stages)
    assert first["steps"] == rules["steps"] and first["evaluate"].items() >= rules["evaluate"].items()
    assert second["steps"] == 7 and "held_out" not in str(second)
    changed = make_recipe(content, default_name="x", changes=["stages.a.steps=9", "stages.a.evaluate.every=2"])
    assert (changed.stages[0].settings.steps, changed.stages[0].settings.evaluate.every) == (9, 2)


def test_parallel_pairs_are_not_held_out():
    stage = {"rows": "a.tsv", "batch": 8, "steps": 1, "learning_rate": 1e-3, "start": "x", "source": "y"}
    with pytest.raises(SettingError, match=r"evaluate\.held_out: parallel pairs are not scored as triplets"):
        make_recipe({"stages": [{"parallel": {**stage, "evaluate": {"held_out": 0.1}}}]}, default_name="x")


def test_every_setting_is_in_the_documentation():
    pytest.importorskip("mkdocs")
    docs = RECIPES.parent / "docs"
    text = "".join((docs / name).read_text() for name in ("training.md", "synthesis.md")).replace("```", "")
    text += runpy.run_path(str(docs / "generate.py"))["settings_page"]()  # which has the tables of all classes
    documented = {*re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text)))}
    rules = [StepRule, TimesRule, HeldOutRule, SampleRule]
    classes = [RecipeFile, DevSettings, LoraSettings, *rules, *(kind.settings for kind in KINDS.values())]
    names = {name for settings in classes for name in settings.model_fields}
    assert names | KINDS.keys() <= documented


# Batch, temperature and learning rate as the papers print them.
PRINTED = {
    "st5-enc-mean-nli": {"nli": (512, 0.01, 1e-3)},
    "st5-encdec-first-nli": {"nli": (512, 0.01, 1e-3)},
    "st5-enc-mean-cqa-nli": {"cqa": (2048, 0.01, 1e-3), "nli": (512, 0.01, 1e-3)},
    "st5-1.1-enc-mean-cqa-nli": {"cqa": (2048, 0.01, 1e-3), "nli": (512, 0.01, 1e-3)},
    "gense-nli": {"nli": (512, 0.05, 5e-5)},
    "gense-nli-no-prompt": {"nli": (512, 0.05, 5e-5)},
    "gense-qa": {"qa": (1024, 0.01, 5e-5), "nli": (512, 0.05, 5e-5)},
    "gense": {"open-domain": (1024, 0.05, 5e-5), "nli": (512, 0.05, 5e-5)},
    "gense-plus": {"open-domain": (1024, 0.05, 5e-5), "qa": (1024, 0.01, 5e-5), "nli": (512, 0.05, 5e-5)},
    "gense-domain": {
        "open-domain": (1024, 0.05, 5e-5), "in-domain": (1024, 0.05, 5e-5), "nli": (512, 0.05, 5e-5)
    },
    "gense-domain-no-nli": {"open-domain": (1024, 0.05, 5e-5), "in-domain": (1024, 0.05, 5e-5)},
}  # fmt: skip


def test_the_synthesizer_has_the_numbers_of_its_paper():
    settings = read_recipe(RECIPES / "synthesizer.yaml").stages[0].settings
    assert (settings.batch * 4, settings.learning_rate, settings.epochs) == (256, 5e-5, 10)  # a triplet is 4 instances
    assert (settings.optimizer, settings.max_sentence_tokens, settings.max_target_tokens) == ("adafactor", 96, 48)
    assert (settings.evaluate.every, settings.evaluate.keep) == (500, "best")
    half = read_recipe(RECIPES / "synthesizer.yaml", changes=["stages.synthesizer.rows.share=0.5"])  # Table 7
    assert half.stages[0].settings.rows.sources[0].share == 0.5


@pytest.mark.parametrize("name", PRINTED)
def test_a_recipe_has_the_numbers_of_its_paper(name):
    recipe = read_recipe(RECIPES / f"{name}.yaml")
    training = [stage for stage in recipe.stages if stage.kind == "contrast"]
    found = {
        stage.name: (stage.settings.batch, stage.settings.temperature, stage.settings.learning_rate)
        for stage in training
    }
    assert found == PRINTED[name]
    for stage in training:
        settings = stage.settings
        assert (settings.optimizer, settings.schedule, settings.hold_fraction) == ("adafactor", "hold-linear", 0.1)
        assert settings.scale_parameters == name.startswith("st5")
        assert settings.dropout is not None


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_paper_s_recipe_cuts_texts_in_training_and_evaluates_as_the_paper(path):
    for stage in read_recipe(path).stages:
        if isinstance(stage.settings, TrainedSettings):
            assert stage.settings.max_tokens is not None
            assert "max_tokens" not in stage.settings.encoder.given()
            assert stage.settings.encoder.normalize is path.stem.startswith("st5")  # as their code does


@pytest.mark.parametrize("name", ["tsdae-domain", "tsdae-domain-no-nli"])
def test_tsdae_has_the_numbers_of_its_paper(name):
    settings = read_recipe(RECIPES / f"{name}.yaml").stages[0].settings
    assert (settings.deleted, settings.tie_decoder, settings.encoder.readout) == (0.6, True, "cls")
    assert (settings.batch, settings.learning_rate, settings.schedule) == (8, 3e-5, "constant")
    assert (settings.optimizer, settings.steps) == ("adamw", 100_000)
    t5 = ["start=t5-base", "encoder.readout=enc-mean", "stages.in-domain.tie_decoder=false"]
    assert read_recipe(RECIPES / f"{name}.yaml", changes=t5).stages[0].settings.tie_decoder is False


def test_contrastive_tension_has_the_numbers_of_its_example():
    settings = read_recipe(RECIPES / "ct-domain-no-nli.yaml").stages[0].settings
    assert (settings.batch, settings.negatives, settings.max_tokens) == (16, 7, 75)
    assert (settings.optimizer, settings.learning_rate, settings.weight_decay) == ("rmsprop", 1e-5, 0)


SIMCSE = [path.stem for path in sorted(RECIPES.glob("*simcse*.yaml"))]


@pytest.mark.parametrize("name", SIMCSE)
def test_the_mlp_of_simcse_starts_fresh_once_and_its_loss_of_words_is_a_setting(name):
    stages = [stage.settings for stage in read_recipe(RECIPES / f"{name}.yaml").stages]
    assert [settings.fresh_mlp for settings in stages] == [True, False][: len(stages)]
    kind = f"stages.{read_recipe(RECIPES / f'{name}.yaml').stages[0].name}"
    assert (
        read_recipe(RECIPES / f"{name}.yaml", changes=[f"{kind}.mlm_weight=0.1"]).stages[0].settings.mlm_weight == 0.1
    )


SYNTHETIC = [name for name in PRINTED if "open-domain" in PRINTED[name]]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_triplets_are_made_with_the_numbers_of_the_paper(name):
    for stage in read_recipe(RECIPES / f"{name}.yaml").stages:
        if stage.kind == "synthesize":
            chosen = stage.settings
            assert (chosen.strategy, chosen.num_samples, chosen.top_p, chosen.top_k) == ("generate", 1, 0.9, 50)
            assert (chosen.alpha, chosen.min_premise_words, chosen.min_hypothesis_words) == (0.9, 8, 5)


ABLATIONS = {
    "stages.open-domain.rows.share=0.2": lambda stages: stages["open-domain"].rows.sources[0].share == 0.2,
    "stages.nli.rows.share=0.5": lambda stages: stages["nli"].rows.sources[0].share == 0.5,
    "encoder.prompt=null": lambda stages: stages["nli"].encoder.given()["prompt"] is None,
    "stages.synthetic.strategy=no-negatives": lambda stages: stages["synthetic"].strategy == "no-negatives",
    "stages.synthetic.strategy=retrieval": lambda stages: stages["synthetic"].strategy == "retrieval",
}
HALF_OF_NLI = "stages.nli.rows.share=0.5"
WITHOUT_SYNTHETIC = ["gense-nli", "gense-nli-no-prompt", "gense-qa"]


@pytest.mark.parametrize(
    ("name", "change"),
    [*(("gense", change) for change in ABLATIONS), *((name, HALF_OF_NLI) for name in WITHOUT_SYNTHETIC)],
)
@pytest.mark.parametrize("folder", [RECIPES, RECIPES / "mini"])
def test_an_ablation_is_one_setting(folder, name, change, monkeypatch):
    monkeypatch.setenv("TERCET_DATA", "/data")
    recipe = read_recipe(folder / f"{name}.yaml", changes=[change])
    assert ABLATIONS[change]({stage.name: stage.settings for stage in recipe.stages})
    assert change in (RECIPES.parent / "docs" / "synthesis.md").read_text()


def test_every_ablation_in_the_page_on_synthesis_is_valid():
    text = (RECIPES.parent / "docs" / "synthesis.md").read_text()
    rows = text[text.index("| ablation | how |") :].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) >= 7
    for row in rows:
        words = shlex.split(re.findall(r"`([^`]+)`", row)[0])
        path = words[2] if words[:2] == ["tercet", "train"] else "recipes/gense.yaml"
        changes = ["evaluate=STSB-dev,domain"]
        changes += [value for key, value in itertools.pairwise(words) if key == "--set"]
        check_tasks(read_recipe(RECIPES.parent / path, changes=changes))


# Batch over 8 GPUs, rate, queue and temperature of parallel translation: Tables 1, 5 and 6, Sections 4.2 and 4.4.2.
STEP_A, STEP_B = (8 * 200, 5e-5, 200_000, 1.0), (8 * 400, 2e-4, 10_000, 1.0)
ZH_NLI, EN_NLI = (8 * 96, 1e-5, 0, 0.05), (8 * 128, 1e-5, 0, 0.05)
PARALLEL = {
    "parallel-translation": {"zh-from-en": STEP_A, "zh-nli": ZH_NLI, "en-from-zh": STEP_B, "en-nli": EN_NLI},
    "parallel-chinese-simcse": {"zh-simcse": ZH_NLI, "en-from-zh": STEP_B},
    "parallel-designs": {"parallel": (8 * 128, 2e-4, 0, 1.0)},
}


@pytest.mark.parametrize("name", PARALLEL)
def test_a_recipe_of_parallel_translation_has_the_numbers_of_its_paper(name):
    stages = {stage.name: stage for stage in read_recipe(RECIPES / f"{name}.yaml").stages}
    found = {
        stage.name: (s.batch, s.learning_rate, getattr(s, "queue", 0), s.temperature)
        for stage in stages.values()
        for s in [stage.settings]
    }
    assert found == PARALLEL[name]
    for stage in stages.values():
        settings, is_parallel = stage.settings, stage.kind == "parallel"
        assert settings.encoder.readout == "cls-mlp"
        assert settings.encoder.mlp == ("training" if is_parallel else "always")  # Appendix C
        assert (settings.max_tokens, settings.dropout) == (50, 0.1)
        assert (settings.evaluate.every, settings.evaluate.keep) == (250, "best")
        assert settings.learn_temperature == is_parallel
        if is_parallel:
            assert (settings.schedule, settings.min_temperature) == ("cosine", 0.01)


@pytest.mark.parametrize(("name", "stage"), [("parallel-translation", 1), ("parallel-chinese-simcse", 0)])
def test_premises_of_cnsd_without_a_contradiction_are_no_triplets(name, stage):
    [source] = read_recipe(RECIPES / f"{name}.yaml").stages[stage].settings.rows.sources
    assert source.path == "cnsd/train.jsonl" and source.nli_pairs is False


@pytest.mark.parametrize(("name", "stage"), [("parallel-translation", 1), ("parallel-chinese-simcse", 0)])
def test_rows_of_cnsd_give_a_triplet_for_each_entailment_of_a_premise_with_a_contradiction(tmp_path, name, stage):
    """Its 315,298 triplets cannot be counted here; the rule that makes them is tried on rows of its format."""
    rows = [("一个人在弹吉他", "有人在演奏", "entailment"), ("一个人在弹吉他", "没有人", "contradiction")]
    rows += [
        ("一个人在弹吉他", "他很高", "neutral"),
        ("两只狗在跑", "狗在动", "entailment"),
        ("雪很深", "没有雪", "contradiction"),
    ]
    rows += [("一个人在弹吉他", "一个人有乐器", "entailment"), ("股市下跌", "股市上涨", "-")]
    lines = [json.dumps({"sentence1": a, "sentence2": b, "gold_label": label}) for a, b, label in rows]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    settings = read_recipe(RECIPES / f"{name}.yaml").stages[stage].settings.rows
    settings = settings.model_copy(
        update={"sources": [settings.sources[0].model_copy(update={"path": str(tmp_path / "train.jsonl")})]}
    )
    found = [(row.anchor, row.positive, row.negatives) for row in open_rows(settings, kind="triplets")]
    assert found == [
        ("一个人在弹吉他", "有人在演奏", ("没有人",)), ("一个人在弹吉他", "一个人有乐器", ("没有人",))
    ]  # fmt: skip


def test_every_command_in_the_page_on_parallel_contrast_is_valid(monkeypatch):
    monkeypatch.setenv("TERCET_DATA", "/data")
    lines = (RECIPES.parent / "docs" / "parallel.md").read_text().replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("tercet train ")]
    assert len(commands) >= 10
    for words in commands:
        changes = [value for key, value in itertools.pairwise(words) if key == "--set"]
        check_tasks(read_recipe(RECIPES.parent / words[2], changes=changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("encoder.readout=foo", r"readout 'foo': there is no such readout; known: enc-first"),
        ("encoder.max_tokens=null", r"max_tokens None: null has no meaning here"),
        ("stages.nli.encoder.readout=null", r"encoder\.readout None: null has no meaning"),
    ],
)
def test_encoder_settings_are_checked_before_any_model_is_read(read, change, message):
    with pytest.raises(SettingError, match=message):
        read(TWO_STAGES, change)


def test_changes_of_a_recipe_that_was_read_are_refused_and_not_lost(read, tmp_path):
    with pytest.raises(SettingError, match="changes: a recipe that was read has all its settings"):
        train(read(), tmp_path / "run", changes=["seed=3"])
    assert train(read(), tmp_path / "run", dry_run=True).recipe == read()
    assert train(tmp_path / "my.yaml", tmp_path / "run", changes="seed=3", dry_run=True).recipe.seed == 3
