"""The simpler simple recurrent unit (SSRU), in the place of a decoder's self-attention."""

from __future__ import annotations

from typing import Any, Self

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import require_bool, require_gain
from keras_addnorm.layers.initializers import InitializerLike, fresh_initializer, get_initializer
from keras_addnorm.layers.projection import Projection, require_hidden_dim
from keras_addnorm.layers.recurrence import linear_recurrence
from keras_addnorm.layers.recurrent_attention import (
    DecoderSelfAttentionArguments,
    RecurrentSelfAttention,
)

Tensor = Any
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SSRU(RecurrentSelfAttention):
    """A recurrent cell with one gate: `relu(c_t)`, `c_t = f_t * c_{t-1} + (1 - f_t) * (x_t W)`.

    The forget gate is `f_t = sigmoid(x_t W_f + b_f)`, the cell starts at `c_{-1} = 0`, and there is
    no output projection. At padding the cell stays as it is. Training computes all positions in
    parallel; decoding keeps one vector a row, however long the output is. The recurrence runs in
    float32 under mixed precision; the cell between two calls has the compute dtype.

    Args:
        use_bias: Whether the forget gate has a bias.
        kernel_initializer: Initialiser of both kernels.
        bias_initializer: Initialiser of the bias.
        init_gain: Factor on the initial kernel `W` (DeepNorm's beta).
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If the gain does not fit.

    Weights:
        `cell_projection/kernel`: `(D, D)`, `W`.
        `forget_projection/{kernel,bias}`: `(D, D)`, `(D,)`, `W_f` and `b_f`.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import SSRU

    y = SSRU()(keras.random.normal((2, 5, 8)))  # (2, 5, 8)
    ```

    Reference:
        Kim et al., "From Research to Production and Back: Ludicrously Fast Neural Machine
        Translation", 2019 (D19-5632), section 3.1.
    """

    def __init__(
        self,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        init_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_gain(init_gain=init_gain)
        require_bool(use_bias=use_bias)
        self.use_bias = use_bias
        self.kernel_initializer = get_initializer(kernel_initializer=kernel_initializer)
        self.bias_initializer = get_initializer(bias_initializer=bias_initializer)
        self.init_gain = init_gain

    @classmethod
    def in_block(cls, arguments: DecoderSelfAttentionArguments, **choices: Any) -> Self:
        """Return the cell that stands in a decoder layer.

        Args:
            arguments: What the decoder layer has for it. The kernels have the initialiser of
                values.
            **choices: Nothing.

        Returns:
            The layer, unbuilt.
        """
        return cls(
            use_bias=arguments.use_bias,
            kernel_initializer=arguments.value_initializer,
            bias_initializer=arguments.bias_initializer,
            init_gain=arguments.init_gain,
            **arguments.for_keras(),
            **choices,
        )

    def build(self, x_shape: Shape) -> None:
        """Make the projections, for an input `(B, T, D)`."""
        self._hidden_dim = require_hidden_dim(x_shape)
        self.cell_projection = self._make("cell_projection", False, x_shape, self.init_gain)
        self.forget_projection = self._make("forget_projection", self.use_bias, x_shape)

    def run(
        self, x: Tensor, mask: Tensor | None, state: Tensor | None, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        """Read positions from left to right, from the cell `(B, D)` on."""
        dtype = self.recurrence_dtype
        values, gate = self._project(x)
        values, forget = ops.cast(values, dtype), ops.sigmoid(ops.cast(gate, dtype))
        terms = (1.0 - forget) * values
        if mask is not None:
            is_real = ops.expand_dims(ops.cast(mask, "bool"), -1)
            forget, terms = ops.where(is_real, forget, 1.0), ops.where(is_real, terms, 0.0)
        start = None if state is None else ops.cast(state, dtype)
        cells = ops.cast(linear_recurrence(forget, terms, start), self.compute_dtype)
        return ops.relu(cells), cells[:, -1]

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new values, and the forget gate before its sigmoid, `(B, T, D)` each."""
        return self.cell_projection(x), self.forget_projection(x)

    def initial_state(self, batch_size: int | Tensor) -> Tensor:
        """Return the cell before the first position, zeros `(B, D)`."""
        return ops.zeros((batch_size, self._hidden_dim), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "init_gain": self.init_gain,
        }

    def _make(self, name: str, use_bias: bool, x_shape: Shape, gain: float = 1.0) -> Projection:
        projection = Projection(
            self._hidden_dim,
            use_bias=use_bias,
            kernel_initializer=fresh_initializer(self.kernel_initializer, gain),
            bias_initializer=fresh_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        projection.build(x_shape)
        return projection
