"""GPAS: another scheme whose stream is scaled down, while gradients pass as if it were not."""

import dataclasses

from keras import ops

from keras_addnorm.schemes.around import AroundScheme
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step


@dataclasses.dataclass(frozen=True)
class GPAS(AroundScheme):
    """Another scheme with `G(x) = x - SiLU(g) stop_gradient(x)` around its stream; g starts at 0.

    Forwards the stream is `1 - SiLU(g)` times as large, backwards `G` is the identity whatever
    `g`. Where the scheme normalises the sum, `G` acts on the skip alone, before its factor:
    `y = LN(alpha G(x) + F(x))`. Elsewhere it acts on what is merged: `y = G(x + F(LN(x)))`. At the
    start a model computes what it would without, to the bit.

    Each sublayer has its gate here, where the authors' code has one for both sublayers of a layer.
    The authors clip the gates' gradients at 0.01 around Sandwich-LN of a billion weights, and of
    any model of seven; their embeddings start with a standard deviation of `sqrt(2 / 5)`.

    Args:
        of: The scheme inside, one of one stream; in a config its name, or a dict with its fields:
            `{"name": "gpas", "of": "post_ln"}`.

    Raises:
        TypeError: If `of` is no scheme.
        ValueError: If `of` has several streams, or is GPAS itself.

    Reference:
        Chen et al., "GPAS: Accelerating Convergence of LLM Pretraining via Gradient-Preserving
        Activation Scaling", 2025 (arXiv:2506.22049).
    """

    entry = "gpas"
    scales = "one stream"
    own_idea = "The stream is scaled down by a learned gate."

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for what the scheme inside needs, and a gate."""
        plan = self.of.plan(position)
        return dataclasses.replace(plan, arrays=(*plan.arrays, LearnedArray("gate", (), 0.0)))

    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the scheme inside reads."""
        return self.of.branch_input(x, parts)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Scale the skip where a norm follows the sum, and what is merged elsewhere."""
        if "post_norm" in parts.plan.norm_slots:
            return self.of.merge(_scaled(residual, parts), branch, parts)
        return _scaled(self.of.merge(residual, branch, parts), parts)

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return those of the scheme inside, with the gate of the plan."""
        return self.of.steps(plan)

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Keep the gate around what remains of the scheme inside."""
        return GPAS(self.of.without_branch(position))


def _scaled(x: Tensor, parts: ResidualParts) -> Tensor:
    # The gate is float32: its SiLU is rounded once.
    return x - ops.cast(ops.silu(parts.gate), ops.dtype(x)) * ops.stop_gradient(x)
