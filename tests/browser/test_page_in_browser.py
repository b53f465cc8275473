"""The page that translates in the browser: with an engine that only shouts, and with Bergamot's."""

import contextlib
import functools
import http.server
import os
import re
import shutil
import threading
import time
import unicodedata
from pathlib import Path

import keras
import numpy as np
import pytest
from bergamot_models import engine_folder, our_model, simulated
from fake_engine import write_fake_engine

from keras_addnorm.data import Tokenizer, demo_pairs
from keras_addnorm.interop import BrowserPage, export_bergamot
from keras_addnorm.serving.server import Settings, running
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

pytestmark = pytest.mark.browser

NUM_PAIRS = 11
KEPT = "From now on this page works without a network."

KEPT_FILES = """async () => {
    const [name] = await caches.keys();
    const cache = await caches.open(name);
    const page = await (await cache.match("./")).text();
    return [page.includes("the new one"), (await cache.keys()).length];
}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without any header of ours, and remembers what it is asked for."""

    def __init__(self, *arguments, asked, **options):
        self.asked = asked
        super().__init__(*arguments, **options)

    def log_message(self, form, *values):
        self.asked.append(self.path)

    def do_GET(self):
        if Path(self.directory, "is_down").exists():
            self.send_error(502)
        elif Path(self.directory, "is_tidy").exists() and self.path.endswith("/index.html"):
            self.send_response(301)
            self.send_header("location", "./")
            self.end_headers()
        else:
            super().do_GET()


@contextlib.contextmanager
def static_server(directory):
    """Any web server: Python's own. Yields its address and the list of what it was asked for."""
    asked = []
    handler = functools.partial(Handler, directory=directory, asked=asked)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def our_server(folder):
    with running(Settings(folder, port=0)) as server:
        yield f"http://127.0.0.1:{server.port}/"


@contextlib.contextmanager
def below_a_path(folder):
    with static_server(folder.parent) as (address, _):
        yield f"{address}{folder.name}/"


SERVERS = {"any server": below_a_path, "keras-addnorm serve": our_server}


