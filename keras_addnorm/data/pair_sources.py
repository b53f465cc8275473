"""Where the pairs of a split come from: what every origin offers, and one file with both texts."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from keras_addnorm.basics.printing import printable
from keras_addnorm.data.readers import Columns, InputFile, RawPair, Reader


class PairSource(abc.ABC):
    """A stream of the pairs of a split, each with the line that it comes from."""

    split: str
    numbers_every_pair: ClassVar[bool] = False

    @property
    def is_counted(self) -> bool:
        """Whether a data set of the pairs has a length, for which they are read when it is made."""
        return True

    """Whether parts of the split count the pairs that cannot be used as well."""

    def check(self) -> None:  # noqa: B027
        """Refuses what cannot be read at all, before the first pair is read."""

    @property
    def label(self) -> str:
        """What is read, for messages."""
        return self.split

    @property
    def place(self) -> str:
        """What lines are counted in: a file, or the split."""
        return self.split

    @abc.abstractmethod
    def raw_pairs(self) -> Iterator[RawPair]:
        """Reads the pairs as they stand in the file."""

    def fingerprint(self) -> str:
        """A digest of the pairs: other ones have another. By default all of them are read."""
        digest = hashlib.blake2b(digest_size=16)
        for raw in self.raw_pairs():
            digest.update(repr(raw).encode())
        return digest.hexdigest()

    @property
    def size(self) -> int | None:
        """The number of pairs, if it is known before they are read."""
        return None

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

    def fingerprint(self) -> str:
        """A digest of the file, and of how it is read."""
        return f"{self.file.digest()} {type(self.reader).__name__} {self.columns}"

    def raw_pairs(self) -> Iterator[RawPair]:
        """As the reader gives them."""
        return self.reader.pairs(self.file, self.columns)
