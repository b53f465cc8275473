"""Compiles a function of tensors with whatever the Keras backend compiles with.

And has the few operations that are faster in a backend's own words than in Keras'. The one file
outside `data/` and `serving/` that may import a backend, and only when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import keras
import numpy as np

from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any
Function = Callable[..., Any]
"""Takes tensors, returns tensors in any structure."""


def run_compiled(
    model: keras.Model,
    key: Hashable,
    function: Function,
    inputs: tuple[np.ndarray, ...],
    jit_compile: bool,
) -> Any:
    """Run a function of tensors, compiled once for each key and each shape of its inputs.

    Args:
        model: The model whose weights the function reads. It keeps what was compiled.
        key: What the function does, besides its inputs: equal keys, equal functions.
        function: The function.
        inputs: Its inputs.
        jit_compile: Whether TensorFlow compiles with XLA. JAX always does, torch runs eagerly.

    Returns:
        What the function returns, as NumPy arrays.
    """
    # Kept in the model's own dict: compiled functions live and die with the model, and Keras does
    # not track them as state.
    compiled = vars(model).setdefault("_compiled_decoders", {})
    key = (key, tuple((array.shape, array.dtype.str) for array in inputs), jit_compile)
    if key not in compiled:
        compiled[key] = compile_function(model, function, inputs, jit_compile)
    tensors = [keras.ops.convert_to_tensor(array) for array in inputs]
    return keras.tree.map_structure(keras.ops.convert_to_numpy, compiled[key](*tensors))


def compile_function(
    model: keras.Model, function: Function, inputs: tuple[np.ndarray, ...], jit_compile: bool
) -> Function:
    """Return `function`, compiled for inputs of one shape.

    Args:
        model: The model whose weights the function reads.
        function: The function.
        inputs: Arrays of the shapes and dtypes that it will be called with.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        A function of such tensors.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        traced = tf.function(function, jit_compile=jit_compile, autograph=False)
        concrete: Function = traced.get_concrete_function(
            *(tf.TensorSpec(array.shape, array.dtype) for array in inputs)
        )
        return concrete
    if backend == "jax":
        return _compile_with_jax(model, function)
    if backend == "torch":
        return _without_gradients(function)
    return function


def _compile_with_jax(model: keras.Model, function: Function) -> Function:
    import jax

    def pure(values: list[Any], *inputs: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
            return function(*inputs)

    compiled = jax.jit(pure)
    # The weights are arguments: as constants they would be frozen at the first call.
    return lambda *inputs: compiled([v.value for v in model.variables], *inputs)


def _without_gradients(function: Function) -> Function:
    import torch

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return function(*inputs)

    return run


def with_slice(x: Tensor, part: Tensor, axis: int, start: int | Tensor) -> Tensor:
    """Return `x` with `part` from `start` on; in the memory of `x` if nobody else reads that.

    TensorFlow only, and without XLA. `keras.ops.slice_update` is an operation of XLA there, which
    stock TensorFlow Serving refuses to run.

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


def product_of_rows(x: Tensor, y: Tensor) -> Tensor:
    """Return products of matrices, each row of `x` by itself.

    TensorFlow only. oneDNN takes over all products of matrices but those of one operation, and
    hands the smallest of them to other threads, and waits. That operation is slow where both have
    several rows, so each row is a product of its own, of a matrix that is not copied for it.

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


def transposed(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return `x` with its axes in another order.

    TensorFlow only. oneDNN takes over transpositions of floating-point numbers, with a wait for
    other threads; those of integers it does not. Each number takes its time, whatever its size:
    where the last axis stays, two go as one.

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
    turned = tf.bitcast(tf.transpose(tf.bitcast(pairs, tf.int64), axes), x.dtype)
    return tf.reshape(turned, (*leading_sizes(turned, last), width))


def largest(x: Tensor) -> Tensor:
    """Return where the largest number of each row stands, the first of equals.

    TensorFlow only, and without XLA, which makes one loop on one thread of it.

    Args:
        x: `(N, M)`.

    Returns:
        `(N,)` int32.
    """
    import tensorflow as tf

    # Keras' operation looks for negative zeros first.
    return tf.argmax(x, axis=-1, output_type=tf.int32)


def select(rows: Tensor, order: Tensor) -> Tensor:
    """Return some entries of each row.

    Args:
        rows: `(N, M, ...)`.
        order: `(N, m)`, which ones, from 0 to M - 1.

    Returns:
        `(N, m, ...)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras' operation is twenty of TensorFlow's, and turns all rows to have that axis last.
        return tf.gather(rows, order, axis=1, batch_dims=1)
    for _ in rows.shape[2:]:
        order = keras.ops.expand_dims(order, -1)
    return keras.ops.take_along_axis(rows, order, axis=1)


def take(x: Tensor, places: Tensor) -> Tensor:
    """Return some entries of the first axis.

    Args:
        x: `(N, ...)`.
        places: `(n, ...)`, which ones, from 0 to N - 1.

    Returns:
        `(n, ...)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras' operation is six of TensorFlow's, for places that count from the end.
        return tf.gather(x, places)
    return keras.ops.take(x, places, axis=0)


def of_any_size(x: Tensor) -> Tensor:
    """Return a tensor whose sizes, or whose value if it is a scalar, nobody knows while tracing.

    TensorFlow only. What is traced with it serves for all sizes and values.

    Args:
        x: A tensor or a number.

    Returns:
        The same numbers.
    """
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None] * x.shape.rank)
