"""An extension of griffe, which reads the docstrings for the site.

It shows arguments that dataclasses declare for constructors, and examples as such.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:\n(?=```)", re.MULTILINE)
_INDENTED_EXAMPLE = re.compile(r"^Example:\n(?= )", re.MULTILINE)


class DocstringSections(griffe.Extension):
    """Makes the sections of our docstrings those that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Give an example its heading, and a class the arguments that it takes at run time."""
        if obj.docstring is None:
            return
        if isinstance(obj, griffe.Class) and "**block: " in obj.docstring.value:
            _take_from_run_time(obj)
        if isinstance(obj, griffe.Function) and "takes_search" in map(_name, obj.decorators):
            made = griffe.dynamic_import(obj.path)
            obj.parameters = griffe.Parameters(*_parameters(made))
        text = _INDENTED_EXAMPLE.sub("Examples:\n", obj.docstring.value)
        obj.docstring.value = _EXAMPLE.sub("**Example:**\n\n", text)


def _take_from_run_time(cls: griffe.Class) -> None:
    """Take docstring and signature of a class whose fields a dataclass declares."""
    made = griffe.dynamic_import(cls.path)
    cls.docstring.value = inspect.cleandoc(made.__doc__)  # type: ignore[union-attr]
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    constructor = griffe.Function("__init__", parameters=griffe.Parameters(own, *_parameters(made)))
    cls.set_member("__init__", constructor)


def _parameters(made: Any) -> Iterator[griffe.Parameter]:
    """Yield the parameters that a class or a function has at run time."""
    for one in inspect.signature(made).parameters.values():
        yield griffe.Parameter(
            one.name,
            kind=griffe.ParameterKind(one.kind.description),
            annotation=None if one.annotation is one.empty else _text(one.annotation),
            default=None if one.default is one.empty else repr(one.default),
        )


def _name(decorator: griffe.Decorator) -> str:
    return str(decorator.value).partition("(")[0]


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
