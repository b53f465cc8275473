"""The linear recurrence `c_t = f_t * c_{t-1} + b_t`, computed for all positions in parallel."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.layers.shapes import size_of

Tensor = Any


def linear_recurrence(factors: Tensor, terms: Tensor, start: Tensor | None = None) -> Tensor:
    """Return `c_t = f_t * c_{t-1} + b_t` for all positions.

    Two positions in a row are one step of the same kind, `f = f_1 f_2` and `b = f_2 b_1 + b_2`. So
    the distance over which steps are joined doubles each time (Hillis and Steele, "Data Parallel
    Algorithms", 1986), until it spans the sequence. The gradient is again a linear recurrence, from
    the last position to the first, and nothing in between is kept for it.

    Args:
        factors: `f`, `(B, T, D)`.
        terms: `b`, `(B, T, D)`.
        start: `c_{-1}`, `(B, D)`; `None` for zeros.

    Returns:
        `c`, `(B, T, D)`.
    """
    if start is not None:
        first = terms[:, :1] + factors[:, :1] * ops.expand_dims(start, 1)
        if terms.shape[1] == 1:
            return first
        terms = ops.concatenate([first, terms[:, 1:]], axis=1)
    return terms if terms.shape[1] == 1 else _with_gradient(factors, terms)


@ops.custom_gradient
def _with_gradient(factors: Tensor, terms: Tensor) -> tuple[Tensor, Any]:
    states = _scan(factors, terms)

    def gradient(*args: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # Torch passes the arguments of the function too, and the gradient by name.
        (of_states,) = args if upstream is None else (upstream,)
        following = _shift(ops.flip(factors, axis=1), 1, 0.0)
        of_terms = ops.flip(_scan(following, ops.flip(of_states, axis=1)), axis=1)
        return of_terms * _shift(states, 1, 0.0), of_terms

    return states, gradient


def _scan(factors: Tensor, terms: Tensor) -> Tensor:
    length = size_of(terms, 1)
    if isinstance(length, int):
        distance = 1
        while distance < length:
            factors, terms = _join(factors, terms, distance)
            distance *= 2
        return terms

    def join(distance: Tensor, factors: Tensor, terms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return 2 * distance, *_join(factors, terms, distance)

    start = (ops.convert_to_tensor(1, dtype="int32"), factors, terms)
    _, _, states = ops.while_loop(lambda distance, *_: distance < length, join, start)
    return states


def _join(factors: Tensor, terms: Tensor, distance: int | Tensor) -> tuple[Tensor, Tensor]:
    """Return the steps, each joined with the one so many positions before."""
    terms = terms + factors * _shift(terms, distance, 0.0)
    return factors * _shift(factors, distance, 1.0), terms


def _shift(x: Tensor, distance: int | Tensor, fill: float) -> Tensor:
    """Return `x` `(B, T, D)` so many positions later, the first ones filled."""
    if isinstance(distance, int):
        padded = ops.pad(x, ((0, 0), (distance, 0), (0, 0)), constant_values=fill)
        return padded[:, : size_of(x, 1)]
    # Padding by a number that is unknown would have an unknown size, which XLA refuses.
    places = ops.arange(size_of(x, 1), dtype="int32") - distance
    moved = ops.take(x, ops.maximum(places, ops.cast(0, "int32")), axis=1)
    return ops.where(ops.reshape(places >= 0, (-1, 1)), moved, ops.cast(fill, x.dtype))
