"""Splits requests of any size into batches that fit memory and have few shapes.

A request may have thousands of texts of any length. `map_in_batches` decodes them in batches of
texts of similar length, and returns the results in the order of the request. `Buckets` rounds
shapes up, so that XLA, which compiles a program for every shape, compiles a bounded number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError

Outputs = dict[str, tf.Tensor]
Function = Callable[..., Outputs]
"""Takes matrices of token ids, each (B, its length); returns tensors with B rows."""

_BATCH = (1, 4, 16, 64)
_LENGTH = (16, 32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class Buckets:
    """The shapes that inputs are rounded up to.

    Args:
        batch: Numbers of rows, rising. The last one is the largest batch.
        length: Numbers of columns, rising.

    Raises:
        ValueError: If there are none, they do not rise, or one is no positive int.
    """

    batch: tuple[int, ...]
    length: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("batch", "length"):
            sizes = getattr(self, name)
            are_sizes = isinstance(sizes, tuple) and all(is_whole(size, 1) for size in sizes)
            if not are_sizes or not sizes or list(sizes) != sorted(set(sizes)):
                raise ArgumentError(
                    expected=f"rising positive sizes as {name} buckets, at least one", value=sizes
                )

    @classmethod
    def of(cls, batch: Sequence[int] | None, length: Sequence[int] | None, longest: int) -> Buckets:
        """Makes buckets, by default the usual ones, whose last length is `longest`."""
        given = cls(  # checks them
            _as_tuple(_BATCH if batch is None else batch),
            _as_tuple(_LENGTH if length is None else length),
        )
        shorter = (int(size) for size in given.length if size < longest)
        return cls(tuple(map(int, given.batch)), (*shorter, longest))

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """All shapes; XLA compiles at most one program for each."""
        return [(rows, columns) for rows in self.batch for columns in self.length]

    def compile(self, function: Function, pad_id: int) -> Function:
        """Compiles a function of independent rows of ids with XLA, and pads its inputs to buckets.

        An output with a column for each column of an input has a column for each one of the bucket.
        """
        compiled = tf.function(function, jit_compile=True, autograph=False)

        def call(*ids: tf.Tensor) -> Outputs:
            rows = tf.shape(ids[0])[0]
            outputs = compiled(*[self._pad(matrix, pad_id) for matrix in ids])
            return {name: output[:rows] for name, output in outputs.items()}

        return call

    def _pad(self, ids: tf.Tensor, pad_id: int) -> tf.Tensor:
        shape = tf.shape(ids)
        missing_rows = _round_up(shape[0], self.batch) - shape[0]
        missing_columns = _round_up(shape[1], self.length) - shape[1]
        padding = [[0, missing_rows], [0, missing_columns]]
        return tf.pad(ids, padding, constant_values=pad_id)


def map_in_batches(
    function: Function,
    ids: Sequence[tf.Tensor],
    outputs: Mapping[str, tf.TensorSpec],
    *,
    batch_size: int,
    pad_id: int,
) -> Outputs:
    """Applies a function to the rows of a request in batches, and keeps their order.

    Rows are sorted by their length in the first matrix, and each batch is cut to its longest row.
    So short texts do not wait for long ones, and one batch bounds the memory.

    Args:
        function: The function to apply.
        ids: Matrices of token ids with B rows each.
        outputs: For each output its dtype and its shape, with rows as the first, unknown axis.
        batch_size: Largest number of rows in a batch.
        pad_id: The id of padding.

    Returns:
        The outputs for all rows.
    """
    order = tf.argsort(_lengths(ids[0], pad_id), stable=True)
    # A request without rows makes one empty batch, so that the outputs have the right shapes.
    num_batches = tf.maximum(1, -(-tf.size(order) // batch_size))
    arrays = {
        name: tf.TensorArray(spec.dtype, num_batches, infer_shape=False, element_shape=spec.shape)
        for name, spec in outputs.items()
    }

    def step(
        index: tf.Tensor, arrays: dict[str, tf.TensorArray]
    ) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
        rows = order[index * batch_size : (index + 1) * batch_size]
        results = function(*[_trim(tf.gather(matrix, rows), pad_id) for matrix in ids])
        return index + 1, {
            name: array.write(index, tf.ensure_shape(results[name], outputs[name].shape))
            for name, array in arrays.items()
        }

    # One batch at a time, to bound the memory.
    _, arrays = tf.while_loop(
        lambda index, arrays: index < num_batches, step, (0, arrays), parallel_iterations=1
    )
    back = tf.argsort(order)
    return {name: tf.gather(array.concat(), back) for name, array in arrays.items()}


def _as_tuple(sizes: Any) -> Any:
    return tuple(sizes) if isinstance(sizes, Iterable) else sizes


def _lengths(ids: tf.Tensor, pad_id: int) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.not_equal(ids, pad_id), tf.int32), axis=1)


def _trim(ids: tf.Tensor, pad_id: int) -> tf.Tensor:
    # Keep at least one column, even if no row has a token.
    return ids[:, : tf.reduce_max(tf.concat([_lengths(ids, pad_id), [1]], 0))]


def _round_up(size: tf.Tensor, sizes: tuple[int, ...]) -> tf.Tensor:
    return tf.gather(tf.constant(sizes), tf.searchsorted(tf.constant(sizes), size[None]))[0]
