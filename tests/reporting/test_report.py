import json
import math
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tercet.data.sets.groups import GROUPS
from tercet.errors import InputError, OutputError, RowError, SettingError
from tercet.evaluation.published import AVERAGES, Table, load_tables
from tercet.reporting.figures import plan
from tercet.reporting.plots import Plot
from tercet.reporting.report import report
from tercet.reporting.results import read_runs

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK-R")
COSINE = "cosine, Spearman over all pairs of all subsets together"
VOID = {"meta", "wbr"}


def spearman(score: float, **more) -> dict:
    return {"metric": "spearman", "score": score, "num": 1000, "protocol": COSINE} | more


def geometry(alignment: float, uniformity: float, on: str = "STS-B test") -> dict:
    both = {"alignment": alignment, "uniformity": uniformity, "anisotropy": 0.02}
    return {"metric": "uniformity", "score": uniformity, "num": 9, "protocol": "squared", "set": on} | both


def speed(rate: float, num_parameters: int | None = 22_700_000) -> dict:
    grid = [
        {"words": w, "batch": b, "precision": p, "sentences_per_s": rate * b / w, "min": rate / w, "max": 9 * rate * b}
        for w in (8, 32)
        for b in (1, 8)
        for p in ("exact", "fast")
    ]
    result = {
        "metric": "sentences/s",
        "score": rate,
        "num": 8,
        "protocol": "medians",
        "grid": grid,
        "peak_rss_gb": 0.71,
    }
    return result | ({"num_parameters": num_parameters} if num_parameters else {})


def write(path: Path, model: str, tasks: dict, **more) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    content = {"model": model, "settings": {}, "versions": {}, "tasks": tasks, "missing": {}, "averages": {}} | more
    (path / "results.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def write_log(path: Path, lines: list[dict]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@dataclass
class Cell:
    text: str = ""
    under: str = ""
    bold: bool = False
    kind: str = ""


@dataclass
class Row:
    kind: str
    cells: list[Cell] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [cell.text for cell in self.cells]


class Page(HTMLParser):
    """Reads a report: its tables by heading and its text; raises where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.heading = ""
        self.headings: list[str] = []
        self.tables: dict[str, list[list[Row]]] = {}
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h2", "h3"):
            self.headings.append("")
        if tag == "table":
            self.tables.setdefault(self.headings[-1], []).append([])
        if tag == "tr":
            self.tables[self.headings[-1]][-1].append(Row(named.get("class", "")))
        if tag in ("th", "td"):
            self.last.append(Cell(kind=named.get("class", "")))
        if tag == "strong" and "table" in self.open:
            self.last[-1].bold = True

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
        if {"h2", "h3"} & set(self.open):
            self.headings[-1] += data
        if "small" in self.open:
            self.last[-1].under += data
        elif {"th", "td"} & set(self.open):
            self.last[-1].text += data

    @property
    def last(self) -> list[Cell]:
        return self.tables[self.headings[-1]][-1][-1].cells

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def rows(self, heading: str, kind: str | None = None, number: int = 0) -> list[Row]:
        rows = self.tables[heading][number][1:]
        return [row for row in rows if kind is None or row.kind == kind]


def page_of(tmp_path: Path, *inputs: Path) -> Page:
    target = tmp_path / "report.html"
    assert report(inputs, out=target) == [target]
    return Page(target.read_text(encoding="utf-8"))


def svgs_of(path: Path) -> list[ElementTree.Element]:
    found = re.findall(r"<svg.*?</svg>", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found]


def texts_of(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in svg.iter("{http://www.w3.org/2000/svg}text")]


def table(source: str) -> Table:
    return next(table for table in load_tables() if table.source == source)


def column(source: str, name: str) -> int:
    """The place of a column in a report's row."""
    details = {detail for row in table(source).rows for detail in row.details}
    return 1 + len(details) + list(table(source).columns).index(name)


def best_printed(source: str, name: str) -> float:
    return max(row[name].value for row in table(source).rows if row[name].value is not None)


def plots_of(*inputs: Path) -> dict[str, Plot]:
    return {plot.name: plot for figure in plan(read_runs(inputs)) for plot in figure.plots}


def test_every_published_table_that_shares_a_task_is_shown_and_no_other(tmp_path):
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(70.0), "MRPC": spearman(71.0)}))
    expected = [table.source for table in load_tables() if {"STS12", "MRPC"} & set(table.columns)]
    assert len(expected) == 7
    assert [heading for heading in page.headings if ", " in heading] == expected


