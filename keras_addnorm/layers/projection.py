"""The linear map that every sublayer is made of."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any

_NUM_SLICES = 4
"""Slices of a kernel that one row is multiplied with: on more cores than these it gains no more."""

_SMALLEST = 2**17
"""Kernels with fewer numbers are left whole: their slices would wait for each other for longer."""

_num_slices: contextvars.ContextVar[int | Tensor] = contextvars.ContextVar("num_slices", default=1)


@contextlib.contextmanager
def large_kernels_in_slices(num_rows: int | Tensor) -> Iterator[None]:
    """Let projections multiply a single row slice by slice of their kernels, side by side.

    For loops that decode one sentence: they take the time in which the weights come from memory,
    and compilers give the product of one row to one core. Products of several rows stay whole.

    Args:
        num_rows: Number of rows that are projected inside; a tensor where XLA alone knows it.

    Yields:
        Nothing.
    """
    if isinstance(num_rows, int):
        count = _NUM_SLICES if num_rows == 1 else 1
    else:  # XLA knows it when it compiles.
        count = ops.where(ops.equal(num_rows, 1), _NUM_SLICES, 1)
    token = _num_slices.set(count)
    try:
        yield
    finally:
        _num_slices.reset(token)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Projection(keras.layers.Dense):
    """A `keras.layers.Dense` that multiplies a flat list of tokens.

    The same weights, the same result and the same features (LoRA, quantisation); but a
    `(B, T, D)` input is multiplied as one `(B T, D)` matrix. TensorFlow without XLA multiplies a
    3-D tensor with a 2-D kernel about 1.6 times more slowly.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project the last axis.

        Args:
            inputs: `(..., D)`.
            training: Unused, as in `Dense`.

        Returns:
            `(..., units)`.
        """
        if len(inputs.shape) <= 2:
            return self._product(inputs, training)
        leading = leading_sizes(inputs, len(inputs.shape) - 1)
        # (..., D) -> (N, D) -> (N, units) -> (..., units)
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        return ops.reshape(self._product(flat, training), (*leading, self.units))

    def _product(self, x: Tensor, training: bool | None) -> Tensor:
        # (N, D) -> (N, units)
        count, width = _num_slices.get(), x.shape[-1]
        is_whole = isinstance(count, int) and count == 1
        if is_whole or width * self.units < _SMALLEST or width % _NUM_SLICES:
            return super().call(x, training=training)
        # (N, D) -> (C, N, D / C), and (D, units) -> (C, D / C, units), which moves nothing
        rows = ops.transpose(ops.reshape(x, (-1, count, width // count)), (1, 0, 2))
        slices = ops.reshape(self.kernel, (count, width // count, self.units))
        y = ops.reshape(ops.sum(ops.matmul(rows, slices), axis=0), (-1, self.units))
        if self.bias is not None:
            y = ops.add(y, self.bias)
        return y if self.activation is None else self.activation(y)

    def columns(self, units: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the projection on some of the units, as a function, for a loop.

        Args:
            units: Their numbers, `(M,)`.

        Returns:
            A function from `(N, D)` to `(N, M)`.
        """
        kernel = ops.take(ops.cast(self.kernel, self.compute_dtype), units, axis=1)
        bias = ops.take(ops.cast(self.bias, self.compute_dtype), units) if self.use_bias else 0.0
        return lambda x: ops.matmul(ops.cast(x, self.compute_dtype), kernel) + bias


def joined_weights(projections: Sequence[Projection]) -> tuple[Tensor, ...]:
    """Return the weights of several projections of the same rows as those of one.

    Args:
        projections: The projections, of `(N, D)`.

    Returns:
        The kernel `(D, units)`, with the units of all of them, and, if they have biases, the bias.
        `()` if one is quantised.
    """
    if any(one.quantization_mode for one in projections):
        return ()
    dtype = projections[0].compute_dtype
    kernel = ops.concatenate([ops.cast(one.kernel, dtype) for one in projections], axis=1)
    if not projections[0].use_bias:
        return (kernel,)
    return kernel, ops.concatenate([ops.cast(one.bias, dtype) for one in projections])


def project_jointly(
    x: Tensor, projections: Sequence[Projection], weights: tuple[Tensor, ...]
) -> Sequence[Tensor]:
    """Return what several projections return of the same rows, by one product.

    Args:
        x: `(..., D)`.
        projections: The projections.
        weights: Their `joined_weights`.

    Returns:
        `(..., units)` of each.
    """
    kernel, *bias = weights
    leading = leading_sizes(x, len(x.shape) - 1)
    # (..., D) -> (N, D) -> (N, units) -> (..., units)
    y = ops.matmul(ops.reshape(ops.cast(x, kernel.dtype), (-1, x.shape[-1])), kernel)
    y = ops.add(y, bias[0]) if bias else y
    ends = list(itertools.accumulate(one.units for one in projections))
    if len({one.units for one in projections}) == 1:
        parts = ops.split(y, len(projections), axis=-1)
    else:  # Which Keras would split by sizes that it works out at each step.
        parts = [y[:, start:end] for start, end in itertools.pairwise([0, *ends])]
    return [ops.reshape(part, (*leading, part.shape[-1])) for part in parts]


def require_hidden_dim(shape: tuple[int | None, ...]) -> int:
    """Return the width of the residual stream, the last axis of `shape`."""
    if len(shape) < 2 or shape[-1] is None:
        raise ValueError(
            "The width of the residual stream has to be known when a layer is built. Expected "
            f"shape (batch, length, hidden_dim). Received: {tuple(shape)}"
        )
    return shape[-1]
