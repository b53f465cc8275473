"""Which version of a model is served, and what became of the others."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import logging
import weakref
from pathlib import Path

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import WARM_UP, LoadedVersion
from keras_addnorm.serving.versions import existing_versions

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class VersionState:
    """What `GetModelStatus` says of a version.

    Args:
        version: Its number.
        state: `"LOADING"`, `"AVAILABLE"`, `"UNLOADING"` or `"END"`.
        error_code: `"OK"`, or why it was refused.
        error_message: The same in words.
    """

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


class Versions:
    """The versions in a folder, of which the highest good one is served.

    `refresh` takes a new version up: it is loaded and warmed beside the one that is served, and
    then takes its place in one step. Requests that have begun finish where they began. A version
    that cannot be loaded is refused until its files change.

    Args:
        directory: The folder of the versions.
        name: The model's name.
        warm_up: Whether a version answers its warm-up requests before it is served.
        timeout: Seconds after which a computation is given up; `None` for never.
        intra_op_threads: How many threads share one operation; 0 is one for each core.

    Attributes:
        name: The model's name.
        current: The version that is served; `None` before the first one.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        warm_up: bool = True,
        timeout: float | None = None,
        intra_op_threads: int = 0,
    ) -> None:
        self.name = name
        self.current: LoadedVersion | None = None
        # Resolved once: the folder itself may be a link, what is in it may not lead out of it.
        self._directory = directory.resolve()
        self._warm_up = warm_up
        self._timeout = timeout
        self._intra_op_threads = intra_op_threads
        self._states: dict[int, VersionState] = {}
        self._refused: dict[int, _Files] = {}
        self._is_tidy = True

    def refresh(self) -> None:
        """Looks at the folder. Blocks while it loads; call it in one thread at a time."""
        if not self._is_tidy:
            gc.collect()  # a graph refers to itself: nobody else would free it
            _give_memory_back()
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
            if self._take_up(path, version):
                return
            self._refused[version] = files

    def find(self, name: str, version: int | None = None) -> LoadedVersion:
        """Finds the version that a request asks for.

        Args:
            name: The model's name.
            version: The number; `None` for the one that is served.

        Returns:
            The version.

        Raises:
            ServingError: If it is not there: `NOT_FOUND`.
        """
        current = self.current
        if name == self.name and current is None:
            raise ServingError("UNAVAILABLE", f"Model '{name}' is still being loaded. Try again.")
        if name != self.name or current is None or version not in (None, current.number):
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError("NOT_FOUND", f"Servable not found for request: {asked}")
        return current

    def states(self, name: str, version: int | None = None) -> list[VersionState]:
        """Tells how the versions fare.

        Args:
            name: The model's name.
            version: The number of one of them; `None` for all.

        Returns:
            Their states, the highest version first.

        Raises:
            ServingError: If there is none: `NOT_FOUND`.
        """
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

    def _take_up(self, path: Path, version: int) -> bool:
        _log.info("Loading version %d of model '%s'.", version, self.name)
        self._states[version] = VersionState(version, "LOADING")
        try:
            new = self._load(path)
        except Exception as error:  # whatever it is, the version that is served goes on
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
        version = LoadedVersion(path, self._timeout, self._intra_op_threads)
        if self._warm_up and (path / WARM_UP).is_file():
            _log.info("Version %d answers its warm-up requests first.", version.number)
            count = version.warm_up(path / WARM_UP)
            _log.info("Version %d has answered %d warm-up requests.", version.number, count)
        return version

    def _refuse(self, version: int, error: Exception) -> None:
        self._is_tidy = False  # its graph may have been loaded before it failed
        _log.error("Refused version %d of model '%s'.", version, self.name, exc_info=error)
        code = error.code if isinstance(error, ServingError) else "INVALID_ARGUMENT"
        # People outside need not know where the files lie.
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


def _give_memory_back() -> None:
    """Gives freed memory to the system, as TensorFlow Serving does; the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


_Files = tuple[tuple[str, int, int], ...]


def _files(path: Path) -> _Files:
    """What shows whether somebody has worked on a version: name, size and time of its files."""
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
