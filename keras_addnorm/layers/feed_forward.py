"""The position-wise feed-forward sublayer, plain or gated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import (
    require_bool,
    require_gain,
    require_share,
    require_size,
)
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.adapted import LayerOfLayers
from keras_addnorm.layers.dropout import Dropout
from keras_addnorm.layers.initializers import InitializerLike, fresh_initializer, get_initializer
from keras_addnorm.layers.projection import (
    InnerNorm,
    Projection,
    get_inner_norm,
    require_hidden_dim,
)

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Activation:
    """A nonlinearity, and whether it acts on a gate that multiplies a second projection."""

    function: Callable[[Tensor], Tensor]
    is_gated: bool = False


def _gelu_tanh(x: Tensor) -> Tensor:
    return keras.activations.gelu(x, approximate=True)


def _gelu_sigmoid(x: Tensor) -> Tensor:
    return x * ops.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Activation] = {
    "glu": Activation(ops.sigmoid, is_gated=True),
    "reglu": Activation(ops.relu, is_gated=True),
    "geglu": Activation(keras.activations.gelu, is_gated=True),
    "geglu_tanh": Activation(_gelu_tanh, is_gated=True),
    "swiglu": Activation(ops.silu, is_gated=True),
    "gelu_tanh": Activation(_gelu_tanh),
    "gelu_sigmoid": Activation(_gelu_sigmoid),
}


def get_activation(name: str) -> Activation:
    """Return an activation by name.

    Args:
        name: A Keras activation (`"relu"`, `"gelu"`, ...); an approximation of GELU, with a tanh,
            `"gelu_tanh"`, or as `x sigmoid(1.702 x)`, `"gelu_sigmoid"` (Hendrycks and Gimpel, 2016,
            arXiv:1606.08415); or a gated one: `"glu"`, `"reglu"`, `"geglu"`, `"geglu_tanh"`,
            `"swiglu"` (Shazeer, 2020, arXiv:2002.05202).

    Returns:
        The activation.

    Raises:
        ValueError: If the name is unknown.
    """
    if isinstance(name, str) and name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    try:
        # Of a dict Keras would make whatever it names.
        return Activation(keras.activations.get("" if isinstance(name, dict) else name))
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            "There is no such `activation`.",
            "the name of a Keras activation (relu, gelu, silu, ...) or one of "
            f"{', '.join(_ACTIVATIONS)}",
            activation=name,
        ) from error


@keras.saving.register_keras_serializable(package="keras_addnorm")
class FeedForward(LayerOfLayers):
    """`act(x W1 + b1) W2 + b2`; gated: `(act(x Wg + bg) * (x W1 + b1)) W2 + b2`.

    Args:
        intermediate_dim: Width inside, F.
        activation: A Keras activation's name, `"gelu_tanh"`, `"gelu_sigmoid"`, or with a gate
            `"glu"`, `"reglu"`, `"geglu"`, `"geglu_tanh"`, `"swiglu"`; see `get_activation`.
        dropout: Share of the intermediate activations that is dropped.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initialiser of the kernels.
        bias_initializer: Initialiser of the biases.
        init_gain: Factor on the initial kernels (DeepNorm's beta).
        inner_norm: A norm of what `output_projection` reads (Sub-LN), a layer or its config.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If `intermediate_dim` is not positive or the activation is unknown.

    Weights:
        `intermediate_projection/{kernel,bias}`: `(D, F)`, `(F,)`.
        `gate_projection/{kernel,bias}`: likewise, gated activations only.
        `output_projection/{kernel,bias}`: `(F, D)`, `(D,)`.
        `inner_norm/...`: those of the norm, if there is one.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import FeedForward

    y = FeedForward(32, activation="swiglu")(keras.random.normal((2, 5, 8)))  # (2, 5, 8)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, equation 2; Shazeer, "GLU Variants
        Improve Transformer", 2020.
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        init_gain: float = 1.0,
        inner_norm: InnerNorm = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_size(intermediate_dim=intermediate_dim)
        require_share(dropout=dropout)
        require_gain(init_gain=init_gain)
        require_bool(use_bias=use_bias)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = get_initializer(kernel_initializer=kernel_initializer)
        self.bias_initializer = get_initializer(bias_initializer=bias_initializer)
        self.init_gain = init_gain
        self.inner_norm = get_inner_norm(inner_norm)
        self._activation = get_activation(activation)
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the projections, for an input `(..., D)`."""
        self.intermediate_projection = self._make_projection(
            "intermediate_projection", self.intermediate_dim, input_shape
        )
        if self._activation.is_gated:
            self.gate_projection = self._make_projection(
                "gate_projection", self.intermediate_dim, input_shape
            )
        inner_shape = (*input_shape[:-1], self.intermediate_dim)
        if self.inner_norm is not None:
            self.inner_norm.build(inner_shape)
        hidden_dim = require_hidden_dim(input_shape)
        self.output_projection = self._make_projection("output_projection", hidden_dim, inner_shape)
        self._dropout = Dropout(self.dropout, dtype=self.dtype_policy)

    def call(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Transform each position by itself.

        Args:
            x: `(B, T, D)`.
            padding_mask: `(B, T)`, True at real positions, for an `inner_norm` that looks at it.
            training: Whether to apply dropout.

        Returns:
            `(B, T, D)`.
        """
        # (B, T, D) -> (B, T, F)
        h = self.intermediate_projection(x)
        if self._activation.is_gated:
            h = self._activation.function(self.gate_projection(x)) * h
        else:
            h = self._activation.function(h)
        h = self._dropout(h, training=training)
        if self.inner_norm is not None:
            h = self.inner_norm(h, padding_mask=padding_mask, training=training)
        # (B, T, F) -> (B, T, D)
        return self.output_projection(h)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "init_gain": self.init_gain,
            "inner_norm": keras.saving.serialize_keras_object(self.inner_norm),
        }

    def _make_projection(
        self, name: str, units: int, input_shape: tuple[int | None, ...]
    ) -> Projection:
        projection = Projection(
            units,
            use_bias=self.use_bias,
            kernel_initializer=fresh_initializer(self.kernel_initializer, self.init_gain),
            bias_initializer=fresh_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        projection.build(input_shape)
        return projection
