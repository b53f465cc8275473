"""SSRU and average attention in float64 NumPy, one position after the other."""

import numpy as np
from layers_reference import array


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def dense(projection, x):
    y = x @ array(projection.kernel)
    return y if projection.bias is None else y + array(projection.bias)


def ssru(layer, x, mask):
    """`(B, T, D)` -> `(B, T, D)`; padding leaves the cell as it is."""
    cell, outputs = np.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        forget = sigmoid(dense(layer.forget_projection, x[:, t]))
        new = forget * cell + (1 - forget) * dense(layer.cell_projection, x[:, t])
        cell = np.where(mask[:, t, None], new, cell)
        outputs.append(np.maximum(cell, 0))
    return np.stack(outputs, axis=1)


def average_attention(layer, x, mask):
    """`(B, T, D)` -> `(B, T, D)`; padding is no part of the mean."""
    outputs = []
    for t in range(x.shape[1]):
        seen = mask[:, : t + 1, None]
        mean = (x[:, : t + 1] * seen).sum(1) / np.maximum(seen.sum(1), 1)
        inner = dense(layer.feed_forward.intermediate_projection, mean)
        y = dense(layer.feed_forward.output_projection, inner * sigmoid(inner))
        kept, new = dense(layer.input_gate, x[:, t]), dense(layer.forget_gate, y)
        outputs.append(sigmoid(kept) * x[:, t] + sigmoid(new) * y)
    return np.stack(outputs, axis=1)


FORMULAS = {"ssru": ssru, "average_attention": average_attention}
