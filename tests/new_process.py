"""Runs Python in a new process, on a backend of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Keras on JAX compiles each operation by itself: nothing is gained by fusing, nor by LLVM.
JAX_FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def environment_of(backend):
    """The variables of this process, and those of a backend that compiles fast."""
    flags = {"XLA_FLAGS": JAX_FLAGS} if backend == "jax" else {}
    return {**os.environ, "KERAS_BACKEND": backend, **flags}


def run_on(backend, *arguments, folders=(), **environment):
    """Return what Python prints; its folders of modules are the project's and `folders`."""
    paths = os.pathsep.join(str(folder) for folder in (ROOT, *folders))
    done = subprocess.run(
        [sys.executable, *(str(argument) for argument in arguments)],
        env={**environment_of(backend), "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{backend}: {done.stderr[-3000:]}"
    return done.stdout
