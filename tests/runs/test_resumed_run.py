"""`kill -9` at any moment, the same command again: the same weights to the bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from weight_files import tensors

from keras_addnorm.runs import RunDirectory, UserError
from keras_addnorm.runs.train import train

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """The folder of a run in one go and of one that was killed, and how their processes ended."""
    folder = tmp_path_factory.mktemp("runs")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "killed_training.py", corpus, folder],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
        },
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_the_processes_were_killed(trained):
    _, ends = trained
    assert ends.pop("whole") == ends.pop("finished") == 0
    assert ends.pop("killed from outside") in (signal.SIGKILL, 0)
    assert len(ends) == 4
    assert set(ends.values()) == {signal.SIGKILL}


def test_it_went_on_inside_of_epochs(trained):
    folder, _ = trained
    said = (folder / "killed.txt").read_text(encoding="utf-8").splitlines()
    lines = [line for line in said if line.startswith("Going on")]
    assert lines[:4] == [
        "Going on after epoch 0 of 2 and 2 of 8 batches.",
        "Going on after epoch 0 of 2 and 2 of 8 batches.",
        "Going on after epoch 0 of 2 and 6 of 8 batches.",
        "Going on after epoch 0 of 2 and 6 of 8 batches.",
    ]
    assert not any("Warning" in line for line in said)


def test_all_weights_and_the_optimiser_are_the_same_bits(trained):
    folder, _ = trained
    for name in ("best.weights.h5", "checkpoints/epoch-0002.weights.h5"):
        whole, killed = (tensors(folder / run / name) for run in ("whole", "killed"))
        assert whole.keys() == killed.keys()
        assert len(whole) > 30
        for key, value in whole.items():
            np.testing.assert_array_equal(value, killed[key], err_msg=key)


def test_the_log_tells_the_same(trained):
    folder, _ = trained
    whole, killed = (RunDirectory(folder / run).read_log() for run in ("whole", "killed"))
    assert [row["epoch"] for row in killed] == [0, 1]
    for one, other in zip(whole, killed, strict=True):
        for key in ("loss", "accuracy", "perplexity", "val_loss", "val_perplexity"):
            assert one[key] == other[key], key
        assert other["seconds"] > 0


def test_nothing_half_written_is_left(trained):
    folder, _ = trained
    names = {path.name for path in (folder / "killed" / "checkpoints").iterdir()}
    assert names == {
        "epoch-0001.weights.h5",
        "epoch-0001-batch-000006.weights.h5",
        "epoch-0002.weights.h5",
    }


def test_two_trainings_do_not_share_a_directory(corpus, tmp_path):
    from killed_training import config

    program = (
        "import fcntl, os, sys\n"
        "d = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(d, fcntl.LOCK_EX)\n"
        "print('locked', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match="Another process is training in"):
            train(config(corpus), RunDirectory(tmp_path), verbose=0)
        other.stdin.close()
