"""One encoder layer: self-attention and feed-forward, each in its Add & Norm."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm.basics.arguments import OtherOrder
from keras_addnorm.layers.attention import MultiHeadSelfAttention
from keras_addnorm.layers.block import TransformerBlock
from keras_addnorm.layers.masks import explicit_or_implicit
from keras_addnorm.layers.shapes import pack, require_sequences, unpack

Tensor = Any
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="keras_addnorm")
class TransformerEncoderLayer(TransformerBlock):
    """Self-attention and feed-forward, each followed (or preceded) by Add & Norm.

    With the default scheme, Post-LN: `x = LN(x + SelfAttention(x))`, then
    `x = LN(x + FeedForward(x))`. The width of the residual stream is that of the input.

    The padding mask hides keys; outputs at padded positions are finite and mean nothing. The mask
    of `x` goes on to the output.

    The layer has no norm behind its last sum. A scheme that ends a stack with one (Pre-LN and most
    others: `layer.scheme.needs_final_norm`) needs it behind the last layer, as
    `TransformerEncoder(num_layers=...)` has it. Behind layers used one by one, put
    `keras.layers.LayerNormalization(epsilon=1e-6)`.

    Args:
        **block: The fields of `BlockConfig`.
        position: Where the layer stands, a `StackPosition` or its config.
        pruned_sublayers: Names of sublayers to leave out: `F(x) = 0` in their place.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If a size, a name or the position does not fit.
        TypeError: If an argument is unknown or missing.

    Weights:
        `self_attention/...`, `self_attention_add_norm/...`, `feed_forward/...`,
        `feed_forward_add_norm/...`

    Example:
    ```python
    import keras
    from keras_addnorm.layers import TransformerEncoderLayer

    x = keras.random.normal((2, 5, 8))
    y = TransformerEncoderLayer(num_heads=2, intermediate_dim=32, scheme="pre_ln")(x)  # (2, 5, 8)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, figure 1 (left).
    """

    side = "encoder"
    other_order = OtherOrder(
        "KerasHub's TransformerEncoder", ("intermediate_dim", "num_heads", "dropout")
    )
    sublayers = ("self_attention", "feed_forward")

    def build(self, x_shape: Shape) -> None:
        """Make the two sublayers, for an input `(B, T, D)`."""
        self.built_sublayers = self.sublayers
        self._build_attention(
            "self_attention", MultiHeadSelfAttention, x_shape, positions=self.positions
        )
        self._build_feed_forward(x_shape)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        first_values: Tensor | None = None,
        return_values: bool = False,
    ) -> Any:
        """Encode.

        Args:
            x: `(B, T, D)`; in a stack whose scheme has several streams, their `StreamState`.
            padding_mask: `(B, T)`, True at real tokens; `None` for the mask attached to `x`.
            attention_mask: `(B, T, T)` or `(T, T)`, True where a query may attend to a key.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.
            first_values: For a `value_residual`, the values that the first layer of the stack has
                returned; `None` in the first layer.
            return_values: Whether to return the values of the self-attention, too: in the first
                layer, for all others.

        Returns:
            What `x` is; with `return_attention_scores`, also the weights `(B, H, T, T)`; with
            `return_values`, last, the values `(B, T, G, K)`.
        """
        padding_mask = explicit_or_implicit(padding_mask, x)
        require_sequences(self.name, x=x)
        x, leave = self.scheme.enter(x)

        # Self-attention
        h, x = self.self_attention_add_norm.read(x, padding_mask, training)
        outputs = self.self_attention(
            h,
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            **self._value_arguments(first_values, return_values),
        )
        f, scores, _, values = unpack(outputs, return_attention_scores, has_values=return_values)
        x = self.self_attention_add_norm.write(x, f, padding_mask, training)

        # Feed-forward
        h, x = self.feed_forward_add_norm.read(x, padding_mask, training)
        f = self.feed_forward(h, padding_mask=padding_mask, training=training)
        x = self.feed_forward_add_norm.write(x, f, padding_mask, training)

        return pack(leave(x), scores, values=values)
