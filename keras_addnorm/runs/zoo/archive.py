"""The archive of a model: a zip file of plain files, which is the same for the same files.

Its files are stored as they are, not compressed: weights hardly become smaller, and what is
unpacked is never larger than the archive.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from keras_addnorm.basics.errors import UserError

# The earliest that the format has.
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20
_MOST_FILES = 1000


def write_archive(folder: Path, path: Path) -> None:
    """Writes all visible files of a folder.

    Args:
        folder: The folder.
        path: The archive to write.
    """
    files = sorted(file for file in folder.rglob("[!.]*") if file.is_file())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _NO_DATE)
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, file.read_bytes())


def unpack(file: IO[bytes], size: int, folder: Path, name: str) -> None:
    """Unpacks an archive that `write_archive` could have written, into an empty folder.

    Args:
        file: The archive, open.
        size: Its length in bytes.
        folder: Where the files go.
        name: What it is called in messages.

    Raises:
        UserError: If it is no such archive: a path leads out of the folder, a file is a link or
            compressed, or there is more in it than the archive is long.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _require_plain(entries, size)
            for entry in entries:
                path = folder.joinpath(*PurePosixPath(entry.filename).parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, path.open("xb") as unpacked:
                    while chunk := packed.read(_CHUNK):
                        unpacked.write(chunk)
    # A file where another one needs a folder; a method, or a password, that Python does not have.
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise _refusal(name, str(error)) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _refusal(name, "two files in it have the same place") from error


def _require_plain(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raises a `ValueError` for what `write_archive` does not write."""
    if len(entries) > _MOST_FILES:
        raise ValueError(f"it has {len(entries):,} files")
    for entry in entries:
        path, kind = PurePosixPath(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
        is_inside = not path.is_absolute() and path.parts and ".." not in path.parts
        if not is_inside or any(sign in entry.filename for sign in "\\:\0"):
            raise ValueError(f"the path {entry.filename!r} may lead out of the folder")
        if kind not in (0, stat.S_IFREG) or entry.is_dir():
            raise ValueError(f"{entry.filename!r} is no plain file")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{entry.filename!r} is compressed")
    total = sum(entry.file_size for entry in entries)
    if total > size:
        raise ValueError(f"its files would have {total:,} bytes, and it has {size:,}")


def _refusal(name: str, reason: str) -> UserError:
    return UserError(
        f"{name} is no archive of a model: {reason}. Expected a zip file as `keras-addnorm zoo "
        "make` writes it: plain files, stored. Nothing was kept."
    )
