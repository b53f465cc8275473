"""A docstring is no longer than the few lines that it describes, where nobody outside reads it."""

import ast
from pathlib import Path

import keras_addnorm

PACKAGE = Path(keras_addnorm.__file__).parent
MOST = 3
"""Lines of a function's body up to which one sentence says enough."""


def exported_names():
    for path in PACKAGE.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                strings = (n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant))
                yield from (text for text in strings if isinstance(text, str))


def functions(tree, owners=()):
    """Yields each function with the names of the classes and functions around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, owners
        inner = (*owners, node.name) if hasattr(node, "name") else owners
        yield from functions(node, inner)


def is_public(function, owners, exported):
    """What users read on the site: what a room exports, and the methods of its classes."""
    first, *_ = (*owners, function.name)
    return first in exported and (not owners or not function.name.startswith("_"))


def too_long(source, exported):
    lines = source.split("\n")
    for function, owners in functions(ast.parse(source)):
        text = ast.get_docstring(function)
        if text is None or is_public(function, owners, exported) or ">>>" in text or "```" in text:
            continue
        first = function.body[0]
        body = [line.strip() for line in lines[first.end_lineno : function.end_lineno]]
        size = sum(bool(line) and not line.startswith("#") for line in body)
        if size <= MOST and size < first.end_lineno - first.lineno + 1 > 1:
            yield function.name


def test_helpers_have_one_sentence():
    exported = set(exported_names())
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        for name in too_long(path.read_text(), exported)
    }
    assert not found, f"docstrings that are longer than what they describe: {sorted(found)}"


def test_the_rule_sees_what_it_is_for():
    body = '"""Adds.\n\n    Args:\n        x: A number.\n    """\n    return x + 1\n'
    assert [*too_long(f"def helper(x):\n    {body}", set())] == ["helper"]
    assert not [*too_long(f"def helper(x):\n    {body}", {"helper"})]
    assert not [*too_long('def helper(x):\n    """Adds."""\n    return x + 1\n', set())]
