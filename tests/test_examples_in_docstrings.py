"""Every example in a docstring of the package runs as it stands."""

import ast
import doctest
import importlib
import re
import textwrap
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "keras_addnorm"
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef)
# What exports, quantises, trains or searches in several ways is in the slow tier.
SECONDS_LONG = (
    "models/seq2seq.py::quantize",
    "serving/export.py::export_saved_model",
    "interop/litert.py::export_litert",
    "interop/onnx.py::export_onnx",
    "data/loading.py::load_translation",
    "interop/pretrained.py::load_pretrained",
    "decoding/search.py::Search",
    "decoding/search_inputs.py::Prefix",
    "decoding/shortlist.py::Shortlist",
    "training/learning_rate_finder.py::find_learning_rate",
)
MINUTES_LONG = "runs/__init__.py::module"  # a whole training; the demonstration does the same


def docstrings():
    """The names and docstrings of the files that have any example: others need no parsing."""
    for path in sorted(PACKAGE.rglob("*.py")):
        code = path.read_text("utf-8")
        if "```python" not in code and ">>> " not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            text = ast.get_docstring(node) if isinstance(node, DEFINITIONS) else None
            if text:
                yield f"{path.relative_to(PACKAGE)}::{getattr(node, 'name', 'module')}", text


DOCSTRINGS = list(docstrings())


def examples(find):
    return [
        pytest.param(name, found, id=name, marks=[pytest.mark.slow] if name in SECONDS_LONG else [])
        for name, text in DOCSTRINGS
        if name != MINUTES_LONG and (found := find(text))
    ]


def fenced(text):
    blocks = map(textwrap.dedent, FENCE.findall(text))
    # A block without an import is a sketch in prose, such as the two-line use of AddNorm.
    return [block for block in blocks if "import " in block]


def prompts(text):
    return doctest.DocTestParser().get_examples(text)


@pytest.mark.parametrize(("name", "blocks"), examples(fenced))
def test_fenced_examples_run(name, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, name, "exec"), {})


@pytest.mark.parametrize(("name", "found"), examples(prompts))
def test_prompt_examples_print_what_they_say(name, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = name.split("::")[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    names = dict(vars(importlib.import_module(f"keras_addnorm.{module}")))
    test = doctest.DocTest(found, names, name, None, 0, None)
    output = []
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(test, out=output.append).failed == 0, "".join(output)


def test_there_are_examples_to_run():
    assert {*SECONDS_LONG, MINUTES_LONG} <= {name for name, _ in DOCSTRINGS}
    assert len(examples(fenced)) > 10
    assert len(examples(prompts)) > 5
