"""Pre-LN: the norm on the branch's input; the skip connection is an identity."""

import dataclasses

from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class PreLN(ResidualScheme):
    """`y = x + F(LN(x))`, and one more norm at the end of the stack.

    Reference:
        Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020.
    """

    needs_final_norm = True
    idea = "Norm only what the sublayer reads: from bottom to top the stream meets only additions."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer."""
        return ResidualPlan(norm_slots=("pre_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`."""
        return residual + branch

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: what the branch would read, and its gain, are not needed."""
        return NoNorm()
