"""A run that goes on inside of an epoch: patience, best epochs, averages, several batches, LoRA.

What a killed process would have left is a copy of the run directory at that moment: the training
that it was taken from goes on, and is what the one that goes on with the copy is compared to.
"""

import json
import shutil

import h5py
import numpy as np
import pytest
from killed_training import config
from weight_files import tensors

from keras_addnorm.basics.integrity import STATE_NAME
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.train import train
from keras_addnorm.training import resume

pytestmark = pytest.mark.slow

SETTINGS = {
    # So low a rate betters nothing: the patience ends the training after three epochs.
    "patience in bfloat16": {
        "ema": 0.0,
        "average_last": 2,
        "early_stopping": 2,
        "epochs": 5,
        "peak_learning_rate": 1e-12,
        "precision": "bfloat16",
    },
    # Four batches are an update and a third of one.
    "updates in float16": {
        "ema": 0.9,
        "keep_best": 2,
        "batches_per_update": 3,
        "precision": "float16",
    },
    # Of a kernel with LoRA, Keras saves the sum alone.
    "LoRA": {"ema": 0.9, "lora_rank": 2, "peak_learning_rate": 0.01},
}
EPOCH, BATCH = 1, 4


def copying(whole, killed):
    """A `Checkpoints.on_train_batch_end` that copies the run when a checkpoint is just written."""
    original = resume.Checkpoints.on_train_batch_end

    def callback(self, index, logs=None):
        original(self, index, logs)
        if (self.position.epoch, self.position.batch) == (EPOCH, BATCH):
            shutil.copytree(whole.path, killed.path)

    return callback


def states(directory):
    """What the checkpoints remember, without the clock."""
    found = {}
    for path in directory.checkpoints.iterdir():
        with h5py.File(path) as file:
            found[path.name] = json.loads(bytes(file[STATE_NAME][()]))
        del found[path.name]["callbacks"]["recorder"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "patience in bfloat16",
        # `test_killed_settings.py` kills a training with LoRA.
        pytest.param("LoRA", marks=pytest.mark.release),
        pytest.param("updates in float16", marks=pytest.mark.release),
    ],
)
def test_a_run_that_goes_on_ends_as_one_that_was_not_stopped(name, corpus, tmp_path, monkeypatch):
    chosen = {"epochs": 3, "checkpoint_batches": 4, **SETTINGS[name]}
    if "lora_rank" in chosen:
        once = config(corpus).replace({"training.epochs": 1})
        train(once, RunDirectory(tmp_path / "start"), say=lambda line: None, verbose=0)
        chosen["start_from"] = str(tmp_path / "start")
    settings = config(corpus).replace({f"training.{key}": chosen[key] for key in chosen})
    whole, killed = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(resume.Checkpoints, "on_train_batch_end", copying(whole, killed))
        train(settings, whole, say=lambda line: None, verbose=0)
    said = []
    train(settings, killed, say=said.append, verbose=0)
    assert said[0].startswith(f"Going on after epoch {EPOCH} of {chosen['epochs']} and {BATCH} of ")
    files = [
        {path.relative_to(run.path) for path in run.path.rglob("*.weights.h5")}
        for run in (whole, killed)
    ]
    assert files[0] == files[1]
    for file in files[0]:
        expected, found = (tensors(run.path / file) for run in (whole, killed))
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(value, found[key], err_msg=f"{file}: {key}")
    assert states(whole) == states(killed)
    assert len(whole.read_log()) == 3
    for one, other in zip(whole.read_log(), killed.read_log(), strict=True):
        for key in ("epoch", "loss", "val_loss"):
            assert one[key] == other[key], key
