import subprocess
import sys
from dataclasses import asdict
from decimal import Decimal
from itertools import chain

import pytest

from tercet.evaluation.published import Cell, Row, Table, find, load_tables

AVERAGES = {
    "sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK-R"),
    "transfer": ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"),
    "sentglue": (
        "glue-CoLA",
        "glue-SST2",
        "glue-MRPC",
        "glue-STSB",
        "glue-QQP",
        "glue-MNLI-m",
        "glue-MNLI-mm",
        "glue-QNLI",
        "glue-RTE",
    ),
    "domain": ("AskUbuntu", "CQADupStack", "TwitterURL", "PIT", "BIOSSES"),
    "twitter": ("TwitterURL", "PIT"),
}
TASKS = {*chain.from_iterable(AVERAGES.values()), "STSB-dev", "ZH-STSB"}
QUANTITIES = {
    "Sentence-T5, Table 4": ("Base", "Large", "3B", "11B"),
    "Sentence-T5, Appendix A": ("examples_per_s",),
    "GenSE, Sections 3.1 and 3.4": ("num_kept",),
    "GenSE, Section 6": ("gpu_hours",),
    "Parallel translation, Table 6": ("batch_per_gpu", "learning_rate", "queue"),
}
NUM_ROWS = {
    "Sentence-T5, Table 1": 6,
    "Sentence-T5, Table 2": 12,
    "Sentence-T5, Table 3": 12,
    "Sentence-T5, Table 4": 2,
    "Sentence-T5, Table 5 (transfer)": 14,
    "Sentence-T5, Table 5 (STS)": 14,
    "Sentence-T5, Table 6": 11,
    "Sentence-T5, Appendix A": 3,
    "GenSE, Table 2": 14,
    "GenSE, Table 3": 13,
    "GenSE, Table 4": 4,
    "GenSE, Table 5": 3,
    "GenSE, Table 6": 5,
    "GenSE, Table 7": 2,
    "GenSE, Table 8": 5,
    "GenSE, Sections 3.1 and 3.4": 2,
    "GenSE, Section 3.4": 1,
    "GenSE, Section 6": 1,
    "Parallel translation, Table 1": 3,
    "Parallel translation, Table 2": 32,
    "Parallel translation, Table 3": 3,
    "Parallel translation, Table 4": 3,
    "Parallel translation, Table 5": 3,
    "Parallel translation, Table 6": 4,
    "Parallel translation, Table 7": 10,
    "Parallel translation, Table 8": 3,
}

every_table = pytest.mark.parametrize("table", load_tables(), ids=lambda table: table.source)


def rows_of(source: str, label: str, details: dict[str, str]) -> list[Row]:
    rows = (row for table in load_tables() if table.source == source for row in table.rows)
    return [row for row in rows if row.label == label and details.items() <= row.details.items()]


def test_every_table_of_the_papers_is_there_with_all_its_rows():
    assert {table.source: len(table.rows) for table in load_tables()} == NUM_ROWS
    assert len(load_tables()) == len(NUM_ROWS)


@every_table
def test_a_table_names_its_source_and_says_what_it_measures(table: Table):
    assert table.source == f"{table.paper}, {table.table}" + (f" ({table.part})" if table.part else "")
    assert table.title
    assert table.caption.endswith(".")
    assert table.protocol.endswith(".")
    assert table.metric
    for cell in chain.from_iterable(row.cells for row in table.rows):
        assert (cell.paper, cell.table, cell.source) == (table.paper, table.table, table.source)


@every_table
def test_columns_are_tasks_or_averages_or_known_quantities(table: Table):
    for column, heading in table.columns.items():
        assert heading
        if column.startswith("avg"):
            assert table.averages[column] in AVERAGES
        else:
            assert column in TASKS or column in QUANTITIES[table.source]
    assert set(table.averages) == {column for column in table.columns if column.startswith("avg")}


@every_table
def test_every_row_has_all_its_columns_or_a_note_says_why_not(table: Table):
    for row in table.rows:
        assert [cell.column for cell in row.cells] == list(table.columns)
        assert all((cell.row, cell.details) == (row.label, row.details) for cell in row.cells)
        for cell in row.cells:
            if cell.value is None:
                assert cell.printed == "-"
                assert any(row.label in note and table.columns[cell.column] in note for note in table.notes)


@every_table
def test_rows_of_a_table_differ_in_label_or_details(table: Table):
    assert len({(row.label, *row.details.items()) for row in table.rows}) == len(table.rows)


@every_table
def test_scores_lie_in_the_range_of_their_metric(table: Table):
    for cell in chain.from_iterable(row.cells for row in table.rows):
        if cell.value is None or table.source in QUANTITIES:
            continue
        assert -100 <= cell.value <= 100
        assert float(cell.printed) == cell.value
        assert len(cell.printed.partition(".")[2]) in (1, 2)


