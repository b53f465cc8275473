"""The page as a file: whole, closed, and with its numbers inside."""

import json
import re
from pathlib import Path

import pytest
from filled_models import tiny_model

import keras_addnorm.explain.page_file as page_file
from keras_addnorm import schemes
from keras_addnorm.data import TokenizerPair
from keras_addnorm.diagnostics import ResidualRow
from keras_addnorm.explain import ExplainedRun, explained_schemes, page, remade_page

FOLDER = Path(page_file.__file__).parent / "page"


@pytest.fixture(scope="module")
def run():
    pairs = [("a small house", "ein Haus"), ("a mouse", "eine Maus")]
    tokenizers = TokenizerPair.train(pairs, vocabulary_size=20)
    model = tiny_model(
        source_vocabulary_size=20, target_vocabulary_size=20, share_embeddings=True, scheme="pre_ln"
    )
    log = [
        ResidualRow(step, name, 1.23456, 0.5, 2.0, float("inf"), 0.9, float("nan"))
        for step in (0, 7)
        for name in ("encoder/0/self_attention", "decoder/0/feed_forward")
    ]
    return ExplainedRun("pre_ln", model, tokenizers, log, 0.75, ("average", 1.0))


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_all_files_are_inside_and_nothing_is_loaded(run):
    text = page([run], [("a <script> house", "")], title="A & <b>", note="a note")
    assert "<title>A &amp; &lt;b&gt;</title>" in text
    for path in FOLDER.iterdir():
        if path.suffix in (".js", ".css"):
            assert path.read_text(encoding="utf-8").rstrip("\n") in text, path.name
    assert set(page_file._SCRIPTS) == {path.name for path in FOLDER.glob("*.js")}
    assert not re.search(r"<(?:script|link|img)[^>]* (?:src|href)=\"(?!data:)", text)
    assert text.count("</script>") == 2
    assert data_of(text)["note"] == "a note"
    assert "default-src 'none'" in text


SAID = re.compile(r'\b(?:say|saying|toSay|known)\(\s*("(?:[^"\\]|\\.)*")')
TRANSLATED = re.compile(
    r'^ {4}(?:"((?:[^"\\]|\\.)*)"|(\w+)):\s*\n?\s*"((?:[^"\\]|\\.)*)",$', re.MULTILINE
)
STILL = re.compile(r"<\w+([^>]*\bdata-say(?:-label)?\b[^>]*)>([^<]*)")


def said_texts():
    """All that the page says: in its scripts, in its HTML, and of the schemes that it computes."""
    found = {
        json.loads(text)
        for path in FOLDER.glob("*.js")
        if not path.name.startswith("language")
        for text in SAID.findall(path.read_text(encoding="utf-8"))
    }
    for attributes, text in STILL.findall((FOLDER / "page.html").read_text(encoding="utf-8")):
        if "data-say-label" in attributes:
            found.add(re.search(r'aria-label="([^"]*)"', attributes)[1])
        if re.search(r"data-say(?!-)", attributes):
            found.add(text)
    found |= {schemes.get(name).idea for name in explained_schemes()}
    return found - {"$title"}


def test_a_language_is_one_file_and_translates_all_that_is_said():
    """A text without a translation would stand there in English."""
    texts = said_texts()
    assert len(texts) > 200 and "Guide me" in texts and "To translate" in texts
    files = [path.name for path in FOLDER.glob("language_*.js")]
    assert files and set(files) < set(page_file._SCRIPTS)
    for name in files:
        rows = TRANSLATED.findall((FOLDER / name).read_text(encoding="utf-8"))
        words = {quoted or bare: translation for quoted, bare, translation in rows}
        assert len(words) == len(rows)
        of_ready_page = ("Add & Norm by hand", "All translate English into German, and have")
        others = {text for text in words if not text.startswith(of_ready_page)}
        assert others == texts, name
        for text, translation in words.items():
            values = (set(re.findall(r"\{\w+\}", each)) for each in (text, translation))
            assert next(values) == next(values), text


