"""Mix-LN: Post-LN in the first layers, Pre-LN in the others."""

import dataclasses

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class MixLN(ResidualScheme):
    """`y = LN(x + F(x))` in the first `floor(share L)` of L layers, `y = x + F(LN(x))` after.

    Post-LN gives deep layers larger gradients, Pre-LN gives them to early ones: in this order both
    get some. One more norm at the end of the stack, unless all layers are Post-LN.

    Args:
        share: Share of the layers of each stack that are Post-LN. In a stack of fewer than
            `1 / share` layers that is none.

    Raises:
        ValueError: If the share is not in [0, 1], or on use without a position.

    Reference:
        Li et al., "Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN",
        2024 (arXiv:2412.13795), section 3; a share of 0.25 is the paper's choice.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        if not is_number(self.share, least=0, most=1):
            raise ArgumentError(
                "Mix-LN needs to know which share of the layers is Post-LN.",
                "0 <= `share` <= 1",
                share=self.share,
            )

    idea = "Post-LN in the first layers, Pre-LN in the others."

    @property
    def needs_final_norm(self) -> bool:
        """Whether the last layer is Pre-LN, and leaves the stream raw."""
        return self.share < 1

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum or before the sublayer."""
        position = require_position(position, "Mix-LN")
        # A little more than the product: 0.29 * 100 is 28.999999999999996.
        num_post_ln = int(self.share * position.depth + 1e-9)
        is_post_ln = position.layer_index < num_post_ln
        return ResidualPlan(norm_slots=("post_norm",) if is_post_ln else ("pre_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(x + f)`, or `x + f`."""
        merged = residual + branch
        return parts.post_norm(merged) if _is_post_ln(parts) else merged

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return what Post-LN or Pre-LN leaves, whichever stands here."""
        return self if "post_norm" in self.plan(position).norm_slots else NoNorm()


def _is_post_ln(parts: ResidualParts) -> bool:
    return "post_norm" in parts.plan.norm_slots
