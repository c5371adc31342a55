"""The report of an adaptation: what it draws, that it says the same as text, and that nothing in it can run."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tercet.adaptation.findings import Findings, Learned, Measure
from tercet.adaptation.neighbours import compare
from tercet.adaptation.page import document_of
from tercet.adaptation.picture import cosines_of, map_of
from tercet.reporting.html import to_html
from tercet.reporting.markdown import to_markdown
from tercet.reporting.shapes import Scale, difference
from tercet.training.recipe import read_recipe

ROOT = Path(__file__).parents[2]
BAD = "<script>alert(1)</script> & *stars*"


def vectors_of(num, seed):
    draw = np.random.default_rng(seed)
    parts = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0], [0, -1, 0, 0]])
    return np.repeat(parts, num // 4, axis=0) + draw.normal(size=(num, 4)) * 0.1


def findings_with(measures, **more):
    texts = [f"text {i} of part {i // 10} {BAD}" for i in range(40)]
    before, after = vectors_of(40, 1), vectors_of(40, 2)
    stores = [lambda asked, own=own: own[[int(text.split()[1]) for text in asked]] for own in (before, after)]
    tally = {
        "num": 40,
        "num_kept": 36,
        "dropped": {"short": {"num": 4}},
        "sources": {BAD: {"num_read": 41, "num_bad": 1}},
    }
    filters = {"num": 90, "num_kept": 30, "dropped": {"alpha": {"num": 50}, "label": {"num": 10}}}
    given = {
        "command": f"tercet adapt {BAD}",
        "recipe": read_recipe(ROOT / "recipes" / "gense-nli.yaml"),
        "num_steps": 40,
        "share": 1.0,
        "keep_anyway": False,
        "learned": [Learned("triplets", 30, tally, filters, [{"anchor": BAD, "positive": BAD, "negative": BAD}])],
        "measures": measures,
        "domain": next((measure for measure in measures if measure.group == "own"), None),
        "examples": compare(texts, before, after),
        "num_pool": 40,
        "map": map_of(texts, before, after),
        "cosines": cosines_of([(text, text) for text in texts], *stores),
    }
    return Findings(**{**given, **more})


def measure(group, gain, low, high):
    return Measure(group, f"{group} {BAD}", "MAP", 50, 70.0, 70.0 + gain, low, high)


GENERAL = measure("general", -0.2, -0.6, 0.2)


def svgs_of(html):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.S)]


@pytest.mark.parametrize(
    ("own", "general", "box"),
    [((3, 1, 5), -0.2, "good"), ((1, -1, 3), -0.2, "even"), ((-3, -5, -1), -0.2, "bad"), ((3, 1, 5), -0.9, "bad")],
)
def test_the_box_has_the_colour_of_the_outcome(own, general, box):
    findings = findings_with([measure("own", *own), measure("general", general, -1, 1)])
    assert f'<p class="verdict {box}"><strong>Kept: ' in to_html(document_of(findings, {}))


def test_nothing_that_users_write_is_markup_and_nothing_is_fetched():
    document = document_of(findings_with([measure("own", 3, 1, 5), GENERAL]), {"training": 3.0})
    html, markdown = to_html(document), to_markdown(document, "")
    assert "<script" not in html and "<script" not in markdown
    assert "&lt;script&gt;" in html and "\\*stars\\*" in markdown
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import", html)


def test_a_bar_and_its_whisker_are_where_the_numbers_are():
    scale = Scale.around([2.0, -1.0, 5.0])
    assert scale.ticks == (-2.0, 0.0, 2.0, 4.0, 6.0)
    svg = ElementTree.fromstring(difference(scale, 2.0, (-1.0, 5.0), "even"))

    def number(element, name):
        part = float(element.get(name).rstrip("%")) / 100
        return scale.low + part * (scale.high - scale.low)

    bar, whisker = svg.find("rect"), next(line for line in svg.iter("line") if line.get("class") == "whisker")
    assert number(bar, "x") == pytest.approx(0, abs=0.01)
    assert number(bar, "width") - scale.low == pytest.approx(2, abs=0.01)
    assert [number(whisker, name) for name in ("x1", "x2")] == pytest.approx([-1, 5], abs=0.01)


def test_the_text_has_the_numbers_of_the_drawings():
    findings = findings_with([measure("own", 3, 1, 5), GENERAL])
    markdown = to_markdown(document_of(findings, {"training": 3.0}), "")
    before, after = findings.cosines
    parts = [
        "+3.0",
        "+1.0 to +5.0",
        "70.0",
        "73.0",
        "-50",
        "55.6%",
        f"{before.told_apart:.1f}%",
        f"{after.mean_others:.2f}",
    ]
    assert not [part for part in [*parts, *findings.map.names] if part not in markdown]
    assert "<svg" not in markdown


def test_a_map_has_each_text_once_on_each_side_in_the_colour_of_its_part():
    findings = findings_with([measure("own", 3, 1, 5), GENERAL])
    maps = [svg for svg in svgs_of(to_html(document_of(findings, {}))) if svg.get("class") == "map"]
    assert len(maps) == 2
    for drawn in maps:
        titles = [title.text for title in drawn.iter("title")]
        assert len(titles) == len(set(titles)) == 40
    places = np.array(findings.map.before), np.array(findings.map.after)
    # both sides have the same parts, so turned onto one another they lie close
    assert np.abs(places[0] - places[1]).mean() < np.abs(places[0]).mean() / 2


def test_a_map_of_many_texts_has_a_thousand_of_them_from_all_over():
    draw = np.random.default_rng(0)
    texts = [f"text {i}" for i in range(2_500)]
    drawn = map_of(texts, draw.normal(size=(2_500, 6)), draw.normal(size=(2_500, 6)))
    assert len(drawn.texts) == len(drawn.before) == len(drawn.after) == 1_000
    assert drawn.texts[0] == "text 0" and int(drawn.texts[-1].split()[1]) > 2_490
    assert map_of(["a", "b"], np.eye(2), np.eye(2)) is None


def test_pairs_are_told_apart_as_often_as_the_area_under_the_curve_says():
    draw = np.random.default_rng(3)
    asks, finds = draw.normal(size=(2, 30, 5))
    finds += asks
    spots = {f"ask {i}": asks[i] for i in range(30)} | {f"find {i}": finds[i] for i in range(30)}
    found, _ = cosines_of(
        [(f"ask {i}", f"find {i}") for i in range(30)], *[lambda t: np.stack([spots[x] for x in t])] * 2
    )
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (asks, finds)]
    cosines = units[0] @ units[1].T
    assert found.told_apart == pytest.approx(100 * roc_auc_score(np.eye(30).ravel(), cosines.ravel()))
    assert found.mean_matching == pytest.approx(np.diag(cosines).mean())
    assert sum(found.matching) == pytest.approx(1, abs=1e-3) and sum(found.others) == pytest.approx(1, abs=1e-3)


def test_what_moved_is_marked():
    findings = findings_with([measure("own", 3, 1, 5), GENERAL])
    html = to_html(document_of(findings, {}))
    num_new = sum(example.num_new for example in findings.examples)
    assert html.count('<mark class="new">') == html.count('<mark class="gone">') == num_new > 0
