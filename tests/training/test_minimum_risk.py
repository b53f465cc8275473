import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from loss_modes import MODES, value_and_gradient
from training_reference import T, V

from keras_addnorm.training import MinimumRisk

SENTENCES, ROWS = 3, 4


def batch(dtype="float64"):
    """Three sentences with three, two and no candidates, and one of padding."""
    random = np.random.default_rng(7)
    labels = random.integers(1, V, (SENTENCES + 1, ROWS, T))
    for sentence in labels:
        for row, length in zip(sentence, random.integers(1, T + 1, ROWS), strict=True):
            row[length:] = 0
    labels[1, 2] = labels[2, 1:] = labels[3] = 0
    logits = random.normal(size=(labels.size // T, T, V)).astype(dtype)
    return labels.reshape(-1, T), logits, random.uniform(0, 1, len(labels) * ROWS)


def definition(labels, logits, rewards, sharpness, reference_weight, smoothing):
    """The loss and its gradient, sentence by sentence, by torch."""
    z = torch.tensor(logits, requires_grad=True)
    log_p = torch.log_softmax(z, -1)
    risks, tokens = [], []
    for sentence in range(SENTENCES):
        first, *candidates = range(sentence * ROWS, (sentence + 1) * ROWS)
        for t in np.flatnonzero(labels[first]):
            right = log_p[first, t, labels[first, t]]
            tokens.append(-(1 - smoothing) * right - smoothing * log_p[first, t].mean())
        candidates = [k for k in candidates if labels[k].any()]
        if candidates:
            whole = [
                sum(log_p[k, t, labels[k, t]] for t in np.flatnonzero(labels[k]))
                for k in candidates
            ]
            q = torch.softmax(sharpness * torch.stack(whole), 0)
            risks.append((q * torch.tensor(1 - rewards[candidates])).sum())
    loss = sum(risks) / SENTENCES + reference_weight * sum(tokens) / len(tokens)
    loss.backward()
    return loss.item(), z.grad.numpy()


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sharpness, reference_weight, smoothing", [(0.5, 0.3, 0.1), (2, 0, 0)])
def test_it_is_the_definition(mode, sharpness, reference_weight, smoothing):
    arguments = (sharpness, reference_weight, smoothing)
    loss = MinimumRisk(ROWS, *arguments)
    value, gradient = MODES[mode](loss, *batch())
    expected, expected_gradient = definition(*batch(), *arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-14)
    labels, logits, rewards = batch("float32")
    value, gradient = MODES[mode](loss, labels, logits, rewards[:, None].astype("float32"))
    assert value.dtype == gradient.dtype == tf.float32
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_what_is_padding_changes_nothing():
    labels, logits, rewards = batch()
    value, gradient = value_and_gradient(MinimumRisk(ROWS), labels, logits, rewards)
    empty = ~labels.any(-1)
    others = rewards.copy()
    others[empty] = others[::ROWS] = np.nan  # and the references' rewards
    changed = np.where((labels == 0)[..., None], np.inf, logits)
    again, gradient_again = value_and_gradient(MinimumRisk(ROWS), labels, changed, others)
    np.testing.assert_array_equal(again, value)
    np.testing.assert_array_equal(gradient_again, gradient)
    assert not np.any(gradient[labels == 0])


def test_a_batch_of_padding_alone_is_zero():
    labels, logits, rewards = (x[-ROWS:] for x in batch())
    value, gradient = value_and_gradient(MinimumRisk(ROWS), labels, logits, rewards)
    assert value == 0 and not np.any(gradient)


@pytest.mark.slow
def test_fit_moves_probability_to_the_better_candidate():
    keras.utils.set_random_seed(3)
    inputs = np.repeat([[1, 2]], 3, axis=0)
    labels = np.array([[3, 4], [5, 6], [6, 5]])  # the reference, a bad candidate, a good one
    model = keras.Sequential([keras.layers.Embedding(7, 8), keras.layers.Dense(7)])
    model.compile(keras.optimizers.SGD(0.5), MinimumRisk(3, 1.0, 0.0), jit_compile=True)

    def log_p():
        each = keras.ops.log_softmax(model.predict(inputs, verbose=0))
        return np.take_along_axis(np.asarray(each), labels[..., None], -1).sum((1, 2))

    before = log_p()
    rewards = np.array([1, 0.1, 0.9])
    model.fit(inputs, labels, 3, epochs=20, verbose=0, sample_weight=rewards, shuffle=False)
    _, bad, good = log_p() - before
    assert good > 0 > bad


def test_it_says_what_it_needs():
    labels, logits, rewards = batch()
    with pytest.raises(ValueError, match=r"multiple of 5 rows\. Received: labels of shape \(16, "):
        MinimumRisk(5)(labels, logits, rewards)
    with pytest.raises(ValueError, match=r"Received: None\. Pass \(inputs, labels, rewards\)"):
        MinimumRisk(ROWS)(labels, logits)
    with pytest.raises(ValueError, match=rf"Received: shape \(16, {T}\)"):
        MinimumRisk(ROWS)(labels, logits, np.ones_like(labels))
    with pytest.raises(ValueError, match=r"at least 2\. Received: 1"):
        MinimumRisk(1)
    with pytest.raises(ValueError, match=r"above 0\. Received: 0"):
        MinimumRisk(ROWS, sharpness=0)
    with pytest.raises(ValueError, match=r"at least 0\. Received: -1"):
        MinimumRisk(ROWS, reference_weight=-1)
    with pytest.raises(ValueError, match=r"below 1\. Received: 1"):
        MinimumRisk(ROWS, label_smoothing=1)
    loss = MinimumRisk(ROWS, 0.7, 0.2, 0.1, 3, "risk")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
