"""One training on several devices: who holds which weights and reads which rows.

`get` gives the devices by name; `model_parallel_layout` and `fully_sharded_layout` spread the
weights of our layers over a mesh for `keras.distribution.ModelParallel`, in any Keras model;
`join_processes` and its neighbours let several processes train together (JAX). docs/scaling.md says
what to start on which host.

Example:
    >>> from keras_addnorm import distribution
    >>> print(distribution.get("none"))
    one device (CPU)
"""

from keras_addnorm.distribution.devices import ONE_DEVICE, Devices, get
from keras_addnorm.distribution.layouts import (
    fully_sharded_layout,
    model_parallel_layout,
    require_divisible,
)
from keras_addnorm.distribution.processes import (
    first_before_the_others,
    is_first,
    join_processes,
    process_count,
    process_index,
    wait_for_all,
    whole_values,
)

__all__ = [
    "ONE_DEVICE",
    "Devices",
    "first_before_the_others",
    "fully_sharded_layout",
    "get",
    "is_first",
    "join_processes",
    "model_parallel_layout",
    "process_count",
    "process_index",
    "require_divisible",
    "wait_for_all",
    "whole_values",
]
