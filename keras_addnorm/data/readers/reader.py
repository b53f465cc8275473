"""What a reader of a format is: it finds two languages in a file, and gives its pairs."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair


@dataclass(frozen=True)
class Reader(abc.ABC):
    """Reads pairs of texts from files of one format, as a stream.

    Attributes:
        source_column: Name or number (from 1) of one language's column; by default it is found.
        target_column: That of the other language.
    """

    endings: ClassVar[tuple[str, ...]]
    """How names of such files end, without the ending of a compression."""

    starts: ClassVar[tuple[bytes, ...]] = ()
    """How the contents begin, for files whose names do not tell."""

    source_column: str = ""
    target_column: str = ""

    @abc.abstractmethod
    def languages(self, file: InputFile) -> tuple[str, ...]:
        """The languages that a file names; none if it does not name any.

        Args:
            file: The file.

        Returns:
            Their names as they stand in the file.
        """

    @abc.abstractmethod
    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """Finds two languages in a file.

        Args:
            file: The file.
            source: One language.
            target: The other.

        Returns:
            Where they stand.

        Raises:
            ValueError: If they are not in the file; the message names the file and what is in it.
        """

    @abc.abstractmethod
    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """Reads the pairs of a file.

        Args:
            file: The file.
            columns: Where the languages stand.

        Returns:
            The pairs one after the other, in the order of the file. A missing text is empty.

        Raises:
            ValueError: If the file is damaged; the message names the file and the line.
        """

    @property
    def chosen(self) -> tuple[str, str]:
        """The columns that the user has named."""
        return str(self.source_column), str(self.target_column)
