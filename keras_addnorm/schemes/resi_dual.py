"""ResiDual: a Post-LN stream and, beside it, the plain sum of all branches."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state


@dataclasses.dataclass(frozen=True)
class ResiDual(StreamScheme):
    """`p = LN(p + F(p))`, `d = d + F(p)`; at the top of the stack `p + LN(d)`.

    Both streams start as the embedding. The sublayers read p, which is a Post-LN stack; d, which
    only the top of the stack reads, carries gradients past the norms, as in Pre-LN.

    All norms have the epsilon of the stack; the authors' code gives 1e-7 to the one at the top.

    Reference:
        Xie et al., "ResiDual: Transformer with Dual Residual Connections", 2023
        (arXiv:2304.14802); the authors' code.
    """

    needs_final_norm = True

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum."""
        return ResidualPlan(norm_slots=("post_norm",))

    def open(self, x: Tensor) -> StreamState:
        """Return two copies."""
        return StreamState((x, x))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return p."""
        return _both(state)[0]

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `LN(p + f)` and `d + f`."""
        post_ln, dual = _both(state)
        return StreamState((parts.post_norm(post_ln + branch), dual + branch))

    def collapse(self, state: StreamState) -> Tensor:
        """Return p."""
        return _both(state)[0]

    def close(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `p + LN(d)`."""
        post_ln, dual = _both(state)
        return post_ln + parts.final_norm(dual)


def _both(state: StreamState) -> tuple[Tensor, ...]:
    return require_state(state, 2, 0, "ResiDual").streams
