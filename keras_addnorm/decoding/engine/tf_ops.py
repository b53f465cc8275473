"""The operations of TensorFlow that are fastest in loops without XLA.

oneDNN takes over products, softmaxes and transpositions of floating-point numbers. It hands even
the smallest of them to other threads, and waits. The operations here avoid oneDNN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any

IN_PLACE_UPDATE = "TensorStridedSliceUpdate"
"""The operation of `update_slice`. In a loop, only searches write with it."""


def update_slice(x: Tensor, part: Tensor, axis: int, start: int | Tensor) -> Tensor:
    """Return `x` with `part` along an axis from `start` on; in place without another reader.

    `keras.ops.slice_update` is an operation of XLA, which stock TensorFlow Serving refuses to run.
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
    """Return products of matrices by rows: `(..., T, K)`, `(..., K, S)` -> `(..., T, S)`.

    The one product that oneDNN does not take over is slow where both matrices have several rows. So
    each row is a product of its own, with a matrix that is not copied.
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
    """Return `x` with its axes in the order `axes`, its numbers moved as integers.

    TensorFlow takes the same time to move a number of 4 or 8 bytes: where the last axis stays, two
    float32 numbers move as one.
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

    # Keras' operation handles negative zeros separately, with further operations.
    return tf.argmax(x, axis=-1, output_type=tf.int32)


def hide_static_shape(x: Tensor) -> Tensor:
    """Hide the static shape of a tensor, or the value of a number, from tracing."""
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None] * x.shape.rank)


class StepLoop(NamedTuple):
    """A loop over the steps of a search.

    Args:
        cache: The place of a cache among the loop's tensors. The cache's first axis counts beams,
            or, of states, hypotheses: beams of one.
        rows_per_beam: Number of hypotheses of each beam that a step writes.
    """

    cache: int
    rows_per_beam: int


def find_step_loop(body: Any) -> StepLoop | None:
    """Return what a loop, of this `FunctionDef`, is if a search of `TFGraphEngine` runs it.

    Its body writes caches in place: a column for each hypothesis of a beam, first of keys, or one
    of the states of all hypotheses. Nothing else does that in a loop.
    """
    nodes = {node.name: node for node in body.node_def}
    places = {argument.name: place for place, argument in enumerate(body.signature.input_arg)}

    def reshape(read: str) -> Any:
        node = nodes.get(read.partition(":")[0])
        return node if node is not None and node.op == "Reshape" else None

    for node in body.node_def:
        if node.op == IN_PLACE_UPDATE:
            cache, *_, columns = node.input
            while (source := reshape(cache)) is not None:
                cache = source.input[0]
            made = reshape(columns)
            if cache in places and made is not None:
                (shape,) = made.attr["_output_shapes"].list.shape
                return StepLoop(places[cache], shape.dim[-1].size)
    return None
