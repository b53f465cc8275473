"""The one kind of table that choices are looked up in."""

import dataclasses
import importlib
import sys

import keras
import pytest

from keras_addnorm.basics import Table
from keras_addnorm.basics.table import ENTRY


class Shape:
    """The base of the entries."""


@dataclasses.dataclass(frozen=True)
class Circle(Shape):
    radius: float = 2.0


@dataclasses.dataclass(frozen=True)
class Box(Shape):
    width: float
    height: float = 3.0
    area: float = dataclasses.field(init=False, default=0.0)


@pytest.fixture
def shapes():
    return Table(
        "shape", Shape, {"circle": Circle, "disc": Circle, "box": Box}, module="ours.shapes"
    )


def test_names_are_in_order(shapes):
    assert shapes.names() == ("circle", "disc", "box")


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("circle", Circle(2.0)),
        ("disc", Circle(2.0)),
        ({"name": "circle", "radius": 5}, Circle(5)),
        ({"name": "box", "width": 7.0}, Box(7.0, 3.0)),
    ],
)
def test_get(shapes, identifier, expected):
    assert shapes.get(identifier) == expected


def test_an_instance_is_returned_as_it_is_and_a_dict_is_left_alone(shapes):
    box = Box(1.0)
    assert shapes.get(box) is box
    config = {"name": "box", "width": 1.0}
    shapes.get(config)
    assert config == {"name": "box", "width": 1.0}


@pytest.mark.parametrize("entry", [Circle(5.0), Box(2.0, 4.0)])
def test_what_is_saved_makes_an_equal_entry(shapes, entry):
    assert shapes.get(shapes.serialize(entry)) == entry


def test_the_first_name_is_saved_without_what_no_dict_may_give(shapes):
    assert shapes.serialize(Circle(5.0)) == {"name": "circle", "radius": 5.0}
    assert shapes.serialize(Box(5.0)) == {"name": "box", "width": 5.0, "height": 3.0}


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        (
            "circel",
            "There is no such shape. Expected one of circle, disc, box, a dict with a 'name' among "
            "them, or a Shape. Received: 'circel'. Did you mean 'circle'?",
        ),
        (4, "a Shape. Received: 4."),
        (None, "a Shape. Received: None."),
        ({"radius": 4}, "a Shape. Received: {'radius': 4}."),
        (
            {"name": "box", "widht": 1, "depth": 2},
            "The shape 'box' has no such field. Expected fields among ['width', 'height']. "
            "Received: ['widht', 'depth']. Did you mean 'width'?",
        ),
        ({"name": "box", "area": 2}, "Expected fields among ['width', 'height']"),
    ],
)
def test_what_there_is_not(shapes, identifier, message):
    with pytest.raises(ValueError) as raised:
        shapes.get(identifier)
    assert message in str(raised.value)
    if message.endswith("Received: 4."):
        assert str(raised.value).endswith("Received: 4.")  # no guess where there is no name


def test_a_class_of_ones_own(shapes):
    @dataclasses.dataclass(frozen=True)
    class Star(Shape):
        points: int = 5

    with pytest.raises(ValueError, match=r"cannot be saved.*Call ours\.shapes\.register\('a_name'"):
        shapes.serialize(Star())
    shapes.register("star", Star)
    shapes.register("star", Star)  # again: no harm
    assert shapes.names()[-1] == "star"
    assert shapes.serialize(Star(7)) == {"name": "star", "points": 7}
    assert shapes.get("star") == Star(5)
    with pytest.raises(ValueError, match=r"shape name 'box' is taken by Box.*'box' for Star"):
        shapes.register("box", Star)
    assert shapes.get({"name": "box", "width": 1}) == Box(1)


def test_what_cannot_be_registered(shapes):
    class Thawed(Shape):
        pass

    for wrong in (int, Circle(1.0)):
        with pytest.raises(TypeError, match="has to be a subclass of Shape"):
            shapes.register("own", wrong)
    with pytest.raises(ValueError, match="has to be a frozen dataclass"):
        shapes.register("own", Thawed)
    assert "own" not in shapes.names()


