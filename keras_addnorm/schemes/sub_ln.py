"""Sub-LN: a second norm inside the sublayer, before its output projection."""

import dataclasses
import math

from keras_addnorm.basics.argument_checks import require_finite
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
class SubLN(ResidualScheme):
    """`y = x + F(LN(x))` with a norm inside `F` too, and one more at the end of the stack.

    Attention: `F(h) = W_o LN(attend(h))`; feed-forward: `F(h) = W_2 LN(act(W_1 h))`. The kernels
    of value, output and feed-forward start `gamma` times larger. With `N` encoder and `M` decoder
    layers:

    | model           | gamma                            |
    |-----------------|----------------------------------|
    | encoder only    | sqrt(log(2N))                    |
    | decoder only    | sqrt(log(2M))                    |
    | both: encoder   | sqrt(log(3M) log(2N) / 3)        |
    | both: decoder   | sqrt(log(3M))                    |

    Cross-attention is plain Pre-LN, with neither the inner norm nor `gamma`, as in the authors'
    code.

    Args:
        gain: The gain `gamma` on the initial kernels; `None` to compute it from the position.

    Raises:
        ValueError: On use without a position, if `gain` is left to be computed.

    Reference:
        Wang et al., "Foundation Transformers" ("Magneto"), 2022 (arXiv:2210.06423), section 2.
    """

    gain: float | None = None
    needs_final_norm = True
    idea = "Pre-LN with one more norm inside the sublayer."

    def __post_init__(self) -> None:
        if self.gain is not None:
            require_finite("Sub-LN scales initial kernels.", gain=self.gain)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before and one inside the sublayer, and set the gain."""
        if position is not None and position.sublayer == "cross_attention":
            return ResidualPlan(norm_slots=("pre_norm",))
        gain = self.gain
        if gain is None:
            gain = _gain(require_position(position, "Sub-LN"))
        return ResidualPlan(norm_slots=("pre_norm",), init_gain=gain, inner_norm=True)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`."""
        return residual + branch

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: the norm that only the branch reads is not needed."""
        return NoNorm()


def _gain(position: StackPosition) -> float:
    n, m = position.num_encoder_layers, position.num_decoder_layers
    if n == 0 or m == 0:
        return math.sqrt(math.log(2 * position.depth))
    if position.side == "encoder":
        return math.sqrt(math.log(3 * m) * math.log(2 * n) / 3)
    return math.sqrt(math.log(3 * m))
