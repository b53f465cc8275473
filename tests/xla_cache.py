"""XLA keeps the programs that it compiles: the next run of the tests compiles what has changed."""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import re

NUM_BYTES = 1 << 30  # of programs that are kept, a megabyte each


def flags(cache):
    """Returns a value for `TF_XLA_FLAGS` that keeps programs in pytest's cache."""
    folder = cache.mkdir(f"xla-{_of_this_machine()}")
    keep_newest(folder, NUM_BYTES)
    settings = {"directory": folder, "device_types": "CPU"}
    return " ".join(f"--tf_xla_persistent_cache_{name}={value}" for name, value in settings.items())


def keep_newest(folder, num_bytes):
    """Removes the oldest files of a folder that holds more than so many bytes."""
    with contextlib.suppress(FileNotFoundError):  # another pytest writes or removes some
        for file in sorted(folder.iterdir(), key=lambda file: -file.stat().st_mtime):
            num_bytes -= file.stat().st_size
            if num_bytes < 0:
                file.unlink()


def _of_this_machine():
    """A name for the compiler, its flags and the processor: the file of a program tells none."""
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    features = re.findall(r"^(?:flags|Features)\s.*", cpu, re.M)[:1]  # of the first core
    parts = [importlib.metadata.version("tensorflow"), os.environ.get("XLA_FLAGS", ""), *features]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
