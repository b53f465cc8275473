r"""How a text is split into segments that are translated one by one.

```python
from keras_addnorm.decoding import splitting

splitting.get("sentences")  # Sentences(language=None)
splitting.get({"name": "sentences", "language": "de"})
splitting.split("Dr. Cox waits. He is late!\n你好。再见。", "sentences")
# ['Dr. Cox waits. ', 'He is late!\n', '你好。', '再见。']
```
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from keras_addnorm.basics import Table
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.languages import require_language
from keras_addnorm.decoding.sentence_rules import (
    HAN,
    JOIN_RULES,
    LONGEST_CHARACTER,
    MARK,
    WHITE_SPACE,
    Rules,
    is_one_sentence,
    sentence_rules,
    substitute,
)


class Splitting(abc.ABC):
    """A way to split texts. A subclass is a frozen dataclass.

    It consists of substitutions, so that Python and an exported graph do the same.
    """

    @property
    @abc.abstractmethod
    def rules(self) -> Rules | None:
        """The substitutions that put `MARK` between two segments; `None` for none."""

    @property
    @abc.abstractmethod
    def keeps_what_fits(self) -> bool:
        """Whether a text that the model can read as a whole is one segment."""

    @property
    @abc.abstractmethod
    def cuts_off(self) -> bool:
        """Whether the end of what is longer than the model is left out, not divided further."""


@dataclasses.dataclass(frozen=True)
class _AtSentenceEnds(Splitting):
    """Splits by the rules of a language.

    Args:
        language: The language of the texts, such as `"de"`, whose abbreviations are then known;
            `None` for those that many languages share.
    """

    language: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.language, str | None):
            raise ArgumentError(
                "A language has a name.", "a str, such as 'de', or None", value=self.language
            )
        if self.language is not None:
            require_language("language", self.language)

    @property
    def rules(self) -> Rules:
        """The substitutions of the language."""
        return sentence_rules(self.language)

    @property
    def cuts_off(self) -> bool:
        """No."""
        return False


@dataclasses.dataclass(frozen=True)
class Sentences(_AtSentenceEnds):
    """Each sentence, and each line, is translated by itself.

    A sentence that the model cannot read as a whole is divided: behind the last comma or the like
    in the second half of what the model reads, else at the last space, else between two tokens.

    Args:
        language: The language of the texts, such as `"de"`, whose abbreviations are then known;
            `None` for those that many languages share.

    Example:
        >>> split("Am 3. Mai kam sie. Er blieb.", Sentences("de"))
        ['Am 3. Mai kam sie. ', 'Er blieb.']
    """

    @property
    def keeps_what_fits(self) -> bool:
        """No."""
        return False


@dataclasses.dataclass(frozen=True)
class LongTexts(_AtSentenceEnds):
    """Only a text that the model cannot read as a whole is split, as `Sentences` does.

    For models that were trained on paragraphs. A line break in a text that fits is a space.

    Args:
        language: As in `Sentences`.
    """

    @property
    def keeps_what_fits(self) -> bool:
        """Yes."""
        return True


@dataclasses.dataclass(frozen=True)
class NoSplitting(Splitting):
    """A text is one segment; what is longer than the model is cut off."""

    @property
    def rules(self) -> None:
        """None."""

    @property
    def keeps_what_fits(self) -> bool:
        """Yes."""
        return True

    @property
    def cuts_off(self) -> bool:
        """Yes."""
        return True


SplittingLike = str | dict[str, Any] | Splitting
"""What `get` makes a way of splitting of."""

_TABLE: Table[Splitting] = Table(
    "way of splitting texts",
    Splitting,  # type: ignore[type-abstract]
    {"sentences": Sentences, "long_texts": LongTexts, "none": NoSplitting},
    module="keras_addnorm.decoding.splitting",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize


def split(text: str, splitting: SplittingLike = "sentences") -> list[str]:
    """Split a text into segments, whatever a model can read.

    Args:
        text: The text.
        splitting: How to split.

    Returns:
        The segments, each with the white space that follows it: joined they are the text without
        the white space at its beginning. A blank text is one empty segment.

    Raises:
        TypeError: If the text is no string.
        ValueError: If there is no such way of splitting.

    Example:
        >>> split("Dr. Cox paid $3.50. He left!")
        ['Dr. Cox paid $3.50. ', 'He left!']
    """
    if not isinstance(text, str):
        raise ArgumentTypeError("A text is split.", "a str", value=text)
    rules = get(splitting).rules
    if rules is None:
        return [text]
    if is_one_sentence(text, rules):
        return [text.lstrip(WHITE_SPACE)]
    first, *others = substitute(text, rules.substitutions).split(MARK)
    return [first, *filter(None, others)]


# SentencePiece's mark for a space, and a space.
_SPACES = ("\u2581", " ")
# Behind one of these a sentence may be divided.
_CLAUSE_ENDS = frozenset(".!?…,;:–—、，；：。！？｡､،؛؟۔।॥")


@dataclasses.dataclass(frozen=True)
class Segments:
    """The segments of several texts.

    Args:
        rows: What the encoder reads of each: its tokens and the end token; nothing if it is blank.
        joints: What follows its translation, for `join`.
        first_rows: For each text the number of its first row, and at the end that of all rows.
    """

    rows: list[list[int]]
    joints: list[str]
    first_rows: list[int]


def make_segments(
    texts: Sequence[str], tokenizer: Any, splitting: SplittingLike, config: Any, around: Any = None
) -> Segments:
    """Split texts into segments that a model can read.

    Args:
        texts: The texts.
        tokenizer: The tokenizer of the source.
        splitting: How to split.
        config: The model's configuration.
        around: What stands around the tokens of a source: `source_row`, `take_leading` and
            `longest_source`, as of `keras_addnorm.data.text_format.BoundFormat`, or an
            `EndOnly`; `None` for the latter.

    Returns:
        The segments, in order; at least one of each text.

    Raises:
        ValueError: If the model reads no token beside the end token.
    """
    around = EndOnly(config.end_id) if around is None else around
    way = get(splitting)
    longest = around.longest_source(config.max_length)
    require_room(way, longest)
    prefixes, texts = zip(*map(around.take_leading, texts), strict=True) if texts else ((), ())
    pieces = [split(text, way) for text in texts]
    keeps_outer_space = getattr(tokenizer, "keeps_outer_space", False)
    if way.rules is not None and way.keeps_what_fits:
        whole = tokenizer.encode_batch(
            [text.strip(WHITE_SPACE) if keeps_outer_space else text for text in texts]
        )
        pieces = [
            [text.replace(MARK, "")] if len(tokens) <= longest else parts
            for text, tokens, parts in zip(texts, whole, pieces, strict=True)
        ]
    spelled = [piece for parts in pieces for piece in parts]
    if keeps_outer_space:
        spelled = [piece.strip(WHITE_SPACE) for piece in spelled]
    encoded = iter(tokenizer.encode_batch(spelled))
    rows: list[list[int]] = []
    joints: list[str] = []
    first_rows = [0]
    boundaries = None
    inside: frozenset[int] = getattr(tokenizer, "ids_inside_characters", frozenset())
    for prefix, parts in zip(prefixes, pieces, strict=True):
        for piece in parts:
            tokens = next(encoded)
            if way.cuts_off and len(tokens) > longest:
                tokens = tokens[: _end_of_character(tokens, 0, longest, inside)]
            start = 0
            if len(tokens) > longest:
                boundaries = boundaries or Boundaries.of(tokenizer)
                for end, joint in boundaries.divide(tokens, longest):
                    rows.append(around.source_row(tokens[start:end], prefix))
                    joints.append(joint)
                    start = end
            rows.append(around.source_row(tokens[start:], prefix) if tokens else [])
            joints.append(MARK + piece[len(piece.rstrip(WHITE_SPACE)) :])
        first_rows.append(len(rows))
    return Segments(rows, joints, first_rows)


def require_room(way: Splitting, longest: int) -> None:
    """Raise a `ValueError` if the model reads no tokens of a text that are to be divided."""
    if longest < 1 and not way.cuts_off:
        raise ArgumentError(
            "The model reads the end token and no other, so that no text can be divided for it.",
            "a config with `max_length` >= 2",
            max_length=longest + 1,
        )


def join(translations: Sequence[str], joints: Sequence[str]) -> str:
    """Join the translations of a text's segments."""
    parts = [part for both in zip(translations, joints, strict=True) for part in both]
    return substitute("".join(parts[:-1]), JOIN_RULES).strip(WHITE_SPACE)


