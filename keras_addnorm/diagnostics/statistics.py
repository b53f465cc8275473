"""The formulas behind a report, on NumPy arrays. `real` is True at tokens that are not padding."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def rms(x: Array, real: Array) -> float:
    """Return the root mean square over the real positions; `x` `(B, T, D)`, `real` `(B, T)`."""
    rows = _rows(x, real)
    return float(np.sqrt(np.mean(rows**2))) if rows.size else 0.0


def mean(x: Array, real: Array) -> float:
    """Return the mean of all channels over the real positions."""
    rows = _rows(x, real)
    return float(rows.mean()) if rows.size else 0.0


def norm_ratio(a: Array, b: Array, real: Array) -> float:
    """Return `||a|| / ||b||` over the real positions; 0 if both are zero."""
    above, below = np.linalg.norm(_rows(a, real)), np.linalg.norm(_rows(b, real))
    if below == 0:
        return 0.0 if above == 0 else float("inf")
    return float(above / below)


def mean_cosine(a: Array, b: Array, real: Array) -> float:
    """Mean over the real positions of `<a, b> / (||a|| ||b||)`.

    Args:
        a: `(B, T, D)`.
        b: The same.
        real: `(B, T)`.

    Returns:
        The mean cosine; a position where `a` or `b` is zero counts 0.
    """
    a, b = _rows(a, real), _rows(b, real)
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    products = np.sum(a * b, axis=-1)
    cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths != 0)
    return float(cosines.mean()) if cosines.size else 0.0


def mean_and_variance(x: Array, real: Array) -> tuple[float, float]:
    """Return the mean over all real positions, and the mean of each one's variance in LayerNorm."""
    rows = _rows(x, real)
    return mean(x, real), float(rows.var(axis=-1).mean()) if rows.size else 0.0


def dead_share(activations: Array, real: Array, *, is_gated: bool) -> float:
    """Share of the units that do nothing on the whole batch.

    A unit is dead if its activation is never positive: zero everywhere under ReLU, only in the
    flat tail under GELU or SiLU. The product of a gated unit has a sign of its own: it is dead if
    it stays below a thousandth of the root mean square of all units.

    Args:
        activations: After nonlinearity and gate, `(B, T, F)`.
        real: `(B, T)`.
        is_gated: Whether a gate multiplies the units.

    Returns:
        The share, from 0 to 1.
    """
    rows = _rows(activations, real)
    if not rows.size:
        return 0.0
    if is_gated:
        level = 1e-3 * np.sqrt(np.mean(rows**2))
        return float(np.mean(np.abs(rows).max(axis=0) <= level))
    return float(np.mean(rows.max(axis=0) <= 0))


def head_entropies(weights: Array, real: Array) -> tuple[Array, Array]:
    """Mean entropy of each head, in nats and as a share of what it could be.

    For one query, `-sum_s p_s log p_s`; its share is that divided by `log n`, n the number of keys
    that the query can see (those to which any head gives weight). Means over the real queries; for
    the share, over those that see at least two keys.

    Args:
        weights: `(B, H, T, S)`.
        real: Of the queries, `(B, T)`.

    Returns:
        Nats `(H,)` and shares `(H,)`.
    """
    p = _queries(weights, real)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropy = -np.sum(p * logs, axis=-1)
    keys = _visible(p).sum(axis=-1)[..., 0]
    several = keys >= 2
    if not several.any():
        return entropy.mean(axis=0) if len(p) else np.zeros(p.shape[1]), np.zeros(p.shape[1])
    share = entropy[several] / np.log(keys[several])[:, None]
    return entropy.mean(axis=0), share.mean(axis=0)


def head_similarity(weights: Array, real: Array) -> Array:
    """How alike two heads look: the cosine of their deviations from looking everywhere evenly.

    With `d = p - 1/n` (n as in `head_entropies`), `<d_a, d_b> / (||d_a|| ||d_b||)` over all real
    queries and their keys. 1: one head copies the other. Two heads that both look everywhere
    evenly have nothing in common that could be copied, and count 0.

    Args:
        weights: `(B, H, T, S)`.
        real: Of the queries, `(B, T)`.

    Returns:
        `(H, H)`, symmetric, with ones on the diagonal.
    """
    p = _queries(weights, real)
    visible = _visible(p)
    keys = np.maximum(visible.sum(axis=-1, keepdims=True), 1)
    deviation = np.where(visible, p - 1 / keys, 0)
    # (N, H, S) -> (H, N S)
    flat = deviation.transpose(1, 0, 2).reshape(p.shape[1], -1)
    lengths = np.linalg.norm(flat, axis=-1)
    # What float32 leaves of an even distribution is no direction.
    lengths = np.where(lengths > 1e-6 * np.sqrt(max(1, len(p))), lengths, np.inf)
    similarity = (flat @ flat.T) / np.outer(lengths, lengths)
    np.fill_diagonal(similarity, 1)
    return similarity


def head_patterns(weights: Array, real: Array) -> dict[str, Array]:
    """How far each head looks where a simple rule says: the mean weight of the rule's key.

    Query t looks at key t - 1 (`previous`), t (`own`), t + 1 (`next`), at the first key that it can
    see (`first`) or at the last one (`last`). Means over the real queries that can see such a key;
    a rule that none can follow, as `next` under a causal mask, is left out. `even` is what a head
    has that looks everywhere evenly, the mean of 1/n (n as in `head_entropies`).

    Args:
        weights: `(B, H, T, S)`.
        real: Of the queries, `(B, T)`.

    Returns:
        By rule `(H,)`, each from 0 to 1.
    """
    p = _queries(weights, real)
    visible = _visible(p)[:, 0]
    places = np.nonzero(real)[1]
    length = visible.shape[-1]
    keys = {
        "previous": places - 1,
        "own": places,
        "next": places + 1,
        "first": np.argmax(visible, axis=-1),
        "last": length - 1 - np.argmax(visible[:, ::-1], axis=-1),
    }
    found = {}
    for name, key in keys.items():
        inside = (key >= 0) & (key < length)
        inside[inside] = visible[inside, key[inside]]
        if inside.any():
            found[name] = p[inside, :, key[inside]].mean(axis=0)
    counts = visible.sum(axis=-1)
    if counts.any():
        found["even"] = np.full(p.shape[1], np.mean(1 / counts[counts > 0]))
    return found


def free_weights(weights: Array, real: Array) -> int:
    """Count the weights of a head that are free: a query's weights sum to 1."""
    keys = _visible(_queries(weights, real)).sum(axis=-1)
    return int(np.maximum(keys - 1, 0).sum())


def _rows(x: Array, real: Array) -> Array:
    # (B, T, D) -> (N, D), the real positions
    return np.asarray(x, "float64")[real]


def _queries(weights: Array, real: Array) -> Array:
    # (B, H, T, S) -> (B, T, H, S) -> (N, H, S)
    return np.asarray(weights, "float64").transpose(0, 2, 1, 3)[real]


def _visible(p: Array) -> Array:
    # (N, H, S) -> (N, 1, S)
    return np.any(p > 0, axis=1, keepdims=True)
