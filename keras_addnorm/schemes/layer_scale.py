"""LayerScale: Pre-LN with a small learned gain on every channel of the branch."""

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
from keras_addnorm.schemes.pre_ln import PreLN
from keras_addnorm.schemes.scheme import Folding, ResidualScheme


@dataclasses.dataclass(frozen=True)
class LayerScale(ResidualScheme):
    """`y = x + diag(lambda) F(LN(x))`, and one more norm at the end of the stack.

    The paper starts `lambda` at 0.1 up to 18 layers, at 1e-5 up to 24 and at 1e-6 beyond.

    Args:
        initial_value: Where `lambda` starts; `None` for the paper's value at the stack's depth
            (0.1 where the position is unknown).

    Reference:
        Touvron et al., "Going deeper with Image Transformers", 2021 (arXiv:2103.17239),
        section 2.
    """

    initial_value: float | None = None
    needs_final_norm = True
    idea = "Pre-LN with a small learned gain on each channel of the branch."

    def __post_init__(self) -> None:
        if self.initial_value is not None:
            require_finite("LayerScale learns factors.", initial_value=self.initial_value)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer and one gain a channel."""
        value = self.initial_value
        if value is None:
            value = _initial_value(0 if position is None else position.depth)
        return ResidualPlan(
            norm_slots=("pre_norm",), branch_scale=LearnedScale(value, per_channel=True)
        )

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + lambda f`."""
        return residual + parts.branch_scale * branch

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Put `lambda` into the sublayer: Pre-LN remains."""
        return Folding(PreLN(), branch_gain=branch_scale)

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: what the branch would read, and its gain, are not needed."""
        return NoNorm()


def _initial_value(depth: int) -> float:
    if depth <= 18:
        return 0.1
    return 1e-5 if depth <= 24 else 1e-6
