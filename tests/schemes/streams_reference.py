"""Stacks of toy sublayers around real Add & Norms, and the papers' formulas for them in NumPy.

A sublayer is `F(h) = tanh(h W)`. The formulas are written as the papers have them, on arrays
`(..., n, D)`, one matrix at a time, and share nothing with the schemes but the weights.
"""

import itertools
import math

import keras
import numpy as np
from keras import ops

from keras_addnorm import schemes
from keras_addnorm.layers import AddNorm
from keras_addnorm.layers.learned_arrays import LearnedArrays
from keras_addnorm.norms import LayerNorm
from keras_addnorm.schemes import StackPosition

B, T, D, LAYERS, EPSILON = 2, 3, 8, 2, 1e-6
SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")

CASES = {
    "resi_dual": {"name": "resi_dual"},
    "b2t": {"name": "b2t"},
    "hyper_connections": {"name": "hyper_connections"},
    "hyper_connections static": {
        "name": "hyper_connections",
        "num_streams": 2,
        "dynamic": False,
    },
    "mhc_lite": {"name": "mhc_lite", "num_streams": 3, "off_diagonal": -1.0},
    "mhc": {"name": "mhc", "num_streams": 2, "off_diagonal": -1.0},
    "mhc one_hot": {"name": "mhc", "num_streams": 3, "start": "one_hot", "iterations": 3},
    "attention_residuals": {"name": "attention_residuals"},
    "attention_residuals of 2": {"name": "attention_residuals", "block_size": 2},
    "attention_residuals of 4": {"name": "attention_residuals", "block_size": 4},
    "residual_scalars": {"name": "residual_scalars"},
    "residual_scalars decreasing": {"name": "residual_scalars", "start": "decreasing"},
    "dense_former": {"name": "dense_former"},
    "dense_former of every second": {"name": "dense_former", "dilation": 2, "period": 2},
    "frac_connections": {"name": "frac_connections", "num_streams": 4},
    "frac_connections dynamic": {"name": "frac_connections", "dynamic": True},
    "dlcl": {"name": "dlcl"},
    "siamese_norm": {"name": "siamese_norm"},
    "krom_hc": {"name": "krom_hc", "off_diagonal": -1.0},
    "krom_hc one_hot": {"name": "krom_hc", "num_streams": 8, "start": "one_hot"},
}

# One of each kind, for what compiles: few iterations, which a compiler sees one by one.
KINDS = {
    case: scheme
    for case, scheme in CASES.items()
    if case != "mhc" and (" " not in case or case in ("hyper_connections static", "mhc one_hot"))
}


# With operations of their own. Their formulas are in tests/layers.
ONE_STREAM = {
    "keel": {"name": "keel"},
    "orthogonal": {"name": "orthogonal"},
    "gpas": {"name": "gpas"},
    "gpas of post_ln": {"name": "gpas", "of": "post_ln"},
    "deep_delta": {"name": "deep_delta"},
    "pro_res": {"name": "pro_res", "warmup_steps": 3},
    "hybrid_norm": {"name": "hybrid_norm"},
}


