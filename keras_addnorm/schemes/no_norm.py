"""The residual connection alone, for experiments."""

import dataclasses

from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class NoNorm(ResidualScheme):
    """`y = x + F(x)`, without a norm anywhere.

    The variance of the stream grows with every sublayer, in the variance-preserving case it doubles
    (Zhang et al., 2019, section 2): the case that norms and ReZero's gate are the answers to.

    Reference:
        He et al., "Deep Residual Learning for Image Recognition", 2015 (arXiv:1512.03385),
        equation 1; Zhang et al., "Fixup Initialization", 2019 (arXiv:1901.09321).
    """

    needs_final_norm = False
    idea = "Add without norm: the stream may grow as it likes."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for nothing."""
        return ResidualPlan()

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`."""
        return residual + branch
