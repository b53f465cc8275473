"""Neither residual connection nor norm, for experiments."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step, steps_of_plan


@dataclasses.dataclass(frozen=True)
class Plain(ResidualScheme):
    """`y = F(x)`: sublayers in a row, what deep networks were before skips and norms.

    Reference:
        The "plain" networks of He et al., "Deep Residual Learning for Image Recognition", 2015
        (arXiv:1512.03385), section 3.3.
    """

    needs_final_norm = False
    idea = "Neither add nor norm: sublayers in a row."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for nothing."""
        return ResidualPlan()

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `f`."""
        return branch

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return the plan's, without a sum."""
        return steps_of_plan(plan, skip="nothing")
