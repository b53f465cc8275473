"""ProRes: another scheme whose branches come in one layer after the other, early in training."""

import dataclasses
from typing import Any, NamedTuple

from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.around import AroundScheme
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.steps import Step

_MOST_STEPS = 100_000
"""Times the layers of any stack, a count that float32 holds exactly."""


class _Settings(NamedTuple):
    last_step: int
    """The step from which on the branch is whole."""

    inner: Any
    """Those of the scheme inside."""


@dataclasses.dataclass(frozen=True)
class ProRes(AroundScheme):
    """Another scheme whose branch is `a F`, with `a = min(t / (T l), 1)` in layer l, from 1.

    `t` counts the batches that the layer was trained on. At the start each layer passes the stream
    on; the first layer's branches are whole after `T` batches, those of layer l after `T l`. From
    then on it is the scheme inside. Where that scheme normalises the branch, the norm is scaled,
    not what it reads.

    The count is a weight that is not trained, `step`, one a sublayer: it is saved, and a training
    that is resumed goes on with it. It stops at `T l`. Each batch counts that a layer is called on
    with `training=True`, so that with accumulated gradients one update is several. What is not
    trained has the share of its count: a model that is made by hand from another's weights takes
    `step` along, and one whose count is 0 has no branches at all.

    Args:
        of: The scheme inside, one of one stream; in a config its name, or a dict with its fields:
            `{"name": "pro_res", "of": "post_ln"}`.
        warmup_steps: T, how many batches the branches of the first layer take to come in. The
            default is this library's, for small models that train on thousands of batches.

    Raises:
        TypeError: If `of` is no scheme.
        ValueError: If `of` has several streams or is ProRes itself, if there is no step, or on use
            without a position.

    Reference:
        "ProRes", 2026 (arXiv:2603.05369): progressive residual warm-up; the authors' code.
    """

    warmup_steps: int = 100

    entry = "pro_res"
    scales = "the branches of one stream"
    own_idea = "Early in training, branches come in by layer."

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.warmup_steps, 1, _MOST_STEPS):
            raise ArgumentError(
                "ProRes counts batches.",
                f"an int, 1 <= `warmup_steps` <= {_MOST_STEPS}",
                warmup_steps=self.warmup_steps,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for what the scheme inside needs, and a count."""
        layer = require_position(position, "ProRes").layer_index + 1
        plan = self.of.plan(position)
        return dataclasses.replace(
            plan,
            arrays=(*plan.arrays, LearnedArray("step", (), 0.0, is_trained=False)),
            settings=_Settings(self.warmup_steps * layer, plan.settings),
        )

    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the scheme inside reads."""
        return self.of.branch_input(x, _inner(parts))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Merge the share of the branch that has come in, and count the batch if it trains."""
        step, last_step = parts.step, parts.plan.settings.last_step
        share = ops.cast(step * (1 / last_step), ops.dtype(branch))
        if parts.training:
            step.assign(ops.minimum(step + 1, last_step))
        if "branch_norm" not in parts.plan.norm_slots:
            return self.of.merge(residual, share * branch, _inner(parts))
        branch_norm = parts.branch_norm
        return self.of.merge(
            residual, branch, _inner(parts, branch_norm=lambda f: share * branch_norm(f))
        )

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return those of the scheme inside, with the branch scaled by the count."""
        last_step, inner = plan.settings
        steps = self.of.steps(dataclasses.replace(plan, settings=inner))
        normed = [step.weight == "branch_norm" for step in steps]
        at = normed.index(True) if any(normed) else [s.operation for s in steps].index("sublayer")
        whole = steps[at]
        return (
            *steps[:at],
            dataclasses.replace(whole, makes="whole_f"),
            Step("scale", ("whole_f",), "counted_f", weight="step", symbol="t"),
            Step("scale", ("counted_f",), whole.makes, number=1 / last_step, symbol="1/Tl"),
            *steps[at + 1 :],
        )

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return what remains of the scheme inside: there is no branch to scale."""
        return self.of.without_branch(position)


def _inner(parts: ResidualParts, **replaced: Any) -> ResidualParts:
    """Return the parts as the scheme inside knows them."""
    plan = dataclasses.replace(parts.plan, settings=parts.plan.settings.inner)
    return parts.replaced(plan, **replaced)
