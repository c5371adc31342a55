"""Where the evaluation data is on the hub, and how its rows become the files that the tasks read.

A task is made of files. A file is made of the rows of one split, or is taken out of an archive as it is. A revision is
named where that commit is known to be right; elsewhere it is the newest.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tercet.errors import RowError

Row = Mapping[str, Any]
Rows = Iterable[tuple[str, Row]]
"""`dataset:split:number` and the row."""

Cell = str | Callable[[str, Row], str]
"""A column's name, or a function that writes a cell of a row."""


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the hub."""

    id: str
    config: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class RowsFile:
    """A file that is made of the rows of one split."""

    path: str
    """Where it is in the data folder."""
    dataset: HubDataset
    split: str
    lines: Callable[[Rows], Iterator[str]]
    num_rows: int | None = None
    """How many rows are known to be right."""


@dataclass(frozen=True)
class ArchiveFile:
    """A file that is taken out of an archive, byte for byte."""

    path: str
    dataset: HubDataset
    archive: str
    member: str
    header: bool = False
    """Whether its first line is no row."""
    num_rows: int | None = None


HubFile = RowsFile | ArchiveFile


_CHANGED = "The dataset has changed on the hub: leave its task out."


def _columns(*cells: Cell, header: str | None = None) -> Callable[[Rows], Iterator[str]]:
    """Return the function that writes these cells of each row, with tabs between them."""

    def lines(rows: Rows) -> Iterator[str]:
        if header is not None:
            yield header
        for where, row in rows:
            yield "\t".join(_text(where, row, cell) if isinstance(cell, str) else cell(where, row) for cell in cells)

    return lines


def _value(where: str, row: Row, column: str) -> Any:
    if row.get(column) is None:
        raise RowError(f"{where}: has no {column!r} but {', '.join(row)}. {_CHANGED}")
    return row[column]


def _text(where: str, row: Row, column: str) -> str:
    value = _value(where, row, column)
    return f"{value:.6g}" if isinstance(value, float) else _one_line(str(value))


def _one_line(text: str) -> str:
    return re.sub(r"[\t\r\n]+", " ", text)


def _word(column: str, *words: str) -> Cell:
    """Return the cell that writes a numbered label as a word."""

    def cell(where: str, row: Row) -> str:
        label = _value(where, row, column)
        if label not in range(len(words)):
            raise RowError(f"{where}: the {column} {label!r} is not in 0 to {len(words) - 1}. {_CHANGED}")
        return words[int(label)]

    return cell


def _always(text: str) -> Cell:
    return lambda _where, _row: text


def _if_there(column: str) -> Cell:
    """Return the cell of a column that no task reads."""
    return lambda where, row: "" if row.get(column) is None else _text(where, row, column)


def _sts_year(name: str, dataset: str, revision: str, num: int) -> tuple[HubFile, ...]:
    """One year's pairs, which the hub has without their subsets."""
    source, folder = HubDataset(dataset, revision=revision), f"senteval/STS/{name}-en-test"
    return (
        RowsFile(f"{folder}/STS.input.joined.txt", source, "test", _columns("sentence1", "sentence2"), num),
        RowsFile(f"{folder}/STS.gs.joined.txt", source, "test", _columns("score"), num),
    )


