import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from loss_modes import MODES, value_and_gradient
from training_reference import B, T, V, batch, loss_and_gradient, softmax, weights

from keras_addnorm.training import MaskedSparseCategoricalCrossentropy, RDropCrossentropy

SMOOTHING = [0.0, 0.1, 0.73]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_value_and_gradient_are_those_of_the_definition(mode, smoothing):
    labels, logits = batch()
    loss = MaskedSparseCategoricalCrossentropy(smoothing)
    value, gradient = MODES[mode](loss, labels, logits.astype("float32"))
    expected, expected_gradient = loss_and_gradient(labels, logits, smoothing)
    assert value.dtype == gradient.dtype == tf.float32
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-7)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_float64_logits_are_computed_in_float64(smoothing):
    labels, logits = batch()
    value, gradient = value_and_gradient(
        MaskedSparseCategoricalCrossentropy(smoothing), labels, logits
    )
    expected, expected_gradient = loss_and_gradient(labels, logits, smoothing)
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-16)


@pytest.mark.parametrize("pad_id", [0, 4, -100])
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_equals_torch_with_ignore_index(smoothing, pad_id):
    labels, logits = batch(pad_id=pad_id)
    value, gradient = value_and_gradient(
        MaskedSparseCategoricalCrossentropy(smoothing, pad_id=pad_id), labels, logits
    )
    z = torch.tensor(logits.reshape(-1, V), requires_grad=True)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=smoothing, ignore_index=pad_id)
    expected = criterion(z, torch.tensor(labels.reshape(-1), dtype=torch.int64))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-12)
    np.testing.assert_allclose(gradient, z.grad.numpy().reshape(B, T, V), atol=1e-14)


def test_the_gradient_takes_no_exponentials_of_its_own():
    """They are what costs most where the vocabulary is large."""
    labels, logits = batch()
    loss = MaskedSparseCategoricalCrossentropy(0.1)
    traced = tf.function(lambda z: value_and_gradient(loss, labels, z))
    graph = traced.get_concrete_function(tf.TensorSpec(logits.shape, tf.float32)).graph
    assert [operation.type for operation in graph.get_operations()].count("Exp") == 1


def test_second_derivatives_are_those_of_the_one_hot_formula():
    labels, logits = batch()
    direction = np.random.default_rng(2).normal(size=logits.shape)

    def hessian_times_direction(loss):
        z = tf.constant(logits)
        with tf.GradientTape() as outer:
            outer.watch(z)
            with tf.GradientTape() as inner:
                inner.watch(z)
                value = loss(z)
            slope = tf.reduce_sum(inner.gradient(value, z) * direction)
        return outer.gradient(slope, z)

    def by_one_hot(z):
        targets = tf.one_hot(labels, V, on_value=0.9 + 0.1 / V, off_value=0.1 / V, dtype=z.dtype)
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, z)
        return tf.reduce_mean(losses[labels != 0])

    ours = MaskedSparseCategoricalCrossentropy(0.1)
    np.testing.assert_allclose(
        hessian_times_direction(lambda z: ours(labels, z)),
        hessian_times_direction(by_one_hot),
        atol=1e-15,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(B,), (B, 1), (B, T)])
def test_sample_weights_multiply_tokens(mode, shape):
    labels, logits = batch()
    weight = np.random.default_rng(5).uniform(0.5, 3, shape).astype("float32")
    weight[1] = 0
    value, gradient = MODES[mode](
        MaskedSparseCategoricalCrossentropy(0.1), labels, logits.astype("float32"), weight
    )
    by_token = np.broadcast_to(weight.reshape(B, -1), (B, T))
    expected, expected_gradient = loss_and_gradient(labels, logits, 0.1, sample_weight=by_token)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-7)


