"""The script of faults fits today's code: each has its place and its tests."""

import subprocess
import sys
from pathlib import Path

import faults
import pytest

CODE = faults.read(faults.ROOT / faults.PACKAGE)
TESTS = faults.read(faults.ROOT / "tests", "test_*.py")

ROOMS = {
    *("schemes", "norms", "layers", "models", "decoding", "training", "diagnostics", "data"),
    *("serving", "interop", "distribution", "runs", "cli"),
}


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: f"{fault.room}/{fault.name}")
def test_each_fault_has_its_place_and_its_tests(fault):
    path, old, new = faults.find(fault, CODE)
    changed = CODE[path].replace(old, new)
    assert changed != CODE[path]
    compile(changed, str(path), "exec")
    assert faults.find_tests(fault, TESTS)


def test_every_part_of_the_package_has_faults():
    assert {fault.room for fault in faults.FAULTS} == ROOMS
    names = [(fault.room, fault.name) for fault in faults.FAULTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("def double(x):\n    return 2 * x\n", "caught"),
        ("def double(x):\n    return 2 * x\n\ndef unused():\n    return 2 * 1\n", "NOT CAUGHT"),
    ],
)
def test_a_fault_is_put_in_tried_and_taken_out(tmp_path, code, result):
    (tmp_path / "keras_addnorm").mkdir()
    module = tmp_path / "keras_addnorm" / "__init__.py"
    module.write_text(code)
    (tmp_path / "tests" / "small").mkdir(parents=True)
    (tmp_path / "tests" / "small" / "test_small.py").write_text(
        "from keras_addnorm import double\n\n\ndef test_double():\n    assert double(3) == 6\n"
    )
    old = "2 * x" if result == "caught" else "2 * 1"
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(faults.__file__).parent)!r})
import faults
fault = faults.Fault("a", "small", "", (({old!r}, "3 * x"),), ("small/test_small.py::test_double",))
print([found[1] for found in faults.try_all([fault], [Path({str(tmp_path)!r})], 60)])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"[{result!r}]\n"
    assert module.read_text() == code


def test_a_place_that_is_there_twice_or_not_at_all_is_an_error(tmp_path):
    (tmp_path / "module.py").write_text("x = 1\nx = 1\n")
    for text in ("x = 1", "x = 2"):
        fault = faults.Fault("a", "small", "", ((text, "x = 3"),), ())
        with pytest.raises(LookupError, match="Expected one"):
            faults.find(fault, faults.read(tmp_path))


def test_the_command_knows_its_options():
    script = Path(faults.__file__)
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=True
    )
    assert "--root" in done.stdout and "--only" in done.stdout