def _stsb(name: str, split: str, num: int) -> tuple[HubFile, ...]:
    source = HubDataset("mteb/stsbenchmark-sts", revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831")
    lines = _columns(*map(_if_there, ("genre", "dataset", "year", "sid")), "score", "sentence1", "sentence2")
    return (RowsFile(f"senteval/STS/STSBenchmark/sts-{name}.csv", source, split, lines, num),)


def _chinese(name: str, split: str, num: int) -> tuple[HubFile, ...]:
    source = HubDataset("mteb/STSB", revision="e036defee8f190911de6fc825a944b928c8cda53")
    return (RowsFile(f"zh_stsb/sts-b-{name}.txt", source, split, _columns("sentence1", "sentence2", "score"), num),)


def _senteval(*files: tuple[str, int | None], header: bool = False) -> tuple[HubFile, ...]:
    """SentEval's own files, with their encodings and their order."""
    source = HubDataset("princeton-nlp/datasets-for-simcse", revision="e145e8bb659b2aa2669f32ef79cb4cdef6c58fef")
    return tuple(ArchiveFile(f"senteval/{name}", source, "senteval.tar", name, header, num) for name, num in files)


def _glue(config: str, folder: str, header: str | None, cells: tuple[Cell, ...], **nums: int) -> tuple[HubFile, ...]:
    """One of GLUE's tasks: its training rows and one dev set, whose split is the second of `nums`."""
    source = HubDataset("nyu-mll/glue", config, "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
    names = {"validation": "dev", "validation_matched": "dev_matched", "validation_mismatched": "dev_mismatched"}
    lines = _columns(*cells, header=header)
    return tuple(
        RowsFile(f"glue/{folder}/{names.get(split, split)}.tsv", source, split, lines, num)
        for split, num in nums.items()
    )


_PAIR: tuple[Cell, ...] = ("sentence1", "sentence2")
_BINARY = _word("label", "0", "1")
_ENTAILMENT = _word("label", "entailment", "not_entailment")
_MNLI: tuple[str, tuple[Cell, ...]] = (
    "sentence1\tsentence2\tgold_label",
    ("premise", "hypothesis", _word("label", "entailment", "neutral", "contradiction")),
)


def _askubuntu_ids(where: str, row: Row) -> list[str]:
    """Name the query and its candidates, relevant ones first: the hub has titles without ids."""
    num = 1 + len(_value(where, row, "positive")) + len(_value(where, row, "negative"))
    return [f"{where.rpartition(':')[2]}-{i}" for i in range(num)]


def _askubuntu_titles(rows: Rows) -> Iterator[str]:
    for where, row in rows:
        ids = _askubuntu_ids(where, row)
        titles = [_value(where, row, "query"), *row["positive"], *row["negative"]]
        yield from (f"{question}\t{_one_line(title)}" for question, title in zip(ids, titles, strict=True))


def _askubuntu_queries(rows: Rows) -> Iterator[str]:
    for where, row in rows:
        query, *candidates = _askubuntu_ids(where, row)
        yield f"{query}\t{' '.join(candidates[: len(row['positive'])])}\t{' '.join(candidates)}"


_ASKUBUNTU = HubDataset("sentence-transformers/askubuntu")
_NTREX_REVISION = "fd20d54141b6da952d5c68a2989472892489da0f"

FILES: dict[str, tuple[HubFile, ...]] = {
    "STS12": _sts_year("STS12", "mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384", 3108),
    "STS13": _sts_year("STS13", "mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca", 1500),
    "STS14": _sts_year("STS14", "mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375", 3750),
    "STS15": _sts_year("STS15", "mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3", 3000),
    "STS16": _sts_year("STS16", "mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513", 1186),
    "STSB": _stsb("test", "test", 1379),
    "STSB-dev": _stsb("dev", "validation", 1500),
    # mteb/sickr-sts has 9,927 rows, training rows among them, and RobZamp/sick 4,906: neither is the test set
    "SICK-R": _senteval(("SICK/SICK_test_annotated.txt", 4927), header=True),
    "MR": _senteval(("MR/rt-polarity.neg", 5331), ("MR/rt-polarity.pos", 5331)),
    "CR": _senteval(("CR/custrev.neg", None), ("CR/custrev.pos", None)),
    "SUBJ": _senteval(("SUBJ/subj.objective", 5000), ("SUBJ/subj.subjective", 5000)),
    "MPQA": _senteval(("MPQA/mpqa.neg", None), ("MPQA/mpqa.pos", None)),
    "SST2": _senteval(
        ("SST/binary/sentiment-train", 67349), ("SST/binary/sentiment-dev", 872), ("SST/binary/sentiment-test", 1821)
    ),
    "TREC": _senteval(("TREC/train_5500.label", 5452), ("TREC/TREC_10.label", 500)),
    "MRPC": _senteval(("MRPC/msr_paraphrase_train.txt", 4076), ("MRPC/msr_paraphrase_test.txt", 1725), header=True),
    "glue-CoLA": _glue(
        "cola",
        "CoLA",
        None,
        (_always("hub"), _BINARY, _word("label", "*", ""), "sentence"),
        train=8551,
        validation=1043,
    ),
    "glue-SST2": _glue("sst2", "SST-2", "sentence\tlabel", ("sentence", _BINARY), train=67349, validation=872),
    "glue-MRPC": _glue("mrpc", "MRPC", "Quality\t#1 String\t#2 String", (_BINARY, *_PAIR), train=3668, validation=408),
    "glue-STSB": _glue("stsb", "STS-B", "sentence1\tsentence2\tscore", (*_PAIR, "label"), train=5749, validation=1500),
    "glue-QQP": _glue(
        "qqp",
        "QQP",
        "question1\tquestion2\tis_duplicate",
        ("question1", "question2", _BINARY),
        train=363846,
        validation=40430,
    ),
    "glue-MNLI-m": _glue("mnli", "MNLI", *_MNLI, train=392702, validation_matched=9815),
    "glue-MNLI-mm": _glue("mnli", "MNLI", *_MNLI, train=392702, validation_mismatched=9832),
    "glue-QNLI": _glue(
        "qnli",
        "QNLI",
        "question\tsentence\tlabel",
        ("question", "sentence", _ENTAILMENT),
        train=104743,
        validation=5463,
    ),
    "glue-RTE": _glue("rte", "RTE", "sentence1\tsentence2\tlabel", (*_PAIR, _ENTAILMENT), train=2490, validation=277),
    "AskUbuntu": (
        RowsFile("askubuntu/text_tokenized.txt", _ASKUBUNTU, "test", _askubuntu_titles, 200),
        RowsFile("askubuntu/test.txt", _ASKUBUNTU, "test", _askubuntu_queries, 200),
    ),
    "PIT": (
        RowsFile(
            "pit/test.data",
            HubDataset("tasksource/pit"),
            "test",
            # the hub has yes or no in place of the expert's grade, and no topics
            _columns(_always("0"), _always("hub"), "text_a", "text_b", _word("label", "0", "5")),
            838,
        ),
    ),
    "BIOSSES": (
        RowsFile(
            "biosses/pairs.tsv",
            HubDataset("mteb/biosses-sts", revision="d3fb88f8f02e40887cd149695127462bbcf29b4a"),
            "test",
            _columns(*_PAIR, "score", header="sentence1\tsentence2\tscore"),
            100,
        ),
    ),
    "ZH-STSB": _chinese("test", "test", 1361),
    "ZH-STSB-dev": _chinese("dev", "validation", 1458),
    "retrieval": (
        RowsFile(
            "ntrex/newstest2019-src.eng.txt",
            HubDataset("davidstap/NTREX", "eng_Latn", _NTREX_REVISION),
            "test",
            _columns("text"),
            1997,
        ),
        RowsFile(
            "ntrex/newstest2019-ref.zho-CN.txt",
            HubDataset("davidstap/NTREX", "zho_Hans", _NTREX_REVISION),
            "test",
            _columns("text"),
            1997,
        ),
    ),
    "geometry": _stsb("test", "test", 1379),
}
"""The files of each task."""

NOT_ON_HUB = {
    "CQADupStack": "the hub has BEIR's version, whose queries and pools are others; take useb's retrieval files",
    "TwitterURL": "the hub has training and test pairs mixed; take its authors' Twitter_URL_Corpus_test.txt",
}
"""Tasks whose data is not on the hub as the papers used it, and what to do instead."""

_OTHER_PLACES: Mapping[str, tuple[str, ...]] = {
    "CQADupStack": ("cqadupstack",),
    "TwitterURL": ("twitter_url",),
    "retrieval": ("ntrex",),
    **{f"STS{year}": (f"senteval/STS/STS{year}-en-test",) for year in range(12, 17)},
    **{
        task: (folder := Path(files[0].path).parent.as_posix(), folder.replace("glue/", "glue_train_sample/"))
        for task, files in FILES.items()
        if task.startswith("glue-")
    },
}
"""Folders in which a task reads files under other names than those of the hub, too."""


def scored_files(root: Path) -> dict[str, list[str]]:
    """Return the files below a data folder that tasks read, by their path in it, each with its tasks."""
    found: dict[str, list[str]] = {}
    for task in (*FILES, *NOT_ON_HUB):
        known = [root / file.path for file in FILES.get(task, ()) if (root / file.path).is_file()]
        for file in dict.fromkeys([*known, *_other_files(root, task)]):
            found.setdefault(file.relative_to(root).as_posix(), []).append(task)
    return found


def is_there(root: Path, task: str) -> bool:
    """Return whether a task's data is in a folder, under the hub's names or others that begin with the same word."""
    others, files = {file.name for file in _other_files(root, task)}, FILES.get(task, ())
    missing = [Path(file.path).name.partition(".")[0] for file in files if not (root / file.path).is_file()]
    return bool(files or others) and all(any(name.startswith(word) for name in others) for word in missing)


def _other_files(root: Path, task: str) -> list[Path]:
    folders = [root / place for place in _OTHER_PLACES.get(task, ())]
    return [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
