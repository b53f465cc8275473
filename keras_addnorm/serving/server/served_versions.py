"""Loads new versions of a model, and keeps the state of each version."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import logging
import math
import time
import weakref
from pathlib import Path

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import WARM_UP, LoadedVersion
from keras_addnorm.serving.server.settings import Settings
from keras_addnorm.serving.versions import (
    existing_versions,
    require_intact,
    require_no_pattern,
)

_log = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class VersionState:
    """The state of a version, as `GetModelStatus` returns it.

    Args:
        version: The number of the version.
        state: `"LOADING"`, `"AVAILABLE"`, `"UNLOADING"` or `"END"`.
        error_code: `"OK"`, or the status code of the error if the version was refused.
        error_message: The message of the error.
    """

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


class Versions:
    """The versions in a folder, of which the highest valid one is served.

    `refresh` loads a new version and warms it up while the old one is served, and then replaces the
    old one in one step. Requests in progress finish with the version that they started with. A
    version that cannot be loaded is refused until its files change.

    Args:
        settings: The server's settings.

    Attributes:
        name: The model's name.
        current: The served version; `None` before the first one.
    """

    def __init__(self, settings: Settings) -> None:
        self.name = settings.model_name
        self.current: LoadedVersion | None = None
        # Resolved once: the folder itself may be a link, but links in it may not lead out of it.
        self._directory = settings.directory.resolve()
        require_no_pattern(self._directory)
        self._settings = settings
        self._states: dict[int, VersionState] = {}
        self._refused: dict[int, _Files] = {}
        self._is_tidy = True

    def refresh(self) -> None:
        """Loads a new version, if there is one. Blocks meanwhile; call it in one thread only."""
        if not self._is_tidy:
            gc.collect()  # a graph refers to itself, so reference counting does not free it
            give_memory_back()
            self._is_tidy = all(state.state != "UNLOADING" for state in self._states.values())
        found = existing_versions(self._directory)
        self._forget_others(found)
        for version in reversed(found):
            if self.current is not None and self.current.number == version:
                return
            path = self._directory / str(version)
            files = _files(path)
            if self._refused.get(version) == files:
                continue
            if self._replace_current(path, version):
                return
            self._refused[version] = files

    def find(self, name: str, version: int | None = None) -> LoadedVersion:
        """Finds a version, or the served one, or raises `NOT_FOUND` or `UNAVAILABLE`."""
        current = self.current
        if name == self.name and current is None:
            raise ServingError("UNAVAILABLE", f"Model '{name}' is still being loaded. Try again.")
        if name != self.name or current is None or version not in (None, current.number):
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError(
                "NOT_FOUND",
                f"Servable not found for request: {asked}. This server has Latest({self.name}).",
            )
        return current

    def states(self, name: str, version: int | None = None) -> list[VersionState]:
        """Returns the states of one or all versions, the highest first, or `NOT_FOUND`."""
        states = dict(self._states) if name == self.name else {}
        if version is None:
            found = [states[number] for number in sorted(states, reverse=True)]
            missing = f"Could not find any versions of model {name}"
        else:
            found = [states[version]] if version in states else []
            missing = f"Could not find version {version} of model {name}"
        if not found:
            raise ServingError("NOT_FOUND", missing)
        return found

    def _replace_current(self, path: Path, version: int) -> bool:
        """Serves a new version in place of the current one, if it can be loaded."""
        _log.info("Loading version %d of model '%s'.", version, self.name)
        self._states[version] = VersionState(version, "LOADING")
        try:
            new = self._load(path)
        except Exception as error:  # any error: the current version stays
            self._refuse(version, error)
            return False
        old, self.current = self.current, new
        self._states[version] = VersionState(version, "AVAILABLE")
        _log.info("Serving version %d of model '%s'.", version, self.name)
        if old is not None:
            self._states[old.number] = VersionState(old.number, "UNLOADING")
            self._is_tidy = False
            weakref.finalize(old.session.graph, self._unloaded, old.number).atexit = False
        return True

    def _load(self, path: Path) -> LoadedVersion:
        _check_inside(path, self._directory)
        settings = self._settings
        if settings.verify:
            require_intact(path)
        version = LoadedVersion(path, settings.timeout, settings.intra_op_threads)
        if settings.warm_up and (path / WARM_UP).is_file():
            _log.info(
                "Version %d answers its warm-up requests first; --no-warm-up serves without.",
                version.number,
            )
            version.warm_up(path / WARM_UP, _Progress(), settings.max_request_bytes)
        return version

    def _refuse(self, version: int, error: Exception) -> None:
        self._is_tidy = False  # its graph may have been loaded before it failed
        _log.error("Refused version %d of model '%s'.", version, self.name, exc_info=error)
        code = error.code if isinstance(error, ServingError) else "INVALID_ARGUMENT"
        # Clients must not learn the paths of files.
        message = str(error).replace(str(self._directory), self.name).partition("\n")[0]
        self._states[version] = VersionState(version, "END", code, f"Refused: {message[:500]}")

    def _unloaded(self, version: int) -> None:
        state = self._states.get(version)
        if state is not None and state.state == "UNLOADING":
            self._states[version] = VersionState(version, "END")

    def _forget_others(self, found: list[int]) -> None:
        served = None if self.current is None else self.current.number
        for version, state in list(self._states.items()):
            if version not in found and version != served and state.state == "END":
                del self._states[version]
                self._refused.pop(version, None)


class _Progress:
    """Logs the first of a version's warm-up requests, the last, and some between."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, number: int, count: int, signature: str) -> None:
        if number < count and time.monotonic() - self._last < _PROGRESS_SECONDS:
            return
        self._last = time.monotonic()
        _log.info("Warm-up request %d of %d, to '%s' ...", number, count, signature)


def give_memory_back() -> None:
    """Returns freed memory to the system, as TensorFlow Serving does; the C library keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


_Files = tuple[tuple[str, int, int], ...]


def _files(path: Path) -> _Files:
    """Name, size and time of each file of a version, which show whether it has changed."""
    found = []
    for entry in sorted(path.rglob("*")):
        status = entry.lstat()
        found.append((str(entry), status.st_size, status.st_mtime_ns))
    return tuple(found)


def _check_inside(path: Path, directory: Path) -> None:
    for entry in (path, *path.rglob("*")):
        if not entry.resolve().is_relative_to(directory):
            raise ServingError(
                "PERMISSION_DENIED",
                f"'{entry.relative_to(directory)}' is a link that leads out of the model's "
                "folder. Put the file itself there.",
            )
