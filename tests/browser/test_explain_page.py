"""The page "Add & Norm by hand" in a browser: it computes as Keras does, and can be used."""

import base64
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from filled_models import array, tiny_model

from keras_addnorm.data import Tokenizer, TokenizerPair, demo_pairs
from keras_addnorm.decoding import Beam
from keras_addnorm.diagnostics import ResidualRow
from keras_addnorm.explain import (
    ExplainedRun,
    as_packed,
    describe_model,
    explained_schemes,
    page,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

pytestmark = pytest.mark.browser

READY = Path(__file__).parents[2] / "docs" / "add_and_norm_by_hand.html"
SIZES = {"hidden_dim": 8, "num_heads": 4, "intermediate_dim": 9, "num_decoder_layers": 2}
# Each scheme with one of these, so that all of both are computed.
CHOICES = [
    {"norm": "rms_norm", "activation": "gelu"},
    {"norm": "scale_norm", "attention": {"num_key_value_heads": 2, "soft_cap": 1.5}},
    {"norm": "std_layer_norm", "activation": "swiglu", "use_bias": False},
    {"norm": "dynamic_tanh", "attention": {"query_key_norm": "rms_norm", "scale": "learned"}},
    {"norm": "layer_norm", "tie_embeddings": False, "positions": "learned"},
    {"norm": "none", "attention": {"window": 2, "sink": "learned", "value_norm": "layer_norm"}},
    {"activation": "geglu_tanh", "logits_bias": True, "embedding_norm": "layer_norm"},
    {"activation": "gelu_sigmoid", "head_dim": 3, "embedding_scale": 1.5, "positions": "none"},
    {
        "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
        "attention": {"num_key_value_heads": 1},
    },
    {"share_embeddings": True, "source_vocabulary_size": 11, "positions": "learned"},
    {"activation": "silu", "attention": {"scale": 0.5, "sink": 0.25}},
    {"num_encoder_layers": 2, "attention": {"num_key_value_heads": 2, "value_residual": True}},
]
SCHEMES = [*explained_schemes(), {"name": "hybrid_norm", "first_layer_pre_ln": True}]
IDS = [4, 9, 5, 6, 10, 2], [1, 5, 10, 4, 7]


def open_page(browser, path, **options):
    """Opens a page; at the end nothing has gone wrong and nothing was asked for."""
    opened = browser.new_page(**options)
    opened.set_default_timeout(120_000)  # a busy machine is no fault of the page
    said, asked = [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: said.append(dialog.message))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(path.as_uri())
    assert said == []
    opened.locator("#depth .chart").first.wait_for()
    yield opened
    opened.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]


def write(path, runs, sentences=(), title="Add & Norm"):
    path.write_text(page(runs, sentences, title=title), encoding="utf-8")
    return path


def some_tokenizers(size=11):
    texts = ["ab cd", "ba", "dc ab"]
    return TokenizerPair.joint(Tokenizer.train(texts, vocabulary_size=size, kind="bpe"))


LOGITS = """([source, target]) => explain.models.map((model) =>
    model.decode(target, model.encode(source).memory).logits.map((row) => Array.from(row)))"""


@pytest.fixture(scope="module")
def varied():
    """Small models, all of whose weights are random: each scheme and each choice."""
    models = []
    for index, scheme in enumerate(SCHEMES):
        choices = CHOICES[index % len(CHOICES)]
        if isinstance(scheme, dict) or scheme == "hybrid_norm":
            choices = {"norm": "rms_norm"}
        models.append(tiny_model(index, **{**SIZES, "scheme": scheme, **choices}))
    return models


def test_logits_are_those_of_keras_in_every_scheme(browser, tmp_path, varied):
    runs = [ExplainedRun(str(i), model, some_tokenizers()) for i, model in enumerate(varied)]
    path = write(tmp_path / "page.html", runs, [("ab", "")])
    for opened in open_page(browser, path):
        found = opened.evaluate(LOGITS, IDS)
    for index, (model, logits) in enumerate(zip(varied, found, strict=True)):
        for weight in model.weights:
            weight.assign(as_packed(array(weight)))
        source, target = (np.array([ids]) for ids in IDS)
        expected = array(model({"source": source, "target": target}))[0]
        assert np.ptp(expected) > 0.1, index
        np.testing.assert_allclose(
            logits, expected, rtol=1e-5, atol=1e-3, err_msg=str(SCHEMES[index])
        )


HYPOTHESES = """([source, numBeams, longest]) => {
    const [model] = explain.models;
    const { memory } = model.encode(source);
    const found = explain.beamSearch(model, memory, numBeams, longest).hypotheses;
    return found.map(({ ids, score }) => [ids, score]);
}"""


