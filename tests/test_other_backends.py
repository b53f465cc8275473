"""What users of Keras do, Add & Norm, LoRA, int8, floats, first values: on JAX and torch.

Each backend has a process of its own, since Keras chooses its backend when it is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
FILES = (
    "test_keras_habits.py",
    "layers/test_add_norm_calls.py",
    "layers/test_recurrent_attention.py",
    "layers/test_recurrent_caches.py",
    "runs/test_moving_average.py",
    "models/test_lora.py",
    "models/test_quantize.py",
    "decoding/test_changed_layers.py",
    "test_floatx.py",
    "models/test_first_values.py",
)


# What is refused is refused before anything computes; the two calls are those of one, which runs;
# unknown lengths and the graph engine are TensorFlow's.
ONCE = "refused or two_calls or unknown_lengths or TFGraphEngine"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_another_backend(backend):
    # `test_floatx.py` searches on JAX in a process of its own.
    files = [HERE / file for file in FILES if (backend, file) != ("jax", "test_floatx.py")]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"),
        # Their warnings are not ours: Keras on JAX, for one, reads variables as NumPy 1 wanted it.
        *("-o", "filterwarnings=default", "-m", "not slow", "-k", f"not ({ONCE})"),
        *map(str, files),
    ]
    done = subprocess.run(
        command,
        cwd=HERE.parent,
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
