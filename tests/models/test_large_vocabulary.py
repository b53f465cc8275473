"""The loss of a large vocabulary: in chunks it is what it is whole, and needs less memory."""

import json

import keras
import large_vocabulary_on_backend as program
import numpy as np
import pytest
import tensorflow as tf
from new_process import run_on

from keras_addnorm.layers import PositionalEmbedding
from keras_addnorm.layers.vocabulary_product import label_logits
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.training import (
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    RDropCrossentropy,
    TokenDistillation,
)

B, T, D, V = 3, 5, 7, 23


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("axis", "chunk_size"), [(0, 5), (1, 4)])
def test_numbers_and_gradients_are_those_of_the_definition(axis, chunk_size, jit_compile):
    rng = np.random.default_rng(2)
    x, table = rng.normal(size=(B, T, D)), rng.normal(size=(V, D))
    bias, upstream = rng.normal(size=V), rng.normal(size=(3, B, T))
    bias[4] = -1e9  # A token that is forbidden.
    labels = rng.integers(0, V, (B, T))
    labels[0, 3:] = -100
    labels[1, 2] = 4
    upstream[:, 0, 3:] = 0  # Padding, whose label is none.

    z = x @ table.T + bias
    e = np.exp(z - z.max(-1, keepdims=True))
    is_label = labels[..., None] == np.arange(V)
    expected = [
        np.log(e.sum(-1)) + z.max(-1),
        np.where(is_label, z, 0).sum(-1),
        z.mean(-1),
        z.argmax(-1),
    ]
    p = e / e.sum(-1, keepdims=True)
    dz = upstream[0][..., None] * p + upstream[1][..., None] * is_label
    dz = dz + upstream[2][..., None] / V
    dtable = np.einsum("btv,btd->vd", dz, x)

    @tf.function(jit_compile=jit_compile)
    def computed(x, weight, bias):
        with tf.GradientTape() as tape:
            tape.watch([x, weight, bias])
            found = label_logits(
                x, weight, bias, labels, vocabulary_axis=axis, chunk_size=chunk_size
            )
            scaled = [tf.where(u == 0, 0.0, u * n) for u, n in zip(upstream, found, strict=False)]
            loss = tf.reduce_sum(tf.stack(scaled))
        return found, tape.gradient(loss, [x, weight, bias])

    upstream = upstream.astype("float32")
    weight = table if axis == 0 else table.T
    found, gradients = computed(*(tf.constant(a, tf.float32) for a in (x, weight, bias)))
    real = labels >= 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy()[real], other[real], rtol=2e-6, atol=1e-6)
        assert np.isnan(one.numpy()[~real]).all()
    for one, other in zip(
        gradients,
        (dz @ table, dtable if axis == 0 else dtable.T, dz.sum((0, 1))),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def assert_same(whole, chunked, tolerance):
    assert (whole["chunked"], chunked["chunked"]) == (False, True)
    assert all(np.isfinite(whole["logs"]))
    np.testing.assert_allclose(chunked["logs"], whole["logs"], rtol=tolerance)
    for one, other in zip(whole["weights"], chunked["weights"], strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("case", program.CASES)
def test_the_same_training_on_tensorflow(case, jit_compile):
    """With smoothing, weights of rows, guided alignment, dropout, both kinds of metrics."""
    runs = [
        program.run(size, jit_compile=jit_compile, **program.CASES[case])
        for size in (0, program.CHUNK)
    ]
    assert_same(*runs, tolerance=1e-5)


@pytest.fixture(scope="module")
def found():
    return {
        backend: json.loads(run_on(backend, "-W", "ignore", program.__file__).splitlines()[-1])
        for backend in ("jax", "torch")
    }


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_same_training_on_other_backends(found, backend):
    """With a tied table in float32, and with a projection of its own in bfloat16."""
    assert_same(*found[backend]["float32"], tolerance=1e-5)
    assert_same(*found[backend]["mixed_bfloat16"], tolerance=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("case", program.CASES)
def test_a_step_in_bfloat16_multiplies_bfloat16_and_keeps_logits_in_float32(found, case, chunked):
    products = found["jax"]["products"][case][chunked]
    assert products["operands"].keys() == {"bf16 bf16"}
    if not chunked:  # The logits; the gradient of the table is of the table's type.
        assert products["of vocabulary"]["bf16 bf16 f32"] >= 1


@pytest.mark.slow
def test_a_large_vocabulary_needs_a_quarter_of_the_memory_by_itself(found):
    whole, chunked = found["jax"]["bytes"]
    assert chunked < whole / 4


def test_one_step_in_chunks_is_one_with_whole_logits():
    runs = [program.run(size, jit_compile=False) for size in (0, program.CHUNK)]
    assert_same(*runs, tolerance=1e-5)


@pytest.fixture(scope="module")
def model():
    return program.made()


class OtherModel(Seq2SeqTransformer):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


class OwnLoss(MaskedSparseCategoricalCrossentropy):
    pass


class OwnMetric(MaskedAccuracy):
    pass


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"loss": RDropCrossentropy(1.0)}, "the loss RDropCrossentropy"),
        ({"loss": OwnLoss()}, "the loss OwnLoss"),
        ({"loss": None}, "the loss None"),
        ({"metrics": [OwnMetric()]}, "the metric OwnMetric"),
        ({"weighted_metrics": ["accuracy"]}, "the metric 'accuracy'"),
        ({"loss_weights": 0.5}, "`loss_weights`"),
        (
            {"distillation": TokenDistillation(lambda inputs, training: None)},
            "`distillation`, which compares whole distributions",
        ),
    ],
)
def test_what_needs_whole_logits_is_named(model, arguments, reason, monkeypatch):
    arguments = {"loss": MaskedSparseCategoricalCrossentropy(), **arguments}
    with pytest.raises(ValueError, match=f"Received: vocabulary_chunk_size=5, and {reason}"):
        model.compile("sgd", **arguments, vocabulary_chunk_size=5)
    # Where chunks are chosen by the size, what needs whole logits keeps them, and it is said.
    monkeypatch.setattr("keras_addnorm.models.large_vocabulary._LARGE", 50)
    monkeypatch.setattr("keras_addnorm.models.large_vocabulary._CHUNK", 20)
    with pytest.warns(UserWarning, match=f"all 53 entries .* because of {reason}"):
        model.compile("sgd", **arguments)
    assert model.vocabulary_chunk_size == 0


