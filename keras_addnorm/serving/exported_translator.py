"""Loads and runs an exported model in Python."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_addnorm.data import Tokenizer
from keras_addnorm.data.normalization import utf8_text
from keras_addnorm.serving.translation_result import Translation
from keras_addnorm.serving.versions import existing_versions, version_number


class Translator:
    """An exported model as a function of texts.

    Exports normalise texts themselves. Earlier ones, whose card names no normalisation, expect
    Unicode form NFKC, and get it here.

    Args:
        path: The folder of one version, as `export_saved_model` returns it.

    Attributes:
        path: The folder.
        version: The number of the version.
        card: The content of `assets.extra/model.json`.

    Example: see `export_saved_model`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.version = version_number(self.path.name)
        card = self.path / "assets.extra" / "model.json"
        self.card: dict[str, Any] = json.loads(card.read_text("utf-8")) if card.is_file() else {}
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
        """
        if isinstance(texts, str | bytes):
            raise TypeError("Expected several texts; received one. Put it in a list: [text].")
        normal = [self._prepare(text) for text in texts]
        languages = self._languages(source_language, target_language)
        if not normal:
            return []
        try:
            out = self._translate(texts=tf.constant(normal), **languages)
        except tf.errors.InvalidArgumentError as error:
            if not languages:
                raise
            raise ValueError(
                f"The export could not translate with {_named(languages)}. Expected languages that "
                f"its model knows. {error.message}"
            ) from error
        return [
            Translation(text.decode("utf-8"), float(score))
            for text, score in zip(out["translations"].numpy(), out["scores"].numpy(), strict=True)
        ]

    def _languages(self, source: str | None, target: str | None) -> dict[str, tf.Tensor]:
        """The languages as inputs of the signature."""
        given = {"source_language": source, "target_language": target}
        _, inputs = self._translate.structured_input_signature
        expected = [name for name in given if name in inputs]
        received = [name for name, language in given.items() if language is not None]
        if received != expected:
            raise ValueError(
                f"The inputs of an export are its texts and some languages. Expected {expected}; "
                f"received {received}."
            )
        return {name: tf.constant([given[name]]) for name in expected}

    def __repr__(self) -> str:
        return f"Translator('{self.path}')"


def _named(languages: dict[str, tf.Tensor]) -> str:
    return ", ".join(f"{name}={value.numpy()[0].decode()!r}" for name, value in languages.items())


def load_translator(directory: str | os.PathLike[str]) -> Translator:
    """Loads an exported model.

    Args:
        directory: The folder of one version, or the folder of all versions, of which the highest is
            loaded.

    Returns:
        The translator.

    Raises:
        FileNotFoundError: If there is no exported model.
        ValueError: If the folder holds another kind of model.
    """
    directory = Path(directory)
    if (directory / "saved_model.pb").is_file():
        path = directory
    else:
        versions = existing_versions(directory)
        if not versions:
            raise FileNotFoundError(
                f"There is no exported model in '{directory}'. Expected folders named by a number, "
                f"such as '{directory / '1'}', as an export has them; found "
                f"{sorted(os.listdir(directory)) if directory.is_dir() else 'no such folder'}."
            )
        path = directory / str(versions[-1])
    try:
        return Translator(path)
    except (OSError, KeyError, tf.errors.OpError) as error:
        raise ValueError(
            f"'{path}' holds no translation model: {error}. Expected a SavedModel with the "
            "signature 'serving_default'. Export it again."
        ) from error