class Scale(keras.layers.Layer):
    def __init__(self, *args, factor=2.0, offset=1.0, **kwargs):
        super().__init__(*args, **kwargs)


def test_of_a_layer_the_fields_are_its_own_arguments():
    """Without instances: then `read` gives class and fields."""
    table = Table("layer", keras.layers.Layer, {"scale": Scale}, takes_instances=False)
    assert table.read({"name": "scale", "factor": 3.0}) == (Scale, {"factor": 3.0})
    with pytest.raises(ValueError, match=r"among \['factor', 'offset'\]. Received: \['dtype'\]"):
        table.read({"name": "scale", "dtype": "float32"})
    with pytest.raises(ValueError, match=r"one of scale, or a dict with a 'name' among them. Rec"):
        table.get(Scale())
    table.register("other", type("Other", (keras.layers.Layer,), {}))  # no dataclass is asked for
    assert table.names() == ("scale", "other")


@dataclasses.dataclass(frozen=True)
class Frame(Shape):
    of: Shape = dataclasses.field(default_factory=Circle, metadata=ENTRY)


def test_an_entry_may_hold_another_by_its_name(shapes):
    shapes.register("frame", Frame)
    box = {"name": "box", "width": 1.0}
    for inner, entry in ((box, Box(1.0)), ("disc", Circle()), (Box(2.0), Box(2.0))):
        assert shapes.get({"name": "frame", "of": inner}) == Frame(entry)
    twice = Frame(Frame(Box(1.0)))
    assert shapes.get(shapes.serialize(twice)) == twice
    assert shapes.serialize(Frame()) == {"name": "frame", "of": {"name": "circle", "radius": 2.0}}
    with pytest.raises(ValueError, match=r"no such shape.*Received: 'square'"):
        shapes.get({"name": "frame", "of": "square"})


def table_of_files(tmp_path, monkeypatch, base="shape:Shape"):
    """A package of three files, whose table says where its classes are."""
    files = {
        "__init__": "",
        "shape": "class Shape: pass",
        "circle": """
import dataclasses
from late_shapes.shape import Shape

@dataclasses.dataclass(frozen=True)
class Circle(Shape):
    radius: float = 2.0
""",
    }
    (tmp_path / "late_shapes").mkdir()
    for name, text in files.items():
        (tmp_path / "late_shapes" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("late_shapes")]:
        monkeypatch.delitem(sys.modules, name)
    classes = {"circle": "circle:Circle", "disc": "circle:Circle", "box": "box:Box"}
    return Table("shape", base, classes, module="late_shapes")


def test_an_entry_is_imported_when_it_is_first_used(tmp_path, monkeypatch):
    table = table_of_files(tmp_path, monkeypatch)
    assert table.names() == ("circle", "disc", "box")
    assert table.classes() == ("Circle", "Box")
    assert "late_shapes" not in sys.modules
    disc = table.get({"name": "disc", "radius": 3.0})
    assert table.serialize(disc) == {"name": "circle", "radius": 3.0}
    assert table.get(disc) is disc
    assert table.class_of_module("Circle") is type(disc)
    assert table.class_of_module("Shape") is type(disc).__base__
    with pytest.raises(AttributeError, match="module 'late_shapes' has no attribute 'Square'"):
        table.class_of_module("Square")
    table.register("circle", type(disc))  # again: no harm
    table.register("round", type(disc))
    with pytest.raises(ValueError, match="has to be a frozen dataclass"):
        table.register("own", type("Own", (type(disc).__base__,), {}))
    with pytest.raises(ModuleNotFoundError, match=r"late_shapes\.box"):  # There is no such file.
        table.load()


@pytest.mark.parametrize(
    "module",
    [
        "data.readers",
        "decoding.constraints",
        "decoding.length_penalties",
        "decoding.splitting",
        "decoding.strategies",
        "interop.families",
        "layers.positions",
        "norms",
        "schemes",
    ],
)
def test_messages_say_where_an_entry_is_registered(module):
    module = importlib.import_module(f"keras_addnorm.{module}")
    table = module.register.__self__
    assert table._module == module.__name__
