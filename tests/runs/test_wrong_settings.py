"""Every setting of a run is run through a table of wrong values, as every public argument is."""

import math
import typing

import pytest

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.fields import list_settings
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.trained_run import require_model_config
from keras_addnorm.serving.server.settings import Settings

# Of each kind, what is none of it; "model.scheme" and the like are names or tables of their own.
WRONG_OF = {
    bool: (0, 1, 2.5, "no", [], {}),
    int: (True, 2.5, math.nan, "3", [1], {}),
    float: (True, math.nan, math.inf, "0.5", [1.0], {}),
    str: (3, True, 2.5, ["a"], {}),
    tuple[int, ...]: (3, "a", [2.5], ["1"], [True], {}),
    tuple[str, ...]: (3, [3], [True], {}),
}
CLASSES = {"run": RunConfig, "distillation": DistillationConfig, "server": Settings}
SETTINGS = {
    f"{name} {each.key}": (kind, each)
    for name, kind in CLASSES.items()
    for each in list_settings(kind)
}
# Names or tables, which `Seq2SeqConfig` reads; its arguments are in `tests/calls`.
OF_THE_MODEL = {
    f"run model.{name}" for name in ("kernel_initializer", "norm", "scheme", "self_attention")
}


def wrong_values(setting):
    """Values of another kind, and those just outside of the limits."""
    kind = setting.kind
    if args := [each for each in typing.get_args(kind) if each is type(None)]:
        kind = next(each for each in typing.get_args(kind) if each is not args[0])
    if kind in WRONG_OF:
        yield from WRONG_OF[kind]
    limits = setting.limits
    if limits is None:
        return
    if limits.choices:
        yield "no such choice"
        return
    step = 1 if kind is int else 0.5
    edges = (
        *(None if edge is None else edge - step for edge in (limits.minimum,)),
        *(None if edge is None else edge + step for edge in (limits.maximum,)),
        limits.above,
        limits.below,
    )
    # What switches a setting off is one more value.
    yield from (edge for edge in edges if edge is not None and edge != limits.off)


def nested(key, value):
    *tables, last = key.split(".")
    found = {last: value}
    for name in reversed(tables):
        found = {name: found}
    return found


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - OF_THE_MODEL))
def test_every_wrong_value_of_a_setting_is_refused_by_its_name(name):
    kind, setting = SETTINGS[name]
    values = [*wrong_values(setting)]
    assert values, "its kind is not in the table"
    for value in values:
        with pytest.raises(UserError) as error:
            made(kind, setting.key, value)
        assert setting.name in str(error.value), (value, str(error.value))


def made(kind, key, value):
    """Makes the settings of a class with one of them, as a Python program may."""
    if kind is Settings:
        return Settings(directory="models", **{key: value})
    return kind.from_dict(nested(key, value))


@pytest.mark.parametrize("name", sorted(OF_THE_MODEL))
def test_what_is_no_part_of_a_model_is_refused_before_the_data_is_read(name):
    for value in (3, True, ["a"], "no such", {"name": "no such"}, {"name": 1}):
        with pytest.raises(UserError):
            require_model_config(made(RunConfig, name.removeprefix("run "), value))
