"""NumPy float64 formulas, written out from their definitions, and one batch to try them on."""

import numpy as np

B, T, V = 3, 5, 7


def batch(seed=11, pad_id=0):
    """Labels with padding at different places, and logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, V, (B, T))
    labels[0, 3:] = pad_id
    labels[2, 1] = pad_id
    return labels.astype("int32"), rng.normal(0, 2, (B, T, V))


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def smoothed_targets(labels, smoothing):
    one_hot = labels[..., None] == np.arange(V)
    return (1 - smoothing) * one_hot + smoothing / V


def weights(labels, pad_id=0, sample_weight=1.0):
    return (labels != pad_id) * sample_weight


def loss_and_gradient(labels, logits, smoothing=0.0, pad_id=0, sample_weight=1.0):
    w = weights(labels, pad_id, sample_weight)
    q = smoothed_targets(labels, smoothing)
    p = softmax(logits.astype("float64"))
    share = w / w.sum()
    return -(share * (q * np.log(p)).sum(-1)).sum(), share[..., None] * (p - q)


def accuracy(labels, logits):
    real = labels != 0
    return ((logits.argmax(-1) == labels) & real).sum() / real.sum()
