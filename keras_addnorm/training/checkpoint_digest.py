"""The digest that a checkpoint carries of its own content, and what is wrong with a damaged one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

OURS = "keras_addnorm"
"""The group of a checkpoint that Keras does not read, and of which there is no mean."""

STATE_NAME = f"{OURS}/training_state"
"""The data set of a checkpoint that says where the training is."""

VARIABLES_NAME = f"{OURS}/variables"
"""The group of a checkpoint that has the values of all variables as they are in memory."""

ATTRIBUTE = "keras_addnorm_digest"
"""The attribute of a checkpoint that holds its digest."""

# A digest of everything, attributes included. Earlier ones have no mark: they are of the numbers.
_MARK = "2:"


class DamagedCheckpointError(ValueError):
    """A checkpoint is cut short, or its content is not what was written."""


def write_digest(file: h5py.File) -> None:
    """Writes the digest of an open checkpoint into it; nothing may be written to it thereafter."""
    file.attrs[ATTRIBUTE] = f"{_MARK}{_digest(file, with_attributes=True)}"


def has_digest(file: h5py.File) -> bool:
    """Returns whether a weight file carries a digest."""
    return ATTRIBUTE in file.attrs


def require_whole(file: h5py.File) -> None:
    """Checks an open weight file; one without a digest counts as whole.

    Args:
        file: The file.

    Raises:
        DamagedCheckpointError: If its content is not what was written.
    """
    is_checkpoint = STATE_NAME in file
    if not has_digest(file):
        if is_checkpoint:  # Both are written, or none.
            raise DamagedCheckpointError("its digest is gone")
        return
    written = str(file.attrs[ATTRIBUTE])
    if written.startswith(_MARK):
        found = f"{_MARK}{_digest(file, with_attributes=True)}"
    elif is_checkpoint:
        found = _digest(file, with_attributes=False)
    else:
        return  # A mean of checkpoints had the digest of one of them once.
    if found != written:
        raise DamagedCheckpointError("its content has changed since it was written")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Opens a weight file; whatever goes wrong in the block says that the file is damaged.

    Args:
        path: The file.

    Yields:
        The open file.

    Raises:
        DamagedCheckpointError: If it cannot be read.
    """
    try:
        with h5py.File(path) as file:
            yield file
    except DamagedCheckpointError:
        raise
    # HDF5 has errors of many kinds for a file without sense.
    except Exception as error:
        raise DamagedCheckpointError(f"it cannot be read: {error}") from error


def _digest(file: h5py.File, *, with_attributes: bool) -> str:
    digest = hashlib.blake2b(digest_size=16)

    def add_attributes(name: str, item: Any) -> None:
        for key in sorted(item.attrs.keys() - {ATTRIBUTE}):
            value = np.asarray(item.attrs[key])
            digest.update(f"{name} {key} {value.shape} {value.tolist()!r}\n".encode())

    def visit(name: str, item: Any) -> None:
        if with_attributes:
            add_attributes(name, item)
        if isinstance(item, h5py.Dataset):
            digest.update(f"{name} {item.shape} {item.dtype}\n".encode())
            digest.update(np.ascontiguousarray(item[()]).tobytes())

    if with_attributes:
        add_attributes("", file)
    file.visititems(visit)
    return digest.hexdigest()
