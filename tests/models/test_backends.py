"""The same weights give the same numbers on TensorFlow, JAX and torch, and each of them trains.

Each backend has a process of its own, since Keras chooses its backend when it is imported. All
read one file of weights, written by the first.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

BACKENDS = ("tensorflow", "jax", "torch")
HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]

SCRIPT = """
import sys
import keras
import numpy as np
sys.path.insert(0, sys.argv[1])
from models_reference import SOURCE, TARGET, array, batch, randomize, config
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

assert "tensorflow" not in sys.modules or keras.backend.backend() == "tensorflow"
keras.utils.set_random_seed(3)
weights, results = sys.argv[2:]
found = {}
for scheme in ("post_ln", "layer_scale"):
    model = Seq2SeqTransformer(config(scheme=scheme, num_encoder_layers=1, dropout=0.1))
    file = f"{weights}/{scheme}.weights.h5"
    if keras.backend.backend() == "tensorflow":
        randomize(model)
        model.save_weights(file)
    else:
        model.load_weights(file)
    found[f"{scheme} logits"] = array(model(batch(), training=False))
    for beams in (1, 3):
        ids, scores = model.generate(
            SOURCE, num_beams=beams, length_penalty=0.6, max_length=6, jit_compile=False
        )
        found[f"{scheme} ids {beams}"] = ids
        found[f"{scheme} scores {beams}"] = scores

from keras_addnorm.decoding import Beam
from keras_addnorm.decoding.steps import SpecialIds
even = lambda tokens, index, cache: (keras.ops.zeros((tokens.shape[0], 5)), cache)
ids, _ = Beam(3).search(even, [], keras.ops.zeros((2,), "bool"), 4, SpecialIds(0, 1, 4))
found["ties"] = array(ids)

model.compile(
    keras.optimizers.Adam(3e-3), MaskedSparseCategoricalCrossentropy(0.1), jit_compile=False
)
labels = np.roll(TARGET, -1, axis=1)
before = model.evaluate(batch(), labels, verbose=0)
model.fit(batch(), labels, epochs=8, verbose=0)
found["loss"] = np.array([before, model.evaluate(batch(), labels, verbose=0)])
np.savez(results, **found)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each backend found: logits, ids, scores, and the loss before and after training."""
    folder = tmp_path_factory.mktemp("backends")
    found = {}
    for backend in BACKENDS:
        path = folder / f"{backend}.npz"
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, HERE, folder, path],
            env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{backend}: {done.stderr[-3000:]}"
        found[backend] = dict(np.load(path))
    return found


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_logits_ids_and_scores_are_those_of_tensorflow(backend, results):
    expected = results["tensorflow"]
    assert results[backend].keys() == expected.keys()
    for name, value in expected.items():
        if "ids" in name:
            np.testing.assert_array_equal(results[backend][name], value, err_msg=name)
        elif "logits" in name or "scores" in name:
            np.testing.assert_allclose(
                results[backend][name], value, rtol=1e-5, atol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_go_to_the_smaller_id(backend, results):
    # Three words and the end are alike; a beam of three sees 2, 3 and the end, which is the best.
    assert results[backend]["ties"].tolist() == 2 * [[4, 0, 0, 0]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_lowers_the_loss(backend, results):
    before, after = results[backend]["loss"]
    assert np.isfinite(after)
    assert after < before - 0.05
    assert before == pytest.approx(results["tensorflow"]["loss"][0], rel=1e-5)
