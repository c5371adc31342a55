"""Labelling: questions, answers that survive a kill, and the file that they make."""

import csv
from itertools import count

import pytest

import tercet
from tercet.adaptation.label import label
from tercet.errors import InputError, OutputError, RowError

TEXTS = [f"The {place} of the {thing} is {how}" for place in "north south east".split()
         for thing in "river bridge market tower".split() for how in "old wet".split()]  # fmt: skip


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "texts.txt"


@pytest.fixture(scope="module")
def model(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny("t5").save(folder)
    return folder


def rows_of(path):
    with path.open(newline="") as stream:
        return [*csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]


class User:
    """Types a query of its own and marks the first candidate, so many times; then the session is killed."""

    def __init__(self, answers):
        self.answers, self.shown, self.number = answers, [], count()

    def __call__(self, message):
        self.shown.append(message)
        if "Which of these" in message:
            return "1"
        if self.answers == 0:
            raise KeyboardInterrupt
        self.answers -= 1
        return f"query {next(self.number)} about {self.shown[-1].splitlines()[2]}"


def test_a_killed_session_goes_on_where_it_was(texts, model, tmp_path):
    out = tmp_path / "out"
    first = label(texts, out, num=5, model=model, ask=User(2))
    assert first.num == 2 and "2 of 5" in repr(first)
    before = rows_of(first.rerank)
    user = User(9)
    second = label(texts, out, num=5, model=model, ask=user)
    assert second.num == 5 and len(user.shown) == 6
    rows = rows_of(second.rerank)
    assert rows[: len(before)] == before
    assert len({row["query"] for row in rows}) == 5
    shown = [message.splitlines()[2] for message in user.shown if "search for" in message]
    assert not {row["candidate"] for row in before if row["query"].endswith(row["candidate"])} & {*shown}


def test_what_was_shown_and_marked_matches_and_what_was_not_marked_does_not(texts, model, tmp_path):
    user = User(1)
    rows = rows_of(label(texts, tmp_path / "out", num=1, model=model, ask=user).rerank)
    own = user.shown[0].splitlines()[2]
    listed = [line.split(maxsplit=1)[1] for line in user.shown[1].splitlines() if line.startswith("  ")]
    assert [(row["candidate"], row["label"]) for row in rows] == [
        (own, "1"),
        (listed[0], "1"),
        *((text, "0") for text in listed[1:]),
    ]
    assert own not in listed and len(listed) == 6 and {own, *listed} <= {*TEXTS}


def test_a_text_can_be_skipped_a_proposal_taken_and_a_mistyped_number_corrected(texts, model, tmp_path):
    typed = iter(["-", "", "first", "9", "2, 3"])
    shown = []
    made = label(texts, tmp_path / "out", num=1, model=model, ask=lambda message: shown.append(message) or next(typed))
    rows = rows_of(made.rerank)
    own = shown[1].splitlines()[2]
    (query,) = {row["query"] for row in rows}
    assert made.num == 1 and rows[0]["candidate"] == own != shown[0].splitlines()[2]
    assert {*query.split()} <= {*own.lower().split()} and len(query.split()) == 4
    assert f'Enter for "{query}"' in shown[1]
    assert [row["label"] for row in rows] == list("1011000")


def test_both_encoders_and_chance_propose_in_an_order_that_does_not_tell(texts, model, tiny, tmp_path):
    out, query = tmp_path / "out", "the old tower"
    adapted = tiny("bert")
    label(texts, out, num=1, model=model, ask=User(0))  # makes the folder
    adapted.save(out / "run" / "encoder")
    (out / "adapt.json").write_text("{}")
    shown = []

    def ask(message):
        shown.append(message)
        return "" if "Which of these" in message else query

    label(texts, out, num=12, model=model, ask=ask)
    owns = [message.splitlines()[2] for message in shown[::2]]
    listed = [[line.split(maxsplit=1)[1] for line in m.splitlines() if line.startswith("  ")] for m in shown[1::2]]
    firsts = set()
    for own, candidates in zip(owns, listed, strict=True):
        best = []
        for encoder in (model, adapted):
            hits = tercet.search(query, TEXTS, model=encoder, k=len(TEXTS))
            best.append(next(hit.text for hit in hits if hit.text != own))
        assert {*best} <= {*candidates} and len({*candidates}) == 6
        firsts.add(tuple(candidates.index(text) for text in best))
    assert len(firsts) > 3


def test_without_a_terminal_a_file_is_filled_in_and_read_by_a_second_call(texts, model, tmp_path):
    out = tmp_path / "out"
    made = label(texts, out, num=3, model=model)
    assert made.num == 0 and not made.rerank.exists() and str(made.form) in repr(made)
    rows = rows_of(made.form)
    assert [row["question"] for row in rows] == [number for number in "123" for _ in range(7)]
    marked = [dict(row, match="1" if i in (2, 9) else "") for i, row in enumerate(rows)]
    lines = ["\t".join(marked[0]), *("\t".join(row.values()) for row in marked)]
    made.form.write_text("\n".join(lines) + "\n")
    again = label(texts, out, num=3, model=model)
    assert (again.num, again.wanted) == (2, 3)
    assert rows_of(again.rerank) == [
        {"query": row["query"], "candidate": row["text"], "label": row["match"] or "0"} for row in marked[:14]
    ]
    found = tercet.evaluate(model, tasks=f"rerank:{again.rerank}")
    assert found.tasks[f"rerank:{again.rerank}"]["num"] == len({row["query"] for row in marked[:14]})


def test_a_form_with_another_mark_is_refused_with_its_line(texts, model, tmp_path):
    made = label(texts, tmp_path / "out", num=1, model=model)
    lines = made.form.read_text().splitlines()
    made.form.write_text("\n".join([*lines[:2], lines[2] + "maybe", *lines[3:]]) + "\n")
    with pytest.raises(RowError, match=r"form.tsv:3: match is 'maybe'"):
        label(texts, tmp_path / "out", num=1, model=model)


def test_too_few_texts_and_folders_of_others_are_refused(texts, model, tmp_path):
    with pytest.raises(InputError, match="3 different texts"):
        label(["One text.", "Another text.", "one text", "A third one."], tmp_path / "out", model=model)
    with pytest.raises(OutputError, match="other files"):
        label(texts, tmp_path, model=model)
