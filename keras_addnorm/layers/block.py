"""The base classes of layers and stacks: how they are configured and make their sublayers."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import keras

from keras_addnorm import norms, schemes
from keras_addnorm.basics.arguments import KerasArguments, OtherOrder, document, takes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.add_norm import AddNorm
from keras_addnorm.layers.attention import MultiHeadSelfAttention
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.block_config import BlockConfig
from keras_addnorm.layers.feed_forward import FeedForward
from keras_addnorm.layers.initializers import get_initializer, scaled
from keras_addnorm.layers.pruned import PRUNED, require_sublayers
from keras_addnorm.layers.shapes import ShapeOfInput

Shape = tuple[int | None, ...]


class ConfiguredLayer(ShapeOfInput, abc.ABC):
    """A layer with a `BlockConfig`, `config`, whose fields are attributes as well.

    All but `self_attention`, which is the sublayer.
    """

    side: ClassVar[norms.Side]
    """Which side of a model the layer is for."""

    other_order: ClassVar[OtherOrder]
    """The order of KerasHub's layer of the same job."""

    config: BlockConfig

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        document(cls, BlockConfig)

    def _configure(self, config: BlockConfig) -> None:
        config.require_side(self.side)
        self.config = config
        for name, value in vars(config).items():
            if name != "self_attention":
                setattr(self, name, value)
        self.scheme = schemes.get(config.scheme)
        self.norm = norms.for_side(config.norm, self.side)
        self.kernel_initializer = get_initializer(kernel_initializer=config.kernel_initializer)
        self.bias_initializer = get_initializer(bias_initializer=config.bias_initializer)
        self.attention = AttentionConfig.get(config.attention)
        self.supports_masking = True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), **self.config.to_dict()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockArguments(BlockConfig, KerasArguments):
    """What the constructor of a layer takes; `TransformerBlock` says what each field means."""

    position: schemes.StackPosition | dict[str, Any] | None = None
    pruned_sublayers: Iterable[str] = ()


class TransformerBlock(ConfiguredLayer):
    """A layer of a stack: sublayers, each with its Add & Norm."""

    sublayers: ClassVar[tuple[str, ...]]
    """The sublayers that it can have, in the order in which they run."""

    built_sublayers: tuple[str, ...]
    """Those that it has, pruned ones too; known once the layer is built."""

    @takes(BlockArguments)
    def __init__(self, arguments: BlockArguments) -> None:
        super().__init__(**arguments.for_keras())
        self._configure(arguments.block)
        self.position = schemes.StackPosition.get(arguments.position)
        self.pruned_sublayers = require_sublayers(arguments.pruned_sublayers, self.sublayers)

    @abc.abstractmethod
    def call(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the sublayers."""

    def position_of(self, sublayer: str) -> schemes.StackPosition | None:
        """Return where a sublayer of this layer stands, if the layer knows where it stands."""
        return None if self.position is None else self.position.at(sublayer, self.built_sublayers)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "position": None if self.position is None else self.position.to_dict(),
            "pruned_sublayers": list(self.pruned_sublayers),
        }

    @property
    def has_value_residual(self) -> bool:
        """Whether the self-attention reads values of the first layer, or gives them to others."""
        is_attention = isinstance(self.self_attention, MultiHeadSelfAttention)
        return is_attention and self.self_attention.attention.value_residual

    def _value_arguments(self, first_values: Any, return_values: bool) -> dict[str, Any]:
        """Return what a self-attention with a value residual is called with besides."""
        is_given = first_values is not None
        if not self.has_value_residual:
            if is_given or return_values:
                raise ArgumentError(
                    f"The layer '{self.name}' has no value residual.",
                    "neither `first_values` nor `return_values`, or a self-attention with "
                    "`attention={'value_residual': True}`",
                    received="`first_values`" if is_given else "`return_values=True`",
                )
            return {}
        if not is_given and self.position is not None and self.position.layer_index > 0:
            raise ArgumentError(
                f"The layer '{self.name}' reads the values of the first layer of its stack.",
                "`first_values`",
                "Ask the first layer for them: `return_values=True`.",
                received="none",
            )
        return {"first_values": first_values, "return_values": return_values}

    def _build_attention(
        self,
        name: str,
        attention: Callable[..., keras.layers.Layer],
        x_shape: Shape,
        *memory_shape: Shape,
        **choices: Any,
    ) -> None:
        if name in self.pruned_sublayers:
            self._build_pruned(name, x_shape)
            return
        add_norm = self._build_add_norm(name, x_shape, self.scheme)
        kernel = self.kernel_initializer
        query_key = scaled(kernel, add_norm.query_key_init_gain)
        sublayer = attention(
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            query_initializer=query_key,
            key_initializer=query_key,
            value_initializer=kernel,
            output_initializer=kernel,
            bias_initializer=self.bias_initializer,
            init_gain=add_norm.init_gain,
            attention=self._attention_with(add_norm.attention_norms),
            inner_norm=add_norm.make_inner_norm(),
            dtype=self.dtype_policy,
            name=name,
            **choices,
        )
        sublayer.build(x_shape, *memory_shape)
        setattr(self, name, sublayer)

    def _attention_with(self, norms_wanted: tuple[str, ...]) -> AttentionConfig:
        """Return how to attend, with the norms that the scheme wants and the config lacks."""
        missing = [name for name in norms_wanted if getattr(self.attention, name) is None]
        if not missing:
            return self.attention
        if norms.mixes_positions(self.norm):
            own = ", ".join(f"'{name}': 'layer_norm'" for name in missing)
            raise ArgumentError(
                f"{self.scheme!r} has norms inside the attention, and there `norm={self.norm!r}` "
                "would mix positions, padding and the future among them.",
                "a norm that takes each position by itself",
                f"Choose another one for the attention alone: attention={{{own}}}.",
                value=self.norm,
            )
        fields = self.norm if isinstance(self.norm, dict) else {"name": self.norm}
        changes: dict[str, Any] = {name: {"epsilon": self.epsilon, **fields} for name in missing}
        return dataclasses.replace(self.attention, **changes)

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
        self._build_add_norm(name, x_shape, self.scheme.without_branch(self.position_of(name)))
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
            position=self.position_of(sublayer),
            drop_path=self.drop_path,
            dtype=self.dtype_policy,
            name=name,
        )
        add_norm.build(x_shape)
        setattr(self, name, add_norm)
        return add_norm