def test_the_beam_is_that_of_keras(browser, tmp_path):
    model = tiny_model(**SIZES)
    run = ExplainedRun("a", model, some_tokenizers(), length_penalty=("gnmt", 0.7))
    path = write(tmp_path / "page.html", [run], [("ab", "")])
    for opened in open_page(browser, path):
        for weight in model.weights:
            weight.assign(as_packed(array(weight)))
        for source in ([4, 9, 5, 2], [7, 3, 2], [10, 10, 8, 6, 2]):
            for num_beams in (1, 3):
                strategy = Beam(num_beams, 0.7, num_return=num_beams)
                ids, scores = model.generate(np.array([source]), strategy, max_length=9)
                ids, scores = np.reshape(ids, (num_beams, 9)), np.reshape(scores, -1)
                found = opened.evaluate(HYPOTHESES, [source, num_beams, 9])
                expected = [[int(token) for token in row if token] for row in array(ids)]
                best, score = found[0]
                assert best == expected[0]
                assert score == pytest.approx(float(scores[0]), abs=1e-3)
                assert [each[0] for each in found] == expected[: len(found)]


ODD_TEXTS = [
    *(
        "",
        "   ",
        "a",
        "ab  cd\tba\n",
        "\u2581ab",
        "x" * 40,
        "ab\u00adcd",
        "a\u200db",
        "\ufb01ne m²",
    ),
    *("e\u0301te\u0301 \u00e9", "<2de> ab <2de>", "<2de", "日本 ab 日", "ab\u3000cd", "\U0001f600"),
    *("I've 3,5 % — “so”", "ÄÖÜ ß", "Å \u212b ｆｕｌｌ", "\ufeffab", "</s> <unk>", "…...", "½"),
]


def test_texts_are_split_and_joined_as_in_python(browser, tmp_path):
    pairs = [pair for pair, _ in zip(demo_pairs("de", seed=3), range(300), strict=False)]
    texts = [text for pair in pairs for text in (pair.source, pair.target)]
    options = [
        {"kind": "unigram", "vocabulary_size": 250},
        {"kind": "bpe", "vocabulary_size": 250},
        {"kind": "bpe", "vocabulary_size": 250, "normalization": "nfkc"},
        {"kind": "unigram", "vocabulary_size": 200, "normalization": "none"},
        {"kind": "unigram", "vocabulary_size": 220, "user_defined_symbols": ["<2de>", "20"]},
        {"kind": "bpe", "vocabulary_size": 520, "byte_fallback": True},
    ]
    sizes = {"source_vocabulary_size": 600, "target_vocabulary_size": 200}
    model = tiny_model(**SIZES, **sizes)
    tokenizers = [Tokenizer.train([*texts[:300], "m² <2de>"], **each) for each in options]
    runs = [ExplainedRun(str(i), model, TokenizerPair.joint(t)) for i, t in enumerate(tokenizers)]
    path = write(tmp_path / "page.html", runs, [("a", "")])
    tried = [*texts, *ODD_TEXTS, *(text[::-1] for text in texts[:50])]
    for opened in open_page(browser, path):
        found = opened.evaluate(
            "(texts) => explain.tokenizers.map((t) => texts.map((text) => t.encode(text)))", tried
        )
        for index, tokenizer in enumerate(tokenizers):
            expected = tokenizer.encode_batch(tried)
            wrong = [
                (text, ids, rows)
                for text, ids, rows in zip(tried, found[index], expected, strict=True)
                if ids != rows
            ]
            assert wrong == [], options[index]
            joined = opened.evaluate(
                "([i, rows]) => rows.map((ids) => explain.tokenizers[i].decode(ids))",
                [index, expected],
            )
            assert joined == tokenizer.decode_batch(expected)


def _models_of(path):
    """The models of a page, with the weights that it has."""
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    for described in data["models"]:
        model = Seq2SeqTransformer(Seq2SeqConfig.from_dict(described["config"]))
        packed = described["weights"]
        numbers = np.frombuffer(base64.b64decode(packed["numbers"]), "<i2").astype("float32")
        factors = np.frombuffer(base64.b64decode(packed["factors"]), "<f4")
        variables = describe_model(model).arrays
        assert list(variables) == [name for name, _ in packed["index"]]
        place = row = 0
        for name, shape in packed["index"]:
            size = int(np.prod(shape))
            rows = size // shape[-1] if len(shape) > 1 else 1
            values = (
                numbers[place : place + size].reshape(rows, -1) * factors[row : row + rows, None]
            )
            variables[name].assign(values.reshape(shape))
            place, row = place + size, row + rows
        yield described, model


GREEDY = """([index, rows, longest]) => rows.map((ids) => {
    const model = explain.models[index];
    return explain.greedy(model, model.encode(ids).memory, longest);
})"""


@pytest.fixture(scope="module")
def ready_models():
    return list(_models_of(READY))


