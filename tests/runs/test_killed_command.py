"""`keras-addnorm train` ended at moments that chance chooses, and `train --resume` after each.

Four times it is killed, the fifth time it is asked to stop.

The seed of the moments is in each failure's message; `KILLED_COMMAND_SEED` sets it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killed_training import config
from weight_files import tensors

from keras_addnorm.runs import RunDirectory

pytestmark = pytest.mark.release

TRAIN = [sys.executable, "-W", "ignore", "-m", "keras_addnorm.cli", "train"]
ROOT = Path(__file__).parents[2]


class Commands:
    """The command line in processes of their own, and when to kill them."""

    def __init__(self, folder, environment):
        self.environment = environment
        self.file = folder / "settings.toml"
        self.directory = RunDirectory(folder / "killed")
        self.seed = int(os.environ.get("KILLED_COMMAND_SEED", time.time_ns() % 2**32))
        self.chance = random.Random(self.seed)
        self.ends = []
        self.half_written = []

    def arguments(self):
        """What goes on with the run, or begins it: it may have been killed before it was one."""
        more = ["--resume"] if self.directory.config.exists() else ["--config", self.file]
        return [*TRAIN, "--run-dir", self.directory.path, *more]

    def run(self, arguments):
        done = subprocess.run(arguments, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, (self.seed, done.stderr)
        return done.stdout

    def end(self, wait, number=signal.SIGKILL):
        """Starts the command and sends it a signal when `wait` has seen enough."""
        with subprocess.Popen(
            self.arguments(), env=self.environment, stdout=subprocess.DEVNULL
        ) as process:
            wait(process)
            process.send_signal(number)
        self.ends.append(process.returncode)

    def start_up(self, seconds):
        """Waits for a random part of the time in which a process reads the data, for example."""
        return lambda process: time.sleep(self.chance.uniform(0, seconds))

    def some_batches(self, process):
        """Waits for a random number of checkpoints, and then for some of a batch's time."""
        seen, enough = self._checkpoints(), self.chance.randint(1, 10)
        old = set(seen)
        while len(seen - old) < enough and process.poll() is None:
            time.sleep(0.002)
            seen |= self._checkpoints()
        time.sleep(self.chance.uniform(0, 0.1))

    def half_a_checkpoint(self, process):
        """Waits for a checkpoint that has not its name yet, with the process stopped at that."""
        while process.poll() is None:
            time.sleep(0.002)
            if any(self._half_written()):
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                self.half_written = list(self._half_written())
                if self.half_written:
                    return
                process.send_signal(signal.SIGCONT)

    def _checkpoints(self):
        return {path.name for path in self.directory.checkpoints.glob("epoch-*")}

    def _half_written(self):
        return self.directory.checkpoints.glob(".*.weights.h5")


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run in one go, one that was ended five times, and what its last process said."""
    folder = tmp_path_factory.mktemp("runs")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
    }
    commands = Commands(folder, environment)
    settings = config(corpus).replace({"training.epochs": 6, "training.checkpoint_batches": 1})
    commands.file.write_text(settings.to_toml(), encoding="utf-8")
    whole = RunDirectory(folder / "whole")
    started = time.time()
    commands.run([*TRAIN, "--run-dir", whole.path, "--config", commands.file])
    # It is written again when data, tokenisers and model are there.
    set_up = whole.config.stat().st_mtime - started
    for wait in (
        commands.start_up(set_up),
        commands.some_batches,
        commands.half_a_checkpoint,
        commands.some_batches,
    ):
        commands.end(wait)
    commands.end(commands.some_batches, signal.SIGTERM)
    said = commands.run(commands.arguments())
    return whole, commands, said


def test_the_processes_were_killed(trained):
    _, commands, said = trained
    assert commands.ends == [*4 * [-signal.SIGKILL], 128 + signal.SIGTERM], commands.seed
    assert commands.half_written, commands.seed
    assert "Going on after epoch" in said, commands.seed
    assert "Warning" not in said, commands.seed


def test_all_weights_and_the_optimiser_are_the_same_bits(trained):
    whole, commands, _ = trained
    files = [
        {path.relative_to(run.path) for path in run.path.rglob("*.weights.h5")}
        for run in (whole, commands.directory)
    ]
    assert files[0] == files[1], commands.seed
    for file in files[0]:
        expected, found = (tensors(run.path / file) for run in (whole, commands.directory))
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            message = f"seed {commands.seed}, {file}: {key}"
            np.testing.assert_array_equal(value, found[key], err_msg=message)


def test_the_log_tells_the_same(trained):
    whole, commands, _ = trained
    for one, other in zip(whole.read_log(), commands.directory.read_log(), strict=True):
        for key in ("epoch", "loss", "accuracy", "perplexity", "val_loss", "val_perplexity"):
            assert one[key] == other[key], (commands.seed, key)