def test_a_table_of_averages_alone_is_shown_once_an_average_is_complete(tmp_path):
    tasks = {name: spearman(80.0 + i) for i, name in enumerate(STS)}
    source = "Sentence-T5, Table 1"
    assert source in page_of(tmp_path, write(tmp_path / "a", "whole", tasks)).headings
    del tasks["STS16"]
    assert source not in page_of(tmp_path, write(tmp_path / "b", "partial", tasks)).headings


def test_published_rows_are_as_printed_and_come_before_ours(tmp_path):
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(70.0), "PIT": spearman(60.0)}))
    for source in ("Sentence-T5, Table 3", "Parallel translation, Table 2", "GenSE, Table 3"):
        rows = page.rows(source)
        assert [row.kind for row in rows] == [""] * len(table(source).rows) + ["ours", "difference"]
        for row, printed in zip(rows, table(source).rows, strict=False):
            figures = [cell.printed for cell in printed.cells]
            assert row.texts[0] == printed.label
            assert row.texts[-len(figures) :] == figures
            assert sorted(filter(None, row.texts[1 : -len(figures)])) == sorted(printed.details.values())


def test_the_details_of_a_row_stand_in_the_order_of_the_paper(tmp_path):
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(70.0)}))
    assert page.tables["Sentence-T5, Table 3"][0][0].texts[:3] == ["Model", "mark", "fine-tune data"]


def test_a_difference_is_ours_less_the_best_published_cell(tmp_path):
    ours = {"STS12": 79.514, "STS14": -3.256, "STSB": 86.04}
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {name: spearman(score) for name, score in ours.items()}))
    source = "Sentence-T5, Table 3"
    (row,) = page.rows(source, "difference")
    (mine,) = page.rows(source, "ours")
    for name, score in ours.items():
        cell = row.cells[column(source, name)]
        difference = round(score, 2) - best_printed(source, name)
        assert float(cell.text) == pytest.approx(difference, abs=1e-9)
        assert cell.kind == {1: "better", -1: "worse", 0: ""}[round(math.copysign(1, difference)) if difference else 0]
        assert mine.texts[column(source, name)] == f"{score:.2f}"
    assert row.texts[column(source, "STS12")] == "+1.46"
    assert row.texts[column(source, "STSB")] == "0.00"
    assert row.texts[column(source, "STS13")] == "\u2013"


def test_our_scores_have_as_many_decimals_as_the_paper_prints(tmp_path):
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"PIT": spearman(77.26)}))
    source = "GenSE, Table 3"
    assert page.rows(source, "ours")[0].texts[column(source, "PIT")] == "77.3"
    assert page.rows(source, "difference")[0].texts[column(source, "PIT")] == "0.0"


def test_the_best_of_a_column_is_bold_whether_published_or_ours(tmp_path):
    high = write(tmp_path / "a", "high", {"STS12": spearman(99.0), "STS13": spearman(1.0), "STSB": spearman(86.04)})
    low = write(tmp_path / "b", "low", {"STS12": spearman(98.0)})
    page = page_of(tmp_path, high, low)
    source = "Sentence-T5, Table 3"

    def bold(name: str) -> list[str]:
        return [row.texts[0] for row in page.rows(source) if row.cells[column(source, name)].bold]

    def printed(name: str) -> list[str]:
        best = best_printed(source, name)
        return [row.label for row in table(source).rows if row[name].value == best]

    assert bold("STS12") == ["high"]
    assert bold("STS13") == printed("STS13")
    assert bold("STSB") == [*printed("STSB"), "high"]
    assert bold("STS16") == printed("STS16")


def test_a_complete_average_is_the_mean_of_its_tasks_and_is_compared(tmp_path):
    scores = dict(zip(STS, (90.1, 91.22, 92.4, 80.0, 85.5, 99.9, 70.7), strict=True))
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {name: spearman(score) for name, score in scores.items()}))
    source = "GenSE, Table 2"
    cell = page.rows(source, "ours")[0].cells[column(source, "avg")]
    mean = statistics.mean(scores.values())
    assert (cell.text, cell.under, cell.bold) == (f"{mean:.2f}", "", True)
    difference = page.rows(source, "difference")[0].texts[column(source, "avg")]
    assert difference == f"{round(mean, 2) - best_printed(source, 'avg'):+.2f}"