def test_the_ready_page_translates_200_sentences_as_keras_does(browser, ready_models):
    texts = [pair.source for pair, _ in zip(demo_pairs("de", seed=5), range(200), strict=False)]
    for opened in open_page(browser, READY):
        for index, (described, model) in enumerate(ready_models):
            rows = opened.evaluate(
                "([i, texts]) => texts.map((text) => explain.models[i].sourceIds(text))",
                [index, texts],
            )
            source = np.zeros((len(rows), max(map(len, rows))), "int32")
            for place, row in enumerate(rows):
                source[place, : len(row)] = row
            ids, _ = model.generate(source, max_length=40)
            expected = [[int(token) for token in row if token] for row in array(ids)]
            found = opened.evaluate(GREEDY, [index, rows, 40])
            assert found == expected, described["name"]
            target = [model.config.start_id, *expected[0][:-1]]
            logits = opened.evaluate(
                """([i, source, target]) => {
                    const model = explain.models[i];
                    const { logits } = model.decode(target, model.encode(source).memory);
                    return logits.map((row) => Array.from(row));
                }""",
                [index, rows[0], target],
            )
            inputs = {"source": np.array(rows[:1]), "target": np.array([target])}
            np.testing.assert_allclose(logits, array(model(inputs))[0], atol=1e-3)


def test_the_ready_page_is_small_and_made_of_this_package(ready_models):
    assert READY.stat().st_size <= 1_500_000
    assert 6 <= len(ready_models) <= 8
    text = READY.read_text(encoding="utf-8")
    folder = Path(__file__).parents[2] / "keras_addnorm" / "explain" / "page"
    for path in folder.iterdir():
        if path.suffix in (".js", ".css"):
            said = path.read_text(encoding="utf-8").rstrip("\n")
            assert said in text, f"{path.name} has changed: make the page again (docs/explain.md)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Two models of the demo set's words with texts that look like HTML, and a log of one."""
    tokenizers = TokenizerPair.joint(
        Tokenizer.train(["ab cd <b>", "ba <b>", "dc ab"], vocabulary_size=16, kind="bpe")
    )
    sizes = {"source_vocabulary_size": 16, "target_vocabulary_size": 16, **SIZES}
    models = {
        name: tiny_model(seed, scheme=name, **sizes)
        for seed, name in enumerate(("post_ln", "pre_ln", "no_residual"))
    }
    places = [
        *(f"encoder/{i}/{name}" for i in range(2) for name in ("self_attention", "feed_forward")),
        *(f"decoder/{i}/{name}" for i in range(2)
          for name in ("self_attention", "cross_attention", "feed_forward")),
    ]  # fmt: skip
    log = [
        ResidualRow(step, name, 1, 1, 1 + step / 10 + i, 0.5, 0.5, 0.001 * 10**i if step else 0.1)
        for step in (0, 30, 60)
        for i, name in enumerate(places)
    ]
    runs = [
        ExplainedRun(name, model, tokenizers, log if name == "pre_ln" else (), 1.5)
        for name, model in models.items()
    ]
    path = tmp_path_factory.mktemp("page") / "page.html"
    sentences = [("ab <b> cd", "<i>ref</i>"), ("dc ba", "")]
    return write(path, runs, sentences, title="Add & <b>Norm</b>")


@pytest.fixture
def opened(browser, address):
    yield from open_page(browser, address, viewport={"width": 1280, "height": 900})


@pytest.fixture
def narrow(browser, address):
    yield from open_page(browser, address, viewport={"width": 380, "height": 800})


def _until(opened, condition, arg=None):
    """Waits; Playwright's own wait would make code of a text, which the page forbids."""
    while not opened.evaluate(condition, arg):
        opened.wait_for_timeout(50)


def _texts(place, selector):
    return place.locator(selector).all_text_contents()


def _go_to(page_, title):
    page_.evaluate("(t) => explain.goTour(explain.tour.findIndex((e) => e.title === t))", title)


def _choose(page_, name):
    page_.locator(f'#schemes input[data-model="{name}"]').check(force=True)


def test_a_sentence_is_typed_and_seen_in_pieces(opened):
    assert opened.locator("h1").text_content() == "Add & <b>Norm</b>"
    assert "It should say: <i>ref</i>" in opened.locator("#reference").text_content()
    opened.locator("#text").fill("dc")
    _until(opened, "explain.state.text === 'dc'")
    ids = opened.evaluate("explain.models[0].sourceIds('dc')")
    assert _texts(opened, "#pieces .pieces >> nth=0 >> .id") == [str(i) for i in ids]
    opened.locator(".example").first.click()
    assert opened.locator("#text").input_value() == "ab <b> cd"
    opened.locator(".chip").nth(1).click()
    assert opened.locator(".chip").nth(1).get_attribute("aria-pressed") == "true"
    token, position, total = opened.evaluate(
        """() => {
            const parts = explain.analysisOf(explain.state.model).traces.encoder.embeddings[1];
            return [parts.token, parts.position, parts.sum].map((row) => Array.from(row));
        }"""
    )
    np.testing.assert_allclose(np.add(token, position), total, atol=1e-6)
    assert opened.locator("#embedding svg.bars").count() == 3


def test_every_sublayer_is_stepped_through(opened):
    seen = []
    for _ in range(12):
        seen.append(opened.locator(".box[aria-pressed=true]").get_attribute("data-sublayer"))
        opened.get_by_label("The next sublayer").click()
    assert len(set(seen)) == 10
    assert seen[0] == "encoder/0/self_attention" and seen[-1] == "decoder/1/feed_forward"
    assert seen[5] == "decoder/0/cross_attention"
    opened.locator('.box[data-sublayer="encoder/1/feed_forward"]').click()
    assert "Feed-forward" in opened.locator(".figure-head h3").text_content()
    assert "9 hidden units" in opened.locator(".hidden-units").text_content()
    symbols = _texts(opened, ".flow-row .symbol")
    assert symbols == ["x", "F(x)", "x + F(x)", "LN(x + F(x))"]


