"""Errors as data: one message, with Python's names or with flags."""

import pickle

import keras
import pytest

from keras_addnorm.basics.errors import (
    ArgumentError,
    ArgumentTypeError,
    SettingsError,
    UserError,
    unknown_name,
)

FLAGS = {"num_beams": "--num-beams", "version": "--version", "cache": "--cache", "a.b": "--b"}
SEARCH = ArgumentError(
    "The search has no room.",
    "`num_beams` >= 1",
    "Pass `num_beams=4`, or `version=None`.",
    num_beams=0,
)


@pytest.mark.parametrize(
    ("error", "python", "command"),
    [
        (
            SEARCH,
            "The search has no room. Expected num_beams >= 1. Received: 0. Pass num_beams=4, or "
            "version=None.",
            "The search has no room. Expected --num-beams >= 1. Received: 0. Pass --num-beams 4, "
            "or no --version.",
        ),
        (  # an argument that no sentence names, and one that is not given
            ArgumentError("They do not fit.", version=None, num_beams=3, other="`cache`"),
            "They do not fit. Received: version=None, num_beams=3, other='`cache`'.",
            "They do not fit. Received: no --version, --num-beams 3, other='`cache`'.",
        ),
        (  # the one argument that is not given
            ArgumentError(expected="a `version`", version=None),
            "Expected a version. Received: None.",
            "Expected a --version. Received: no --version.",
        ),
        (
            ArgumentError("`cache=False` and `cache=True`.", cache=False, num_beams=1),
            "cache=False and cache=True. Received: cache=False, num_beams=1.",
            "--no-cache and --cache. Received: --no-cache, --num-beams 1.",
        ),
        (ArgumentError(expected="a text", value=3), "Expected a text. Received: 3.", None),
        (
            ArgumentError("`a.b` is wrong.", received="3 rows"),
            "a.b is wrong. Received: 3 rows.",
            "--b is wrong. Received: 3 rows.",
        ),
        (  # what is no name, and a backquote that is never closed
            ArgumentError("Run `keras-addnorm train --x`, not `cache`, nor `cache."),
            "Run `keras-addnorm train --x`, not cache, nor `cache.",
            "Run `keras-addnorm train --x`, not --cache, nor `cache.",
        ),
        (
            ArgumentError("The files do not fit.", remedy="Copy them.", because=SEARCH),
            f"The files do not fit. {SEARCH} Copy them.",
            f"The files do not fit. {SEARCH.renamed(FLAGS)} Copy them.",
        ),
        (
            ArgumentError("It is wrong.", because=KeyError("num_beams")),
            "It is wrong. 'num_beams'",
            None,
        ),
        (
            SettingsError([SEARCH, UserError("`cache` is a text.")]),
            f"2 settings are wrong:\n  {SEARCH}\n  `cache` is a text.",
            f"2 settings are wrong:\n  {SEARCH.renamed(FLAGS)}\n  `cache` is a text.",
        ),
        (SettingsError([SEARCH]), str(SEARCH), str(SEARCH.renamed(FLAGS))),
        (
            unknown_name("`version`", "one", ("ones", "two")),
            "Unknown version 'one'. Did you mean 'ones'? Expected one of: ones, two.",
            "Unknown --version 'one'. Did you mean 'ones'? Expected one of: ones, two.",
        ),
    ],
)
def test_a_message_has_the_names_of_python_or_of_a_command(error, python, command):
    assert str(error) == python
    assert str(error.renamed(FLAGS)) == (command or python)
    assert str(error) == python
    assert str(error.renamed({"x": "--x"})) == python


def test_names_are_changed_twice_from_an_argument_to_a_setting_to_a_flag():
    """A field of a model is a setting of a file, and a flag where the command line has it."""
    error = ArgumentError("`b` is too large.", b=5).renamed({"b": "a.b"})
    assert str(error) == "a.b is too large. Received: 5."
    assert error.arguments == {"a.b": 5}
    assert str(error.renamed(FLAGS)) == "--b is too large. Received: 5."


def test_long_values_are_cut():
    assert str(ArgumentError(value="x" * 1000)) == f"Received: '{'x' * 199}...."


@pytest.mark.parametrize("kind", [ArgumentError, ArgumentTypeError])
def test_the_class_stays_and_reaches_another_process(kind):
    error = pickle.loads(pickle.dumps(kind("`version` is old.", because=SEARCH, version=1)))
    assert (type(error), str(error)) == (kind, f"version is old. {SEARCH} Received: 1.")
    assert type(error.renamed(FLAGS)) is kind
    assert isinstance(error, ValueError)
    assert isinstance(error, TypeError) == (kind is ArgumentTypeError)


def test_keras_tells_the_message_of_a_layer_that_is_called():
    class Refusing(keras.layers.Layer):
        def call(self, x):
            raise ArgumentError("`x` does not fit.", x=1)

    with pytest.raises(ArgumentError, match=r"(?s)Refusing\.call.*x does not fit\. Received: 1"):
        Refusing()(keras.ops.zeros((1, 1)))
