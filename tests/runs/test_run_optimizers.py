"""The optimisers that a run chooses among."""

import keras
import numpy as np
import pytest

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.checks_before_training import require_consistent
from keras_addnorm.runs.optimization import compile_model

RATE = 0.003


@pytest.fixture(scope="module")
def compiled():
    """A model with weights of every kind, untied and with LoRA's matrices, and its optimiser."""
    model = Seq2SeqTransformer(
        Seq2SeqConfig(
            source_vocabulary_size=11,
            target_vocabulary_size=13,
            num_encoder_layers=1,
            num_decoder_layers=1,
            hidden_dim=6,
            num_heads=2,
            intermediate_dim=10,
            max_length=7,
            scheme="layer_scale",
            tie_embeddings=False,
            positions="learned",
        )
    )
    config = RunConfig().replace(
        {
            "training.optimizer": "muon",
            "training.schedule": "constant",
            "training.peak_learning_rate": RATE,
        }
    )
    compile_model(model, config.training, steps_per_epoch=3)
    model.optimizer.build(model.trainable_variables)
    return model


def test_muon_updates_the_kernels_inside_of_the_stacks_and_adam_the_rest(compiled):
    optimizer = compiled.optimizer
    assert type(optimizer) is keras.optimizers.Muon
    of_muon = {
        variable.path
        for variable, velocity in zip(
            compiled.trainable_variables, optimizer.adam_velocities, strict=True
        )
        if velocity is None
    }
    assert of_muon == {
        variable.path
        for variable in compiled.trainable_variables
        if variable.path.startswith(("encoder/", "decoder/")) and variable.name == "kernel"
    }
    assert len(of_muon) == 2 * (4 + 2) + 4


def orthogonalised(matrix):
    """Five Newton-Schulz iterations with the quintic polynomial of Muon's authors, in float64."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / np.linalg.norm(x)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


def test_a_first_update_is_the_formula(compiled):
    """Nesterov's momentum of a first gradient is 1.95 times it, which the norm takes out."""
    rng = np.random.default_rng(5)
    variables = compiled.trainable_variables
    before = [keras.ops.convert_to_numpy(variable).astype("float64") for variable in variables]
    gradients = [rng.normal(size=variable.shape) for variable in variables]
    compiled.optimizer.apply([keras.ops.cast(one, "float32") for one in gradients], variables)
    for variable, old, gradient in zip(variables, before, gradients, strict=True):
        if variable.name == "kernel" and variable.path.startswith(("encoder/", "decoder/")):
            expected = old - RATE * 0.2 * np.sqrt(max(old.shape)) * orthogonalised(gradient)
        else:  # Adam's first step is the sign of the gradient.
            expected = old - RATE * np.sign(gradient)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable),
            expected,
            rtol=1e-5,
            atol=1e-6,
            err_msg=variable.path,
        )


def test_eight_bits_are_adams():
    settings = {"training.optimizer": "muon", "training.eight_bits": True}
    with pytest.raises(ValueError, match=r"by Adam alone.*Received: 'muon'"):
        require_consistent(RunConfig().replace(settings).training)
