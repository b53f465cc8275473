"""The identity in place of a norm, for experiments."""

from __future__ import annotations

import keras

from keras_addnorm.norms.norm import Norm, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class NoNorm(Norm):
    """The identity, without weights.

    Args:
        epsilon: Without effect.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.
    """

    def call(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return `x`."""
        return x