def test_a_weight_of_zero_is_padding_and_of_two_is_twice_the_token():
    labels, logits = batch()
    loss = MaskedSparseCategoricalCrossentropy(0.1)
    np.testing.assert_allclose(
        loss(labels, logits, np.array([1, 0, 2])),
        loss(np.stack([labels[0], labels[2], labels[2]]), logits[[0, 2, 2]]),
        rtol=1e-13,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weight", [None, np.zeros(B, "float32")])
def test_nothing_to_learn_from_gives_zero(mode, weight):
    labels, logits = batch()
    labels = labels if weight is not None else np.zeros_like(labels)
    value, gradient = MODES[mode](
        MaskedSparseCategoricalCrossentropy(0.1), labels, logits.astype("float32"), weight
    )
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((B, T, V)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_logits_on_padding_change_nothing(mode, poison):
    labels, logits = batch()
    poisoned = np.where((labels == 0)[..., None], poison, logits).astype("float32")
    value, gradient = MODES[mode](MaskedSparseCategoricalCrossentropy(0.1), labels, poisoned)
    expected, expected_gradient = loss_and_gradient(labels, logits, 0.1)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-7)


def test_extra_padding_changes_nothing():
    labels, logits = batch()
    loss = MaskedSparseCategoricalCrossentropy(0.1)
    np.testing.assert_allclose(
        loss(np.pad(labels, [(0, 2), (0, 3)]), np.pad(logits, [(0, 2), (0, 3), (0, 0)])),
        loss(labels, logits),
        rtol=1e-14,
    )


def test_a_forbidden_token_is_no_trouble_without_smoothing():
    labels, logits = batch()
    logits[..., 0] = -np.inf  # 0 is the padding id, never a label
    value, gradient = value_and_gradient(MaskedSparseCategoricalCrossentropy(), labels, logits)
    share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    of_label = np.take_along_axis(share, labels[..., None], -1)[..., 0][labels != 0]
    np.testing.assert_allclose(value, -np.log(of_label).mean(), rtol=1e-13)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_low_precision_logits_are_reduced_in_float32(mode, dtype):
    labels, logits = batch()
    low = tf.cast(logits * 10, dtype)
    value, gradient = MODES[mode](MaskedSparseCategoricalCrossentropy(0.1), labels, low)
    exact = tf.cast(low, "float64").numpy()
    expected, expected_gradient = loss_and_gradient(labels, exact, 0.1)
    assert (value.dtype, gradient.dtype) == (tf.float32, low.dtype)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    step = {"float16": 2**-11, "bfloat16": 2**-8}[dtype]
    np.testing.assert_allclose(
        tf.cast(gradient, "float64"), expected_gradient, rtol=step, atol=1e-7
    )


def test_call_gives_the_loss_of_each_token():
    labels, logits = batch()
    values = MaskedSparseCategoricalCrossentropy(0.1).call(labels, logits)
    assert values.shape == (B, T)
    expected, _ = loss_and_gradient(labels, logits, 0.1)
    np.testing.assert_allclose(np.sum(values) / (labels != 0).sum(), expected, rtol=1e-14)
    np.testing.assert_array_equal(np.asarray(values)[labels == 0], 0)


def test_a_subclass_is_asked_by_its_own_call():
    class Doubled(MaskedSparseCategoricalCrossentropy):
        def call(self, y_true, y_pred):
            return 2 * super().call(y_true, y_pred)

    labels, logits = np.array([[1, 2, 0]]), np.zeros((1, 3, 4), "float32")
    np.testing.assert_allclose(Doubled()(labels, logits), 2 * np.log(4), rtol=1e-6)


def test_large_labels_are_not_rounded():
    """Labels above 2 to the power 24 do not survive float32, the type Keras would give them."""
    loss = tf.function(MaskedSparseCategoricalCrossentropy(pad_id=2**24).call)
    logits = tf.zeros((1, 2, 3))
    # The second label is not padding, but float32 would make it so.
    found = loss(tf.constant([[2**24, 2**24 + 1]]), logits)
    np.testing.assert_array_equal(found, [[0.0, np.nan]])


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_any_integer_type_of_label(dtype):
    labels, logits = batch()
    loss = MaskedSparseCategoricalCrossentropy(0.1)
    assert float(loss(labels.astype(dtype), logits)) == float(loss(labels, logits))


def test_round_trip():
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=0.25, pad_id=3, name="nll")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(again) is MaskedSparseCategoricalCrossentropy
    assert again.get_config() == {
        "label_smoothing": 0.25,
        "pad_id": 3,
        "name": "nll",
        "weighted_sum": False,
    }
    labels, logits = batch(pad_id=3)
    assert float(again(labels, logits)) == float(loss(labels, logits))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_smoothing_out_of_range(smoothing):
    with pytest.raises(ValueError, match=r"at least 0 and below 1. Received"):
        MaskedSparseCategoricalCrossentropy(label_smoothing=smoothing)


@pytest.mark.parametrize("pad_id", [None, 0.5, "0"])
def test_pad_id_must_be_an_integer(pad_id):
    with pytest.raises(ValueError, match="pad_id is the integer label that counts nowhere"):
        MaskedSparseCategoricalCrossentropy(pad_id=pad_id)


