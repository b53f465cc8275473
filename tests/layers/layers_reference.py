"""The papers' formulas in float64 NumPy, and helpers that put random numbers into real layers.

B batch, T target length, S source length, D hidden width, H heads, K head width, F intermediate:
different numbers, mostly primes, so that a swapped axis cannot pass.
"""

import keras
import numpy as np
from norm_formulas import FORMULAS as FORMULAS_OF_NORMS

from keras_addnorm import norms, schemes
from keras_addnorm.schemes import StackPosition

B, T, S, H, K, F = 2, 5, 7, 3, 11, 13
D = H * K
EPSILON = 1e-6

NORMS = ("layer_norm", "rms_norm")


def random(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


def array(weight):
    return keras.ops.convert_to_numpy(weight).astype("float64")


def randomize(layer, seed=5):
    """Move every weight away from its ones and zeros, so that none can be left out unseen."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        noise = rng.normal(scale=0.3, size=tuple(weight.shape))
        weight.assign(array(weight) + noise)
    return layer


def shut_gates(layer):
    """Put GPAS' gates where its gradients are slopes: elsewhere they are others on purpose."""
    for weight in layer.weights:
        if weight.name == "gate":
            weight.assign(0.0)


# Add & Norm


def norm(layer, x):
    """The formula of a norm, outside of training."""
    name = next(name for name in norms.names() if type(layer) is norms.get(name).args[0])
    weights = map(array, layer.trainable_weights)
    if name == "batch_norm":
        gamma, beta = weights
        scale = gamma / np.sqrt(array(layer.moving_variance) + EPSILON)
        return scale * (x - array(layer.moving_mean)) + beta
    return FORMULAS_OF_NORMS[name](x, *weights, epsilon=EPSILON)


def pre_norm(a, x):
    return norm(a.pre_norm, x)


def itself(a, x):
    return x


def total(a, x, f):
    return x + f


def normed_total(a, x, f):
    return norm(a.post_norm, x + f)


def with_normed_branch(a, x, f):
    return x + norm(a.branch_norm, f)


def with_scaled_branch(a, x, f):
    return x + array(a.branch_scale) * f


def keel(a, x, f):
    place = a.position
    if (place.layer_index, place.sublayer) == (0, "self_attention"):
        return x + f
    return norm(a.post_norm, keel_alpha(place) * x + f)


def gated_total(a, x, f):
    gate = array(a.gate)
    return (1 - gate / (1 + np.exp(-gate))) * (x + f)


# What the sublayer reads, and what its output makes of the stream: one formula for each scheme.
SCHEME_FORMULAS = {
    "post_ln": (itself, normed_total),
    "pre_ln": (pre_norm, total),
    "sandwich_ln": (pre_norm, with_normed_branch),
    "res_post_norm": (itself, with_normed_branch),
    "sub_ln": (pre_norm, total),
    "mix_ln": (
        lambda a, x: x if is_early(a) else pre_norm(a, x),
        lambda a, x, f: normed_total(a, x, f) if is_early(a) else x + f,
    ),
    "ln_scaling": (lambda a, x: pre_norm(a, x) / np.sqrt(a.position.layer_index + 1), total),
    "hybrid_norm": (
        lambda a, x: x if is_attention(a) else pre_norm(a, x),
        lambda a, x, f: (x if is_attention(a) else pre_norm(a, x)) + f,
    ),
    "deep_norm": (
        itself,
        lambda a, x, f: norm(a.post_norm, deep_norm_alpha(a.position) * x + f),
    ),
    "ds_init": (itself, normed_total),
    "keel": (pre_norm, keel),
    "admin": (itself, lambda a, x, f: norm(a.post_norm, array(a.skip_scale) * x + f)),
    "gpas": (pre_norm, gated_total),
    "rezero": (itself, with_scaled_branch),
    "t_fixup": (itself, total),
    "layer_scale": (pre_norm, with_scaled_branch),
    "orthogonal": (pre_norm, lambda a, x, f: orthogonal(x, f)),
    "deep_delta": (pre_norm, lambda a, x, f: deep_delta(a, x, f)),
    "pro_res": (pre_norm, lambda a, x, f: x + came_in(a) * f),
    "no_norm": (itself, total),
    "no_residual": (itself, lambda a, x, f: norm(a.post_norm, f)),
    "plain": (itself, lambda a, x, f: f),
}
SCHEMES = tuple(SCHEME_FORMULAS)


def branch_input(add_norm, name, x):
    return SCHEME_FORMULAS[name][0](add_norm, x)


def merge(add_norm, name, x, f):
    return SCHEME_FORMULAS[name][1](add_norm, x, f)


def is_early(add_norm):
    """Whether Mix-LN is Post-LN here."""
    return add_norm.position.layer_index < np.floor(add_norm.scheme.share * add_norm.position.depth)


def is_attention(add_norm):
    return "attention" in str(add_norm.position.sublayer)


def keel_alpha(position):
    """The number of sublayers, by counting them."""
    if position.layer_index == 0:
        return 1
    names = ["self_attention", "feed_forward"]
    if position.side == "decoder" and position.num_encoder_layers:
        names.append("cross_attention")
    return len([(layer, name) for layer in range(position.depth) for name in names])


def orthogonal(x, f):
    """One position at a time."""
    y = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        share = x[place] @ f[place] / (x[place] @ x[place] + 1e-6)
        y[place] = x[place] + f[place] - share * x[place]
    return y


def deep_delta(a, x, f):
    """One position at a time, as a matrix: (I - b k k^T) x + b k v."""
    y = np.empty_like(x)
    step_weights, value_weights = array(a.step_weights), array(a.value_weights)
    steps = 2 / (1 + np.exp(-pre_norm(a, x) @ step_weights - array(a.step_bias)))
    for place in np.ndindex(x.shape[:-1]):
        direction = f[place] / np.sqrt(f[place] @ f[place] + 1e-6)
        value = 4 / (1 + np.exp(-x[place] @ value_weights))
        turned = np.eye(len(direction)) - steps[place] * np.outer(direction, direction)
        y[place] = turned @ x[place] + steps[place] * value * direction
    return y


def came_in(a):
    """The share of ProRes' branch that is there."""
    return array(a.step) / (a.scheme.warmup_steps * (a.position.layer_index + 1))


def deep_norm_alpha(position):
    n, m = position.num_encoder_layers, position.num_decoder_layers
    if 0 in (n, m):
        return (2 * (n + m)) ** 0.25
    return 0.81 * (n**4 * m) ** 0.0625 if position.side == "encoder" else (3 * m) ** 0.25


# Attention


def project(projection, x):
    return x @ array(projection.kernel) + array(projection.bias)


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def masked_softmax(logits, mask):
    """Write zeros where the mask is False, by loops over rows and without infinities."""
    weights = np.zeros_like(logits)
    mask = np.broadcast_to(mask, logits.shape)
    for row in np.ndindex(logits.shape[:-1]):
        keys = np.flatnonzero(mask[row])
        if len(keys):
            weights[row][keys] = softmax(logits[row][keys])
    return weights


def by_head(layer, name, x, width):
    """The norm of each head, where the attention has one."""
    if not hasattr(layer, name):
        return x
    heads = [x[..., start : start + width] for start in range(0, x.shape[-1], width)]
    return np.concatenate([norm(getattr(layer, name), head) for head in heads], -1)


def attention(layer, x, memory, mask=True, heads=H):
    """Return the output `(B, T, D)` and the weights `(B, H, T, S)`, one head at a time."""
    q, k, v = (
        project(p, rows)
        for p, rows in (
            (layer.query_projection, x),
            (layer.key_projection, memory),
            (layer.value_projection, memory),
        )
    )
    width = q.shape[-1] // heads
    q, k, v = (
        by_head(layer, name, rows, width)
        for name, rows in (("query_norm", q), ("key_norm", k), ("value_norm", v))
    )
    mask = np.broadcast_to(mask, (x.shape[0], x.shape[1], memory.shape[1]))
    contexts, weights = [], []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        logits = np.stack([a @ b.T for a, b in zip(q[..., own], k[..., own], strict=True)])
        weights.append(masked_softmax(logits / np.sqrt(width), mask))
        contexts.append(np.stack([w @ b for w, b in zip(weights[-1], v[..., own], strict=True)]))
    context = inner_norm(layer, np.concatenate(contexts, -1))
    return project(layer.output_projection, context), np.stack(weights, 1)


# Feed-forward, layers, stacks


def feed_forward(layer, x):
    h = inner_norm(layer, np.maximum(project(layer.intermediate_projection, x), 0))
    return project(layer.output_projection, h)


def inner_norm(sublayer, h):
    return h if sublayer.inner_norm is None else norm(sublayer.inner_norm, h)


def encoder_layer(layer, name, x, mask=True):
    a = layer.self_attention_add_norm
    h = branch_input(a, name, x)
    x = merge(a, name, x, attention(layer.self_attention, h, h, mask)[0])
    a = layer.feed_forward_add_norm
    return merge(a, name, x, feed_forward(layer.feed_forward, branch_input(a, name, x)))


def decoder_layer(layer, name, x, memory, mask=True, memory_mask=True):
    causal = np.tri(x.shape[1], dtype=bool)
    a = layer.self_attention_add_norm
    h = branch_input(a, name, x)
    x = merge(a, name, x, attention(layer.self_attention, h, h, causal & mask)[0])
    if memory is not None:
        a = layer.cross_attention_add_norm
        h = branch_input(a, name, x)
        x = merge(a, name, x, attention(layer.cross_attention, h, memory, memory_mask)[0])
    a = layer.feed_forward_add_norm
    return merge(a, name, x, feed_forward(layer.feed_forward, branch_input(a, name, x)))


def position(side="encoder", num_encoder_layers=2, num_decoder_layers=3, layer_index=1):
    return StackPosition(num_encoder_layers, num_decoder_layers, side, layer_index)


def final_norm(stack, x):
    assert (stack.final_norm is not None) == schemes.get(stack.scheme).needs_final_norm
    return x if stack.final_norm is None else norm(stack.final_norm, x)


def padding(lengths, total):
    """Booleans `(B, total)`, True at the first `lengths[b]` positions of row b."""
    return np.arange(total) < np.asarray(lengths)[:, None]
