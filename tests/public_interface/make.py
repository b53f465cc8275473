"""Writes down the public names and signatures of a version, which later versions have to keep.

    python tests/public_interface/make.py

writes `tests/public_interface/<version>.json`. That of a released version stays.
"""

import enum
import importlib
import inspect
import json
from pathlib import Path
from types import ModuleType

import keras_addnorm

HERE = Path(__file__).resolve().parent
_EMPTY = inspect.Parameter.empty


def public_interface() -> dict[str, list[list]]:
    """The parameters of each public name, by its dotted path: name, kind, whether it may be left.

    Modules, tables, constants and enumerations have none.
    """
    found: dict[str, list[list]] = {}
    for name in keras_addnorm._SUBPACKAGES:
        _collect(importlib.import_module(f"keras_addnorm.{name}"), name, found)
    for name in keras_addnorm._FROM_SUBPACKAGES:
        found[name] = _parameters(getattr(keras_addnorm, name))
    return dict(sorted(found.items()))


def _collect(module: ModuleType, path: str, found: dict[str, list[list]]) -> None:
    for name in getattr(module, "__all__", ()):
        value, here = getattr(module, name), f"{path}.{name}"
        found[here] = _parameters(value)
        if isinstance(value, ModuleType):
            _collect(value, here, found)
        elif inspect.isclass(value):
            for member, method in inspect.getmembers(value, callable):
                home = getattr(method, "__module__", None) or ""
                if not member.startswith("_") and home.startswith("keras_addnorm"):
                    found[f"{here}.{member}"] = _parameters(method)


def _parameters(value: object) -> list[list]:
    # What an enumeration is called with is Python's, and another in each version of it.
    if not callable(value) or (inspect.isclass(value) and issubclass(value, enum.Enum)):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # No signature: a type of C, an alias of types.
        return []
    return [[one.name, one.kind.name, one.default is not _EMPTY] for one in parameters]


def path(version: str) -> Path:
    """The file of a version."""
    return HERE / f"{version}.json"


if __name__ == "__main__":
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(parameters)}"
        for name, parameters in public_interface().items()
    )
    path(keras_addnorm.__version__).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
