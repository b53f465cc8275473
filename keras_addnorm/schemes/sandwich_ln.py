"""Sandwich-LN: a norm on both sides of the sublayer, inside the branch."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.res_post_norm import ResPostNorm
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class SandwichLN(ResidualScheme):
    """`y = x + LN(F(LN(x)))`, and one more norm at the end of the stack.

    The norm on the branch's output bounds what a sublayer can add. `"peri_ln"` is the same scheme:
    Peri-LN has these norms around each sublayer and the one at the end. Its norm on the
    embeddings, which the paper calls optional, stands outside all sublayers and is left out.

    Reference:
        Ding et al., "CogView: Mastering Text-to-Image Generation via Transformers", 2021
        (arXiv:2105.13290), section 2.4; Kim et al., "Peri-LN", 2025 (arXiv:2502.02732).
    """

    needs_final_norm = True
    idea = "Norms before and after the sublayer: what is added has one size."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before and after the sublayer."""
        return ResidualPlan(norm_slots=("pre_norm", "branch_norm"))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + LN(f)`."""
        return residual + parts.branch_norm(branch)

    def without_branch(self, position: StackPosition | None) -> ResPostNorm:
        """Return the sum with a normalised branch: the norm in front is not needed."""
        return ResPostNorm()