def means_of_members(table: Table) -> dict[tuple[int, str], tuple[Decimal, Decimal]]:
    """(row number, average column) -> the printed average and the mean of its members, where the table prints them."""
    means = {}
    for column, group in table.averages.items():
        if not set(AVERAGES[group]) <= set(table.columns):
            continue
        for number, row in enumerate(table.rows, start=1):
            members = [Decimal(row[task].printed) for task in AVERAGES[group] if row[task].value is not None]
            means[number, column] = Decimal(row[column].printed), sum(members) / len(members)
    return means


@every_table
def test_printed_averages_are_the_mean_of_their_cells_except_where_the_table_says_so(table: Table):
    # By the printed average's decimals; the cells are rounded too, so a mean may be more than half a unit off.
    tolerance = {1: Decimal("0.051"), 2: Decimal("0.011")}
    off: dict[int, dict[str, float]] = {}
    for (number, column), (printed, mean) in means_of_members(table).items():
        if abs(printed - mean) > tolerance[-int(printed.as_tuple().exponent)]:
            off.setdefault(number, {})[column] = float(round(mean, 2))
    assert off == table.mismatches
    for number, means in off.items():
        for column, mean in means.items():
            printed = table.rows[number - 1][column].printed
            assert any(f"Row {number}," in note and printed in note and f"{mean:.2f}" in note for note in table.notes)


def test_averages_are_checked_in_all_nine_tables_that_print_their_members():
    checked = [table.source for table in load_tables() if means_of_members(table)]
    assert checked == [
        "Sentence-T5, Table 2",
        "Sentence-T5, Table 3",
        "Sentence-T5, Table 5 (transfer)",
        "Sentence-T5, Table 5 (STS)",
        "Sentence-T5, Table 6",
        "GenSE, Table 2",
        "GenSE, Table 3",
        "Parallel translation, Table 2",
        "Parallel translation, Table 7",
    ]


@pytest.mark.parametrize(
    ("source", "label", "details", "column", "value"),
    [
        ("Sentence-T5, Table 1", "SimCSE-RoBERTa (large)", {}, "avg-transfer", 90.23),
        ("Sentence-T5, Table 1", "InferSent", {}, "avg-sts", 65.01),
        ("Sentence-T5, Table 2", "ST5-Enc mean", {"fine-tune data": "N/A"}, "MR", 86.56),
        ("Sentence-T5, Table 2", "ST5-Enc-1.1 mean", {"fine-tune data": "CQA+NLI"}, "SST2", 92.15),
        ("Sentence-T5, Table 3", "ST5-Enc first", {"fine-tune data": "N/A"}, "STS14", -20.70),
        ("Sentence-T5, Table 3", "ST5-EncDec first", {"fine-tune data": "NLI"}, "STSB", 84.98),
        ("Sentence-T5, Table 4", "ST5-Enc", {}, "3B", 1.24e9),
        ("Sentence-T5, Table 5 (transfer)", "ST5-EncDec first (3B)", {"fine-tune data": "NLI"}, "MRPC", 78.26),
        ("Sentence-T5, Table 5 (STS)", "ST5-Enc mean (11B)", {"fine-tune data": "CQA+NLI"}, "SICK-R", 80.39),
        ("Sentence-T5, Table 6", "ST5 Enc (11B)", {"fine-tune data": "CQA+NLI"}, "glue-CoLA", 43.91),
        ("Sentence-T5, Table 6", "InferSent", {"fine-tune data": "NLI"}, "glue-QNLI", 63.50),
        ("Sentence-T5, Appendix A", "ST5 11B", {"hardware": "4 V100 GPUs"}, "examples_per_s", 27),
        ("GenSE, Table 2", "GenSE+", {"# params": "220M"}, "STS16", 85.82),
        ("GenSE, Table 3", "TSDAE-BERT-Base", {"fine-tune data": "In-domain"}, "BIOSSES", 47.4),
        ("GenSE, Table 3", "GenSE", {"fine-tune data": "Open-domain→In-domain→NLI"}, "CQADupStack", 16.0),
        ("GenSE, Table 4", "ST5-EncDec-Small", {"variant": "+Prompt"}, "STSB-dev", 86.5),
        ("GenSE, Table 5", "GenSE-Small", {}, "avg-domain", 57.1),
        ("GenSE, Table 6", "GenSE", {"data amount": "40%"}, "avg", 59.5),
        ("GenSE, Table 7", "ST5-EncDec-Base + Prompt", {}, "avg", 56.8),
        ("GenSE, Table 8", "Back Translation", {}, "STSB-dev", 88.0),
        ("Parallel translation, Table 1", "BERT_base", {"temperature": "0.05"}, "STSB-dev", 86.93),
        (
            "Parallel translation, Table 2",
            "Ours-RoBERTa_large (SMD)",
            {"fine-tune data": "-", "track": "RoBERTa"},
            "STS15",
            89.20,
        ),
        ("Parallel translation, Table 2", "CT-SBERT_base", {"fine-tune data": "NLI"}, "STS16", 77.93),
        ("Parallel translation, Table 3", "Ours+F", {}, "STSB-dev", 88.06),
        ("Parallel translation, Table 4", "Ours+F", {}, "ZH-STSB", 83.37),
        ("Parallel translation, Table 5", "Dual", {}, "STSB-dev", 73.13),
        ("Parallel translation, Table 6", "RoBERTa_large", {}, "queue", 200_000),
        ("Parallel translation, Table 7", "Ours-RoBERTa_large (SMD)", {}, "TREC", 94.80),
        ("Parallel translation, Table 8", "BERT_base", {"readout": "[CLS] wo/M"}, "STSB-dev", 88.08),
    ],
)
def test_a_cell_is_what_the_paper_prints(source: str, label: str, details: dict[str, str], column: str, value: float):
    (row,) = rows_of(source, label, details)
    assert row[column].value == pytest.approx(value, abs=1e-9)


