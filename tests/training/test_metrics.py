import keras
import numpy as np
import pytest
import tensorflow as tf
from training_reference import B, T, V, accuracy, batch, loss_and_gradient

from keras_addnorm.training import MaskedAccuracy, Perplexity

METRICS = [MaskedAccuracy, Perplexity]


def two_batches():
    """Two batches of different length, and both as one."""
    (labels, logits), (more, more_logits) = batch(1), batch(2)
    first = labels[:, :2], logits[:, :2].astype("float32")
    second = more, more_logits.astype("float32")
    joined = (
        np.concatenate([np.pad(first[0], [(0, 0), (0, 3)]), second[0]]),
        np.concatenate([np.pad(first[1], [(0, 0), (0, 3), (0, 0)]), second[1]]),
    )
    return first, second, joined


EXPECTED = {
    MaskedAccuracy: accuracy,
    Perplexity: lambda labels, logits: np.exp(loss_and_gradient(labels, logits)[0]),
}


@pytest.mark.parametrize("jit_compile", [None, False, True])
@pytest.mark.parametrize("metric_class", METRICS)
def test_every_real_token_counts_once_whatever_its_batch(metric_class, jit_compile):
    first, second, joined = two_batches()
    metric = metric_class()
    update = metric.update_state
    if jit_compile is not None:
        update = tf.function(update, jit_compile=jit_compile)
    update(*first)
    update(*second)
    np.testing.assert_allclose(metric.result(), EXPECTED[metric_class](*joined), rtol=1e-6)
    # The mean of the batches' results is something else, or this test could not fail.
    means = [EXPECTED[metric_class](*part) for part in (first, second)]
    assert abs(np.mean(means) - EXPECTED[metric_class](*joined)) > 1e-3
    metric.reset_state()
    update(*first)
    np.testing.assert_allclose(metric.result(), EXPECTED[metric_class](*first), rtol=1e-6)


@pytest.mark.parametrize("metric_class", METRICS)
def test_sample_weights_multiply_tokens(metric_class):
    labels, logits = batch()
    twice = metric_class()
    twice.update_state(labels, logits, sample_weight=np.array([2, 1, 0]))
    repeated = EXPECTED[metric_class](labels[[0, 0, 1]], logits[[0, 0, 1]])
    np.testing.assert_allclose(twice.result(), repeated, rtol=1e-6)


@pytest.mark.parametrize("metric_class", METRICS)
def test_logits_on_padding_change_nothing(metric_class):
    labels, logits = batch()
    logits = np.where((labels == 0)[..., None], np.nan, logits).astype("float32")
    clean = np.nan_to_num(logits)
    np.testing.assert_allclose(
        metric_class()(labels, logits), EXPECTED[metric_class](labels, clean), rtol=1e-6
    )


@pytest.mark.parametrize(("metric_class", "empty"), [(MaskedAccuracy, 0.0), (Perplexity, 1.0)])
def test_only_padding(metric_class, empty):
    metric = metric_class()
    assert float(metric.result()) == empty
    assert float(metric(np.zeros((B, T), "int32"), np.ones((B, T, V), "float32"))) == empty


def test_ties_go_to_the_lowest_id():
    labels = np.array([[1, 2, 3]])
    logits = np.zeros((1, 3, 4), "float32")
    logits[:, :, 1:] = 5.0  # 1, 2 and 3 tie everywhere: argmax says 1
    assert float(MaskedAccuracy()(labels, logits)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("pad_id", [0, 2, -1])
def test_pad_id(pad_id):
    labels = np.array([[pad_id, 1, 3]])
    logits = np.eye(4, dtype="float32")[[[0, 1, 1]]]
    assert float(MaskedAccuracy(pad_id=pad_id)(labels, logits)) == 0.5


def test_perplexity_of_a_uniform_guess_is_the_vocabulary_size():
    labels, _ = batch()
    assert float(Perplexity()(labels, np.full((B, T, V), 3.0))) == pytest.approx(V, rel=1e-6)


def test_perplexity_overflows_to_infinity_quietly():
    logits = np.zeros((1, 1, 2), "float32")
    logits[..., 0] = 1000.0
    assert float(Perplexity()(np.array([[1]]), logits)) == np.inf


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_are_counted_in_float32(dtype):
    labels, logits = batch()
    low = tf.cast(logits, dtype)
    exact = tf.cast(low, "float64").numpy()
    for metric_class in METRICS:
        result = metric_class()(labels, low)
        assert result.dtype == tf.float32
        np.testing.assert_allclose(result, EXPECTED[metric_class](labels, exact), rtol=1e-6)


@pytest.mark.parametrize("metric_class", METRICS)
def test_round_trip(metric_class):
    metric = metric_class(pad_id=3, name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(again) is metric_class
    assert (again.pad_id, again.name) == (3, "mine")
    assert again.get_config() == metric.get_config()


@pytest.mark.parametrize("metric_class", METRICS)
def test_bad_calls_name_the_metric(metric_class):
    labels, logits = batch()
    with pytest.raises(ValueError, match=f"{metric_class.__name__} needs integer labels"):
        metric_class()(labels.astype("float32"), logits)
    with pytest.raises(ValueError, match="exactly one axis more"):
        metric_class()(labels[..., None], logits)
    with pytest.raises(ValueError, match="pad_id is the integer label"):
        metric_class(pad_id=0.0)
