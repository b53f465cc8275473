"""What is done to a text before it is split into pieces.

In this order:

1. User-defined symbols are set aside: nothing below changes them.
2. Joiners are left out where they join nothing, and invisible characters that the vocabulary lacks.
3. The text gets the Unicode form of the rule.
4. Every run of white space becomes one space.

A rule that folds replaces a character that the vocabulary lacks by its compatible form, before
step 3, if the vocabulary can spell that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sentencepiece

from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, UserError
from keras_addnorm.basics.text import meaningful_text, normalized
from keras_addnorm.data.characters import (
    BRAILLE_BLANK,
    JOINERS,
    drop_idle_joiners,
    is_ignorable,
    is_invisible,
)
from keras_addnorm.data.charsmap_size import require_few_entries
from keras_addnorm.data.strings import describe
from keras_addnorm.data.symbol_tree import SymbolTree
from keras_addnorm.data.vocabulary import SPACE_MARK

REPLACEMENT = "\ufffd"
# All that counts as white space, and what does where a table has made spaces of the others.
_ALL_SPACES = frozenset(c for c in (*map(chr, range(0x3001)), SPACE_MARK) if c.isspace())
_PLAIN_SPACES = frozenset(" \t\n\v\f\r")
# Where a text has a user-defined symbol, it gets one of these private characters meanwhile.
_LAST_PRIVATE_CHARACTER = 0x10FFFD
_MOST_COMPARED = 1 << 26


@dataclass(frozen=True)
class NormalizationRule:
    """What a vocabulary wants done to the characters of a text.

    Attributes:
        name: Its name, as stored in the SentencePiece model.
        form: The Unicode form; None leaves the characters as they are.
        folds: Whether a character that the vocabulary lacks becomes its compatible form (NFKC), if
            the vocabulary can spell that.
        keeps_all_joiners: Whether joiners of the vocabulary stay where they join nothing.
        has_table: Whether SentencePiece's own table of characters says all that is done to them.
        keeps_space_marks: Whether U+2581, which stands for a space in pieces, is a letter where a
            text has it, as it is for SentencePiece; else it counts as a space.
    """

    name: str
    form: Literal["NFC", "NFKC"] | None
    folds: bool = False
    keeps_all_joiners: bool = False
    has_table: bool = False
    keeps_space_marks: bool = False


# The ONE table of rules that a vocabulary can be trained with.
RULES: Mapping[str, NormalizationRule] = {
    rule.name: rule
    for rule in (
        NormalizationRule("nfc", "NFC", folds=True),
        NormalizationRule("nfkc", "NFKC"),
        NormalizationRule("none", None),
    )
}

# What was done with every vocabulary before there were rules. Its model has SentencePiece's name
# for texts that are left as they are, since they were normalised before.
BEFORE_RULES = NormalizationRule("identity", "NFKC", keeps_all_joiners=True)
# A model of somebody else's with that rule, and one with SentencePiece's own table of characters.
_FOREIGN_IDENTITY = NormalizationRule(
    "identity", None, keeps_all_joiners=True, keeps_space_marks=True
)


def get_rule(name: str) -> NormalizationRule:
    """Finds a rule that a vocabulary can be trained with.

    Args:
        name: `"nfc"`, `"nfkc"` or `"none"`.

    Returns:
        The rule.

    Raises:
        ValueError: If there is none of that name.
    """
    if not isinstance(name, str) or name not in RULES:
        raise ArgumentError(
            "Unknown normalisation.", f"one of {', '.join(map(repr, RULES))}", value=name
        )
    return RULES[name]


def stored_rule(spec: Any, texts: Sequence[str]) -> NormalizationRule:
    """Tells which rule a SentencePiece model was trained with.

    Args:
        spec: The model's `normalizer_spec`.
        texts: The texts of its normal pieces.

    Returns:
        The rule. With the name "identity" it is that of the time before there were rules, if
        all pieces are NFKC: every vocabulary of that time is so.
    """
    if spec.precompiled_charsmap:
        return NormalizationRule(
            spec.name, None, keeps_all_joiners=True, has_table=True, keeps_space_marks=True
        )
    if spec.name in RULES:
        return RULES[spec.name]
    is_nfkc = all(unicodedata.is_normalized("NFKC", text) for text in texts)
    return BEFORE_RULES if is_nfkc else _FOREIGN_IDENTITY


class Charsmap:
    """SentencePiece's table of characters: at each place the longest entry is replaced.

    Args:
        spec: A model's `normalizer_spec` with a `precompiled_charsmap`.
    """

    def __init__(self, spec: Any) -> None:
        self._spec, self._table = spec.SerializeToString(), spec.precompiled_charsmap
        self._normalizer = sentencepiece.SentencePieceNormalizer(
            normalizer_spec=self._spec,
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=False,
        )

    def __call__(self, text: str) -> str:
        """Replaces the entries in a text."""
        normalized: str = self._normalizer.normalize(text)
        return normalized

    def entries(self) -> dict[str, str]:
        """What each entry becomes; a `ValueError` if there are more than any table has."""
        require_few_entries(self._table)
        return dict(self._normalizer.decompile())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Charsmap) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)


class Normalizer:
    """Brings texts into the form that a vocabulary expects.

    Args:
        rule: The Unicode form and what goes with it.
        has: Tells whether the vocabulary has a character.
        symbols: User-defined symbols, which stay as they are.
        charsmap: SentencePiece's table of characters, applied first.
        strips_space_marks: Whether U+2581 at the end of a text is left out where it is a letter
            elsewhere: SentencePiece does so, with the spaces there.

    Attributes:
        rule: The rule.
        charsmap: The table, or None.
        has: Tells whether the vocabulary has a character.
        marks: The private character that stands for each symbol, the longest symbols first.
        spaces: The characters that count as white space.
        outer: The characters that are left out at the end of a text; only white space is at its
            beginning.

    Raises:
        ValueError: If two symbols overlap, so that a text could be read in two ways.
    """

    def __init__(
        self,
        rule: NormalizationRule,
        has: Callable[[str], bool],
        symbols: Sequence[str] = (),
        charsmap: Charsmap | None = None,
        strips_space_marks: bool = True,
    ) -> None:
        _check_symbols(symbols)
        self.rule = rule
        self.charsmap = charsmap
        free = (c for c in map(chr, range(_LAST_PRIVATE_CHARACTER, 0, -1)) if not has(c))
        by_length = sorted(symbols, key=len, reverse=True)
        self.marks = dict(zip(by_length, free, strict=False))
        self.has = has
        self.spaces = _PLAIN_SPACES if rule.has_table else _ALL_SPACES
        if not rule.has_table and not has(BRAILLE_BLANK):
            self.spaces |= {BRAILLE_BLANK}
        if not rule.keeps_space_marks:
            self.spaces |= {SPACE_MARK}
        is_stripped = rule.keeps_space_marks and strips_space_marks
        self.outer = f" {SPACE_MARK}" if is_stripped else " "
        self._runs_of_spaces = re.compile(f"[{''.join(sorted(self.spaces))}]+")
        self._keeps_idle_joiners = rule.keeps_all_joiners or not any(map(has, JOINERS))
        self._replaced = _Replaced(self.replacement)
        self._unchanged = {" "}
        self._symbols = SymbolTree(self.marks)
        self._private = re.compile(f"[{''.join(self.marks.values())}]") if self.marks else None

    def __call__(self, text: str) -> str:
        """Normalises a text."""
        return self.finished(self.prepared(text))

    def prepared(self, text: str) -> str:
        """Does what comes first: sets symbols aside, and applies the table of characters.

        Args:
            text: Any text.

        Returns:
            The text, which `finished` goes on with.
        """
        if self._private is not None:
            text = self._private.sub(REPLACEMENT, text)
            parts = self._symbols.split(text)
            text = "".join(self.marks[each] if n % 2 else each for n, each in enumerate(parts))
        return text if self.charsmap is None else self.charsmap(utf8_text(text))

    def finished(self, text: str) -> str:
        """Does what comes behind that.

        Args:
            text: A text that was prepared.

        Returns:
            The text that is split.
        """
        if text.isascii() and text.isprintable():
            return " ".join(text.split())
        if self.charsmap is not None:
            text = self._runs_of_spaces.sub(" ", text)
            return text.lstrip(" ").rstrip(self.outer)
        if not self._keeps_idle_joiners and not JOINERS.isdisjoint(text):
            text = drop_idle_joiners(text)
        if not self._unchanged.issuperset(text):
            characters = set(text)
            text = text.translate(self._replaced)
            self._unchanged.update(c for c in characters if self._replaced[ord(c)] == c)
        if self.rule.form is not None:
            text = normalized(self.rule.form, text)
        if not self.rule.keeps_space_marks:
            text = text.replace(SPACE_MARK, " ")
        return " ".join(text.split()).rstrip(self.outer)

    def replacement(self, character: str) -> str:
        """What stands for a character before the text gets its Unicode form.

        Args:
            character: A character.

        Returns:
            The character itself; nothing, if it is to be left out; or its compatible form.
        """
        if character == "\0" or unicodedata.category(character) == "Cs":  # Means nothing.
            return ""
        if character == BRAILLE_BLANK and character in self.spaces:
            return " "
        if character in self.spaces or self.rule.has_table or self.has(character):
            return character
        if is_ignorable(character):
            return ""
        if self.rule.folds:
            folded = unicodedata.normalize("NFKC", character)
            if all(c in self.spaces or self.has(c) for c in folded):
                return folded
        return character

    @property
    def drops_idle_joiners(self) -> bool:
        """Whether joiners of the vocabulary are left out where they join nothing."""
        return not self._keeps_idle_joiners


def training_normalizer(rule: NormalizationRule, symbols: Sequence[str] = ()) -> Normalizer:
    """The normaliser of the texts that a vocabulary is trained on."""
    return Normalizer(rule, is_written, symbols)


def is_written(character: str) -> bool:
    """Tells whether a character is worth a place in a vocabulary, or bytes of one."""
    # Private characters of the last plane stand for user-defined symbols.
    return ord(character) < 0x100000 and (not is_invisible(character) or character in JOINERS)


def utf8_text(text: str) -> str:
    """The text without what means nothing: NULs, and halves of surrogate pairs.

    Args:
        text: Any text.

    Returns:
        A text that UTF-8 can hold.

    Raises:
        TypeError: If `text` is not a string.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(
            expected="a text of type str",
            remedy="Decode bytes with .decode('utf-8') first.",
            received=describe(text),
        )
    return meaningful_text(text)