class Opened:
    """The page in a context of its own, with what was said and asked for."""

    def __init__(self, browser, address, expected=(), **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)  # a busy machine is no fault of the page
        self.address, self.expected, self.said, self.asked = address, expected, [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.context.on("request", lambda request: self.asked.append(request.url))

    def __enter__(self):
        self.page.goto(self.address)
        return self

    def __exit__(self, *error):
        self.context.close()
        if error[0] is None:
            wrong = [each for each in self.said if not any(word in each for word in self.expected)]
            assert wrong == []
            inside = self.address, f"blob:{self.address[: self.address.index('/', 8)]}", "data:"
            assert [url for url in self.asked if not url.startswith(inside)] == []

    def wait(self, selector, text):
        self.page.locator(selector, has_text=text).wait_for()

    def translate(self, text):
        self.page.get_by_label("Text to translate").fill(text)
        self.page.get_by_role("button", name="Translate", exact=True).click()
        self.page.locator("#translate:not([aria-disabled])").wait_for()
        return self.page.locator("#translation").text_content()

    @property
    def error(self):
        alert = self.page.locator("#error")
        alert.wait_for()
        return alert.text_content()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ab cd", "ba", "dc ab"], vocabulary_size=13, kind="bpe")


@pytest.fixture(scope="module")
def shouter(tmp_path_factory, tokenizer):
    """The folder of a page whose engine shouts."""
    folder = tmp_path_factory.mktemp("pages")
    page = BrowserPage(
        write_fake_engine(folder / "engine"),
        name="<b>model</b>",
        source="en",
        target="de_DE",
        note="It knows <i>little</i>.",
        facts={"Licence": "CC BY <4.0>"},
    )
    return export_bergamot(our_model(tokenizer), tokenizer, folder / "page", page=page)


@pytest.fixture
def copy(shouter, tmp_path):
    return shutil.copytree(shouter, tmp_path / "page")


@pytest.fixture
def address(shouter):
    with our_server(shouter) as found:
        yield found


@pytest.mark.parametrize("server", SERVERS)
def test_lines_are_translated_and_stay_lines(browser, shouter, server):
    with SERVERS[server](shouter) as address, Opened(browser, address) as opened:
        assert opened.translate("one\n\n  two \t three\ncafe\u0301\n") == (
            "ONE\n\nTWO THREE\n" + unicodedata.normalize("NFC", "CAFE\u0301")
        )
        assert re.fullmatch(
            r"Translated in \d\.\d\d? seconds\.", opened.page.locator("#state").text_content()
        )
        sizes = [(shouter / name).stat().st_size for name in ("model.bin", "lex.bin", "vocab.spm")]
        said = opened.translate("given")
        assert said == ",".join(map(str, sizes)) + " int8shiftAll"
        assert opened.translate(" \n") == ""
        assert opened.page.locator("#state").text_content() == "Ready."


def test_what_is_known_of_the_model_stands_there_as_text(browser, address):
    with Opened(browser, address) as opened:
        opened.wait("#state", "Ready.")
        page = opened.page
        assert page.title() == "<b>model</b>: translation"
        heading = page.locator("h1").text_content()
        assert heading == "<b>model</b> translates English into German, in this browser"
        assert page.locator("#note").text_content() == "It knows <i>little</i>."
        facts = dict(
            zip(
                page.locator("dt").all_text_contents(),
                page.locator("dd").all_text_contents(),
                strict=True,
            )
        )
        assert facts.pop("Size").endswith(" MB in eight bits; the engine has 0.0 MB")
        assert facts == {
            "Licence": "CC BY <4.0>",
            "Engine": "@browsermt/bergamot-translator 0.4.9 (MPL-2.0)",
        }
        assert page.locator("#text").get_attribute("lang") == "en"
        assert page.locator("#translation").get_attribute("lang") == "de-DE"
        page.get_by_role("link", name="MPL-2.0").click()
        page.get_by_text("https://github.com/browsermt/bergamot-translator").wait_for()


@pytest.mark.parametrize("server", SERVERS)
def test_it_opens_without_a_network(browser, shouter, server):
    with contextlib.ExitStack() as serving:
        address = serving.enter_context(SERVERS[server](shouter))
        opened = serving.enter_context(Opened(browser, address))
        opened.wait("#offline", KEPT)
        opened.context.set_offline(True)
        for place in (address, f"{address}index.html", f"{address}?from=elsewhere"):
            opened.page.goto(place)
            assert opened.translate("still here") == "STILL HERE"
        opened.wait("#offline", KEPT)


def test_it_opens_when_the_server_is_gone(browser, shouter):
    opened = None
    with static_server(shouter) as (address, asked):
        opened = Opened(browser, address).__enter__()
        opened.wait("#offline", KEPT)
    asked.clear()
    opened.page.reload()
    assert opened.translate("alone") == "ALONE"
    assert asked == []
    opened.__exit__(None)


def test_a_server_that_fails_or_redirects_keeps_nobody_out(browser, copy):
    with static_server(copy) as (address, _), Opened(browser, address) as opened:
        opened.wait("#offline", KEPT)
        (copy / "is_tidy").touch()
        opened.page.goto(f"{address}index.html")
        assert opened.page.url == address
        assert opened.translate("here") == "HERE"
        (copy / "is_down").touch()
        opened.page.reload()
        assert opened.translate("alone") == "ALONE"


def test_no_other_server_is_asked_not_even_by_the_engines_thread(browser, shouter):
    with static_server(shouter) as (elsewhere, asked), static_server(shouter) as (address, _):
        with Opened(browser, address) as opened:
            assert opened.translate(f"{address}page.css") == "asked"
            assert opened.translate(f"{elsewhere}page.css") == "refused"
            # What the browser was to send, and did not.
            opened.asked.remove(f"{elsewhere}page.css")
        assert asked == []


def test_a_new_export_at_the_same_address_is_seen_at_once(browser, copy, tokenizer, tmp_path):
    other = BrowserPage(write_fake_engine(tmp_path / "other"), name="the new one")
    with static_server(tmp_path) as (address, _), Opened(browser, f"{address}page/") as opened:
        opened.wait("#offline", KEPT)
        shutil.rmtree(copy)
        more = Tokenizer.train(["ab cd", "ba", "dc ab"], vocabulary_size=15, kind="bpe")
        export_bergamot(our_model(more), more, copy, page=other)
        # A server's dates have whole seconds: what is written within one is "not modified".
        later = time.time() + 5
        for path in copy.iterdir():
            os.utime(path, (later, later))
        opened.page.reload()
        opened.wait("h1", "the new one")
        opened.wait("#offline", KEPT)
        size = (copy / "vocab.spm").stat().st_size
        assert opened.translate("given").split(" ")[0].endswith(f",{size}")
        # The browser replaces what it keeps meanwhile; then these are the page and its nine files.
        while opened.page.evaluate(KEPT_FILES) != [True, 10]:
            opened.page.wait_for_timeout(50)
        opened.context.set_offline(True)
        opened.page.reload()
        opened.wait("h1", "the new one")
        assert opened.translate("new") == "NEW"


def test_a_file_that_is_missing_is_named_and_the_button_tries_again(browser, copy):
    content = (copy / "lex.bin").read_bytes()
    (copy / "lex.bin").unlink()
    expected = ["404 (File not found)"]
    with static_server(copy) as (address, _), Opened(browser, address, expected) as opened:
        assert opened.error == "The server answered 404 for lex.bin."
        assert opened.page.locator("#state").text_content() == "Not ready."
        assert opened.page.locator("#offline").text_content() == ""
        assert not opened.page.locator("#progress").is_visible()
        (copy / "lex.bin").write_bytes(content)
        assert opened.translate("again") == "AGAIN"
        assert not opened.page.locator("#error").is_visible()


@pytest.mark.parametrize("change", ["other", "shorter", "longer"])
def test_a_file_that_has_changed_is_not_given_to_the_engine(browser, copy, change):
    content = (copy / "model.bin").read_bytes()
    middle = len(content) // 2
    other = bytes([content[middle] ^ 1])
    changed = {
        "other": content[:middle] + other + content[middle + 1 :],
        "shorter": content[:-1],
        "longer": content + b"\0",
    }
    (copy / "model.bin").write_bytes(changed[change])
    with static_server(copy) as (address, _), Opened(browser, address) as opened:
        assert opened.error.startswith("The file model.bin did not arrive as it was exported.")


def test_a_server_that_is_not_there_is_said(browser, shouter):
    with static_server(shouter) as (address, _):
        opened = Opened(browser, address, expected=["ERR_CONNECTION_REFUSED", "ERR_FAILED"])
        # The page alone arrives.
        opened.page.route("**/*.bin?*", lambda route: route.abort())
        opened.context.add_init_script("delete Navigator.prototype.serviceWorker")
        with opened:
            assert opened.error.startswith("The server does not answer; the file ")
            opened.page.unroute("**/*.bin?*")
            assert opened.translate("back") == "BACK"
            # As at an address without TLS.
            opened.page.reload()
            opened.wait("#offline", "It needs its server: browsers keep a page")


def test_an_engine_that_does_not_start_is_said(browser, tmp_path, tokenizer):
    engine = write_fake_engine(tmp_path / "engine")
    (engine / "worker" / "bergamot-translator-worker.wasm").write_bytes(b"no program")
    page = BrowserPage(engine)
    folder = export_bergamot(our_model(tokenizer), tokenizer, tmp_path / "page", page=page)
    with our_server(folder) as address, Opened(browser, address) as opened:
        assert opened.error.startswith("The engine does not start in this browser: ")
        assert "WebAssembly" in opened.error


def test_from_the_disk_it_says_that_it_needs_a_server(browser, shouter):
    page = browser.new_page()
    page.goto((shouter / "index.html").as_uri())
    alert = page.locator("#error")
    alert.wait_for()
    assert "keras-addnorm serve FOLDER" in alert.text_content()
    page.close()


def test_an_engine_that_stops_is_started_anew(browser, address):
    with Opened(browser, address) as opened:
        assert opened.translate("one") == "ONE"
        assert opened.translate("fail") == ""
        assert opened.error == (
            "The engine stopped: <b>unreachable</b>. The next translation starts it anew."
        )
        assert opened.page.locator("#state").text_content() == "Not ready."
        assert opened.translate("two") == "TWO"
        assert not opened.page.locator("#error").is_visible()


def test_long_texts_come_in_portions_and_a_later_one_replaces_them(browser, address):
    with Opened(browser, address) as opened:
        assert opened.translate("first") == "FIRST"
        page = opened.page
        lines = [f"line {i}" for i in range(20)]
        lines[11] = "wait"
        page.get_by_label("Text to translate").fill("\n".join(lines))
        page.keyboard.press("Control+Enter")
        opened.wait("#state", "Translating: 8 of 20 lines.")
        assert page.locator("#translation").text_content().split("\n") == [
            line.upper() for line in lines[:8]
        ]
        # The engine has both, and what was at work is no longer wanted.
        page.get_by_label("Text to translate").fill("go on")
        page.keyboard.press("Control+Enter")
        page.locator("#translate:not([aria-disabled])").wait_for()
        assert page.locator("#translation").text_content() == "GO ON"
        assert opened.translate("now") == "NOW"
        lines[11] = "line 11"
        assert opened.translate("\n".join(lines)) == "\n".join(lines).upper()


def test_by_keyboard_and_on_a_narrow_screen(browser, address):
    with Opened(browser, address, viewport={"width": 320, "height": 640}) as opened:
        page = opened.page
        assert page.evaluate("document.activeElement.id") == "text"
        page.keyboard.type("a" * 60)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        opened.wait("#state", "Translated")
        assert page.locator("#translation").text_content() == "A" * 60
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.locator("#state").get_attribute("role") == "status"
        assert page.get_by_role("region").evaluate_all(
            "(all) => all.map((e) => document.getElementById(e.getAttribute('aria-labelledby'))"
            ".textContent)"
        ) == ["Translation", "The model"]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """A model that knows some sentences by heart; its page, and the sentences."""
    package = engine_folder()
    pairs = [
        pair
        for pair, _ in zip(demo_pairs("de", seed=3), range(60), strict=False)
        if ". " not in pair.source and ". " not in pair.target
    ][:NUM_PAIRS]
    texts = [text for pair in pairs for text in (pair.source, pair.target)]
    tokenizer = Tokenizer.train(texts, vocabulary_size=149, kind="bpe")
    model = our_model(tokenizer, num_encoder_layers=1, num_decoder_layers=1)
    end, start = tokenizer.end_id, model.config.start_id
    sources = [[*tokenizer.encode(pair.source), end] for pair in pairs]
    labels = [[*tokenizer.encode(pair.target), end] for pair in pairs]
    targets = [[start, *row[:-1]] for row in labels]
    keras.utils.set_random_seed(7)
    model.compile(keras.optimizers.Adam(3e-3), MaskedSparseCategoricalCrossentropy())
    inputs = {"source": padded(sources), "target": padded(targets)}
    model.fit(inputs, padded(labels), epochs=150, batch_size=NUM_PAIRS, verbose=0)
    lines = [pair.source for pair in pairs]
    page = BrowserPage(package, name="student", source="en", target="de")
    folder = tmp_path_factory.mktemp("student") / "page"
    export_bergamot(model, tokenizer, folder, samples=lines, page=page)
    # The model has not seen the last ones, and answers with something all the same.
    lines += [line.rpartition(" ")[0] for line in lines[:3]]
    expected = simulated(folder, lines, 128)
    by_heart = [text == pair.target for text, pair in zip(expected, pairs, strict=False)]
    assert sum(by_heart) > NUM_PAIRS / 2
    return folder, lines, expected


def padded(rows):
    width = max(map(len, rows))
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], "int32")


@pytest.mark.parametrize("server", SERVERS)
def test_bergamots_engine_translates_in_the_page_and_offline(browser, student, server):
    folder, lines, expected = student
    identity = ["precompiled_charsmap is empty. use identity normalization"]
    with SERVERS[server](folder) as address, Opened(browser, address, identity) as opened:
        opened.wait("#offline", KEPT)
        found = opened.translate("\n".join(lines)).split("\n")
        same = sum(a == b for a, b in zip(found, expected, strict=True))
        assert same >= len(lines) - 1, [*zip(found, expected, strict=True)]
        opened.context.set_offline(True)
        opened.page.reload()
        assert opened.translate("\n".join(lines)).split("\n") == found
        # Sentences of one line are translated one by one.
        two = f"{lines[0]} {lines[1]}"
        assert opened.translate(two) == f"{found[0]} {found[1]}"
