"""Arguments of constructors: declared once, as fields of a dataclass, or given by name alone.

By name, because other libraries have them in another order.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from keras_addnorm.basics.argument_checks import is_bool, require_bool
from keras_addnorm.basics.errors import ArgumentTypeError
from keras_addnorm.basics.suggestions import did_you_mean

Init = TypeVar("Init", bound=Callable[..., None])
P = ParamSpec("P")
Arguments = TypeVar("Arguments")
Class = TypeVar("Class", bound=type)


class OtherOrder(NamedTuple):
    """The first arguments of another library's layer of the same job.

    Attributes:
        layer: The layer, as a sentence names it.
        arguments: Its arguments in its order, by the names that they have here.
    """

    layer: str
    arguments: tuple[str, ...]


def by_name(other: OtherOrder) -> Callable[[Init], Init]:
    """Let an `__init__` say what to write where it is given too many arguments without a name."""

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
    """Raise a `TypeError` if a class is called with too many arguments without a name."""
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


OTHER_NAMES = {
    **{
        name: f'scheme="pre_ln" for {name}=True, and "post_ln" for False'
        for name in ("normalize_first", "norm_first")
    },
    "layer_norm_epsilon": "epsilon instead",
    "key_dim": "head_dim instead",
}
"""Arguments of the layers of Keras, KerasHub and torch, and what they are here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KerasArguments:
    """The arguments of `keras.layers.Layer`, as its documentation explains them."""

    name: str | None = None
    dtype: Any = None
    trainable: bool = True
    activity_regularizer: Any = None
    autocast: bool = True

    def for_keras(self) -> dict[str, Any]:
        """Return what `keras.layers.Layer` takes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(KerasArguments)}


def takes(
    arguments: Callable[P, Arguments],
) -> Callable[[Callable[[Any, Arguments], None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the signature of a dataclass; it receives one checked object.

    Type checkers and editors read the fields of the dataclass, `help` and `inspect.signature` show
    them, and unknown names are refused in the name of the class that is made.

    Args:
        arguments: A frozen dataclass.

    Returns:
        A decorator of an `__init__(self, arguments)`.
    """
    declared = inspect.signature(arguments)
    of_keras = {field.name for field in dataclasses.fields(KerasArguments)}
    ordered = sorted(declared.parameters.values(), key=lambda p: p.name in of_keras)
    declared = declared.replace(parameters=ordered)

    def decorate(init: Callable[[Any, Arguments], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(init)
        def constructor(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            require_arguments(type(self), declared, args, kwargs)
            init(self, arguments(*args, **_plain(kwargs)))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [own, *declared.parameters.values()]
        constructor.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
        return constructor

    return decorate


def checked(cls: Class) -> Class:
    """Let a frozen dataclass refuse unknown names clearly, and hash with dicts among its values."""
    init = cls.__init__  # type: ignore[misc]
    declared = inspect.signature(cls)

    @functools.wraps(init)
    def constructor(self: Any, /, *args: Any, **kwargs: Any) -> None:
        require_arguments(type(self), declared, args, kwargs)
        init(self, *args, **_plain(kwargs))

    cls.__init__ = constructor  # type: ignore[misc]
    cls.__hash__ = _hash  # type: ignore[assignment]
    return cls


def refuse_other_names(cls: type, arguments: Iterable[str]) -> None:
    """Refuse arguments of other libraries' layers, which Keras calls unrecognised."""
    for name in arguments:
        if name in OTHER_NAMES:
            raise TypeError(f"{cls.__name__} has no argument {name!r}. Write {OTHER_NAMES[name]}.")


def require_arguments(
    cls: type, declared: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse an argument that is unknown, missing, doubled, unnamed, or no bool and to be one."""
    unknown = [name for name in kwargs if name not in declared.parameters]
    if unknown:
        hints = [f" Write {OTHER_NAMES[name]}." for name in unknown if name in OTHER_NAMES]
        others = [name for name in unknown if name not in OTHER_NAMES]
        hints.append(did_you_mean(others, declared.parameters))
        raise TypeError(
            f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}."
            f"{''.join(hints)} Expected arguments among "
            f"{', '.join(declared.parameters)}."
        )
    require_names(cls, declared, args, getattr(cls, "other_order", None))
    try:
        bound = declared.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"The arguments of {cls.__name__} do not fit: {error}. Expected "
            f"{cls.__name__}({', '.join(declared.parameters)})."
        ) from None
    for name, value in bound.arguments.items():
        annotation = declared.parameters[name].annotation
        if annotation == "bool" or (annotation == "bool | None" and value is not None):
            require_bool(**{name: value})


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with Python's own True and False in place of NumPy's."""
    return {name: bool(value) if is_bool(value) else value for name, value in arguments.items()}


def document(cls: type, block: type) -> None:
    """Put the `Args` of a dataclass in the place of the line `**block: ...` of a docstring."""
    # Python drops docstrings under -OO.
    if cls.__doc__ and block.__doc__:
        section = inspect.cleandoc(block.__doc__).split("Args:\n")[1].split("\n\n")[0]
        line = f"    **block: The fields of `{block.__name__}`."
        cls.__doc__ = inspect.cleandoc(cls.__doc__).replace(line, section)


def _hash(self: Any) -> int:
    return hash(tuple(_hashable(getattr(self, f.name)) for f in dataclasses.fields(self)))


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
