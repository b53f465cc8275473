"""Checkpoints of a training with LoRA that somebody has changed: loaded, or refused in a sentence.

Their digests are made anew, so that it is the readers who have to look.
"""

import json
import random
import sys
import tracemalloc
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_addnorm.basics.integrity import STATE_NAME, write_weights_digest
from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.models import enable_lora
from keras_addnorm.training import TrainingPosition, average_checkpoints
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from keras_addnorm.training.held_variables import VARIABLES_NAME, random_states

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_bytes

sys.path.pop(0)

NAME = "epoch-0001-batch-000003.weights.h5"
PLACES = f"{VARIABLES_NAME}/places"
LONGEST_SENTENCE = 2100
MEGABYTES = 200


class Data:
    def start_at(self, epoch, batch=0):
        pass


def batch():
    return np.ones((2, 3), "float32"), np.ones((2, 1), "float32")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    layers = keras.layers
    made = keras.Sequential(
        [keras.Input((3,)), layers.Dense(5), layers.Dropout(0.5), layers.Dense(1)]
    )
    enable_lora(made, rank=2)
    made.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    made.train_on_batch(*batch())
    return made


@pytest.fixture(scope="module")
def original(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("original") / NAME
    numpy = keras.ops.convert_to_numpy
    state = TrainingState(
        1,
        3,
        7,
        random=[numpy(one).tolist() for one in random_states(model)],
        metrics=[numpy(one).tolist() for one in model.metrics_variables],
        callbacks={"stopping": {"wait": 1, "best": 0.5}},
        plan="one",
    )
    save_checkpoint(model, path, state)
    return path


def resume(model, path):
    """Does what a training does that goes on: whoever finds nothing whole says why."""
    damaged = []
    found = newest_checkpoint(path.parent, lambda _, error: damaged.append(error))
    if found is None:
        raise damaged[0]
    load_checkpoint(model, path, batch())
    stopping = keras.callbacks.EarlyStopping()
    position = TrainingPosition(Data(), 7, found[1], {"stopping": stopping})
    position.set_model(model)
    position.on_epoch_begin(1)


def answer(model, path):
    """What a resumed training says, if anything; for 1 MB it may take 200 MB more."""
    tracemalloc.start()
    try:
        for use in (resume, lambda model, path: average_checkpoints([path])):
            try:
                use(model, path)
            except (ValueError, OSError) as error:
                said = str(error)
                assert len(said) <= LONGEST_SENTENCE, said[:300]
                assert printable_lines(said) == said
        return None
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most <= MEGABYTES * 10**6


def changed_inside(original, path, chance):
    """Writes a checkpoint in which one data set is another, with a digest that says so."""
    path.write_bytes(original.read_bytes())
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(lambda name, item: names.append(name))
        data_sets = [name for name in names if isinstance(file[name], h5py.Dataset)]
        name = chance.choice([STATE_NAME, PLACES, STATE_NAME, PLACES, *data_sets])
        value = file[name][()]
        kind = chance.randrange(8)
        del file[name]
        if name in (STATE_NAME, PLACES) and kind < 6:
            content = hostile_bytes.mutated(value.tobytes(), chance)
            file.create_dataset(name, data=np.frombuffer(content, np.uint8))
        elif kind < 2:
            file.create_dataset(name, data=value.reshape(-1)[:-1])
        elif kind == 2:
            file.create_group(name)
        elif kind == 3:
            file.create_dataset(name, data="\x1b[2J" * 1000)
        elif kind == 4:
            file.create_dataset(name, shape=(10**6, 10**6), dtype="f4", chunks=(1000, 1000))
        elif kind == 5:
            file.create_dataset(name, data=value.astype("f8") * np.nan)
        elif kind == 6:
            file[name] = h5py.ExternalLink("/etc/hostname", "/x")
        write = kind != 6 and kind != 4
        if write:
            write_weights_digest(file)


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.release)]
)
def test_changed_checkpoints_are_loaded_or_refused(model, original, tmp_path, seeds):
    for seed in seeds:
        chance = random.Random(seed)
        path = tmp_path / NAME
        if seed % 4:
            changed_inside(original, path, chance)
        else:
            path.write_bytes(hostile_bytes.mutated(original.read_bytes(), chance))
        answer(model, path)


def with_state(original, path, **values):
    path.write_bytes(original.read_bytes())
    with h5py.File(path, "r+") as file:
        state = json.loads(file[STATE_NAME][()].tobytes()) | values
        del file[STATE_NAME]
        file.create_dataset(STATE_NAME, data=np.frombuffer(json.dumps(state).encode(), np.uint8))
        write_weights_digest(file)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"epoch": -1}, "is not what was written"),
        ({"batch": 10**30}, "is not what was written"),
        ({"plan": 3}, "is not what was written"),
        ({"random": {}}, "is not what was written"),
        ({"callbacks": {"stopping": 3}}, "is not what was written"),
        ({"callbacks": {"stopping": {"set_model": 3}}}, "the memory of another callback"),
        ({"callbacks": {"stopping": {"wait": "x"}}}, "the memory of another callback"),
        ({"random": [[10**30, 1]]}, "random of its checkpoint is of another model"),
        ({"random": [[1, 1], [1, 1], [1, 1]]}, "random of its checkpoint is of another model"),
        ({"metrics": [1.0]}, "metrics of its checkpoint is of another model"),
        ({"metrics": ["x", "y", "z"]}, "metrics of its checkpoint is of another model"),
    ],
)
def test_a_place_that_is_none_is_refused(model, original, tmp_path, values, said):
    with_state(original, tmp_path / NAME, **values)
    with pytest.raises(ValueError, match=said):
        resume(model, tmp_path / NAME)
