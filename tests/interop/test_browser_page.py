"""The folder of a page that translates in the browser; `tests/browser` opens it."""

import hashlib
import json
import os
import re
import shutil

import pytest
from bergamot_models import our_model
from fake_engine import PROGRAM, write_fake_engine

from keras_addnorm.basics.languages import english_name
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.interop import BrowserPage, export_bergamot, load_pretrained, require_intact

INSTALL = "npm install @browsermt/bergamot-translator@0.4.9"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return write_fake_engine(tmp_path_factory.mktemp("engine") / "package")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ab cd", "ba", "dc ab"], vocabulary_size=13, kind="bpe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, engine, tokenizer):
    package = shutil.copytree(engine, tmp_path_factory.mktemp("more") / "package")
    (package / "LICENSE.txt").write_text("the licence")
    page = BrowserPage(package, name="a\ud800</script>", facts={"BLEU\udcff": "3.5 <b>"})
    return export_bergamot(
        our_model(tokenizer), tokenizer, tmp_path_factory.mktemp("page") / "page", page=page
    )


def model_of(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="model">(.*?)</script>', page)
    return json.loads(found)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_is_named_by_what_it_holds(folder):
    model = model_of(folder)
    named = [model["worker"], model["program"], *model["weights"], *model["shortlist"]]
    named += model["vocabularies"]
    assert [each["name"] for each in named] == [
        "worker.js",
        "engine/bergamot-translator-worker.wasm",
        "model.bin",
        "lex.bin",
        "vocab.spm",
    ]
    for each in named:
        path = folder / each["name"]
        assert each["size"] == path.stat().st_size
        assert each["address"] == f"{each['name']}?{digest(path)}"
    assert (model["form"], model["config"]) == ("NFC", {"gemm-precision": "int8shiftAll"})
    # The files that a browser keeps are all of these, and the page's own.
    text = (folder / "service_worker.js").read_text(encoding="utf-8")
    (kept,) = re.findall(r"const FILES = (\[.*?\])", text, re.S)
    addresses = {*json.loads(kept)}
    asked = {each["address"] for each in named} | {*model["scripts"].values()}
    page = (folder / "index.html").read_text(encoding="utf-8")
    asked |= {*re.findall(r'(?:src|href)="(page\.[^"]+)"', page)}
    assert addresses == asked
    assert all(address.endswith(digest(folder / address.split("?")[0])) for address in addresses)
    assert digest(folder / "index.html") in text


def test_the_engine_is_there_as_it_came_with_its_licence(folder):
    names = {path.name for path in (folder / "engine").iterdir()}
    assert names == {
        "translator-worker.js",
        "bergamot-translator-worker.js",
        "bergamot-translator-worker.wasm",
        "LICENSE.txt",
        "NOTICE.txt",
    }
    assert (folder / "engine" / "bergamot-translator-worker.wasm").read_bytes() == PROGRAM
    notice = (folder / "engine" / "NOTICE.txt").read_text(encoding="utf-8")
    for word in ("@browsermt/bergamot-translator 0.4.9", "MPL-2.0", "https://github.com/browsermt"):
        assert word in notice


def test_names_and_facts_are_text_and_the_folder_is_read_back(folder, tmp_path):
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<title>a&lt;/script&gt;: translation</title>" in page
    assert "<dt>BLEU</dt><dd>3.5 &lt;b&gt;</dd>" in page
    assert "keras-addnorm serve ." in (folder / "README.md").read_text(encoding="utf-8")
    assert load_pretrained(folder).model.config.self_attention == "ssru"
    copy = shutil.copytree(folder, tmp_path / "copy")
    require_intact(copy)
    (copy / "page.js").write_text("other")
    with pytest.raises(ValueError, match=r"page\.js' is damaged"):
        require_intact(copy)


def test_two_vocabularies_are_both_there_and_texts_get_the_form_of_the_source(
    tmp_path, engine, tokenizer
):
    texts = ["ab cd", "ba", "dc ab"]
    other = Tokenizer.train(texts, vocabulary_size=13, kind="bpe", normalization="nfkc")
    pair = TokenizerPair(other, tokenizer)
    folder = export_bergamot(
        our_model(tokenizer), pair, tmp_path / "page", page=BrowserPage(engine)
    )
    model = model_of(folder)
    assert [each["name"] for each in model["vocabularies"]] == ["source.spm", "target.spm"]
    assert model["form"] == "NFKC"
    assert "PAGE" not in (folder / "README.md").read_text(encoding="utf-8")


def test_without_a_page_there_is_none(tmp_path, tokenizer):
    folder = export_bergamot(our_model(tokenizer), tokenizer, tmp_path / "model")
    assert not (folder / "index.html").exists()
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "PAGE" not in text and "index.html" not in text


def linked(path):
    """A link to what is nobody else's business."""
    path.unlink(missing_ok=True)
    private = path.parents[2] / "private"
    private.write_bytes(b"private")
    path.symlink_to(private)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / "package.json").unlink(), "There is no engine here."),
        (lambda folder: (folder / "package.json").write_text("{"), "There is no engine here."),
        (lambda folder: (folder / "package.json").write_text("[]"), "This is another package."),
        (lambda folder: pipe(folder / "package.json"), "There is no engine here."),
        (lambda folder: os.truncate(folder / "package.json", 2**40), "There is no engine here."),
        (
            lambda folder: (folder / "package.json").write_text('{"name": "left-pad"}'),
            "This is another package.",
        ),
        (
            lambda folder: (folder / "worker" / "translator-worker.js").unlink(),
            "The engine lacks its file worker/translator-worker.js.",
        ),
        (shutil.rmtree, "There is no engine here."),
        (
            lambda folder: linked(folder / "LICENSE"),
            "The engine's file 'LICENSE' is a link to a place outside of it.",
        ),
        (
            lambda folder: linked(folder / "worker" / "translator-worker.js"),
            "The engine's file 'translator-worker.js' is a link to a place outside of it.",
        ),
    ],
)
def test_a_wrong_engine_is_refused_with_what_to_type(tmp_path, change, problem):
    folder = write_fake_engine(tmp_path / "package")
    change(folder)
    with pytest.raises(ValueError) as refused:
        BrowserPage(folder)
    said = str(refused.value)
    assert said.startswith(problem)
    assert f"Type `{INSTALL}`" in said and str(folder) in said


def test_another_version_is_refused(tmp_path):
    folder = write_fake_engine(tmp_path / "package", version="0.5.0")
    with pytest.raises(ValueError, match=r"This is version '0\.5\.0' of the engine\. Expected"):
        BrowserPage(folder)


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("en", "English"),
        ("de_DE", "German"),
        ("eng_Latn", "English"),
        ("zh-Hant", "Chinese"),
        ("cu", "Church Slavic"),
        ("hsb", "Upper Sorbian"),
        ("io", "io"),
        ("qaa", "qaa"),
    ],
)
def test_languages_have_english_names(language, name):
    assert english_name(language) == name
