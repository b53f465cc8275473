"""Operations of TensorFlow that loops without XLA run fastest with.

oneDNN takes over products, softmaxes and transpositions of floating-point numbers, hands the
smallest of them to other threads, and waits. These operations are ones that it leaves alone.
"""

from __future__ import annotations

from typing import Any

from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any

IN_PLACE_UPDATE = "TensorStridedSliceUpdate"
"""The operation of `update_slice`. Nothing but a search writes with it in a loop."""


def update_slice(x: Tensor, part: Tensor, axis: int, start: int | Tensor) -> Tensor:
    """Return `x` with `part` from `start` on; in place if `x` has no other reader.

    `keras.ops.slice_update` is an operation of XLA, which stock TensorFlow Serving refuses to run.

    Args:
        x: A tensor.
        part: Of its shape, but for one axis.
        axis: That axis.
        start: Where the part goes.

    Returns:
        A tensor of the shape of `x`.
    """
    import tensorflow as tf

    whole = 2**axis - 1  # A bit for each axis before.
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=x,
        begin=tf.stack([0] * axis + [start]),
        end=tf.stack([0] * axis + [start + part.shape[axis]]),
        strides=[1] * (axis + 1),
        value=part,
        begin_mask=whole,
        end_mask=whole,
    )


def matmul_by_row(x: Tensor, y: Tensor) -> Tensor:
    """Return products of matrices, each row of `x` by itself.

    The one product that oneDNN leaves alone is slow where both matrices have several rows, so each
    row is a product of its own, of a matrix that is not copied for it.

    Args:
        x: `(..., T, K)`.
        y: `(..., K, S)`.

    Returns:
        `(..., T, S)`.
    """
    import tensorflow as tf

    # On processors the operation has no kernel for float16.
    if x.dtype != tf.float32:
        return tf.matmul(x, y)
    if x.shape[-2] == 1:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype)
    rows, matrices = tf.expand_dims(x, -2), tf.expand_dims(y, -3)
    return tf.squeeze(tf.raw_ops.BatchMatMulV3(x=rows, y=matrices, Tout=x.dtype), -2)


def transpose(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return `x` with its axes in another order, moved as integers.

    Each number takes its time, whatever its size: where the last axis stays, two go as one.

    Args:
        x: A tensor.
        axes: The order.

    Returns:
        The same numbers.
    """
    import tensorflow as tf

    last, width = len(axes) - 1, x.shape[-1]
    if x.dtype != tf.float32:
        return tf.transpose(x, axes)
    if axes[last] != last or width is None or width % 2:
        return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32), axes), x.dtype)
    pairs = tf.reshape(x, (*leading_sizes(x, last), width // 2, 2))
    moved = tf.bitcast(tf.transpose(tf.bitcast(pairs, tf.int64), axes), x.dtype)
    return tf.reshape(moved, (*leading_sizes(moved, last), width))


def argmax(x: Tensor) -> Tensor:
    """Return where the largest number of each row of `(N, M)` stands, the first of equals."""
    import tensorflow as tf

    # Keras' operation looks for negative zeros first.
    return tf.argmax(x, axis=-1, output_type=tf.int32)


def hide_static_shape(x: Tensor) -> Tensor:
    """Hide the static shape of a tensor, or the value of a number, from tracing."""
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None] * x.shape.rank)
