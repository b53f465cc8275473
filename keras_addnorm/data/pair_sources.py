"""Where the pairs of a split come from: two parallel files, or one file with both texts."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.unicode_text import printable
from keras_addnorm.data.readers import Columns, InputFile, RawPair, Reader


class PairSource(abc.ABC):
    """A stream of the pairs of a split, each with the line that it comes from."""

    split: str

    @abc.abstractmethod
    def check(self) -> None:
        """Refuses what cannot be read at all, before the first pair is read."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """What is read, for messages."""

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """The name of the file that lines are counted in."""

    @abc.abstractmethod
    def turned(self) -> PairSource:
        """The same pairs in the other direction."""

    @abc.abstractmethod
    def raw_pairs(self) -> Iterator[RawPair]:
        """Reads the pairs as they stand in the file."""

    @abc.abstractmethod
    def update(self, digest: Any) -> None:
        """Adds to a hash all that the pairs depend on."""

    @property
    def note(self) -> str:
        """What a user should know about how the file is read; mostly nothing."""
        return ""


@dataclass(frozen=True)
class PairFile(PairSource):
    """One file with both texts of each pair.

    Attributes:
        split: The name of the split.
        file: The file.
        reader: The reader of its format.
        columns: Where the two languages stand.
    """

    split: str
    file: InputFile
    reader: Reader
    columns: Columns

    def check(self) -> None:
        """Nothing: a damaged file is found when it is read."""

    @property
    def label(self) -> str:
        """The name of the file."""
        return self.file.name

    @property
    def place(self) -> str:
        """The name of the file."""
        return printable(self.file.name)

    @property
    def note(self) -> str:
        """How the columns were chosen, if the file does not say."""
        return self.columns.note

    def turned(self) -> PairFile:
        """The same file in the other direction."""
        return PairFile(self.split, self.file, self.reader, self.columns.turned())

    def raw_pairs(self) -> Iterator[RawPair]:
        """As the reader gives them."""
        return self.reader.pairs(self.file, self.columns)

    def update(self, digest: Any) -> None:
        """Adds the file and where its texts stand."""
        columns = (self.columns.source, self.columns.target, self.columns.has_header)
        kind = type(self.reader).__name__
        digest.update(f"\n{self.split} {self.file.name} {kind} {columns} ".encode())
        self.file.update(digest)
