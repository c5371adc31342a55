"""Files of texts: formats, columns, and errors with file and line."""

import io
import json

import pyarrow
import pyarrow.parquet
import pytest

from tercet import InputError, RowError, SettingError
from tercet.data.reading.formats import read_records
from tercet.data.rows.texts import TextFile, readable_twice

TEXTS = ["one", "", 'with "quotes", commas', "tab\there", "Ünïcödé 日本語", "  spaces  "]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_of(texts):
    return "id,text\n" + "".join('{},"{}"\n'.format(i, text.replace('"', '""')) for i, text in enumerate(texts))


def test_lines_jsonl_csv_and_parquet_hold_the_same_texts(tmp_path):
    write(tmp_path, "a.txt", "\n".join(TEXTS) + "\n")
    write(tmp_path, "a.jsonl", "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    write(tmp_path, "a.csv", csv_of(TEXTS))
    table = pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    files = [TextFile.open(tmp_path / f"a.{ending}") for ending in ("txt", "jsonl", "csv", "parquet")]
    for file in files:
        assert list(file) == TEXTS
        assert file.num_texts == len(TEXTS)
    assert len({file.sha256 for file in files}) == 1


def test_a_tsv_keeps_quotes_as_they_are(tmp_path):
    path = write(tmp_path, "a.tsv", 'a\tb\n1\tsay "hi\n2\t"quoted"\n')
    assert list(TextFile.open(path, column="b")) == ['say "hi', '"quoted"']


def test_a_quoted_csv_field_may_span_lines(tmp_path):
    path = write(tmp_path, "a.csv", 'text,n\n"two\nlines",1\nplain,2\n')
    assert list(TextFile.open(path)) == ["two\nlines", "plain"]


def test_the_last_line_counts_with_and_without_its_line_end(tmp_path):
    assert list(TextFile.open(write(tmp_path, "a.txt", "a\nb"))) == ["a", "b"]
    assert list(TextFile.open(write(tmp_path, "a.txt", "a\nb\n"))) == ["a", "b"]
    assert list(TextFile.open(write(tmp_path, "a.txt", "a\n\n"))) == ["a", ""]


def test_windows_line_ends_and_a_byte_order_mark_are_dropped(tmp_path):
    path = write(tmp_path, "a.txt", b"\xef\xbb\xbfa\r\n\r\nb\r\n")
    assert list(TextFile.open(path)) == ["a", "", "b"]


def test_moving_text_between_rows_changes_the_hash(tmp_path):
    first = TextFile.open(write(tmp_path, "a.txt", "ab\nc\n"))
    second = TextFile.open(write(tmp_path, "b.txt", "a\nbc\n"))
    assert first.sha256 != second.sha256


def test_the_only_column_is_taken_without_being_named(tmp_path):
    assert list(TextFile.open(write(tmp_path, "a.csv", "body\nx\ny\n"))) == ["x", "y"]


def test_the_format_can_be_named_where_the_ending_does_not_tell(tmp_path):
    path = write(tmp_path, "a.data", '{"text": "x"}\n')
    assert list(TextFile.open(path, file_format="jsonl")) == ["x"]
    with pytest.raises(SettingError, match="Known: lines"):
        TextFile.open(path, file_format="xml")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"ok\nbad \xff byte\n", r"a\.txt:2: is not UTF-8 at byte 4"),
        ("a.txt", b"ok\n\0\n", r"a\.txt:2: has a NUL byte"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', r"a\.jsonl:2: is not JSON"),
        ("a.jsonl", '{"text": "x"}\n\n', r"a\.jsonl:2: is not JSON"),
        ("a.jsonl", '["x"]\n', r"a\.jsonl:1: is list"),
        ("a.jsonl", '{"text": "x"}\n{"body": "y"}\n', r"a\.jsonl:2: has no column 'text'"),
        ("a.jsonl", '{"text": "x"}\n{"text": null}\n', r"a\.jsonl:2: 'text' is null"),
        ("a.csv", "a,b\n1,2\n", r"a\.csv:2: has no column for 'text'. It has: a, b. Name one with --column"),
        ("a.csv", "text,b\n1,2\n3\n", r"a\.csv:3: has 1 columns where the header has 2"),
        ("a.csv", 'text,b\n"open,2\n', r"a\.csv:2: unexpected end of data"),
        ("a.tsv", "text\tb\n1\t2\t3\n", r"a\.tsv:2: has 3 columns"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, name, content, message):
    with pytest.raises(RowError, match=message):
        TextFile.open(write(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("a.txt", "", "empty"), ("a.csv", "text\n", "empty"), ("a.parquet", "no", "not a Parquet file")],
)
def test_an_unusable_file_is_named(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        TextFile.open(write(tmp_path, name, content))


def test_a_missing_file_or_a_folder_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        TextFile.open(tmp_path / "a.txt")
    with pytest.raises(InputError, match="directory"):
        list(read_records(tmp_path))


def test_standard_input_is_copied_so_that_it_can_be_checked_first():
    with readable_twice("-", io.BytesIO(b"a\nb\n")) as path:
        assert list(TextFile.open(path)) == list(TextFile.open(path)) == ["a", "b"]
