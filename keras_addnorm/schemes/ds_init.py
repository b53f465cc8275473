"""DS-Init: Post-LN whose initial kernels are the smaller the deeper their layer stands."""

import dataclasses

from keras_addnorm.basics.argument_checks import is_number, require_finite
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.post_ln import PostLN
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class DSInit(ResidualScheme):
    """`y = LN(x + F(x))`, with all kernels of layer `l` of a stack, from 1, times `l^-exponent`.

    Those of query and key are scaled, too, and those of cross-attention; encoder and decoder are
    each counted from 1. The paper draws from `U(-gamma alpha / sqrt(l), gamma alpha / sqrt(l))`:
    with Glorot's gamma, that of the default `glorot_uniform`, it is an exponent of 0.5. The
    authors' code gives the factor to a variance, not to the bound: there it is 0.25.

    Args:
        exponent: How fast the kernels shrink with depth; 0 for Post-LN.
        gain: A factor on all kernels (the paper's alpha; 1 in the authors' recipe).

    Raises:
        ValueError: If the gain is not positive, or on use without a position.

    Reference:
        Zhang et al., "Improving Deep Transformer with Depth-Scaled Initialization and Merged
        Attention", 2019 (arXiv:1908.11365), section 4.
    """

    exponent: float = 0.5
    gain: float = 1.0
    needs_final_norm = False
    idea = "Post-LN whose deeper layers start with smaller weights."

    def __post_init__(self) -> None:
        require_finite("DS-Init shrinks kernels with the depth.", exponent=self.exponent)
        if not is_number(self.gain, above=0):
            raise ArgumentError(
                "DS-Init scales initial kernels, which would all be zero.",
                "`gain` > 0",
                gain=self.gain,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum, and set the kernels' gain."""
        layer_number = require_position(position, "DS-Init").layer_index + 1
        gain = self.gain * layer_number**-self.exponent
        return ResidualPlan(norm_slots=("post_norm",), init_gain=gain, query_key_init_gain=gain)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(x + f)`."""
        return parts.post_norm(residual + branch)

    def without_branch(self, position: StackPosition | None) -> PostLN:
        """Return Post-LN: there are no kernels."""
        return PostLN()
