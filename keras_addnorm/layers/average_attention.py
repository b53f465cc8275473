"""Average attention: the mean of all positions so far, in the place of a self-attention."""

from __future__ import annotations

from typing import Any, Self

import keras
from keras import ops

from keras_addnorm.layers.feed_forward import FeedForward
from keras_addnorm.layers.initializers import InitializerLike, fresh_initializer
from keras_addnorm.layers.projection import InnerNorm, Projection, require_hidden_dim
from keras_addnorm.layers.recurrent_attention import (
    DecoderSelfAttentionArguments,
    RecurrentSelfAttention,
)

Tensor = Any
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="keras_addnorm")
class AverageAttention(RecurrentSelfAttention):
    """The mean of all positions so far, through a feed-forward network, and gates for both.

    With `y_t = FFN(mean(x_0, ..., x_t))`, where `FFN(a) = act(a W1 + b1) W2 + b2`, the output is
    `sigmoid(x_t W_i + b_i) * x_t + sigmoid(y_t W_f + b_f) * y_t`. A mean does not know the order of
    what it is taken of: `x` has to hold absolute positions. Padding is no part of it. Decoding
    keeps a sum and a count a row. Sums run in float32 under mixed precision; between two calls they
    have the compute dtype.

    Args:
        intermediate_dim: Width inside the feed-forward network, F.
        activation: Its activation; see `FeedForward`.
        dropout: Share of its intermediate activations that is dropped.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initialiser of the kernels.
        bias_initializer: Initialiser of the biases.
        init_gain: Factor on the initial kernels of the feed-forward network (DeepNorm's beta).
        inner_norm: A norm of what its output projection reads (Sub-LN), a layer or its config.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If a size or a name does not fit.

    Weights:
        `feed_forward/intermediate_projection/{kernel,bias}`: `(D, F)`, `(F,)`, `W1` and `b1`.
        `feed_forward/output_projection/{kernel,bias}`: `(F, D)`, `(D,)`, `W2` and `b2`.
        `input_gate/{kernel,bias}`: `(D, D)`, `(D,)`, `W_i` and `b_i`.
        `forget_gate/{kernel,bias}`: `(D, D)`, `(D,)`, `W_f` and `b_f`.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import AverageAttention

    y = AverageAttention(intermediate_dim=32)(keras.random.normal((2, 5, 8)))  # (2, 5, 8)
    ```

    Reference:
        Zhang, Xiong and Su, "Accelerating Neural Transformer via an Average Attention Network",
        2018 (arXiv 1805.00631). There each gate reads both vectors; here, as in Marian, its own.
    """

    choices = ("intermediate_dim", "activation")
    knows_order = False

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "swish",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        init_gain: float = 1.0,
        inner_norm: InnerNorm = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.feed_forward = FeedForward(
            intermediate_dim,
            activation=activation,
            dropout=dropout,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            init_gain=init_gain,
            inner_norm=inner_norm,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    @classmethod
    def in_block(cls, arguments: DecoderSelfAttentionArguments, **choices: Any) -> Self:
        """Return the layer that stands in a decoder layer.

        Args:
            arguments: What the decoder layer has for it. Width and dropout of its feed-forward are
                those of this one, too.
            **choices: `intermediate_dim`, for another width, and `activation`.

        Returns:
            The layer, unbuilt.
        """
        return cls(
            **{"intermediate_dim": arguments.intermediate_dim, **choices},
            dropout=arguments.activation_dropout,
            use_bias=arguments.use_bias,
            kernel_initializer=arguments.value_initializer,
            bias_initializer=arguments.bias_initializer,
            init_gain=arguments.init_gain,
            inner_norm=arguments.inner_norm,
            **arguments.for_keras(),
        )

    def build(self, x_shape: Shape) -> None:
        """Make the feed-forward network and the gates, for an input `(B, T, D)`."""
        self._hidden_dim = require_hidden_dim(x_shape)
        self.feed_forward.build(x_shape)
        self.input_gate = self._make_gate("input_gate", x_shape)
        self.forget_gate = self._make_gate("forget_gate", x_shape)

    def run(
        self, x: Tensor, mask: Tensor | None, state: Any, training: bool | None
    ) -> tuple[Tensor, Any]:
        """Read positions from left to right, from a sum `(B, D)` and a count `(B, 1)` on."""
        is_real = ops.ones_like(x[:, :, :1]) if mask is None else ops.expand_dims(mask, -1)
        dtype = self.recurrence_dtype
        counts = ops.cast(is_real, "int32")
        sums = ops.where(ops.cast(is_real, "bool"), ops.cast(x, dtype), 0.0)
        if x.shape[1] != 1:
            sums, counts = ops.cumsum(sums, axis=1), ops.cumsum(counts, axis=1)
        if state is not None:
            sums = sums + ops.expand_dims(ops.cast(state["sum"], dtype), 1)
            counts = counts + ops.expand_dims(state["count"], 1)
        mean = sums / ops.cast(ops.maximum(counts, ops.cast(1, "int32")), dtype)
        mean, sums = ops.cast(mean, self.compute_dtype), ops.cast(sums, self.compute_dtype)
        y = self.feed_forward(mean, padding_mask=mask, training=training)
        kept, new = ops.sigmoid(self.input_gate(x)), ops.sigmoid(self.forget_gate(y))
        return kept * x + new * y, {"sum": sums[:, -1], "count": counts[:, -1]}

    def initial_state(self, batch_size: int | Tensor) -> dict[str, Tensor]:
        """Return the sum `(B, D)` and the count `(B, 1)` before the first position."""
        return {
            "sum": ops.zeros((batch_size, self._hidden_dim), dtype=self.compute_dtype),
            "count": ops.zeros((batch_size, 1), dtype="int32"),
        }

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        inner = self.feed_forward.get_config()
        own = super().get_config()
        return {**{name: value for name, value in inner.items() if name not in own}, **own}

    def _make_gate(self, name: str, x_shape: Shape) -> Projection:
        gate = Projection(
            self._hidden_dim,
            use_bias=self.feed_forward.use_bias,
            kernel_initializer=fresh_initializer(self.feed_forward.kernel_initializer),
            bias_initializer=fresh_initializer(self.feed_forward.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        gate.build(x_shape)
        return gate
