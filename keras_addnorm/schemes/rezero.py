"""ReZero: no norm, but a learned factor on the branch that starts at zero."""

import dataclasses

from keras_addnorm.basics.argument_checks import require_finite
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    LearnedScale,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.scheme import Folding, ResidualScheme


@dataclasses.dataclass(frozen=True)
class ReZero(ResidualScheme):
    """`y = x + alpha F(x)` with one learned `alpha` a sublayer, which starts at zero.

    Every layer starts as the identity, so signals and gradients pass any depth unchanged.

    Args:
        initial_value: Where `alpha` starts.

    Reference:
        Bachlechner et al., "ReZero is All You Need", 2020 (arXiv:2003.04887), equation 1.
    """

    initial_value: float = 0.0
    needs_final_norm = False
    idea = "No norm: a learned factor on the branch, zero at first."

    def __post_init__(self) -> None:
        require_finite("ReZero learns a factor.", initial_value=self.initial_value)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for one scalar."""
        return ResidualPlan(branch_scale=LearnedScale(self.initial_value, per_channel=False))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + alpha f`."""
        return residual + parts.branch_scale * branch

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Put `alpha` into the sublayer: `x + F(x)` remains."""
        return Folding(NoNorm(), branch_gain=branch_scale)

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: what the branch would read, and its gain, are not needed."""
        return NoNorm()
