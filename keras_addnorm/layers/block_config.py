"""`BlockConfig`: the arguments that layers, stacks and models share, in one frozen object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import keras

from keras_addnorm import norms, schemes
from keras_addnorm.basics.argument_checks import require_epsilon, require_share, require_size
from keras_addnorm.basics.arguments import checked
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers import self_attention as self_attention_kinds
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.feed_forward import get_activation
from keras_addnorm.layers.initializers import InitializerLike, get_initializer, seeds_kept
from keras_addnorm.layers.positions import PositionsLike
from keras_addnorm.layers.recurrent_attention import RecurrentSelfAttention
from keras_addnorm.layers.self_attention import SelfAttentionLike


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The shape of a Transformer block: the arguments of its layers, of their stacks and models.

    `TransformerEncoderLayer`, `TransformerDecoderLayer`, `TransformerEncoder` and
    `TransformerDecoder` take each field as an argument and keep them together as `layer.config`;
    `Seq2SeqConfig` extends them. Values are checked here. Objects that can be restored by a name
    (schemes, initialisers, an `AttentionConfig`) are kept as their dicts, so that configs compare.

    Args:
        num_heads: Number of attention heads, H; has to divide the width of the input, unless
            there is a `head_dim`.
        intermediate_dim: Width inside the feed-forward sublayer, F.
        dropout: Share of each sublayer's output that is dropped before it is merged.
        attention_dropout: Share of the attention weights that is dropped.
        activation_dropout: Share of the intermediate activations that is dropped.
        activation: The feed-forward activation; see `FeedForward`.
        scheme: The residual scheme; see `AddNorm`.
        norm: The normalisation; see `AddNorm`. Or one for each side of a model:
            `{"encoder": "batch_norm", "decoder": "layer_norm"}`.
        epsilon: The norms' epsilon.
        use_bias: Whether projections have biases.
        kernel_initializer: Initialiser of all kernels.
        bias_initializer: Initialiser of all biases.
        attention: How to attend, an `AttentionConfig` or its fields as a dict.
        positions: Relative positions of the self-attention; see `MultiHeadSelfAttention`. A table
            that layers of a stack share (T5's) is theirs together.
        drop_path: Share of the examples that go without a sublayer while training (stochastic
            depth); see `AddNorm`. In a stack it is the share of the last layer and grows linearly:
            `drop_path (l + 1) / L` in layer `l` of `L`.
        head_dim: Width of a head, K; `None` for the width of the input divided by `num_heads`.
        self_attention: What stands in the place of a decoder's self-attention:
            `"multi_head_attention"`, `"ssru"` (`SSRU`), `"average_attention"` (`AverageAttention`),
            or a dict of the name and its own fields. Encoders have multi-head attention. The
            others keep a state of fixed size in place of keys and values; `attention` and
            `attention_dropout` then speak of the cross-attention alone.

    Raises:
        ValueError: If a value does not fit, named with what was expected.

    Example:
    ```python
    from keras_addnorm.layers import BlockConfig, TransformerEncoderLayer

    layer = TransformerEncoderLayer(num_heads=4, intermediate_dim=32, scheme="pre_ln")
    assert layer.config == BlockConfig(num_heads=4, intermediate_dim=32, scheme="pre_ln")
    assert BlockConfig.get(layer.config.to_dict()) == layer.config
    ```
    """

    num_heads: int
    intermediate_dim: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    scheme: str | dict[str, Any] | schemes.ResidualScheme = "post_ln"
    norm: norms.NormLike = "layer_norm"
    epsilon: float = 1e-6
    use_bias: bool = True
    kernel_initializer: InitializerLike = "glorot_uniform"
    bias_initializer: InitializerLike = "zeros"
    attention: AttentionConfig | dict[str, Any] | None = None
    positions: PositionsLike = "none"
    drop_path: float = 0.0
    head_dim: int | None = None
    self_attention: SelfAttentionLike = self_attention_kinds.MULTI_HEAD_ATTENTION

    def __post_init__(self) -> None:
        with seeds_kept():
            self._check()

    def _check(self) -> None:
        """Check all values, and bring choices into their plain form."""
        self._require_positive("num_heads", "intermediate_dim")
        if self.head_dim is not None:
            self._require_positive("head_dim")
        for name in ("dropout", "attention_dropout", "activation_dropout", "drop_path"):
            require_share(**{name: getattr(self, name)})
        require_epsilon(self.epsilon)
        get_activation(self.activation)
        self._set("scheme", _by_name(self.scheme, schemes.get, schemes.serialize))
        norms.for_side(self.norm, "encoder")
        for name in ("kernel_initializer", "bias_initializer"):

            def get(value: Any, name: str = name) -> Any:
                return get_initializer(**{name: value})

            value = getattr(self, name)
            self._set(name, _by_name(value, get, keras.initializers.serialize))
        if self.attention is not None:
            attention = AttentionConfig.get(self.attention)
            attention.key_value_heads(self.num_heads)
            self._set("attention", attention.to_dict() or None)
        position_kinds.relative(self.positions)
        if isinstance(self.positions, dict) and len(self.positions) == 1:
            # One way to write a choice without fields.
            self._set("positions", self.positions["name"])
        self._check_self_attention()

    def _check_self_attention(self) -> None:
        kind = self_attention_kinds.kind_of(self.self_attention)
        if isinstance(self.self_attention, dict):
            fields = dict(self.self_attention)
            self._set("self_attention", fields if len(fields) > 1 else fields["name"])
        has_relative = position_kinds.relative(self.positions) is not None
        if has_relative and not getattr(kind, "knows_order", True):
            raise ArgumentError(
                f"{self.self_attention!r} does not know the order of tokens, and has no use for "
                "relative positions.",
                "absolute `positions`: sinusoidal or learned",
                positions=self.positions,
            )

    def for_side(self, side: norms.Side) -> BlockConfig:
        """Return the block of one side of a model: what is the other side's alone is left out.

        Args:
            side: `"encoder"` or `"decoder"`.

        Returns:
            The block, with multi-head attention in the encoder; without relative positions in a
            decoder whose self-attention has no use for them.
        """
        block = self.block
        if side == "encoder":
            return dataclasses.replace(
                block, self_attention=self_attention_kinds.MULTI_HEAD_ATTENTION
            )
        if block._positions_are_unused:
            return dataclasses.replace(block, positions="none")
        return block

    @property
    def _positions_are_unused(self) -> bool:
        """Whether a decoder's self-attention has no use for the relative positions."""
        kind = self_attention_kinds.kind_of(self.self_attention)
        is_relative = position_kinds.relative(self.positions) is not None
        return is_relative and issubclass(kind, RecurrentSelfAttention)

    def require_side(self, side: norms.Side) -> None:
        """Raise a `ValueError` if the block says what a layer of this side cannot be."""
        if side == "encoder" and self.self_attention != self_attention_kinds.MULTI_HEAD_ATTENTION:
            raise ArgumentError(
                "An encoder attends to both sides of a position; `self_attention` is a choice for "
                "decoders.",
                f"{self_attention_kinds.MULTI_HEAD_ATTENTION!r}, or leave it out",
                self_attention=self.self_attention,
            )
        if side == "decoder" and self._positions_are_unused:
            raise ArgumentError(
                f"Relative positions are those of attention, and {self.self_attention!r}, which "
                "reads tokens in order, has no use for them.",
                "`positions` of the embedding, or none",
                positions=self.positions,
            )

    @classmethod
    def get(cls, identifier: Self | dict[str, Any]) -> Self:
        """Return a config from a dict of its fields; a config is returned unchanged."""
        return cls(**identifier) if isinstance(identifier, dict) else identifier

    @property
    def block(self) -> BlockConfig:
        """The config without what subclasses add to it."""
        return BlockConfig(
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(BlockConfig)}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, all of them."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if isinstance(self.scheme, schemes.ResidualScheme):
            values["scheme"] = schemes.serialize(self.scheme)
        for name in ("kernel_initializer", "bias_initializer"):
            if not isinstance(values[name], str | dict):
                values[name] = keras.initializers.serialize(values[name])
        return {**values, "positions": position_kinds.serialize(self.positions)}

    def _require_positive(self, *names: str) -> None:
        for name in names:
            require_size(**{name: getattr(self, name)})
            self._set(name, int(getattr(self, name)))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _by_name(value: Any, get: Callable[[Any], Any], serialize: Callable[[Any], Any]) -> Any:
    """Check a choice, and return an object as its dict, if it can be made from that again."""
    get(value)
    if isinstance(value, str | dict):
        return value
    try:
        get(plain := serialize(value))
    except (TypeError, ValueError):
        # An object of a class that is not registered works, but cannot be saved.
        return value
    return plain