def test_an_average_over_fewer_tasks_says_so_and_is_neither_bold_nor_compared(tmp_path):
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(99.0), "SICK-R": spearman(98.0)}))
    source = "GenSE, Table 2"
    cell = page.rows(source, "ours")[0].cells[column(source, "avg")]
    assert (cell.text, cell.under, cell.bold) == ("98.50", "over 2 of 7", False)
    assert page.rows(source, "difference")[0].texts[column(source, "avg")] == "\u2013"
    assert "the mean of sts is over STS12, SICK-R only (2 of 7 tasks) and is not compared." in page.text
    assert page.rows("Models")[0].cells[-1].under == "over 2 of 7"


def test_a_model_stands_only_in_tables_whose_tasks_it_has(tmp_path):
    sts = write(tmp_path / "a", "on-sts", {"STS12": spearman(70.0)})
    transfer = write(tmp_path / "b", "on-transfer", {"MR": spearman(80.0)})
    page = page_of(tmp_path, sts, transfer)
    assert [row.texts[0] for row in page.rows("Sentence-T5, Table 3", "ours")] == ["on-sts"]
    assert [row.texts[0] for row in page.rows("Sentence-T5, Table 2", "ours")] == ["on-transfer"]


def test_source_and_protocols_and_their_differences_are_named(tmp_path):
    tasks = {
        "STS12": spearman(70.0, note="3108 pairs were expected", num_truncated=0),
        "MR": spearman(80.0, num_truncated=1_234),
    }
    settings = {"precision": "fast", "classifier": "sklearn", "max_tokens": 32}
    page = page_of(tmp_path, write(tmp_path / "a", "mine", tasks, settings=settings))
    printed = table("Sentence-T5, Table 3")
    for line in (
        f"{printed.source}: {printed.title}",
        printed.protocol,
        f"STS12: {COSINE}.",
        "mine: STS12: 3108 pairs were expected.",
        "mine: embedded with precision fast (bf16), not in fp32.",
        "mine: scikit-learn's LogisticRegression, where SentEval trains by Adam.",
        "mine: texts cut to 32 tokens: MR 1,234.",
        *printed.notes,
    ):
        assert " ".join(line.split()) in page.text


def test_the_report_says_which_features_classifiers_read(tmp_path):
    tasks = {"MR": spearman(80.0)}
    files = [
        write(tmp_path / name, name, tasks, settings={"normalize": value})
        for name, value in (("raw", False), ("unit", True))
    ]
    page = page_of(tmp_path, *files)
    assert "raw: classifiers read vectors as they are" in page.text
    assert "unit: classifiers read vectors that are scaled to length 1" in page.text


def test_training_rows_of_sentglue_are_named_once_for_models_that_share_them(tmp_path):
    tasks = {"glue-RTE": spearman(60.0, num_train=2490)}
    page = page_of(tmp_path, write(tmp_path / "a", "one", tasks), write(tmp_path / "b", "two", tasks))
    assert "one, two: training rows used: glue-RTE 2,490." in page.text


def test_tasks_that_no_paper_has_get_a_table_of_their_own(tmp_path):
    first = {"STSB-dev": spearman(86.7), "scored:my.tsv": spearman(-4.2), "retrieval": spearman(90.0)}
    second = {"STSB-dev": spearman(80.0), "scored:my.tsv": spearman(12.0)}
    page = page_of(tmp_path, write(tmp_path / "a", "one", first), write(tmp_path / "b", "two", second))
    head, *_ = page.tables["Other tasks"][0]
    one, two = page.rows("Other tasks")
    assert head.texts == ["Model", "STSB-dev", "scored:my.tsv", "retrieval"]
    assert one.texts == ["one", "86.70", "-4.20", "90.00"]
    assert two.texts == ["two", "80.00", "12.00", "\u2013"]
    assert [cell.bold for cell in one.cells] == [False, True, False, False]
    assert [cell.bold for cell in two.cells] == [False, False, True, False]


def test_subsets_and_means_over_them_are_shown(tmp_path):
    parts = {"mean": 70.017, "weighted_mean": 71.072, "pearson": 81.36, "subsets": {"MSRpar": 57.84, "MSRvid": 93.61}}
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(72.369, **parts)}))
    assert [row.texts for row in page.rows("Parts of tasks")] == [
        ["score (spearman)", "72.37"],
        ["mean over subsets", "70.02"],
        ["mean over subsets, weighted by size", "71.07"],
        ["Pearson", "81.36"],
        ["MSRpar", "57.84"],
        ["MSRvid", "93.61"],
    ]


