"""A file is surveyed once, and every part of it can be read again by itself, on whatever machine it is."""

import json

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tercet import InputError, RowError, SettingError
from tercet.data.reading.addresses import Address, expand, place_of
from tercet.data.rows.spans import Survey, read_span, survey

TEXTS = [f'text {i}\nof two lines, and a quote "' for i in range(20)]
WRITERS = {
    "csv": lambda file: file.write_text(
        "id,text\n" + "".join(f'{i},"{text.replace(chr(34), chr(34) * 2)}"\n' for i, text in enumerate(TEXTS))
    ),
    "jsonl": lambda file: file.write_text(
        "".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(TEXTS))
    ),
    "parquet": lambda file: pq.write_table(pa.table({"id": range(20), "text": TEXTS}), file, row_group_size=6),
}


@pytest.fixture(params=WRITERS)
def file(request, tmp_path):
    path = tmp_path / f"in.{request.param}"
    WRITERS[request.param](path)
    return path


def test_spans_are_read_in_any_order_without_what_is_before_them(file):
    found = survey(str(file), span_texts=7)
    assert [(span.first, span.num_texts) for span in found.spans] == [(0, 7), (7, 7), (14, 6)]
    for span in reversed(found.spans):
        texts, kept = read_span(found.source, span, keep=["id"])
        rows = range(span.first, span.first + span.num_texts)
        assert texts == [TEXTS[row] for row in rows]
        assert [int(value) for value in kept["id"]] == [*rows]


def test_every_format_has_the_same_hash(tmp_path):
    hashes = set()
    for ending, write in WRITERS.items():
        write(tmp_path / f"in.{ending}")
        hashes.add(survey(str(tmp_path / f"in.{ending}"), span_texts=7).sha256)
    assert len(hashes) == 1


def test_a_survey_survives_json(file):
    found = survey(str(file), span_texts=7)
    assert Survey.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.is_current()


def test_a_file_that_changed_is_noticed(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\nthree\nfour\n")
    found = survey(str(file), span_texts=2)
    file.write_text("one\ntwo\nthree\nFOUR\n")
    assert not found.is_current()
    assert read_span(found.source, found.spans[0])[0] == ["one", "two"]
    with pytest.raises(InputError, match="changed while it was read"):
        read_span(found.source, found.spans[1])


def test_a_broken_row_is_named_by_its_line(tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "a"}\n{"text": 3}\n')
    with pytest.raises(RowError, match=r"in\.jsonl:2: "):
        survey(str(file), span_texts=2)


def test_empty_files_and_spans_without_rows_are_refused(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("")
    with pytest.raises(InputError, match="is empty"):
        survey(str(file), span_texts=2)
    with pytest.raises(SettingError, match="less than one"):
        survey(str(file), span_texts=0)


def test_an_address_is_read_as_a_file_is(file):
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/spans/{file.name}", file.read_bytes())
    there = f"memory://spans/{file.name}"
    found = survey(there, span_texts=7)
    assert found.sha256 == survey(str(file), span_texts=7).sha256
    assert read_span(found.source, found.spans[1])[0] == TEXTS[7:14]
    assert found.is_current()
    memory.pipe(f"/spans/{file.name}", b"other")
    assert not found.is_current()


def test_patterns_stand_for_files_in_the_order_of_their_names(tmp_path):
    memory = fsspec.filesystem("memory")
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
        memory.pipe(f"/patterns/{name}.txt", name.encode())
    assert expand([str(tmp_path / "*.txt")]) == [str(tmp_path / f"{name}.txt") for name in "abc"]
    found = expand(["memory://patterns/[ab].txt", "hub:some/data"])
    assert [each.rpartition("/")[2] for each in found] == ["a.txt", "b.txt", "data"]
    with pytest.raises(InputError, match="matches no file"):
        expand([str(tmp_path / "*.csv")])
    with pytest.raises(InputError, match=r"is a folder\. Name its files"):
        expand([str(tmp_path)])


def test_a_name_with_brackets_is_a_file_where_there_is_one(tmp_path):
    (tmp_path / "a[1].txt").write_text("a")
    assert expand([str(tmp_path / "a[1].txt")]) == [str(tmp_path / "a[1].txt")]


def test_passwords_in_addresses_are_not_shown():
    place = place_of("s3://me:secret@host/a/b.jsonl")
    assert isinstance(place, Address)
    assert "secret" not in f"{place} {place!r}"
    assert (place.name, place.suffix) == ("b.jsonl", ".jsonl")


def test_an_address_that_nothing_opens_says_what_is_missing():
    with pytest.raises(InputError, match=r"nosuch://x/y\.txt: cannot be opened"):
        survey("nosuch://x/y.txt", span_texts=2)
    with pytest.raises(InputError, match=r"memory://spans/none\.txt"):
        survey("memory://spans/none.txt", span_texts=2)
