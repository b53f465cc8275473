"""Finds the columns of a table that hold the two languages: by header, content or position."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.languages import code_of, fold, is_in, is_known, tidy
from keras_addnorm.data.readers.raw_pair import RawPair, SurplusRow

ROWS_LOOKED_AT = 20
"""Rows from the start of a file that tell which columns hold text."""

_ROLES = ({"source", "src"}, {"target", "tgt", "trg"})
_NUMBER = re.compile(r"[-+]?\d*(?:[.,]\d*)?")
MOST_COLUMNS = 1000
"""The most columns that are looked through for texts."""
_LONGEST_CODE = 3
_WORDS_OF_A_NAME = 3
_END_OF_SENTENCE = re.compile(r"[.?!…:;,]\s*$")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where the two texts of a row stand.

    Attributes:
        source: The name or the position (from 0) of one column.
        target: The other.
        has_header: Whether the first row has names in place of texts.
        note: How they were chosen, if nothing in the file says so; empty otherwise.
        width: How many columns a row has; 0 where that is not known, or columns have names.
        filled: How many of these most rows have, those at their end that are empty not counted.
    """

    source: str | int
    target: str | int
    has_header: bool = False
    note: str = ""
    width: int = 0
    filled: int = 0

    def turned(self) -> Columns:
        """The same columns in the other direction."""
        return dataclasses.replace(self, source=self.target, target=self.source)

    def pair(self, cells: Sequence[str] | Sequence[bytes], line: int) -> RawPair:
        """The texts of a row; of one with too few columns, a side is empty.

        A row with too many columns mostly has a separator inside a text, which moves the columns
        behind it. Empty ones at its end do not count.

        Args:
            cells: The columns of the row.
            line: The line that it stands on.

        Returns:
            The pair.
        """
        if 0 < self.width < len(cells) and _count_filled(cells) > self.filled:
            return SurplusRow.at(line)
        source, target = (
            cells[place] if place < len(cells) else ""
            for place in (int(self.source), int(self.target))
        )
        return RawPair(source, target, line)


def named_columns(
    names: Sequence[str], source: str, target: str, chosen: tuple[str, str]
) -> tuple[str | None, str | None]:
    """Finds the two columns among names.

    Args:
        names: The names; for a structure inside a row `translation.en`.
        source: One language.
        target: The other.
        chosen: The names that the user gives for the two; empty for those that are to be found.

    Returns:
        The two names; `None` for one that cannot be found, or is not the only one.
    """
    found: list[str | None] = []
    for wanted, role, given in zip((source, target), _ROLES, chosen, strict=True):
        if given:
            matches = [name for name in names if name == given]
        else:
            matches = (
                _whole_matches(names, wanted)
                or _matches_in_part(names, wanted)
                or [name for name in names if tidy(name) in role]
            )
        found.append(matches[0] if len(matches) == 1 else None)
    return (None, None) if found[0] == found[1] else (found[0], found[1])


def _whole_matches(names: Sequence[str], language: str) -> list[str]:
    """The names that are those of a language, those that say it most plainly."""
    last = {name: name.rpartition(".")[2] for name in names}
    exact = [name for name in names if tidy(last[name]) == tidy(language)]
    same = [name for name in names if is_in(last[name], language)]
    # `German` for `de-AT`
    plain = [
        name
        for name in names
        if fold(last[name]) == fold(language) and "-" not in tidy(code_of(last[name]))
    ]
    return exact or same or plain


def _matches_in_part(names: Sequence[str], language: str) -> list[str]:
    """The names with a part that stands for a language: `sentence_en`, `Text (German)`."""
    code = fold(language)
    return [
        name
        for name in names
        if any(
            part == code or (len(part) > _LONGEST_CODE and fold(part) == code)
            for part in re.split(r"[\W_]+", name.rpartition(".")[2].lower())
        )
    ]


def says_another(name: str, language: str, side: int) -> bool:
    """Whether the name of a column says that it is not that of a language."""
    last = name.rpartition(".")[2]
    is_other = is_known(last) and not _whole_matches([name], language)
    return is_other or tidy(last) in _ROLES[1 - side]


def languages_in(names: Sequence[str]) -> tuple[str, ...]:
    """The names that are codes or English names of languages."""
    found = tuple(filter(is_known, names))
    # `id` is the code of Indonesian, and the number of a row.
    return found if len(found) < 3 else tuple(name for name in found if name.lower() != "id")