def test_lower_is_better_in_geometry_alone(tmp_path):
    one = write(tmp_path / "a", "one", {"geometry": geometry(0.20, -3.1), "speed": speed(100.0)})
    two = write(tmp_path / "b", "two", {"geometry": geometry(0.25, -3.4), "speed": speed(300.0)})
    page = page_of(tmp_path, one, two)
    first, second = page.rows("Geometry")
    assert first.texts[:4] == ["one", "STS-B test", "0.200", "-3.100"]
    assert [cell.bold for cell in first.cells[2:4]] == [True, False]
    assert [cell.bold for cell in second.cells[2:4]] == [False, True]
    assert [row.cells[2].bold for row in page.rows("Speed")] == [False, True]


def test_geometry_on_different_sets_is_not_compared(tmp_path):
    one = write(tmp_path / "a", "one", {"geometry": geometry(0.20, -3.1)})
    two = write(tmp_path / "b", "two", {"geometry": geometry(0.25, -3.4, on="STS-B dev")})
    page = page_of(tmp_path, one, two)
    assert not any(cell.bold for row in page.rows("Geometry") for cell in row.cells)
    assert {"geometry-sts-b-test", "geometry-sts-b-dev"} == set(plots_of(one, two))


def test_the_head_says_settings_versions_and_missing_data(tmp_path):
    settings = {"readout": "mean", "prompt": None, "fingerprint": "ab" * 32}
    one = write(tmp_path / "a", "one", {"MR": spearman(80)}, settings=settings, versions={"torch": "2.13.0"})
    missing = {"STS13": "STS.input.FNWN.txt: not in eval. Put the file there."}
    two = write(tmp_path / "b", "two", {"MR": spearman(80)}, settings=settings | {"readout": "cls"}, missing=missing)
    page = page_of(tmp_path, one, two)
    assert "prompt off, fingerprint abababababab" in page.text
    assert ["readout", "mean", "cls"] in [row.texts for row in page.rows("Models", number=1)]
    assert ["torch", "2.13.0", "\u2013"] in [row.texts for row in page.rows("Models", number=1)]
    assert [row.texts for row in page.rows("Models", number=2)] == [["STS13", "two", missing["STS13"]]]


def test_models_that_were_scored_on_different_files_are_told_apart(tmp_path):
    same, other = {"eval/a.txt": "1" * 64}, {"eval/a.txt": "2" * 64}
    one = write(tmp_path / "a", "one", {"MR": spearman(80, data=same), "CR": spearman(80, data=same)})
    two = write(tmp_path / "b", "two", {"MR": spearman(80, data=same), "CR": spearman(80, data=other)})
    assert "CR: the models were not scored on the same files." in page_of(tmp_path, one, two).text