def random(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


def array(tensor):
    return np.asarray(ops.convert_to_numpy(ops.cast(tensor, "float64")))


def giving(f):
    """A sublayer that gives f, whatever it reads."""
    return lambda h: f


class Stack:
    """Layers of three toy sublayers, as a stack runs them."""

    def __init__(self, scheme, dtype="float64", noise=0.0, layers=LAYERS, **options):
        self.scheme = schemes.get(scheme)
        places = [
            StackPosition(3, layers, "decoder", index).at(name, SUBLAYERS)
            for index in range(layers)
            for name in SUBLAYERS
        ]
        self.add_norms = [
            AddNorm(self.scheme, dtype=dtype, position=place, **options) for place in places
        ]
        self.final_norm = LayerNorm(dtype=dtype)
        self.end_plan = self.scheme.end_plan(places[-1])
        self.ends = LearnedArrays(self.end_plan.arrays, dtype=dtype)
        self.end_norms = {name: LayerNorm(dtype=dtype) for name in self.end_plan.extra_norms}
        self.parts = [*self.add_norms, self.final_norm, self.ends, *self.end_norms.values()]
        for part in self.parts:
            part.build((B, T, D))
        self.kernels = [random(D, D, seed=index) / 2 for index in range(len(places))]
        self.dtype = self.final_norm.compute_dtype
        rng = np.random.default_rng(4)
        for weight in self.weights:
            start = array(weight)
            weight.assign(start + noise * rng.normal(size=start.shape))

    @property
    def weights(self):
        return [weight for part in self.parts for weight in part.weights]

    def states(self, x, training=False):
        """Return the state before each sublayer, and the last one."""
        x = ops.cast(x, self.dtype)
        found = [self.scheme.open(x)]
        for add_norm, kernel in zip(self.add_norms, self.kernels, strict=True):
            h = add_norm.branch_input(found[-1])
            f = ops.tanh(ops.matmul(h, ops.cast(kernel, self.dtype)))
            found.append(add_norm(found[-1], f, training=training))
        return found

    def __call__(self, x, training=False):
        top = self.states(x, training)[-1]
        made = {**self.ends.arrays, **self.end_norms, "final_norm": self.final_norm}
        return self.scheme.close(top, schemes.ResidualParts(self.end_plan, **made))

    def by_formula(self, x):
        return FORMULAS[type(self.scheme).__name__](self, x)

    def branches(self):
        """Yield each Add & Norm, what the sublayer is, and whether it is first or last."""
        for index, (add_norm, kernel) in enumerate(zip(self.add_norms, self.kernels, strict=True)):
            place = index % len(SUBLAYERS)
            yield add_norm, lambda h, w=kernel: np.tanh(h @ w), place == 0, place == 2


def norm(layer, x):
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    return array(layer.gamma) * centred / scale + array(layer.beta)


def resi_dual(stack, x):
    p = d = x
    for add_norm, sublayer, _, _ in stack.branches():
        f = sublayer(p)
        p, d = norm(add_norm.post_norm, p + f), d + f
    return p + norm(stack.final_norm, d)


def b2t(stack, x):
    bottom = None
    for add_norm, sublayer, is_first, is_last in stack.branches():
        bottom = x if is_first else bottom
        x = norm(add_norm.post_norm, x + sublayer(x) + is_last * bottom)
    return x


def hyper_connections(stack, x):
    n = stack.scheme.num_streams
    streams = np.repeat(x[..., None, :], n, axis=-2)
    for a, sublayer, _, _ in stack.branches():
        read, mixing, write = map(array, (a.read_weights, a.mixing_weights, a.write_weights))
        if stack.scheme.dynamic:
            scale, write_scale = array(a.read_and_mixing_scale), array(a.write_scale)
            centred = streams - streams.mean(-1, keepdims=True)
            seen = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
            read = read + scale * np.tanh(seen @ array(a.read_projection))[..., 0]
            mixing = mixing + scale * np.tanh(seen @ array(a.mixing_projection))
            write = write + write_scale * np.tanh(seen @ array(a.write_projection))[..., 0]
        f = sublayer(norm(a.pre_norm, np.einsum("...i,...id->...d", read * np.ones(n), streams)))
        streams = np.einsum("...ji,...jd->...id", mixing, streams)
        streams = streams + (write * np.ones((*f.shape[:-1], n)))[..., None] * f[..., None, :]
    return norm(stack.final_norm, streams.mean(-2))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sinkhorn(logits, iterations):
    matrix = np.exp(logits)
    for _ in range(iterations):
        matrix = matrix / matrix.sum(0)
        matrix = matrix / matrix.sum(1)[:, None]
    return matrix


def manifold(make_matrix):
    def run(stack, x):
        n = stack.scheme.num_streams
        streams = np.repeat(x[..., None, :], n, axis=-2)
        for a, sublayer, _, _ in stack.branches():
            vector = streams.reshape(*x.shape[:-1], n * D)
            vector = vector / np.sqrt((vector**2).mean(-1, keepdims=True) + EPSILON)
            scales = array(a.scales)

            def made(name, index, a=a, vector=vector, scales=scales):
                projection = array(getattr(a, f"{name}_projection"))
                flat = projection.reshape(n * D, -1)
                return scales[index] * vector @ flat + array(getattr(a, f"{name}_bias"))

            read, write = sigmoid(made("read", 0)), 2 * sigmoid(made("write", 1))
            logits = made("mixing", 2)
            f = sublayer(norm(a.pre_norm, np.einsum("...i,...id->...d", read, streams)))
            after = np.empty_like(streams)
            for place in np.ndindex(x.shape[:-1]):
                matrix = make_matrix(logits[place], stack.scheme)
                after[place] = matrix @ streams[place] + np.outer(write[place], f[place])
            streams = after
        return norm(stack.final_norm, streams.mean(-2))

    return run


def permutation_mean(logits, scheme):
    weights = np.exp(logits) / np.exp(logits).sum()
    matrix = np.zeros((scheme.num_streams,) * 2)
    permutations = itertools.permutations(range(scheme.num_streams))
    for weight, permutation in zip(weights, permutations, strict=True):
        for row, column in enumerate(permutation):
            matrix[row, column] += weight
    return matrix


def attend(query, sources):
    sizes = [np.sqrt((v**2).mean(-1) + EPSILON) for v in sources]
    logits = np.stack([(v @ query) / s for v, s in zip(sources, sizes, strict=True)], -1)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return sum(weights[..., [i]] * v for i, v in enumerate(sources))


def attention_residuals(stack, x):
    size = stack.scheme.block_size or math.ceil(len(stack.add_norms) / 8)
    blocks, begun = [x], []
    for index, (a, sublayer, _, _) in enumerate(stack.branches()):
        sources = [*blocks, *([sum(begun)] if begun else [])]
        h = attend(array(a.query), sources) if index else x
        begun.append(sublayer(norm(a.pre_norm, h)))
        if len(begun) == size:
            blocks, begun = [*blocks, sum(begun)], []
    sources = [*blocks, *([sum(begun)] if begun else [])]
    (query,) = stack.ends.weights
    return norm(stack.final_norm, attend(array(query), sources))


def residual_scalars(stack, x):
    start = x
    for a, sublayer, is_first, _ in stack.branches():
        if is_first:
            x = array(a.stream_weight) * x + array(a.start_weight) * start
        x = x + sublayer(norm(a.pre_norm, x))
    return norm(stack.final_norm, x)


def dense_former(stack, x):
    outputs, scheme = [x], stack.scheme
    for a, sublayer, _, is_last in stack.branches():
        x = x + sublayer(norm(a.pre_norm, x))
        if is_last:
            outputs.append(x)
            layer = len(outputs) - 1
            if layer % scheme.period == 0:
                places = [j for j in range(layer + 1) if (layer - j) % scheme.dilation == 0]
                weights = array(a.depth_weights)
                x = sum(w * outputs[j] for w, j in zip(weights, places, strict=True))
    return norm(stack.final_norm, x)


def frac_connections(stack, x):
    m = stack.scheme.num_streams
    parts = x.reshape(*x.shape[:-1], m, D // m)
    for a, sublayer, _, _ in stack.branches():
        read, mixing, write = map(array, (a.read_weights, a.mixing_weights, a.write_weights))
        if stack.scheme.dynamic:
            scale, write_scale = array(a.read_and_mixing_scale), array(a.write_scale)
            centred = parts - parts.mean(-1, keepdims=True)
            seen = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
            read = read + scale * np.tanh(seen @ array(a.read_projection))
            mixing = mixing + scale * np.tanh(seen @ array(a.mixing_projection))
            write = write + write_scale * np.tanh(seen @ array(a.write_projection))[..., 0]
        h = np.einsum("...ji,...jd->...id", read, parts).reshape(x.shape)
        f = sublayer(norm(a.pre_norm, h)).reshape(parts.shape)
        parts = np.einsum("...ji,...jd->...id", mixing, parts) + write[..., None] * f
    return norm(stack.final_norm, parts.reshape(x.shape))


def dlcl(stack, x):
    outputs = [x]
    for a, sublayer, _, is_last in stack.branches():
        x = x + sublayer(norm(a.pre_norm, x))
        if is_last:
            outputs.append(norm(a.post_norm, x))
            x = np.einsum("k,k...->...", array(a.depth_weights), np.stack(outputs))
    return x


def siamese_norm(stack, x):
    y, layer = x, 0
    for a, sublayer, is_first, _ in stack.branches():
        layer += is_first
        x = norm(a.stream_norm, x)
        f = sublayer(norm(a.pre_norm, x + norm(a.sum_norm, y)))
        x, y = x + f / np.sqrt(2 * layer), y + f
    ends = stack.end_norms
    return norm(stack.final_norm, norm(ends["stream_norm"], x) + norm(ends["sum_norm"], y))


def kronecker_product(logits, scheme):
    matrix = np.eye(1)
    for stay, move in np.exp(logits).reshape(-1, 2):
        p = stay / (stay + move)
        matrix = np.kron(matrix, [[p, 1 - p], [1 - p, p]])
    return matrix


FORMULAS = {
    "ResiDual": resi_dual,
    "B2T": b2t,
    "HyperConnections": hyper_connections,
    "MHC": manifold(lambda logits, s: sinkhorn(logits.reshape(s.num_streams, -1), s.iterations)),
    "MHCLite": manifold(permutation_mean),
    "AttentionResiduals": attention_residuals,
    "ResidualScalars": residual_scalars,
    "DenseFormer": dense_former,
    "FracConnections": frac_connections,
    "DLCL": dlcl,
    "SiameseNorm": siamese_norm,
    "KromHC": manifold(kronecker_product),
}


def gradients(stack, x):
    """Return a number that depends on everything, and its derivatives, on any backend."""
    values = [weight.value for weight in stack.weights]
    direction = np.cos(np.arange(B * T * D)).reshape(B, T, D)

    def number(values):
        scope = keras.StatelessScope(list(zip(stack.weights, values, strict=True)))
        with scope:
            return ops.sum(stack(x) * ops.cast(direction, stack.dtype))

    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        value, found = jax.jit(jax.value_and_grad(number))(values)
    elif backend == "torch":
        import torch

        values = [value.detach().requires_grad_() for value in values]
        value = number(values)
        found = torch.autograd.grad(value, values, materialize_grads=True)
        value = value.detach()
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            value = number(values)
        found = tape.gradient(value, values, unconnected_gradients="zero")
    return array(value), [array(gradient) for gradient in found]