@dataclasses.dataclass(frozen=True)
class EndOnly:
    """The text format of a tokenizer that has none: an end token behind each text.

    Args:
        end_id: The end token.
    """

    end_id: int
    target_prefix: tuple[int, ...] = ()
    is_prefix_free: bool = False

    def longest_source(self, max_length: int) -> int:
        """Return the most tokens that a model reads besides the end token."""
        return max_length - 1

    def take_leading(self, text: str) -> tuple[tuple[int, ...], str]:
        """Return what stands before a text, which is nothing, and the text."""
        return (), text

    def source_row(self, tokens: Sequence[int], prefix: Sequence[int]) -> list[int]:
        """Return what the encoder reads of the tokens of a text."""
        return [*prefix, *tokens, self.end_id]


@dataclasses.dataclass(frozen=True)
class Boundaries:
    """Where a sentence may be divided, by the ids of the two tokens there.

    Args:
        ends_clause: For each id, whether a token ends with a comma or the like.
        ends_word: For each id, whether a token ends with a space.
        starts_word: For each id, whether a token begins with one.
        starts_clause: For each id, whether a clause can begin with it: at a space, or with a
            character of a script that is written without spaces.
        inside_characters: The ids of pieces that begin inside of a character.
    """

    ends_clause: tuple[bool, ...]
    ends_word: tuple[bool, ...]
    starts_word: tuple[bool, ...]
    starts_clause: tuple[bool, ...]
    inside_characters: frozenset[int] = frozenset()

    @classmethod
    def of(cls, tokenizer: Any) -> Boundaries:
        """Return those of a tokenizer: by its `surfaces`, or by the `text` of its `pieces`."""
        texts = list(getattr(tokenizer, "surfaces", ()))
        texts = texts or [piece.text for piece in getattr(tokenizer, "pieces", ())]
        texts += [""] * (tokenizer.vocabulary_size - len(texts))
        return cls(
            tuple(text[-1:] in _CLAUSE_ENDS for text in texts),
            tuple(text.endswith(_SPACES) for text in texts),
            tuple(text.startswith(_SPACES) for text in texts),
            tuple(text.startswith(_SPACES) or HAN.match(text) is not None for text in texts),
            getattr(tokenizer, "ids_inside_characters", frozenset()),
        )

    def divide(self, tokens: Sequence[int], longest: int) -> Iterator[tuple[int, str]]:
        """Yield the end of each part but the last of a sentence that is too long, and its joint."""
        spaces, clauses = [], []
        for place, (left, right) in enumerate(itertools.pairwise(tokens), start=1):
            if self.ends_word[left] or self.starts_word[right]:
                spaces.append(place)
            if self.ends_clause[left] and self.starts_clause[right]:
                clauses.append(place)
        start = 0
        while len(tokens) - start > longest:
            end = start + longest
            clause, space = _last(clauses, end), _last(spaces, end)
            if clause - start >= (longest + 1) // 2:
                end = clause
            elif space > start:
                end = space
            else:
                end = _end_of_character(tokens, start, end, self.inside_characters)
            yield end, self._joint(tokens[end - 1], tokens[end])
            start = end

    def _joint(self, left: int, right: int) -> str:
        if self.ends_word[left] or self.starts_word[right]:
            return MARK + " "
        return MARK if self.ends_clause[left] and self.starts_clause[right] else ""


def _end_of_character(
    tokens: Sequence[int], start: int, end: int, inside_characters: frozenset[int]
) -> int:
    """Return where the last character before `end` ends; `end` if none does behind `start`."""
    found = end
    for _ in range(LONGEST_CHARACTER - 1):
        found -= tokens[found] in inside_characters
    return found if found > start else end


def _last(places: Sequence[int], end: int) -> int:
    """Return the last of rising places that is not after `end`, 0 if there is none."""
    index = bisect_right(places, end)
    return places[index - 1] if index else 0