def test_a_score_that_is_no_number_counts_as_missing_and_is_never_printed(tmp_path):
    tasks = {"STS12": spearman(float("nan")), "STS13": spearman(80.0, pearson=float("inf"), mean=None)}
    tasks |= {"STS14": spearman(70.0, subsets={"a": float("nan"), "b": 1.0}), "geometry": geometry(float("nan"), -3.0)}
    folder = write_log(write(tmp_path / "a", "mine", tasks), [{"step": 1, "loss": float("nan")}, {"step": None}])
    page = page_of(tmp_path, folder)
    source = "Sentence-T5, Table 3"
    assert page.rows(source, "ours")[0].texts[column(source, "STS12")] == "\u2013"
    assert page.rows(source, "ours")[0].cells[column(source, "avg")].under == "over 2 of 7"
    assert "the score is not a finite number" in page.text
    report([folder], out=tmp_path / "report.md")
    for text in (page.text, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert not re.search(r"\b(nan|inf|none|null)\b", text.replace("none known", ""), flags=re.IGNORECASE)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a|b *c* [d](e)", "$x^2$ & _y", "_模型 🙂\x1b"])
def test_names_from_files_are_text_and_never_markup(tmp_path, name):
    tasks = {"STSB": spearman(80.0), "geometry": geometry(0.2, -3.0, on=name), f"scored:{name}": spearman(1)}
    folder = write(tmp_path / "a", name, tasks, settings={name: name}, versions={name: name}, missing={name: name})
    page = page_of(tmp_path, folder)
    shown = " ".join(name.replace("\x1b", " ").split())
    assert page.rows("Models")[0].texts[0] == shown
    assert "<script" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    (svg,) = svgs_of(tmp_path / "report.html")
    assert f"{shown} (80.00)" in [text.removeprefix("\u200b") for text in texts_of(svg)]
    markdown, drawing = report([folder], out=tmp_path / "report.md")
    text = markdown.read_text(encoding="utf-8")
    assert "<script" not in text
    assert not re.search(r"(?<!\\)\[d", re.sub("<summary>.*", "", text))  # a summary is HTML, not Markdown
    head = next(line for line in text.splitlines() if line.startswith("| \u25b6"))
    assert len(re.findall(r"(?<!\\)\|", head)) == len(page.rows("Models")[0].cells) + 1
    assert f"{shown} (80.00)" in [
        text.removeprefix("\u200b") for text in texts_of(ElementTree.parse(drawing).getroot())
    ]


def test_names_in_a_training_log_are_text(tmp_path):
    name = "<b>$_"
    lines = [{"step": i, "alignment": 0.1 * i, "set": name, "stage": stage} for i in range(3) for stage in (name, "qa")]
    page_of(tmp_path, write_log(tmp_path / name.replace("<", "_"), lines))
    (svg,) = svgs_of(tmp_path / "report.html")
    assert f"Alignment in training ({name})" in texts_of(svg)
    assert any(text.endswith(f", {name}") for text in texts_of(svg))


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> list[Path]:
    """Two models with everything that a report can show."""
    folder = tmp_path_factory.mktemp("full")
    tasks = {name: spearman(70.0 + i, subsets={"x": 1.5}) for i, name in enumerate(STS)}
    both = {"geometry": geometry(0.2, -3.1), "speed": speed(90.0), "retrieval": spearman(50.0)}
    lines = [{"step": i, "loss": 1 / (1 + i), "dev": 80 + i, "temperature": 0.05} for i in range(900)]
    lines += [{"step": i, "alignment": 0.2 + i / 9, "uniformity": -1 - i, "set": "STS-B dev"} for i in range(5)]
    one = write_log(write(folder / "a", "one", tasks | both), lines)
    two = write_log(write(folder / "b", "two", tasks | both | {"geometry": geometry(0.3, -3.3)}), lines[900:])
    return [one, two]


@pytest.fixture(scope="module")
def written(full, tmp_path_factory) -> Path:
    """A folder with the reports of the two models, as HTML and as Markdown."""
    folder = tmp_path_factory.mktemp("written")
    for name in ("report.html", "my report.md"):
        report(full, out=folder / name)
    return folder


def test_a_report_is_one_file_that_fetches_nothing(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    links = re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", text)
    assert links
    assert all(link.startswith("#") for link in links)
    addresses = set(re.findall(r"https?://[^\"'\s<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "<script" not in text
    assert "@import" not in text


def test_links_lead_to_sections_and_no_identifier_is_there_twice(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    ids = Page(text).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_figures_are_well_formed_and_their_text_stays_text(full, written):
    svgs = svgs_of(written / "report.html")
    plots = plots_of(*full).values()
    assert len(plots) == 11
    assert [svg.get("aria-label") for svg in svgs] == [plot.title for plot in plots]
    for svg, plot in zip(svgs, plots, strict=True):
        assert {plot.title, plot.x_label, plot.y_label} <= set(texts_of(svg))


def test_the_same_input_gives_the_same_bytes_in_another_process(full, written, tmp_path):
    code = "import sys, tercet; [tercet.report(sys.argv[3:], out=out) for out in sys.argv[1:3]]"
    command = [sys.executable, "-c", code, tmp_path / "report.html", tmp_path / "my report.md", *full]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)})

    def contents(folder: Path) -> dict[Path, bytes]:
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert len(contents(written)) == 13
    assert contents(tmp_path) == contents(written)


def test_markdown_has_the_same_tables_and_its_figures_beside_it(written):
    page = Page((written / "report.html").read_text(encoding="utf-8"))
    text = (written / "my report.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    assert len(lines) == sum(len(table) for tables in page.tables.values() for table in tables)
    figures = [path.name for path in (written / "my report-figures").iterdir()]
    assert set(re.findall(r"\]\((.+?)\)", text)) == {f"my%20report-figures/{name}" for name in figures}
    ours = page.rows("Sentence-T5, Table 3", "ours")[0]
    assert f"| \u25b6 {' | '.join(ours.texts)} |" in text.replace("**", "")


def test_nothing_to_draw_means_no_figure_and_no_need_of_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "tercet.reporting.drawing", raising=False)
    page = page_of(tmp_path, write(tmp_path / "a", "mine", {"STS12": spearman(70.0)}))
    assert "Figures" not in page.headings
    assert svgs_of(tmp_path / "report.html") == []
    drawn = write(tmp_path / "b", "mine", {"geometry": geometry(0.2, -3.0)})
    with pytest.raises(SettingError, match=r"pip install 'tercet\[report\]'"):
        report([drawn], out=tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_scaling_has_the_published_averages_at_their_true_sizes(tmp_path):
    tasks = {name: spearman(80.0) for name in STS} | {"speed": speed(9.0, num_parameters=60_500_000)}
    plots = plots_of(write(tmp_path / "a", "mine", tasks))
    lines = {series.label: series.points for series in plots["scaling-sts"].series}
    assert lines == {
        "ST5-Enc mean, NLI": ((110e6, 81.92), (335e6, 82.71), (1.24e9, 83.62), (4.86e9, 83.74)),
        "ST5-Enc mean, CQA+NLI": ((110e6, 83.34), (335e6, 84.11), (1.24e9, 84.59), (4.86e9, 84.96)),
        "ST5-EncDec first, NLI": ((222.9e6, 82.81), (737.7e6, 84.11), (2.85e9, 84.41), (11.3e9, 84.94)),
        "GenSE": ((60.5e6, 82.5), (222.9e6, 84.78)),
        "GenSE+": ((222.9e6, 85.19),),
        "mine": ((60_500_000, pytest.approx(80.0)),),
    }
    assert "scaling-transfer" not in plots


@pytest.mark.parametrize("lacking", ["STS13", "speed"])
def test_scaling_is_drawn_only_for_complete_averages_of_known_size(tmp_path, lacking):
    tasks = {name: spearman(80.0) for name in STS} | {"speed": speed(9.0)}
    del tasks[lacking]
    assert "scaling-sts" not in plots_of(write(tmp_path / "a", "mine", tasks))


def test_alignment_and_uniformity_are_coloured_by_the_score_on_the_same_set(tmp_path):
    scores = {"STSB": spearman(85.0), "STSB-dev": spearman(88.0)}
    test = write(tmp_path / "a", "test", {"geometry": geometry(0.2, -3.0)} | scores)
    dev = write(tmp_path / "b", "dev", {"geometry": geometry(0.2, -3.0, on="STS-B dev")} | scores)
    bare = write(tmp_path / "c", "bare", {"geometry": geometry(0.3, -2.0)})
    plots = plots_of(test, dev, bare)
    assert [series.values for series in plots["geometry-sts-b-test"].series] == [(85.0,), (None,)]
    assert [series.points for series in plots["geometry-sts-b-test"].series] == [((-3.0, 0.2),), ((-2.0, 0.3),)]
    assert [series.values for series in plots["geometry-sts-b-dev"].series] == [(88.0,)]


def test_names_of_points_do_not_overlap(tmp_path):
    inputs = [
        write(tmp_path / str(i), f"model number {i}", {"geometry": geometry(0.2 + i / 1e4, -3 - i / 1e3)})
        for i in range(5)
    ]
    far = write(tmp_path / "far", "far", {"geometry": geometry(0.5, -1.0)})
    page_of(tmp_path, *inputs, far)
    (svg,) = svgs_of(tmp_path / "report.html")
    places = []
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        if "".join(text.itertext()).startswith("model number"):
            place = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
            x, y = place.groups() if place else (text.get("x"), text.get("y"))
            places.append((float(x), float(y)))
    assert len(places) == 5
    for i, (x, y) in enumerate(places):
        # 70 points are less than the width of a name, 9 less than its height
        assert all(abs(x - other_x) > 70 or abs(y - other_y) > 9 for other_x, other_y in places[:i])


def test_a_training_log_becomes_lines_against_steps_and_a_path(tmp_path):
    lines = [
        {"step": 0, "alignment": 0.1, "uniformity": -1.0, "set": "STS-B dev"},
        {"step": 100, "alignment": 0.9, "uniformity": -9.0, "set": "STS-B dev"},
        {"step": 100, "loss": 0.5},
        {"step": 100, "alignment": 0.2, "uniformity": -2.0, "set": "STS-B dev", "dev": 80.0},
        {"step": 200, "uniformity": -3.0, "set": "STS-B dev"},
        {"step": 0, "alignment": 0.4, "uniformity": -0.5, "set": "parallel"},
        {"event": "saved"},
    ]
    one = write_log(tmp_path / "one", lines)
    two = write_log(tmp_path / "two", [lines[0], lines[3]])
    plots = plots_of(one, two)
    assert set(plots) == {f"trajectory-sts-b-dev-{part}" for part in ("alignment", "uniformity", "path")}
    series = {name: [(s.label, s.points) for s in plot.series] for name, plot in plots.items()}
    assert series["trajectory-sts-b-dev-alignment"][0] == ("one", ((0, 0.1), (100, 0.2)))
    assert series["trajectory-sts-b-dev-uniformity"][0] == ("one", ((0, -1.0), (100, -2.0), (200, -3.0)))
    assert series["trajectory-sts-b-dev-path"] == [
        ("one", ((-1.0, 0.1), (-2.0, 0.2))),
        ("two", ((-1.0, 0.1), (-2.0, 0.2))),
    ]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_ways_of_several_runs_are_drawn_by_themselves_a_panel_for_each_set(tmp_path, ending):
    sets = ("STSB-dev", "ntrex:eng-zho-CN")
    lines = [
        {"step": i, "alignment": 0.1 * i, "uniformity": -1.0 * i, "set": where} for where in sets for i in range(4)
    ]
    batches = [{"step": i, "alignment": 1.0, "uniformity": -0.5 * i, "loss": 2.0} for i in range(4)]
    runs = [write_log(tmp_path / name, lines + batches) for name in ("frozen", "dual")]
    out = tmp_path / f"figure.{ending}"
    assert report(runs, out=out) == [out]
    first = out.read_bytes()
    report(runs, out=out)
    assert out.read_bytes() == first
    if ending == "png":
        assert first.startswith(b"\x89PNG")
        return
    texts = texts_of(ElementTree.fromstring(first))
    assert {f"The way through the plane ({where})" for where in sets} <= set(texts)
    assert "The way through the plane" not in texts  # what was measured on batches is another set in every step
    assert (texts.count("frozen"), texts.count("dual")) == (1, 1)
    with pytest.raises(InputError, match="were not measured on dev pairs"):
        report([write_log(tmp_path / "other", batches)], out=out)


def test_stages_that_count_their_steps_anew_are_lines_of_their_own(tmp_path):
    lines = [{"step": i, "loss": 1.0 / (i + 1), "stage": stage} for stage in ("nli", "qa") for i in range(3)]
    plot = plots_of(write_log(tmp_path / "run", lines))["training-loss"]
    assert [(series.label, len(series.points)) for series in plot.series] == [("run, nli", 3), ("run, qa", 3)]


def test_a_long_log_is_drawn_as_means(tmp_path):
    plot = plots_of(write_log(tmp_path / "run", [{"step": i, "loss": float(i)} for i in range(1000)]))["training-loss"]
    (series,) = plot.series
    assert series.points[0] == (2, 1.0)
    assert len(series.points) == math.ceil(1000 / 3)
    assert series.points[-1] == (999, 999.0)


def test_half_a_last_line_of_a_log_is_left_out(tmp_path):
    folder = write_log(tmp_path / "run", [{"step": i, "loss": 1.0} for i in range(3)])
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"step": 3, "lo')
    assert len(read_runs([folder])[0].steps) == 3


def test_speed_is_drawn_by_length_and_by_batch_with_the_spread(tmp_path):
    plots = plots_of(write(tmp_path / "a", "mine", {"speed": speed(64.0)}))
    assert set(plots) == {"speed-words", "speed-batch"}
    exact, fast = plots["speed-words"].series
    assert (exact.label, fast.label) == ("mine, exact", "mine, fast")
    assert exact.points == ((8, 64.0), (32, 16.0))
    assert exact.spread == ((8.0, 4608.0), (2.0, 4608.0))
    assert plots["speed-batch"].series[0].points == ((1, 2.0), (8, 16.0))


def test_speed_by_length_is_drawn_at_own_batches_where_every_run_has_them(tmp_path):
    old, new = speed(64.0), speed(64.0)
    own = [{"words": w, "batch": None, "precision": "exact", "sentences_per_s": 100.0 * w} for w in (8, 32)]
    new["grid"] = [*own, *new["grid"]]
    alone = write(tmp_path / "new", "new", {"speed": new})
    plots = plots_of(alone)
    assert plots["speed-words"].title == "Speed by length (own batches)"
    assert [s.points for s in plots["speed-words"].series] == [((8, 800.0), (32, 3200.0))]
    assert plots["speed-batch"].series[0].points == ((1, 2.0), (8, 16.0))  # own batches have no size
    both = plots_of(alone, write(tmp_path / "old", "old", {"speed": old}))
    assert both["speed-words"].title == "Speed by length (batch 8)"
    assert len(both["speed-words"].series) == 4


def test_models_of_one_name_are_told_apart_by_their_folders(tmp_path):
    tasks = {"STS12": spearman(70.0)}
    one, two = write(tmp_path / "one", "t5", tasks), write(tmp_path / "two", "t5", tasks)
    deep = write(tmp_path / "deep" / "two", "t5", tasks)
    assert [run.label for run in read_runs([one, two, deep])] == ["t5 (one)", "t5 (two)", "t5 (two) #2"]


def test_a_file_that_is_named_twice_is_reported_once(tmp_path):
    folder = write(tmp_path / "a", "mine", {"STS12": spearman(70.0)})
    assert len(read_runs([folder, folder / "results.json", str(folder)])) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"results\.json: is not JSON .*\. Name a file"),
        (b'{"model": "x", "tasks"', r"results\.json: is not JSON .*\. Name a file"),
        (b"\xff\xfe{}", r"results\.json: is not JSON .*\. Name a file"),
        (b"[]", r"is no results file: .*\. Name a file"),
        (b"{}", r"is no results file: model: field required\. Name a file"),
        (b'{"model": "x", "tasks": {"STS12": {"metric": "spearman"}}}', r"tasks\.STS12\.score: field required"),
        (
            b'{"model": "x", "tasks": {"STS12": {"score": "high"}}}',
            r"tasks\.STS12\.score: input should be a valid number",
        ),
        (b'{"model": "x", "tasks": {"STS12": 72.3}}', r"is no results file: tasks\.STS12: "),
    ],
)
def test_a_file_that_holds_no_results_is_refused(tmp_path, content, message):
    (tmp_path / "results.json").write_bytes(content)
    for path in (tmp_path, tmp_path / "results.json"):
        with pytest.raises(InputError, match=message):
            report([path], out=tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match="nothing to report: no results were named"):
        report([], out=tmp_path / "report.html")
    with pytest.raises(InputError, match=r"gone: no such file or folder\. Name"):
        report([tmp_path / "gone"], out=tmp_path / "report.html")
    with pytest.raises(InputError, match=r"holds neither results\.json nor metrics\.jsonl"):
        report([tmp_path], out=tmp_path / "report.html")


