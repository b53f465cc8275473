"""Admin: Post-LN with a skip connection whose weight is measured before training."""

import dataclasses

from keras_addnorm.schemes.plan import (
    LearnedScale,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class Admin(ResidualScheme):
    """`y = LN(omega x + F(x))` with one learned `omega` a channel.

    It is set up in two steps. A new model has `omega = 1`, which is Post-LN. Then
    `keras_addnorm.diagnostics.initialize_admin(model, batch)` measures how large each branch is
    and sets `omega` so that no layer depends too much on its own branch:
    `omega_i^2 = Var(x_0) + Var(F_1) + ... + Var(F_{i-1})`, and `omega_1 = 1`, for the sublayers
    of each stack, one after the other. From there on `omega` is trained.

    Reference:
        Liu et al., "Understanding the Difficulty of Training Transformers", 2020
        (arXiv:2004.08249), section 4.
    """

    needs_final_norm = False
    idea = "Post-LN with a skip whose weight was measured before training."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum and one factor a channel on the skip connection."""
        return ResidualPlan(
            norm_slots=("post_norm",), skip_scale=LearnedScale(1.0, per_channel=True)
        )

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(omega x + f)`."""
        return parts.post_norm(parts.skip_scale * residual + branch)
