"""Prepares the process of a command before any work: allocator settings and quiet imports."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.text import parse_json

# With these the allocator keeps large tensors instead of returning them to the system after each
# step, which saves about a tenth of a training step. It reads them when a process starts.
_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
}
# JAX computes in threads of its own, whose arenas of 64 MiB return every larger tensor to the
# system. One arena for all threads keeps it, which saves a quarter of a training step of the tiny
# size. TensorFlow under XLA does not need it, and compiles more slowly with it.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def allocator_settings() -> dict[str, str]:
    """Returns the environment variables of glibc's allocator, for `KERAS_BACKEND`."""
    # Keras itself is not asked: if the process restarts, it would be imported twice.
    on_jax = os.environ.get("KERAS_BACKEND") == "jax"
    return {**_ALLOCATOR, **ONE_ARENA} if on_jax else _ALLOCATOR


def restart_with_allocator_settings() -> None:
    """Restarts this process with better allocator settings, unless it has some.

    `KERAS_ADDNORM_ALLOCATOR=default` leaves the allocator alone. So does a C library other than
    glibc, which would not know the settings.
    """
    wanted = os.environ.get("KERAS_ADDNORM_ALLOCATOR", "tuned") != "default"
    settings = allocator_settings()
    if not wanted or platform.libc_ver()[0] != "glibc" or settings.keys() & os.environ.keys():
        return
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **settings})


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pauses garbage collection, and exempts for good the objects that exist afterwards.

    Python would search everything imported so far again and again: a quarter of the time that
    importing Keras takes.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def prepare_for_training() -> None:
    """Prepares the process of a training, which may be one of several."""
    restart_with_allocator_settings()

    def start() -> None:
        # Before the first tensor: the processes have to know of each other by then.
        importlib.import_module("keras_addnorm.distribution").join_processes()
        _start_keras()

    try:
        with backend_as_user_error():
            _quietly(start)
    except ValueError as error:
        raise UserError(str(error)) from error


def prepare_for_keras() -> None:
    """Prepares the process of a command that computes with Keras."""
    restart_with_allocator_settings()
    with backend_as_user_error():
        import_keras_quietly()


def prepare_to_load() -> None:
    """Prepares the process of a command that loads weights and computes nothing with them."""
    # What it is done with goes back to the system, as the allocator does by default.
    with backend_as_user_error():
        import_keras_quietly()


def import_keras_quietly() -> None:
    """Imports Keras without TensorFlow's messages about its build and missing GPUs."""
    # TensorFlow looks for a GPU when the first tensor is made.
    _quietly(_start_keras)


def _start_keras() -> None:
    keras = importlib.import_module("keras")
    # What a run computes in is one of its settings, whatever `keras.json` says.
    keras.config.set_floatx("float32")
    keras.ops.zeros(())


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow alone, as quietly as `import_keras_quietly`."""
    _quietly(lambda: importlib.import_module("tensorflow").zeros(()))


@contextlib.contextmanager
def backend_as_user_error() -> Iterator[None]:
    """Says which backend of Keras is missing, and who asked for it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name, place = _chosen_backend()
        if (error.name or "").partition(".")[0] not in _MODULES.get(name, (name,)):
            raise
        raise UserError(
            f"Keras is to run on {name!r} (says {place}), which is not installed here: there is no "
            f"module {error.name!r}. Install it (pip install {name}), or choose another backend: "
            "KERAS_BACKEND=tensorflow."
        ) from error
    except ValueError as error:
        if "Unable to import backend" not in str(error):
            raise
        name, place = _chosen_backend()
        raise UserError(
            f"Keras has no backend {name!r} (says {place}). Expected one of "
            f"{', '.join(_MODULES)}, such as KERAS_BACKEND=tensorflow."
        ) from error


# The backends of Keras that layers run on, and the modules each of them is.
_MODULES = {
    "tensorflow": ("tensorflow",),
    "jax": ("jax", "jaxlib"),
    "torch": ("torch",),
}


def _chosen_backend() -> tuple[str, str]:
    """The backend that Keras is told to take, and where it is told; Keras itself did not import."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name, "KERAS_BACKEND"
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    path = Path(home, "keras.json")
    try:
        return parse_json(to_file(path).read_bytes())["backend"], str(path)
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow", "Keras"


# Log levels of TensorFlow that ask for what it says of its build.
_TALKATIVE = ("0", "1")


def _quietly(work: Callable[[], object]) -> None:
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") in _TALKATIVE:
        work()
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            work()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
