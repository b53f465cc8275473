"""Digests of files, compared when they are read: the manifest of a folder, that of a checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.argument_checks import to_file, to_path
from keras_addnorm.basics.atomic import atomic_file
from keras_addnorm.basics.errors import shown
from keras_addnorm.basics.locks import alone
from keras_addnorm.basics.text import parse_json

if TYPE_CHECKING:
    import h5py

NAME = "manifest.json"
IN_EXPORTS = "keras_addnorm_manifest.json"
"""Its name in folders that other programs read and write, too: a `manifest.json` may be theirs."""
TRAINING_GROUP = "keras_addnorm"
"""The group of a checkpoint that Keras does not read, and of which there is no mean."""

STATE_NAME = f"{TRAINING_GROUP}/training_state"
"""The data set of a checkpoint that says where the training is."""

DIGEST_ATTRIBUTE = "keras_addnorm_digest"
"""The attribute of a checkpoint that holds its digest."""

# A digest of everything, attributes included. Earlier ones have no mark: they are of the numbers.
_MARK = "2:"
MOST_AXES = 64
"""Of an array in a file, NumPy's limit: the product of very many sizes takes minutes."""

_DEEPEST = 100  # groups within one another; a model's layers have a tenth of that
_SWITCH = "--no-verify, in Python verify=False"


class DamagedFileError(ValueError):
    """A file is not what was written, cannot be read, or is missing; the message names it."""

    def __str__(self) -> str:
        return shown(super().__str__())


