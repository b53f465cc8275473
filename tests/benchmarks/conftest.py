"""Scripts of benchmarks/ as modules, which leave nothing behind."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def _script(name):
    @pytest.fixture(scope="module", name=name)
    def module():
        known = set(sys.modules)
        sys.path.insert(0, str(FOLDER))
        yield importlib.import_module(name)
        sys.path.remove(str(FOLDER))
        for other in set(sys.modules) - known:
            if Path(getattr(sys.modules[other], "__file__", None) or "").parent == FOLDER:
                del sys.modules[other]

    return module


attacks, bit_flips, epochs = map(_script, ("attacks", "bit_flips", "epochs"))
shuffling = _script("shuffling")
