"""The server's page in a browser: type, translate, choose, and see where it looked."""

import pytest
import tensorflow as tf

from keras_addnorm.serving.server import Settings, running

pytestmark = pytest.mark.browser

SOURCE = ["\u2581Der", "\u2581<b>Hund</b>", "\u2581läuft", "</s>"]
BEST = ["\u2581The", "\u2581dog", "\u2581<img src=x onerror=alert(1)>", "</s>"]
OTHER = ["\u2581A", "\u2581dog", "</s>", ""]
TEXTS = ["The dog <img src=x onerror=alert(1)>", "A dog"]
ALIGNMENTS = [[0, 1, 2, 3], [0, 1, 2, -1]]
# What is said to "kurz", a text of fewer pieces.
SHORT_SOURCE = ["\u2581kurz", "</s>", "", ""]
SHORT_TEXTS = ["Short", "Brief"]


class Canned(tf.Module):
    """Says the same whatever it is asked but "kurz", with words that look like HTML."""

    def translate(self, texts):
        return {
            "translations": tf.strings.join([TEXTS[0], " / ", texts]),
            "scores": tf.fill([tf.size(texts)], -0.25),
        }

    def translate_nbest(self, texts):
        count = tf.size(texts)
        is_bad = tf.reduce_any(tf.equal(texts, "refuse"))
        fine = tf.debugging.assert_equal(is_bad, False, "<i>refused</i>")
        with tf.control_dependencies([fine]):
            return {
                "translations": tf.where(
                    tf.equal(texts, "leer")[:, None],
                    [[TEXTS[0], ""]],
                    tf.where(_is_short(texts), [SHORT_TEXTS], [TEXTS]),
                ),
                "scores": tf.tile([[-0.25, -1.5]], [count, 1]),
                "pieces": tf.tile([[BEST, OTHER]], [count, 1, 1]),
                "alignments": tf.tile([ALIGNMENTS], [count, 1, 1]),
            }

    def tokenize(self, texts):
        return {"pieces": tf.where(_is_short(texts), [SHORT_SOURCE], [SOURCE])}


class Normalizing(Canned):
    """Says that it normalises texts itself, as exports do."""

    def tokenize(self, texts):
        return {**super().tokenize(texts), "normalized": texts}


def _is_short(texts):
    return tf.equal(texts, "kurz")[:, None]


def _server(directory, names, module=None):
    module = module or Canned()
    signature = [tf.TensorSpec([None], tf.string, "texts")]
    functions = {"serving_default": module.translate} | {n: getattr(module, n) for n in names}
    tf.saved_model.save(
        module,
        str(directory / "2"),
        {
            name: tf.function(function, autograph=False, input_signature=signature)
            for name, function in functions.items()
        },
    )
    return running(Settings(directory, "<b>model</b>", port=0, grpc_port=None))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with _server(tmp_path_factory.mktemp("full"), ["translate_nbest", "tokenize"]) as server:
        yield server


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory):
    with _server(tmp_path_factory.mktemp("plain"), []) as server:
        yield server


def _open(browser, server, width=1100, *, expected=(), **options):
    """Opens the page; at the end nothing has gone wrong but what is expected."""
    page = browser.new_page(viewport={"width": width, "height": 800}, **options)
    page.set_default_timeout(15_000)  # a busy machine is no fault of the page
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    address = f"http://127.0.0.1:{server.port}/"
    page.goto(address)
    page.get_by_text("translation model, version 2").wait_for()
    yield page
    page.close()
    assert [line for line in said if not any(word in line for word in expected)] == []
    assert all(url.startswith((address, "data:")) for url in asked)


@pytest.fixture
def page(browser, server):
    yield from _open(browser, server)


@pytest.fixture
def narrow_page(browser, server):
    yield from _open(browser, server, 320)


def _translate(page, text="Der Hund läuft"):
    page.get_by_label("Text to translate").fill(text)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.locator("#translate:not([aria-disabled])").wait_for()


def _token(page, side, index):
    return page.locator(f"#{side} .token").nth(index)


def _lit(page):
    return page.locator(".token.lit").all_text_contents()


