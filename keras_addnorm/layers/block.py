"""What the encoder and the decoder layer share: their arguments and how sublayers are made."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any, ClassVar

import keras

from keras_addnorm import norms, schemes
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.add_norm import AddNorm
from keras_addnorm.layers.attention import MultiHeadAttention
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.feed_forward import FeedForward
from keras_addnorm.layers.initializers import InitializerLike
from keras_addnorm.layers.positions import PositionsLike
from keras_addnorm.layers.pruned import PRUNED, require_sublayers

Shape = tuple[int | None, ...]


class TransformerBlock(keras.layers.Layer, abc.ABC):
    """A layer of a stack: sublayers, each with its Add & Norm.

    The arguments are documented in `TransformerEncoderLayer`.
    """

    side: ClassVar[norms.Side]
    """Which side of a model the layer is for."""

    sublayers: ClassVar[tuple[str, ...]]
    """The sublayers that it can have, in the order in which they run."""

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        activation: str = "relu",
        scheme: str | dict[str, Any] | schemes.ResidualScheme = "post_ln",
        norm: norms.NormLike = "layer_norm",
        epsilon: float = 1e-6,
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        attention: AttentionConfig | dict[str, Any] | None = None,
        positions: PositionsLike = "none",
        position: schemes.StackPosition | dict[str, Any] | None = None,
        pruned_sublayers: Iterable[str] = (),
        drop_path: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.activation = activation
        self.scheme = schemes.get(scheme)
        self.norm = norms.for_side(norm, self.side)
        self.epsilon = epsilon
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.attention = AttentionConfig.get(attention)
        self.positions = positions
        self.pruned_sublayers = require_sublayers(pruned_sublayers, self.sublayers)
        self.position = schemes.StackPosition.get(position)
        self.drop_path = drop_path
        self.supports_masking = True

    @abc.abstractmethod
    def call(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the sublayers; see the subclasses."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            **block_config(self),
            "position": None if self.position is None else self.position.to_dict(),
            "pruned_sublayers": list(self.pruned_sublayers),
            "drop_path": self.drop_path,
        }

    def _build_attention(
        self,
        name: str,
        attention: type[MultiHeadAttention],
        x_shape: Shape,
        *memory_shape: Shape,
        **choices: Any,
    ) -> None:
        if name in self.pruned_sublayers:
            self._build_pruned(name, x_shape)
            return
        add_norm = self._build_add_norm(name, x_shape, self.scheme)
        kernel = self.kernel_initializer
        sublayer = attention(
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            query_initializer=kernel,
            key_initializer=kernel,
            value_initializer=kernel,
            output_initializer=kernel,
            bias_initializer=self.bias_initializer,
            init_gain=add_norm.init_gain,
            attention=self.attention,
            inner_norm=add_norm.make_inner_norm(),
            dtype=self.dtype_policy,
            name=name,
            **choices,
        )
        sublayer.build(x_shape, *memory_shape)
        setattr(self, name, sublayer)

    def _build_feed_forward(self, x_shape: Shape) -> None:
        if "feed_forward" in self.pruned_sublayers:
            self._build_pruned("feed_forward", x_shape)
            return
        add_norm = self._build_add_norm("feed_forward", x_shape, self.scheme)
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.activation_dropout,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            init_gain=add_norm.init_gain,
            inner_norm=add_norm.make_inner_norm(),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build(x_shape)

    def _build_pruned(self, name: str, x_shape: Shape) -> None:
        position = None if self.position is None else self.position.at(name)
        self._build_add_norm(name, x_shape, self.scheme.without_branch(position))
        sublayer = PRUNED[name](dtype=self.dtype_policy, name=name)
        sublayer.build(x_shape)
        setattr(self, name, sublayer)

    def _build_add_norm(
        self, sublayer: str, x_shape: Shape, scheme: schemes.ResidualScheme
    ) -> AddNorm:
        name = f"{sublayer}_add_norm"
        add_norm = AddNorm(
            scheme=scheme,
            norm=self.norm,
            epsilon=self.epsilon,
            dropout=self.dropout,
            position=None if self.position is None else self.position.at(sublayer),
            drop_path=self.drop_path,
            dtype=self.dtype_policy,
            name=name,
        )
        add_norm.build(x_shape)
        setattr(self, name, add_norm)
        return add_norm


def block_arguments(layer: Any) -> dict[str, Any]:
    """Return the arguments that layers and stacks have in common."""
    return {
        "num_heads": layer.num_heads,
        "intermediate_dim": layer.intermediate_dim,
        "dropout": layer.dropout,
        "attention_dropout": layer.attention_dropout,
        "activation_dropout": layer.activation_dropout,
        "activation": layer.activation,
        "scheme": layer.scheme,
        "norm": layer.norm,
        "epsilon": layer.epsilon,
        "use_bias": layer.use_bias,
        "kernel_initializer": layer.kernel_initializer,
        "bias_initializer": layer.bias_initializer,
        "attention": layer.attention,
        "positions": layer.positions,
    }


def block_config(layer: Any) -> dict[str, Any]:
    """Return the same as plain values, for `get_config`."""
    return {
        **block_arguments(layer),
        "scheme": schemes.serialize(layer.scheme),
        "kernel_initializer": keras.initializers.serialize(layer.kernel_initializer),
        "bias_initializer": keras.initializers.serialize(layer.bias_initializer),
        "attention": layer.attention.to_dict(),
        "positions": position_kinds.serialize(layer.positions),
    }
