"""The whole attention in float64 NumPy, one head and one pair of positions at a time."""

import cmath
import math

import numpy as np
from layers_reference import array, norm

SLOPES = {4: [1 / 4, 1 / 16, 1 / 64, 1 / 256]}


def t5_bucket(distance, num_buckets, max_distance, is_causal):
    """T5's own code for one distance, in plain Python."""
    bucket = 0
    if not is_causal:
        num_buckets //= 2
        bucket += num_buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = -min(distance, 0)
    exact = num_buckets // 2
    if distance < exact:
        return bucket + distance
    growth = math.log(distance / exact) / math.log(max_distance / exact)
    return bucket + min(exact + int(growth * (num_buckets - exact) + 1e-9), num_buckets - 1)


def rotated(vector, position, base=10000.0, scaling=None):
    """Half of the channels are the real part, half the imaginary one."""
    width = len(vector)
    factor = 1.0 if scaling is None else scaling["factor"]
    if scaling is not None and scaling["name"] == "ntk":
        base, factor = base * factor ** (width / (width - 2)), 1.0
    products = []
    for i in range(width // 2):
        angle = position / factor * base ** (-2 * i / width)
        products.append(complex(vector[i], vector[i + width // 2]) * cmath.exp(1j * angle))
    return np.array([z.real for z in products] + [z.imag for z in products])


def _heads(projection, x, heads):
    rows = x @ array(projection.kernel) + array(projection.bias)
    return rows.reshape(*rows.shape[:2], heads, -1)


def attention(layer, x, memory, mask=True, choices=(), positions=None, is_causal=False):
    """Return output `(B, T, D)` and weights `(B, H, T, S)`; positions are a dict with a name."""
    choices, positions = dict(choices), dict(positions or {"name": "none"})
    kind, num_heads = positions.pop("name"), layer.num_heads
    num_groups = choices.get("num_key_value_heads") or num_heads
    q = _heads(layer.query_projection, x, num_heads)
    k = _heads(layer.key_projection, memory, num_groups)
    v = _heads(layer.value_projection, memory, num_groups)
    if "query_key_norm" in choices:
        q, k = norm(layer.query_norm, q), norm(layer.key_norm, k)
    if "value_norm" in choices:
        v = norm(layer.value_norm, v)
    (batch, length, _, width), num_keys = q.shape, k.shape[1]
    mask = np.broadcast_to(mask, (batch, length, num_keys))
    own = [array(w) for w in layer._trainable_variables]  # the learned numbers, in file order
    scale = np.full(num_heads, width**-0.5)
    if "scale" in choices:
        scale = own.pop(0) if "learned" in str(choices["scale"]) else scale * 0 + choices["scale"]
    sink = None
    if "sink" in choices:
        sink = own.pop(0) if "learned" in str(choices["sink"]) else scale * 0 + choices["sink"]
    tables = [array(w) for w in layer.positions.weights] if layer.positions else []

    weights = np.zeros((batch, num_heads, length, num_keys))
    context = np.zeros((batch, length, num_heads, width))
    for b, t, h in np.ndindex(batch, length, num_heads):
        group, query = h // (num_heads // num_groups), q[b, t, h]
        logits = {}
        for s in range(num_keys):
            d, key = s - t, k[b, s, group]
            if not mask[b, t, s] or (is_causal and d > 0):
                continue
            if abs(d) >= choices.get("window", num_keys + length):
                continue
            if kind == "rotary":
                key, logit = rotated(key, s, **positions), None
                logit = rotated(query, t, **positions) @ key
            elif kind == "shaw":
                limit = positions["max_distance"]
                logit = query @ (key + tables[0][max(-limit, min(limit, d)) + limit])
            else:
                logit = query @ key
            logit *= scale[h]
            if "soft_cap" in choices:
                logit = choices["soft_cap"] * math.tanh(logit / choices["soft_cap"])
            if kind == "alibi":
                logit -= SLOPES[num_heads][h] * abs(d)
            elif kind == "t5":
                logit += tables[0][t5_bucket(d, **positions, is_causal=is_causal), h]
            logits[s] = logit
        total = sum(map(math.exp, logits.values())) + (0 if sink is None else math.exp(sink[h]))
        for s, logit in logits.items():
            weights[b, h, t, s] = math.exp(logit) / total
            value = v[b, s, group]
            if kind == "shaw":
                limit = positions["max_distance"]
                value = value + tables[1][max(-limit, min(limit, s - t)) + limit]
            context[b, t, h] += weights[b, h, t, s] * value
    flat = context.reshape(batch, length, -1)
    return flat @ array(layer.output_projection.kernel) + array(
        layer.output_projection.bias
    ), weights
