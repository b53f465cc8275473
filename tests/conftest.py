"""What every test shares: few threads, quiet logs, fixed seeds. Runs before Keras is imported."""

import os

# Several workers share few cores: one computing thread each, or they get in each other's way.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Hundreds of small programs, each compiled for a few steps: LLVM's optimisations cost more than
# they save here. XLA's own passes run as ever, and the demo trains with everything. (Level 0 leaves
# long sums scalar, which rounds them worse than users will see.)
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import gc
import random

import numpy as np
import pytest
import tiers
import xla_cache

# Tracing makes objects by the thousand, of which few are garbage.
gc.set_threshold(200_000, 20, 20)


def pytest_configure(config):
    cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
    # Workers have the flags of the process that started them.
    if cache is not None and "TF_XLA_FLAGS" not in os.environ:
        os.environ["TF_XLA_FLAGS"] = xla_cache.flags(cache)


@pytest.fixture(autouse=True, scope="module")
def _forget_what_was_compiled():
    """Frees the models and functions of the file before, which are cycles, and them alone.

    What is left is exempt: Keras collects at each weight that it quantises, and need not look at
    everything that was ever imported or made.
    """
    gc.collect()
    gc.freeze()


_MARKERS = pytest.StashKey[list[frozenset[str]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Remembers the markers of all tests, before `-m` leaves any of them out, and sorts them."""
    tiers.mark_slow_cases(items)
    config.stash[_MARKERS] = [
        frozenset(marker.name for marker in item.iter_markers()) for item in items
    ]
    # First those that share an export: at the end, workers that take tests from each other would
    # each have to make it.
    items.sort(key=lambda item: item.path.parent.name != "serving")


@pytest.fixture(scope="session")
def collected_markers(pytestconfig):
    """The names of the markers of each test that was collected, of whatever tier."""
    return pytestconfig.stash[_MARKERS]


def _seed():
    random.seed(17)
    np.random.seed(17)
    keras = _imported("keras")
    if keras is not None:
        keras.utils.set_random_seed(17)


@pytest.fixture(autouse=True)
def _fixed_seeds():
    """Makes each test's random numbers its own: the order of the tests changes nothing."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Makes those of fixtures that several tests share their own, too: no test comes before them.

    Otherwise a shared model would depend on the test that ran last, and on the number of workers.
    """
    if fixturedef.scope != "function":
        _seed()


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot = _imported("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _imported(name):
    """Returns a module only if a test has imported it already: seeding must not cost an import."""
    import sys

    return sys.modules.get(name)
