"""Files of word alignments in Pharaoh's format: a line a sentence pair, `0-0 1-2 2-1`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import ArgumentError

Links = np.ndarray
"""The links of a sentence pair, `(L, 2)` int32: positions in source and target, from 0."""

# Longer numbers are no positions in a sentence, and might not fit into int32.
_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})\Z")
# One for all empty lines, of which a file may have as many as bytes.
_NO_LINKS = np.zeros((0, 2), np.int32)


def checked_links(alignments: Any) -> list[Links]:
    """Returns the links of each sentence pair as arrays; what is none is refused."""
    if isinstance(alignments, str | bytes | Mapping) or not isinstance(alignments, Iterable):
        raise _no_links(alignments)
    return [_checked(links) for links in alignments]


def _checked(links: Any) -> Links:
    try:
        array = np.asarray(links)
        if not array.size:
            return np.zeros((0, 2), np.int32)
        is_fitting = array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu"
        # Positions before the first one are refused by who knows the sentences.
        if is_fitting and np.abs(array).max() < 2**31:
            return array.astype(np.int32)
    except (TypeError, ValueError):
        pass
    raise _no_links(links)


def _no_links(value: Any) -> ArgumentError:
    return ArgumentError(
        "Alignments are the links of each sentence pair.",
        "for each pair rows (source, target), positions from 0, such as [(0, 0), (1, 2)]",
        "read_pharaoh reads a file of them.",
        value=value,
    )


def parse_links(line: str) -> Links:
    """Reads the links of one line.

    Args:
        line: `source-target` for each link, positions from 0, between white space; an empty line
            for no link.

    Returns:
        The links, `(L, 2)`, in order and each once.

    Raises:
        ValueError: If a word of it is no link.

    Example:
        >>> parse_links("0-0 1-2").tolist()
        [[0, 0], [1, 2]]
    """
    if not isinstance(line, str):
        raise ArgumentError("Links are read from a line.", "a text", value=line)
    found = set()
    for word in line.split():
        match = _LINK.match(word)
        if match is None:
            raise ArgumentError(
                "A word alignment is not in Pharaoh's format.",
                "links such as 0-0 1-2, positions from 0 in source and target",
                value=word[:40],
            )
        found.add((int(match[1]), int(match[2])))
    return np.array(sorted(found), np.int32) if found else _NO_LINKS


def format_links(links: Any) -> str:
    """Writes the links of a sentence pair as one line, without its end.

    Args:
        links: `(L, 2)`: positions in source and target.

    Returns:
        The line, such as `0-0 1-2`.

    Raises:
        ValueError: If they are no links.
    """
    (links,) = checked_links([links])
    if (links < 0).any():
        raise _no_links(links)
    return " ".join(f"{source}-{target}" for source, target in links.tolist())


def read_pharaoh(path: str | os.PathLike[str]) -> list[Links]:
    """Reads word alignments, one line a sentence pair.

    Files of fast_align, eflomal and Marian have this format. Words are what stands between white
    space; `keras_addnorm.data.piece_links` says which pieces of a tokenizer they are.

    Args:
        path: The file.

    Returns:
        The links of each line, `(L, 2)`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not in the format; its number is named.

    Reference:
        Koehn, "Pharaoh: a Beam Search Decoder for Phrase-Based Statistical Machine Translation
        Models", 2004.
    """
    path, alignments = to_file(path), []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                # What is not ASCII is no link either, and is shown in the error.
                alignments.append(parse_links(line.decode("ascii", "backslashreplace")))
            except ArgumentError as error:
                error.problem = f"Line {number} of '{path}' is not in Pharaoh's format."
                raise
    return alignments


def write_pharaoh(path: str | os.PathLike[str], alignments: Iterable[Any]) -> None:
    """Writes word alignments, one line a sentence pair, whole or not at all.

    Args:
        path: The file.
        alignments: The links of each sentence pair, `(L, 2)`.

    Raises:
        ValueError: If they are no links.
    """
    alignments = checked_links(alignments)
    with atomic_file(path) as temporary, temporary.open("w", encoding="ascii") as file:
        file.writelines(format_links(links) + "\n" for links in alignments)
