"""GenSE's domain tasks, with the metrics of useb: AskUbuntu, CQADupStack, Twitter URL, PIT-2015, BIOSSES."""

import re

import numpy as np

from tercet.data.sets.folder import DataFolder, MissingDataError, number
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError, RowError
from tercet.evaluation.metrics import average_precision
from tercet.evaluation.tasks.pairs import Pairs, score_paraphrase, score_spearman
from tercet.evaluation.tasks.task import Embed, Options, Result, Task
from tercet.storage.files import read_json
from tercet.storage.texts import has_half_pair

_FORUMS = (
    "android",
    "english",
    "gaming",
    "gis",
    "mathematica",
    "physics",
    "programmers",
    "stats",
    "tex",
    "unix",
    "webmasters",
    "wordpress",
)
_FIX = "Fetch the file again."
_QUERY_BATCH = 256
"""How many queries are scored against the pool at once."""


def _askubuntu(data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Re-rank each query's listed candidates by title; queries without a relevant candidate are left out."""
    titles = {c[0].strip(): c[1].strip() for _, c in data.columns("askubuntu/text_tokenized.txt", 2)}
    queries = []
    for where, columns in data.columns("askubuntu/test.txt", 3):
        relevant, candidates = set(columns[1].split()), columns[2].split()
        unknown = [q for q in (columns[0], *candidates) if q not in titles]
        if unknown:
            raise RowError(f"{where}: question {unknown[0]} is not in text_tokenized.txt. Fetch the files again.")
        if relevant.intersection(candidates):
            queries.append((columns[0], candidates, np.array([c in relevant for c in candidates])))
    if not queries:
        raise InputError("askubuntu/test.txt: no query has a relevant candidate. Fetch the file again.")
    ids = sorted({q for query, candidates, _ in queries for q in (query, *candidates)})
    vectors = dict(zip(ids, unit(embed([titles[q] for q in ids])), strict=True))
    scores = [
        average_precision(relevant, np.stack([vectors[c] for c in candidates]) @ vectors[query])
        for query, candidates, relevant in queries
    ]
    return {
        "metric": "MAP",
        "score": 100 * float(np.mean(scores)),
        "num": len(scores),
        "protocol": "titles only, listed candidates re-ranked by cosine, queries without a relevant candidate left out",
    }


def _cqadupstack(data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Find duplicates in each forum's pool, from which the queries are removed."""
    corpus = read_json(data.path("cqadupstack/corpus.json"), kind=dict, fix=_FIX)
    split = read_json(data.path("cqadupstack/retrieval_split.json"), kind=dict, fix=_FIX).get("test") or {}
    missing = [forum for forum in _FORUMS if forum not in corpus or forum not in split]
    if missing:
        raise MissingDataError(f"cqadupstack: the forum {missing[0]} is not there. All {len(_FORUMS)} are needed.")
    for forum in _FORUMS:
        for name, part in (("corpus", corpus[forum]), ("retrieval_split", split[forum])):
            if not isinstance(part, dict):
                raise InputError(f"cqadupstack/{name}.json: {forum} is no object. {_FIX}")
        if bad := [question for question, text in corpus[forum].items() if not _is_text(text)]:
            raise RowError(f"cqadupstack/corpus.json:{forum}: question {bad[0]} has no text. {_FIX}")
        if bad := [question for question in split[forum] if question not in corpus[forum]]:
            raise RowError(f"cqadupstack/retrieval_split.json:{forum}: question {bad[0]} is not in the corpus. {_FIX}")
    scores = {forum: 100 * _map_at_100(corpus[forum], split[forum], embed) for forum in _FORUMS}
    return {
        "metric": "MAP@100",
        "score": float(np.mean(list(scores.values()))),
        "num": sum(len(split[forum]) for forum in _FORUMS),
        "protocol": "cosine over the forum's pool without the queries, MAP@100, plain mean over 12 forums",
        "subsets": scores,
    }


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not has_half_pair(value)


def _map_at_100(corpus: dict[str, str], relevant: dict[str, list[str]], embed: Embed) -> float:
    pool = [question for question in corpus if question not in relevant]
    position = {question: i for i, question in enumerate(pool)}
    documents = unit(embed([corpus[question] for question in pool]))
    queries = list(relevant)
    vectors = unit(embed([corpus[question] for question in queries]))
    scores = []
    for start in range(0, len(queries), _QUERY_BATCH):
        batch = vectors[start : start + _QUERY_BATCH] @ documents.T
        for query, cosines in zip(queries[start : start + _QUERY_BATCH], batch, strict=True):
            best = np.argsort(-cosines, kind="stable")[:100]
            hits = np.isin(best, [position[q] for q in relevant[query] if q in position])
            scores.append(average_precision(hits, cosines[best]))
    return float(np.mean(scores))


def _twitter_url(data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Score Twitter URL pairs: the original file of ratings, or aligned files with the undecided pairs dropped."""
    original = "twitter_url/Twitter_URL_Corpus_test.txt"
    if data.has(original):
        rows = ((c[0], c[1], _votes(c[2], where)) for where, c in data.columns(original, 3))
        decided = [(a, b, float(votes > 3)) for a, b, votes in rows if votes != 3]
        return score_paraphrase(Pairs.of(decided), embed)
    folder = "twitter_url/test"
    first, second, labels = (list(data.lines(f"{folder}/{name}")) for name in ("a.toks", "b.toks", "sim.txt"))
    if not len(first) == len(second) == len(labels):
        raise RowError(
            f"{folder}/sim.txt:{len(labels)}: {len(labels)} labels for {len(first)} and {len(second)} texts."
        )
    aligned = zip(first, second, labels, strict=True)
    return score_paraphrase(
        Pairs.of((a, b, number(label, where, low=0, high=1)) for (_, a), (_, b), (where, label) in aligned), embed
    )


def _pit(data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Score PIT-2015: topic id, topic, two texts, label; an expert's grade, or `(votes, 5)` of five raters."""
    decided = []
    for where, columns in data.columns("pit/test.data", 5):
        text, votes = columns[4], _votes(columns[4], where)
        expert = not text.startswith("(")
        undecided, positive = (votes == 3, votes > 3) if expert else (votes == 2, votes > 2)
        if not undecided:
            decided.append((columns[2], columns[3], float(positive)))
    return score_paraphrase(Pairs.of(decided), embed)


def _biosses(data: DataFolder, embed: Embed, _options: Options) -> Result:
    rows = data.columns("biosses/pairs.tsv", 3)
    next(rows, None)
    pairs = Pairs.of((c[0], c[1], number(c[2], where, low=0, high=4)) for where, c in rows)
    return score_spearman({"pairs": pairs}, embed)


def _votes(text: str, where: str) -> int:
    """Read a grade such as `4`, or the votes of a rating such as `(4, 6)`."""
    match = re.match(r"\(?\s*(\d+)", text)
    if match is None:
        raise RowError(f"{where}: the rating {text!r} is none. Fetch the file again.")
    return int(match[1])


TASKS = [
    Task("AskUbuntu", _askubuntu),
    Task("CQADupStack", _cqadupstack),
    Task("TwitterURL", _twitter_url),
    Task("PIT", _pit),
    Task("BIOSSES", _biosses),
]
