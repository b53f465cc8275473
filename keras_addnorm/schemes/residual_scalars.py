"""Residual scalars: before each layer, the stream is mixed with the embedding it started as."""

import dataclasses
from typing import NamedTuple

from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state

STARTS = ("pre_ln", "decreasing")


class _Place(NamedTuple):
    is_first: bool


@dataclasses.dataclass(frozen=True)
class ResidualScalars(StreamScheme):
    """`x = a x + b x0` in front of each layer, whose sublayers are Pre-LN's; a and b are learned.

    x0 is the normed embedding, where the stream starts as well: the stack begins with a norm. Two
    numbers a layer, and one multiply-add. nanochat's embeddings of values, and its subtraction of a
    middle layer's stream at the end, are left out.

    Args:
        start: `"pre_ln"`: a = 1 and b = 0 everywhere. `"decreasing"`: from layer to layer a falls
            from 1.15 to 1.05, and b from 0.2 to 0.05.

    Raises:
        ValueError: If there is no such start, or on use without a position.

    Reference:
        Karpathy, nanochat, 2025 (`nanochat/gpt.py`); the authors give `a` a hundredth of the
        learning rate of `b`.
    """

    start: str = "pre_ln"
    needs_final_norm = True
    needs_embedding_norm = True
    needs_scale_invariant_norm = True

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise ArgumentError(
                "Residual scalars do not know this start.",
                f"one of {', '.join(STARTS)}",
                value=self.start,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and two numbers in a layer's first sublayer."""
        position = require_position(position, "Residual scalars")
        is_first = position.is_first_in_layer
        stream, start = self._initial_values(position)
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(
                LearnedArray("stream_weight", (), stream),
                LearnedArray("start_weight", (), start),
            )
            if is_first
            else (),
            settings=_Place(is_first),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the stream, and the same as memory."""
        return StreamState((x,), (x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(a x + b x0)`, or `LN(x)` after a layer's first sublayer."""
        return parts.pre_norm(_mixed(state, parts))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `a x + b x0 + f`, or `x + f`."""
        return StreamState((_mixed(state, parts) + branch,), state.memory)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the stream."""
        return state.streams[0]

    def _initial_values(self, position: StackPosition) -> tuple[float, float]:
        if self.start == "pre_ln":
            return 1.0, 0.0
        share = position.layer_index / max(1, position.depth - 1)
        return 1.15 - 0.1 * share, 0.2 - 0.15 * share


def _mixed(state: StreamState, parts: ResidualParts) -> Tensor:
    (x,), (x0,) = require_state(state, 1, 1, "residual scalars")
    if not parts.plan.settings.is_first:
        return x
    return ops.cast(parts.stream_weight, x.dtype) * x + ops.cast(parts.start_weight, x.dtype) * x0
