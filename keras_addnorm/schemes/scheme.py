"""What a residual scheme is: the vocabulary shared by every file of this room."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

Tensor = Any
"""A backend tensor: `tf.Tensor`, `jax.Array`, `torch.Tensor` or a symbolic `KerasTensor`."""

NormSlot = Literal["pre_norm", "branch_norm", "post_norm"]


@dataclasses.dataclass(frozen=True)
class StackPosition:
    """Where a sublayer stands in the whole model, in plain numbers.

    Schemes that depend on depth (DeepNorm, LayerScale) read it; the others ignore it.

    Args:
        num_encoder_layers: Depth of the encoder; 0 for a decoder-only model.
        num_decoder_layers: Depth of the decoder; 0 for an encoder-only model.
        side: `"encoder"` or `"decoder"`.
        layer_index: Index of the layer in its stack, from 0.
        sublayer: `"self_attention"`, `"cross_attention"` or `"feed_forward"`; `None` while the
            position is that of a whole layer.

    Raises:
        ValueError: If `side` is unknown or `layer_index` lies outside the stack.
    """

    num_encoder_layers: int
    num_decoder_layers: int
    side: Literal["encoder", "decoder"]
    layer_index: int = 0
    sublayer: str | None = None

    def __post_init__(self) -> None:
        if self.side not in ("encoder", "decoder"):
            raise ValueError(
                "A stack position needs a side. Expected 'encoder' or 'decoder'. "
                f"Received: side={self.side!r}"
            )
        if not 0 <= self.layer_index < self.depth:
            raise ValueError(
                f"The layer lies outside its stack. Expected 0 <= layer_index < {self.depth} "
                f"(the depth of the {self.side}). Received: layer_index={self.layer_index}. "
                f"Set num_{self.side}_layers to the number of layers that the {self.side} has."
            )

    @property
    def depth(self) -> int:
        """Number of layers in the stack on this side."""
        return self.num_encoder_layers if self.side == "encoder" else self.num_decoder_layers

    def at(self, sublayer: str) -> StackPosition:
        """Return the position of one sublayer of this layer."""
        return dataclasses.replace(self, sublayer=sublayer)

    def to_dict(self) -> dict[str, Any]:
        """Return the config that `get` turns back into an equal position."""
        return dataclasses.asdict(self)

    @classmethod
    def get(cls, identifier: StackPosition | dict[str, Any] | None) -> StackPosition | None:
        """Return a position from an instance, from its config, or `None`."""
        return cls(**identifier) if isinstance(identifier, dict) else identifier


@dataclasses.dataclass(frozen=True)
class BranchScale:
    """A learned factor on the branch.

    Args:
        initial_value: Value that the factor starts at.
        per_channel: Whether each channel has its own factor (LayerScale) or all share one
            (ReZero).
    """

    initial_value: float
    per_channel: bool


@dataclasses.dataclass(frozen=True)
class ResidualPlan:
    """The parts that a scheme needs at one place of the stack.

    Args:
        norm_slots: Which of `"pre_norm"`, `"branch_norm"` and `"post_norm"` to create.
        branch_scale: The learned factor on the branch, or `None`.
        skip_gain: Constant factor on the skip connection (DeepNorm's alpha).
        init_gain: Factor on the initial value, output and feed-forward kernels (DeepNorm's beta).
    """

    norm_slots: tuple[NormSlot, ...] = ()
    branch_scale: BranchScale | None = None
    skip_gain: float = 1.0
    init_gain: float = 1.0


def _absent(slot: str) -> Callable[[Tensor], Tensor]:
    def raise_for_slot(x: Tensor) -> Tensor:
        raise ValueError(
            f"The scheme used the slot '{slot}', which its plan does not ask for. "
            f"Add '{slot}' to the norm_slots of the plan."
        )

    return raise_for_slot


@dataclasses.dataclass(frozen=True)
class ResidualParts:
    """The parts of a plan, made real by `AddNorm`: callables and tensors that a scheme works with.

    Args:
        plan: The plan that the parts were made from.
        pre_norm: Normalises the input of the branch.
        branch_norm: Normalises the output of the branch.
        post_norm: Normalises the sum.
        branch_scale: The learned factor, a scalar or one value a channel.
    """

    plan: ResidualPlan
    pre_norm: Callable[[Tensor], Tensor] = dataclasses.field(default=_absent("pre_norm"))
    branch_norm: Callable[[Tensor], Tensor] = dataclasses.field(default=_absent("branch_norm"))
    post_norm: Callable[[Tensor], Tensor] = dataclasses.field(default=_absent("post_norm"))
    branch_scale: Tensor = None


class ResidualScheme(abc.ABC):
    """How a sublayer `F` joins the residual stream `x`.

    `f = F(branch_input(x))`, then `y = merge(x, f)`. A scheme is a frozen dataclass: it holds
    plain numbers, owns no weights, and says in `plan` which parts `AddNorm` has to make for it.

    A scheme of your own implements the three methods, says whether a stack ends with a norm
    (`needs_final_norm`) and is registered with `keras_addnorm.schemes.register` so that models
    that use it can be saved.
    """

    needs_final_norm: ClassVar[bool]
    """Whether the stack has to end with a norm, because the stream leaves its last layer raw."""

    @abc.abstractmethod
    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Say which parts are needed at this place of the stack."""

    @abc.abstractmethod
    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads."""

    @abc.abstractmethod
    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return the residual stream with the sublayer's output merged into it."""

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return the scheme for a place whose sublayer is pruned, `F(x) = 0`.

        Any scheme that merges zeros as this one does is right; one that asks for fewer parts is
        better.

        Args:
            position: The place.

        Returns:
            The scheme itself, unless it knows a smaller one.
        """
        return self
