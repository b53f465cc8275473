"""The examples as their commands see them."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import keras
import pytest

from keras_addnorm import schemes

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextlib.contextmanager
def _loaded(name):
    """Loads an example with its own folder first and the backend of the tests.

    What it registers and the modules of its folder are forgotten afterwards.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemes._TABLE, "_classes", dict(schemes._TABLE._classes))
        patch.setenv("KERAS_BACKEND", keras.backend.backend())
        patch.syspath_prepend(str(EXAMPLES))
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        # Data classes look their module up by name.
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        yield module
        beside = {path.stem for path in EXAMPLES.iterdir()}
        for known in [module for module in sys.modules if module.split(".")[0] in beside]:
            del sys.modules[known]


@pytest.fixture(scope="session")
def load_example():
    """`with load_example(name) as module`."""
    return _loaded