def test_chunks_are_chosen_by_the_size(model, monkeypatch):
    loss = MaskedSparseCategoricalCrossentropy()
    model.compile("sgd", loss)
    assert model.vocabulary_chunk_size == 0
    monkeypatch.setattr("keras_addnorm.models.large_vocabulary._LARGE", 52)
    monkeypatch.setattr("keras_addnorm.models.large_vocabulary._CHUNK", 20)
    model.compile("sgd", loss)
    assert model.vocabulary_chunk_size == 20
    model.compile("sgd", loss, vocabulary_chunk_size=0)
    assert model.vocabulary_chunk_size == 0
    # One chunk would be whole logits, made twice.
    model.compile("sgd", loss, vocabulary_chunk_size=53)
    assert model.vocabulary_chunk_size == 0
    for size in (-1, 1.5, True, "many"):
        with pytest.raises(ValueError, match="vocabulary_chunk_size is how many"):
            model.compile("sgd", loss, vocabulary_chunk_size=size)


def test_models_that_compute_their_own_loss_get_logits(model):
    other = OtherModel(model.config)
    with pytest.raises(ValueError, match="OtherModel, which has a compute_loss of its own"):
        other.compile("sgd", MaskedSparseCategoricalCrossentropy(), vocabulary_chunk_size=5)


def test_a_quantised_output_layer_keeps_whole_logits():
    model = program.made()
    model.quantize("int8")
    with pytest.raises(ValueError, match="a quantised output layer"):
        model.compile("sgd", MaskedSparseCategoricalCrossentropy(), vocabulary_chunk_size=5)


def test_outside_of_a_step_a_model_gives_logits():
    model = program.compiled(program.made(), program.CHUNK)
    inputs, labels, _ = program.batch()
    assert model(inputs, training=True).shape == (4, 7, program.VOCABULARY)
    assert model.predict(inputs, verbose=0).shape == (4, 7, program.VOCABULARY)
    assert model.evaluate(inputs, labels, verbose=0, return_dict=True)["perplexity"] > 1


def test_labels_outside_the_vocabulary_make_the_loss_nan():
    model = program.compiled(program.made(), program.CHUNK)
    inputs, labels, _ = program.batch()
    data = tf.data.Dataset.from_tensors((inputs, np.where(labels == labels[0, 0], 99, labels)))
    assert np.isnan(model.evaluate(data, verbose=0))[0]


def test_a_tied_table_in_bfloat16_gives_logits_of_float32():
    embedding = PositionalEmbedding(V, D, dtype="mixed_bfloat16")
    logits = embedding(keras.ops.ones((B, T, D), "bfloat16"), reverse=True)
    assert logits.dtype == "float32"
