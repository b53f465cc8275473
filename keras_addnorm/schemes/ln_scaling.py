"""LN-scaling: Pre-LN whose norm outputs are scaled down by the square root of the depth."""

import dataclasses

from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.pre_ln import PreLN
from keras_addnorm.schemes.scheme import Folding, ResidualScheme


@dataclasses.dataclass(frozen=True)
class LNScaling(ResidualScheme):
    """`y = x + F(LN(x) / sqrt(l))` in layer `l`, from 1, and one more norm, unscaled, at the end.

    In Pre-LN the variance of the stream grows with depth, until deep layers hardly change it; the
    factor slows the growth down.

    Raises:
        ValueError: On use without a position.

    Reference:
        Sun et al., "The Curse of Depth in Large Language Models", 2025 (arXiv:2502.05795),
        section 4 ("LayerNorm Scaling").
    """

    needs_final_norm = True
    idea = "Pre-LN whose deeper sublayers read a smaller stream."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and set its factor."""
        layer_number = require_position(position, "LN-scaling").layer_index + 1
        return ResidualPlan(norm_slots=("pre_norm",), input_gain=layer_number**-0.5)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`."""
        return residual + branch

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Put the factor into the norm: Pre-LN remains."""
        return Folding(PreLN(), pre_norm_gain=plan.input_gain)

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: the norm that only the branch reads is not needed."""
        return NoNorm()
