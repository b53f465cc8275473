"""Where the bytes of a zip's member stand in the file, so that they can be mapped into memory."""

from __future__ import annotations

import dataclasses
import struct
import zipfile
from typing import BinaryIO

# Signature, six more numbers, lengths of the name and of what follows it.
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class MemberSpan:
    """Where a member's content stands.

    Attributes:
        start: The byte of the file that it begins at.
        end: The byte behind its last one.
    """

    start: int
    end: int


def member_place(file: BinaryIO, info: zipfile.ZipInfo) -> MemberSpan:
    """Return where a member's content stands in the file.

    Args:
        file: The zip, opened.
        info: The member.

    Returns:
        The place.

    Raises:
        zipfile.BadZipFile: If the member is compressed, or does not begin where the directory at
            the end of the zip says, as where bytes were lost or put in between.
    """
    if info.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"its member '{info.filename}' is compressed")
    if info.flag_bits & 1:
        raise zipfile.BadZipFile(f"its member '{info.filename}' is encrypted")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise zipfile.BadZipFile(f"its member '{info.filename}' lies behind its end")
    signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if signature != _SIGNATURE or file.read(name_length) != _name(info):
        raise zipfile.BadZipFile(
            f"its member '{info.filename}' does not begin where its directory says"
        )
    start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    return MemberSpan(start, start + info.file_size)


def _name(info: zipfile.ZipInfo) -> bytes:
    """Return a name as the file has it: in UTF-8 if a bit says so, else in the first code page."""
    is_utf8 = bool(info.flag_bits & 0x800)
    return info.orig_filename.encode("utf-8" if is_utf8 else "cp437")
