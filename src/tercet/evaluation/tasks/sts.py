"""Semantic textual similarity: STS12-16, STS-B, SICK-R, and Chinese STS-B."""

from tercet.data.sets.folder import DataFolder, number
from tercet.errors import RowError
from tercet.evaluation.tasks.pairs import Pairs, score_spearman
from tercet.evaluation.tasks.task import Embed, Options, Result, Task

# SentEval's subsets of each year; STS13's SMT part is not distributed.
_YEARS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_NUM_PAIRS = {
    "STS12": 3108,
    "STS13": 1500,
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STSB": 1379,
    "STSB-dev": 1500,
    "SICK-R": 4927,
}


_JOINED = "joined"
"""The one subset of a year that was fetched from the hub, which knows no subsets."""


def _load_year(data: DataFolder, name: str) -> dict[str, Pairs]:
    """Read one year: an input and a gold file a subset, where a blank gold line means that the pair is not scored."""
    folder = f"senteval/STS/{name}-en-test"
    names: tuple[str, ...] = _YEARS[name]
    if data.has(f"{folder}/STS.input.{_JOINED}.txt") and not all(
        data.has(f"{folder}/STS.input.{subset}.txt") for subset in names
    ):
        names = (_JOINED,)
    subsets = {}
    for subset in names:
        inputs = list(data.columns(f"{folder}/STS.input.{subset}.txt", 2))
        golds = list(data.lines(f"{folder}/STS.gs.{subset}.txt"))
        if len(inputs) != len(golds):
            name = f"{folder}/STS.gs.{subset}.txt"
            raise RowError(f"{name}:{len(golds)}: {len(golds)} scores for {len(inputs)} pairs. Fetch the files again.")
        subsets[subset] = Pairs.of(
            (columns[0], columns[1], number(gold, where, low=0, high=5))
            for (_, columns), (where, gold) in zip(inputs, golds, strict=True)
            if gold.strip()
        )
    return subsets


def load_stsb(data: DataFolder, split: str) -> dict[str, Pairs]:
    """Read STS-B: genre, file, year, id, score, two sentences."""
    rows = data.columns(f"senteval/STS/STSBenchmark/sts-{split}.csv", 7)
    return {split: Pairs.of((c[5], c[6], number(c[4], where, low=0, high=5)) for where, c in rows)}


def _load_sick(data: DataFolder) -> dict[str, Pairs]:
    rows = data.columns("senteval/SICK/SICK_test_annotated.txt", 5)
    next(rows, None)
    return {"test": Pairs.of((c[1], c[2], number(c[3], where, low=1, high=5)) for where, c in rows)}


def load_chinese(data: DataFolder, split: str) -> dict[str, Pairs]:
    """Read Chinese STS-B: two sentences and a score, in the last three columns."""
    rows = data.columns(f"zh_stsb/sts-b-{split}.txt", 3)
    return {split: Pairs.of((c[-3], c[-2], number(c[-1], where, low=0, high=5)) for where, c in rows)}


def load_pairs(data: DataFolder, name: str) -> dict[str, Pairs]:
    """Read the pairs of a task by its name, subset by subset."""
    if name in _YEARS:
        return _load_year(data, name)
    if name == "SICK-R":
        return _load_sick(data)
    split = "dev" if name.endswith("-dev") else "test"
    return load_chinese(data, split) if name.startswith("ZH") else load_stsb(data, split)


def _task(name: str) -> Task:
    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        subsets = load_pairs(data, name)
        result = score_spearman(subsets, embed, items=options.items)
        notes = []
        if result["num"] != _NUM_PAIRS.get(name, result["num"]):
            notes.append(f"{_NUM_PAIRS[name]} pairs were expected")
        if _JOINED in subsets:
            notes.append("subsets are joined in one file: no means over subsets")
        return result | ({"note": "; ".join(notes)} if notes else {})

    return Task(name, run)


TASKS = [_task(name) for name in (*_YEARS, "STSB", "STSB-dev", "SICK-R", "ZH-STSB", "ZH-STSB-dev")]