class Manifest:
    """The digests of a folder's files, in one JSON file, which has a digest of its own.

    A file that is not listed, or a folder without a manifest, was written by an earlier version or
    by other means, and counts as whole. Several processes may change a manifest: each waits for the
    others.

    Args:
        folder: The folder.
        place: Where the manifest stands in it.

    Attributes:
        folder: The folder.
        path: The manifest.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> manifest = Manifest(folder)
        >>> with manifest.rewriting(folder / "a.txt"):
        ...     _ = (folder / "a.txt").write_text("whole")
        >>> manifest.check(folder / "a.txt")
        >>> _ = (folder / "a.txt").write_text("whale")
        >>> try:
        ...     manifest.check(folder / "a.txt")
        ... except DamagedFileError as error:
        ...     print("a.txt' is damaged" in str(error))
        True
    """

    def __init__(self, folder: str | os.PathLike[str], place: str = NAME) -> None:
        self.folder = to_path(folder)
        self.path = self.folder / place

    def read(self) -> dict[str, str]:
        """Reads the digest of each listed file by its path; none without a manifest."""
        try:
            content = parse_json(to_file(self.path).read_bytes())
            files = content["files"]
            if content["digest"] != _digest_of_list(files):
                reason = "its own digest is another"
            elif not all(isinstance(digest, str) for digest in files.values()):
                reason = "what it lists of a file is no digest"
            elif outside := [name for name in files if not _is_inside(name)]:
                reason = f"it lists a file outside of its folder, {outside[0]!r}"
            else:
                return dict(files)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise DamagedFileError(
            f"The list of digests '{self.path}' is damaged ({reason}). Copy it again from where it "
            "is whole. Or delete it: the files beside it are then read as they are, unchecked."
        )

    def check(self, path: str | os.PathLike[str], remedy: str = "") -> None:
        """Compares a file, or all files of a folder, with the list.

        Args:
            path: The file or the folder; what is not listed counts as whole.
            remedy: What to do about it if it is damaged, in a sentence.

        Raises:
            DamagedFileError: If one is not what was written, or is missing.
        """
        path = to_path(path)
        while True:
            expected = self._listed(self.read(), path)
            wrong = self._first_difference(expected)
            # Another process may have replaced the file between the two looks.
            if wrong is None or self._listed(self.read(), path) == expected:
                break
        if wrong is not None:
            name, found = wrong
            what = (
                f"is missing, and '{self.path}' lists it"
                if found is None
                else f"is damaged: it is not what was written (its SHA-256 begins {found[:12]}, "
                f"'{self.path}' says {expected[name][:12]})"
            )
            remedy = remedy or "Copy it again from where it is whole."
            raise DamagedFileError(
                f"The file '{self.folder / name}' {what}. {remedy} To go on with what is there: "
                f"{_SWITCH}."
            )

    @contextlib.contextmanager
    def rewriting(self, *paths: str | os.PathLike[str]) -> Iterator[None]:
        """Lets files, or whole folders, be written in the block, and lists them after it.

        Meanwhile they are not listed, so that a process that is killed leaves no wrong digest.
        """
        before: dict[str, str] = {}
        for path in paths:
            before |= self._listed(self._read_or_begin(), path)
        if before:
            self.forget(*paths)
        try:
            yield
        except BaseException:
            # What was not replaced is listed as it was. A full disk may not even take the list.
            with contextlib.suppress(OSError):
                self._change(lambda files: files.update(self._unchanged(before)))
            raise
        self._change(lambda files: files.update(self._digests(paths)))

    def forget(self, *paths: str | os.PathLike[str]) -> None:
        """Takes files, or folders with all that is in them, off the list, before they go."""

        def leave_out(files: dict[str, str]) -> None:
            for path in paths:
                for name in self._listed(files, path):
                    del files[name]

        self._change(leave_out)

    def write(self, unlisted: Collection[str] = ()) -> None:
        """Writes the manifest of a folder that is being made: of all that is in it."""
        digests = self._digests([self.folder])
        self._write({n: digest for n, digest in digests.items() if Path(n).name not in unlisted})

    def _read_or_begin(self) -> dict[str, str]:
        """Reads the digests to change them: a damaged manifest is begun anew."""
        try:
            return self.read()
        except DamagedFileError:
            return {}

    def _change(self, change: Callable[[dict[str, str]], None]) -> None:
        """Changes the list; no other process does meanwhile."""
        if not self.folder.is_dir():
            return
        with alone(self.path):
            before = self._read_or_begin()
            files = dict(before)
            change(files)
            if files and files != before:
                self._write(files)
            elif not files:
                self.path.unlink(missing_ok=True)

    def _write(self, files: dict[str, str]) -> None:
        # A process that was killed while it had the lock.
        for left in self.path.parent.glob(f".*.{self.path.name}"):
            left.unlink(missing_ok=True)
        content = {"files": dict(sorted(files.items())), "digest": _digest_of_list(files)}
        with atomic_file(self.path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _name(self, path: str | os.PathLike[str]) -> str:
        return to_path(path).relative_to(self.folder).as_posix()

    def _listed(self, files: dict[str, str], path: str | os.PathLike[str]) -> dict[str, str]:
        """The part of a list that is about a file or a folder."""
        name = self._name(path)
        return {
            other: digest
            for other, digest in files.items()
            if name in (".", other) or other.startswith(f"{name}/")
        }

    def _first_difference(self, expected: dict[str, str]) -> tuple[str, str | None] | None:
        """The first file that differs, and its digest; None for that if it is missing."""
        # A list may name one file in any number of ways, as a/b, a/./b and so on.
        found: dict[str, str | None] = {}
        for name, digest in expected.items():
            place = _place(self.folder / name)
            if place not in found:
                found[place] = sha256(place)
            if found[place] != digest:
                return name, found[place]
        return None

    def _unchanged(self, before: dict[str, str]) -> dict[str, str]:
        return {
            name: digest for name, digest in before.items() if sha256(self.folder / name) == digest
        }

    def _digests(self, paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
        """The digests of files as they are, and of all visible files in folders."""
        found = {}
        for path in map(Path, paths):
            for file in sorted(path.rglob("[!.]*")) if path.is_dir() else [path]:
                digest = sha256(file)
                if digest is not None:
                    found[self._name(file)] = digest
        return found


def sha256(path: str | os.PathLike[str]) -> str | None:
    """Computes a file's SHA-256 as `sha256sum` prints it; `None` if there is no such file."""
    # A device or a pipe may have no end.
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _is_inside(name: str) -> bool:
    """Whether a path stays in the folder that it is relative to."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _place(path: Path) -> str:
    """The one name of a file, wherever links lead; that of what can be none stays."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)


def _digest_of_list(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def digest_of_files(folder: Path, names: Iterable[str]) -> str:
    """Return one digest, 32 hexadecimal digits, of those named files that a folder has."""
    digest = hashlib.blake2b(digest_size=16)
    for name in names:
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def digest_of_values(values: Any) -> str:
    """Return one digest, 32 hexadecimal digits, of plain values as JSON has them."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_weights_digest(file: h5py.File) -> None:
    """Writes the digest of an open checkpoint into it; nothing may be written to it thereafter."""
    file.attrs[DIGEST_ATTRIBUTE] = f"{_MARK}{_weights_digest(file, with_attributes=True)}"


def has_weights_digest(file: h5py.File) -> bool:
    """Returns whether a weight file carries a digest."""
    return DIGEST_ATTRIBUTE in file.attrs


def require_intact_weights(file: h5py.File) -> None:
    """Raises a `DamagedFileError` if an open weight file is not what its digest, if any, says."""
    is_checkpoint = STATE_NAME in file
    if not has_weights_digest(file):
        if is_checkpoint:  # Both are written, or none.
            raise DamagedFileError("its digest is gone")
        return
    written = str(file.attrs[DIGEST_ATTRIBUTE])
    if written.startswith(_MARK):
        found = f"{_MARK}{_weights_digest(file, with_attributes=True)}"
    elif is_checkpoint:
        found = _weights_digest(file, with_attributes=False)
    else:
        return  # A mean of checkpoints had the digest of one of them once.
    if found != written:
        raise DamagedFileError("its content has changed since it was written")


@contextlib.contextmanager
def open_weights(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Opens a weight file; whatever goes wrong in the block is a `DamagedFileError`.

    So is a file whose arrays are larger than itself, or lie in another file.
    """
    import h5py  # Like NumPy not at the top: the command's help needs neither.

    try:
        with h5py.File(to_file(path)) as file:
            _require_own_arrays(file)
            yield file
    except DamagedFileError:
        raise
    # HDF5 has errors of many kinds for a file without sense.
    except Exception as error:
        raise DamagedFileError(f"it cannot be read: {error}") from error


def _require_own_arrays(file: h5py.File) -> None:
    """Refuses links, and arrays that are not in the file as they are: they can have any size.

    Groups in one another, too: HDF5 looks for each from the outermost one on.
    """
    import h5py

    root = h5py.h5o.get_info(file["/"].id).addr
    total, size, seen, groups = 0, file.id.get_filesize(), {root}, [(file["/"], 0)]
    while groups:
        group, depth = groups.pop()
        if depth > _DEEPEST:
            raise DamagedFileError(f"it has groups within one another, more than {_DEEPEST}")
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise DamagedFileError(f"{name!r} in it is a link to another place")
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise DamagedFileError(f"{name!r} in it has another name, too")
            seen.add(address)
            if isinstance(item, h5py.Group):
                groups.append((item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                if item.is_virtual or item.external:
                    raise DamagedFileError(f"the numbers of {name!r} in it lie in another file")
                total += item.nbytes
    if total > size:
        raise DamagedFileError(f"its arrays would have {total:,} bytes, and it has {size:,}")


def _weights_digest(file: h5py.File, *, with_attributes: bool) -> str:
    import numpy as np

    digest = hashlib.blake2b(digest_size=16)

    def add_attributes(name: str, item: Any) -> None:
        for key in sorted(item.attrs.keys() - {DIGEST_ATTRIBUTE}):
            value = np.asarray(item.attrs[key])
            digest.update(f"{name} {key} {value.shape} {value.tolist()!r}\n".encode())

    def visit(name: str, item: Any) -> None:
        if with_attributes:
            add_attributes(name, item)
        if hasattr(item, "shape"):
            digest.update(f"{name} {item.shape} {item.dtype}\n".encode())
            digest.update(np.ascontiguousarray(item[()]).tobytes())

    if with_attributes:
        add_attributes("", file)
    file.visititems(visit)
    return digest.hexdigest()
