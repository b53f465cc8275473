"""Fetches a published model of the zoo; nothing is unpacked before its digest was compared."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from keras_addnorm import __version__
from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.zoo.archive import unpack
from keras_addnorm.runs.zoo.registry import PublishedFile, ZooModel

# Seconds that a server may say nothing, and the bytes a second that it sends at least.
_PATIENCE, _SLOWEST = 30, 10_000
_CHUNK = 1 << 16


def get(model: ZooModel, folder: str | Path) -> Path:
    """Downloads a model, compares it with its digest, and unpacks it.

    Args:
        model: The model.
        folder: The folder of the zoo, where it gets a folder of its name: a run directory.

    Returns:
        The folder of the model.

    Raises:
        UserError: If it is published nowhere, cannot be fetched, is not what was published, or the
            folder is there already. Nothing half-written is left.
    """
    final = to_path(folder) / model.name
    remedy = f"Make it here: keras-addnorm zoo make {model.name} {folder}"
    if model.file is None:
        raise ArgumentError(f"The model {model.name!r} is not published anywhere yet.", "", remedy)
    if os.path.lexists(final):
        raise UserError(f"{str(final)!r} exists already. Remove it to fetch the model again.")
    with as_user_errors():
        final.parent.mkdir(parents=True, exist_ok=True)
        # It has no name, so that nothing is left of it, however this process ends.
        with tempfile.TemporaryFile(dir=final.parent) as file:
            _download(model.file, file, remedy)
            with atomic_folder(final) as made:
                unpack(file, model.file.size, made, model.file.address)
                run = RunDirectory(made)
                run.check(made)
                run.read_config()
                run.weights()
    return final


def _download(published: PublishedFile, file: IO[bytes], remedy: str) -> None:
    """Writes what was published into a file, or raises a `UserError`."""
    digest, received = hashlib.sha256(), 0
    seconds = _PATIENCE + published.size / _SLOWEST
    end = time.monotonic() + seconds
    for chunk in _chunks(published.address, remedy):
        if time.monotonic() > end:
            raise UserError(
                f"{published.address} sent {received:,} of {published.size:,} bytes in "
                f"{seconds:.0f} seconds. Expected all of them. Nothing was kept. Try again. "
                f"{remedy}"
            )
        received += len(chunk)
        if received > published.size:
            break
        digest.update(chunk)
        file.write(chunk)
    if received != published.size:
        found = "is longer than" if received > published.size else f"ended after {received:,} of"
        reason = f"{found} {published.size:,} bytes"
    elif digest.hexdigest() != published.sha256:
        reason = f"has the SHA-256 {digest.hexdigest()[:12]}..., not {published.sha256[:12]}..."
    else:
        return
    raise UserError(
        f"{published.address} is not the file that was published: it {reason}. Nothing was kept. "
        f"Try again. {remedy}"
    )


def _chunks(address: str, remedy: str) -> Iterator[bytes]:
    """Reads what stands at an address, part by part."""
    headers = {"User-Agent": f"keras-addnorm/{__version__}"}
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            # What has come: a server may send drop by drop.
            while chunk := answer.read1(_CHUNK):
                yield chunk
    # Errors of the network are `OSError`s, and those of the protocol are not.
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # It holds the page that the server sent instead.
        raise UserError(
            f"{address} cannot be read ({type(error).__name__}: {error}). Expected the archive of "
            f"the model, and a network. Nothing was kept. {remedy}"
        ) from error
