"""Where the bytes of a zip's member stand in the file, so that they can be mapped into memory."""

from __future__ import annotations

import struct
import zipfile
from typing import BinaryIO

_LOCAL_HEADER = struct.Struct("<26xHH")


def member_start(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the byte of the file at which a member's content begins.

    Args:
        file: The zip, opened.
        info: The member.

    Returns:
        The offset.

    Raises:
        zipfile.BadZipFile: If the member is compressed, or the file ends before it begins.
    """
    if info.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"its member '{info.filename}' is compressed")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise zipfile.BadZipFile(f"its member '{info.filename}' lies behind its end")
    name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
