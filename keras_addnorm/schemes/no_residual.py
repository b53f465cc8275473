"""The norm alone, for experiments."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step, steps_of_plan


@dataclasses.dataclass(frozen=True)
class NoResidual(ResidualScheme):
    """`y = LN(F(x))`: Post-LN without its skip connection.

    Nothing carries `x` past the sublayer, so each one has to pass on all that later ones need.

    Reference:
        The ablation of Dong et al., "Attention is not all you need", 2021 (arXiv:2103.03404),
        section 2, where attention without skips loses rank doubly exponentially with depth.
    """

    needs_final_norm = False
    idea = "Norm without add: each sublayer has to hand on all that is known."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sublayer."""
        return ResidualPlan(norm_slots=("post_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(f)`."""
        return parts.post_norm(branch)

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return the plan's, without a sum."""
        return steps_of_plan(plan, skip="nothing")