def test_printed_text_keeps_the_decimals_of_the_paper():
    (row,) = rows_of("Sentence-T5, Table 2", "BERT (CLS-vector)", {})
    assert row["TREC"].printed == "91.4"
    (row,) = rows_of("Sentence-T5, Table 2", "BERT (mean)", {})
    assert row["TREC"].printed == "92.80"


@pytest.mark.parametrize(
    ("here", "there", "same_models"),
    [
        (
            "GenSE, Table 2",
            "Sentence-T5, Table 3",
            {
                "SBERT-Base": ("SBERT-NLI", "NLI"),
                "SimCSE-RoBERTa-Base": ("SimCSE-RoBERTa", "NLI"),
                "ST5-Enc-Base": ("ST5-Enc mean", "NLI"),
                "ST5-EncDec-Base": ("ST5-EncDec first", "NLI"),
                "ST5-Enc-Base-CommQA": ("ST5-Enc mean", "CQA+NLI"),
            },
        ),
        (
            "GenSE, Table 2",
            "Sentence-T5, Table 5 (STS)",
            {
                "SimCSE-RoBERTa-Large": ("SimCSE-RoBERTa Large", "NLI"),
                "ST5-Enc-Large": ("ST5-Enc mean (Large)", "NLI"),
                "ST5-EncDec-Large": ("ST5-EncDec first (Large)", "NLI"),
                "ST5-Enc-Large-CommQA": ("ST5-Enc mean (Large)", "CQA+NLI"),
                "ST5-EncDec-3B": ("ST5-EncDec first (3B)", "NLI"),
                "ST5-Enc-3B-CommQA": ("ST5-Enc mean (3B)", "CQA+NLI"),
            },
        ),
        (
            "Parallel translation, Table 2",
            "Sentence-T5, Table 3",
            {
                "SBERT_base": ("SBERT-NLI", "NLI"),
                "SimCSE-BERT_base": ("SimCSE-BERT", "NLI"),
                "SimCSE-RoBERTa_base": ("SimCSE-RoBERTa", "NLI"),
            },
        ),
        (
            "Parallel translation, Table 2",
            "Sentence-T5, Table 5 (STS)",
            {
                "SBERT_large": ("SBERT-NLI Large", "NLI"),
                "SimCSE-RoBERTa_large": ("SimCSE-RoBERTa Large", "NLI"),
                "ST5-Enc mean (11B)": ("ST5-Enc mean (11B)", "NLI"),
                "ST5-EncDec first (11B)": ("ST5-EncDec first (11B)", "NLI"),
            },
        ),
        (
            "Parallel translation, Table 7",
            "Sentence-T5, Table 2",
            {
                "SBERT_base": ("SBERT-NLI", "NLI"),
                "SimCSE-BERT_base": ("SimCSE-BERT", "NLI"),
                "SimCSE-RoBERTa_base": ("SimCSE-RoBERTa", "NLI"),
            },
        ),
        (
            "Parallel translation, Table 7",
            "Sentence-T5, Table 5 (transfer)",
            {"SimCSE-RoBERTa_large": ("SimCSE-RoBERTa Large", "NLI")},
        ),
    ],
)
def test_a_row_that_another_paper_quotes_has_the_same_figures_unless_a_note_says_so(
    here: str, there: str, same_models: dict[str, tuple[str, str]]
):
    (notes,) = (table.notes for table in load_tables() if table.source == here)
    for label, (other_label, data) in same_models.items():
        (row,) = rows_of(here, label, {})
        (other,) = rows_of(there, other_label, {"fine-tune data": data})
        for cell in row.cells:
            quoted = other[cell.column].printed
            noted = any(label in note and cell.printed in note and quoted in note for note in notes)
            assert cell.printed == quoted or noted


