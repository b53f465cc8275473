"""What users of Keras do, Add & Norm, LoRA, int8, floats, first values: on JAX and torch.

Each backend has a process of its own, since Keras chooses its backend when it is imported.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from new_process import environment_of

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
FILES = (
    "test_keras_habits.py",
    "layers/test_add_norm_calls.py",
    "runs/test_moving_average.py",
    "models/test_lora.py",
    "models/test_quantize.py",
)
# JAX compiles each operation of each shape, so that these take minutes there.
MORE_FILES = (
    "layers/test_recurrent_attention.py",
    "layers/test_recurrent_caches.py",
    "decoding/test_changed_layers.py",
    "models/test_first_values.py",
)


# What is refused is refused before anything computes; the two calls are those of one, which runs;
# unknown lengths and the graph engine are TensorFlow's.
ONCE = "refused or two_calls or unknown_lengths or TFGraphEngine"


@pytest.mark.parametrize(
    ("backend", "files"),
    [
        # `test_floatx.py` searches on JAX in a process of its own.
        ("torch", (*FILES, *MORE_FILES, "test_floatx.py")),
        ("jax", FILES),
        pytest.param("jax", MORE_FILES, marks=pytest.mark.release),
    ],
    ids=["torch", "jax", "more on jax"],
)
def test_on_another_backend(backend, files):
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"),
        # Their warnings are not ours: Keras on JAX, for one, reads variables as NumPy 1 wanted it.
        *("-o", "filterwarnings=default", "-m", "not slow and not release", "-k", f"not ({ONCE})"),
        *(str(HERE / file) for file in files),
    ]
    done = subprocess.run(
        command,
        cwd=HERE.parent,
        env=environment_of(backend),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