BAD_CALLS = {
    "float labels": ((B, T), "float32", (B, T, V), "float32", "needs integer labels"),
    "boolean labels": ((B, T), "bool", (B, T, V), "float32", "needs integer labels"),
    "swapped": ((B, T), "int32", (B, T, V), "int32", "needs floating-point logits"),
    "one column": ((B, T, 1), "int32", (B, T, V), "float32", "exactly one axis more"),
    "flat labels": ((B * T,), "int32", (B, T, V), "float32", "exactly one axis more"),
    "no logits axis": ((B, T), "int32", (B, T), "float32", "exactly one axis more"),
    "scalar": ((), "int32", (V,), "float32", "exactly one axis more"),
    "other length": ((B, T + 1), "int32", (B, T, V), "float32", r"\(3, 6\) and logits \(3, 5, 7"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_shapes_and_types_are_named(case):
    label_shape, label_type, logit_shape, logit_type, message = BAD_CALLS[case]
    labels, logits = np.ones(label_shape, label_type), np.ones(logit_shape, logit_type)
    with pytest.raises(ValueError, match=message):
        MaskedSparseCategoricalCrossentropy()(labels, logits)


def test_bad_sample_weight_is_named():
    labels, logits = batch()
    with pytest.raises(ValueError, match="one value a row"):
        MaskedSparseCategoricalCrossentropy()(labels, logits, np.ones((B, T, 1)))


def each_row_twice(alpha, smoothing):
    """A batch, and the loss of the definition, from logarithms of probabilities."""
    labels, p_logits = batch()
    _, q_logits = batch(seed=12)
    ce = [loss_and_gradient(labels, z, smoothing)[0] for z in (p_logits, q_logits)]
    p, q = softmax(p_logits), softmax(q_logits)
    divergence = [(a * (np.log(a) - np.log(b))).sum(-1) for a, b in ((p, q), (q, p))]
    share = weights(labels) / weights(labels).sum()
    expected = sum(ce) / 2 + alpha / 4 * (share * sum(divergence)).sum()
    return (
        np.repeat(labels, 2, axis=0),
        np.stack([p_logits, q_logits], 1).reshape(2 * B, T, V),
        expected,
    )


@pytest.mark.parametrize("mode", MODES)
def test_r_drop_is_the_definition(mode):
    labels, logits, expected = each_row_twice(alpha=3.0, smoothing=0.1)
    loss = RDropCrossentropy(3.0, label_smoothing=0.1)
    value, gradient = MODES[mode](loss, labels, logits)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    step = 1e-4 * np.random.default_rng(5).normal(size=logits.shape)
    slope = (loss(labels, logits + step) - loss(labels, logits - step)) / 2
    np.testing.assert_allclose((gradient * step).numpy().sum(), slope, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_r_drop_has_the_gradient_of_torch(mode):
    labels, logits, _ = each_row_twice(alpha=3.0, smoothing=0.1)
    sample_weight = np.random.default_rng(6).uniform(0.5, 2.0, (2 * B, T))
    _, gradient = MODES[mode](
        RDropCrossentropy(3.0, label_smoothing=0.1), labels, logits, sample_weight
    )
    z = torch.tensor(logits, requires_grad=True)
    log_p = torch.log_softmax(z, -1)
    ids = torch.tensor(labels, dtype=torch.int64)[..., None]
    cross_entropy = -0.9 * log_p.gather(-1, ids)[..., 0] - 0.1 * log_p.mean(-1)
    p, q = log_p[0::2], log_p[1::2]
    apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    weight = torch.tensor(sample_weight * (labels != 0))
    values = cross_entropy + 1.5 * torch.repeat_interleave(apart, 2, 0)
    ((weight * values).sum() / weight.sum()).backward()
    np.testing.assert_allclose(gradient, z.grad, atol=1e-14)


def test_r_drop_gives_padding_no_gradient_whatever_its_logits():
    labels, logits, expected = each_row_twice(alpha=3.0, smoothing=0.1)
    broken = np.where((labels == 0)[..., None], np.inf, logits)
    assert np.isinf(broken).any()
    value, gradient = value_and_gradient(RDropCrossentropy(3.0, 0.1), labels, broken)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    _, whole = value_and_gradient(RDropCrossentropy(3.0, 0.1), labels, logits)
    np.testing.assert_array_equal(gradient, whole)


def test_r_drop_of_equal_predictions_is_the_cross_entropy():
    labels, logits = (np.repeat(rows, 2, axis=0) for rows in batch())
    for weight in (None, np.full((2 * B, 1), 0.3)):
        value = RDropCrossentropy(5.0, label_smoothing=0.1, weighted_sum=True)(
            labels, logits, weight
        )
        expected = MaskedSparseCategoricalCrossentropy(0.1, weighted_sum=True)(
            labels, logits, weight
        )
        np.testing.assert_allclose(value, expected, rtol=1e-14)


def test_r_drop_says_what_it_needs():
    labels, logits = batch()
    with pytest.raises(ValueError, match="even number of rows"):
        RDropCrossentropy()(labels, logits)
    with pytest.raises(ValueError, match=r"at least 0\. Received: -1"):
        RDropCrossentropy(-1)
    loss = keras.losses.deserialize(keras.losses.serialize(RDropCrossentropy(2.0, 0.1, 3)))
    assert (loss.alpha, loss.label_smoothing, loss.pad_id) == (2.0, 0.1, 3)
