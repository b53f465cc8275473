"""A file that texts are read from: plain or compressed, by itself or inside a zip archive."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import hashlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.printing import printable
from keras_addnorm.basics.text import BYTES_LOOKED_AT, how_to_convert, wide_encoding

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BYTES_AT_ONCE = 1 << 20
LONGEST_TEXT = 1 << 22
"""Bytes of the longest line, cell or text that is read as one; longer ones are left out."""
# How much a packed file may hold for each of its bytes, and in any case. Text is packed to a tenth,
# memories of short sentences to a thirtieth.
_LIMITS = {"bytes": (50, 1 << 24), "lines": (1, 1 << 20), "elements": (1, 1 << 20)}
_DAMAGED = (
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)


def _zstandard(file: BinaryIO) -> Any:
    (arrow,) = require_extra("data", "A .zst file", "pyarrow")
    stream = arrow.CompressedInputStream(arrow.PythonFile(file, mode="r"), "zstd")
    return io.BufferedReader(stream)  # Arrow's streams have no lines.


# The ONE table of compressions, by the ending of a file's name.
COMPRESSIONS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _zstandard,
}


@dataclass(frozen=True)
class InputFile:
    """A file, or a member of a zip archive.

    Attributes:
        path: The file on the disk.
        member: The name inside the archive; empty for a file by itself.
        stands_for: What messages call it, for a file that stands for something else, such as the
            standard input.

    Example:
        >>> from pathlib import Path
        >>> from keras_addnorm.data.readers.input_file import InputFile
        >>> InputFile(Path("corpus/train.tsv.gz")).plain_name
        'train.tsv'
    """

    path: Path
    member: str = ""
    stands_for: str = ""

    @functools.cached_property
    def name(self) -> str:
        """The name of the file, without folders."""
        return PurePosixPath(self.member).name if self.member else self.path.name

    @property
    def plain_name(self) -> str:
        """The name without the ending of a compression."""
        ending = self.compression
        return self.name.removesuffix(ending) if ending else self.name

    @functools.cached_property
    def compression(self) -> str:
        """The ending of the compression; empty for none."""
        ending = os.path.splitext(self.name)[1].lower()
        return ending if ending in COMPRESSIONS else ""

    @property
    def label(self) -> str:
        """The name for messages: the path, and the name inside an archive."""
        inside = f":{self.member}" if self.member else ""
        return self.stands_for or printable(f"{self.path}{inside}")

    @property
    def is_seekable(self) -> bool:
        """Whether a format that reads from the end can read the file in place."""
        return not self.member and not self.compression

    def digest(self) -> str:
        """A digest of the file as it is, compressed or not: another content has another.

        Returns:
            The digest; of a member of an archive what the archive says of its content.

        Raises:
            ValueError: If the archive is damaged.
        """
        if self.member:
            try:
                inside = _inside(self.path)[self.member]
            except zipfile.BadZipFile as error:
                raise self._damaged(error) from error
            return f"{inside.CRC:08x}-{inside.file_size}"
        with self.path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        return found.hexdigest()

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        """Opens the decompressed bytes, as many as there may be.

        Yields:
            A binary file.

        Raises:
            ValueError: If the file is damaged, or not what its name says; or if it is a pipe or a
                device.
            ImportError: If the compression needs a package that is not installed.
        """
        path = to_file(self.path)
        try:
            with contextlib.ExitStack() as stack:
                if self.member:
                    file: Any = stack.enter_context(self._opened_member(stack))
                else:
                    file = stack.enter_context(path.open("rb"))
                if self.compression:
                    file = stack.enter_context(COMPRESSIONS[self.compression](file))
                yield file
        except _DAMAGED as error:
            raise self._damaged(error) from error
        except OSError as error:
            # bz2 and zstd say so of their contents; an error of the disk has a number.
            if error.errno is None and self.compression:
                raise self._damaged(error) from error
            raise

    def _opened_member(self, stack: contextlib.ExitStack) -> Any:
        inside = _inside(self.path)[self.member]
        archive = stack.enter_context(_OpenedBefore(self.path))
        self.require_moderate(inside.file_size)
        try:
            return archive.open(inside)
        except NotImplementedError as error:
            raise self._damaged(error) from error

    def blocks(self) -> Iterator[bytes]:
        """Reads the decompressed bytes, a portion at a time.

        Yields:
            The next bytes.

        Raises:
            ValueError: If the file is damaged, or holds far more bytes than text of its packed size
                does.
        """
        size = 0
        with self.open() as file:
            while block := file.read(_BYTES_AT_ONCE):
                size += len(block)
                if not self.is_seekable:
                    self.require_moderate(size)
                yield block

    def require_moderate(self, count: int, unit: str = "bytes") -> None:
        """Refuses what has been packed to fill the memory or the time of whoever unpacks it.

        Args:
            count: How many there are.
            unit: Of what: bytes, lines, or elements of XML.

        Raises:
            ValueError: If they are far more than text of the file's size has.
        """
        times, always = _LIMITS[unit]
        most = max(always, times * self.path.stat().st_size)
        if count > most:
            raise ArgumentError(
                f"{self.label} holds more than text of its size does.",
                f"at most {most:,} {unit}, {times} for each byte on the disk",
                "Unpack it yourself if it is what you want to read.",
                received="more",
            )

    def lines(self) -> Iterator[bytes]:
        """Reads the lines as bytes without their line ends.

        Yields:
            One line after the other. Only a line feed ends a line: Unicode's other line separators
            occur inside sentences. A byte order mark is left out. A line of more than
            `LONGEST_TEXT` bytes is cut behind one byte more.

        Raises:
            ValueError: If the file is damaged, or UTF-16 or UTF-32.
        """
        self.refuse_wide_encoding()
        begun, mark, count = b"", _BYTE_ORDER_MARK, 0
        for block in self.blocks():
            *lines, begun = (begun + block).split(b"\n")
            count += len(lines)
            if not self.is_seekable:
                self.require_moderate(count, "lines")
            for line in lines:
                yield _whole_line(line).removeprefix(mark)
                mark = b""
            begun = begun[: LONGEST_TEXT + 1]
        if begun:
            yield _whole_line(begun).removeprefix(mark)

    def count_lines(self) -> int:
        """The number of lines that `lines` gives, and its errors."""
        self.refuse_wide_encoding()
        count, last = 0, b"\n"
        for block in self.blocks():
            count += block.count(b"\n")
            last = block[-1:]
        return count + (last != b"\n")

    def refuse_wide_encoding(self) -> None:
        """Refuses UTF-16 and UTF-32, with a byte order mark and without one.

        Raises:
            ValueError: If the file is damaged, or in such an encoding.
        """
        if encoding := wide_encoding(self.read_start(BYTES_LOOKED_AT)):
            told = "byte order mark says" if encoding[-1].isdecimal() else "zero bytes say"
            remedy = how_to_convert(encoding, "" if self.stands_for else self.label)
            raise ValueError(
                f"{self.label} is {encoding} text, as its {told}. Expected UTF-8. {remedy}"
            )

    def read_start(self, size: int = 1024) -> bytes:
        """The first bytes, decompressed, without a byte order mark."""
        with self.open() as file:
            start: bytes = file.read(size)
        return start.removeprefix(_BYTE_ORDER_MARK)

    def _damaged(self, error: Exception) -> ValueError:
        kind = "gzip" if self.compression == ".gz" else self.compression.removeprefix(".") or "zip"
        off = f", or take {self.compression} off the name if it is plain text"
        return ValueError(
            f"{self.label} cannot be decompressed ({error}). Its name says {kind}: fetch the file "
            f"again{off if self.compression else ''}."
        )


class _OpenedBefore(zipfile.ZipFile):
    """An archive whose directory is known: reading it for each member would take their square."""

    def _RealGetContents(self) -> None:  # noqa: N802
        """Reads nothing."""


def _inside(archive: Path) -> dict[str, zipfile.ZipInfo]:
    """What the directory of an archive says of each member."""
    there = archive.stat()
    return _directory(archive, there.st_size, there.st_mtime_ns)


@functools.lru_cache(4)
def _directory(archive: Path, size: int, changed: int) -> dict[str, zipfile.ZipInfo]:
    """The same, of an archive of that size that was changed at that time."""
    with zipfile.ZipFile(archive) as opened:
        return {one.filename: one for one in opened.infolist()}


def _whole_line(line: bytes) -> bytes:
    return line[: LONGEST_TEXT + 1].removesuffix(b"\r")


def members(archive: Path) -> list[InputFile]:
    """The files of a zip archive.

    Args:
        archive: The archive.

    Returns:
        Its files, in the order of their names.

    Raises:
        ValueError: If it is damaged, or needs a password.
    """
    try:
        with zipfile.ZipFile(to_file(archive)) as opened:
            inside = [one for one in opened.infolist() if not one.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{archive} is no zip archive, or a damaged one ({error}). Fetch it again."
        ) from error
    whole = InputFile(archive, "all of its files together")
    whole.require_moderate(sum(one.file_size for one in inside))
    if any(one.flag_bits & 1 for one in inside):
        raise ValueError(f"{archive} needs a password. Unpack it, and give the folder.")
    return [InputFile(archive, name) for name in sorted(one.filename for one in inside)]
