"""DenseFormer: behind each layer, a learned weighted sum of the outputs of all layers so far."""

import dataclasses
from typing import NamedTuple

from keras_addnorm.schemes.mixing import basis_vector, precise, weigh
from keras_addnorm.schemes.scheme import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.streams import StreamScheme, StreamState


class _Place(NamedTuple):
    is_last: bool


@dataclasses.dataclass(frozen=True)
class DenseFormer(StreamScheme):
    """`x_i = sum_{j <= i} a_ij r_j` behind layer i, `r_i` its output and `r_0` the embedding.

    Inside a layer it is Pre-LN, and what is kept are the layers' own outputs, not the mixtures. At
    the start `a_ii = 1` and the others are 0: exactly Pre-LN.

    Raises:
        ValueError: On use without a position.

    Reference:
        Pagliardini et al., "DenseFormer: Enhancing Information Flow in Transformers via Depth
        Weighted Averaging", 2024 (arXiv:2402.02622); the authors' code. Without its dilation and
        period.
    """

    needs_final_norm = True

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and a weight a source in a layer's last sublayer."""
        position = require_position(position, "DenseFormer")
        is_last, count = position.is_last_in_layer, position.layer_index + 2
        start = basis_vector(count - 1, count)
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(LearnedArray("depth_weights", (count,), start),) if is_last else (),
            settings=_Place(is_last),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the stream, and the same as the first output."""
        return StreamState((x,), (x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(x)`."""
        return parts.pre_norm(state.streams[0])

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `x + f`; at the end of a layer keep it, and go on with the weighted sum."""
        x = state.streams[0] + branch
        if not parts.plan.settings.is_last:
            return StreamState((x,), state.memory)
        sources = (*state.memory, x)
        # A lone layer has no outputs of layers before it: the last weights are its own.
        weights = precise(parts.depth_weights)[-len(sources) :]
        return StreamState((weigh(weights, sources),), sources)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the stream."""
        return state.streams[0]

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the weights of a layer's last sublayer."""
        return {"depth": parts.depth_weights} if parts.plan.settings.is_last else {}
