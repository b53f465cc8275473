"""The public names of the last release are there, and take what they took."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("make_public_interface", HERE / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)

PAGE = (HERE.parents[1] / "docs" / "public_interface.md").read_text(encoding="utf-8")
CHANGES = json.loads((HERE / "changes.json").read_text(encoding="utf-8"))


def experimental():
    """What the page says is experimental, and what of it is not."""
    rows = re.findall(r"^\| `keras_addnorm\.(\w+)`(?: but (.*?))? \|", PAGE, re.M)
    return {name: re.findall(r"`(\w+)`", but) for name, but in rows}


def is_experimental(path):
    subpackage, _, rest = path.partition(".")
    stable = experimental().get(subpackage)
    return stable is not None and rest.split(".")[0] not in stable


def faults(before, now):
    """What a call that was right before would miss now."""
    for path, parameters in before.items():
        if path not in now:
            yield path, "is gone"
            continue
        found = {name: (kind, is_optional) for name, kind, is_optional in now[path]}
        kinds = {kind for kind, _ in found.values()}
        takes_positions = [name for name, kind, _ in now[path] if kind.startswith("POSITIONAL")]
        position = 0
        for name, kind, was_optional in parameters:
            if kind.startswith("POSITIONAL"):
                is_rest = position >= len(takes_positions) and "VAR_POSITIONAL" in kinds
                if not is_rest and takes_positions[position : position + 1] != [name]:
                    yield path, f"has `{name}` no longer at place {position}"
                position += 1
            if kind in ("VAR_POSITIONAL", "VAR_KEYWORD"):
                if kind not in kinds:
                    yield path, f"takes no `{name}` any more"
            elif name not in found:
                if kind == "POSITIONAL_ONLY" or "VAR_KEYWORD" not in kinds:
                    yield path, f"has no `{name}` any more"
            elif was_optional and not found[name][1]:
                yield path, f"needs `{name}` now"
            elif kind != "POSITIONAL_ONLY" and found[name][0] == "POSITIONAL_ONLY":
                yield path, f"takes `{name}` by its name no longer"
        known = {name for name, _, _ in parameters}
        for name, (kind, is_optional) in found.items():
            if name not in known and not is_optional and not kind.startswith("VAR"):
                yield path, f"needs `{name}`, which is new"


def last_release():
    files = [file for file in HERE.glob("*.json") if re.fullmatch(r"\d+\.\d+\.\d+", file.stem)]
    return max(files, key=lambda file: tuple(map(int, file.stem.split("."))))


def test_the_last_release_is_kept_or_its_changes_are_listed():
    before = json.loads(last_release().read_text(encoding="utf-8"))
    assert len(before) > 200
    if "diagnostics.Stability" in before:  # The one enumeration of 0.1.0, with Python's parameters.
        before["diagnostics.Stability"] = []
    found = {
        path: fault
        for path, fault in faults(before, make.public_interface())
        if not is_experimental(path)
    }
    assert found.keys() == CHANGES.keys(), found
    assert all(reason.endswith(".") for reason in CHANGES.values())


def test_the_page_says_what_is_experimental():
    assert experimental() == {
        "explain": [],
        "distribution": [],
        "interop": ["load_pretrained", "save_pretrained"],
        "basics": [],
    }
    assert is_experimental("interop.families.get")
    assert not is_experimental("interop.load_pretrained")
    assert not is_experimental("layers.AddNorm.read")


X, N = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"
FUNCTION = [["a", X, False], ["b", X, True], ["c", N, True]]


@pytest.mark.parametrize(
    ("now", "fault"),
    [
        ([["a", X, False], ["b", X, True], ["c", N, True], ["d", N, True]], None),
        ([["a", X, True], ["b", X, True], ["c", X, True]], None),
        ([["a", X, False], ["b", X, True], ["more", "VAR_KEYWORD", False]], None),
        ([["b", X, True], ["a", X, False], ["c", N, True]], "has `a` no longer at place 0"),
        ([["a", X, False], ["c", N, True]], "has `b` no longer at place 1"),
        ([["a", X, False], ["b", X, True]], "has no `c` any more"),
        ([["a", X, False], ["b", X, False], ["c", N, True]], "needs `b` now"),
        ([*FUNCTION, ["d", N, False]], "needs `d`, which is new"),
        (None, "is gone"),
    ],
)
def test_what_breaks_a_call_is_a_fault(now, fault):
    found = [said for _, said in faults({"f": FUNCTION}, {} if now is None else {"f": now})]
    assert found[:1] == ([fault] if fault else [])
