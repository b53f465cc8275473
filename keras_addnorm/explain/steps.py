"""What each scheme computes around a sublayer, as steps from tensor to tensor: the ONE table.

The page computes these steps, draws a row for each, and writes the scheme's formula from them. So
a scheme has to be described once, here, and a test computes every description beside the scheme.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from keras_addnorm import schemes
from keras_addnorm.schemes import ResidualPlan, ResidualScheme

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


@dataclasses.dataclass(frozen=True)
class _Merge:
    """What cannot be read from a scheme's plan.

    Args:
        idea: The scheme in one sentence, for the page.
        skip: What is added to the branch.
    """

    idea: str
    skip: Literal["stream", "nothing", "as_the_plan_says"] = "stream"


_MERGES: dict[type[ResidualScheme], _Merge] = {
    schemes.PostLN: _Merge(
        "Add, then norm, as in the Transformer of 2017: the stream passes through every norm."
    ),
    schemes.PreLN: _Merge(
        "Norm only what the sublayer reads: from bottom to top the stream meets only additions."
    ),
    schemes.SandwichLN: _Merge("Norms before and after the sublayer: what is added has one size."),
    schemes.ResPostNorm: _Merge("A norm on what the sublayer computes, none on what it reads."),
    schemes.SubLN: _Merge("Pre-LN with one more norm inside the sublayer."),
    schemes.MixLN: _Merge("Post-LN in the first layers, Pre-LN in the others."),
    schemes.LNScaling: _Merge("Pre-LN whose deeper sublayers read a smaller stream."),
    schemes.HybridNorm: _Merge(
        "Norms inside the attention; the feed-forward's skip carries the normed stream.",
        skip="as_the_plan_says",
    ),
    schemes.DeepNorm: _Merge("Post-LN with a stronger skip: the old stream counts for more."),
    schemes.DSInit: _Merge("Post-LN whose deeper layers start with smaller weights."),
    schemes.Keel: _Merge("Norms before the sublayer and after the sum, with a very strong skip."),
    schemes.Admin: _Merge("Post-LN with a skip whose weight was measured before training."),
    schemes.ReZero: _Merge("No norm: a learned factor on the branch, zero at first."),
    schemes.TFixup: _Merge("No norm: initial weights small enough to do without."),
    schemes.LayerScale: _Merge("Pre-LN with a small learned gain on each channel of the branch."),
    schemes.Orthogonal: _Merge("Pre-LN that adds only what is at a right angle to the stream."),
    schemes.NoNorm: _Merge("Add without norm: the stream may grow as it likes."),
    schemes.NoResidual: _Merge(
        "Norm without add: each sublayer has to hand on all that is known.", skip="nothing"
    ),
    schemes.Plain: _Merge("Neither add nor norm: sublayers in a row.", skip="nothing"),
}


def explained_schemes() -> tuple[str, ...]:
    """Return the names of the schemes that have steps.

    Returns:
        Names of `keras_addnorm.schemes.names()`, in their order.
    """
    known = (*_MERGES, schemes.GPAS)
    return tuple(name for name in schemes.names() if type(schemes.get(name)) in known)


def idea_of(scheme: ResidualScheme) -> str:
    """Return the scheme in one sentence.

    Args:
        scheme: A scheme that has steps.

    Returns:
        The sentence.
    """
    if isinstance(scheme, schemes.GPAS):
        return f"{idea_of(scheme.of)} The stream is scaled down by a learned gate."
    return _MERGES[type(scheme)].idea


def steps_of(scheme: ResidualScheme, plan: ResidualPlan) -> tuple[Step, ...]:
    """Return what a scheme computes at one place.

    Args:
        scheme: A scheme of one stream.
        plan: Its plan at the place.

    Returns:
        The steps, in their order.

    Raises:
        ValueError: If the scheme has none: it has several streams, a memory of depth, or is one of
            your own.

    Example:
        >>> scheme = schemes.get("post_ln")
        >>> [step.operation for step in steps_of(scheme, scheme.plan(None))]
        ['sublayer', 'add', 'norm']
    """
    require_steps(scheme)
    if isinstance(scheme, schemes.GPAS):
        return _steps(scheme.of, plan, has_gate=True)
    return _steps(scheme, plan, has_gate=False)


def require_steps(scheme: ResidualScheme) -> None:
    """Say that a scheme has no steps.

    Args:
        scheme: Any scheme.

    Raises:
        ValueError: If it has none.
    """
    inner = scheme.of if isinstance(scheme, schemes.GPAS) else scheme
    if type(inner) not in _MERGES:
        raise ValueError(
            f"it does not know the scheme {_name(scheme)!r}, which has several streams, a memory "
            f"of depth, or is one of your own, expected one of {', '.join(explained_schemes())}"
        )


def _name(scheme: ResidualScheme) -> str:
    try:
        return str(schemes.serialize(scheme)["name"])
    except (TypeError, ValueError):
        return type(scheme).__name__


def _steps(scheme: ResidualScheme, plan: ResidualPlan, has_gate: bool) -> tuple[Step, ...]:
    merge, chain = _MERGES[type(scheme)], _Chain()
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
    if isinstance(scheme, schemes.Orthogonal):
        step = Step("remove_parallel", (branch, "x"), "turned_f", number=scheme.epsilon, symbol="⊥")
        branch = chain.add(step)
    has_post_norm = "post_norm" in plan.norm_slots
    merged = branch
    if merge.skip != "nothing":
        # HybridNorm says in its plan whether the skip carries the stream or its norm.
        takes_norm = merge.skip == "as_the_plan_says" and bool(plan.settings[0])
        skip = normed if takes_norm else "x"
        if has_gate and has_post_norm:
            skip = chain.gate(skip, "gated_x")
        if plan.skip_gain != 1.0:
            skip = chain.scale(skip, "scaled_x", number=plan.skip_gain, symbol="α")
        if plan.skip_scale is not None:
            skip = chain.scale(skip, "weighted_x", weight="skip_scale", symbol="ω")
        merged = chain.add(Step("add", (skip, branch), "sum", symbol="+"))
    if has_post_norm:
        merged = chain.norm(merged, "post_norm", "normed_sum")
    elif has_gate:
        merged = chain.gate(merged, "gated_sum")
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
