"""SiameseNorm: a Post-LN stream and a Pre-LN stream that share their sublayers."""

import dataclasses

from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state


@dataclasses.dataclass(frozen=True)
class SiameseNorm(StreamScheme):
    """`x = LN_1(x)`, `f = F(LN_2(x + LN_3(y)))`, then `x = x + f / sqrt(2 l)` and `y = y + f`.

    Both streams start as the embedding, and l is the number of the layer, from 1. x is normed again
    and again, as in Post-LN; y is the plain sum of the branches, as in Pre-LN; each sublayer reads
    both. The stack ends with `LN(LN_4(x) + LN_5(y))`.

    The paper's models have two sublayers a layer, where `2 l` counts them. With cross-attention the
    factor stays as it is; that is this library's choice.

    Raises:
        ValueError: On use without a position.

    Reference:
        "SiameseNorm", ICML 2026 (arXiv:2602.08064); the authors' code.
    """

    needs_final_norm = True

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for three norms: of each stream, and of what the sublayer reads."""
        layer = require_position(position, "SiameseNorm").layer_index + 1
        return ResidualPlan(
            norm_slots=("pre_norm",),
            extra_norms=("stream_norm", "sum_norm"),
            settings=(2 * layer) ** -0.5,
        )

    def end_plan(self, position: StackPosition) -> ResidualPlan:
        """Ask for a norm of each stream."""
        return ResidualPlan(extra_norms=("stream_norm", "sum_norm"))

    def open(self, x: Tensor) -> StreamState:
        """Return two copies."""
        return StreamState((x, x))

    def prepare(self, state: StreamState, parts: ResidualParts) -> StreamState:
        """Norm the stream that `read` and `write` go on with."""
        x, y = _both(state)
        return StreamState((parts.stream_norm(x), y))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(x + LN(y))`."""
        x, y = _both(state)
        return parts.pre_norm(x + parts.sum_norm(y))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `x + f / sqrt(2 l)` and `y + f`."""
        x, y = _both(state)
        return StreamState((x + parts.plan.settings * branch, y + branch))

    def collapse(self, state: StreamState) -> Tensor:
        """Return x."""
        return _both(state)[0]

    def close(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return the norm of the sum of both streams, each normed."""
        x, y = _both(state)
        return parts.final_norm(parts.stream_norm(x) + parts.sum_norm(y))


def _both(state: StreamState) -> tuple[Tensor, ...]:
    return require_state(state, 2, 0, "SiameseNorm").streams
