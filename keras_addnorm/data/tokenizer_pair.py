"""The tokenizers of the two sides of a translation model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.data.strings import describe, string_pairs
from keras_addnorm.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the two sides of a translation model.

    Attributes:
        source: The tokenizer of the language to translate from.
        target: The tokenizer of the language to translate into; equal to `source` if joint.

    Example:
        ```python
        from keras_addnorm.data import TokenizerPair

        pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")]
        tokenizers = TokenizerPair.train(pairs, vocabulary_size=22, joint=True)
        assert tokenizers.is_joint
        ```
    """

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            if not isinstance(getattr(self, side), Tokenizer):
                raise TypeError(
                    f"Expected a Tokenizer as {side}; received {describe(getattr(self, side))}."
                )

    @classmethod
    def joint(cls, tokenizer: Tokenizer) -> TokenizerPair:
        """Makes a pair that uses one vocabulary on both sides.

        Args:
            tokenizer: The shared vocabulary.

        Returns:
            The pair.
        """
        return cls(tokenizer, tokenizer)

    @classmethod
    def of(cls, tokenizers: Tokenizer | TokenizerPair) -> TokenizerPair:
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
        if isinstance(tokenizers, Tokenizer):
            return cls.joint(tokenizers)
        raise TypeError(
            "Expected a TokenizerPair, or one Tokenizer for both languages; received "
            f"{describe(tokenizers)}."
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
            allow_smaller: As in `Tokenizer.train`.

        Returns:
            The pair.

        Raises:
            TypeError: If an element is not a pair of strings.
            ValueError: As for `Tokenizer.train`.
        """
        sides = list(string_pairs(pairs))
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
            return cls.joint(Tokenizer.train((text for pair in sides for text in pair), **options))
        return cls(
            Tokenizer.train((source for source, _ in sides), **options),
            Tokenizer.train((target for _, target in sides), **options),
        )

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> TokenizerPair:
        """Reads a pair that `save` wrote.

        Args:
            directory: The folder.

        Returns:
            The pair.

        Raises:
            FileNotFoundError: If the folder holds no pair.
            ValueError: If a file in it is damaged.
        """
        directory = Path(directory)
        if (directory / "tokenizer.model").is_file():
            return cls.joint(Tokenizer.load(directory / "tokenizer.model"))
        paths = [directory / f"{side}.model" for side in ("source", "target")]
        if not all(path.is_file() for path in paths):
            raise FileNotFoundError(
                f"There are no tokenizers in '{directory}'. Expected 'tokenizer.model' (joint), or "
                "'source.model' and 'target.model', as TokenizerPair.save writes them."
            )
        return cls(*map(Tokenizer.load, paths))

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `tokenizer.model` if joint, else `source.model` and `target.model`.

        Args:
            directory: The folder; made if missing. Files of the other form in it are removed.

        Returns:
            The folder.
        """
        directory = Path(directory)
        files = (
            {"tokenizer.model": self.source}
            if self.is_joint
            else {"source.model": self.source, "target.model": self.target}
        )
        for name, tokenizer in files.items():
            tokenizer.save(directory / name)
        for name in {"tokenizer.model", "source.model", "target.model"} - files.keys():
            (directory / name).unlink(missing_ok=True)
        return directory

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same vocabulary."""
        return self.source == self.target
