"""Texts that are one token wherever they stand: those that were added to a vocabulary."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.text import meaningful_text
from keras_addnorm.data.long_words import LONGEST_WORD
from keras_addnorm.data.strings import describe
from keras_addnorm.data.symbol_tree import SymbolTree

# What an added token may leave out around it: Unicode's property White_Space, for Python and RE2.
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SPACES = f"[{_SPACES}]+"
WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if re.fullmatch(SPACES, c))
"""The characters of Unicode's property White_Space."""
_SPACES_SET = frozenset(WHITE_SPACE)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A text that is one token wherever it stands, also inside a word.

    A text is divided at its added tokens, the first one first and of those that begin at one place
    the longest. What stands between two of them is split as if it were a text of its own.

    Args:
        text: The text, which is the name of a piece as well.
        lstrip: Whether white space before it is left out. Otherwise it is kept: as what it is by
            byte-level tokenizers, as a piece U+2581 by those of SentencePiece.
        rstrip: Whether white space behind it is left out. Those of SentencePiece leave it out, too,
            since the next word begins with a mark of its own.
        normalized: Whether it is looked for in the text that SentencePiece's own table of
            characters has made, where the vocabulary has one; otherwise in the text as it is.

    Raises:
        TypeError: If the text is not a string, or a flag is not True or False.
        ValueError: If the text is empty, or has characters that no text has.

    Example:
        ```python
        from keras_addnorm.data import AddedToken, ByteTokenizer

        names = ("<extra_id_0>",)
        tokenizer = ByteTokenizer(last=names, added=tuple(map(AddedToken, names)))
        assert tokenizer.encode("a<extra_id_0>a") == [100, 259, 100]
        assert tokenizer.decode([100, 259, 100]) == "a<extra_id_0>a"
        ```
    """

    text: str
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ArgumentTypeError(
                expected="an added token as a string", received=describe(self.text)
            )
        for name in ("lstrip", "rstrip", "normalized"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(
                    expected=f"{name} of the added token {self.text!r} as True or False",
                    received=describe(getattr(self, name)),
                )
        is_long = len(self.text) > LONGEST_WORD
        if not self.text or is_long or meaningful_text(self.text) != self.text:
            raise ArgumentError(
                f"An added token is a text of 1 to {LONGEST_WORD} characters, without NUL and "
                "halves of surrogate pairs.",
                value=self.text,
            )

    @classmethod
    def of_list(cls, values: Iterable[Mapping[str, Any]]) -> tuple[AddedToken, ...]:
        """The tokens whose fields were read from a file."""
        return tuple(cls(**value) for value in values)


class Part(NamedTuple):
    """A part of a text.

    Attributes:
        text: What is split into pieces; an added token, if there is an id.
        token: The id of the added token.
        ends_with_space: Whether white space stands at its end that the token behind it keeps.
    """

    text: str
    token: int | None = None
    ends_with_space: bool = False


class Cutter:
    """Divides texts at added tokens.

    Args:
        tokens: The tokens, all different.
        ids: The id of each name.
        prepare: What is done to the text between tokens before those are looked for that are
            `normalized`; `None` for nothing.
        has_table: Whether that is a table of characters. Otherwise all tokens are looked for in
            texts as they are.

    Attributes:
        tokens: As given.
        ids: The ids of the tokens by their texts.
        raw: A pattern for RE2 of the tokens that are looked for in texts as they are; `None` if
            there are none.
        normalized: A pattern of the others.

    Raises:
        ValueError: If a token is another text after the table of characters, or there are too many.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Mapping[str, int],
        prepare: Callable[[str], str] | None,
        has_table: bool,
    ) -> None:
        self.tokens = tuple(tokens)
        self.ids = {token.text: ids[token.text] for token in tokens}
        self._prepare = prepare
        self._by_text = {token.text: token for token in tokens}
        later = [token.text for token in tokens if token.normalized and has_table]
        if prepare is not None:
            _require_unchanged(later, prepare)
        others = self.ids.keys() - set(later)
        self.raw, self.normalized = _pattern(others), _pattern(later)
        self._raw, self._normalized = SymbolTree(others), SymbolTree(later)

    def __call__(self, text: str) -> list[Part]:
        """Divides a text.

        Args:
            text: The text, which has no NUL.

        Returns:
            Its parts, in order. What is between tokens has been prepared.
        """
        parts = []
        for place, piece in enumerate(self._cut(text, self._raw)):
            if place % 2:
                parts.append(Part(piece, self.ids[piece]))
                continue
            prepared = piece if self._prepare is None else self._prepare(piece)
            parts += [
                Part(each, self.ids[each] if number % 2 else None)
                for number, each in enumerate(self._cut(prepared, self._normalized))
            ]
        return [
            part._replace(ends_with_space=self._keeps_space(parts, place))
            for place, part in enumerate(parts)
            if part.text
        ]

    def _cut(self, text: str, tree: SymbolTree) -> list[str]:
        """Text, token, text, ..., text; some texts may be empty."""
        pieces = tree.split(text)
        for place in range(1, len(pieces), 2):
            token = self._by_text[pieces[place]]
            if token.lstrip:
                pieces[place - 1] = pieces[place - 1].rstrip(WHITE_SPACE)
            if token.rstrip:
                pieces[place + 1] = pieces[place + 1].lstrip(WHITE_SPACE)
        return pieces

    def _keeps_space(self, parts: Sequence[Part], place: int) -> bool:
        """Whether a part ends with white space that the token behind it keeps."""
        part = parts[place]
        if part.token is not None or place + 1 == len(parts) or part.text[-1:] not in _SPACES_SET:
            return False
        # White space at the beginning of a text is left out.
        is_blank = not part.text.strip(WHITE_SPACE)
        return not self._by_text[parts[place + 1].text].lstrip and (place > 0 or not is_blank)


