"""An empty path, of a variable that is not set, is no current folder."""

import ast
from pathlib import Path

import pytest

import keras_addnorm
from keras_addnorm.basics import atomic_file, atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.data import Tokenizer, TokenizerPair, load_tokenizer, load_translation
from keras_addnorm.interop import load_pretrained
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.demo import demo
from keras_addnorm.serving import load_translator
from keras_addnorm.serving.server import Settings
from keras_addnorm.training import plot_curves


def _paths_of_users(function):
    """The parameters that a user may give as a string."""
    arguments = function.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        kind = "" if one.annotation is None else ast.unparse(one.annotation)
        if "PathLike" in kind or "str | Path" in kind:
            yield one.arg


def test_a_path_of_a_user_is_read_in_one_way():
    package = Path(keras_addnorm.__file__).parent
    found = []
    for file in package.rglob("*.py"):
        functions = (
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        )
        for function in functions:
            calls = {f"Path({name})" for name in _paths_of_users(function)}
            found += [
                f"{file.relative_to(package)}"
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and ast.unparse(node) in calls
            ]
    assert found == ["basics/argument_checks.py"], "read the path with `to_path` of that file"


def _tokenizer():
    return Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)


@pytest.mark.parametrize(
    "call",
    [
        lambda: to_path(""),
        lambda: RunDirectory(""),
        lambda: demo("en-de", ""),
        lambda: _tokenizer().save(""),
        lambda: TokenizerPair.of(_tokenizer()).save(""),
        lambda: TokenizerPair.load(""),
        lambda: load_tokenizer(""),
        lambda: load_translation("demo/en-de", split="test", data_dir=""),
        lambda: load_pretrained(""),
        lambda: load_translator(""),
        lambda: Settings(""),
        lambda: plot_curves("", "curves.png"),
        lambda: atomic_file("").__enter__(),
        lambda: atomic_folder("").__enter__(),
    ],
)
def test_an_empty_path_is_refused(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"A path is empty\. Expected the name of a file"):
        call()
    assert list(tmp_path.iterdir()) == []


def test_the_current_folder_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert to_path(".") == RunDirectory(".").path == Path()


def test_a_path_that_no_disk_has_is_refused():
    """Half of a surrogate pair; one that stands for a byte that is no UTF-8 is a name on Linux."""
    with pytest.raises(ValueError, match="A path has a character that no name has"):
        to_path("a\ud800")
    assert to_path("a\udcff") == Path("a\udcff")
