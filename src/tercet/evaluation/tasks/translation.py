"""Translations: is a sentence's translation the nearest of all, and how near are they while a model trains?"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tercet.data.rows.clean import script_share
from tercet.data.rows.kinds import ParallelPair
from tercet.data.rows.one_file import read_rows
from tercet.data.rows.records import RecordReader
from tercet.data.sets.folder import DataFolder, MissingDataError
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError, RowError, SettingError
from tercet.evaluation.geometry import alignment, uniformity
from tercet.evaluation.tasks.task import Embed, Options, Result, Task

_ENGLISH = "newstest2019-src.eng.txt"
_NUM_PAIRS = 1000


def retrieval_accuracy(source: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Return the share of rows whose nearest row on the other side is their own: source to target, and back."""
    _check_widths(source, target)
    cosines = unit(source) @ unit(target).T
    own = np.arange(len(cosines))
    return float(np.mean(cosines.argmax(1) == own)), float(np.mean(cosines.argmax(0) == own))


def _check_widths(source: np.ndarray, target: np.ndarray) -> None:
    widths = source.shape[1], target.shape[1]
    if widths[0] != widths[1]:
        fix = "Take encoders of one width; where an MLP is for training only, set mlp=always."
        raise SettingError(f"parallel pairs: vectors have {widths[0]} and {widths[1]} numbers. {fix}")


def _retrieval(data: DataFolder, embed: Embed, options: Options) -> Result:
    """Score every language that is there in NTREX's line-aligned files against the English source."""
    english = _ntrex(data, _ENGLISH)
    folder = data.root / "ntrex"
    languages = {path.name.split(".")[1]: path.name for path in sorted(folder.glob("newstest2019-ref.*.txt"))}
    languages = {language: name for language, name in languages.items() if not language.startswith("eng")}
    if not languages:
        raise MissingDataError(f"ntrex/newstest2019-ref.LANGUAGE.txt: none in {data.root}. Put one there.")
    source = (options.source or embed)(english)
    scores: dict[str, float] = {}
    for language, name in languages.items():
        target = _ntrex(data, name, num=len(english))
        there, back = retrieval_accuracy(source, embed(target))
        scores |= {f"eng-{language}": 100 * there, f"{language}-eng": 100 * back}
    return {
        "metric": "accuracy",
        "score": float(np.mean(list(scores.values()))),
        "num": len(english),
        "protocol": "NTREX, nearest neighbour by cosine among all sentences, both ways",
        "subsets": scores,
    }


def _ntrex(data: DataFolder, name: str, *, num: int | None = None) -> list[str]:
    lines = [text for _, text in data.lines(f"ntrex/{name}")]
    if len(lines) != (num or len(lines)):
        raise RowError(f"ntrex/{name}:{len(lines)}: {len(lines)} lines for {num} English ones. Fetch the files again.")
    return lines


def parallel_task(kind: str, name: str) -> Task:
    """Return the task that measures alignment and uniformity on parallel pairs.

    Args:
        kind: `parallel` for a file of such rows; `ntrex` for NTREX, whose English side is the one or the other.
        name: The file; or `eng-LANGUAGE` or `LANGUAGE-eng`, the source first.
    """

    def read(data: DataFolder) -> list[tuple[str, str]]:
        if kind == "parallel":
            file = Path(name).absolute()
            if not file.is_file():
                raise InputError(f"{name}: no such file. A parallel file has the columns source, target.")
            fix = "A parallel file has the columns source, target, or two named by languages."
            rows = read_rows(data.path(str(file)), RecordReader("parallel", empty=True), fix=fix)
            return [(row.source, row.target) for row in rows if isinstance(row, ParallelPair)]
        english = _ntrex(data, _ENGLISH)
        language = name.removesuffix("-eng") if name.endswith("-eng") else name.removeprefix("eng-")
        other = _ntrex(data, f"newstest2019-ref.{language}.txt", num=len(english))
        return list(zip(other, english, strict=True) if name.endswith("-eng") else zip(english, other, strict=True))

    pairs: list[tuple[str, str]] = []

    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        if not pairs:  # while a model trains it is measured again and again
            pairs.extend(read(data))
        return parallel_geometry(pairs, options.source or embed, embed)

    return Task(f"{kind}:{name}", run, needs_data=kind == "ntrex")


def parallel_geometry(pairs: Sequence[tuple[str, str]], embed_source: Embed, embed_target: Embed) -> Result:
    """Measure geometry as in the parallel-translation paper, Appendix A.

    Of the first 1,000 pairs a quarter are positives. In the others the Chinese side (the source where neither is) is
    another sentence, drawn from the pairs after them; or from one another where there are none after them.

    Args:
        pairs: Sources and their translations.
        embed_source: What embeds sources.
        embed_target: What embeds translations.
    """
    sources, targets = (list(side) for side in zip(*pairs[:_NUM_PAIRS], strict=True))
    num_positive = max(1, len(sources) // 4)
    side = int(script_share(" ".join(targets), "zh") > script_share(" ".join(sources), "zh"))
    swapped = (sources, targets)[side]
    pool = [pair[side] for pair in pairs[_NUM_PAIRS:]] or swapped[num_positive:]
    num_drawn = len(swapped) - num_positive
    drawn = np.random.default_rng(0).choice(len(pool), num_drawn, replace=len(pool) < num_drawn)
    swapped[num_positive:] = [pool[i] for i in drawn]
    first, second = unit(embed_source(sources)), unit(embed_target(targets))
    _check_widths(first, second)
    return {
        "metric": "uniformity",
        "score": (spread := uniformity(np.concatenate([first, second]))),
        "num": len(first),
        "protocol": f"alignment over {num_positive} translations; uniformity over their sentences and those of "
        f"{len(first) - num_positive} pairs that are none; squared distances; not x 100",
        "alignment": alignment(first[:num_positive], second[:num_positive]),
        "uniformity": spread,
    }


TASKS = [Task("retrieval", _retrieval)]
