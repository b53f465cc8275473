"""Which schemes the page can compute: those of one stream that say how."""

from __future__ import annotations

from keras_addnorm import schemes
from keras_addnorm.schemes import ResidualPlan, ResidualScheme, Step


def explained_schemes() -> tuple[str, ...]:
    """Return the names of the schemes that have steps.

    Returns:
        Names of `keras_addnorm.schemes.names()`, in their order.
    """
    return tuple(name for name in schemes.names() if schemes.get(name).idea)


def steps_of(scheme: ResidualScheme, plan: ResidualPlan) -> tuple[Step, ...]:
    """Return what a scheme computes at one place.

    Args:
        scheme: A scheme of one stream.
        plan: Its plan at the place.

    Returns:
        The steps, in their order.

    Raises:
        ValueError: If the scheme has none: it has several streams, a memory of depth, or is one of
            your own without an `idea`; or if they leave out a part of the plan.

    Example:
        >>> scheme = schemes.get("post_ln")
        >>> [step.operation for step in steps_of(scheme, scheme.plan(None))]
        ['sublayer', 'add', 'norm']
    """
    require_steps(scheme)
    steps = scheme.steps(plan)
    if left := [part for part in plan.parts if part not in {step.weight for step in steps}]:
        raise ValueError(
            f"the steps of the scheme {_name(scheme)!r} leave out the part '{left[0]}', which its "
            f"plan asks for, expected a Step(..., weight='{left[0]}') among them"
        )
    return steps


def require_steps(scheme: ResidualScheme) -> None:
    """Raise a `ValueError` if a scheme has no steps, or others than it computes."""
    if not scheme.idea:
        raise ValueError(
            f"it does not know the scheme {_name(scheme)!r}, which has several streams, a memory "
            "of depth, computes what a page does not (deep_delta), or is one of your own without "
            "an `idea`, expected one of "
            f"{', '.join(explained_schemes())}"
        )
    theirs = [name for name in ("branch_input", "merge") if not _is_ours(scheme, name)]
    if theirs and _is_ours(scheme, "steps"):
        raise ValueError(
            f"the scheme {_name(scheme)!r} has a `{theirs[0]}` of its own, which the steps of its "
            "plan do not show, expected a method `steps` of its own beside it "
            "(keras_addnorm.schemes.Step)"
        )


def _is_ours(scheme: ResidualScheme, method: str) -> bool:
    return getattr(type(scheme), method).__module__.startswith("keras_addnorm.")


def _name(scheme: ResidualScheme) -> str:
    try:
        return str(schemes.serialize(scheme)["name"])
    except (TypeError, ValueError):
        return type(scheme).__name__
