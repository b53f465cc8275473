"""What schemes and `AddNorm` exchange: where a sublayer stands, and the parts around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.fields import from_fields

if TYPE_CHECKING:
    import keras

Tensor = Any
"""A backend tensor: `tf.Tensor`, `jax.Array`, `torch.Tensor` or a symbolic `KerasTensor`."""

NormSlot = Literal["pre_norm", "branch_norm", "post_norm"]


@dataclasses.dataclass(frozen=True)
class StackPosition:
    """Where a sublayer stands in the whole model, in plain numbers.

    Schemes that depend on it (DeepNorm, Mix-LN, ...) read it; the others ignore it.

    Args:
        num_encoder_layers: Depth of the encoder; 0 for a decoder-only model.
        num_decoder_layers: Depth of the decoder; 0 for an encoder-only model.
        side: `"encoder"` or `"decoder"`.
        layer_index: Index of the layer in its stack, from 0.
        sublayer: `"self_attention"`, `"cross_attention"` or `"feed_forward"`; `None` while the
            position is that of a whole layer.
        sublayers: All sublayers of a layer of this stack, pruned ones too, in the order in which
            they run; empty while the position is that of a whole layer.

    Raises:
        ValueError: If `side` is unknown or `layer_index` lies outside the stack.
    """

    num_encoder_layers: int
    num_decoder_layers: int
    side: Literal["encoder", "decoder"]
    layer_index: int = 0
    sublayer: str | None = None
    sublayers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.sublayers, tuple | list):
            raise ArgumentError(
                "A layer has sublayers, by their names.",
                "a tuple of them",
                sublayers=self.sublayers,
            )
        object.__setattr__(self, "sublayers", tuple(self.sublayers))  # files have lists
        for name in ("num_encoder_layers", "num_decoder_layers", "layer_index"):
            if not is_whole(getattr(self, name)):
                raise ArgumentError(
                    "A place in a model is counted.", f"an int {name}", value=getattr(self, name)
                )
        if not isinstance(self.sublayer, str | None):
            raise ArgumentError("A sublayer has a name.", "a str, or None", sublayer=self.sublayer)
        if self.side not in ("encoder", "decoder"):
            raise ArgumentError(
                "A stack position needs a side.", "'encoder' or 'decoder'", side=self.side
            )
        if not 0 <= self.layer_index < self.depth:
            raise ArgumentError(
                "The layer lies outside its stack.",
                f"0 <= `layer_index` < {self.depth} (the depth of the {self.side})",
                f"Set num_{self.side}_layers to the number of layers that the {self.side} has.",
                layer_index=self.layer_index,
            )

    @property
    def depth(self) -> int:
        """Number of layers in the stack on this side."""
        return self.num_encoder_layers if self.side == "encoder" else self.num_decoder_layers

    @property
    def sublayer_index(self) -> int:
        """Index of the sublayer in its stack, from 0."""
        return self.layer_index * len(self.sublayers) + self._index_in_layer

    @property
    def num_sublayers(self) -> int:
        """Number of sublayers in the stack on this side."""
        return self.depth * len(self.sublayers)

    @property
    def is_first_in_layer(self) -> bool:
        """Whether no sublayer of the same layer runs before."""
        return self._index_in_layer == 0

    @property
    def is_last_in_layer(self) -> bool:
        """Whether no sublayer of the same layer runs after."""
        return self._index_in_layer == len(self.sublayers) - 1

    @property
    def _index_in_layer(self) -> int:
        if self.sublayer not in self.sublayers:
            raise ArgumentError(
                "Where a sublayer stands among those of its layer is not known.",
                "a position with `sublayer` and all `sublayers` of the layer",
                'Say position.at("feed_forward", ("self_attention", "feed_forward")); '
                "layers do that.",
                sublayer=self.sublayer,
                sublayers=self.sublayers,
            )
        return self.sublayers.index(self.sublayer)

    def at(self, sublayer: str, sublayers: tuple[str, ...] = ()) -> StackPosition:
        """Return the position of one sublayer of this layer, among all that the layer has."""
        return dataclasses.replace(self, sublayer=sublayer, sublayers=sublayers)

    def to_dict(self) -> dict[str, Any]:
        """Return the config from which `get` makes an equal position."""
        return dataclasses.asdict(self)

    @classmethod
    def get(cls, identifier: StackPosition | dict[str, Any] | None) -> StackPosition | None:
        """Return a position from an instance, from its config, or `None`."""
        return from_fields(cls, identifier, "A place in a model")


def require_position(position: StackPosition | None, scheme: str) -> StackPosition:
    """Return the position, or say that the scheme cannot do without."""
    if position is None:
        raise ArgumentError(
            f"{scheme} depends on where in the model a sublayer stands, which is not known here.",
            "a StackPosition",
            "Pass position=StackPosition(num_encoder_layers, num_decoder_layers, side, "
            "layer_index).",
            received="position=None",
        )
    return position


@dataclasses.dataclass(frozen=True)
class LearnedScale:
    """A learned factor, on the branch or on the skip connection.

    Args:
        initial_value: Value that the factor starts at.
        per_channel: Whether each channel has its own factor (LayerScale, Admin) or all share one
            (ReZero).
    """

    initial_value: float
    per_channel: bool


Values = float | tuple["Values", ...]
"""A number, or nested tuples of numbers."""


@dataclasses.dataclass(frozen=True)
class LearnedArray:
    """A learned array of a scheme's own: coefficients of a mix of streams, a query over depth.

    It is float32 under mixed precision, and never cast.

    Args:
        name: The name that the scheme finds it under.
        shape: Its sizes: numbers, `"D"` for the width of the residual stream, and `"D/4"` for a
            quarter of it.
        initial_value: Where it starts: a number, or nested tuples of its shape.
        is_trained: Whether it is learned by gradients; the scheme itself assigns to one that is
            not, such as a count of batches.
    """

    name: str
    shape: tuple[int | str, ...]
    initial_value: Values
    is_trained: bool = True

    def sizes(self, hidden_dim: int) -> tuple[int, ...]:
        """Return the shape for a stream of this width."""
        return tuple(
            size if isinstance(size, int) else _part(size, hidden_dim) for size in self.shape
        )


def _part(size: str, hidden_dim: int) -> int:
    name, _, divisor = size.partition("/")
    parts = int(divisor or 1) if name == "D" else 0
    if parts < 1 or hidden_dim % parts:
        raise ArgumentError(
            "An array of the scheme's has a size that there is not.",
            f"a number, 'D', or 'D/m' with an m that divides D = {hidden_dim}",
            value=size,
        )
    return hidden_dim // parts


@dataclasses.dataclass(frozen=True)
class ExtraLayer:
    """A Keras layer of a scheme's own, beyond norms and factors.

    Args:
        name: The name that the scheme finds it under, and that weight files know it by.
        make: Called as `make(hidden_dim, dtype=..., name=...)` with the width of the residual
            stream, D; returns the layer, built. Say a module's function, not a lambda: plans are
            compared.
    """

    name: str
    make: Callable[..., keras.layers.Layer]


@dataclasses.dataclass(frozen=True)
class ResidualPlan:
    """The parts that a scheme needs at one place of the stack.

    Args:
        norm_slots: Which of `"pre_norm"`, `"branch_norm"` and `"post_norm"` to create.
        branch_scale: The learned factor on the branch, or `None`.
        skip_gain: Constant factor on the skip connection (DeepNorm's alpha).
        init_gain: Factor on the initial value, output and feed-forward kernels (DeepNorm's beta,
            Sub-LN's gamma).
        skip_scale: The learned factor on the skip connection, or `None`.
        input_gain: Constant factor on what the sublayer reads (LN-scaling's `1 / sqrt(l)`).
        inner_norm: Whether the sublayer normalises what its output projection reads (Sub-LN).
        extra_layers: Layers of the scheme's own.
        arrays: Learned arrays of the scheme's own; their order is that in files of weights.
        settings: What the scheme wants to know again when it is called, such as where in its layer
            the sublayer stands: plain numbers, for instance a `NamedTuple` of them.
        query_key_norm: Whether an attention normalises queries and keys (HybridNorm).
        value_norm: Whether an attention normalises values.
        query_key_init_gain: Factor on the initial query and key kernels (DS-Init).
        post_norm_gain: Factor by which the input of `post_norm` is smaller than the scheme means;
            the norm makes up for it with a smaller epsilon (folded gains).
        extra_norms: Names of further norms of the stream's width, of the layer's kind; also at the
            end of a stack.

    Raises:
        ValueError: If a norm slot is unknown, or a name is taken twice.
    """

    norm_slots: tuple[NormSlot, ...] = ()
    branch_scale: LearnedScale | None = None
    skip_gain: float = 1.0
    init_gain: float = 1.0
    skip_scale: LearnedScale | None = None
    input_gain: float = 1.0
    inner_norm: bool = False
    extra_layers: tuple[ExtraLayer, ...] = ()
    arrays: tuple[LearnedArray, ...] = ()
    settings: Any = ()
    query_key_norm: bool = False
    value_norm: bool = False
    query_key_init_gain: float = 1.0
    post_norm_gain: float = 1.0
    extra_norms: tuple[str, ...] = ()

    @property
    def norms(self) -> tuple[str, ...]:
        """The names of all norms, in the order in which `AddNorm` makes them."""
        return (*self.norm_slots, *self.extra_norms)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of what `AddNorm` makes for the scheme."""
        scales = ("branch_scale", "skip_scale")
        own: tuple[ExtraLayer | LearnedArray, ...] = (*self.extra_layers, *self.arrays)
        return (
            *self.norms,
            *(name for name in scales if getattr(self, name) is not None),
            *(part.name for part in own),
        )

    def __post_init__(self) -> None:
        if unknown := [slot for slot in self.norm_slots if slot not in get_args(NormSlot)]:
            raise ArgumentError(
                "The plan asks for a norm at a place that there is not.",
                f"`norm_slots` among {get_args(NormSlot)}",
                "A norm elsewhere is one of `extra_norms`.",
                value=unknown,
            )
        if twice := sorted({name for name in self.parts if self.parts.count(name) > 1}):
            raise ArgumentError(
                "Each part of a plan needs a name of its own, because weight files know it by "
                "that.",
                received=f"more than once: {twice}",
            )


class ResidualParts:
    """The parts of a plan under their names, as `AddNorm` has made them.

    `parts.pre_norm(x)`, `parts.branch_norm(x)`, `parts.post_norm(x)` normalise; `branch_scale` and
    `skip_scale` are the learned factors, a scalar or one value a channel; a layer or an array of
    the scheme's own goes by the name that the plan gives it. At the end of a stack, where the
    scheme closes it, `parts.final_norm(x)` normalises. A part that the plan does not ask for is an
    error that says so.

    Args:
        plan: The plan that the parts were made from, with its constants.
        padding_mask: `(B, T)`, True at real positions, or `None`; norms know it already.
        training: Whether this is a call of training; norms know it already.
        **made: The parts by name.
    """

    def __init__(
        self,
        plan: ResidualPlan,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        **made: Any,
    ) -> None:
        self.plan = plan
        self.padding_mask = padding_mask
        self.training = training
        self._made = made
        self._used: set[str] = set()

    def replaced(self, plan: ResidualPlan, **made: Any) -> ResidualParts:
        """Return the parts for a scheme inside another: with its plan, and some of them changed."""
        parts = ResidualParts(plan, self.padding_mask, self.training, **{**self._made, **made})
        parts._used = self._used
        return parts

    @property
    def used(self) -> frozenset[str]:
        """The names of the parts that the scheme has asked for."""
        return frozenset(self._used)

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__.get("_made", {})
        if name in made:
            self._used.add(name)
            return made[name]
        raise AttributeError(
            f"The scheme used the part '{name}', which its plan does not ask for. Expected one of "
            f"{list(made)}. Add it to the ResidualPlan: norms to norm_slots, learned factors as "
            "branch_scale or skip_scale, anything else to arrays or extra_layers."
        )
