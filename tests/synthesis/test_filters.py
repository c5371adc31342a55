"""The rules of the filter, each with what it keeps and what it drops, and the counts of all of them."""

import json
import random

import pytest

from tercet import InputError
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.filters import Filter
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import FilterSettings, SentenceSettings
from tercet.synthesis.sieve import Seen

ANCHOR = "A young man is getting ready to release a red kite."
POSITIVE = "The man is prepared to fly the kite."
NEGATIVE = "The woman is playing basketball at home."


def candidate(anchor=ANCHOR, positive=POSITIVE, negative=NEGATIVE, positive_true=0.95, negative_true=0.05):
    return Candidate(0, 0, anchor, positive, negative, positive_true, negative_true)


PAIR = candidate(negative=None, negative_true=None)
FOUR, FIVE = "He flies a kite.", "He flies a kite now."

# rule, settings, what it keeps, what it drops
RULES = {
    "no positive": ("empty", {}, candidate(), candidate(positive="", positive_true=None)),
    "a blank negative": ("empty", {}, candidate(), candidate(negative=" \t", negative_true=None)),
    "4 words of 5, positive": ("short", {}, candidate(positive=FIVE), candidate(positive=FOUR)),
    "4 words of 5, negative": ("short", {}, candidate(negative=FIVE), candidate(negative=FOUR)),
    "another number of words": (
        "short", {"min_hypothesis_words": 6}, candidate(positive="He is flying a kite now."), candidate(positive=FIVE)
    ),
    "an entailment that is rather false": (
        "label", {"alpha": 0}, candidate(positive_true=0.51), candidate(positive_true=0.49)
    ),
    "a contradiction that is rather true": (
        "label", {"alpha": 0}, candidate(negative_true=0.49), candidate(negative_true=0.51)
    ),
    "an entailment below alpha": ("alpha", {}, candidate(positive_true=0.9), candidate(positive_true=0.89)),
    "a contradiction below alpha": ("alpha", {}, candidate(negative_true=0.1), candidate(negative_true=0.11)),
    "a pair below alpha": ("alpha", {}, PAIR, PAIR._replace(positive_true=0.89)),
    "another alpha": ("alpha", {"alpha": 0.6}, candidate(positive_true=0.61), candidate(positive_true=0.59)),
    "a positive inside the sentence": (
        "contained", {}, candidate(positive="A young man is ready."), candidate(positive="A young man is getting.")
    ),
    "a sentence inside the positive": (
        "contained", {}, candidate(), candidate(positive="A young man is getting ready to release a red kite, again.")
    ),
    "a negative that is the sentence but for its end": (
        "contained", {}, candidate(), candidate(negative=ANCHOR[:-1] + "!")
    ),
    "a positive that is a part of the sentence in small letters": (
        "contained", {}, candidate(), candidate(positive="a young  man is getting ready to release.")
    ),
    "a positive that is the negative": (
        "same", {}, candidate(), candidate(negative="the man is prepared to FLY the kite")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_a_rule_keeps_and_drops(case):
    name, settings, kept, dropped = RULES[case]
    chosen = Filter(FilterSettings(**settings))
    assert chosen.accept([kept, dropped]) == [kept]
    assert {rule: drop["num"] for rule, drop in chosen.tally.as_json()["dropped"].items() if drop["num"]} == {name: 1}
    assert chosen.tally.as_json()["dropped"][name]["samples"] == [dropped._asdict()]


@pytest.mark.parametrize(
    ("off", "dropped"),
    [
        ({"argmax": False, "alpha": 0}, candidate(positive_true=0.1)),
        ({"alpha": 0}, candidate(positive_true=0.51)),
        ({"containment": False}, candidate(negative=ANCHOR[:-1] + "!")),
        ({"min_hypothesis_words": 1}, candidate(positive="Yes.")),
    ],
)
def test_a_rule_that_is_off_drops_nothing(off, dropped):
    assert Filter(FilterSettings()).accept([dropped]) == []
    assert Filter(FilterSettings(**off)).accept([dropped]) == [dropped]


def test_a_triplet_is_accepted_once_over_all_calls_unless_duplicates_are_wanted():
    again = candidate(anchor=ANCHOR.upper(), positive=POSITIVE.replace(".", " !"))
    other = candidate(positive="A man is planning to fly a kite.")
    once, always = Filter(FilterSettings()), Filter(FilterSettings(deduplicate=False))
    assert [once.accept(rows) for rows in ([candidate(), other], [again], [other])] == [[candidate(), other], [], []]
    assert [always.accept(rows) for rows in ([candidate()], [again])] == [[candidate()], [again]]
    assert once.tally.as_json()["dropped"]["duplicate"]["num"] == 2


LEAK = "the man is prepared to fly - the kite"
FILES = {
    "sts.txt": f"0.5\t{LEAK}\tx\n",
    "eval.jsonl": json.dumps({"pair": ["y", LEAK]}) + "\n",
    "folder/nli.json": json.dumps([{"text": LEAK}]),
    "table.csv": f'id,text\n1,"{LEAK}"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_evaluation_texts_are_kept_out_wherever_they_stand(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(FILES[name])
    chosen = Filter(FilterSettings(leaks=[file.parent if "/" in name else file]))
    other = candidate(positive="A man is planning to fly a kite.")
    swapped = candidate(anchor=POSITIVE, positive=ANCHOR)
    assert chosen.accept([candidate(), other, swapped]) == [other]
    assert chosen.tally.as_json()["dropped"]["leak"]["num"] == 2


def test_a_parquet_file_of_evaluation_texts_is_read_too(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": [1], "sentence": [LEAK]}), tmp_path / "eval.parquet")
    assert Filter(FilterSettings(leaks=[tmp_path / "eval.parquet"])).accept([candidate()]) == []


def test_a_missing_or_broken_file_of_evaluation_texts_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt: No such file"):
        Filter(FilterSettings(leaks=[tmp_path / "none.txt"]))
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"bad\.jsonl:1: is not JSON"):
        Filter(FilterSettings(leaks=[tmp_path / "bad.jsonl"]))


def test_counts_add_up():
    rng = random.Random(0)
    texts = ["", "Yes.", POSITIVE, NEGATIVE, ANCHOR, FIVE]
    rows = [
        candidate(positive=rng.choice(texts), negative=rng.choice(texts), positive_true=rng.random())
        for _ in range(300)
    ]
    chosen = Filter(FilterSettings(alpha=0.6))
    accepted = [row for start in range(0, 300, 7) for row in chosen.accept(rows[start : start + 7])]
    counts = chosen.tally.as_json()
    assert counts["num"] == 300
    assert counts["num_kept"] == len(accepted) > 0
    assert sum(drop["num"] for drop in counts["dropped"].values()) == 300 - len(accepted)
    assert max(len(drop["samples"]) for drop in counts["dropped"].values()) == 5


@pytest.mark.parametrize("rule", ["short", "duplicate"])
def test_the_audit_shows_the_beginning_of_a_long_text_whatever_drops_it(tmp_path, rule):
    long = "x" * 5_000 if rule == "short" else "many words " * 500
    (tmp_path / "in.txt").write_text(f"{long}\n{long}\n")
    sentences = Sentences(SentenceSettings(sentences=tmp_path / "in.txt", max_premise_words=None))
    assert len([*sentences]) == (rule == "duplicate")
    assert sentences.tally.as_json()["dropped"][rule]["samples"][0] == long[:200]
    chosen = Filter(FilterSettings())
    chosen.accept([candidate(anchor=long, positive="x" if rule == "short" else POSITIVE)] * 2)
    sample = chosen.tally.as_json()["dropped"][rule]["samples"][0]
    assert (sample["anchor"], sample["positive_true"]) == (long[:200], 0.95)


def test_texts_that_were_seen_are_those_of_a_set():
    rng, seen, known = random.Random(1), Seen(), set()
    for _ in range(200):
        texts = [str(rng.randrange(3000)) for _ in range(rng.randrange(40))]
        expected = []
        for text in texts:
            expected.append(text not in known)
            known.add(text)
        assert seen.add(texts) == expected
