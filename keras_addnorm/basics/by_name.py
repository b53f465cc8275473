"""Arguments that are given by name alone, because other libraries have them in another order."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from keras_addnorm.basics.errors import ArgumentTypeError

Init = TypeVar("Init", bound=Callable[..., None])


class OtherOrder(NamedTuple):
    """The first arguments of another library's layer of the same job.

    Attributes:
        layer: The layer, as a sentence names it.
        arguments: Its arguments in its order, by the names that they have here.
    """

    layer: str
    arguments: tuple[str, ...]


def by_name(other: OtherOrder) -> Callable[[Init], Init]:
    """Let a constructor say what to write where it is given too many arguments without a name.

    Args:
        other: The layer whose order somebody may have in mind.

    Returns:
        A decorator of an `__init__` some of whose arguments are keywords only.
    """

    def decorate(init: Init) -> Init:
        signature = inspect.signature(init)
        _, *parameters = signature.parameters.values()
        declared = signature.replace(parameters=parameters)

        @functools.wraps(init)
        def constructor(self: Any, /, *args: Any, **kwargs: Any) -> None:
            require_names(type(self), declared, args, other)
            init(self, *args, **kwargs)

        # Keras asks a constructor for its arguments without looking behind wrappers.
        constructor.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Init, constructor)

    return decorate


def require_names(
    cls: type, declared: inspect.Signature, args: tuple[Any, ...], other: OtherOrder | None
) -> None:
    """Raise a `TypeError` if a class is called with too many arguments without a name.

    Args:
        cls: The class.
        declared: Its arguments.
        args: Those without a name.
        other: The layer whose order somebody may have in mind.
    """
    parameters = declared.parameters.values()
    first = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) <= len(first):
        return
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    needed = [p.name for p in named if p.default is p.empty]
    shown = needed or [p.name for p in named][: len(args) - len(first)]
    expected = ", ".join([*first, *(f"{name}=..." for name in shown)])
    received = ", ".join(f"{value!r:.20}" for value in args)
    reason, meant = "", ""
    if other is not None:
        reason = f": {other.layer} has others, or another order"
        values = dict(zip(other.arguments, args, strict=False))
        if len(args) <= len(other.arguments):
            sizes = ", ".join(f"{p}={values[p]!r:.20}" for p in declared.parameters if p in values)
            meant = f" In the order of {other.layer} that is {sizes}."
    raise ArgumentTypeError(
        f"{cls.__name__} takes its {'other ' if first else ''}arguments by name{reason}.",
        f"{cls.__name__}({expected})",
        meant,
        received=f"{cls.__name__}({received})",
    )
