"""Keel: Post-LN with a norm in front of the sublayer and a skip as strong as the stack is deep."""

import dataclasses

from keras_addnorm.basics.argument_checks import require_bool, require_finite
from keras_addnorm.schemes.deep_norm import DeepNorm
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import Folding, ResidualScheme


@dataclasses.dataclass(frozen=True)
class Keel(ResidualScheme):
    """`y = LN(alpha x + F(LN'(x)))`, with `alpha` the number of sublayers of the stack.

    With `N` encoder and `M` decoder layers, `alpha` is `2N` in the encoder, `3M` in a decoder with
    cross-attention and `2M` in one without. In the first layer it is 1, and the first sublayer has
    no norm behind the sum: it is Pre-LN. The paper's norms have a gain and no offset
    (`norm="rms_norm"`).

    The paper is about decoder-only models. Counting cross-attention as one more sublayer, and a
    first layer in each stack, follow its rule; they are this library's choice.

    Args:
        alpha: The gain on the skip from the second layer on; `None` for the number of sublayers.
            For small models the authors allow any number above 1.
        folded: Whether `alpha` stands in the weights: `y = LN(x + F(LN'(x)))`, where the epsilon of
            `LN` is divided by `alpha^2`. `keras_addnorm.models.fold` sets it.

    Raises:
        ValueError: On use without a position.

    Reference:
        Chen and Wei, "Post-LayerNorm Is Back: Stable, ExpressivE, and Deep", 2026
        (arXiv:2601.19895), section 3.
    """

    alpha: float | None = None
    folded: bool = False
    needs_final_norm = False
    idea = "Norms before the sublayer and after the sum, with a very strong skip."

    def __post_init__(self) -> None:
        require_bool(folded=self.folded)
        if self.alpha is not None:
            require_finite("Keel has a gain on the skip.", alpha=self.alpha)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer and one after the sum, and set the skip's gain."""
        position = require_position(position, "Keel")
        if _is_first(position):
            return ResidualPlan(norm_slots=("pre_norm",))
        gain = self._gain(position)
        return ResidualPlan(
            norm_slots=("pre_norm", "post_norm"),
            skip_gain=1.0 if self.folded else gain,
            post_norm_gain=gain if self.folded else 1.0,
        )

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(alpha x + f)`; in the first sublayer `x + f`."""
        if "post_norm" not in parts.plan.norm_slots:
            return residual + branch
        merged = parts.plan.skip_gain * residual + branch
        return parts.post_norm(merged)

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Divide the sum by `alpha`, which the epsilon of the norm behind it makes up for."""
        gain = plan.skip_gain
        return Folding(
            dataclasses.replace(self, folded=True), branch_gain=1 / gain, post_norm_gain=gain
        )

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return `LN(alpha x)`, the same whether folded or not; the identity in the first place."""
        position = require_position(position, "Keel")
        return NoNorm() if _is_first(position) else DeepNorm(self._gain(position), 1.0)

    def _gain(self, position: StackPosition) -> float:
        if position.layer_index == 0:
            return 1.0
        has_cross_attention = position.side == "decoder" and position.num_encoder_layers > 0
        sublayers = (3 if has_cross_attention else 2) * position.depth
        return float(sublayers) if self.alpha is None else self.alpha


def _is_first(position: StackPosition) -> bool:
    return position.layer_index == 0 and position.sublayer == "self_attention"
