"""Translation retrieval: is a sentence's translation the nearest of all sentences in the other language?"""

import numpy as np

from tercet.errors import RowError
from tercet.tasks.data import DataFolder, MissingDataError
from tercet.tasks.metrics import unit
from tercet.tasks.task import Embed, Options, Result, Task


def retrieval_accuracy(source: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Return the share of rows whose nearest row on the other side is their own: source to target, and back."""
    cosines = unit(source) @ unit(target).T
    own = np.arange(len(cosines))
    return float(np.mean(cosines.argmax(1) == own)), float(np.mean(cosines.argmax(0) == own))


def _retrieval(data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Score every language that is there in NTREX's line-aligned files against the English source."""
    english = [text for _, text in data.lines("ntrex/newstest2019-src.eng.txt")]
    folder = data.root / "ntrex"
    languages = {path.name.split(".")[1]: path.name for path in sorted(folder.glob("newstest2019-ref.*.txt"))}
    languages = {language: name for language, name in languages.items() if not language.startswith("eng")}
    if not languages:
        raise MissingDataError(f"ntrex/newstest2019-ref.LANGUAGE.txt: none in {data.root}. Put one there.")
    source = embed(english)
    scores: dict[str, float] = {}
    for language, name in languages.items():
        target = [text for _, text in data.lines(f"ntrex/{name}")]
        if len(target) != len(english):
            raise RowError(f"ntrex/{name}:{len(target)}: {len(target)} lines for {len(english)} English ones.")
        there, back = retrieval_accuracy(source, embed(target))
        scores |= {f"eng-{language}": 100 * there, f"{language}-eng": 100 * back}
    return {
        "metric": "accuracy",
        "score": float(np.mean(list(scores.values()))),
        "num": len(english),
        "protocol": "NTREX, nearest neighbour by cosine among all sentences, both ways",
        "subsets": scores,
    }


TASKS = [Task("retrieval", _retrieval)]
