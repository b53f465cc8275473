"""Imports point one way only: this reads them with `ast` and knows the rooms by one table."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import keras_addnorm

PACKAGE = "keras_addnorm"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE
BACKENDS = {"tensorflow", "tensorflow_datasets", "jax", "jaxlib", "torch"}


@dataclass(frozen=True)
class Room:
    """What one room may import.

    Attributes:
        rooms: The other rooms below it. Its own modules are always allowed.
        backends: Whether it may import TensorFlow, JAX or torch.
        backend_files: The single files of the room that may, where the room as a whole may not.
        only: If given, the only top-level packages (besides the standard library and the rooms
            above) that a module may import at module level.
    """

    rooms: frozenset[str] = frozenset()
    backends: bool = False
    backend_files: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


def _room(*rooms: str, **choices) -> Room:
    return Room(frozenset(rooms), **choices)


HOUSE = {
    "__init__": _room(only=frozenset()),
    "basics": _room(),
    "schemes": _room("basics"),
    "norms": _room("basics"),
    "alignment": _room("basics"),
    # Keras has no product of 16-bit operands whose result is float32.
    "layers": _room(
        "basics",
        "schemes",
        "norms",
        backend_files=frozenset({"layers/vocabulary_product.py"}),
    ),
    # The model is an argument of a search: whatever offers `encode` and `decode_step`.
    "decoding": _room(
        "basics",
        "alignment",
        "layers",
        # Gathers in fewer operations than Keras', and what engines compile and write with.
        backend_files=frozenset(
            {
                "decoding/tensor_ops.py",
                "decoding/engine/base.py",
                "decoding/engine/tf_graph.py",
                "decoding/engine/tf_ops.py",
            }
        ),
    ),
    "models": _room("basics", "schemes", "norms", "layers", "decoding"),
    # JAX joins processes and TensorFlow mirrors devices; each is imported when it is asked for.
    "distribution": _room(
        "basics", backend_files=frozenset({"distribution/devices.py", "distribution/processes.py"})
    ),
    # TensorFlow alone has an operation that is Adam's whole update of a variable.
    "training": _room(
        "basics", "distribution", backend_files=frozenset({"training/optimizers.py"})
    ),
    # Keras has no differentiation of its own: each backend's is named in one place.
    "diagnostics": _room(
        "basics",
        "schemes",
        "layers",
        "models",
        "training",
        backend_files=frozenset({"diagnostics/compiled.py", "diagnostics/gradients.py"}),
    ),
    "data": _room("basics", "alignment", backends=True),
    "serving": _room("basics", "schemes", "decoding", "models", "data", backends=True),
    # Looks at every part of a model by its class.
    "explain": _room("basics", "schemes", "norms", "layers", "models", "data"),
    # Each of its packages is optional, and imported inside the function that needs it. Graphs for
    # other runtimes are traced with TensorFlow, inside functions as well.
    "interop": _room(
        "basics",
        "schemes",
        "norms",
        "layers",
        "decoding",
        "models",
        "data",
        backend_files=frozenset(
            {
                *("interop/graphs.py", "interop/onnx.py", "interop/litert.py"),
                "interop/random_folder/other_toolkits.py",
                "interop/tensor_files/tensorflow_checkpoint.py",
            }
        ),
    ),
    "runs": _room(
        "basics",
        "alignment",
        "schemes",
        "norms",
        "layers",
        "decoding",
        "models",
        "distribution",
        "training",
        "diagnostics",
        "data",
        "serving",
        "interop",
        "explain",
        backends=True,
    ),
    # `keras-addnorm --help` answers at once because nothing heavy is imported for it.
    "cli": _room("runs", "basics", "__init__", only=frozenset()),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, as a dotted name, and where it stands."""

    file: str
    line: int
    target: str
    in_function: bool
    type_checking: bool


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(path: Path, root: Path) -> list[Import]:
    file = path.relative_to(root).as_posix()
    found: list[Import] = []

    def visit(node: ast.AST, in_function: bool, type_checking: bool) -> None:
        in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        type_checking = type_checking or _is_type_checking(node)
        for target in _targets(node, path, root):
            found.append(Import(file, node.lineno, target, in_function, type_checking))
        for child in ast.iter_child_nodes(node):
            visit(child, in_function, type_checking)

    visit(ast.parse(path.read_text(encoding="utf-8"), str(path)), False, False)
    return found