@pytest.mark.parametrize(
    "places",
    [
        [("Sentence-T5, Table 1", "ST5-Enc (11B params)", {}, "avg-transfer"),
         ("Sentence-T5, Table 5 (transfer)", "ST5-Enc mean (11B)", {"fine-tune data": "CQA+NLI"}, "avg")],
        [("Sentence-T5, Table 1", "ST5-Enc (11B params)", {}, "avg-sts"),
         ("Sentence-T5, Table 5 (STS)", "ST5-Enc mean (11B)", {"fine-tune data": "CQA+NLI"}, "avg")],
        [("Sentence-T5, Table 1", "ST5-EncDec (11B params)", {}, "avg-transfer"),
         ("Sentence-T5, Table 5 (transfer)", "ST5-EncDec first (11B)", {"fine-tune data": "NLI"}, "avg")],
        [("Sentence-T5, Table 1", "InferSent", {}, "avg-transfer"),
         ("Parallel translation, Table 7", "InferSent-GloVe", {}, "avg")],
        [("Sentence-T5, Table 1", "USE", {}, "avg-transfer"),
         ("Parallel translation, Table 7", "Sentence Encoder", {}, "avg")],
        [("Sentence-T5, Table 6", "T5 (Base)", {}, "glue-STSB"),
         ("GenSE, Section 3.4", "T5-Base (cross-attention)", {}, "STSB-dev")],
        [("GenSE, Table 4", "ST5-EncDec-Base", {"variant": "+Prompt"}, "STSB-dev"),
         ("GenSE, Table 6", "GenSE", {"data amount": "0%"}, "STSB-dev"),
         ("GenSE, Table 8", "ST5-EncDec-Base + Prompt", {}, "STSB-dev")],
        [("GenSE, Table 4", "ST5-EncDec-Base", {"variant": "+Prompt"}, "avg"),
         ("GenSE, Table 6", "GenSE", {"data amount": "0%"}, "avg"),
         ("GenSE, Table 8", "ST5-EncDec-Base + Prompt", {}, "avg")],
        [("GenSE, Table 4", "ST5-EncDec-Small", {}, "avg"), ("GenSE, Table 5", "ST5-EncDec-Small", {}, "avg-domain")],
        [("GenSE, Table 3", "GenSE", {"fine-tune data": "Open-domain→NLI"}, "avg"),
         ("GenSE, Table 6", "GenSE", {"data amount": "100%"}, "avg")],
    ],
)  # fmt: skip
def test_a_figure_that_is_printed_twice_is_the_same(places: list[tuple[str, str, dict[str, str], str]]):
    # A row without details comes before its variants.
    printed = {rows_of(source, label, details)[0][column].printed for source, label, details, column in places}
    assert len(printed) == 1


def test_the_last_track_of_the_parallel_paper_repeats_rows_of_the_others():
    for label in ("Ours-BERT_base (SMD)", "Ours-BERT_large (SMD)", "Ours-RoBERTa_large (SMD)"):
        first, again = rows_of("Parallel translation, Table 2", label, {"fine-tune data": "NLI"})
        assert [cell.printed for cell in first.cells] == [cell.printed for cell in again.cells]
        assert again.details["track"] == "state of the art"


def test_find_gives_a_task_of_all_papers_with_its_sources():
    cells = find("STSB")
    assert {cell.paper for cell in cells} == {"Sentence-T5", "GenSE", "Parallel translation"}
    assert all(cell.column == "STSB" and cell.value is not None for cell in cells)
    assert len(cells) == 12 + 14 + 14 + 32


def test_find_gives_the_averages_over_a_group():
    cells = find("domain")
    assert {cell.column for cell in cells} == {"avg", "avg-domain"}
    assert len(cells) == 13 + 4 + 3 + 5 + 2 + 5


def test_find_leaves_out_dashes_and_gives_nothing_for_what_is_not_printed():
    assert len(find("glue-MNLI-mm")) == len(find("glue-MNLI-m")) - 1
    assert find("speed") == []


def test_a_cell_turns_into_plain_data():
    cell = find("ZH-STSB")[0]
    assert Cell(**asdict(cell)) == cell


def test_importing_reads_no_file_and_no_heavy_library():
    code = (
        "import sys, tercet.evaluation.published as p; assert p.load_tables.cache_info().currsize == 0;"
        "assert not {'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
