"""What was compiled is made anew once the layers compute in another way."""

import keras
import numpy as np
import pytest
from filled_models import SOURCE, TARGET, array, tiny_model

from keras_addnorm.decoding.engine import engine_for
from keras_addnorm.decoding.engine.base import run_compiled
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

TARGETS = np.array([[4, 5, 2], [7, 2, 0], [8, 9, 2]])


def switch_lora_on(model):
    layer = model.decoder.layers[0].feed_forward.output_projection
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    model.decoder_embedding.enable_lora(2)
    table = model.decoder_embedding.lora_embeddings_b
    table.assign(np.ones(table.shape))


def quantize(model):
    model.quantize("int8")


def small_model():
    return tiny_model(scheme="pre_ln", num_encoder_layers=1)


def score(model, jit_compile=False):
    return model.score(SOURCE, TARGETS, jit_compile=jit_compile).token_log_probabilities


def by_predict(model):
    """The same numbers without what was compiled."""
    inputs = np.concatenate([np.ones((3, 1), int), TARGETS[:, :-1]], axis=1)
    logits = array(model({"source": SOURCE, "target": inputs}))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_p, TARGETS[..., None], axis=-1)[..., 0]
    return np.where(TARGETS == 0, 0, chosen)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("change", [switch_lora_on, quantize])
def test_f2_scores_follow_the_layers(change):
    model = small_model()
    before = score(model)
    np.testing.assert_allclose(before, by_predict(model), atol=1e-5)
    change(model)
    after = score(model)
    np.testing.assert_allclose(after, by_predict(model), atol=1e-5)
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("change", [switch_lora_on, quantize])
def test_f2_searches_follow_the_layers(change, jit_compile):
    options = {"num_beams": 2, "max_length": 5, "jit_compile": jit_compile}
    model, changed = small_model(), small_model()
    _, before = model.generate(SOURCE, **options)
    change(model)
    change(changed)
    changed.set_weights(model.get_weights())
    ids, scores = model.generate(SOURCE, **options)
    expected, expected_scores = changed.generate(SOURCE, **options)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    assert np.abs(scores - before).max() > 1e-3


@pytest.mark.slow
def test_f2_only_changed_layers_and_compile_make_anew():
    model = tiny_model()

    def compiled():
        score(model)
        (function,) = vars(model)["_compiled_decoders"].values()
        return function

    first = compiled()
    model.encoder.trainable = False
    model.decoder_embedding.embeddings.assign(model.decoder_embedding.embeddings * 2)
    assert compiled() is first

    model.compile("sgd", MaskedSparseCategoricalCrossentropy(), jit_compile=False)
    second = compiled()
    assert second is not first
    inputs, labels = {"source": SOURCE, "target": TARGET}, np.roll(TARGET, -1, axis=1)
    model.fit(inputs, labels, epochs=2, verbose=0)
    assert compiled() is second


def test_f2_a_plain_objects_layers_are_looked_at():
    """A decoder of one's own that holds a Keras model, and much else."""

    class Own:
        def __init__(self):
            self.parts = {"layer": keras.layers.Dense(3), "texts": ["a"] * 1000}
            self.parts["layer"].build((2, 3))

    own, inputs = Own(), (np.ones((2, 3), "float32"),)
    layer = own.parts["layer"]

    def run():
        return run_compiled(own, "key", lambda x: layer(x), inputs, engine_for(jit_compile=False))

    before = run()
    layer.enable_lora(1)
    layer.lora_kernel_a.assign(np.ones((3, 1)))
    layer.lora_kernel_b.assign(np.ones((1, 3)))
    np.testing.assert_allclose(run(), before + 3, rtol=1e-5)