def test_chinese_is_written_with_its_own_marks():
    rows = TRANSLATED.findall((FOLDER / "language_zh.js").read_text(encoding="utf-8"))
    for _, _, translation in rows:
        assert not re.search("[\u4e00-\u9fff][,:;?!(]|[,:;?!)][\u4e00-\u9fff]", translation)


def test_equal_tokenizers_stand_there_once(run):
    data = data_of(page([run, run], [], title="t"))
    assert len(data["tokenizers"]) == 1
    first, second = data["models"]
    assert first["source_tokenizer"] == second["target_tokenizer"] == 0
    assert first["behind_source"] == [2] and first["before_source"] == []
    assert first["length_penalty"] == {"name": "average", "alpha": 1.0}
    assert first["validation_loss"] == 0.75


def test_of_a_long_log_there_are_some_steps_and_the_last_one():
    """As many numbers as the file has rows, if each is about a sublayer of its own."""
    values = 1.0, 0.5, 2.0, 0.5, 0.9, 0.1
    log = page_file._log([ResidualRow(n, f"decoder/{n}", *values) for n in range(1000)])
    assert log["steps"] == list(range(7, 1000, 8))
    assert [len(row) for row in log["values"]["residual_rms"]] == [1000] * 125


def test_the_log_is_by_step_and_has_gaps_where_numbers_are_not_finite(run):
    (model,) = data_of(page([run], [], title="t"))["models"]
    log = model["log"]
    assert log["steps"] == [0, 7]
    assert log["sublayers"] == ["encoder/0/self_attention", "decoder/0/feed_forward"]
    assert log["values"]["residual_rms"] == [[1.235, 1.235], [1.235, 1.235]]
    assert log["values"]["residual_ratio"] == log["values"]["gradient_norm"] == [[None] * 2] * 2


def test_a_page_is_made_again_of_what_is_in_it(run):
    text = page([run], [("a <b> house", "</script>")], title="A & <b>", note="a note")
    old = text.replace("const TOUR", "const OLD_TOUR").replace(schemes.PreLN().idea, "Old.")
    assert old != text
    assert remade_page(old) == text
    assert remade_page(remade_page(old, note="another"), note="a note") == text


START = '<script type="application/json" id="data">'


@pytest.mark.parametrize(
    "text, message",
    [
        ("<html></html>", "one element with its data"),
        (f"{START}{{}}</script>{START}{{}}</script>", "Received: 2 of them"),
        (START + "{}", "one element with its data"),
        (b"<html></html>", "Received: 0 of them in a bytes"),
        (f"{START}{{</script>", "cannot be read"),
        (f"{START}{'[' * 100_000}</script>", "nested too deeply"),
        (f"{START}[]</script>", "data of another kind"),
        (f'{START}{{"models": []}}</script>', "data of another kind"),
        (f'{START}{{"models": [], "title": null}}</script>', "its title is no text"),
        (f'{START}{{"models": [], "title": "a", "note": NaN}}</script>', "cannot be read"),
        (f'{START}{{"models": [{{"config": 5}}], "title": "a"}}</script>', "data of another kind"),
    ],
)
def test_what_is_no_page_is_refused(text, message):
    with pytest.raises(ValueError, match=message) as error:
        remade_page(text)
    assert len(str(error.value)) < 400


def test_elements_without_an_end_are_each_looked_at_once():
    class Counted(str):
        looked_at = 0

        def split(self, *args):
            Counted.looked_at += len(self)
            return super().split(*args)

    # As a pattern this was looked through to its end from each of the beginnings: 270 seconds.
    text = Counted(START * 25_000)
    with pytest.raises(ValueError, match="Received: 25000 of them"):
        remade_page(text)
    assert Counted.looked_at == len(text)
    assert not [name for name, one in vars(page_file).items() if isinstance(one, re.Pattern)]


def test_errors_name_the_run(run):
    with pytest.raises(ValueError, match="Expected at least one run"):
        page([], [], title="t")
    other = ExplainedRun("mine", tiny_model(norm="derf"), run.tokenizers)
    with pytest.raises(ValueError, match=r"^mine: The page cannot run this model"):
        page([run, other], [], title="t")
