"""The page, in Debian's chromium."""

import shutil

import numpy as np
import pytest
from in_thread import running

from tercet.serving.app import make_app

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed: apt-get install chromium-driver"
)

TEXTS = ["two dogs run", "a man is playing a guitar", "Stocks dropped.", "dogs run through deep snow"]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(encoder):
    with running(make_app({"tiny": encoder, "other": encoder}), client_timeout_s=60) as address:
        yield address


@pytest.fixture
def page(browser, address):
    """Return a function that finds an element, on a page that was just opened with TEXTS in it."""
    browser.get_log("browser")
    browser.get(address)
    until(lambda: browser.find_element("id", "model").get_attribute("value") == "tiny")
    browser.execute_script(
        "const box = document.getElementById('texts');box.value = arguments[0]; box.dispatchEvent(new Event('input'));",
        "\n".join(TEXTS),
    )
    yield lambda name: browser.find_element("id", name)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def until(condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(None, 30).until(lambda _: condition())


def test_a_search_shows_the_texts_by_their_cosine(page, browser, encoder):
    box = page("query")
    box.clear()
    box.send_keys("dogs run\n")
    until(lambda: browser.find_elements("css selector", "#hits li"))
    vectors = encoder.embed(["dogs run", *TEXTS])
    cosines = vectors[1:] @ vectors[0]
    shown = [each.text for each in browser.find_elements("css selector", "#hits .text")]
    assert shown == [TEXTS[i] for i in np.argsort(-cosines)]
    scores = [float(each.text) for each in browser.find_elements("css selector", "#hits .score")]
    np.testing.assert_allclose(scores, np.sort(cosines)[::-1], atol=6e-4)
    assert page("number").text == "4 texts"


def test_the_heat_map_has_the_cosine_of_each_pair(page, browser, encoder):
    page("tab-heat").click()
    page("draw-heat").click()
    until(lambda: browser.find_elements("css selector", "#heat tbody tr"))
    rows = browser.find_elements("css selector", "#heat tbody tr")
    shown = [[float(cell.text) for cell in row.find_elements("tag name", "td")] for row in rows]
    np.testing.assert_allclose(shown, encoder.similarity(TEXTS, TEXTS), atol=6e-3)


def test_the_map_has_a_point_per_text_and_goes_by_keyboard(page, browser, encoder):
    from selenium.webdriver.common.keys import Keys

    page("tab-map").click()
    page("draw-map").click()
    until(lambda: browser.find_elements("css selector", "#map circle"))
    dots = browser.find_elements("css selector", "#map circle")
    places = np.array([[float(dot.get_attribute(name)) for name in ("cx", "cy")] for dot in dots])
    vectors = encoder.embed(TEXTS).astype(np.float64)
    centred = vectors - vectors.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    for axis in range(2):  # up to sign and scale
        assert abs(np.corrcoef(places[:, axis], left[:, axis] * sizes[axis])[0, 1]) > 0.99
    picture = browser.find_element("css selector", "#map svg")
    picture.send_keys(Keys.ARROW_RIGHT)
    leftmost = TEXTS[int(np.argmin(places[:, 0]))]
    assert page("about").text.startswith(leftmost)
    picture.send_keys(Keys.ARROW_LEFT)
    assert page("about").text.startswith(TEXTS[int(np.argmax(places[:, 0]))])


def test_tabs_go_by_arrow_keys_and_every_field_has_a_name(page, browser):
    from selenium.webdriver.common.keys import Keys

    page("tab-search").send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element.get_attribute("id") == "tab-heat"
    assert page("heat").is_displayed()
    assert not page("search").is_displayed()
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("textbox", "combobox", "button", "tab", "region", "tabpanel")
    for node in nodes:
        if not node.get("ignored") and node["role"]["value"] in roles:
            assert node["name"]["value"], node


def test_the_examples_name_the_server_and_the_chosen_model(page, browser, address):
    page("model").send_keys("other")
    page("tab-code").click()
    for name in ("curl", "python"):
        assert f"{address}/v1" in page(name).text
        assert "other" in page(name).text
        assert "KEY" not in page(name).text


def test_a_dropped_file_becomes_the_texts(page, browser, tmp_path):
    (tmp_path / "texts.txt").write_text("one\r\ntwo\nthree\n", encoding="utf-8")
    page("file").send_keys(str(tmp_path / "texts.txt"))
    until(lambda: page("number").text == "3 texts")
    browser.execute_script(
        "const moved = new DataTransfer(); moved.items.add(new File(['four\\nfive'], 'a.txt'));"
        "document.getElementById('texts').dispatchEvent(new DragEvent('drop', {dataTransfer: moved, bubbles: true}));"
    )
    until(lambda: page("number").text == "2 texts")
    assert page("texts").get_attribute("value") == "four\nfive"


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_wider_than_a_phone(page, browser, address):
    page("query").send_keys("\n")
    until(lambda: browser.find_elements("css selector", "#hits li"))
    names = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert {name.removeprefix(address) for name in names} <= {"/v1/models", "/v1/embeddings", "/favicon.ico"}
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for tab in ("search", "heat", "map", "code"):
            page(f"tab-{tab}").click()
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_asks_for_the_key_and_works_with_it(browser, encoder):
    with running(make_app({"tiny": encoder}, api_keys=["right"]), client_timeout_s=60) as address:
        browser.get(address)
        until(lambda: "API key" in browser.find_element("id", "problem").text)
        box = browser.find_element("id", "key")
        box.send_keys("right\t")
        until(lambda: browser.find_element("id", "model").get_attribute("value") == "tiny")
        assert browser.find_element("id", "problem").text == ""
        browser.find_element("id", "tab-code").click()
        assert "Bearer KEY" in browser.find_element("id", "curl").text
        browser.get("about:blank")  # so that its connection is closed
    assert "401" in "".join(entry["message"] for entry in browser.get_log("browser"))


def test_the_addresses_are_a_page_too(browser, address):
    browser.get(f"{address}/docs")
    headings = [each.text for each in browser.find_elements("tag name", "h2")]
    assert "POST /v1/embeddings" in headings
    assert "encoding_format" in browser.find_element("tag name", "main").text