def test_the_numbers_are_those_of_the_model(opened):
    opened.get_by_text("All numbers", exact=True).click()
    rows = opened.locator(".numbers tbody tr")
    rows.first.wait_for()
    assert rows.count() == 8
    heads = _texts(opened, ".numbers thead th")
    cells = [float(t.replace("−", "-")) for t in rows.nth(2).locator("td").all_text_contents()]
    found = dict(zip(heads[1:], cells, strict=True))
    assert found["x + F(x)"] == pytest.approx(found["x"] + found["F(x)"], abs=2e-3)
    opened.get_by_label("The next sublayer").click()
    assert rows.count() == 8  # It stays open.


def test_a_term_of_the_formula_lights_its_tensor(opened):
    opened.locator(".term", has_text="F").first.hover()
    assert opened.locator(".flow-row.lit .symbol").text_content() == "F(x)"
    assert "a difference" in opened.locator(".says").text_content()
    opened.locator(".term", has_text="LN").focus()
    assert "LN" in opened.locator(".flow-row.lit .symbol").text_content()
    assert "mean" in opened.locator(".says").text_content()
    opened.locator(".flow-row").first.hover()
    assert _texts(opened, ".term.lit") == ["x", "x"]


def test_another_scheme_another_formula_and_the_same_sentence(opened):
    formula = opened.locator(".terms")
    assert formula.text_content() == "y=LN(x+F(x))"
    _choose(opened, "pre_ln")
    assert formula.text_content() == "y=x+F(LN(x))"
    _choose(opened, "no_residual")
    assert formula.text_content() == "y=LN(F(x))"
    assert "no skip" in opened.locator(".warning").text_content()
    assert opened.evaluate("explain.state.text") == "ab <b> cd"
    _until(
        opened,
        "[...document.querySelectorAll('.translation')].every((e) => e.textContent !== '…')",
    )
    expected = opened.evaluate("explain.models.map((m) => explain.analysisOf(m).translation)")
    assert _texts(opened, ".translation") == [text or "(nothing)" for text in expected]


def test_heads_show_what_they_look_at(opened):
    opened.locator('.box[data-sublayer="decoder/0/cross_attention"]').click()
    assert opened.locator(".head").count() == 4
    opened.locator(".head .cell").first.hover()
    assert "(start) → " in opened.locator(".heat .note").first.text_content()
    weights = opened.evaluate(
        """() => explain.analysisOf(explain.state.model).traces.decoder.sublayers[1].attention"""
    )
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)
    labels = opened.locator(".heat").first.get_attribute("aria-label")
    assert "(start) looks most at" in labels
    opened.locator('.box[data-sublayer="encoder/0/feed_forward"]').click()
    assert "looks at no other piece" in opened.locator("#attention").text_content()


def test_the_next_piece_and_the_beam(opened):
    shares = [float(t.split()[0]) for t in _texts(opened, ".next .share")]
    assert len(shares) == 10 and shares == sorted(shares, reverse=True)
    assert opened.locator(".next .taken").count() == 1
    assert opened.locator(".hypotheses li").count() == 3
    nodes = opened.locator(".tree .node:not(.root)").count()
    opened.locator("#beam select").select_option("1")
    assert opened.locator(".hypotheses li").count() == 1
    assert opened.locator(".tree .node:not(.root)").count() < nodes
    best = opened.locator(".hypotheses .best span").first.text_content()
    assert best == _texts(opened, ".card.chosen .translation")[0]


def test_the_slider_goes_through_the_recorded_steps(opened):
    chart = opened.locator("#depth .chart").last  # Of one sentence there are no gradients.
    assert "at the end of the training" in chart.text_content()
    assert "pre_ln: from 0.001 to" in chart.locator("svg").get_attribute("aria-label")
    opened.get_by_label("the recorded training").check()
    slider = opened.locator("#step")
    assert slider.get_attribute("max") == "2"
    charts = opened.locator("#depth svg[role=img]")
    assert charts.count() == 4
    first = charts.first.get_attribute("aria-label")
    assert "pre_ln: from 1 to 10" in first and "post_ln" not in first
    slider.focus()
    opened.keyboard.press("End")
    assert opened.locator("#step-label").text_content() == "60"
    assert "pre_ln: from 7 to 16" in charts.first.get_attribute("aria-label")
    assert opened.evaluate("document.activeElement.id") == "step"
    opened.get_by_label("this sentence").check()
    _until(opened, "document.querySelectorAll('#depth .line').length === 10")


