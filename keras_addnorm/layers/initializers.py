"""Initialisers: one instance per weight, and the gains of schemes on some of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import keras

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ERRORS_OF_CONFIGS, ArgumentError

_NUMBERS = ("value", "gain", "scale", "mean", "stddev", "minval", "maxval")

InitializerLike: TypeAlias = "str | dict[str, Any] | keras.initializers.Initializer"


@keras.saving.register_keras_serializable(package="keras_addnorm")
class ScaledInitializer(keras.initializers.Initializer):
    """Another initialiser's values, times a constant.

    Args:
        initializer: The initialiser to scale.
        gain: The factor.
    """

    def __init__(self, initializer: InitializerLike, gain: float) -> None:
        self.initializer = get_initializer(initializer=initializer)
        self.gain = gain

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """Return `gain` times the initialiser's values."""
        return self.gain * self.initializer(shape, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        serialized = keras.initializers.serialize(self.initializer)
        return {"initializer": serialized, "gain": self.gain}


def get_initializer(**argument: Any) -> keras.initializers.Initializer:
    """Return the initialiser of an argument, which is given by its name; else a `ValueError`.

    A dict comes from a file, perhaps: it makes an initialiser, and nothing else that Keras has.
    """
    ((name, value),) = argument.items()
    because = None
    try:
        if not isinstance(value, dict) or _is_of_an_initializer(value):
            found = keras.initializers.get(value)
            if found is not None:
                return found
    except ERRORS_OF_CONFIGS as error:
        because = error
    raise ArgumentError(
        f"`{name}` is no initialiser.",
        "the name of one of Keras (glorot_uniform, zeros, ...), its dict, or an object",
        **{name: value},
    ) from because


def _is_of_an_initializer(config: dict[str, Any]) -> bool:
    """Whether a dict is of an initialiser, of Keras or registered."""
    if not isinstance(config.get("class_name"), str) or not _has_numbers(config.get("config")):
        return False
    if config.get("module") in (None, "keras.initializers", "builtins"):
        return True
    registered = keras.saving.get_registered_object(str(config.get("registered_name")))
    return isinstance(registered, type) and issubclass(registered, keras.initializers.Initializer)


def _has_numbers(fields: Any) -> bool:
    """Whether the fields that Keras computes with are numbers: it does not look before it does."""
    return not isinstance(fields, dict) or all(
        is_number(fields[name]) or (name == "value" and isinstance(fields[name], dict | list))
        for name in _NUMBERS
        if name in fields
    )


def fresh_initializer(
    initializer: InitializerLike, gain: float = 1.0
) -> keras.initializers.Initializer:
    """Return an initialiser of its own for one weight, scaled by `gain`."""
    # Keras' initialisers are stateless: one instance gives two weights of one shape equal values.
    found = get_initializer(initializer=initializer)
    clone = found.__class__.from_config(found.get_config())
    return scaled(clone, gain)


def scaled(
    initializer: keras.initializers.Initializer, gain: float
) -> keras.initializers.Initializer:
    """Return the initialiser times `gain`; itself, which draws no seed, if that is 1."""
    return initializer if gain == 1.0 else ScaledInitializer(initializer, gain)


@contextlib.contextmanager
def seeds_kept() -> Iterator[None]:
    """Leave Python's random numbers as they were, whatever is constructed inside.

    Keras' initialisers draw a seed when they are made, also those that only check a choice. Initial
    weights must not depend on how often a configuration is checked.
    """
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
