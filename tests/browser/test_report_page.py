"""The report's page in a browser: it draws, answers, asks nothing of the network, and fits."""

import dataclasses

import numpy as np
import pytest

from keras_addnorm.diagnostics import Report, ResidualRow, SublayerReport, Thresholds
from keras_addnorm.diagnostics.report_data import AttentionMap, AttentionStatistics
from keras_addnorm.diagnostics.verdicts import judge

pytestmark = pytest.mark.browser

SOURCE = ("<script>alert(1)</script>", " dog", "<b>", "s", ".", "(end)")
TARGET = ("(start)", " Hund", " läuft", ".")
KINDS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}


def _sublayer(name, index):
    is_attention = name.endswith("attention")
    return SublayerReport(
        name=name,
        residual_rms=1.0 + index,
        branch_rms=0.5,
        merged_rms=1.5 + index,
        residual_ratio=0.123456 * (index + 1),
        cosine=0.9,
        effect=0.3,
        gradient_norm=0.01 / (index + 1),
        weight_gradient_norm=0.2,
        norms=(),
        dead_units=None if is_attention else 0.25,
        attention=AttentionStatistics(
            entropy=(0.5 + 0.01 * index, 0.7),
            entropy_share=(0.4 + 0.01 * index, 0.6),
            similarity=((1.0, 0.2), (0.2, 1.0)),
        )
        if is_attention
        else None,
    )


def _map(name, rng):
    queries = TARGET if name.startswith("decoder") else SOURCE
    keys = SOURCE if name.endswith("cross_attention") or queries is SOURCE else TARGET
    weights = rng.dirichlet(np.ones(len(keys)), size=(2, len(queries)))
    return AttentionMap(name, queries, keys, tuple(tuple(map(tuple, w)) for w in weights.tolist()))


