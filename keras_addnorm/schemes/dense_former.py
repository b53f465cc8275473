"""DenseFormer: behind each layer, a learned weighted sum of the outputs of all layers so far."""

import dataclasses
from typing import NamedTuple

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.mixing import basis_vector, precise, weigh
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
    """How many layers came before, the embedding counted."""

    ends_layer: bool
    mixes: bool


@dataclasses.dataclass(frozen=True)
class DenseFormer(StreamScheme):
    """`x_i = sum_{j <= i} a_ij r_j` behind layer i, `r_i` its output and `r_0` the embedding.

    Inside a layer it is Pre-LN, and what is kept are the layers' own outputs, not the mixtures. At
    the start `a_ii = 1` and the others are 0: exactly Pre-LN.

    A layer used alone begins anew: its sources are what it was given and what it puts out, and
    their weights are its last ones, whatever its place in a stack.

    Args:
        dilation: Layer i weighs the outputs i, i - dilation, i - 2 dilation and so on.
        period: Only behind every so many layers is there a sum; behind the others goes on `r_i`.

    Raises:
        ValueError: If one of them is not positive, or on use without a position.

    Reference:
        Pagliardini et al., "DenseFormer: Enhancing Information Flow in Transformers via Depth
        Weighted Averaging", 2024 (arXiv:2402.02622); the authors' code.
    """

    dilation: int = 1
    period: int = 1
    needs_final_norm = True

    def __post_init__(self) -> None:
        for name in ("dilation", "period"):
            value = getattr(self, name)
            if not is_whole(value, 1):
                raise ArgumentError(
                    "DenseFormer counts layers.", f"an int, {name} >= 1", value=value
                )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and a weight a source where sources are weighed."""
        position = require_position(position, "DenseFormer")
        number, ends_layer = position.layer_index + 1, position.is_last_in_layer
        mixes = ends_layer and number % self.period == 0
        count = number // self.dilation + 1
        start = basis_vector(count - 1, count)
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(LearnedArray("depth_weights", (count,), start),) if mixes else (),
            settings=_Place(number, ends_layer, mixes),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the stream, and the same as the first output."""
        return StreamState((x,), (x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(x)`."""
        return parts.pre_norm(_checked(state, parts).streams[0])

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `x + f`; at the end of a layer keep it, and go on with the weighted sum."""
        place, x = parts.plan.settings, _checked(state, parts).streams[0] + branch
        if not place.ends_layer:
            return StreamState((x,), state.memory)
        outputs = (*state.memory, x)
        if not place.mixes:
            return StreamState((x,), outputs)
        sources = outputs[(len(outputs) - 1) % self.dilation :: self.dilation]
        return StreamState((weigh(self._weights(outputs, parts), sources),), outputs)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the stream."""
        return state.streams[0]

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the weights of a layer's last sublayer, one a source that there is."""
        if not parts.plan.settings.mixes:
            return {}
        return {"depth": self._weights((*state.memory, *state.streams), parts)}

    def _weights(self, outputs: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        """Return the weights of the sources among outputs; a lone layer has its last ones."""
        num_sources = (len(outputs) - 1) // self.dilation + 1
        return precise(parts.depth_weights)[-num_sources:]


def _checked(state: StreamState, parts: ResidualParts) -> StreamState:
    """A lone layer has the outputs since it began."""
    num_outputs = min(parts.plan.settings.num_outputs, max(1, len(state.memory)))
    return require_state(state, 1, num_outputs, "DenseFormer")
