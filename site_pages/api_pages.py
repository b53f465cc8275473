"""Pages about the Python interface: one for each subpackage, from its `__all__`.

They hold what mkdocstrings replaces by signatures and docstrings. The names are read from the
source, so that nothing is imported.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = "reference/api"

_TABLE = "keras_addnorm.basics.table.Table"

PACKAGES = (
    *("layers", "layers.positions", "schemes", "norms", "models", "decoding", "training", "data"),
    *("alignment", "serving", "diagnostics", "interop", "distribution", "runs", "basics"),
)
"""The subpackages with a page, in the order of the menu."""

MODULES = {
    "training": ("checkpoint_file",),
    "serving": ("server",),
    "runs": ("train", "evaluate", "export", "trained_run", "callbacks"),
}
"""Modules that users import from by their own names, by subpackage."""


def pages(package: Path) -> dict[str, str]:
    """Make the pages.

    Args:
        package: The folder of `keras_addnorm`.

    Returns:
        The Markdown of each page by its path on the site, the overview first.
    """
    made = {f"{FOLDER}/{name}.md": _page(package, name) for name in PACKAGES}
    return {f"{FOLDER}/index.md": _overview(package), **made}


def _overview(package: Path) -> str:
    """Make the page that lists all public names."""
    lines = [
        "# Python interface",
        "",
        "Every public name by its subpackage. What is not listed here may change without notice.",
        "",
        "| subpackage | what is in it | names |",
        "|---|---|---|",
    ]
    for name in PACKAGES:
        tree = _read(package, name)
        first = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
        links = ", ".join(_link(name, one, tree) for one in _public(tree))
        lines.append(f"| [`keras_addnorm.{name}`]({name}.md) | {first} | {links} |")
    return "\n".join((*lines, ""))


def _link(name: str, public: str, tree: ast.Module) -> str:
    """Return the link to a name; methods of tables stand on several pages and have none."""
    path = _path(name, public, tree)
    return f"`{public}`" if path.startswith(_TABLE) else f"[`{public}`][{path}]"


def _page(package: Path, name: str) -> str:
    """Make the page of one subpackage."""
    tree = _read(package, name)
    parts = [f"# keras_addnorm.{name}", _object(f"keras_addnorm.{name}", about_itself=True)]
    for public in _public(tree):
        path = _path(name, public, tree)
        is_module = public in _imported(tree).get(f"keras_addnorm.{name}", ())
        parts.append(_module(package, path, tree) if is_module else _object(path, public))
    for module in MODULES.get(name, ()):
        path = f"keras_addnorm.{name}.{module}"
        parts.append(_module(package, path, tree))
    return "\n\n".join(parts) + "\n"


def _object(path: str, heading: str = "", *, about_itself: bool = False) -> str:
    """Return the request for the documentation of one object."""
    options = ["heading_level: 2"]
    if about_itself:
        options = ["members: false", "show_root_heading: false", "show_root_toc_entry: false"]
    elif heading != path.rpartition(".")[2]:
        options.append(f"heading: {heading}")
    return "\n      ".join((f"::: {path}\n    options:", *options))


def _module(package: Path, path: str, parent: ast.Module) -> str:
    """Return the request for a module: what is defined there and is not a name of its parent."""
    module = _read(package, path.removeprefix("keras_addnorm."))
    shown = set(_public(module)) - set(_public(parent))
    members = "".join(f"\n        - {name}" for name in _public(module) if name in shown)
    return f"{_object(path, path.rpartition('.')[2])}\n      members:{members or ' false'}"


def _read(package: Path, name: str) -> ast.Module:
    """Parse a subpackage or a module of it."""
    path = package / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def _public(tree: ast.Module) -> list[str]:
    """List the names in `__all__`, or else what is defined there without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            assert isinstance(node.value, ast.List)
            said = [one.value for one in node.value.elts if isinstance(one, ast.Constant)]
            has_table = len(said) < len(node.value.elts)  # `*_TABLE.classes()`
            return list(dict.fromkeys([*said, *(_in_table(tree) if has_table else ())]))
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return [node.name for node in defined if not node.name.startswith("_")]


def _in_table(tree: ast.Module) -> dict[str, str]:
    """Return the classes that a table says as `"file:Class"`, with their files."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    said = (text.split(":") for text in texts if re.fullmatch(r"\w+:[A-Z]\w*", str(text)))
    return {name: file for file, name in said}


def _imported(tree: ast.Module) -> dict[str, set[str]]:
    """Return the names that a module imports, by the module that they come from."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def _path(name: str, public: str, tree: ast.Module) -> str:
    """Return the path under which griffe knows a public name.

    That is a method of `Table` for `names` and its like, and the module that defines it where the
    class stands in a table, or where a module of the same name would be taken for it.
    """
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], "id", "") == public
            and isinstance(node.value, ast.Attribute)
        ):
            return f"{_TABLE}.{node.value.attr}"
    here = f"keras_addnorm.{name}"
    if public in _in_table(tree):
        return f"{here}.{_in_table(tree)[public]}.{public}"
    homes = (module for module, names in _imported(tree).items() if public in names)
    home = next(homes, here)
    return f"{home}.{public}" if home == f"{here}.{public}" else f"{here}.{public}"
