"""Callbacks of a run: what is written down, and what makes a run go on as if never stopped."""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.training import plot_curves
from keras_addnorm.training.files import written_whole


def save_weights(model: keras.Model, path: Path) -> None:
    """Writes a model's weights without its optimiser's, whole or not at all.

    Keras saves what hangs on a model, Adam's two moments too: three times the size.

    Args:
        model: A built model.
        path: Where to, ending in `.weights.h5`.
    """
    with written_whole(path) as temporary, tempfile.TemporaryDirectory() as folder:
        everything = Path(folder, path.name)
        model.save_weights(everything)
        with h5py.File(everything) as old, h5py.File(temporary, "w") as new:
            new.attrs.update(old.attrs)
            for key in old:
                if key != "optimizer":
                    old.copy(key, new)


def peak_memory_mebibytes() -> float:
    """Returns the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0**2 if sys.platform == "darwin" else 1024.0)


class RunRecorder(keras.callbacks.Callback):
    """Writes best weights, log and curves at the end of each epoch.

    Unlike `CSVLogger` and `ModelCheckpoint` it never leaves half a file behind, and on resuming it
    drops rows that are younger than the checkpoint. A run may thus be killed at any moment.

    Columns it adds to the log: `seconds` (the whole epoch, validation included),
    `tokens_per_second` (source and target tokens without padding) and `peak_memory_mib`.

    Args:
        directory: Where to write.
        tokens_per_epoch: Source and target tokens of one epoch, padding not counted.
        first_epoch: The epoch that the training goes on with.
    """

    def __init__(self, directory: RunDirectory, tokens_per_epoch: int, first_epoch: int) -> None:
        super().__init__()
        self.directory = directory
        self.tokens_per_epoch = tokens_per_epoch
        self.rows = [row for row in directory.read_log() if row["epoch"] < first_epoch]
        self._started = 0.0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock.

        Args:
            epoch: Counted from 0.
            logs: Not read.
        """
        self._started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes everything down.

        Args:
            epoch: Counted from 0.
            logs: What Keras and the callbacks before this one measured.
        """
        seconds = time.perf_counter() - self._started
        row = {
            "epoch": epoch,
            **{key: float(value) for key, value in (logs or {}).items()},
            "seconds": round(seconds, 3),
            "tokens_per_second": round(self.tokens_per_epoch / seconds, 1),
            "peak_memory_mib": round(peak_memory_mebibytes(), 1),
        }
        if self._is_best(row):
            save_weights(self.model, self.directory.best_weights)
        self.rows.append(row)
        self.directory.write_log(self.rows)
        plot_curves(self.directory.log, self.directory.curves)

    def _is_best(self, row: Mapping[str, float]) -> bool:
        """A loss that is not a number never wins, not even as the first."""
        return row["val_loss"] < min((old["val_loss"] for old in self.rows), default=math.inf)


class EpochSeeds(keras.callbacks.Callback):
    """Starts each epoch with random numbers of its own.

    Keras keeps the state of dropout in variables that weight files leave out, so a training that
    goes on would repeat the first epoch's numbers. Here an epoch's numbers follow from the seed
    and the number of the epoch alone.
    """

    # More than the random numbers that a layer draws in an epoch, one for each step.
    _DRAWS = 2**24

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Sets the state of every random generator of the model.

        Args:
            epoch: Counted from 0.
            logs: Not read.
        """
        for variable in self.model.variables:
            if variable.path.endswith("seed_generator_state"):
                seed = keras.ops.convert_to_numpy(variable)[0]
                variable.assign(np.array([seed, epoch * self._DRAWS]))