def test_the_guide_leads_to_the_answer(opened):
    guide = opened.locator("#tour")
    titles = []
    for _ in range(20):
        titles.append(guide.locator("h2").text_content())
        following = guide.get_by_role("button", name="Next")
        if not following.count():
            break
        following.click()
        if titles[-1] == "Add":
            assert opened.evaluate("explain.state.model.name") == "no_residual"
            assert opened.locator(".flow-row.lit .symbol").text_content() == "LN(F(x))"
        if titles[-1] == "Deeper":
            assert opened.locator(".flow-row.lit .symbol").text_content() == "LN(x + F(x))"
    assert titles[0] == "The question" and titles[-1] == "The answer"
    assert "Take the add away" in titles and "Watch it learn" in titles
    assert "Take the norm away" not in titles  # There is no such model.
    assert "Loss without: 1.500." in guide.text_content()
    guide.get_by_role("button", name="Done").click()
    guide.get_by_role("button", name="Guide me").click()
    assert guide.locator("h2").text_content() == "The question"
    opened.keyboard.press("Escape")
    guide.get_by_role("button", name="Guide me").click()
    assert guide.locator("h2").text_content() == "The question"


def test_the_guide_of_one_model_without_a_record_says_no_number_that_it_does_not_know(
    browser, tmp_path
):
    model = tiny_model(scheme="pre_ln", **SIZES)
    path = write(tmp_path / "page.html", [ExplainedRun("mine", model, some_tokenizers())])
    for opened in open_page(browser, path):
        steps = opened.evaluate(
            """() => explain.tour.map((step, at) => {
                explain.goTour(at);
                return [step.title, document.querySelector(".tour-text").textContent];
            })"""
        )
        titles = [title for title, _ in steps]
        assert titles[0] == "The question"
        assert titles[-3:] == ["Norm", "Where does the norm stand?", "The answer"]
        assert "Take the add away" not in titles and "Watch it learn" not in titles
        said = " ".join(text for _, text in steps)
        assert "Here runs a small model." in said and "undefined" not in said
        assert "null" not in said and "NaN" not in said and "Loss without" not in said


# What each step of the guide speaks of, and how far the guide covers it, in pixels.
COVERED = """() => explain.tour.map((step, at) => {
    explain.goTour(at);
    const guide = document.querySelector("#tour").getBoundingClientRect();
    const last = document.querySelector([step.show.at(-1)].flat().at(-1)).getBoundingClientRect();
    const first = document.querySelector([step.show.at(-1)].flat()[0]).getBoundingClientRect();
    return [step.title, Math.round(-first.top), Math.round(last.bottom - guide.top), guide.height];
})"""


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_guide_does_not_cover_what_it_speaks_of(browser, size):
    options = {"viewport": dict(zip(("width", "height"), size, strict=True))}
    for opened in open_page(browser, READY, **options, reduced_motion="reduce"):
        steps = opened.evaluate(COVERED)
        assert steps.pop(0)[0] == "The question"  # It speaks of the whole page.
        assert len(steps) >= 13
        wrong = [step for step in steps if step[1] > 0 or step[2] > 0 or step[3] > size[1] * 0.45]
        assert wrong == []


# The page in a language: what of it is still in another, and what of a text is cut or runs out.
OVERFLOW = """() => [...document.querySelectorAll("body *")].filter((each) => {
    const style = getComputedStyle(each);
    const isCut = each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0;
    return isCut && each.textContent && style.overflowX !== "auto"
        && !each.closest("svg, .scroll, .next .piece, option") && style.display !== "inline";
}).map((each) => `${each.tagName}.${each.className}: ${each.textContent.slice(0, 40)}`)"""
ENGLISH = """() => {
    const all = [...document.querySelectorAll("body *:not(script, style, noscript)")];
    const own = all.filter((each) => !each.closest(".translation, .hypotheses"));
    const texts = own.flatMap((each) => [
        ...[...each.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data),
        each.getAttribute("aria-label") ?? "", each.getAttribute("title") ?? "",
    ]);
    const kept = explain.data.sentences.flat().join(" ");
    const words = texts.filter((text) => /[a-z]{4,}.* [a-z]{3,} /i.test(text));
    return words.filter((text) => !/[\\u4e00-\\u9fff]/.test(text) && !kept.includes(text));
}"""


@pytest.mark.parametrize(("size", "scheme"), [((1280, 900), "light"), ((390, 844), "dark")])
def test_chinese_is_whole_and_not_cut(browser, ready_models, size, scheme):
    """In the address, so that it stays over a reload; each step of the guide is looked at, too."""
    options = {"viewport": dict(zip(("width", "height"), size, strict=True))}
    page_ = browser.new_page(**options, color_scheme=scheme, reduced_motion="reduce")
    said = []
    page_.on("pageerror", lambda error: said.append(str(error)))
    page_.goto(READY.as_uri() + "?lang=zh")
    _until(page_, "explain.models.every((m) => explain.analysisOf(m))")
    assert page_.evaluate("document.documentElement.lang") == "zh-Hans"
    assert page_.title() == "手算 Add & Norm" == page_.locator("h1").text_content()
    steps = page_.evaluate(COVERED)[1:]
    wrong = [step for step in steps if step[1] > 0 or step[2] > 0 or step[3] > size[1] * 0.45]
    assert wrong == []
    for name in ("encoder/0/self_attention", "decoder/1/feed_forward"):
        page_.locator(f'.box[data-sublayer="{name}"]').click()
        assert page_.evaluate(OVERFLOW) == []
    assert [text for text in page_.evaluate(ENGLISH) if "·" not in text] == []
    assert said == []
    page_.close()


