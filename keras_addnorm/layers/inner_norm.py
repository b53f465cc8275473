"""The norm that some schemes want inside a sublayer, before its output projection (Sub-LN)."""

from __future__ import annotations

from typing import Any, TypeAlias

import keras

from keras_addnorm import norms
from keras_addnorm.basics.errors import ArgumentError

InnerNorm: TypeAlias = "norms.Norm | dict[str, Any] | None"
"""An unbuilt norm of the sublayer's own, its config, or `None` for no norm."""


def get_inner_norm(identifier: InnerNorm) -> norms.Norm | None:
    """Return the norm, from itself or from its config."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if not isinstance(identifier, keras.layers.Layer | None):
        raise ArgumentError(
            "A norm inside a sublayer is a layer.", "one, its config, or None", value=identifier
        )
    return identifier
