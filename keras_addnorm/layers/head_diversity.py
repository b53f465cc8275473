"""Disagreement regularisation: a loss that keeps the heads of an attention apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError

Tensor = Any


@dataclasses.dataclass(frozen=True)
class HeadDiversity:
    """A loss on heads that agree, added while training: the paper's "disagreement", negated.

    Agreement is a mean over all pairs of heads, each with itself included, and over all positions
    that are not padding: of the cosine between the heads' values (`subspaces`), of the product of
    their attention weights, summed over keys (`positions`), and of the cosine between their outputs
    (`outputs`). Heads that do the same have the agreement 1 (in `positions`, if they look at one
    key only).

    Args:
        subspaces: Factor on the agreement of values; with shared keys and values, of those.
        positions: Factor on the agreement of attention weights.
        outputs: Factor on the agreement of outputs, before the output projection.

    Raises:
        ValueError: If a factor is negative or all are zero.

    Reference:
        Li et al., "Multi-Head Attention with Disagreement Regularization", 2018, equations 5 to 8
        (arXiv 1810.10183).
    """

    subspaces: float = 0.0
    positions: float = 0.0
    outputs: float = 0.0

    def __post_init__(self) -> None:
        factors = dataclasses.astuple(self)
        if not all(is_number(factor, least=0) for factor in factors) or not any(factors):
            raise ArgumentError(
                "The head diversity needs factors.",
                "subspaces, positions and outputs of 0 or more, not all of them 0",
                value=self,
            )

    def loss(
        self,
        values: Tensor,
        weights: Tensor,
        context: Tensor,
        key_mask: Tensor | None,
        query_mask: Tensor | None,
    ) -> Tensor:
        """Return the weighted sum of the three agreements.

        Args:
            values: `(B, S, G, K)`.
            weights: `(B, H, T, S)`.
            context: `(B, T, H, K)`.
            key_mask: `(B, S)`, True at real tokens, or `None`.
            query_mask: `(B, T)`, True at real tokens, or `None`.

        Returns:
            A scalar in float32 or better.
        """
        terms = (
            (self.subspaces, lambda: agreement(unit_vectors(values), key_mask)),
            # (B, H, T, S) -> (B, T, H, S)
            (self.positions, lambda: agreement(ops.swapaxes(weights, 1, 2), query_mask)),
            (self.outputs, lambda: agreement(unit_vectors(context), query_mask)),
        )
        return sum(factor * term() for factor, term in terms if factor)


def agreement(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean product of each two heads' vectors, over positions.

    Args:
        x: A vector for each head and position, `(B, T, H, n)`.
        mask: `(B, T)`, True at the positions that count; `None` for all.

    Returns:
        `mean_t 1/H^2 sum_ij x_ti . x_tj`, a scalar.
    """
    x = _in_float32(x)
    # The mean over all pairs is the squared length of the mean over heads.
    pairs = ops.sum(ops.square(ops.mean(x, axis=2)), axis=-1)
    counts = ops.ones_like(pairs) if mask is None else ops.cast(mask, pairs.dtype)
    return ops.sum(pairs * counts) / ops.maximum(ops.sum(counts), 1.0)


def unit_vectors(x: Tensor) -> Tensor:
    """Return vectors of length one along the last axis; those of length zero stay."""
    x = _in_float32(x)
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-12))


def _in_float32(x: Tensor) -> Tensor:
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
