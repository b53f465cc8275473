"""Res-post-norm: the norm on the branch's output, before it is added to the stream."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class ResPostNorm(ResidualScheme):
    """`y = x + LN(F(x))`, and one more norm at the end of the stack.

    What a sublayer adds is of one size whatever the depth, so the stream grows slowly. The
    sublayer itself reads the raw stream.

    The authors' code starts the gains of these norms at zero, so that every layer starts as the
    identity; ours start at ones, as the formula has it. Their largest models (H and G) put one
    more norm on the stream itself after every sixth layer; that is no part of this scheme.

    Reference:
        Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021
        (arXiv:2111.09883), section 3.2.
    """

    needs_final_norm = True
    idea = "A norm on what the sublayer computes, none on what it reads."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sublayer."""
        return ResidualPlan(norm_slots=("branch_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + LN(f)`."""
        return residual + parts.branch_norm(branch)
