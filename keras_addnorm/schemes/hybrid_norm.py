"""HybridNorm: norms inside the attention, and a stream that is normalised at each feed-forward."""

import dataclasses

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.plan import (
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step, steps_of_plan


@dataclasses.dataclass(frozen=True)
class HybridNorm(ResidualScheme):
    """Attention: `y = x + F(x)`, queries, keys and values normed. Feed-forward: `z + F(z)`.

    In an attention, `F(x) = W_o attend(N(q), N(k), N(v))`, with a norm each over the width of a
    head, before rotation, and none in front. In a feed-forward `z = LN(x)`: the skip carries the
    normed stream. One more norm at the end of the stack.

    Cross-attention is like self-attention, with `N(k)` and `N(v)` of the memory; the paper has
    none. Keys and values are normed before they are cached. The norms are of the kind that the
    layer has (`norm="rms_norm"` in the authors' code); `AttentionConfig.query_key_norm` and
    `value_norm` choose others. The authors start kernels with a standard deviation of
    `sqrt(2 / (5 D))`: that is the model's `kernel_initializer`.

    Args:
        first_layer_pre_ln: Whether the first layer has a norm in front of its attention, and a skip
            around the feed-forward's norm, as Pre-LN has: HybridNorm* of the paper.

    Raises:
        ValueError: On use without a position.

    Reference:
        Zhuo et al., "HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid
        Normalization", 2025 (arXiv:2503.04598).
    """

    first_layer_pre_ln: bool = False
    needs_final_norm = True
    idea = "Norms inside the attention; the feed-forward's skip carries the normed stream."

    def __post_init__(self) -> None:
        require_bool(first_layer_pre_ln=self.first_layer_pre_ln)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for norms inside an attention, or for one before the feed-forward."""
        position = require_position(position, "HybridNorm")
        is_pre_ln = self.first_layer_pre_ln and position.layer_index == 0
        if position.sublayer in ("self_attention", "cross_attention"):
            return ResidualPlan(
                norm_slots=("pre_norm",) if is_pre_ln else (),
                query_key_norm=True,
                value_norm=True,
                settings=_SKIPS_THE_STREAM,
            )
        return ResidualPlan(
            norm_slots=("pre_norm",), settings=_SKIPS_THE_STREAM if is_pre_ln else _SKIPS_ITS_NORM
        )

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `x + f`, or `LN(x) + f`."""
        if parts.plan.settings == _SKIPS_THE_STREAM:
            return residual + branch
        return parts.pre_norm(residual) + branch

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return the plan's, with what the skip carries here."""
        return steps_of_plan(plan, "stream" if plan.settings == _SKIPS_THE_STREAM else "norm")

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return the bare sum, unless the norm stands on the stream."""
        return NoNorm() if self.plan(position).settings == _SKIPS_THE_STREAM else self


_SKIPS_THE_STREAM, _SKIPS_ITS_NORM = (0,), (1,)