def test_type_click_read(page):
    assert not page.locator("#several").is_visible()
    assert not page.locator("#looks").is_visible()
    _translate(page)
    assert page.locator("#translation").text_content() == TEXTS[0]
    assert page.locator(".choice .text").all_text_contents() == TEXTS
    assert page.locator(".choice .score").all_text_contents() == ["-0.250", "-1.500"]
    assert page.locator("#source .token").all_text_contents() == [
        "Der",
        "<b>Hund</b>",
        "läuft",
        "(end)",
    ]
    assert page.locator("#lines path").count() == 4
    assert page.title() == "<b>model</b>: translation"
    assert "<b>model</b>" in page.locator("h1").text_content()


def test_pointing_at_a_piece_shows_where_it_looked(page):
    _translate(page)
    assert _lit(page) == []
    _token(page, "target", 1).hover()
    assert _lit(page) == ["<b>Hund</b>", "dog"]
    lines = page.locator("#lines path")
    assert [lines.nth(i).get_attribute("class") or "" for i in range(4)] == ["", "lit", "", ""]
    _token(page, "source", 0).hover()
    assert _lit(page) == ["Der", "The"]
    page.locator("h1").hover()
    assert _lit(page) == []


def test_lines_go_from_piece_to_piece(page):
    _translate(page)
    frame = page.locator("#alignment").bounding_box()
    for index in range(4):
        path = page.locator("#lines path").nth(index).get_attribute("d")
        numbers = [
            float(n) for n in path.replace("M", "").replace("C", "").replace(",", " ").split()
        ]
        source, target = (_token(page, side, index).bounding_box() for side in ("source", "target"))
        x1, y1, x2, y2 = *numbers[:2], *numbers[-2:]
        assert x1 == pytest.approx(source["x"] + source["width"] / 2 - frame["x"], abs=1)
        assert y1 == pytest.approx(source["y"] + source["height"] - frame["y"], abs=1)
        assert x2 == pytest.approx(target["x"] + target["width"] / 2 - frame["x"], abs=1)
        assert y2 == pytest.approx(target["y"] - frame["y"], abs=1)


def test_another_hypothesis(page):
    _translate(page)
    choices = page.locator(".choice")
    choices.nth(1).click()
    assert page.locator("#translation").text_content() == TEXTS[1]
    assert [choices.nth(i).get_attribute("aria-pressed") for i in range(2)] == ["false", "true"]
    assert page.locator("#target .token").all_text_contents() == ["A", "dog", "(end)"]
    assert page.locator("#lines path").count() == 3
    _token(page, "target", 2).hover()
    assert _lit(page) == ["läuft", "(end)"]


