"""T-Fixup: no norms at all; the initial weights keep the first updates small."""

import dataclasses

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
class TFixup(ResidualScheme):
    """`y = x + F(x)` without any norm; it trains with Adam from the first step, without warm-up.

    With `N` encoder and `M` decoder layers, initial weights are Glorot's times a factor:

    | weights                                                      | factor          |
    |--------------------------------------------------------------|-----------------|
    | value, output and feed-forward kernels of the encoder        | 0.67 N^(-1/4)   |
    | the same of the decoder, those of cross-attention among them | (9M)^(-1/4)     |
    | source embeddings, or shared ones                            | (9N)^(-1/4)     |
    | target embeddings                                            | (9M)^(-1/4)     |

    Embeddings start normally distributed with standard deviation `1 / sqrt(D)` times the factor;
    they are still multiplied by `sqrt(D)`. Query and key have no factor here; in the authors' code
    they start smaller by `sqrt(2)`, an accident of the toolkit that it builds on.

    Raises:
        ValueError: On use without a position.

    Reference:
        Huang et al., "Improving Transformer Optimization Through Better Initialization", 2020
        (ICML), section 3.
    """

    needs_final_norm = False
    idea = "No norm: initial weights small enough to do without."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for nothing but small kernels."""
        position = require_position(position, "T-Fixup")
        is_encoder = position.side == "encoder"
        factor = 0.67 if is_encoder else 9**-0.25
        return ResidualPlan(init_gain=factor * position.depth**-0.25)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`."""
        return residual + branch

    def embedding_gain(self, position: StackPosition) -> float:
        """Return `(9N)^(-1/4)`, or `(9M)^(-1/4)` on the side of the decoder."""
        return (9 * position.depth) ** -0.25

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: there are no kernels."""
        return NoNorm()