def test_the_language_is_switched_and_kept(browser, address):
    page_ = browser.new_page(viewport={"width": 1280, "height": 900})
    asked = []
    page_.on("request", lambda request: asked.append(request.url))
    page_.goto(address.as_uri())
    assert page_.evaluate("document.documentElement.lang") == "en"
    page_.get_by_role("button", name="中文").click()
    assert page_.evaluate("document.activeElement.textContent") == "中文"
    assert page_.locator("#sentence-heading").text_content() == "句子"
    assert page_.locator(".chip .piece").last.text_content() != "(start)"
    assert _texts(page_, ".box")[0] == "自注意力"
    assert page_.locator("#tour h2").text_content() == "问题"
    page_.reload()
    assert page_.evaluate("document.documentElement.lang") == "zh-Hans"
    assert page_.locator("h1").text_content() == "Add & <b>Norm</b>"  # One's own title.
    page_.emulate_media(media="print")
    assert not page_.locator("#languages").is_visible()
    page_.emulate_media(media="screen")
    page_.get_by_role("button", name="English").click()
    assert page_.locator("#sentence-heading").text_content() == "The sentence"
    assert page_.get_by_role("button", name="Guide me").count() == 0
    page_.goto(address.as_uri() + "?lang=fr")
    assert page_.evaluate("document.documentElement.lang") == "en"
    assert {url.split("?")[0] for url in asked if not url.startswith("data:")} == {address.as_uri()}
    page_.close()


LOOK = """() => {
  const body = getComputedStyle(document.body);
  const shown = (one) => document.querySelector(one).getClientRects().length > 0;
  return [body.fontSize, body.backgroundColor, shown("#tour"), shown(".stacks")];
}"""


def test_it_is_larger_on_a_projector_and_plain_on_paper(browser):
    wide = {"viewport": {"width": 1920, "height": 1080}}
    for opened in open_page(browser, READY, **wide, color_scheme="dark"):
        assert opened.evaluate(LOOK) == ["20px", "rgb(19, 22, 27)", True, True]
        assert opened.evaluate("document.documentElement.scrollWidth") <= 1920
        opened.set_viewport_size({"width": 1280, "height": 900})
        assert opened.evaluate(LOOK)[0] == "16px"
        opened.emulate_media(media="print", color_scheme="dark")
        assert opened.evaluate(LOOK) == ["16px", "rgb(255, 255, 255)", False, True]


def test_the_numbers_of_the_guide_are_those_of_the_models(browser, ready_models):
    models = {described["scheme"]: described for described, _ in ready_models}
    for opened in open_page(browser, READY):
        _until(opened, "explain.models.every((m) => explain.analysisOf(m))")
        said = {}
        for _ in range(20):
            title, text = (opened.locator(f"#tour .tour-text {tag}").last for tag in ("h2", "p"))
            said[title.text_content()] = text.text_content()
            if not opened.locator("#tour").get_by_role("button", name="Next").count():
                break
            opened.locator("#tour .main").click()
        words = {
            (name, key): [
                opened.evaluate("(value) => explain.short(value)", value)
                for place, value in zip(
                    models[name]["log"]["sublayers"],
                    models[name]["log"]["values"][key][0],
                    strict=True,
                )
                if place.startswith("decoder")
            ]
            for name in ("no_residual", "post_ln", "no_norm")
            for key in ("gradient_norm", "merged_rms")
        }
        lost = said["Second reason: the gradient is lost"]
        for scheme in ("no_residual", "post_ln"):
            bottom, *_, top = words[scheme, "gradient_norm"]
            assert f"from {top} to {bottom}" in lost
        grown = said["Take the norm away"]
        assert f"is {words['no_norm', 'merged_rms'][-1]};" in grown
        for scheme in ("no_residual", "no_norm", "post_ln"):
            assert f"{models[scheme]['validation_loss']:.3f}" in said["The answer"]
        last = opened.evaluate(
            """() => {
                const model = explain.models.find((each) => each.scheme === "post_ln");
                const { decoder } = explain.analysisOf(model).statistics;
                return explain.short(decoder.at(-1).merged_rms);
            }"""
        )
        assert f"stream ends at {last}; before the training" in said["Where does the norm stand?"]
        assert float(words["post_ln", "merged_rms"][-1]) == 1
        first = said["F(x) is a difference"]
        measured = opened.evaluate(
            """() => {
                const [model] = explain.models;
                const trace = explain.analysisOf(model).traces.encoder.sublayers[0].tensors;
                const length = (row) => Math.hypot(...row);
                return explain.short(length(trace.f[0]) / length(trace.x[0]));
            }"""
        )
        assert f"is {measured} times as long" in first


