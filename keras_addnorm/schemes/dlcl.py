"""DLCL: each layer reads a learned weighted sum of the normed outputs of all layers before it."""

import dataclasses
from typing import NamedTuple

from keras_addnorm.schemes.mixing import precise, weigh
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


class _Place(NamedTuple):
    num_outputs: int
    """How many outputs there are in front of the layer, the embedding counted."""

    ends_layer: bool


@dataclasses.dataclass(frozen=True)
class DLCL(StreamScheme):
    """`x_{l+1} = sum_{k <= l} W_k LN_k(y_k)`, `y_l` the output of layer l and `y_0` the embedding.

    Dynamic linear combination of layers, in its form for Pre-LN: inside a layer, whose input is
    `x_l`, it is Pre-LN. One number `W_k` for each pair of layers, and one norm for each output,
    that of the embedding included. The top of the stack reads such a sum as well, so that no other
    norm follows. The first layer reads the normed embedding: a number on it would be a second gain.

    The weights of a sum start as 1 over their number: a mean.

    A layer used alone begins anew: its sources are what it was given, not normed, and what it puts
    out, and their weights are its last ones, whatever its place in a stack.

    Raises:
        ValueError: On use without a position.

    Reference:
        Wang et al., "Learning Deep Transformer Models for Machine Translation", 2019
        (arXiv:1906.01787), section 3.
    """

    needs_final_norm = False
    needs_embedding_norm = True

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer; at a layer's end for one behind it, and the sum's."""
        position = require_position(position, "DLCL")
        count = position.layer_index + 2
        place = _Place(position.layer_index + 1, position.is_last_in_layer)
        if not place.ends_layer:
            return ResidualPlan(norm_slots=("pre_norm",), settings=place)
        return ResidualPlan(
            norm_slots=("pre_norm", "post_norm"),
            arrays=(LearnedArray("depth_weights", (count,), 1 / count),),
            settings=place,
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the stream, and the same as the first output."""
        return StreamState((x,), (x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(x)`."""
        return parts.pre_norm(_checked(state, parts).streams[0])

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `x + f`; at the end of a layer keep its norm, and go on with the weighted sum."""
        y = _checked(state, parts).streams[0] + branch
        if not parts.plan.settings.ends_layer:
            return StreamState((y,), state.memory)
        outputs = (*state.memory, parts.post_norm(y))
        return StreamState((weigh(_weights(outputs, parts), outputs),), outputs)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the stream."""
        return state.streams[0]

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the weights behind a layer, one an output that there is."""
        if not parts.plan.settings.ends_layer:
            return {}
        return {"depth": _weights((*state.memory, *state.streams), parts)}


def _weights(outputs: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
    """Return the weights of the outputs; a lone layer has its last ones."""
    return precise(parts.depth_weights)[-len(outputs) :]


def _checked(state: StreamState, parts: ResidualParts) -> StreamState:
    """A lone layer has the outputs since it began."""
    num_outputs = min(parts.plan.settings.num_outputs, max(1, len(state.memory)))
    return require_state(state, 1, num_outputs, "DLCL")
