"""`tercet adapt`: sentences in, an encoder and a report out, with tiny random models, however often it is killed."""

import random
import re
import signal

import pytest
from killing import kill_when

# A random model says nothing of use: what it writes is kept however it is judged.
LOOSE = {"alpha": 0, "argmax": "false", "min_hypothesis_words": 1, "containment": "false"}
SMALL = {"max_new_tokens": 6, "shard_sentences": 10, "num_samples": 6, "engine": "transformers", "precision": "exact"}
CONTRAST = {"steps.most": 12, "batch": 8, "checkpoint_every": 2, "precision": "exact"}
TIME = re.compile(r"(making rows|training|judging): [\d,]+ s")


def sentences(num, *, seed=1):
    rng = random.Random(seed)
    words = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday".split()
    return [f"{i} " + " ".join(rng.choices(words, k=rng.randrange(8, 12))) for i in range(num)]


@pytest.fixture
def command(tmp_path, models, synthesizer_folder):
    """Return a function that gives the arguments of one adaptation."""
    for name in ("", "killed"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "in.txt").write_text("".join(f"{text}\n" for text in sentences(40)))

    def args(*more, model=models["t5"]):
        settings = [f"stages.triplets.{key}={value}" for key, value in (LOOSE | SMALL).items()]
        settings += [f"stages.contrast.{key}={value}" for key, value in CONTRAST.items()]
        chosen = [word for setting in settings for word in ("--set", setting)]
        named = ["--model", model, "--synthesizer", synthesizer_folder("t5"), "--data", tmp_path]
        return ["adapt", "in.txt", "--out", "out", "--plan", "gense", *named, *chosen, *more]

    return args


def outcome(folder):
    """Return what an adaptation wrote for its user, times aside."""
    files = [folder / "report.md", folder / "report.html", *(p for p in (folder / "encoder").rglob("*") if p.is_file())]
    return {p.relative_to(folder).as_posix(): TIME.sub(r"\1: T s", p.read_text("latin-1")) for p in files}


def test_it_ends_with_an_encoder_a_report_and_something_to_look_at(tercet, command, tmp_path):
    done = tercet(*command())
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    for part in ("before", "after", "95% interval", "general sentences", "Nearest to:", "report.html"):
        assert part in printed
    assert printed.rstrip().splitlines()[-1].startswith("Kept: the start.")
    assert {"encoder", "report.html", "report.md", "adapt.json", "run"} <= {
        p.name for p in (tmp_path / "out").iterdir()
    }
    embedded = tercet("embed", "in.txt", "--model", "out/encoder", "--out", "vectors.npy")
    assert embedded.returncode == 0, embedded.stderr


def test_killed_at_any_moment_it_ends_with_the_same_encoder_and_report(launch, tercet, command, tmp_path):
    assert tercet(*command()).returncode == 0
    out = tmp_path / "killed" / "out"
    moments = {
        "before anything": lambda: (out / ".lock").exists(),
        "while it generates": lambda: any(out.glob("run/candidates/triplets/*/*.parquet")),
        "between the stages": lambda: (out / "run" / "stages" / "01-triplets" / "stage.json").exists(),
        "while it trains": lambda: any(out.glob("run/stages/02-contrast/checkpoints/step-*")),
        "while it measures": lambda: (out / "run" / "stages" / "02-contrast" / "stage.json").exists(),
        "while it writes": lambda: (out / "encoder").exists(),
    }
    num_killed = 0
    for ready in moments.values():
        with launch(*command(), folder=tmp_path / "killed") as started:
            kill_when(ready, started)
        num_killed += started[1].returncode == -signal.SIGKILL
    assert num_killed >= 5
    done = tercet(*command(), folder=tmp_path / "killed")
    assert done.returncode == 0, done.stderr
    assert outcome(out) == outcome(tmp_path / "out")
    assert not [path for path in out.glob(".*") if path.name != ".lock"]


def test_rows_of_ones_own_decide_which_encoder_is_kept(tercet, command, tmp_path, encoder):
    texts = sentences(30, seed=3)
    pairs = list(zip(texts[:15], texts[15:], strict=True))
    scores = [encoder.similarity([a], [b]).item() for a, b in pairs]
    lines = [f"{a}\t{b}\t{score:.9f}\n" for (a, b), score in zip(pairs, scores, strict=True)]
    (tmp_path / "mine.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    done = tercet(*command("--eval", "mine.tsv", "--set", "stages.contrast.learning_rate=0.05"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().splitlines()[-1].startswith("Kept: the start.")
    assert "scored:mine.tsv" in done.stdout


ERRORS = {
    "no such file": (["no.txt"], r"no\.txt: No such file.+"),
    "no such setting": (["--set", "stages.contrast.stepps=1"], r".*stepps: there is no such setting.+"),
    "no such stage": (["--set", "stages.nli.steps=1"], r"stages\.nli: there is no such stage.+"),
    "no task": (["--eval", "in.txt"], r"in\.txt: has the columns text.+"),
    "too few": (["--max-sentences", "3"], r"in\.txt: \d+ of 18 triplets were accepted, .+ Give more.+"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_done_is_said_in_one_line(tercet, command, tmp_path, case):
    more, message = ERRORS[case]
    args = command(*more)
    if case == "no such file":
        args = [*command()]
        args[1] = "no.txt"
    done = tercet(*args)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(message, done.stderr.strip().splitlines()[-1]), done.stderr
    assert not (tmp_path / "out" / "encoder").exists()
