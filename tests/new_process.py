"""Runs Python in a new process, on a backend of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_on(backend, *arguments, folders=(), **environment):
    """Return what Python prints; its folders of modules are the project's and `folders`."""
    paths = os.pathsep.join(str(folder) for folder in (ROOT, *folders))
    done = subprocess.run(
        [sys.executable, *(str(argument) for argument in arguments)],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{backend}: {done.stderr[-3000:]}"
    return done.stdout