def test_by_keyboard_alone(page):
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("Der Hund")
    page.keyboard.press("Control+Enter")
    page.locator(".choice").first.wait_for()
    names = []
    for _ in range(5):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') || "
                "document.activeElement.textContent"
            )
        )
    assert names[0] == "Translate"
    assert names[1].startswith(TEXTS[0])
    assert names[2].startswith(TEXTS[1])
    assert names[3:] == ["Der, was looked at by The", "The, looked at Der"]
    page.keyboard.press("ArrowRight")
    assert _lit(page) == ["<b>Hund</b>", "dog"]
    page.keyboard.press("End")
    assert _lit(page) == ["(end)", "(end)"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    assert _lit(page) == ["Der", "The"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert page.locator("#translation").text_content() == TEXTS[1]


def test_everything_has_a_name(page):
    _translate(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, textarea, section, [role=group]")].filter((e) =>
            !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).length"""
    )
    assert nameless == 0
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("#translation").get_attribute("aria-live") == "polite"


def test_a_narrow_screen_does_not_scroll_sideways(narrow_page):
    _translate(narrow_page)
    assert narrow_page.evaluate("document.documentElement.scrollWidth") == 320
    boxes = [_token(narrow_page, "target", index).bounding_box() for index in range(4)]
    assert boxes[0]["y"] < boxes[3]["y"]  # they wrap
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 320 for box in boxes)
    _token(narrow_page, "target", 3).click()
    assert _lit(narrow_page) == ["(end)", "(end)"]


def _contrast(page, selector):
    """The contrast of an element's text with what is behind it, as WCAG counts it."""
    return page.evaluate(
        """(selector) => {
            const channels = (color) => color.match(/[\\d.]+/g).map(Number);
            const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
                .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            let element = document.querySelector(selector);
            const text = light(getComputedStyle(element).color);
            while (channels(getComputedStyle(element).backgroundColor)[3] === 0) {
                element = element.parentElement;
            }
            const back = light(getComputedStyle(element).backgroundColor);
            return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_day_and_by_night(browser, server, scheme):
    for page in _open(browser, server, color_scheme=scheme):
        _translate(page)
        for selector in (
            "h1",
            "label",
            "textarea",
            "#translate",
            ".choice .score",
            ".token",
            ".token.special",
            ".hint",
            "footer",
            "#translation",
        ):
            assert _contrast(page, selector) >= 4.5, selector
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
        assert dark == (scheme == "dark")


def test_a_translation_without_words_is_called_so(page):
    _translate(page, "leer")
    assert page.locator(".choice .text").all_text_contents() == [TEXTS[0], "(no words)"]


def test_errors_are_said_and_pass(browser, server):
    for page in _open(browser, server, expected=["400 (Bad Request)"]):
        _translate(page, "refuse")
        alert = page.get_by_role("alert")
        assert "<i>refused</i>" in alert.text_content()
        assert page.locator("#translation").text_content() == ""
        assert not page.locator("#looks").is_visible()
        _translate(page)
        assert not alert.is_visible()
        assert page.locator("#translation").text_content() == TEXTS[0]


def test_each_line_is_a_text_of_its_own(page):
    _translate(page, "Der Hund\n\n  kurz \n")
    lines = page.locator("#translation .line")
    assert lines.all_text_contents() == [TEXTS[0], SHORT_TEXTS[0]]
    assert page.locator(".choice .text").all_text_contents() == TEXTS
    lines.nth(1).click()
    assert [lines.nth(i).get_attribute("aria-pressed") for i in range(2)] == ["false", "true"]
    assert page.locator(".choice .text").all_text_contents() == SHORT_TEXTS
    assert page.locator("#source .token").all_text_contents() == ["kurz", "(end)"]
    page.locator(".choice").nth(1).click()
    assert lines.all_text_contents() == [TEXTS[0], SHORT_TEXTS[1]]
    lines.nth(0).click()
    assert page.locator("#source .token").count() == 4
    lines.nth(1).click()  # What was chosen for a line stays.
    assert lines.all_text_contents() == [TEXTS[0], SHORT_TEXTS[1]]
    assert page.locator(".choice").nth(1).get_attribute("aria-pressed") == "true"
    _translate(page, "Der Hund")
    assert page.locator("#translation").text_content() == TEXTS[0]
    assert lines.count() == 0


def test_a_blank_text_gives_nothing(page):
    _translate(page)
    _translate(page, " \n ")
    assert page.locator("#translation").text_content() == ""
    assert not page.locator("#several").is_visible()


def test_f4_a_model_that_normalises_gets_the_text_as_it_is(browser, tmp_path):
    with _server(tmp_path, ["tokenize"], Normalizing()) as server:
        for page in _open(browser, server):
            _translate(page, "20 m² \ufb01ne")
            expected = f"{TEXTS[0]} / 20 m² \ufb01ne"
            assert page.locator("#translation").text_content() == expected


def test_an_export_without_hypotheses(browser, plain_server):
    for page in _open(browser, plain_server):
        _translate(page, "\ufb01ne  text")
        assert page.locator("#translation").text_content() == f"{TEXTS[0]} / fine text"
        _translate(page, "one\ntwo")
        assert page.locator("#translation .line").all_text_contents() == [
            f"{TEXTS[0]} / {line}" for line in ("one", "two")
        ]
        assert not page.locator("#several").is_visible()
        assert not page.locator("#looks").is_visible()


class Multilingual(tf.Module):
    """Says which languages it was told, as an export whose inputs they are."""

    def translate(self, texts, source_language, target_language):
        said = tf.strings.join([texts, source_language, target_language], " ")
        return {"translations": said, "scores": tf.zeros(tf.size(texts))}


def test_languages_are_asked_for(browser, tmp_path):
    module = Multilingual()
    names = "texts", "source_language", "target_language"
    signature = [tf.TensorSpec([None], tf.string, name) for name in names]
    translate = tf.function(module.translate, autograph=False, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "2"), {"serving_default": translate})
    with running(Settings(tmp_path, "<b>model</b>", port=0, grpc_port=None)) as server:
        opened = _open(browser, server)
        page = next(opened)
        _translate(page, "Hund")
        assert "name them" in page.locator("#error").text_content()
        page.get_by_label("from").fill("deu_Latn")
        page.get_by_label("into").fill(" eng_Latn ")
        _translate(page, "Hund\nKatze")
        lines = page.locator(".line").all_text_contents()
        assert lines == ["Hund deu_Latn eng_Latn", "Katze deu_Latn eng_Latn"]
        next(opened, None)
