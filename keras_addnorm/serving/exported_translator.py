"""Loads and runs an exported model in Python."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_addnorm.basics.argument_checks import require_bool, to_path
from keras_addnorm.basics.errors import ArgumentError, UserError, shown
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.basics.translation import Translation
from keras_addnorm.data import Tokenizer
from keras_addnorm.data.normalization import utf8_text
from keras_addnorm.data.strings import several_texts
from keras_addnorm.data.text_format import some_of, unknown_language
from keras_addnorm.serving.errors import NOT_FINITE
from keras_addnorm.serving.graph_text_format import LANGUAGE_INPUTS
from keras_addnorm.serving.versions import (
    find_version,
    require_intact,
    version_number,
)


class Translator:
    """An exported model as a function of texts, as `load_translator` returns it.

    Exports normalise texts themselves. Earlier ones, whose card names no normalisation, expect
    Unicode form NFKC, and get it here.

    Args:
        path: The folder of one version, as `export_saved_model` returns it. `load_translator` has
            compared its files with their digests.

    Attributes:
        path: The folder.
        version: The number of the version.
        card: The content of `assets.extra/model.json`.

    Example: see `export_saved_model`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = to_path(path)
        self.version = version_number(self.path.name)
        card = self.path / "assets.extra" / "model.json"
        self.card: dict[str, Any] = parse_json(card.read_bytes()) if card.is_file() else {}
        sides = self.card.get("tokenizer", {})
        normalizes = "normalization" in sides.get("source", {})
        self._prepare = utf8_text if normalizes else Tokenizer.normalize
        # The signature has only weak references to the weights, so the module must stay alive.
        self._module = tf.saved_model.load(str(self.path))
        self._translate = self._module.signatures["serving_default"]

    def __call__(
        self,
        texts: Iterable[str],
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> list[Translation]:
        """Translates texts, all in one batch.

        Args:
            texts: The texts, of any length; a blank one gives an empty translation with the score
                0. An export made with `splitting="none"`, or by version 0.1.0, cuts long ones off.
            source_language: The language of the texts, of an export whose input it is.
            target_language: The language to translate into, likewise.

        Returns:
            One translation a text, in order.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
            ValueError: If a language is missing, unknown, or no input of the export.
            FloatingPointError: If the model computed something that is no number.
        """
        texts = several_texts(texts)
        normal = [self._prepare(text) for text in texts]
        languages = self._languages(source_language, target_language)
        if not normal:
            return []
        try:
            out = self._translate(texts=tf.constant(normal), **languages)
        except tf.errors.InvalidArgumentError as error:
            if NOT_FINITE not in error.message:
                raise
            raise FloatingPointError(
                f"{NOT_FINITE} in the search. Expected finite numbers. The weights of "
                f"'{self.path}' are damaged, or its precision is too low: export the model again."
            ) from error
        return [
            Translation(text.decode("utf-8"), float(score))
            for text, score in zip(out["translations"].numpy(), out["scores"].numpy(), strict=True)
        ]

    def _languages(self, source: str | None, target: str | None) -> dict[str, tf.Tensor]:
        """The languages as inputs of the signature."""
        given = {
            name: language
            for name, language in zip(LANGUAGE_INPUTS.values(), (source, target), strict=True)
            if language is not None
        }
        _, inputs = self._translate.structured_input_signature
        known = self.card.get("languages", {})
        expected = [side for side, name in LANGUAGE_INPUTS.items() if name in inputs]
        if given.keys() != {LANGUAGE_INPUTS[side] for side in expected}:
            such = (f"a {side} language{_such_as(known.get(side))}" for side in expected)
            raise ArgumentError(
                "An export is told the languages that are its inputs, and no others.",
                " and ".join(such) or "no language",
                received=str(given or "none"),
            )
        for side in expected:
            name = given[LANGUAGE_INPUTS[side]]
            if side in known and name not in known[side]:
                raise UserError(unknown_language(side, name, known[side]))
        return {name: tf.constant([language]) for name, language in given.items()}

    def __repr__(self) -> str:
        return f"Translator('{self.path}')"


def _such_as(names: list[str] | None) -> str:
    return f", such as {some_of(names)}" if names else ""


def load_translator(directory: str | os.PathLike[str], *, verify: bool = True) -> Translator:
    """Loads an exported model.

    Args:
        directory: The folder of one version, or the folder of all versions, of which the highest is
            loaded.
        verify: Whether the files are compared with the digests in the export's manifest; an export
            of an earlier version has none.

    Returns:
        The translator.

    Raises:
        FileNotFoundError: If there is no exported model.
        ValueError: If the folder holds another kind of model, or a file is damaged.
    """
    require_bool(verify=verify)
    path = find_version(directory)
    try:
        if verify:
            require_intact(path)
        return Translator(path)
    except DamagedFileError:
        raise
    # TensorFlow has errors of many kinds for files without sense.
    except Exception as error:
        raise ValueError(
            f"'{path}' holds no translation model: {shown(str(error))}. Expected a SavedModel with "
            "the signature 'serving_default'. Export it again."
        ) from error
