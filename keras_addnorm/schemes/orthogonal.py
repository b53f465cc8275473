"""Orthogonal residual: what a sublayer adds is at a right angle to the stream."""

import dataclasses

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step, steps_of_plan


@dataclasses.dataclass(frozen=True)
class Orthogonal(ResidualScheme):
    """`y = x + f - s x`, `s = <x, f> / (<x, x> + epsilon)`, with `f = F(LN(x))` as in Pre-LN.

    The part of `f` along `x` is taken away, for each position by itself, so that a sublayer can
    turn the stream but not shorten it: the norm of the stream never falls. One more norm at the
    end of the stack. The factor `s` is computed in float32.

    This is the authors' form over the features of one position. Their other one, over all
    positions, would show a decoder its future and is left out.

    Args:
        epsilon: Added to the square of the stream's length.

    Raises:
        ValueError: If epsilon is not positive.

    Reference:
        Oh et al., "Revisiting Residual Connections: Orthogonal Updates for Stable and Efficient
        Deep Networks", 2025 (arXiv:2505.11881).
    """

    epsilon: float = 1e-6
    needs_final_norm = True
    idea = "Pre-LN that adds only what is at a right angle to the stream."

    def __post_init__(self) -> None:
        if not is_number(self.epsilon, above=0):
            raise ArgumentError(
                "The orthogonal residual divides by the stream's length, which may be zero.",
                "`epsilon` > 0",
                epsilon=self.epsilon,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer."""
        return ResidualPlan(norm_slots=("pre_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f` without the part of `f` along `x`."""
        dtype = ops.dtype(residual)
        wide = keras.backend.result_type(dtype, "float32")
        x, f = ops.cast(residual, wide), ops.cast(branch, wide)
        along = ops.sum(x * f, axis=-1, keepdims=True)
        share = along / (ops.sum(ops.square(x), axis=-1, keepdims=True) + self.epsilon)
        return residual + (branch - ops.cast(share, dtype) * residual)

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return the plan's, without the part of the branch along the stream."""
        return steps_of_plan(plan, parallel_epsilon=self.epsilon)

    def without_branch(self, position: StackPosition | None) -> NoNorm:
        """Return the bare sum: the norm that only the branch reads is not needed."""
        return NoNorm()
