"""B2T: Post-LN with one more skip, from the bottom of a layer to its top."""

import dataclasses
from typing import NamedTuple

from keras_addnorm.schemes.mixing import total
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state


class _Place(NamedTuple):
    is_first: bool
    is_last: bool


@dataclasses.dataclass(frozen=True)
class B2T(StreamScheme):
    """`y = LN(x + F(x))`, and in a layer's last sublayer `y = LN(x + F(x) + u)`, u its input.

    The skip from bottom to top goes round all but one of the layer's norms. All kernels, those of
    query and key too, start `N^-1/2` times smaller, N the layers of the stack.

    Raises:
        ValueError: On use without a position.

    Reference:
        Takase et al., "B2T Connection: Serving Stability and Performance in Deep Transformers",
        2022 (arXiv:2206.00330); the initial values are those of the authors' code.
    """

    needs_final_norm = False

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum and smaller initial kernels."""
        position = require_position(position, "B2T")
        gain = position.depth**-0.5
        return ResidualPlan(
            norm_slots=("post_norm",),
            init_gain=gain,
            query_key_init_gain=gain,
            settings=_Place(position.is_first_in_layer, position.is_last_in_layer),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the stream, and nothing kept."""
        return StreamState((x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return the stream as it is."""
        return _checked(state, parts).streams[0]

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `LN(x + f)`, or `LN(x + f + u)`; the layer's input u is kept in between."""
        place = parts.plan.settings
        (x,), kept = _checked(state, parts)
        if place.is_first:
            kept = (x,)
        skips = kept if place.is_last else ()
        merged = parts.post_norm(total([x, branch, *skips]))
        return StreamState((merged,), () if place.is_last else kept)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the stream."""
        return state.streams[0]


def _checked(state: StreamState, parts: ResidualParts) -> StreamState:
    return require_state(state, 1, 0 if parts.plan.settings.is_first else 1, "B2T")
