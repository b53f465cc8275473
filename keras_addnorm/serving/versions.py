"""Folders of numbered versions, as TensorFlow Serving reads them: `<directory>/<version>/`.

The server polls the directory and serves the highest number. So a version is written under a name
that is no number, on the same file system, and renamed when it is whole: `basics.atomic_folder`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.integrity import Manifest, digest_of_values, sha256

_LARGEST = 2**63 - 1  # TensorFlow Serving holds it in 64 bits
MANIFEST = "assets.extra/manifest.json"
"""Where the digests of a version's files stand in its folder."""

# For people and for other servers, which may want them otherwise; nothing of ours reads them.
_UNLISTED = {"README.md", "models.config", "batching.config"}
# TensorFlow takes the path of variables for a pattern of names, in which these stand for others.
_OF_PATTERNS = re.compile(r"[*?\[\\]")


def version_number(name: str) -> int | None:
    """Return the version whose folder has this name, or `None`: "007" is not the folder of 7."""
    if not (name.isascii() and name.isdecimal()):
        return None
    number = int(name)
    return number if str(number) == name and number <= _LARGEST else None


def existing_versions(directory: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the versions in a directory, rising; none if there is no directory."""
    directory = to_path(directory)
    if not directory.is_dir():
        return []
    folders = (entry.name for entry in directory.iterdir() if entry.is_dir())
    return sorted(number for number in map(version_number, folders) if number is not None)


def choose_version(directory: str | os.PathLike[str], version: int | None) -> int:
    """Checks the place and the number of a new version, or finds the next one."""
    directory = to_path(directory)
    require_no_pattern(directory)
    name = directory.resolve().name
    if not name.isprintable() or '"' in name:
        raise ArgumentError(
            "The folder of an export names the model in requests and in settings of servers.",
            "a name without quotation and control characters",
            "Choose another folder.",
            received=repr(name),
        )
    if os.path.lexists(directory) and not directory.is_dir():
        raise NotADirectoryError(
            f"Cannot export into '{directory}': it is a file, or a link that leads nowhere. Pass a "
            "folder, such as 'saved_models/<name>'."
        )
    if version is None:
        version = max(existing_versions(directory), default=0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= _LARGEST:
        raise ArgumentError(
            "A version has a positive number of at most 2**63 - 1, or `version=None` for the next "
            "one.",
            version=version,
        )
    if os.path.lexists(directory / str(version)):
        raise _exists(directory / str(version))
    return version


def require_no_pattern(directory: Path) -> None:
    """Refuses a folder whose SavedModel TensorFlow would not find again."""
    if _OF_PATTERNS.search(str(directory)):
        raise ArgumentError(
            "TensorFlow takes the path of a SavedModel for a pattern of names, and does not find "
            "it.",
            "a path without *, ?, [ and \\",
            "Rename the folder, or choose another one.",
            received=repr(str(directory)),
        )


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(
        f"Version {path.name} exists already: '{path}'. A version is never overwritten, since a "
        "server may be using it. Name no version, for the next free number, or remove it first."
    )


def write_manifest(folder: Path) -> None:
    """Writes the digests of all files of a version that a reader needs."""
    Manifest(folder, MANIFEST).write(_UNLISTED)


def find_version(directory: str | os.PathLike[str]) -> Path:
    """Finds the folder of a version: the one that is given, or the highest number in it.

    Args:
        directory: The folder of one version, or of all of them.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: If there is no exported model.
        ValueError: If TensorFlow would not find it.
    """
    directory = to_path(directory)
    require_no_pattern(directory)
    if any((directory / name).is_file() for name in ("saved_model.pb", MANIFEST)):
        return directory
    versions = existing_versions(directory)
    if not versions:
        found = sorted(os.listdir(directory)) if directory.is_dir() else "no such folder"
        raise FileNotFoundError(
            f"There is no exported model in '{directory}'. Expected folders named by a number, "
            f"such as '{directory / '1'}', as an export has them; found {found!s:.300}."
        )
    return directory / str(versions[-1])


def digest_of_version(folder: Path) -> str:
    """Computes a digest of the files of a version that a reader needs."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = [
        [str(path.relative_to(folder)), sha256(path)]
        for path in files
        if path.name not in _UNLISTED
    ]
    return digest_of_values(digests)


def require_intact(folder: str | os.PathLike[str]) -> None:
    """Compares the files of a version with its manifest.

    Args:
        folder: The folder of the version; one without a manifest, of an earlier export, is whole.

    Raises:
        DamagedFileError: If a file is not what was written, or is missing.
    """
    remedy = "Copy the version again from where it is whole, or export it again."
    Manifest(folder, MANIFEST).check(folder, remedy)
