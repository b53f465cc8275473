"""Which axis of which weight lies on which devices, for Keras' `ModelParallel` on JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError

# `{axis}` is the mesh's axis over which a copy of the weights is spread. Paths are those of
# variables: the stacks' names differ from model to model, those of the projections never.
# Heads lie side by side in the columns of query, key and value, and in the rows of the output:
# what a device computes of a head it needs nobody else for, until the output is summed up.
_AXES: dict[str, tuple[bool, ...]] = {
    r".*attention/(query|key|value)_projection/kernel": (False, True),
    r".*attention/(query|key|value)_projection/bias": (True,),
    r".*attention/output_projection/kernel": (True, False),
    r".*feed_forward/(intermediate|gate)_projection/kernel": (False, True),
    r".*feed_forward/(intermediate|gate)_projection/bias": (True,),
    r".*feed_forward/output_projection/kernel": (True, False),
    r"(.*/)?\w*embedding(_\d+)?/embeddings": (True, False),
    r"(.*/)?\w*embedding(_\d+)?/logits_bias": (True,),
    r"(.*/)?vocabulary_projection/kernel": (False, True),
    r"(.*/)?vocabulary_projection/bias": (True,),
}


def model_parallel_layout(
    device_mesh: keras.distribution.DeviceMesh, model_axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Spreads the weights of our layers over one axis of a mesh.

    | weight | spread over |
    |---|---|
    | query, key and value projections | heads (columns, and their biases) |
    | the attention's output projection | heads (rows) |
    | the feed-forward's first projection and its gate | columns, and their biases |
    | the feed-forward's second projection | rows |
    | embeddings, the bias of tied logits; `vocabulary_projection` | the vocabulary |

    All else (norms, the biases of output projections, learned positions, SSRU's projections and the
    gates of average attention) lies on every device. The
    optimiser's moments lie where their weights lie. Heads, key/value heads, the intermediate width
    and the vocabulary have to be multiples of the axis' size: `require_divisible` checks it.

    Args:
        device_mesh: The devices; one of its axes is `model_axis`.
        model_axis: The axis over which one copy of the weights is spread.

    Returns:
        The map for `keras.distribution.ModelParallel`; more entries can be added to it.

    Raises:
        ValueError: If the mesh has no such axis.

    Example:
        ```python
        import keras
        from keras_addnorm.distribution import model_parallel_layout

        if keras.backend.backend() == "jax":
            devices = keras.distribution.list_devices()
            mesh = keras.distribution.DeviceMesh((len(devices), 1), ("batch", "model"), devices)
            layout = model_parallel_layout(mesh)
            distribution = keras.distribution.ModelParallel(
                layout_map=layout, batch_dim_name="batch"
            )
        ```

    Reference:
        Shoeybi et al., Megatron-LM (2019), section 3.
    """
    _require_axis(device_mesh, model_axis, "model_axis")
    layout = keras.distribution.LayoutMap(device_mesh)
    for path, axes in _AXES.items():
        layout[path] = tuple(model_axis if is_spread else None for is_spread in axes)
    return layout


def fully_sharded_layout(
    device_mesh: keras.distribution.DeviceMesh, batch_axis: str = "batch"
) -> keras.distribution.LayoutMap:
    """Spreads the weights of our layers over the devices that share a batch (FSDP, ZeRO-3).

    Each matrix of attention, feed-forward, embeddings and `vocabulary_projection` is cut along the
    width of the residual stream, D, which has to be a multiple of the axis' size; so are its
    moments in the optimiser. A device computes with its rows of the batch and with whole matrices,
    which the compiler gathers when they are needed. Biases, norms, learned positions, SSRU's
    projections and the gates of average attention lie on every device.

    Args:
        device_mesh: The devices; one of its axes is `batch_axis`.
        batch_axis: The axis over which batches are shared.

    Returns:
        The map for `keras.distribution.ModelParallel`; more entries can be added to it.

    Raises:
        ValueError: If the mesh has no such axis.

    Example:
        ```python
        import keras
        from keras_addnorm.distribution import fully_sharded_layout

        if keras.backend.backend() == "jax":
            devices = keras.distribution.list_devices()
            mesh = keras.distribution.DeviceMesh((len(devices),), ("batch",), devices)
            distribution = keras.distribution.ModelParallel(
                layout_map=fully_sharded_layout(mesh), batch_dim_name="batch"
            )
        ```

    Reference:
        Rajbhandari et al., ZeRO (2020), section 5.3; Xu et al., GSPMD (2021).
    """
    _require_axis(device_mesh, batch_axis, "batch_axis")
    layout = keras.distribution.LayoutMap(device_mesh)
    for path, axes in _AXES.items():
        # Of the two axes of a matrix, the one that is not spread in a model-parallel layout is D.
        if len(axes) == 2:
            layout[path] = tuple(None if is_spread else batch_axis for is_spread in axes)
    return layout


def _require_axis(mesh: keras.distribution.DeviceMesh, axis: str, argument: str) -> None:
    if axis not in mesh.axis_names:
        raise ValueError(
            f"The mesh has no axis {axis!r} to spread the weights over. Expected one of "
            f"{tuple(mesh.axis_names)}. Name it in DeviceMesh(axis_names=...), or pass {argument}."
        )


def require_divisible(sizes: Mapping[str, int], devices: int) -> None:
    """Makes sure that each size can be shared by the devices that hold one copy of the weights.

    Args:
        sizes: What is shared, by name: heads, widths, vocabularies.
        devices: How many devices share it.

    Raises:
        ValueError: If a size is no int, or there is a remainder; the message names all that
            have one.

    Example:
        >>> require_divisible({"num_heads": 8, "intermediate_dim": 32}, devices=4)
    """
    if not isinstance(sizes, Mapping) or not all(map(is_count, (devices, *sizes.values()))):
        raise ArgumentError(
            "Devices share sizes.",
            "a dict of ints by their names, and an int of devices",
            received=f"{sizes!r:.80} and {devices!r}",
        )
    if not devices:
        raise ArgumentError("Devices share sizes.", "`devices` >= 1", value=0)
    wrong: dict[str, Any] = {name: size for name, size in sizes.items() if size % devices}
    if wrong:
        raise ArgumentError(
            f"The weights cannot be spread over {devices} devices.",
            f"multiples of {devices}",
            "Change these sizes, or spread a copy of the weights over fewer devices "
            "(`devices_per_model`).",
            **wrong,
        )


def is_count(value: Any) -> bool:
    """Return whether a value is an int of 0 or more, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
