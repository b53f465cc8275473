"""Finds the columns of a table that hold the two languages: by header, content or position."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from keras_addnorm.basics.languages import fold, is_in, tidy

ROWS_LOOKED_AT = 20
"""Rows from the start of a file that tell which columns hold text."""

_ROLES = ({"source", "src"}, {"target", "tgt", "trg"})
_NUMBER = re.compile(r"\s*\d*\s*")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where the two texts of a row stand.

    Attributes:
        source: The name or the position (from 0) of one column.
        target: The other.
        has_header: Whether the first row has names in place of texts.
        note: How they were chosen, if nothing in the file says so; empty otherwise.
    """

    source: str | int
    target: str | int
    has_header: bool = False
    note: str = ""

    def turned(self) -> Columns:
        """The same columns in the other direction."""
        return dataclasses.replace(self, source=self.target, target=self.source)


def named_columns(
    names: Sequence[str], source: str, target: str, chosen: tuple[str, str]
) -> tuple[str, str] | None:
    """Finds the two columns among names.

    Args:
        names: The names; for a structure inside a row `translation.en`.
        source: One language.
        target: The other.
        chosen: The names that the user gives for the two; empty for those that are to be found.

    Returns:
        The two names; `None` if one of them cannot be found, or is not the only one.
    """
    found = []
    for wanted, role, given in zip((source, target), _ROLES, chosen, strict=True):
        if given:
            matches = [name for name in names if name == given]
        else:
            matches = _matches(names, wanted) or [n for n in names if tidy(n) in role]
        if len(matches) != 1:
            return None
        found.append(matches[0])
    return None if found[0] == found[1] else (found[0], found[1])


def _matches(names: Sequence[str], language: str) -> list[str]:
    """The names that stand for a language, those that say it most plainly."""
    last = {name: name.rpartition(".")[2] for name in names}
    exact = [name for name in names if tidy(last[name]) == tidy(language)]
    if exact:
        return exact
    same = [name for name in names if is_in(last[name], language)]
    if same:
        return same
    # `sentence_en`, `en_text`
    return [name for name in names if fold(language) in re.split(r"[\W_]+", last[name].lower())]


def languages_in(names: Sequence[str]) -> tuple[str, ...]:
    """The names that are codes or English names of languages."""
    found = tuple(name for name in names if re.fullmatch(r"[a-z]{2}", fold(name)))
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
    first = [cell.strip() for cell in first_rows[0]]
    names = named_columns(first, source, target, ("", ""))
    if any(chosen):
        return _chosen_columns(first_rows, names, chosen, label)
    if names is not None:
        return Columns(first.index(names[0]), first.index(names[1]), has_header=True)
    if len(first) < 2:
        raise ValueError(
            f"{label}, line 1: expected two columns or more, the two texts of a pair; received one "
            f"column, {first[:1]}. If the columns are divided in another way, say which format it "
            "is; if this is one of two files of parallel text, give the folder that holds both."
        )
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
        note += f" Its first row is taken for their names, {first[one]!r} and {first[other]!r}."
    return Columns(one, other, has_header, note)


def _chosen_columns(
    first_rows: Sequence[Sequence[str]],
    names: tuple[str, str] | None,
    chosen: tuple[str, str],
    label: str,
) -> Columns:
    """The columns that the user names; one that is left open is found by the header."""
    first = [cell.strip() for cell in first_rows[0]]
    places: list[int | None] = []
    for side, given in enumerate(chosen):
        wanted = given or (names[side] if names else "")
        if wanted.isdecimal() and wanted not in first:
            places.append(int(wanted) - 1 if 0 < int(wanted) <= len(first) else None)
        else:
            places.append(first.index(wanted) if wanted in first else None)
    source, target = places
    if source is None or target is None or source == target:
        raise ValueError(
            f"{label} has no such columns. Expected two names of its first row, or two numbers "
            f"from 1 to {len(first)}; received {chosen[0] or 'none'!r} and "
            f"{chosen[1] or 'none'!r}. Its first row is {list(first[:8])}."
        )
    named = names is not None or any(given in first for given in chosen)
    has_header = named or _is_header(first_rows)
    return Columns(source, target, has_header=has_header)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has a name above a column of numbers, beside two columns of texts."""
    names, rest = rows[0], rows[1:]
    texts = set(_text_columns(rest, len(names)))
    numbers = (column for column in range(len(names)) if column not in texts)
    return len(texts) > 1 and any(
        not _NUMBER.fullmatch(names[column])
        and any(row[column].strip() for row in rest if column < len(row))
        for column in numbers
    )


def _text_columns(rows: Sequence[Sequence[str]], count: int) -> Iterator[int]:
    """The columns that hold more than numbers, which identify sentences."""
    for column in range(count):
        cells = [row[column] for row in rows if column < len(row)]
        if not all(map(_NUMBER.fullmatch, cells)):
            yield column
