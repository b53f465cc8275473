"""The example of a scheme from outside: what `examples/own_scheme.py` says of it holds."""

import pathlib
import runpy

import keras
import numpy as np
import pytest

from keras_addnorm import schemes
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "own_scheme.py"
INPUTS = {"source": np.array([[4, 5, 2]]), "target": np.array([[1, 6, 7]])}


@pytest.fixture
def scheme(monkeypatch):
    """The example's class, in a table that forgets it afterwards."""
    monkeypatch.setattr(schemes._TABLE, "_classes", dict(schemes._TABLE._classes))
    return runpy.run_path(str(EXAMPLE))["ConcatenateAndProject"]()


def tiny_model(scheme):
    return Seq2SeqTransformer(
        Seq2SeqConfig(
            source_vocabulary_size=9,
            target_vocabulary_size=8,
            num_encoder_layers=1,
            num_decoder_layers=1,
            hidden_dim=6,
            intermediate_dim=5,
            num_heads=3,
            scheme=scheme,
            max_length=7,
        )
    )


def test_adding_is_a_case_of_it(scheme):
    model, added = tiny_model(scheme), tiny_model("pre_ln")
    kernels = [w for w in model.weights if "merge_projection" in w.path and len(w.shape) == 2]
    assert len(kernels) == 5
    for kernel in kernels:
        kernel.assign(np.concatenate([np.eye(6), np.eye(6)]))
    assert model.count_params() == added.count_params() + 5 * (2 * 6 * 6 + 6)
    others = [w for w in model.weights if "merge_projection" not in w.path]
    for mine, theirs in zip(others, added.weights, strict=True):
        mine.assign(theirs)
    np.testing.assert_allclose(model(INPUTS), added(INPUTS), rtol=1e-5, atol=1e-6)


def test_it_is_saved_and_decodes_from_the_cache(scheme, tmp_path):
    model = tiny_model(scheme)
    expected = keras.ops.convert_to_numpy(model(INPUTS))
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    assert reloaded.config.scheme == {"name": "concatenate_and_project"}
    np.testing.assert_array_equal(reloaded(INPUTS), expected)

    memory, mask = reloaded.encode(INPUTS["source"])
    cache = reloaded.initial_cache(memory, 1, 3)
    for index in range(3):
        token = INPUTS["target"][:, index]
        logits, cache = reloaded.decode_step(token, cache, index, mask)[:2]
        np.testing.assert_allclose(logits, expected[:, index], rtol=1e-5, atol=1e-5)
