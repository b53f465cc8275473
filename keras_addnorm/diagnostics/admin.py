"""The data-dependent initialisation of Admin: measures branches, then sets skip connections."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.observe import SublayerRecord, observe
from keras_addnorm.layers.sublayers import named_add_norms


def initialize_admin(model: keras.Model | keras.layers.Layer, batch: Any) -> dict[str, float]:
    """Set every `omega` of a new model with the scheme `"admin"`, from one batch.

    With `omega = 1` everywhere, the model runs once, without dropout. Then, for the sublayers of
    each stack in the order in which they run,

    `omega_1 = 1`,  `omega_i = sqrt(Var(x_0) + Var(F_1) + ... + Var(F_{i-1}))`,

    where `x_0` is what the stack reads and `F_j` is the output of sublayer j; the variance is that
    of all numbers at real positions. Do it once, before training; a model that has learned already
    would lose what its `omega` learned.

    The paper writes the sum of the branches alone, which is empty for the first sublayer; the
    authors' code begins as said here. It measures while it goes, each sublayer behind those already
    set, and with dropout; this is the paper's single pass.

    Args:
        model: A built model, stack or layer with the scheme `"admin"`.
        batch: One batch of inputs, as the model takes it; a thousand tokens are plenty.

    Returns:
        The new value of `omega` for each sublayer, by its name: `"encoder/0/self_attention"`.

    Raises:
        ValueError: If the model has no sublayer with such an `omega`, or it computes something
            that is no number.

    Example:
    ```python
    import keras
    from keras_addnorm.diagnostics import initialize_admin
    from keras_addnorm.layers import TransformerEncoder

    encoder = TransformerEncoder(num_layers=2, num_heads=2, intermediate_dim=32, scheme="admin")
    encoder.build((None, None, 8))
    omegas = initialize_admin(encoder, keras.random.normal((4, 5, 8)))
    # {'encoder/0/self_attention': 1.0, 'encoder/0/feed_forward': 1.5, ...}
    ```

    Reference:
        Liu et al., "Understanding the Difficulty of Training Transformers", 2020
        (arXiv:2004.08249), section 4.
    """
    scales = {
        name: add_norm.skip_scale
        for name, add_norm in named_add_norms(model).items()
        if add_norm.skip_scale is not None
    }
    if not scales:
        raise ArgumentError(
            "This model has no skip connection to set.",
            "a model built with scheme='admin'",
            value=model,
        )
    for scale in scales.values():
        scale.assign(np.ones(scale.shape))
    with observe(model) as observation:
        model(batch, training=False)

    omegas: dict[str, float] = {}
    sums: dict[str, float] = {}
    for record in observation:
        if record.name not in scales:
            continue
        stack = record.name.split("/")[0]
        omegas[record.name] = sums[stack] ** 0.5 if stack in sums else 1.0
        sums.setdefault(stack, _variance(record.residual, record))
        sums[stack] += _variance(record.branch, record)
    if broken := [name for name, omega in omegas.items() if not math.isfinite(omega)]:
        raise ArgumentError(
            "The skip connections cannot be set: numbers of the model are not finite.",
            "a batch and weights that are",
            "Start from a new model, with a batch as the training has them.",
            received=f"such in front of {broken[0]}",
        )
    for name, omega in omegas.items():
        scales[name].assign(np.full(scales[name].shape, omega))
    return omegas


def _variance(x: Any, record: SublayerRecord) -> float:
    numbers = keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
    if record.mask is not None:
        numbers = numbers[keras.ops.convert_to_numpy(record.mask)]
    return float(numbers.var(dtype="float64"))
