"""Rows of plain values in a file, one a line, of which any portion can be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.runs.portions import TEXTS_IN_PORTION


def write_rows(path: Path, rows: Iterable[Any]) -> str:
    """Writes rows, and returns the digest of the file."""
    digest = hashlib.blake2b(digest_size=16)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=True).encode() + b"\n"
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


class Rows:
    """The rows of a file that `write_rows` wrote.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = to_file(path)
        self._places, self._count, place = [0], 0, 0
        with self._path.open("rb") as file:
            for line in file:
                self._count += 1
                place += len(line)
                if self._count % TEXTS_IN_PORTION == 0:
                    self._places.append(place)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Reads all rows."""
        with self._path.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def read(self, numbers: range) -> list[Any]:
        """Reads the rows of some numbers."""
        portion, skipped = divmod(numbers.start, TEXTS_IN_PORTION)
        with self._path.open("rb") as file:
            file.seek(self._places[portion])
            for _ in range(skipped):
                file.readline()
            return [json.loads(file.readline()) for _ in numbers]