def test_one_number_is_worked_out_by_hand(opened):
    slider = opened.locator('[data-focus="channel"]')
    assert slider.get_attribute("max") == "8"
    for name in ("post_ln", "pre_ln"):
        _choose(opened, name)
        slider.focus()
        opened.keyboard.press("ArrowRight")
        assert opened.evaluate("document.activeElement.dataset.focus") == "channel"
        for line in _texts(opened, ".worked li"):
            parts = line.replace("−", "-").replace("×", "*").replace("²", "**2").split(" = ")
            if len(parts) == 2 or "from all" in line:
                continue
            work = re.sub(r"√\((.*?)\)", r"math.sqrt(\1)", parts[1])
            work = re.sub(r"10⁻(.)", lambda m: f"1e-{'⁰¹²³⁴⁵⁶⁷⁸⁹'.index(m[1])}", work)
            assert eval(work, {"math": math}) == pytest.approx(float(parts[2]), abs=0.05)
        found = opened.evaluate("explain.state.channel + 1")
        opened.get_by_text("All numbers", exact=True).click()
        cell = opened.locator(f".numbers tbody tr:nth-child({found}) td").last.text_content()
        last = opened.locator(".worked li").last.text_content().split(" = ")[-1]
        assert float(last.replace("−", "-")) == pytest.approx(
            float(cell.replace("−", "-")), abs=6e-3
        )
        opened.get_by_text("All numbers", exact=True).click()
    opened.locator(".flow svg.bars").first.click(position={"x": 2, "y": 20})
    assert opened.evaluate("explain.state.channel") == 0


def test_stacks_of_any_depth(opened):
    slider = opened.locator('[data-focus="deeper-slider"]')
    slider.focus()
    opened.keyboard.press("End")
    assert opened.locator("#deeper-depth").text_content() == "64"
    series = {each["name"]: each for each in opened.evaluate("explain.deeperSeries()")}
    sizes = {name: each["size"][64] for name, each in series.items()}
    assert sizes["Post-LN"] == pytest.approx(1, abs=1e-3) == sizes["no add"]
    # Variances add, 64 times; with Pre-LN each sublayer adds at most what the norm let through.
    assert 2**27 < sizes["no norm"] < 2**37
    assert 3 < sizes["Pre-LN"] < 20
    left = {name: abs(each["left"][4]) for name, each in series.items()}
    assert left["no add"] < 0.15 < left["Post-LN"] < left["Pre-LN"]
    said = opened.locator('[data-key="deeper-size"] svg').get_attribute("aria-label")
    assert "Post-LN: 1 after 64 sublayers" in said


def test_each_line_has_its_name_at_its_end(browser):
    for opened in open_page(browser, READY):
        _until(opened, "document.querySelectorAll('#depth .line').length === 24")
        names = opened.evaluate("explain.models.map((model) => model.name).sort()")
        for chart in opened.locator("#depth .chart").all():
            labels = chart.locator(".line-name")
            assert sorted(labels.all_text_contents()) == names
            tops = labels.evaluate_all("(all) => all.map((e) => Number(e.getAttribute('y')))")
            assert np.diff(sorted(tops)).min() >= 12
            assert min(tops) >= 8 and max(tops) <= 230
            assert _texts(chart, ".line-name.chosen") == ["post_ln"]


def test_a_gradient_too_small_for_the_chart_is_marked(browser):
    for opened in open_page(browser, READY):
        opened.evaluate("explain.change({ isRecorded: true, stepIndex: 0 })")
        ticks = _texts(opened.locator('.chart[data-key="gradient_norm"]'), ".tick")
        assert "≤ 10⁻⁴" in ticks
        assert "logarithmic" in opened.locator('.chart[data-key="gradient_norm"]').text_content()


def test_cells_and_next_pieces_are_reached_by_keyboard(opened):
    opened.locator('.box[data-sublayer="decoder/0/cross_attention"]').press("Enter")
    opened.locator('[data-focus="heat-0"]').focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    source = opened.evaluate("explain.analysisOf(explain.state.model).sourceLabels[1]")
    assert opened.locator(".heat .note").first.text_content().startswith(f"(start) → {source}: ")
    opened.get_by_label("One piece more").click()
    assert opened.evaluate("explain.state.positions.decoder") == 1
    assert opened.evaluate("document.activeElement.dataset.focus") == "next-1"
    opened.get_by_label("One piece less").click()
    assert opened.evaluate("explain.state.positions.decoder") == 0


def test_it_says_whether_a_translation_is_right_and_what_a_model_knows(browser):
    for opened in open_page(browser, READY):
        _until(opened, "!document.querySelector('.verdict').textContent.includes('…')")
        _until(opened, "document.querySelectorAll('.verdict').length === 6")
        _until(opened, "explain.models.every((m) => explain.analysisOf(m))")
        opened.evaluate("explain.change({})")
        wanted = opened.evaluate(
            "explain.models.map((m) => explain.analysisOf(m).translation === "
            "explain.data.sentences[0][1])"
        )
        said = [text.startswith("✓") for text in _texts(opened, ".verdict")]
        assert said == wanted and True in said and False in said
        opened.locator("#text").fill("I love cats.")
        _until(opened, "explain.state.text === 'I love cats.'")
        assert "of other sentences they make nonsense" in (
            opened.locator("#reference").text_content()
        )
        assert "✓" not in opened.locator("#schemes").text_content()


