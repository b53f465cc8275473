"""What stands around the tokens of a text: languages, a task in words, an end token or none."""

from __future__ import annotations

import functools
import itertools
import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.suggestions import did_you_mean
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.piece_ids import is_filler
from keras_addnorm.data.strings import describe
from keras_addnorm.data.vocabulary import END_ID, PAD_ID, START_ID

END = "{end}"
# Of a vocabulary that `Tokenizer.train` made, with the default format; see `BoundFormat.ids`.
DEFAULT_IDS = (), (), (END_ID,), (), PAD_ID, START_ID, END_ID
_LANGUAGES = ("source", "target")
_PIECES = ("source_prefix", "source_suffix", "target_prefix")
# What a piece may be that names a language. None of them is made of the characters of a text.
_TYPES_OF_LANGUAGES = ("control", "unused", "user_defined")
_SHOWN = 5
# The bytes of all names of a piece with any languages, and those of an object; 500 languages of
# either side make fewer.
_MOST_BYTES, _BYTES_OF_NAME = 1 << 26, 64
_SOME_TEXTS = ("a", "A", "the", "The", "1")


@dataclass(frozen=True)
class TextFormat:
    """What stands around the tokens of a text.

    A source is `source_prefix`, the tokens of `text_prefix`, the tokens of the text,
    `source_suffix`; a target is the start, `target_prefix`, its tokens, the end. `{source}` and
    `{target}` in a piece stand for the languages, `{end}` for the end token.

    | | source | target |
    |---|---|---|
    | Marian, Pegasus, T5 | the default | the default |
    | T5, a task | `text_prefix="translate English to German: "` | |
    | NLLB, mBART-50 | `source_prefix=("{source}",)` | `target_prefix=("{target}",)` |
    | M2M-100 | `source_prefix=("__{source}__",)` | `target_prefix=("__{target}__",)` |
    | mBART | `source_suffix=("{end}", "{source}")` | |
    | BART | `source_prefix=("<s>",)` | `target_prefix=("<s>",)` |
    | OpenNMT | `source_suffix=()` | |
    | Marian, many languages | `leading_piece=(">>", "<<")`, `source_prefix=(">>{target}<<",)` | |

    Args:
        source_prefix: Pieces before a source.
        source_suffix: Pieces behind a source.
        target_prefix: Pieces that every target begins with. A search does not choose them.
        text_prefix: A text before a source.
        leading_piece: How a piece begins and ends that a source may begin with; it takes the place
            of `source_prefix`, whose languages may then be left out.
        is_prefix_free: Whether `target_prefix` adds nothing to the score of a translation.

    Raises:
        ValueError: If a placeholder is unknown, or stands where it means nothing, or a value is of
            another type.

    Example:
        ```python
        from keras_addnorm.data import TextFormat

        text_format = TextFormat(source_prefix=("{source}",), target_prefix=("{target}",))
        assert text_format.languages == ("source", "target")
        german = text_format.with_languages("eng_Latn", "deu_Latn")
        assert german.target_prefix == ("deu_Latn",) and german.languages == ()
        ```
    """

    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = (END,)
    target_prefix: tuple[str, ...] = ()
    text_prefix: str = ""
    leading_piece: tuple[str, str] | None = None
    is_prefix_free: bool = True

    def __post_init__(self) -> None:
        require_bool(is_prefix_free=self.is_prefix_free)
        for name in _PIECES:
            pieces = getattr(self, name)
            is_list = isinstance(pieces, Iterable) and not isinstance(pieces, str)
            pieces = tuple(pieces) if is_list else pieces  # An iterator is read once.
            if not is_list or not all(isinstance(piece, str) for piece in pieces):
                raise ArgumentError(
                    expected=f"{name} as a tuple of the names of pieces", received=describe(pieces)
                )
            object.__setattr__(self, name, pieces)
        if not isinstance(self.text_prefix, str):
            raise ArgumentError(
                expected="`text_prefix` as a string", received=describe(self.text_prefix)
            )
        self._check_leading_piece()
        known = {*_LANGUAGES, "end"}
        for template in self._templates():
            if not set(_placeholders(template)) <= known:
                raise ArgumentError(
                    "A text format knows the placeholders {source}, {target} and {end}.",
                    "no others",
                    value=template,
                )
        if END in (*self.target_prefix, *self.source_prefix, self.text_prefix):
            raise ArgumentError(
                "The end token stands behind a source, and behind every target.",
                "{end} in `source_suffix` only",
                value=self,
            )

    def _check_leading_piece(self) -> None:
        ends = self.leading_piece
        if ends is None:
            return
        if (
            not isinstance(ends, tuple | list)
            or len(ends) != 2
            or not all(isinstance(end, str) and end for end in ends)
        ):
            raise ArgumentError(
                expected='`leading_piece` as how a piece begins and how it ends, such as (">>", '
                '"<<")',
                received=describe(ends),
            )
        object.__setattr__(self, "leading_piece", tuple(ends))

    def _templates(self) -> tuple[str, ...]:
        return (
            *self.source_prefix,
            *self.source_suffix,
            *self.target_prefix,
            self.text_prefix,
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """Which of "source" and "target" have a place in the format."""
        return _languages_in(self._templates())

    @property
    def source_languages(self) -> tuple[str, ...]:
        """Which of them are needed to read a source that does not begin with a leading piece."""
        return _languages_in((*self.read_prefix, *self.source_suffix, self.text_prefix))

    @property
    def read_prefix(self) -> tuple[str, ...]:
        """The pieces before a source without a leading piece: none if their language is open."""
        is_open = self.leading_piece is not None and bool(_languages_in(self.source_prefix))
        return () if is_open else self.source_prefix

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Which of them are needed to write a target."""
        return _languages_in(self.target_prefix)

    def with_languages(self, source: str | None = None, target: str | None = None) -> TextFormat:
        """The same format with one or both languages in their places.

        Args:
            source: The language of the sources, as the pieces name it.
            target: The language of the targets.

        Returns:
            The format.
        """
        given = {
            language: name
            for language, name in zip(_LANGUAGES, (source, target), strict=True)
            if name is not None
        }
        for language, name in given.items():
            # With a placeholder in it, it would become another language, or the end.
            if not isinstance(name, str) or {"{", "}"} & {*name}:
                named: dict[str, Any] = {f"{language}_language": name}
                raise ArgumentError(
                    "This names no language.", "a string without braces, such as 'de'", **named
                )
        if unused := sorted(given.keys() - set(self.languages)):
            places = " and ".join(f"a {side} language" for side in self.languages)
            wrong: dict[str, Any] = {f"{unused[0]}_language": given[unused[0]]}
            raise ArgumentError(
                f"The text format has no place for a {unused[0]} language: it has none, or one "
                "that is chosen already.",
                places or "no language",
                **wrong,
            )
        filled = functools.partial(_filled, languages=given)
        return replace(
            self,
            source_prefix=tuple(map(filled, self.source_prefix)),
            source_suffix=tuple(map(filled, self.source_suffix)),
            target_prefix=tuple(map(filled, self.target_prefix)),
            text_prefix=filled(self.text_prefix),
        )

    def bind(self, source: BaseTokenizer, target: BaseTokenizer) -> BoundFormat:
        """The ids of the pieces, if all languages are known.

        Args:
            source: The tokenizer of the sources.
            target: The tokenizer of the targets.

        Returns:
            The format in ids.

        Raises:
            ValueError: If a language is missing, a piece is not in the vocabulary, or a text
                changes how the words before it are split.
        """
        read = (*self.read_prefix, *self.source_suffix, self.text_prefix)
        if missing := _languages_in((*read, *self.target_prefix)):
            raise self._missing(missing, source, target)
        return BoundFormat(
            source_prefix=self._ids(self.read_prefix, source),
            text_prefix=self._words(source),
            source_suffix=self._ids(self.source_suffix, source),
            target_prefix=self._ids(self.target_prefix, target),
            is_prefix_free=self.is_prefix_free,
            leading_piece=self.leading_piece,
            pad_id=target.pad_id,
            start_id=target.start_id,
            end_id=target.end_id,
            tokenizer=source if self.leading_piece else None,
        )

    def _missing(
        self, languages: Sequence[str], source: BaseTokenizer, target: BaseTokenizer
    ) -> ArgumentError:
        """The error for languages that are not chosen."""
        expected: list[str] = []
        for language in languages:
            tokenizer = target if language in self.target_languages else source
            names = language_names(self, tokenizer, language)
            one = f"one that the vocabulary names: {some_of(names)}" if names else "its name"
            if f"{{{language}}}" in self.text_prefix:
                one = f"its name as it stands in {self.text_prefix!r}, such as 'English'"
            # Of two languages that are named alike, the names are said once.
            said = one if not expected or one not in expected[-1] else "the other"
            expected.append(f"{said}, as `{language}_language`")
        return ArgumentError(
            f"The text format needs the {' and the '.join(languages)} language.",
            ", and ".join(expected),
            received="neither" if len(languages) > 1 else "none",
        )

    def _ids(self, pieces: Sequence[str], tokenizer: BaseTokenizer) -> tuple[int, ...]:
        found = []
        for piece in pieces:
            name = tokenizer.pieces[tokenizer.end_id].text if piece == END else piece
            if name not in tokenizer.ids_of_pieces:
                others = [name for name in _controls(tokenizer) if name[:1] != "<"]
                hint = f", such as {some_of(others)}" if others else ""
                raise UserError(
                    f"The vocabulary has no piece {name!r}, which the text format needs. If it "
                    f"names a language, expected one that the model knows{hint}."
                )
            found.append(tokenizer.ids_of_pieces[name])
        return tuple(found)

    def _words(self, tokenizer: BaseTokenizer) -> tuple[int, ...]:
        """The ids of `text_prefix`, which stand before those of any text."""
        if not self.text_prefix:
            return ()
        words = tokenizer.encode(self.text_prefix)
        texts = tokenizer.encode_batch(_SOME_TEXTS)
        together = tokenizer.encode_batch(self.text_prefix + text for text in _SOME_TEXTS)
        if [words + text for text in texts] != together:
            raise ArgumentError(
                "The words before a text are split alone, and this vocabulary splits them in "
                "another way before a text.",
                "a `text_prefix` with the same pieces in both cases, such as one of SentencePiece "
                'that ends with a space ("translate: ")',
                "Put the words into each text instead, and translate with splitting='none'.",
                text_prefix=self.text_prefix,
            )
        return tuple(words)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which are the arguments of an equal object."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextFormat:
        """The object whose `to_dict` was read from a file.

        Args:
            values: Its fields.

        Returns:
            The format.

        Raises:
            ValueError: If there is no such field.
        """
        known = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping):
            raise ArgumentError(
                "A text format is read from its fields.", "a dict of them", value=values
            )
        if unknown := sorted(values.keys() - known, key=str):
            raise ArgumentError(
                "A text format has no such field.",
                f"some of {sorted(known)}",
                value=unknown,
            )
        fields_of = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**fields_of)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class BoundFormat:
    """A text format as ids: what stands around the tokens of a text.

    Attributes:
        source_prefix: Before a source.
        text_prefix: Behind that, in any case.
        source_suffix: Behind a source.
        target_prefix: What a target begins with, behind the start.
        is_prefix_free: Whether that adds nothing to the score of a translation.
        leading_piece: How a piece begins and ends that a source may begin with.
        pad_id: The id of padding.
        start_id: The id that the decoder reads first.
        end_id: The id that ends a target.
        tokenizer: Finds leading pieces; `None` if there are none.
    """

    source_prefix: tuple[int, ...]
    text_prefix: tuple[int, ...]
    source_suffix: tuple[int, ...]
    target_prefix: tuple[int, ...]
    is_prefix_free: bool
    leading_piece: tuple[str, str] | None
    pad_id: int
    start_id: int
    end_id: int
    tokenizer: BaseTokenizer | None

    @property
    def ids(self) -> tuple[Any, ...]:
        """All that decides which ids stand around tokens."""
        return (
            self.source_prefix,
            self.text_prefix,
            self.source_suffix,
            self.target_prefix,
            self.pad_id,
            self.start_id,
            self.end_id,
        )

    @property
    def is_plain(self) -> bool:
        """Whether sources have nothing around them but the end token."""
        around = self.source_prefix, self.text_prefix, self.source_suffix
        return self.leading_piece is None and around == ((), (), (self.end_id,))

    @property
    def source_length(self) -> int:
        """Number of tokens around those of a source."""
        return len(self.source_prefix) + len(self.text_prefix) + len(self.source_suffix)

    @property
    def target_length(self) -> int:
        """Number of tokens around those of a target, without the start."""
        return len(self.target_prefix) + 1

    def longest_source(self, max_length: int) -> int:
        """The most tokens of a source that a model of `max_length` positions reads.

        Args:
            max_length: The number of positions.

        Returns:
            What the tokens around them leave.

        Raises:
            ValueError: If these leave nothing.
        """
        prefix = max(len(self.source_prefix), int(self.leading_piece is not None))
        around = prefix + len(self.text_prefix) + len(self.source_suffix)
        if around >= max_length:
            raise ArgumentError(
                f"The text format puts {around} tokens around a source.",
                "a model that reads more",
                received=f"one with max_length={max_length}",
            )
        return max_length - around

    def take_leading(self, text: str) -> tuple[tuple[int, ...], str]:
        """The ids before a source, and its text without a leading piece.

        Args:
            text: The source.

        Returns:
            The ids and the text.
        """
        prefix = self.source_prefix
        if self.leading_piece is not None and self.tokenizer is not None:
            opening, closing = self.leading_piece
            end = text.find(closing, len(opening)) if text.startswith(opening) else -1
            if end >= 0:
                end += len(closing)
                unknown = self.tokenizer.unknown_id
                prefix = (self.tokenizer.ids_of_pieces.get(text[:end], unknown),)
                text = text[end:]
        return prefix + self.text_prefix, text

    def encode_sources(self, texts: Sequence[str], tokenizer: BaseTokenizer) -> list[list[int]]:
        """The tokens of sources; with leading pieces, with what stands before them.

        Args:
            texts: The sources.
            tokenizer: The tokenizer of the sources.

        Returns:
            The ids of each text, for the format `without_leading_piece`.
        """
        if self.leading_piece is None:
            return tokenizer.encode_batch(texts)
        found = list(map(self.take_leading, texts))
        rows = tokenizer.encode_batch([text for _, text in found])
        return [
            [*prefix, *row] if row else [] for (prefix, _), row in zip(found, rows, strict=True)
        ]

    def without_leading_piece(self) -> BoundFormat:
        """What stands around the tokens that `encode_sources` gives."""
        if self.leading_piece is None:
            return self
        return replace(self, source_prefix=(), text_prefix=(), leading_piece=None, tokenizer=None)

    def source_row(self, tokens: Sequence[int], prefix: Sequence[int] | None = None) -> list[int]:
        """What the encoder reads of the tokens of a source."""
        before = (*self.source_prefix, *self.text_prefix) if prefix is None else prefix
        return [*before, *tokens, *self.source_suffix]


def language_names(text_format: TextFormat, tokenizer: BaseTokenizer, language: str) -> list[str]:
    """The languages that a vocabulary has pieces for.

    Args:
        text_format: The format, whose pieces say how a language is written.
        tokenizer: The tokenizer.
        language: "source" or "target".

    Returns:
        The languages, in the order of their ids; empty if no piece of the format is of that
        language, or one of words.
    """
    pieces = [*text_format.source_prefix, *text_format.source_suffix, *text_format.target_prefix]
    templates = [piece for piece in pieces if language in _placeholders(piece)]
    if not templates or language in _placeholders(text_format.text_prefix):
        return []
    before, after = templates[0].split(f"{{{language}}}", 1)
    added = {token.text for token in tokenizer.added}
    names = [
        name[len(before) : len(name) - len(after)]
        for name in _controls(tokenizer)
        if name.startswith(before) and name.endswith(after) and len(name) > len(before + after)
        # Any text may be an added token: one that looks like no language is none.
        if before + after or name not in added
    ]
    # What begins so is a piece of another kind, such as a mask.
    return [name for name in names if not name.startswith("<")]


def pieces_of_languages(
    pieces: Iterable[str], languages: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The names that pieces of a format have, whatever the languages are.

    Args:
        pieces: Pieces of the format.
        languages: The languages that there are, by "source" and "target".

    Yields:
        For each piece that names a language, its name with every one of them.

    Raises:
        ValueError: If one that names two languages would have too many names.
    """
    for piece in pieces:
        if sides := _languages_in((piece,)):
            count = math.prod(len(languages[side]) for side in sides)
            size = count * (len(piece) + _BYTES_OF_NAME)
            for side in sides:
                each = piece.count(f"{{{side}}}") * sum(map(len, languages[side]))
                size += count // max(1, len(languages[side])) * each
            if size > _MOST_BYTES:
                raise ArgumentError(
                    f"The piece {piece[:80]!r} of the text format would have too many names.",
                    f"languages of a vocabulary whose names have at most {_MOST_BYTES:,} bytes",
                    "Choose the languages: tokenizers.with_languages(...).",
                    received=f"{count:,} names of {size:,} bytes",
                )
            for names in itertools.product(*(languages[side] for side in sides)):
                yield _filled(piece, dict(zip(sides, names, strict=True)))


def unknown_language(language: str, name: str, known: Sequence[str]) -> str:
    """What an error says of a language that a vocabulary has no piece for.

    Args:
        language: "source" or "target".
        name: What was given.
        known: What there is.

    Returns:
        The text.
    """
    begins = [other for other in known if name and other.lower().startswith(name.lower())]
    hint = f" Did you mean {some_of(begins)}?" if begins else did_you_mean([name], known)
    return (
        f"The vocabulary has no piece {name!r} of a {language} language.{hint} Expected one that "
        f"the model knows, such as {some_of(known)}."
    )


def some_of(names: Sequence[str]) -> str:
    """The first names of a list, and how many there are."""
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} ({len(names)} in all)"


def _controls(tokenizer: BaseTokenizer) -> list[str]:
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id}
    return [
        piece.text
        for token, piece in enumerate(tokenizer.pieces)
        if token not in special and piece.type in _TYPES_OF_LANGUAGES and not is_filler(piece.text)
    ]


def _placeholders(template: str) -> list[str]:
    try:
        return [
            # Nothing fills in what is to be written in a way of its own, such as {source!r}.
            name if not (form or conversion) else template
            for _, name, form, conversion in string.Formatter().parse(template)
            if name is not None
        ]
    except ValueError:
        return [template]


def _languages_in(templates: Sequence[str]) -> tuple[str, ...]:
    there = {name for template in templates for name in _placeholders(template)}
    return tuple(language for language in _LANGUAGES if language in there)


def _filled(template: str, languages: Mapping[str, str]) -> str:
    for language, name in languages.items():
        template = template.replace(f"{{{language}}}", name)
    return template
