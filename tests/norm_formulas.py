"""The papers' formulas of norms in float64 NumPy, by name: one for each norm of the library.

A formula takes the input, the trained weights in their order, and the epsilon.
"""

import math

import numpy as np

from keras_addnorm import norms


def layer_norm(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) + beta


def rms_norm(x, scale, epsilon):
    return scale * x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def scale_norm(x, scale, epsilon):
    return scale * x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), epsilon)


def dynamic_tanh(x, alpha, gamma, beta, epsilon):
    return gamma * np.tanh(alpha * x) + beta


def derf(x, alpha, shift, gamma, beta, epsilon):
    return gamma * np.vectorize(math.erf)(alpha * x + shift) + beta


def seed_norm(x, gamma, alpha, beta, epsilon):
    seen = np.tanh(np.einsum("...d,d->...", x, beta))[..., None]
    return rms_norm(x, gamma + seen * alpha, epsilon)


def bhyt(x, slope, gamma, epsilon):
    size = np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return gamma * np.tanh(slope * x / (10 * size))


taper_norm = rms_norm  # until it tapers


def std_layer_norm(x, gamma, beta, epsilon):
    deviation = x.std(-1, ddof=1, keepdims=True)
    return gamma * (x - x.mean(-1, keepdims=True)) / (deviation + epsilon) + beta


def batch_norm(x, gamma, beta, epsilon, mask=None):
    """The training-time formula, a channel and a list of rows at a time."""
    mask = np.ones(x.shape[:-1], bool) if mask is None else mask
    y = np.empty_like(x)
    for channel in range(x.shape[-1]):
        real = x[..., channel][mask]
        centred = x[..., channel] - real.mean()
        y[..., channel] = gamma[channel] * centred / np.sqrt(real.var() + epsilon) + beta[channel]
    return y


def none(x, epsilon):
    return x


FORMULAS = {name: globals()[name] for name in norms.names()}
