"""Imports point one way only: this reads them with `ast` and knows the rooms by one table."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

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
        lazy: Named exceptions, (file, room): an import inside a function, allowed there alone.
    """

    rooms: frozenset[str] = frozenset()
    backends: bool = False
    backend_files: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    lazy: frozenset[tuple[str, str]] = frozenset()


def _room(*rooms: str, **choices) -> Room:
    return Room(frozenset(rooms), **choices)


_LIBRARY = ("schemes", "norms", "layers", "models", "decoding", "training", "diagnostics")

HOUSE = {
    "__init__": _room(only=frozenset()),
    "schemes": _room(),
    "norms": _room(),
    "layers": _room("schemes", "norms"),
    # `Seq2SeqTransformer.generate` is a convenience over the room above it: the one exception.
    "models": _room(
        "layers", "schemes", "norms", lazy=frozenset({("models/seq2seq.py", "decoding")})
    ),
    "decoding": _room(
        "models",
        "layers",
        "schemes",
        "norms",
        # Gathers in fewer operations than Keras', and what engines compile and write with.
        backend_files=frozenset(
            {
                "decoding/indexing.py",
                "decoding/engine/xla.py",
                "decoding/engine/tf_graph.py",
                "decoding/engine/tf_ops.py",
            }
        ),
    ),
    # JAX joins processes and TensorFlow mirrors devices; each is imported when it is asked for.
    "distribution": _room(
        backend_files=frozenset({"distribution/devices.py", "distribution/processes.py"})
    ),
    # `ResidualMonitor` is a callback and is offered with the others, when it is asked for.
    # TensorFlow alone has an operation that is Adam's whole update of a variable.
    "training": _room(
        "distribution",
        backend_files=frozenset({"training/optimizers.py"}),
        lazy=frozenset({("training/__init__.py", "diagnostics")}),
    ),
    # Keras has no differentiation of its own: each backend's is named in one place.
    "diagnostics": _room(
        "decoding",
        "models",
        "layers",
        "schemes",
        "norms",
        "training",
        backend_files=frozenset({"diagnostics/compiled.py", "diagnostics/gradients.py"}),
    ),
    "data": _room(backends=True),
    "serving": _room("data", "diagnostics", "decoding", "models", "schemes", backends=True),
    # Each of its packages is optional, and imported inside the function that needs it. Graphs for
    # other runtimes are traced with TensorFlow, inside functions as well.
    "interop": _room(
        "data",
        "models",
        "layers",
        "schemes",
        "norms",
        backend_files=frozenset({"interop/graphs.py", "interop/onnx.py", "interop/litert.py"}),
    ),
    "runs": _room(*_LIBRARY, "distribution", "data", "serving", "interop", backends=True),
    # `keras-addnorm --help` answers at once because nothing heavy is imported for it.
    "cli": _room("runs", "__init__", only=frozenset()),
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
        if item.in_function and (item.file, target) in room.lazy:
            return None
        return f"{name} may import only {sorted(room.rooms) or 'no other room'}"
    if package in BACKENDS and not room.backends and item.file not in room.backend_files:
        return f"a backend import does not belong in {name}"
    if room.only is not None and not item.in_function and not item.type_checking:
        allowed = package in room.only or _standard(package)
        return None if allowed else f"{name} imports only the standard library at module level"
    return None


def test_imports_point_one_way():
    assert violations(ROOT, HOUSE) == []


def test_the_table_has_no_way_round():
    """A room never comes to stand above itself: the allowed imports have no cycle."""
    below = {name: set(room.rooms) - {"__init__"} for name, room in HOUSE.items()}
    while below:
        ground = {name for name, rooms in below.items() if not rooms & below.keys()}
        assert ground, f"these rooms may import one another in a circle: {sorted(below)}"
        below = {name: rooms for name, rooms in below.items() if name not in ground}


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
    "the exception at module level": ("models/seq2seq.py", "from keras_addnorm import decoding"),
    "the exception in another file": (
        "models/presets.py",
        "def f():\n    from keras_addnorm.decoding import decode",
    ),
    "a heavy import in the command": ("cli.py", "import keras"),
    "a heavy import in the package": ("__init__.py", "import numpy"),
    "an unknown room": ("attic/box.py", "import keras"),
}

GOOD = {
    "its own module": ("layers/stacks.py", "from keras_addnorm.layers import masks"),
    "its own module, relative": ("layers/stacks.py", "from .masks import padding"),
    "the room below": ("layers/add_norm.py", "from keras_addnorm import norms, schemes"),
    "keras": ("layers/attention.py", "import keras\nfrom keras import ops"),
    "the one exception": (
        "models/seq2seq.py",
        "def generate():\n    from keras_addnorm.decoding import decode",
    ),
    "a backend file": ("decoding/engine/tf_ops.py", "def f():\n    import tensorflow"),
    "a backend in data": ("data/folder.py", "import tensorflow_datasets as tfds"),
    "a name for the type checker": (
        "data/pipeline.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import keras_addnorm.models",
    ),
    "a late import in the command": ("cli.py", "import argparse\ndef f():\n    import keras"),
    "the version": ("layers/stacks.py", "from keras_addnorm import __version__"),
}


def _tree(folder: Path, file: str, text: str) -> Path:
    path = folder / PACKAGE / file
    path.parent.mkdir(parents=True)
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