def _report():
    names = [
        f"{side}/{layer}/{kind}" for side in KINDS for layer in range(2) for kind in KINDS[side]
    ]
    sublayers = tuple(_sublayer(name, index) for index, name in enumerate(names))
    sublayers = (*sublayers[:-1], dataclasses.replace(sublayers[-1], effect=5.0))
    rng = np.random.default_rng(3)
    maps = tuple(_map(name, rng) for name in names if name.endswith("attention"))
    return Report(2.345, sublayers, judge(2.345, sublayers), Thresholds(), maps)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    report = _report()
    log = [
        ResidualRow(step, item.name, 1, 1, 1, item.residual_ratio * step / 200, 0.5, 0.1)
        for step in (100, 200, 300)
        for item in report.sublayers
    ]
    report.to_html(path, log=log)
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page on a wide screen; at the end nothing has gone wrong and nothing was asked for."""
    yield from _open(browser, address, 1200)


@pytest.fixture
def narrow_page(browser, address):
    yield from _open(browser, address, 360)


def _open(browser, address, width):
    opened = browser.new_page(viewport={"width": width, "height": 800})
    opened.set_default_timeout(120_000)  # a busy machine is no fault of the page
    said, asked = [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: said.append(dialog.message))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(address)
    opened.locator("#similarity .main-svg").first.wait_for()
    yield opened
    opened.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]


def _text(page, selector):
    return page.locator(selector).text_content()


def test_every_chart_is_drawn(page):
    charts = page.locator(".chart")
    assert charts.count() == 9
    for index in range(9):
        chart = charts.nth(index)
        assert chart.locator(".main-svg").count() > 0
        box = chart.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 150
    assert page.locator("#stream-0 .scatterlayer .trace").count() == 3
    assert page.locator("#gradients-1 .scatterlayer .point").count() == 2 * 6
    assert page.locator("#map-0 .heatmaplayer image").count() == 1
    assert page.locator("#entropy .barlayer .point").count() == 2


@pytest.mark.parametrize("largest, tick", [(9.7e-4, "0.0008"), (9e-4, "8×10−4")])
def test_titles_of_axes_leave_the_numbers_alone(browser, tmp_path, largest, tick):
    report = _report()
    small = [
        dataclasses.replace(item, gradient_norm=2e-4 + 1e-6 * index, weight_gradient_norm=largest)
        for index, item in enumerate(report.sublayers)
    ]
    path = tmp_path / "small.html"
    dataclasses.replace(report, sublayers=tuple(small)).to_html(path)
    for page in _open(browser, path.as_uri(), 1200):
        for chart in ("#gradients-0", "#gradients-1"):
            title = page.locator(f"{chart} .ytitle").bounding_box()
            ticks = page.locator(f"{chart} .ytick text")
            written = [text.replace("\u200b", "") for text in ticks.all_text_contents()]
            assert tick in written
            for index in range(ticks.count()):
                assert ticks.nth(index).bounding_box()["x"] >= title["x"] + title["width"]


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (0.1, 1.2, ["0.1", "0.2", "0.5", "1"]),
        (0.23, 0.6, ["0.3", "0.4", "0.5", "0.6"]),
        (0.31, 0.39, ["0.31", "0.39"]),
        (np.inf, np.inf, []),
    ],
)
def test_the_colours_have_a_scale(browser, tmp_path, low, high, ticks):
    report = _report()
    first, *others = report.sublayers
    ratios = [
        dataclasses.replace(first, residual_ratio=low),
        *(dataclasses.replace(item, residual_ratio=high) for item in others),
    ]
    path = tmp_path / "ratios.html"
    dataclasses.replace(report, sublayers=tuple(ratios)).to_html(path)
    for page in _open(browser, path.as_uri(), 1200):
        found = page.locator("#map-0 .colorbar .cbaxis text").all_text_contents()
        assert [text.strip() for text in found] == ticks


def test_verdicts_come_first_and_name_the_sublayer(page):
    assert page.locator("h2").first.text_content() == "Verdicts"
    verdict = _text(page, ".verdict")
    assert "The branch swamps the stream" in verdict
    assert "decoder/1/feed_forward" in verdict
    assert "Threshold" in verdict


def _hover(page, chart, x, y):
    page.locator(chart).scroll_into_view_if_needed()
    plot = page.locator(f"{chart} .nsewdrag").bounding_box()
    page.mouse.move(plot["x"] + x * plot["width"], plot["y"] + y * plot["height"])
    tip = page.locator(f"{chart} .hoverlayer .hovertext").first
    tip.wait_for()
    return tip.text_content()


def test_tooltips_say_exact_numbers(page):
    page.locator("#step").press("Home")
    assert "encoder/0/self_attention" in (tip := _hover(page, "#map-0", 0.25, 0.25))
    assert "0.061728" in tip
    point = page.locator("#stream-1 .scatterlayer .trace").first.locator(".point").nth(2)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#stream-1 .hoverlayer .hovertext").first
    tip.wait_for()
    assert "decoder/0/feed_forward" in tip.text_content()
    assert "7" in tip.text_content()


def test_tokens_are_shown_as_they_are(page):
    page.select_option("#sublayer", label="encoder/0/self_attention")
    ticks = page.locator("#attention-map g.xtick").all_text_contents()
    assert [tick.strip() for tick in ticks] == [token.strip() for token in SOURCE]
    assert "<script>alert(1)</script> → <b>" in _hover(page, "#attention-map", 2.5 / 6, 0.5 / 6)


def _attention(page):
    return page.evaluate("document.getElementById('attention-map').data[0].z")


def test_the_layer_selector_changes_what_is_drawn(page):
    assert "decoder/1/cross_attention" in _text(page, "#attention-map-caption")
    page.select_option("#sublayer", label="encoder/1/self_attention")
    assert "encoder/1/self_attention" in _text(page, "#attention-map-caption")
    first = _attention(page)
    page.select_option("#sublayer", label="decoder/1/cross_attention")
    assert "decoder/1/cross_attention" in _text(page, "#attention-map-caption")
    ticks = page.locator("#attention-map g.ytick").all_text_contents()
    assert [tick.strip() for tick in ticks] == [token.strip() for token in TARGET]
    mean = _attention(page)
    assert mean != first
    expected = np.array(_report().attention_maps[-1].weights)
    np.testing.assert_allclose(mean, expected.mean(axis=0))
    page.select_option("#head", label="head 2")
    np.testing.assert_allclose(_attention(page), expected[1])
    entropy = page.evaluate("document.getElementById('entropy').data[0].customdata")
    assert entropy == pytest.approx([0.58, 0.7])


def test_the_step_slider_and_the_number_selector(page):
    def cells(chart="#map-1"):
        return page.locator(f"{chart} .heatmap-label").all_text_contents()

    assert _text(page, "#step-label") == "300"
    assert "0.926" in cells()
    page.locator("#step").focus()
    page.keyboard.press("ArrowLeft")
    assert _text(page, "#step-label") == "200"
    assert "0.617" in cells()
    page.select_option("#metric", label="cos(x, y)")
    assert set(cells()) == {"0.5"}
    assert "cos(x, y)" in _text(page, "#map-1-caption")


def test_the_keyboard_reaches_everything(page):
    reached = []
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    for name in ("metric", "step", "sublayer", "head", "attention-map", "stream-0", "SUMMARY"):
        assert name in reached
    page.locator("#sublayer").focus()
    page.keyboard.press("ArrowUp")
    assert "decoder/1/self_attention" in _text(page, "#attention-map-caption")


def test_the_table_has_every_number(page):
    page.get_by_text("Show the table").click()
    rows = page.locator("tbody tr")
    assert rows.count() == 10
    assert rows.nth(3).locator("td").all_text_contents()[:5] == [
        "encoder/1/feed_forward",
        "4",
        "0.5",
        "4.5",
        "0.4938",
    ]


def test_a_narrow_screen_does_not_scroll_sideways(narrow_page):
    narrow_page.get_by_text("Show the table").click()
    assert narrow_page.evaluate("document.documentElement.scrollWidth") == 360
    for index in range(9):
        box = narrow_page.locator(".chart").nth(index).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert "encoder/0" in _hover(narrow_page, "#map-0", 0.25, 0.25)


def test_without_sentence_and_log(browser, tmp_path):
    path = tmp_path / "plain.html"
    dataclasses.replace(_report(), attention_maps=()).to_html(path)
    for page in _open(browser, path.as_uri(), 800):
        for hidden in ("#attention-figure", "#head-control", "#step-control"):
            assert not page.locator(hidden).is_visible()
        assert page.locator("#map-0 .heatmap-label").count() == 4


def test_a_dark_page_has_dark_charts(page):
    def colours():
        return page.evaluate(
            """() => ["#stream-0", "#map-0", "#entropy"].map((chart) =>
                document.querySelector(chart + " .main-svg").style.background)"""
        )

    assert set(colours()) == {"rgb(255, 255, 255)"}
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert set(colours()) == {"rgb(29, 35, 42)"}
    text = page.locator("h1").evaluate("(it) => getComputedStyle(it).color")
    assert text == "rgb(228, 231, 235)"