def _targets(node: ast.AST, path: Path, root: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _absolute(node, path, root)
        # `from package import room` names a room only together with the imported name.
        return [f"{base}.{alias.name}" for alias in node.names]
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"importlib.import_module", "__import__", "import_module"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        return [str(node.args[0].value)]
    return []


def _absolute(node: ast.ImportFrom, path: Path, root: Path) -> str:
    if node.level == 0:
        return node.module or ""
    package = [PACKAGE, *path.relative_to(root).parts[:-1]]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _room_of(dotted: str, house: dict[str, Room]) -> str | None:
    parts = dotted.split(".")
    if parts[0] != PACKAGE:
        return None
    return parts[1] if len(parts) > 1 and parts[1] in house else "__init__"


def _standard(package: str) -> bool:
    import sys

    return package in sys.stdlib_module_names


def violations(root: Path, house: dict[str, Room]) -> list[str]:
    """Returns one line for each import that the table does not allow."""
    wrong: list[str] = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).parts[0].removesuffix(".py")
        if name not in house:
            wrong.append(f"{path.relative_to(root)}: room {name!r} is not in the table of rooms")
            continue
        for item in _imports(path, root):
            reason = _why_not(item, name, house)
            if reason:
                wrong.append(f"{item.file}:{item.line}: {item.target}: {reason}")
    return wrong


def _why_not(item: Import, name: str, house: dict[str, Room]) -> str | None:
    room = house[name]
    package = item.target.split(".")[0]
    target = _room_of(item.target, house)
    if target is not None:
        if target in {name, "__init__"} or target in room.rooms or item.type_checking:
            return None
        return f"{name} may import only {sorted(room.rooms) or 'no other room'}"
    if package in BACKENDS and not room.backends and item.file not in room.backend_files:
        return f"a backend import does not belong in {name}"
    if room.only is not None and not item.in_function and not item.type_checking:
        allowed = package in room.only or _standard(package)
        return None if allowed else f"{name} imports only the standard library at module level"
    return None


def circles(root: Path) -> list[str]:
    """Returns one line for each group of files that import one another in a circle.

    Every import counts, also one inside a function or for the type checker. Not counted is that
    Python runs a package's `__init__` before any of its modules.
    """
    below = {
        path.relative_to(root).as_posix(): _files_imported(path, root)
        for path in sorted(root.rglob("*.py"))
    }
    reached = {file: _reached_from(file, below) for file in below}
    groups = {
        tuple(other for other in below if other in reached[file] and file in reached[other])
        for file in below
        if file in reached[file]
    }
    return [" <-> ".join(group) for group in sorted(groups)]


def _files_imported(path: Path, root: Path) -> set[str]:
    return {file for item in _imports(path, root) if (file := _file_of(item.target, root))}