@pytest.mark.parametrize("line", ["{", "[1]", '"text"'])
def test_a_broken_line_of_a_log_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + line + '\n{"step": 2}\n', encoding="utf-8")
    with pytest.raises(RowError, match=r"metrics\.jsonl:2: is not (JSON|a JSON object)"):
        report([tmp_path], out=tmp_path / "report.html")


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.htm", ".html"])
def test_a_target_of_another_kind_is_refused(tmp_path, name):
    with pytest.raises(SettingError, match=r"a report ends in \.html or \.md"):
        report([write(tmp_path / "a", "mine", {"STS12": spearman(70.0)})], out=tmp_path / name)


def test_a_target_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path):
    folder = write(tmp_path / "a", "mine", {"geometry": geometry(0.2, -3.0)})
    with pytest.raises(OutputError, match=r"cannot write .*report\.html"):
        report([folder], out=tmp_path / "gone" / "report.html")
    (tmp_path / "report-figures").write_text("a file in the way", encoding="utf-8")
    with pytest.raises(OutputError, match=r"cannot write .*report-figures"):
        report([folder], out=tmp_path / "report.md")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "report-figures"]


def test_the_command_writes_a_report(tmp_path):
    from tercet.cli import app

    folder = write(tmp_path / "a", "mine", {"STS12": spearman(70.0)})
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "report.html")])
    assert result.exit_code == 0
    assert (tmp_path / "report.html").exists()
    assert CliRunner().invoke(app, ["report", "--out", str(tmp_path / "report.html")]).exit_code == 2


def test_a_report_needs_neither_torch_nor_matplotlib_to_be_imported():
    heavy = ("torch", "matplotlib", "transformers")
    code = f"import sys, tercet.reporting.report; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_averages_are_over_the_same_tasks_as_in_an_evaluation():
    assert {name: AVERAGES[name] for name in GROUPS if name != "zh"} == {
        name: tasks for name, tasks in GROUPS.items() if name != "zh"
    }


@pytest.mark.parametrize("name", ["out.html", "out.md", "out.svg", "out.png", "out.md: a figure"])
def test_what_is_no_report_is_not_replaced_unless_it_is_asked_for(full, tmp_path, name):
    target = tmp_path / name.partition(":")[0]
    written = report(full, out=target)
    own = written[-1 if "figure" in name else 0]
    assert report(full, out=target) == written  # a report is replaced
    before = own.read_bytes()
    own.write_text("of value")
    with pytest.raises(OutputError, match=r"is no report, and would be lost\. .+--force"):
        report(full, out=target)
    assert own.read_text() == "of value"
    report(full, out=target, force=True)
    assert own.read_bytes() == before
