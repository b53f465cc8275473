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
            your own without an `idea`.

    Example:
        >>> scheme = schemes.get("post_ln")
        >>> [step.operation for step in steps_of(scheme, scheme.plan(None))]
        ['sublayer', 'add', 'norm']
    """
    require_steps(scheme)
    return scheme.steps(plan)


def require_steps(scheme: ResidualScheme) -> None:
    """Raise a `ValueError` if a scheme has no steps."""
    if not scheme.idea:
        raise ValueError(
            f"it does not know the scheme {_name(scheme)!r}, which has several streams, a memory "
            "of depth, or is one of your own without an `idea`, expected one of "
            f"{', '.join(explained_schemes())}"
        )


def _name(scheme: ResidualScheme) -> str:
    try:
        return str(schemes.serialize(scheme)["name"])
    except (TypeError, ValueError):
        return type(scheme).__name__