def test_the_keyboard_reaches_and_moves_everything(opened):
    reached = {}
    for place in range(220):
        opened.keyboard.press("Tab")
        name = opened.evaluate("document.activeElement.dataset.focus ?? ''")
        reached.setdefault(name, place)
    # The guide stands at the foot of the window, and is the first thing that one comes to.
    assert reached["tour-Next"] < reached["text"] < reached["scheme-0"]
    _go_to(opened, "Watch it learn")
    opened.get_by_role("button", name="Go to what is shown").press("Enter")
    assert opened.evaluate("document.activeElement.dataset.focus") == "depth-false"
    # What has the focus is not under the guide.
    guide = opened.locator("#tour").bounding_box()["y"]
    for name in ("chart-gradient_norm", "deeper-size", "box-encoder/0/self_attention"):
        opened.locator(f'[data-focus="{name}"]').focus()
        box = opened.locator(f'[data-focus="{name}"]').bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= guide + 1, name
    for name in ("text", "example-1", "scheme-0", "piece-encoder-0", "bars-embedding-0", "term-0"):
        assert name in reached
    for name in ("box-decoder/0/feed_forward", "step-1", "bars-flow-x", "heat-0", "tree", "beams"):
        assert name in reached
    for name in ("chart-cosine", "key-pre_ln", "step-slider", "channel", "deeper-slider"):
        assert name in reached
    opened.locator('[data-focus="bars-flow-x"]').focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    assert re.match(r"2: −?\d", opened.locator(".flow-row.stream .readout").first.text_content())
    opened.locator('[data-focus="scheme-0"]').focus()
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate("explain.state.model.name") == "pre_ln"
    assert opened.evaluate("document.activeElement.dataset.focus") == "scheme-1"
    opened.locator('[data-focus="step-1"]').focus()
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.dataset.focus") == "step-1"


def test_each_drawing_is_described_and_each_control_has_a_name(opened):
    nameless = opened.evaluate(
        """() => [...document.querySelectorAll("svg, button, input, select, [role=group]")]
            .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length ||
                (e.tagName !== "svg" && e.textContent.trim()) || e.closest("label")))
            .map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    assert opened.locator("svg:not([role=img])").count() == 0
    labels = opened.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map((e) => e.getAttribute('aria-label'))"
    )
    assert len(labels) > 15 and all(len(label) > 40 for label in labels)


def test_an_empty_and_a_strange_text_are_no_error(opened):
    for text in ("", "   ", "日本 \U0001f600", "ab " * 40):
        opened.locator("#text").fill(text)
        _until(opened, "(text) => explain.state.text === text", text)
    assert opened.locator(".flow-row").count() == 4


def test_a_narrow_screen_does_not_scroll_sideways(narrow):
    assert narrow.evaluate("document.documentElement.scrollWidth") == 380
    for name in ("decoder/1/cross_attention", "encoder/0/feed_forward"):
        narrow.locator(f'.box[data-sublayer="{name}"]').click()
        assert narrow.evaluate("document.documentElement.scrollWidth") == 380
    box = narrow.locator(".flow-row svg").first.bounding_box()
    assert box["width"] > 200 and box["x"] + box["width"] <= 380


CONTRAST = """(selector) => {
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    let element = document.querySelector(selector);
    const text = light(getComputedStyle(element).color);
    const isClear = (e) => channels(getComputedStyle(e).backgroundColor)[3] === 0;
    while (isClear(element)) element = element.parentElement;
    const back = light(getComputedStyle(element).backgroundColor);
    return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_day_and_by_night(browser, address, scheme):
    for opened in open_page(browser, address, color_scheme=scheme):
        for selector in (
            *("h1", ".lead", ".eyebrow", "#text", ".example", ".card-name", ".card .aside"),
            *(".chip", ".chip[aria-pressed=true]", ".caption", ".symbol", ".measure", ".box"),
            *(".box[aria-pressed=true]", ".says", ".floor.ground", ".share", ".key", ".main"),
        ):
            assert opened.evaluate(CONTRAST, selector) >= 4.5, selector
        back = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(19, 22, 27)") == (scheme == "dark")


def test_a_step_of_the_guide_has_an_address(browser, address):
    opened = browser.new_page()
    said = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(f"{address.as_uri()}#where-does-the-norm-stand")
    title = "document.querySelector('.tour-text h2').textContent"
    _until(opened, f"{title} === 'Where does the norm stand?'")
    opened.get_by_role("button", name="Next", exact=True).click()
    assert opened.evaluate("location.hash") not in ("", "#where-does-the-norm-stand")
    opened.evaluate("location.hash = '#add'")
    _until(opened, f"{title} === 'Add'")
    opened.keyboard.press("Escape")
    assert opened.evaluate("location.hash") == ""
    names = opened.evaluate(
        "explain.tour.map((step, at) => { explain.goTour(at); return location.hash; })"
    )
    assert len(set(names)) == len(names) and all(names)
    opened.close()
    assert said == []
