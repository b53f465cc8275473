"""Trains one run again and again, each time in a process that is killed at another moment.

Run as a program: `killed_training.py CORPUS FOLDER`. One process imports Keras and forks before the
first tensor, so that each training costs no import. Prints what was said before each death.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from keras_addnorm.basics import atomic
from keras_addnorm.runs import RunDirectory, callbacks
from keras_addnorm.runs import train as module
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.training import resume


def config(corpus):
    return RunConfig.from_dict(
        {
            "data": str(corpus),
            "tokenizer": {"vocabulary_size": 43},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "hidden_dim": 10,
                "intermediate_dim": 14,
                "num_heads": 2,
                "dropout": 0.3,
                "max_length": 13,
                "scheme": "pre_ln",
            },
            "training": {
                "epochs": 2,
                "tokens_per_batch": 13 * 8,
                "bucket_lengths": [11, 13],
                "warmup_steps": 3,
                "jit_compile": False,
                "checkpoint_batches": 2,
                "early_stopping": 5,
                "ema": 0.5,
            },
        }
    )


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def after_batch(epoch, batch):
    """Dies behind a batch, between two checkpoints."""
    original = resume.Checkpoints.on_train_batch_end

    def callback(self, index, logs=None):
        original(self, index, logs)
        if (self.position.epoch, self.position.batch) == (epoch, batch):
            die()

    resume.Checkpoints.on_train_batch_end = callback


def before_rename(name):
    """Dies when a checkpoint is written but has not its name yet."""
    original = atomic.flush_to_disk

    def flush(path):
        original(path)
        if path.name.endswith(name):
            die()

    atomic.flush_to_disk = flush


def half_written(name):
    """Dies when half of a checkpoint is on the disk."""

    def flush(path):
        if path.name.endswith(name):
            os.truncate(path, path.stat().st_size // 2)
            die()

    atomic.flush_to_disk = flush


def after_log(epoch):
    """Dies when an epoch is in the log but has no checkpoint."""
    original = callbacks.RunRecorder.on_epoch_end

    def callback(self, index, logs=None):
        original(self, index, logs)
        if index == epoch:
            die()

    callbacks.RunRecorder.on_epoch_end = callback


def train(corpus, folder, said, changes=None):
    with Path(said).open("a", encoding="utf-8") as file:
        module.train(
            config(corpus).replace(changes or {}),
            RunDirectory(folder),
            say=lambda line: print(line, file=file, flush=True),
            verbose=0,
        )


def in_child(prepare, *arguments, kill_after=None):
    """Returns how a training in a process of its own ended: a signal's number, or 0."""
    child = os.fork()
    if not child:
        status = 1
        try:
            prepare()
            train(*arguments)
            status = 0
        finally:
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def main(corpus, folder):
    folder = Path(folder)
    ends = {"whole": in_child(lambda: None, corpus, folder / "whole", folder / "whole.txt")}
    killed = (corpus, folder / "killed", folder / "killed.txt")
    for number, prepare in enumerate(
        (
            lambda: after_batch(0, 3),
            lambda: before_rename("epoch-0000-batch-000004.weights.h5"),
            lambda: after_log(0),
            lambda: half_written("epoch-0001.weights.h5"),
        )
    ):
        ends[f"killed {number}"] = in_child(prepare, *killed)
    # At whatever moment this is: how fast the machine is decides.
    ends["killed from outside"] = in_child(lambda: None, *killed, kill_after=3.0)
    ends["finished"] = in_child(lambda: None, *killed)
    print(json.dumps(ends))


if __name__ == "__main__":
    main(*sys.argv[1:])