class _Replaced(dict[int, str]):
    """What stands for each character, for `str.translate`; filled as characters are met."""

    def __init__(self, replacement: Callable[[str], str]) -> None:
        self._replacement = replacement

    def __missing__(self, code: int) -> str:
        found = self[code] = self._replacement(chr(code))
        return found


def _check_symbols(symbols: Sequence[str]) -> None:
    if len(set(symbols)) < len(symbols) or not all(symbols):
        raise ArgumentError(
            "User-defined symbols have to be different and not empty.", value=list(symbols)
        )
    if sum(len(symbol) ** 2 for symbol in symbols) > _MOST_COMPARED:
        raise ArgumentError(
            "User-defined symbols are too long: each beginning is compared with each end.",
            f"the squares of their lengths to be at most {_MOST_COMPARED:,} together",
            received=f"{len(symbols):,}, the longest of {max(map(len, symbols)):,} characters",
        )
    # By their ends, so that thousands of symbols are compared with few.
    beginnings: dict[str, str] = {}
    for symbol in symbols:
        beginnings |= {symbol[:size]: symbol for size in range(1, len(symbol))}
    for symbol in symbols:
        for start in range(1, len(symbol)):
            other = beginnings.get(symbol[start:])
            if other is not None and other != symbol and len(set(symbol + other)) > 1:
                raise UserError(
                    f"The user-defined symbols {symbol!r} and {other!r} overlap: where one ends "
                    "as the other begins, a text could be read in two ways. Choose others."
                )
