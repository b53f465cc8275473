"""`kill -9` in mid-training, whatever the training keeps beside its weights: the same bits."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from killed_settings import SETTINGS
from tiers import for_releases
from weight_files import tensors

from keras_addnorm.runs import RunDirectory

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


# What a layer saves otherwise than it holds.
SLOW = ("lora", "eight-bits")


@pytest.fixture(scope="module")
def trained(request, corpus, tmp_path_factory):
    """The folder of the runs that are tested here, and how their processes ended."""
    folder = tmp_path_factory.mktemp("runs")
    tests = (item for item in request.session.items if item.path == request.path)
    names = [item.callspec.params["name"] for item in tests]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "killed_settings.py", corpus, folder, *names],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", for_releases(SETTINGS, but=SLOW))
def test_a_killed_training_ends_with_the_bits_of_one_that_was_not(name, trained):
    folder, ends = trained
    assert ends["base"] == 0
    assert ends[name] == [0, signal.SIGKILL, 0]
    said = (folder / f"{name}-killed.txt").read_text(encoding="utf-8")
    assert "Going on after epoch 1 of 2 and 2 of" in said
    assert "Warning" not in said
    whole, killed = (RunDirectory(folder / f"{name}-{which}") for which in ("whole", "killed"))
    names = [path.relative_to(whole.path) for path in whole.weight_files()]
    # The last epoch's checkpoint has every variable of the model and its optimiser.
    assert Path("checkpoints/epoch-0002.weights.h5") in names
    for file in names:
        expected, found = tensors(whole.path / file), tensors(killed.path / file)
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(value, found[key], err_msg=f"{file}: {key}")
    for one, other in zip(whole.read_log(), killed.read_log(), strict=True):
        for key in ("epoch", "loss", "accuracy", "val_loss", "val_perplexity"):
            assert one[key] == other[key], key