def require_added(tokens: Any, names: Iterable[str], silent: Iterable[str]) -> None:
    """Checks the added tokens of a vocabulary.

    Args:
        tokens: What was given.
        names: The names of the pieces.
        silent: The names of pieces that no text holds.

    Raises:
        TypeError: If these are no added tokens.
        ValueError: If one has no id, is there twice, or is a piece that no text holds.
    """
    if not isinstance(tokens, tuple | list) or not all(isinstance(t, AddedToken) for t in tokens):
        raise ArgumentTypeError(expected="a tuple of AddedToken", received=describe(tokens))
    texts = [token.text for token in tokens]
    missing = set(texts) - set(names)
    both = set(texts) & set(silent)
    if missing or both or len(set(texts)) < len(texts):
        twice = (text for text, count in Counter(texts).items() if count > 1)
        wrong = sorted(missing or both) or sorted(twice)
        raise ArgumentError(
            "Added tokens are different names of pieces that a text may hold: none that is a "
            "control, padding, the start, the end or unknown.",
            value=wrong,
        )


def _require_unchanged(texts: Iterable[str], prepare: Callable[[str], str]) -> None:
    """Refuses tokens for which other texts would be taken, such as any space for a line break."""
    changed = {
        text: prepare(text) for text in texts if prepare(text) != text or re.search(SPACES, text)
    }
    if changed:
        raise ArgumentError(
            "Added tokens that are looked for in normalised texts have to be normalised, and "
            "without white space.",
            remedy="Add them with normalized=False.",
            received=f"{', '.join(map(repr, changed))}, normalised "
            f"{', '.join(map(repr, changed.values()))}, which other texts become as well",
        )


def _pattern(texts: Iterable[str]) -> str | None:
    """A pattern of one of several texts in a group; `None` if there are none."""
    found = set(texts)
    try:
        return f"({_tree(found)})" if found else None
    except RecursionError as error:
        raise ValueError(
            "The added tokens cannot be looked for: too many of them begin in the same way. "
            f"Expected fewer, or shorter ones. Received: {type(error).__name__}, {error}."
        ) from error


def _tree(texts: Iterable[str]) -> str:
    """A pattern of one of several texts, the longest where several begin.

    Texts with a common beginning share it, so that thousands of them are looked for at once.
    """
    groups: dict[str, list[str]] = {}
    for text in sorted(texts):
        groups.setdefault(text[:1], []).append(text[1:])
    is_end = groups.pop("", None) is not None
    branches = []
    for first, rests in groups.items():
        # What all of them go on with needs no group of its own.
        common = _common_beginning(rests)
        inner = _tree(rest[len(common) :] for rest in rests)
        branches.append(_escaped(first + common) + inner)
    if not branches:
        return ""
    if len(branches) == 1 and not is_end:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("?" if is_end else "")


def _common_beginning(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    size = next((i for i, c in enumerate(first) if last[i : i + 1] != c), len(first))
    return first[:size]


def _escaped(text: str) -> str:
    # `re.escape` puts a backslash before a line break, which RE2 does not read.
    return "".join(f"\\{c}" if c.isascii() and not c.isalnum() and c > " " else c for c in text)
