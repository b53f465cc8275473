"""What a scheme computes around a sublayer, as steps from tensor to tensor: for pages and tests."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from keras_addnorm.schemes.plan import ResidualPlan

Operation = Literal["norm", "sublayer", "scale", "gate", "add", "remove_parallel"]


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation around a sublayer.

    Attributes:
        operation: `"norm"`; `"sublayer"`, F itself; `"scale"`, by a number or a weight; `"gate"`,
            by `1 - SiLU(g)`; `"add"`, of two; `"remove_parallel"`, `f - x <x, f> / (<x, x> + e)`.
        reads: The tensors that it reads: `"x"`, the stream, or what a step before has made.
        makes: The tensor that it makes; the last step makes `"y"`.
        weight: The part of `AddNorm` that it uses: a norm slot, a learned scale or a gate.
        number: The factor, or the epsilon.
        symbol: How the formula writes it.
    """

    operation: Operation
    reads: tuple[str, ...]
    makes: str
    weight: str = ""
    number: float | None = None
    symbol: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**dataclasses.asdict(self), "reads": list(self.reads)}


def steps_of_plan(
    plan: ResidualPlan,
    skip: Literal["stream", "norm", "nothing"] = "stream",
    parallel_epsilon: float | None = None,
) -> tuple[Step, ...]:
    """Return what a plan says: norms, factors and a sum around the sublayer.

    Args:
        plan: The plan; an array `gate` scales the skip, or without a norm behind the sum the sum.
        skip: What is added to the branch: the stream, what `pre_norm` makes of it, or nothing.
        parallel_epsilon: The epsilon of taking away the branch's part along the stream.

    Returns:
        The steps, in their order.
    """
    chain = _Chain()
    has_gate = any(array.name == "gate" for array in plan.arrays)
    has_post_norm = "post_norm" in plan.norm_slots
    normed = read = "x"
    if "pre_norm" in plan.norm_slots:
        normed = read = chain.norm("x", "pre_norm", "normed")
    if plan.input_gain != 1.0:
        read = chain.scale(read, "read", number=plan.input_gain, symbol="1/√l")
    branch = chain.add(Step("sublayer", (read,), "f", symbol="F"))
    if "branch_norm" in plan.norm_slots:
        branch = chain.norm(branch, "branch_norm", "normed_f")
    if plan.branch_scale is not None:
        symbol = "λ" if plan.branch_scale.per_channel else "α"
        branch = chain.scale(branch, "scaled_f", weight="branch_scale", symbol=symbol)
    if parallel_epsilon is not None:
        step = Step("remove_parallel", (branch, "x"), "turned_f", "", parallel_epsilon, "⊥")
        branch = chain.add(step)
    merged = branch
    if skip != "nothing":
        kept = normed if skip == "norm" else "x"
        if has_gate and has_post_norm:
            kept = chain.gate(kept, "gated_x")
        if plan.skip_gain != 1.0:
            kept = chain.scale(kept, "scaled_x", number=plan.skip_gain, symbol="α")
        if plan.skip_scale is not None:
            kept = chain.scale(kept, "weighted_x", weight="skip_scale", symbol="ω")
        merged = chain.add(Step("add", (kept, branch), "sum", symbol="+"))
    if has_post_norm:
        chain.norm(merged, "post_norm", "normed_sum")
    elif has_gate:
        chain.gate(merged, "gated_sum")
    return chain.ending_in("y")


class _Chain:
    """Steps, as they are put one behind the other."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def add(self, step: Step) -> str:
        self._steps.append(step)
        return step.makes

    def norm(self, tensor: str, slot: str, makes: str) -> str:
        return self.add(Step("norm", (tensor,), makes, weight=slot))

    def gate(self, tensor: str, makes: str) -> str:
        return self.add(Step("gate", (tensor,), makes, weight="gate", symbol="g"))

    def scale(
        self,
        tensor: str,
        makes: str,
        weight: str = "",
        number: float | None = None,
        symbol: str = "",
    ) -> str:
        return self.add(Step("scale", (tensor,), makes, weight, number, symbol))

    def ending_in(self, name: str) -> tuple[Step, ...]:
        """Return the steps, the last of which makes a tensor of this name."""
        return (*self._steps[:-1], dataclasses.replace(self._steps[-1], makes=name))
