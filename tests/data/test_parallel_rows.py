"""Parallel rows: line-aligned files, TMX, the rules of cleaning, and what is refused."""

import itertools
import json
import logging

import pytest

from tercet import InputError, RowError, SettingError
from tercet.data.feeding.sources import open_rows
from tercet.data.reading.aligned import AlignedFiles
from tercet.data.reading.tmx import TmxFile
from tercet.data.rows.clean import CleanSettings, num_words, script_share
from tercet.data.rows.kinds import ParallelPair


def write(path, *lines, encoding="utf-8"):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return str(path)


def rows_of(source, **settings):
    return list(open_rows({"sources": [source], **settings}, kind="parallel"))


def shuffled(source):
    """Rows read by their places, in another order than they stand in."""
    batches = open_rows(source, kind="parallel").batches(batch=1, seed=5, epochs=1)
    return [row for batch in batches for row in batch]


class TestAlignedFiles:
    def test_line_n_of_both_files_is_a_row_in_any_order(self, tmp_path):
        english = [f"sentence {i}" + " more" * (i % 5) for i in range(100)]
        chinese = [f"句子 {i}" + "多" * (i % 7) for i in range(100)]
        source = {"path": write(tmp_path / "a.en", *english), "translations": write(tmp_path / "a.zh", *chinese)}
        wanted = [ParallelPair(en, zh) for en, zh in zip(english, chinese, strict=True)]
        assert rows_of(source) == wanted
        found = shuffled(source)
        assert found != wanted
        assert sorted(found, key=str) == sorted(wanted, key=str)

    @pytest.mark.parametrize(("en", "zh", "numbers"), [(3, 5, "3 and 5"), (5, 3, "5 and 3"), (0, 2, "0 and 2")])
    def test_files_of_unequal_length_are_refused_even_where_bad_rows_are_skipped(self, tmp_path, en, zh, numbers):
        source = {
            "path": write(tmp_path / "a.en", *["x"] * en),
            "translations": write(tmp_path / "a.zh", *["y"] * zh),
        }
        with pytest.raises(InputError, match=rf"a\.en and .*a\.zh: have {numbers} lines"):
            rows_of(source, on_error="skip")

    def test_an_empty_side_is_an_error_with_its_line_or_a_counted_drop(self, tmp_path):
        source = {
            "path": write(tmp_path / "a.en", "one", " ", "three"),
            "translations": write(tmp_path / "a.zh", *"一二三"),
        }
        with pytest.raises(RowError, match=r"a\.en:2: 'source' is empty"):
            rows_of(source)
        rejects = tmp_path / "rejects.jsonl"
        skipped = open_rows(
            {"sources": [source], "on_error": "skip", "max_bad_fraction": 0.5, "rejects": rejects}, kind="parallel"
        )
        assert list(skipped) == [ParallelPair("one", "一"), ParallelPair("three", "三")]
        assert skipped.describe()["sources"][0]["num_bad"] == 1
        assert json.loads(rejects.read_text())["raw"] == " \t二"

    def test_a_broken_line_names_its_side(self, tmp_path):
        source = {"path": write(tmp_path / "a.en", "one"), "translations": str(tmp_path / "a.zh")}
        (tmp_path / "a.zh").write_bytes(b"\xff\xfe\n")
        with pytest.raises(RowError, match=r"a\.en:1: target: is not UTF-8"):
            rows_of(source)

    def test_either_file_decides_the_rows(self, tmp_path):
        source = {"path": write(tmp_path / "a.en", "one"), "translations": write(tmp_path / "a.zh", "一")}
        before = open_rows(source, kind="parallel").describe()["sha256"]
        write(tmp_path / "a.zh", "壹")
        assert open_rows(source, kind="parallel").describe()["sha256"] != before

    def test_a_file_that_changes_is_noticed(self, tmp_path):
        files = AlignedFiles(tmp_path / write(tmp_path / "a.en", "one"), tmp_path / write(tmp_path / "a.zh", "一"))
        assert [entry.record for entry in files.entries()] == [{"source": "one", "target": "一"}]
        write(tmp_path / "a.zh", "一二三")
        with pytest.raises(InputError, match=r"a\.zh: changed"):
            files.check_unchanged()

    def test_translations_go_with_plain_lines_only(self):
        for other in ({"format": "tsv"}, {"columns": {"source": "a"}}):
            with pytest.raises(SettingError, match="two files of plain lines"):
                open_rows({"path": "a", "translations": "b", **other}, kind="parallel")


TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" datatype="plaintext" segtype="sentence"/>
<body>
<tu tuid="1"><tuv xml:lang="zh-CN"><seg>你好&amp;再见</seg></tuv>
<tuv xml:lang="EN-us"><seg>Hello &amp; bye</seg></tuv></tu>
<tu><note>skip me</note><tuv lang="en-US"><prop type="x">no</prop>
<seg>A <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">x</ept>
  <hi>word</hi>.</seg></tuv>
<tuv xml:lang="zh-CN"><seg>一个粗体字。</seg></tuv><tuv xml:lang="fr"><seg>Un mot.</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>Snow</seg></tuv><tuv xml:lang="zh-CN"><seg>雪</seg></tuv></tu>
</body></tmx>
"""
UNITS = [
    ParallelPair("Hello & bye", "你好&再见"),
    ParallelPair("A bold word.", "一个粗体字。"),
    ParallelPair("Snow", "雪"),
]


class TestTmx:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_units_are_rows_in_any_order_with_the_source_language_first(self, tmp_path, encoding):
        path = tmp_path / "a.tmx"
        path.write_bytes(TMX.format(encoding=encoding.removesuffix("-sig")).encode(encoding))
        assert rows_of(str(path)) == UNITS
        assert sorted(shuffled(str(path)), key=str) == sorted(UNITS, key=str)

    def test_languages_are_chosen_by_name(self, tmp_path):
        path = tmp_path / "a.tmx"
        path.write_text(TMX.format(encoding="utf-8"))
        columns = {"source": "zh-cn", "target": "fr"}
        with pytest.raises(RowError, match=r"a\.tmx:1: has the columns en-us, zh-cn, which are not known"):
            rows_of({"path": str(path), "columns": columns})
        columns = {"source": "zh-cn", "target": "en-us"}
        assert rows_of({"path": str(path), "columns": columns})[2] == ParallelPair("雪", "Snow")

    def test_a_file_larger_than_a_chunk_is_read_by_its_places(self, tmp_path):
        units = [
            f'<tu><tuv lang="en"><seg>{"w" * 300} {i}</seg></tuv><tuv lang="zh"><seg>{"字" * 90}{i}</seg></tuv></tu>'
            for i in range(400)
        ]
        path = tmp_path / "a.tmx"
        path.write_text(f'<tmx><header srclang="*all*"/><body>{"".join(units)}</body></tmx>')
        wanted = [ParallelPair(f"{'w' * 300} {i}", f"{'字' * 90}{i}") for i in range(400)]
        assert rows_of(str(path)) == wanted
        assert sorted(shuffled(str(path)), key=str) == sorted(wanted, key=str)

    def test_a_unit_without_a_language_or_a_text_is_an_error_or_a_counted_drop(self, tmp_path):
        path = tmp_path / "a.tmx"
        lone = TMX.replace("<seg>雪</seg>", "<seg> </seg>").format(encoding="utf-8")
        path.write_text(lone.replace("</body>", '<tu><tuv lang="fr"><seg>Oui</seg></tuv></tu></body>'))
        with pytest.raises(RowError, match=r"a\.tmx:11: 'zh-cn' is empty"):
            rows_of(str(path))
        skipped = open_rows({"sources": [str(path)], "on_error": "skip", "max_bad_fraction": 0.6}, kind="parallel")
        assert list(skipped) == UNITS[:2]
        assert skipped.describe()["sources"][0]["num_bad"] == 2

    def test_units_on_one_line_are_counted_one_by_one(self, tmp_path):
        texts = ["one", "", "", "four"]
        units = "".join(
            f'<tu><tuv lang="en"><seg>{text}</seg></tuv><tuv lang="zh"><seg>{i}</seg></tuv></tu>'
            for i, text in enumerate(texts)
        )
        path, rejects = tmp_path / "a.tmx", tmp_path / "rejects.jsonl"
        path.write_text(f'<tmx><header srclang="en"/><body>{units}</body></tmx>')
        settings = {"sources": [str(path)], "on_error": "skip", "rejects": rejects}
        rows = open_rows({**settings, "max_bad_fraction": 0.5}, kind="parallel")
        counts = rows.describe()["sources"][0]
        assert (counts["num_read"], counts["num_bad"], counts["num_rows"]) == (4, 2, 2)
        assert len(rejects.read_text().splitlines()) == 2
        with pytest.raises(InputError, match="2 of 4 rows are bad"):
            open_rows(settings, kind="parallel")

    @pytest.mark.parametrize(
        "declared",
        [
            '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">',
            '<!ENTITY b SYSTEM "file:///etc/passwd">',
            '<!ENTITY % b SYSTEM "file:///etc/passwd"> %b;',
        ],
    )
    def test_entities_are_neither_expanded_nor_fetched(self, tmp_path, declared):
        path = tmp_path / "a.tmx"
        unit = '<tu><tuv lang="en"><seg>x &b;</seg></tuv><tuv lang="zh"><seg>y</seg></tuv></tu>'
        path.write_text(f"<!DOCTYPE tmx [{declared}]><tmx><body>{unit}</body></tmx>")
        with pytest.raises(RowError, match=r"a\.tmx:1: has the entity '[ab]'"):
            rows_of(str(path), on_error="skip")

    def test_an_entity_that_only_a_dtd_elsewhere_has_is_not_dropped_silently(self, tmp_path):
        path = tmp_path / "a.tmx"
        path.write_text(TMX.format(encoding="utf-8").replace("Snow", "Snow&nbsp;man"))
        with pytest.raises(RowError, match="has the entity 'nbsp'"):
            rows_of(str(path))

    def test_xml_that_breaks_off_is_an_error_even_where_bad_rows_are_skipped(self, tmp_path):
        path = tmp_path / "a.tmx"
        path.write_text(TMX.format(encoding="utf-8")[:-30])
        with pytest.raises(RowError, match=r"a\.tmx:\d+: is not XML"):
            rows_of(str(path), on_error="skip")

    def test_a_file_without_units_has_no_rows(self, tmp_path):
        path = tmp_path / "a.tmx"
        path.write_text("<tmx><body/></tmx>")
        with pytest.raises(InputError, match="has no rows"):
            rows_of(str(path))

    def test_a_place_where_no_unit_starts_is_noticed(self, tmp_path):
        path = tmp_path / "a.tmx"
        path.write_text(TMX.format(encoding="utf-8"))
        with pytest.raises(InputError, match="changed"):
            TmxFile(path).record_at(3)


def test_another_order_of_keys_does_not_swap_the_languages(tmp_path):
    lines = ({"en": "one", "zh": "一"}, {"zh": "二", "en": "two"})
    path = write(tmp_path / "a.jsonl", *map(json.dumps, lines))
    assert rows_of(path) == [ParallelPair("one", "一"), ParallelPair("two", "二")]


# For each rule a pair that stays and a pair that goes, where the rule is on.
RULES = {
    "length_ratio": (3.0, ("one two three", "一二三四五六七八九"), ("one two three", "一二三四五六七八九十")),
    "languages": (["en", "zh"], ("WTO rules 世", "世界贸易组织 WTO 的规则"), ("OK 你好世界", "你好世界")),
    "identical": (True, ("Paris", "巴黎"), ("Paris ", "PARIS")),
    "markup": (True, ("a < b & c > d; 5 &c.", "x"), ("Press <b>OK</b>", "按确定")),
    "duplicates": (True, ("new", "x"), ("old", "x")),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_keeps_and_drops_and_counts(tmp_path, rule, caplog):
    value, kept, dropped = RULES[rule]
    path = write(tmp_path / "a.tsv", "en\tzh", "old\tx", "\t".join(kept), "\t".join(dropped))
    if rule == "languages":
        path = write(tmp_path / "a.tsv", "en\tzh", "\t".join(kept), "\t".join(dropped))
    without = open_rows(path, kind="parallel")
    assert ParallelPair(*dropped) in list(without)
    with caplog.at_level(logging.WARNING, logger="tercet"):
        rows = open_rows({"sources": [path], "clean": {rule: value}}, kind="parallel")
    found = list(rows)
    assert ParallelPair(*kept) in found
    assert len(found) == len(list(without)) - 1
    counts = rows.describe()["sources"][0]
    assert counts[f"num_left_out_by_{rule}"] == 1
    assert counts["num_read"] == counts["num_rows"] + 1
    assert counts["num_unlabelled"] == counts["num_bad"] == 0
    assert f"left out by rules: {rule} 1" in caplog.text
    assert rows.describe()["sha256"] != without.describe()["sha256"]
    assert sorted(itertools.chain(*rows.batches(batch=1, seed=1, epochs=1)), key=str) == sorted(found, key=str)


def test_exchanged_languages_are_an_error_that_names_the_rule(tmp_path):
    path = write(tmp_path / "a.tsv", "en\tzh", "你好世界\tHello world", "谢谢你们\tThank you")
    with pytest.raises(InputError, match=r"no rows to learn from; rules left out: languages 2\. Check"):
        open_rows({"sources": [path], "clean": {"languages": ["en", "zh"]}}, kind="parallel")


@pytest.mark.parametrize(
    ("languages", "pair", "stays"),
    [
        (["en", "zh"], ("Hello", "Hello"), False),  # a target that was not translated
        (["en", "zh"], ("你好", "你好"), False),
        (["zh", "en"], ("你好", "Hello"), True),
        (["en", "ru"], ("Hello", "Привет"), True),
        (["en", "ru"], ("Hello", "Privet"), False),
        (["ja", "ko"], ("こんにちは世界", "안녕하세요"), True),
        (["en", "zh"], ("12:30", "12:30"), True),  # no letters, no language
        (["en", "zh"], ("Microsoft Windows", "微软 Microsoft Windows"), True),  # a character is a word
    ],
)
def test_a_side_in_another_script_is_dropped(tmp_path, languages, pair, stays):
    path = write(tmp_path / "a.jsonl", *(json.dumps({"source": a, "target": b}) for a, b in [pair, ("1", "2")]))
    assert len(rows_of(path, clean={"languages": languages})) == 1 + stays


# One word in each script, and the languages that are written in it.
WORDS = {
    "Œuvre": "en fr de es it pt nl sv da no nb fi pl cs sk sl hr hu ro et lv lt tr vi id ms sw",
    "Привет": "ru uk bg sr mk be kk mn",
    "مرحبا": "ar fa ur",
    "नमस्ते": "hi mr ne",
    "漢字": "zh ja ko",
    "ひらがな": "ja",
    "コーヒー": "ja",
    "한국어": "ko",
    "Γειά": "el",
    "שלום": "he",
    "สวัสดี": "th",
    "გამარჯობა": "ka",
    "Բարև": "hy",
    "নমস্কার": "bn",
    "வணக்கம்": "ta",
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_in_the_script_of_its_languages_and_of_no_other(word):
    languages = {language for written in WORDS.values() for language in written.split()}
    assert {language for language in languages if script_share(word, language) == 1} == {*WORDS[word].split()}
    assert {language for language in languages if script_share(word, language) == 0} == languages - {
        *WORDS[word].split()
    }
    for language in languages:
        CleanSettings(languages=(language, "en"))


@pytest.mark.parametrize(
    ("text", "num"), [("It is 5 °C.", 4), ("世界, 2 GB", 5), ("コーヒー", 4), ("สวัสดี", 6), ("한국 사람", 2), (" ", 0)]
)
def test_words_are_counted_and_characters_where_no_blanks_stand_between_words(text, num):
    assert num_words(text) == num


def test_duplicates_are_found_across_sources_and_only_among_pairs_that_stay(tmp_path):
    first = write(tmp_path / "a.tsv", "en\tzh", "one\t一", "one\t壹", "<b>\t二")
    second = write(tmp_path / "b.tsv", "en\tzh", "one\t一", "two\t二")
    rows = open_rows({"sources": [first, second], "clean": {"duplicates": True, "markup": True}}, kind="parallel")
    assert [row.target for row in rows] == ["一", "壹", "二"]
    counts = [source["num_left_out_by_duplicates"] for source in rows.describe()["sources"]]
    assert counts == [0, 1]


def test_a_pair_that_a_share_leaves_out_makes_no_other_one_a_duplicate(tmp_path):
    lines = [f"one {i}\t一 {i}" for i in range(200)]
    first, second = (write(tmp_path / name, "en\tzh", *lines) for name in ("a.tsv", "b.tsv"))
    sources = [{"path": first, "share": 0.2}, second]
    rows = open_rows({"sources": sources, "clean": {"duplicates": True}}, kind="parallel")
    assert sorted(row.source for row in rows) == sorted(line.split("\t")[0] for line in lines)
    part, whole = rows.describe()["sources"]
    assert part["num_rows"] + part["num_not_chosen"] == 200
    assert whole["num_left_out_by_duplicates"] == part["num_rows"] > 0


@pytest.mark.parametrize(
    ("clean", "problem"),
    [
        ({"languages": ["en", "xx"]}, "'xx': its script is not known. Known: ar, be"),
        ({"length_ratio": 0.5}, "clean.length_ratio"),
        ({"ratio": 3}, "there is no such setting"),
    ],
)
def test_rules_that_do_not_fit_are_refused(clean, problem):
    with pytest.raises(SettingError, match=problem):
        open_rows({"sources": ["a.tsv"], "clean": clean}, kind="parallel")


def test_other_rows_than_parallel_ones_cannot_be_cleaned(tmp_path):
    path = write(tmp_path / "a.tsv", "anchor\tpositive", "a\tb")
    with pytest.raises(SettingError, match=r"rows\.clean: is for parallel pairs"):
        open_rows({"sources": [path], "clean": {"markup": True}}, kind="triplets")


def test_a_stream_cannot_be_searched_for_duplicates():
    source = {"path": "hub:a/b", "stream": True}
    with pytest.raises(SettingError, match="read again and again"):
        open_rows({"sources": [source], "clean": {"duplicates": True}}, kind="parallel")
