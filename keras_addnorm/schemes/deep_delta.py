"""Deep delta: a sublayer gives a direction, and the stream is rewritten along it."""

import dataclasses

from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import row_means, row_sums
from keras_addnorm.schemes.mixing import logit, precise
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.scheme import ResidualScheme

_EPSILON = 1e-6


@dataclasses.dataclass(frozen=True)
class DeepDelta(ResidualScheme):
    """`y = x + b k (v - <k, x>)`, with `k = f / ||f||` of `f = F(LN(x))`, and b and v learned.

    The part of the stream along the direction k is moved towards the number v:
    `b = 2 sigmoid(<w, LN(x)> + c)` says how far, 0 not at all, 1 all the way and 2 to the other
    side, and `v = 4 sigmoid(<u, x>)`. All three are computed for each position by itself, b, k and
    v in float32. One more norm at the end of the stack.

    How long f is does not matter, so that a `drop_path` or `dropout` of the branch does not scale
    it. Where f is zero, the stream stays. The length is `sqrt(sum f^2 + 1e-6)`, and w and u start
    at zeros; both are this library's choice.

    The paper has streams of several values for each channel besides, which are left out.

    Args:
        initial_step: Where b starts, between 0 and 2.

    Raises:
        ValueError: If b cannot start there.

    Reference:
        "Deep Delta Learning", 2026 (arXiv:2601.00417); the authors' code.
    """

    initial_step: float = 1.0
    needs_final_norm = True

    def __post_init__(self) -> None:
        if not is_number(self.initial_step, above=0, below=2):
            raise ArgumentError(
                "Deep delta starts with a step towards a value.",
                "0 < `initial_step` < 2",
                initial_step=self.initial_step,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and for what step and value are made of."""
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(
                LearnedArray("step_weights", ("D",), 0.0),
                LearnedArray("step_bias", (), logit(self.initial_step / 2)),
                LearnedArray("value_weights", ("D",), 0.0),
            ),
        )

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return the stream, moved along the direction of `f` towards the value."""
        x, f = precise(residual), precise(branch)
        h = precise(parts.pre_norm(residual))
        along = ops.sigmoid(row_sums(h, precise(parts.step_weights)) + precise(parts.step_bias))
        value = 4 * ops.sigmoid(row_sums(x, precise(parts.value_weights)))
        width = f.shape[-1]
        direction = f * ops.rsqrt(width * row_means(ops.square(f)) + _EPSILON)
        missing = value - width * row_means(direction * x)
        return residual + ops.cast(2 * along * missing * direction, residual.dtype)

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: without a direction the stream stays."""
        return NoNorm()
