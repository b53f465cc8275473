"""Kills trainings and exports at random moments: are the results those of work that was not killed?

A training is killed (`kill -9`) some times, and the same call goes on each time; at last its
weights, its optimiser and its log are compared to the bit with those of a training in one go. An
export into a folder with a served version is killed, and the folder is looked at: the version is as
it was, and no other is half there. At last an export that nobody kills removes what the others have
left.

    python benchmarks/kills.py                              # 20 trainings, 20 exports
    python benchmarks/kills.py --trainings 3 --exports 2 --seed 7

The exit status is 1 if something was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The bits of a sum depend on the threads that share it.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import bit_flips
import h5py
import numpy as np

# Imported here once: the processes that are killed are forks, made before the first tensor.
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.export import export
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.serving import load_translator

KILLS_OF_A_TRAINING = 4
_COMPARED = ("loss", "accuracy", "perplexity", "val_loss", "val_perplexity")


def in_process(work: Callable[[], object], kill_after: float | None = None) -> tuple[bool, float]:
    """Does work in a process of its own, and kills it; returns whether it was done, and seconds."""
    started = time.monotonic()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    ended, status = 0, 0
    while not ended and kill_after is not None and time.monotonic() - started < kill_after:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.005)
    if not ended:
        if kill_after is not None:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("The work failed in its process; its traceback stands above.")
    return os.WIFEXITED(status), time.monotonic() - started


def settings(corpus: str) -> RunConfig:
    """The run of `bit_flips.py`, with more checkpoints, dropout and a mean of epochs."""
    changes = {"training.checkpoint_batches": 2, "training.epochs": 3, "model.dropout": 0.3}
    return RunConfig.from_dict(bit_flips.run_settings(corpus)).replace(changes)


def trainings(folder: Path, kills: int, chance: random.Random) -> tuple[list[str], RunDirectory]:
    """Kills trainings; returns what went wrong, and the run that was not killed."""
    config = settings(bit_flips.write_corpus(folder / "corpus"))

    def work(run: RunDirectory) -> Callable[[], object]:
        return lambda: train(config, run, say=lambda line: None, verbose=0)

    whole = RunDirectory(folder / "whole")
    _, seconds = in_process(work(whole))
    wrong, done, number = [], 0, 0
    while done < kills:
        number += 1
        run = RunDirectory(folder / f"killed-{number}")
        for _ in range(min(KILLS_OF_A_TRAINING, kills - done)):
            is_done, _ = in_process(work(run), chance.uniform(0, seconds))
            done += not is_done
            if is_done:
                break
        in_process(work(run))
        wrong += [f"training {number}: {what}" for what in differences(whole, run)]
        print(f"{done} of {kills} trainings killed, {number} runs, {len(wrong)} wrong.", flush=True)
    return wrong, whole


def differences(whole: RunDirectory, killed: RunDirectory) -> list[str]:
    """What of a run is not as in another one: files, bits, figures, things left over."""
    names = [
        {path.relative_to(run.path) for path in run.path.rglob("*.weights.h5")}
        for run in (whole, killed)
    ]
    found = [f"{name} is there once" for name in names[0] ^ names[1] if "-batch-" not in name.name]
    for name in names[0] & names[1]:
        one, other = (tensors(run.path / name) for run in (whole, killed))
        if one.keys() != other.keys() or any(
            not np.array_equal(one[key], other[key]) for key in one
        ):
            found.append(f"{name} has other bits")
    for row, other_row in zip(whole.read_log(), killed.read_log(), strict=True):
        found += [f"{key} is another" for key in _COMPARED if row.get(key) != other_row.get(key)]
    found += [f"{path.name} is left over" for path in killed.path.rglob(".*")]
    return found


def tensors(path: Path) -> Mapping[str, np.ndarray]:
    """Every array of a weight file, but for the clock of a checkpoint."""
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.endswith("training_state"):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def exports(folder: Path, run: RunDirectory, kills: int, chance: random.Random) -> list[str]:
    """Kills exports into a folder with a version; returns what went wrong."""
    served = folder / "served"

    def work() -> None:
        export(load_run(run), served)

    _, seconds = in_process(work)
    before = contents(served / "1")
    wrong, done = [], 0
    while done < kills:
        is_done, _ = in_process(work, chance.uniform(0, seconds))
        done += not is_done
        if contents(served / "1") != before:
            wrong.append(f"export {done}: the served version has changed")
        for path in served.glob("[!.1]*"):
            # It was renamed just before the kill: then it is whole.
            whole = set(contents(path)) >= set(before)
            wrong += [] if whole else [f"export {done}: version {path.name} is not whole"]
            shutil.rmtree(path)
        print(f"{done} of {kills} exports killed, {len(wrong)} wrong.", flush=True)
    left = len([*served.glob(".*")])
    in_process(work)
    there = [path.name for path in served.glob(".*")]
    print(f"The last export found {left} folders of killed ones, and left {len(there)}.")
    wrong += [f"{name} is left over" for name in there]

    def compare() -> None:
        one, other = (load_translator(served / version)(bit_flips.TEXTS) for version in ("1", "2"))
        if one != other:
            raise RuntimeError(f"{one} is not {other}")

    in_process(compare)
    return wrong


def contents(folder: Path) -> dict[str, bytes]:
    """The content of each file of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", type=int, default=20, help="how many to kill")
    parser.add_argument("--exports", type=int, default=20, help="how many to kill")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"Seed {options.seed}.", flush=True)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong, run = trainings(folder, options.trainings, chance)
        if options.exports:
            wrong += exports(folder, run, options.exports, chance)
    print("\n".join(wrong) or "Nothing was lost, and nothing is left over.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