def _file_of(dotted: str, root: Path) -> str | None:
    """The file of the longest part of a dotted name that is a module of the package."""
    parts = dotted.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 0, -1):
        place = root.joinpath(*parts[1:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if end > 1 and file.is_file():
                return file.relative_to(root).as_posix()
    return "__init__.py"


def _reached_from(file: str, below: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(below[file])
    while waiting:
        next_file = waiting.pop()
        if next_file not in reached:
            reached.add(next_file)
            waiting.extend(below.get(next_file, ()))
    return reached


def test_imports_point_one_way():
    assert violations(ROOT, HOUSE) == []


def test_no_file_imports_itself_by_a_detour():
    assert circles(ROOT) == []


def test_the_table_has_no_way_round():
    """A room never comes to stand above itself: the allowed imports have no cycle."""
    below = {name: set(room.rooms) - {"__init__"} for name, room in HOUSE.items()}
    while below:
        ground = {name for name, rooms in below.items() if not rooms & below.keys()}
        assert ground, f"these rooms may import one another in a circle: {sorted(below)}"
        below = {name: rooms for name, rooms in below.items() if name not in ground}


EVERY_ROOM = "every subpackage above"


def page_differences(page: str, house: dict[str, Room]) -> list[str]:
    """Returns one line for each thing that the architecture page says otherwise than the table."""
    found = _rows(page)
    rooms = {name: room for name, room in house.items() if name != "__init__"}
    wrong = [f"the page has no row for {name}" for name in rooms.keys() - found.keys()]
    wrong += [f"the page has a row for {name}" for name in found.keys() - rooms.keys()]
    for name in rooms.keys() & found.keys():
        room, (imports, backends) = rooms[name], found[name]
        may = EVERY_ROOM if name == "runs" else room.rooms - {"__init__"} or "none"
        who = "all" if room.backends else room.backend_files or "none"
        wrong += [f"{name}: page: {imports}, table: {may}"] * (imports != may)
        wrong += [f"{name}: page: {backends}, table: {who}"] * (backends != who)
    lines = _lines_of_the_picture(page)
    for name, room in rooms.items():
        if name not in lines:
            wrong.append(f"the picture has no {name}")
            continue
        beside = {other for other in room.rooms if lines.get(other, -1) <= lines[name]}
        wrong += [f"{name} stands no higher than {other}" for other in beside - {"__init__"}]
    for lower, upper in re.findall(r"^    (\w+) --> (\w+)$", page, re.MULTILINE):
        if upper not in rooms or lower not in rooms[upper].rooms:
            wrong.append(f"the drawing has an arrow from {lower} to {upper}")
    return sorted(wrong)


def _rows(page: str) -> dict[str, tuple[frozenset[str] | str, frozenset[str] | str]]:
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            name = cells[0].strip("`").removesuffix("/").removesuffix(".py")
            rows[name] = (_names_in(cells[2]), _names_in(cells[3]))
    return rows


def _names_in(cell: str) -> frozenset[str] | str:
    return frozenset(re.findall(r"`([^`]+)`", cell)) or cell


def _lines_of_the_picture(page: str) -> dict[str, int]:
    (picture,) = re.findall(r"^```\n(cli\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {name: i for i, line in enumerate(picture.splitlines()) for name in line.split()}


PAGE = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_table_says():
    assert page_differences(PAGE, HOUSE) == []
    (every_room,) = {name for name, (imports, _) in _rows(PAGE).items() if imports == EVERY_ROOM}
    assert HOUSE[every_room].rooms == HOUSE.keys() - {"__init__", every_room, "cli"}


WRONG_PAGES = {
    "a room too many to import": ("| `basics`, `distribution` |", "| `basics`, `layers` |", 1),
    "an exception less": ("`distribution/devices.py`, ", "", 1),
    "a backend for all": ("| `basics`, `alignment` | all |", "| `basics`, `alignment` | none |", 1),
    "no row": ("| `interop/` |", "| interop |", 1),
    "a row too many": ("| `interop/` |", "| `attic/` | boxes | none | none |\n| `interop/` |", 1),
    "a room in the wrong line": (
        "\nlayers\nschemes        norms          alignment\n",
        "\nnorms alignment\nlayers schemes\n",
        2,
    ),
    "a room not in the picture": ("decoding       distribution\n", "decoding\n", 3),
    "an arrow down": ("    runs --> cli\n", "    runs --> cli\n    runs --> data\n", 1),
}


@pytest.mark.parametrize("case", WRONG_PAGES)
def test_the_checker_finds_a_page_that_has_drifted(case):
    old, new, differences = WRONG_PAGES[case]
    assert PAGE.count(old) == 1
    assert len(page_differences(PAGE.replace(old, new), HOUSE)) == differences


def test_every_room_is_an_attribute_of_the_package():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(keras_addnorm._SUBPACKAGES) == folders == HOUSE.keys() - {"__init__", "cli"}
    for room in keras_addnorm._SUBPACKAGES:
        assert getattr(keras_addnorm, room).__name__ == f"keras_addnorm.{room}"
        assert room in dir(keras_addnorm)
    with pytest.raises(AttributeError, match="no attribute 'attic'"):
        _ = keras_addnorm.attic


BAD = {
    "an upward import": ("layers/feed_forward.py", "from keras_addnorm.models import Config"),
    "an upward import by the package": ("layers/masks.py", "from keras_addnorm import models"),
    "a plain upward import": ("schemes/scheme.py", "import keras_addnorm.layers.masks"),
    "a sideways import": ("training/losses.py", "from keras_addnorm.data import Tokenizer"),
    "a relative upward import": ("layers/stacks.py", "from ..models.seq2seq import Config"),
    "a relative import of a room": ("norms/scale_norm.py", "from .. import layers"),
    "a hidden upward import": ("layers/masks.py", "def f():\n    import keras_addnorm.decoding"),
    "an upward import by name": (
        "norms/scale_norm.py",
        "import importlib\nimportlib.import_module('keras_addnorm.layers')",
    ),
    "a backend in layers": ("layers/attention.py", "import tensorflow as tf"),
    "a hidden backend": ("models/seq2seq.py", "def f():\n    from jax import numpy"),
    "a backend beside its file": ("decoding/beam.py", "from tensorflow import function"),
    "models below their search": ("decoding/generate.py", "from keras_addnorm.models import fold"),
    "a hidden import of the room above": (
        "training/__init__.py",
        "def __getattr__(name):\n    from keras_addnorm.diagnostics import ResidualMonitor",
    ),
    "a ground that knows a room": ("basics/table.py", "from keras_addnorm.schemes import get"),
    "a heavy import in the command": ("cli.py", "import keras"),
    "a heavy import in the package": ("__init__.py", "import numpy"),
    "an unknown room": ("attic/box.py", "import keras"),
}

GOOD = {
    "its own module": ("layers/stacks.py", "from keras_addnorm.layers import masks"),
    "its own module, relative": ("layers/stacks.py", "from .masks import padding"),
    "the room below": ("layers/add_norm.py", "from keras_addnorm import norms, schemes"),
    "keras": ("layers/attention.py", "import keras\nfrom keras import ops"),
    "the search below the models": ("models/seq2seq.py", "from keras_addnorm import decoding"),
    "the ground": ("norms/rms_norm.py", "from keras_addnorm.basics import Table"),
    "a backend file": ("decoding/engine/tf_ops.py", "def f():\n    import tensorflow"),
    "a backend in data": ("data/named_sets.py", "import tensorflow_datasets as tfds"),
    "a name for the type checker": (
        "data/pipeline.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import keras_addnorm.models",
    ),
    "a late import in the command": ("cli.py", "import argparse\ndef f():\n    import keras"),
    "the version": ("layers/stacks.py", "from keras_addnorm import __version__"),
}


CIRCLES = {
    "two files": {
        "layers/a.py": "from .b import x",
        "layers/b.py": "import keras_addnorm.layers.a",
    },
    "a lazy one": {
        "layers/a.py": "from keras_addnorm.layers.b import x",
        "layers/b.py": "def f():\n    from keras_addnorm.layers.a import y",
    },
    "one for the type checker": {
        "layers/a.py": "from keras_addnorm.layers.b import x",
        "layers/b.py": "if TYPE_CHECKING:\n    from keras_addnorm.layers.a import y",
    },
    "one by name": {
        "layers/a.py": "import importlib\nimportlib.import_module('keras_addnorm.layers.b')",
        "layers/b.py": "from keras_addnorm.layers import a",
    },
    "three files and two rooms": {
        "layers/a.py": "from keras_addnorm.layers.b import x",
        "layers/b.py": "from keras_addnorm.schemes.c import x",
        "schemes/c.py": "from keras_addnorm.layers.a import x",
    },
    "a file and its package": {
        "layers/__init__.py": "from keras_addnorm.layers.a import x",
        "layers/a.py": "from keras_addnorm.layers import y",
    },
}

NO_CIRCLES = {
    "one way": {
        "layers/__init__.py": "from keras_addnorm.layers.a import x",
        "layers/a.py": "from keras_addnorm.layers import b\nfrom .b import x, y",
        "layers/b.py": "import keras",
    },
    "two ways to one file": {
        "layers/a.py": "from .b import x\nfrom .c import x",
        "layers/b.py": "from .d import x",
        "layers/c.py": "from .d import x",
        "layers/d.py": "import a, b",
    },
}


@pytest.mark.parametrize("case", CIRCLES)
def test_the_checker_finds_circles(case, tmp_path):
    for file, text in CIRCLES[case].items():
        _tree(tmp_path, file, text)
    assert circles(tmp_path / PACKAGE) == [" <-> ".join(sorted(CIRCLES[case]))]


@pytest.mark.parametrize("case", NO_CIRCLES)
def test_the_checker_allows_what_is_no_circle(case, tmp_path):
    for file, text in NO_CIRCLES[case].items():
        _tree(tmp_path, file, text)
    assert circles(tmp_path / PACKAGE) == []


def _tree(folder: Path, file: str, text: str) -> Path:
    path = folder / PACKAGE / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder / PACKAGE


@pytest.mark.parametrize("case", BAD)
def test_the_checker_finds(case, tmp_path):
    file, text = BAD[case]
    found = violations(_tree(tmp_path, file, text), HOUSE)
    assert len(found) == 1, found
    assert found[0].startswith(file.split("/")[0])


@pytest.mark.parametrize("case", GOOD)
def test_the_checker_allows(case, tmp_path):
    file, text = GOOD[case]
    assert violations(_tree(tmp_path, file, text), HOUSE) == []


def test_importing_the_package_is_cheap():
    """A fresh process that has imported the package and its command has no heavy module."""
    import subprocess
    import sys

    code = (
        "import sys, keras_addnorm, keras_addnorm.cli; "
        "print(sorted({'keras', 'numpy', 'tensorflow', 'jax', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent
    )
    assert done.stdout.strip() == "[]", done.stdout
