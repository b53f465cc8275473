"""What every sublayer is made of: the dense layer, and a norm before its output projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_addnorm import norms
from keras_addnorm.basics.dtypes import require_dtype
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.layers.adapted import CALIBRATED, lora_variables, redraw
from keras_addnorm.layers.shapes import leading_sizes
from keras_addnorm.layers.vocabulary_product import is_16_bit, label_logits, project

Tensor = Any


class AdaptableLayer(keras.layers.Layer):
    """A base, before that of Keras, of a layer of ours with LoRA and quantisation.

    ```python
    class Projection(AdaptableLayer, keras.layers.Dense): ...
    ```
    """

    def __init__(self, *args: Any, dtype: Any = None, **kwargs: Any) -> None:
        require_dtype(dtype)
        super().__init__(*args, dtype=dtype, **kwargs)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Quantise the weights, as the layer of Keras does."""
        # The check of Keras would refuse this class, too, as a subclass of its own layer.
        if type_check and AdaptableLayer not in type(self).__bases__:
            raise self._not_implemented_error(self.quantize)
        super().quantize(mode, type_check=False, config=config)

    def load_own_variables(self, store: Any) -> None:
        """Load the weights; LoRA, whose matrices a saved weight contains, begins anew."""
        super().load_own_variables(store)
        if self.lora_enabled:
            first, _ = lora_variables(self)
            redraw(first)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Projection(AdaptableLayer, keras.layers.Dense):
    """A `keras.layers.Dense` that multiplies a flat list of tokens.

    The same weights, the same result and the same features (LoRA, quantisation to int8 and int4);
    but a `(B, T, D)` input is multiplied as one `(B T, D)` matrix. TensorFlow without XLA
    multiplies a 3-D tensor with a 2-D kernel about 1.6 times more slowly.

    Args:
        units: Width of the output.
        *args: As `keras.layers.Dense` takes them.
        takes_16_bits: Whether an input of 16 bits is multiplied as it is, with a kernel of its
            type, although the layer's own type is wider, as that of logits is.
        **kwargs: As `keras.layers.Dense` takes them.
    """

    def __init__(self, units: int, *args: Any, takes_16_bits: bool = False, **kwargs: Any) -> None:
        super().__init__(units, *args, **({"autocast": False} if takes_16_bits else {}), **kwargs)
        self.takes_16_bits = takes_16_bits

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project the last axis: `(..., D)` -> `(..., units)`."""
        if self.takes_16_bits and not is_16_bit(inputs):
            inputs = ops.cast(inputs, self.compute_dtype)
        return self._flatly(self._product, inputs, training)

    def quantized_call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project the last axis with a quantised kernel: `(..., D)` -> `(..., units)`."""
        if not self._is_calibrated():
            return self.call(inputs, training=training)
        return self._flatly(super().quantized_call, ops.cast(inputs, self.compute_dtype), training)

    def label_logits(self, x: Tensor, labels: Tensor, chunk_size: int) -> LabelLogits:
        """Return what losses need of the logits of `(B, T, D)`, without ever having them whole."""
        return label_logits(
            x,
            ops.cast(self.kernel, x.dtype),
            self.bias,
            labels,
            vocabulary_axis=1,
            chunk_size=chunk_size,
        )

    def save_own_variables(self, store: Any) -> None:
        """Save the weights; of GPTQ and AWQ with the zero points, which Keras leaves out."""
        if self.quantization_mode not in CALIBRATED:
            super().save_own_variables(store)
            return
        names = self.variable_serialization_spec[self.quantization_mode]
        weights = (getattr(self, name) for name in names)
        for index, weight in enumerate(one for one in weights if one is not None):
            store[str(index)] = weight

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        own = {"takes_16_bits": True} if self.takes_16_bits else {}
        return {**super().get_config(), **own}

    def _is_calibrated(self) -> bool:
        """Tell whether the kernel is whole numbers yet; while it is not, Keras watches `call`."""
        return bool(getattr(self, CALIBRATED.get(self.quantization_mode, ""), True))

    def _flatly(
        self, product: Callable[..., Tensor], inputs: Tensor, training: bool | None
    ) -> Tensor:
        if len(inputs.shape) <= 2:
            return product(inputs, training)
        leading = leading_sizes(inputs, len(inputs.shape) - 1)
        # (..., D) -> (N, D) -> (N, units) -> (..., units)
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        return ops.reshape(product(flat, training), (*leading, self.units))

    def _product(self, x: Tensor, training: bool | None) -> Tensor:
        """Return `(N, units)` for `(N, D)`."""
        if not (self.takes_16_bits and is_16_bit(x)):
            return super().call(x, training=training)
        y = project(x, ops.cast(self.kernel, x.dtype), vocabulary_axis=1)
        if self.bias is not None:
            y = ops.add(y, self.bias)
        return y if self.activation is None else self.activation(y)


def require_hidden_dim(shape: tuple[int | None, ...]) -> int:
    """Return the width of the residual stream, the last axis of `shape`."""
    if len(shape) < 2 or not isinstance(shape[-1], int):
        raise ArgumentError(
            "The width of the residual stream has to be known when a layer is built.",
            "shape (batch, length, `hidden_dim`)",
            "A layer that is given a state of several streams cannot learn it there: say "
            "layer.build((None, None, D)) before, with the width D of the stream.",
            value=tuple(shape),
        )
    return shape[-1]


InnerNorm: TypeAlias = "norms.Norm | dict[str, Any] | None"
"""A norm that some schemes want inside a sublayer (Sub-LN), not built; its config, or `None`."""


def get_inner_norm(identifier: InnerNorm) -> norms.Norm | None:
    """Return the norm, from itself or from its config."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if not isinstance(identifier, keras.layers.Layer | None):
        raise ArgumentError(
            "A norm inside a sublayer is a layer.", "one, its config, or None", value=identifier
        )
    return identifier
