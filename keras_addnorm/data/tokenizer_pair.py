"""The tokenizers of the two sides of a translation model."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import require_bool, require_int, to_path
from keras_addnorm.basics.atomic import atomic_file
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, UserError
from keras_addnorm.basics.integrity import IN_EXPORTS, Manifest
from keras_addnorm.basics.suggestions import Elsewhere
from keras_addnorm.basics.text import parse_json, read_text
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.strings import describe, sample, string_pairs
from keras_addnorm.data.text_format import (
    BoundFormat,
    TextFormat,
    language_names,
    unknown_language,
)
from keras_addnorm.data.tokenizer import Tokenizer
from keras_addnorm.data.tokenizer_files import load_tokenizer

_FORMAT_FILE = "text_format.json"
_FILES = ("tokenizer.model", "source.model", "target.model")
FILES = (*_FILES, _FORMAT_FILE)
"""All that a pair may be saved as."""

_ENCODE = (
    "It has a tokenizer for each side: write tokenizers.source.encode(text), or "
    "tokenizers.source.encode_batch(texts). keras_addnorm.decoding.translate(model, tokenizers, "
    "texts) takes the pair and texts."
)
_DECODE = (
    "It has a tokenizer for each side: write tokenizers.target.decode(ids), or "
    "tokenizers.target.decode_batch(ids)."
)


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the two sides of a translation model.

    Attributes:
        source: The tokenizer of the language to translate from.
        target: The tokenizer of the language to translate into; equal to `source` if joint.
        text_format: What stands around the tokens of a text.

    Raises:
        TypeError: If one is something else.
        ValueError: If the tokenizers have other ids for padding or the end.

    Example:
        ```python
        from keras_addnorm.data import TokenizerPair

        pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")]
        tokenizers = TokenizerPair.train(pairs, vocabulary_size=22, joint=True)
        assert tokenizers.is_joint
        ```
    """

    source: BaseTokenizer
    target: BaseTokenizer
    text_format: TextFormat = field(default_factory=TextFormat)

    __call__ = Elsewhere(_ENCODE)
    encode = Elsewhere(_ENCODE)
    tokenize = Elsewhere(_ENCODE)
    decode = Elsewhere(_DECODE)
    batch_decode = Elsewhere(_DECODE)

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            if not isinstance(getattr(self, side), BaseTokenizer):
                raise ArgumentTypeError(
                    expected=f"a Tokenizer as {side}", received=describe(getattr(self, side))
                )
        if not isinstance(self.text_format, TextFormat):
            raise ArgumentTypeError(expected="a TextFormat", received=describe(self.text_format))
        special = [(side.pad_id, side.end_id) for side in (self.source, self.target)]
        if special[0] != special[1]:
            raise ArgumentError(
                "A model has one id for padding and one for the end.",
                "them equal in both vocabularies",
                received=f"(pad, end) = {special[0]} and {special[1]}",
            )

    @classmethod
    def joint(cls, tokenizer: BaseTokenizer) -> TokenizerPair:
        """Makes a pair that uses one vocabulary on both sides.

        Args:
            tokenizer: The shared vocabulary.

        Returns:
            The pair.
        """
        return cls(tokenizer, tokenizer)

    @classmethod
    def of(cls, tokenizers: BaseTokenizer | TokenizerPair) -> TokenizerPair:
        """Accepts a pair as it is, and one tokenizer as a joint pair.

        Args:
            tokenizers: A pair, or the one tokenizer of both sides.

        Returns:
            The pair.

        Raises:
            TypeError: If it is neither.
        """
        if isinstance(tokenizers, cls):
            return tokenizers
        if isinstance(tokenizers, BaseTokenizer):
            return cls.joint(tokenizers)
        raise ArgumentTypeError(
            expected="a TokenizerPair, or one Tokenizer for both languages",
            received=describe(tokenizers),
        )

    @classmethod
    def train(
        cls,
        pairs: Iterable[Any],
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        joint: bool = True,
        character_coverage: float = 1.0,
        normalization: str = "nfc",
        user_defined_symbols: Sequence[str] = (),
        byte_fallback: bool = False,
        sample_pairs: int | None = None,
        allow_smaller: bool = False,
    ) -> TokenizerPair:
        """Trains the vocabularies of a set of sentence pairs.

        Args:
            pairs: Pairs of strings: any iterable, or a `tf.data.Dataset` of two string scalars.
            vocabulary_size: Number of pieces of the joint vocabulary, or of each of the two.
            kind: `"unigram"` or `"bpe"`.
            joint: Whether both languages share one vocabulary. Languages with a common alphabet
                gain from it: names and numbers are spelled alike on both sides.
            character_coverage: As in `Tokenizer.train`.
            normalization: As in `Tokenizer.train`, for both languages: what is read has to keep
                apart what is written differently.
            user_defined_symbols: As in `Tokenizer.train`, in each vocabulary.
            byte_fallback: As in `Tokenizer.train`.
            sample_pairs: The most pairs to train on: a random sample, the same one each time, where
                there are more. All pairs are in memory while SentencePiece counts them, 1 kB a
                pair. `None` for all.
            allow_smaller: As in `Tokenizer.train`.

        Returns:
            The pair.

        Raises:
            TypeError: If an element is not a pair of strings.
            ValueError: As for `Tokenizer.train`, or if `sample_pairs` is no int of at least 1.
        """
        require_bool(joint=joint, byte_fallback=byte_fallback, allow_smaller=allow_smaller)
        if sample_pairs is not None:
            require_int("A tokenizer is trained on pairs.", sample_pairs=sample_pairs)
        sides = sample(string_pairs(pairs), sample_pairs)
        options: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            "kind": kind,
            "character_coverage": character_coverage,
            "normalization": normalization,
            "user_defined_symbols": user_defined_symbols,
            "byte_fallback": byte_fallback,
            "allow_smaller": allow_smaller,
        }
        if joint:
            return cls.joint(Tokenizer.train([text for pair in sides for text in pair], **options))
        return cls(
            Tokenizer.train([source for source, _ in sides], **options),
            Tokenizer.train([target for _, target in sides], **options),
        )

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, verify: bool = True) -> TokenizerPair:
        """Reads a pair that `save` wrote.

        Args:
            directory: The folder.
            verify: Whether files are compared with their digests, which an export has beside them.

        Returns:
            The pair.

        Raises:
            FileNotFoundError: If the folder holds no pair.
            ValueError: If a file in it is damaged.
        """
        require_bool(verify=verify)
        directory = to_path(directory)
        if verify:
            digests = Manifest(directory, IN_EXPORTS)
            for name in FILES:
                digests.check(directory / name)
        text_format = _load_format(directory / _FORMAT_FILE)
        if (directory / "tokenizer.model").is_file():
            joint = load_tokenizer(directory / "tokenizer.model")
            return cls(joint, joint, text_format)
        paths = [directory / f"{side}.model" for side in ("source", "target")]
        if not all(path.is_file() for path in paths):
            raise FileNotFoundError(
                f"There are no tokenizers in '{directory}'. Expected 'tokenizer.model' (joint), or "
                "'source.model' and 'target.model', as TokenizerPair.save writes them."
            )
        source, target = map(load_tokenizer, paths)
        return cls(source, target, text_format)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `tokenizer.model` if joint, else `source.model` and `target.model`.

        A text format that is not the default goes into `text_format.json`.

        Args:
            directory: The folder; made if missing. Files of the other form in it are removed.

        Returns:
            The folder.
        """
        directory = to_path(directory)
        files = (
            {"tokenizer.model": self.source}
            if self.is_joint
            else {"source.model": self.source, "target.model": self.target}
        )
        for name, tokenizer in files.items():
            tokenizer.save(directory / name)
        for name in set(_FILES) - files.keys():
            (directory / name).unlink(missing_ok=True)
        path = directory / _FORMAT_FILE
        if self.text_format == TextFormat():
            path.unlink(missing_ok=True)
        else:
            with atomic_file(path) as temporary:
                content = json.dumps(self.text_format.to_dict(), ensure_ascii=False, indent=2)
                temporary.write_text(content + "\n", encoding="utf-8")
        return directory

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same vocabulary."""
        return self.source == self.target

    def with_languages(self, source: str | None = None, target: str | None = None) -> TokenizerPair:
        """The same pair for one or both languages, where the text format names them.

        Args:
            source: The language of the sources.
            target: The language of the targets.

        Returns:
            The pair.

        Raises:
            ValueError: If the format has no place for a language, or the vocabulary has pieces of
                languages and none of this one.
        """
        changed = self.text_format.with_languages(source, target)
        for side, name in (("source", source), ("target", target)):
            known = self.languages(side)
            # Not any piece: "de" is one of words, too.
            if name is not None and known and name not in known:
                raise UserError(unknown_language(side, name, known))
        return replace(self, text_format=changed)

    def languages(self, side: str) -> list[str]:
        """The languages that the vocabulary has pieces for.

        Args:
            side: `"source"` or `"target"`: the language of sources, or that of targets.

        Returns:
            Their names; empty if the format has no piece for them, or says them in words.
        """
        return self._languages[side]

    @functools.cached_property
    def _languages(self) -> dict[str, list[str]]:
        """By side. All pieces are looked through, of which there may be hundreds of thousands."""
        written = self.text_format.target_languages
        return {
            side: language_names(
                self.text_format, self.target if side in written else self.source, side
            )
            for side in ("source", "target")
        }

    @functools.cached_property
    def bound_format(self) -> BoundFormat:
        """What stands around the tokens of a text, in ids.

        A `ValueError` says which language is missing, if one is.
        """
        return self.text_format.bind(self.source, self.target)


def _load_format(path: Path) -> TextFormat:
    if not path.is_file():
        return TextFormat()
    try:
        values = parse_json(read_text(path))
        if isinstance(values, dict):
            return TextFormat.from_dict(values)
        reason = f"expected an object of its fields, received {values!r:.80}"
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        reason = str(error)
    raise ValueError(f"Cannot load the text format '{path}': {reason}")