def languages_of_header(first_rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The languages that the first row names; none if it does not name two."""
    found = languages_in(first_rows[0]) if first_rows else ()
    return found if len(found) > 1 else ()


def columns_of_rows(
    first_rows: Sequence[Sequence[str]],
    source: str,
    target: str,
    chosen: tuple[str, str],
    label: str,
) -> Columns:
    """Finds the columns of a table whose first row may be a header.

    Args:
        first_rows: Some rows from the start.
        source: One language.
        target: The other.
        chosen: Name or number (from 1) of the two columns as the user gives them; empty for those
            that are to be found.
        label: The file, for messages.

    Returns:
        The columns, by position.

    Raises:
        ValueError: If the table is empty, or lacks the columns that were asked for.
    """
    if not first_rows:
        raise ValueError(f"{label} is empty. Expected two columns or more, the texts of a pair.")
    found = _columns(first_rows, source, target, chosen, label)
    rows = [row for row in first_rows[found.has_header :] if any(map(str.strip, row))]
    filled = _most_frequent(map(_count_filled, rows))
    widths = set(map(len, rows))
    width = widths.pop() if len(widths) == 1 else filled
    if found.has_header:
        # Names without a name behind them: rows have them, too, or the header has a comma too many.
        named = _count_filled(first_rows[0])
        width = named if width <= named else len(first_rows[0])
    return dataclasses.replace(found, width=width, filled=min(width, filled) or width)


def _most_frequent(numbers: Iterable[int]) -> int:
    """The number that comes most often, the smallest of several; 0 if there is none."""
    counts = Counter(numbers)
    return max(counts, key=lambda number: (counts[number], -number), default=0)


def _count_filled(cells: Sequence[str] | Sequence[bytes]) -> int:
    """How many columns a row has without the empty ones at its end."""
    count = len(cells)
    while count and not cells[count - 1].strip():
        count -= 1
    return count


def _columns(
    first_rows: Sequence[Sequence[str]],
    source: str,
    target: str,
    chosen: tuple[str, str],
    label: str,
) -> Columns:
    first = [cell.strip() for cell in first_rows[0]]
    # A sentence with the word `en` in it names no language.
    names = named_columns(list(filter(_can_be_name, first)), source, target, ("", ""))
    if any(chosen):
        return _chosen_columns(first_rows, names, chosen, label)
    if names[0] is not None and names[1] is not None:
        return Columns(first.index(names[0]), first.index(names[1]), has_header=True)
    if len(first) < 2:
        raise ArgumentError(
            f"{label}, line 1: expected two columns or more, the two texts of a pair.",
            remedy="If the columns are divided in another way, say which format it is; if this is "
            "one of two files of parallel text, give the folder that holds both.",
            received=f"one column, {[first[0][:80]]}",
        )
    if (half := _half_named(first_rows, source, target, label)) is not None:
        return half
    if len(first) > 2 and "tatoeba.org" in first[2] and fold(target) == "en":
        # The sets for Anki at manythings.org have English first, then the language of their name.
        return Columns(1, 0)
    if len(first) > 2 and "tatoeba.org" in first[2] and fold(source) == "en":
        return Columns(0, 1)
    has_header = _is_header(first_rows)
    rows = first_rows[1:] if has_header else first_rows
    texts = list(_text_columns(rows, len(first))) or [0, 1]
    one, other = (texts + [place for place in range(len(first)) if place not in texts])[:2]
    note = (
        f"{label} does not say which column is which: column {one + 1} is taken for "
        f"{source!r}, column {other + 1} for {target!r}."
    )
    if has_header:
        names_of = f"{first[one][:40]!r} and {first[other][:40]!r}"
        note += f" Its first row is taken for their names, {names_of}."
    return Columns(one, other, has_header, note)


def _can_be_name(cell: str) -> bool:
    """Whether the cell of a first row can be a name in place of a text."""
    words = cell.split()
    if len(words) > _WORDS_OF_A_NAME or _END_OF_SENTENCE.search(cell):
        return False
    # In `no way` and `en vei` the codes are words.
    return len(words) < 2 or any(len(part) > _LONGEST_CODE and is_known(part) for part in words)


def _half_named(
    first_rows: Sequence[Sequence[str]], source: str, target: str, label: str
) -> Columns | None:
    """The columns where the first row names one of the languages: the other text is the other.

    Returns:
        The columns; `None` if the first row is none of names.

    Raises:
        ValueError: If it names other languages, or the other text is one of several.
    """
    first, rest = [cell.strip() for cell in first_rows[0]], first_rows[1:]
    asked = f"{source!r} and {target!r}"
    choose = "Name the two columns, by header or by number from 1."
    names = list(filter(_can_be_name, first))
    matches = [
        _whole_matches(names, wanted) or [cell for cell in names if tidy(cell) in role]
        for wanted, role in zip((source, target), _ROLES, strict=True)
    ]
    sides = [side for side in (0, 1) if len(matches[side]) == 1]
    if len(sides) != 1:
        languages = languages_of_header([first])
        are_names = any(code_of(name) != name for name in languages)
        if languages and (are_names or _has_sentences(rest, first.index(languages[0]))):
            raise ArgumentError(
                f"{label} names the languages {', '.join(map(repr, languages))} in its first row.",
                remedy=choose,
                received=str(asked),
            )
        return None
    side = sides[0]
    place = first.index(matches[side][0])
    is_code_or_role = code_of(first[place]) == first[place]
    if is_code_or_role and not _has_sentences(rest, place):
        return None  # A word, such as the Spanish `en`, in a list of words.
    wanted = (source, target)[1 - side]
    others = [
        column
        for column in _text_columns(rest, len(first))
        if column != place and not says_another(first[column], wanted, 1 - side)
    ]
    if len(others) != 1:
        raise ValueError(
            f"{label} names {first[place]!r} in its first row, and no column is certainly "
            f"{wanted!r}. Its first row is {[cell[:40] for cell in first[:8]]}. {choose}"
        )
    note = (
        f"{label} names {first[place]!r} in its first row, but not {wanted!r}: column "
        f"{others[0] + 1}, {first[others[0]][:40]!r}, is taken for it."
    )
    found = Columns(place, others[0], has_header=True, note=note)
    return found if side == 0 else found.turned()


def _has_sentences(rows: Sequence[Sequence[str]], place: int) -> bool:
    """Whether the texts of a column have several words, in the mean."""
    texts = [row[place] for row in rows if place < len(row)]
    return sum(len(text.split()) for text in texts) >= 1.5 * max(1, len(texts))


def _chosen_columns(
    first_rows: Sequence[Sequence[str]],
    names: tuple[str | None, str | None],
    chosen: tuple[str, str],
    label: str,
) -> Columns:
    """The columns that the user names; one that is left open is found by the header."""
    first = [cell.strip() for cell in first_rows[0]]
    places: list[int | None] = []
    for side, given in enumerate(chosen):
        wanted = given or names[side] or ""
        if wanted.isdecimal() and wanted not in first:
            places.append(int(wanted) - 1 if 0 < int(wanted) <= len(first) else None)
        else:
            places.append(first.index(wanted) if wanted in first else None)
    source, target = places
    if source is None or target is None or source == target:
        raise ArgumentError(
            f"{label} has no such columns.",
            f"two names of its first row, or two numbers from 1 to {len(first)}",
            f"Its first row is {[cell[:40] for cell in first[:8]]}.",
            received=f"{chosen[0] or 'none'!r} and {chosen[1] or 'none'!r}",
        )
    is_found = any(not given and name for given, name in zip(chosen, names, strict=True))
    named = is_found or None not in names or any(given in first for given in chosen)
    has_header = named or _is_header(first_rows)
    return Columns(source, target, has_header=has_header)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has a name above a column of numbers, beside two columns of texts."""
    names, rest = rows[0], rows[1:]
    texts = set(_text_columns(rest, len(names)))
    numbers = (column for column in range(len(names)) if column not in texts)
    return len(texts) > 1 and any(
        not _is_number(names[column])
        and any(row[column].strip() for row in rest if column < len(row))
        for column in numbers
    )


def require_few_columns(count: int, label: str) -> None:
    """Refuses a table that is so wide that it is none of texts.

    Args:
        count: The number of its columns.
        label: The file, for messages.

    Raises:
        ValueError: If there are too many.
    """
    if count > MOST_COLUMNS:
        raise ArgumentError(
            f"{label} has too many columns to look for texts in.",
            f"at most {MOST_COLUMNS:,}",
            "Keep those that hold the texts.",
            received=f"{count:,}",
        )


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell.strip()) is not None


def _text_columns(rows: Sequence[Sequence[str]], count: int) -> Iterator[int]:
    """The columns that hold more than numbers, which identify sentences."""
    for column in range(count):
        cells = [row[column] for row in rows if column < len(row)]
        if not all(map(_is_number, cells)):
            yield column
