"""One decoder layer: causal self-attention, cross-attention and feed-forward."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm.basics.arguments import OtherOrder
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers import self_attention as self_attention_kinds
from keras_addnorm.layers.attention import MultiHeadCrossAttention
from keras_addnorm.layers.block import TransformerBlock
from keras_addnorm.layers.masks import explicit_or_implicit
from keras_addnorm.layers.recurrent_attention import DecoderSelfAttentionArguments
from keras_addnorm.layers.shapes import pack, require_sequences, unpack

Tensor = Any
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="keras_addnorm")
class TransformerDecoderLayer(TransformerBlock):
    """Causal self-attention, cross-attention to the encoder's output, and feed-forward.

    Each sublayer has its Add & Norm. Built without a memory, the layer has no cross-attention: a
    decoder-only layer. The width of the residual stream is that of the input.

    Arguments and errors are those of `TransformerEncoderLayer`. As there, layers used one by one
    have no final norm; `TransformerDecoder(num_layers=...)` has it.

    Weights:
        `self_attention/...`, `self_attention_add_norm/...`, `cross_attention/...`,
        `cross_attention_add_norm/...`, `feed_forward/...`, `feed_forward_add_norm/...`

    Example:
    ```python
    import keras
    from keras_addnorm.layers import TransformerDecoderLayer

    x, memory = keras.random.normal((2, 5, 8)), keras.random.normal((2, 7, 8))
    y = TransformerDecoderLayer(num_heads=2, intermediate_dim=32)(x, memory)  # (2, 5, 8)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, figure 1 (right).
    """

    side = "decoder"
    other_order = OtherOrder(
        "KerasHub's TransformerDecoder", ("intermediate_dim", "num_heads", "dropout")
    )
    sublayers = ("self_attention", "cross_attention", "feed_forward")

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        """Make the three sublayers, or two without a memory `(B, S, D_memory)`."""
        self.built_sublayers = tuple(
            name for name in self.sublayers if name != "cross_attention" or memory_shape is not None
        )
        self._build_attention(
            "self_attention", self._make_self_attention, x_shape, positions=self.positions
        )
        self.cross_attention = None
        if memory_shape is not None:
            self._build_attention("cross_attention", MultiHeadCrossAttention, x_shape, memory_shape)
        self._build_feed_forward(x_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        padding_mask: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: dict[str, Tensor] | None = None,
        cache_update_index: int | Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        first_values: Tensor | None = None,
        return_values: bool = False,
    ) -> Any:
        """Decode.

        Args:
            x: `(B, T, D)`; in a stack whose scheme has several streams, their `StreamState`.
            memory: The encoder's output, `(B, S, D_memory)`; not needed with a cache, `None` for a
                decoder-only layer.
            padding_mask: `(B, T)`, True at real tokens; `None` for the mask attached to `x`.
            memory_padding_mask: `(B, S)`, True at real tokens of the memory; `None` for the mask
                attached to `memory`.
            attention_mask: `(B, T, T)` or `(T, T)` for the self-attention, besides the causal
                mask.
            cache: From `initial_cache` or an earlier call: `{"self_attention": ...,
                "cross_attention": ...}`, the latter not for a decoder-only layer.
            cache_update_index: Position of `x[:, 0]` in the sequence.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.
            first_values: As of `TransformerEncoderLayer`, at the positions of `x`.
            return_values: As of `TransformerEncoderLayer`.

        Returns:
            What `x` is; with `return_attention_scores`, also a dict of the weights of each
            attention, `(B, H, T, ...)`; with `cache`, the updated cache; with `return_values`,
            last, the values of the self-attention.

        Raises:
            ValueError: If a memory is passed to a layer that was built without one, or the other
                way round.
        """
        self._check_memory(memory, cache)
        if cache is None:
            padding_mask = explicit_or_implicit(padding_mask, x)
        caches = {} if cache is None else cache
        scores = {}
        require_sequences(self.name, x=x)
        x, leave = self.scheme.enter(x)

        # Causal self-attention
        h, x = self.self_attention_add_norm.read(x, padding_mask, training)
        outputs = self.self_attention(
            h,
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            use_causal_mask=True,
            cache=caches.get("self_attention"),
            cache_update_index=cache_update_index,
            return_attention_scores=return_attention_scores,
            training=training,
            **self._value_arguments(first_values, return_values),
        )
        f, scores["self_attention"], new_cache, values = unpack(
            outputs, return_attention_scores, cache is not None, return_values
        )
        x = self.self_attention_add_norm.write(x, f, padding_mask, training)

        # Cross-attention
        if self.cross_attention is not None:
            h, x = self.cross_attention_add_norm.read(x, padding_mask, training)
            outputs = self.cross_attention(
                h,
                memory,
                memory_padding_mask=memory_padding_mask,
                cache=caches.get("cross_attention"),
                return_attention_scores=return_attention_scores,
                training=training,
            )
            f, scores["cross_attention"], *_ = unpack(outputs, return_attention_scores)
            x = self.cross_attention_add_norm.write(x, f, padding_mask, training)

        # Feed-forward
        h, x = self.feed_forward_add_norm.read(x, padding_mask, training)
        f = self.feed_forward(h, padding_mask=padding_mask, training=training)
        x = self.feed_forward_add_norm.write(x, f, padding_mask, training)

        return pack(
            leave(x),
            scores if return_attention_scores else None,
            None if cache is None else {**cache, "self_attention": new_cache},
            values,
        )

    def initial_cache(
        self, batch_size: int | Tensor, max_length: int, memory: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the self-attention's cache before the first position, and the projected memory.

        Args:
            batch_size: Number of rows that will be decoded; with a beam, more than the memory has.
            max_length: Number of positions that will be decoded at most.
            memory: The encoder's output; `None` for a decoder-only layer.

        Returns:
            The `cache` argument of the first call.
        """
        cache = {"self_attention": self.self_attention.empty_cache(batch_size, max_length)}
        if self.cross_attention is not None:
            cache["cross_attention"] = self.cross_attention.project_memory(memory)
        return cache

    def _make_self_attention(self, **arguments: Any) -> Any:
        given = DecoderSelfAttentionArguments(
            intermediate_dim=self.intermediate_dim,
            activation_dropout=self.activation_dropout,
            **arguments,
        )
        return self_attention_kinds.make(self.config.self_attention, given)

    def _check_memory(self, memory: Tensor | None, cache: dict[str, Tensor] | None) -> None:
        has_memory = memory is not None or (cache is not None and "cross_attention" in cache)
        if has_memory == (self.cross_attention is not None):
            return
        built, received = ("without", "one") if has_memory else ("with", "none")
        raise ArgumentError(
            f"The decoder layer '{self.name}' was built {built} a memory.",
            "the same on every call",
            "Whether the layer has cross-attention is settled by its first call.",
            received=str(received),
        )
