"""A `fit` that goes on where another one was stopped: several steps in an execution, callbacks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.training import Checkpoints, TrainingPosition
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    load_checkpoint,
    newest_checkpoint,
)
from keras_addnorm.training.guard import NonFiniteError, NonFiniteGuard

BATCHES = 7
HELD_OUT = np.ones((2, 3), "float32"), np.ones((2, 1), "float32")


class Data:
    """Seven batches of two rows, others in each epoch; as resumable as those of a run."""

    def __init__(self):
        self.next = (0, 0)

    def start_at(self, epoch, batch=0):
        self.next = (epoch, batch)

    def batch(self, epoch, index):
        random = np.random.default_rng((epoch, index))
        return [random.normal(size=(2, width)).astype("float32") for width in (3, 1)]

    def rows(self):
        epoch, first = self.next
        self.next = (epoch + 1, 0)
        # Keras is told of seven batches in a resumed epoch, too.
        for index in (*range(first, BATCHES), *range(first)):
            yield tuple(self.batch(epoch, index))

    def dataset(self):
        specs = (tf.TensorSpec((2, 3)), tf.TensorSpec((2, 1)))
        rows = tf.data.Dataset.from_generator(self.rows, output_signature=specs)
        return rows.apply(tf.data.experimental.assert_cardinality(BATCHES))


class PyData(Data, keras.utils.PyDataset):
    """The same data as Keras' own kind, whose epochs `fit` cannot cut short."""

    def __init__(self):
        keras.utils.PyDataset.__init__(self)
        Data.__init__(self)

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        epoch, first = self.next
        return tuple(self.batch(epoch, (first + index) % BATCHES))

    def dataset(self):
        return self


class Killed(keras.callbacks.Callback):
    """Ends a training as a kill does: nothing is written any more."""

    def __init__(self, position, place):
        super().__init__()
        self.position, self.place = position, place

    def on_train_batch_end(self, batch, logs=None):
        if (self.position.epoch, self.position.batch) == self.place:
            raise KeyboardInterrupt


def compiled(steps=1, **options):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(
        keras.optimizers.Adam(0.1, **options), "mse", jit_compile=False, steps_per_execution=steps
    )
    return model


def trained(folder, steps=1, *, killed=None, every=1, remembering=None, data=Data, **options):
    """Trains for three epochs, or goes on with what the folder has; returns model and history."""
    data, model = data(), compiled(steps, **options)
    path, state = newest_checkpoint(folder, pytest.fail) or (None, TrainingState(0))
    if path:
        load_checkpoint(model, path, tuple(data.batch(0, 0)))
    remembering = remembering() if remembering else {}
    position = TrainingPosition(data, BATCHES, state, remembering)
    callbacks = [position, *remembering.values()]
    callbacks.append(Checkpoints(folder, position, every_batches=every, keep=9))
    callbacks += [Killed(position, killed)] if killed else []
    common = {"callbacks": callbacks, "shuffle": False, "verbose": 0, "validation_data": HELD_OUT}
    try:
        if state.batch and isinstance(data, PyData):
            first, rest = {"initial_epoch": state.epoch}, state.epoch + 1
            model.fit(data, epochs=rest, **first, **common)
        history = model.fit(data.dataset(), epochs=3, initial_epoch=position.epoch, **common)
    except KeyboardInterrupt:
        return None
    assert model.steps_per_execution == steps
    return model, history.history


def bits(model):
    return [
        keras.ops.convert_to_numpy(variable).tobytes()
        for variable in (*model.variables, *model.optimizer.variables)
    ]


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [
        (1, 3, [3, 6]),
        (2, 3, [4, 6]),
        (3, 4, [6]),
        (4, 2, [4]),
        (2, 1, [2, 4, 6]),
        (16, 3, []),
    ],
)
def test_a_checkpoint_is_written_at_the_first_end_of_an_execution(
    steps, every, expected, tmp_path, monkeypatch
):
    written = []
    monkeypatch.setattr(Checkpoints, "_save", lambda self, model, path: written.append(path.name))
    position = TrainingPosition(Data(), BATCHES)
    saver = Checkpoints(tmp_path, position, every_batches=every)
    callbacks = keras.callbacks.CallbackList([position, saver], model=compiled(steps))
    for epoch in range(2):
        callbacks.on_epoch_begin(epoch)
        for first in range(0, BATCHES, steps):
            callbacks.on_train_batch_end(first + steps - 1)  # As Keras counts, also behind the end.
        assert position.batch == BATCHES
        callbacks.on_epoch_end(epoch)
    names = [
        [f"epoch-{epoch:04d}-batch-{batch:06d}" for batch in expected] + [f"epoch-{epoch + 1:04d}"]
        for epoch in range(2)
    ]
    assert written == [f"{name}.weights.h5" for name in names[0] + names[1]]


@pytest.mark.parametrize(("batch", "left"), [(6, 1), (4, 3)])
def test_the_last_execution_of_a_resumed_epoch_has_the_steps_that_are_left(batch, left):
    model = compiled(4)
    position = TrainingPosition(Data(), BATCHES, TrainingState(1, batch))
    position.set_model(model)
    position.on_epoch_begin(1)
    function = model.train_function = lambda iterator: {}
    position.on_train_batch_begin(0)
    assert model.steps_per_execution == left
    assert model.train_function is not function
    position.on_train_batch_end(3)
    assert (model.steps_per_execution, model.train_function) == (4, function)
    assert (position.batch, model.stop_training) == (BATCHES, True)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "killed"), [(2, (1, 6)), (3, (1, 3)), (4, (1, 4))])
def test_an_epoch_that_goes_on_takes_its_own_batches_alone(steps, killed, tmp_path):
    """Seven batches are no whole number of executions, wherever the rest of them begins."""
    expected, history = trained(tmp_path / "whole", steps)
    assert trained(tmp_path / "killed", steps, killed=killed) is None
    found, rest = trained(tmp_path / "killed", steps)
    assert bits(found) == bits(expected)
    for key, values in rest.items():
        assert values == history[key][killed[0] :]


@pytest.mark.slow
def test_an_epoch_of_a_py_dataset_goes_on_in_executions_and_with_the_average_of_none(tmp_path):
    """Keras ends each `fit` with the moving average in the place of the weights."""
    options = {"data": PyData, "use_ema": True, "ema_momentum": 0.5}
    expected, _ = trained(tmp_path / "whole", 2, **options)
    assert trained(tmp_path / "killed", 2, killed=(1, 4), **options) is None
    found, _ = trained(tmp_path / "killed", 2, **options)
    assert bits(found) == bits(expected)


@pytest.mark.slow
def test_a_rate_that_is_multiplied_once_an_epoch_is_so_in_a_resumed_one(tmp_path):
    def remembering():
        return {"rate": keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)}

    expected, _ = trained(tmp_path / "whole", remembering=remembering)
    assert trained(tmp_path / "killed", killed=(1, 3), remembering=remembering) is None
    found, _ = trained(tmp_path / "killed", remembering=remembering)
    assert float(found.optimizer.learning_rate) == pytest.approx(0.1 / 8)
    assert bits(found) == bits(expected)


@pytest.mark.slow
def test_the_best_epoch_is_known_in_a_second_process(tmp_path):
    """Early stopping does not stop, and the file of the best epoch stays that of it."""

    def remembering(folder):
        return lambda: {
            "stopping": keras.callbacks.EarlyStopping("val_loss", patience=2, min_delta=100.0),
            "best": keras.callbacks.ModelCheckpoint(
                folder / "best.weights.h5",
                "loss",
                mode="max",
                save_best_only=True,
                save_weights_only=True,
            ),
        }

    kept = []
    for name in ("whole", "killed"):
        if name == "killed":
            trained(tmp_path / name, killed=(2, 3), remembering=remembering(tmp_path / name))
        _, history = trained(tmp_path / name, remembering=remembering(tmp_path / name))
        state = newest_checkpoint(tmp_path / name, pytest.fail)[1]
        best = compiled()
        best.optimizer.build(best.trainable_variables)
        best.load_weights(tmp_path / name / "best.weights.h5")
        kept.append((state, bits(best)))
        assert len(history["loss"]) == {"whole": 3, "killed": 1}[name]
    assert kept[0] == kept[1]
    assert kept[0][0].callbacks["stopping"]["wait"] == 2
    assert kept[0][0].callbacks["stopping"]["best_epoch"] == 0


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (
            keras.callbacks.EarlyStopping(restore_best_weights=True),
            "EarlyStopping 'it' .*restore_best_weights=False, and keras.callbacks.ModelCheckpoint",
        ),
        (keras.callbacks.ModelCheckpoint("a.keras", save_freq=5), "save_freq=5.*every_batches"),
        (keras.callbacks.CSVLogger("log.csv"), "append=True"),
        (keras.callbacks.SwapEMAWeights(swap_on_epoch=True), "swap_on_epoch=False"),
        (keras.callbacks.BackupAndRestore("backup"), "Expected one of Keras' CSVLogger, Early"),
        (keras.callbacks.LambdaCallback(), "memory is not known.*memory.. and remember"),
        (None, "callback 'it' whose memory is not known.*Received: None"),
    ],
)
def test_what_a_checkpoint_cannot_remember_is_refused_at_the_start(callback, said):
    with pytest.raises(ValueError, match=said):
        TrainingPosition(Data(), BATCHES, remembering={"it": callback})


class Patience(keras.callbacks.EarlyStopping):
    """A class of a user's."""


def test_callbacks_are_known_by_what_they_are():
    known = {
        "stopping": Patience(),
        "rate": keras.callbacks.ReduceLROnPlateau(),
        "log": keras.callbacks.CSVLogger("log.csv", append=True),
        "average": keras.callbacks.SwapEMAWeights(),
        "end": keras.callbacks.TerminateOnNaN(),
    }
    position = TrainingPosition(Data(), BATCHES, remembering=known)
    position.set_model(compiled())
    known["stopping"].on_train_begin()
    known["stopping"].best, known["stopping"].best_epoch = np.float32(0.1), 4
    state = position.state()
    assert state.callbacks["stopping"] == {
        "wait": 0,
        "best": float(np.float32(0.1)),
        "best_epoch": 4,
        "stopped_epoch": 0,
    }
    assert state.callbacks["rate"] == {"wait": 0, "best": None, "cooldown_counter": 0}
    assert state.callbacks["log"] == state.callbacks["average"] == state.callbacks["end"] == {}


@pytest.mark.parametrize(("bad", "said"), [(4, "batch 5 of"), (None, "one of the batches 4 to 6")])
def test_the_guard_searches_the_batches_of_an_execution(bad, said, tmp_path):
    data, model = Data(), compiled(3)
    if bad is not None:
        good = data.batch
        data.batch = lambda epoch, index: (
            [rows * (np.nan if index == bad else 1.0) for rows in good(epoch, index)]
        )
    position = TrainingPosition(data, BATCHES)
    guard = NonFiniteGuard(position, data.batch, tmp_path, lambda: None)
    for callback in (position, guard):
        callback.set_model(model)
        callback.on_epoch_begin(1)
    for last, loss in ((2, 1.0), (5, np.nan)):
        position.on_train_batch_end(last)
        if loss == 1.0:
            guard.on_train_batch_end(last, {"loss": loss})
    with pytest.raises(NonFiniteError, match=said):
        guard.on_train_batch_end(5, {"loss": np.nan})
    (path,) = tmp_path.glob("*.npz")
    with np.load(path) as saved:
        expected = data.batch(1, 5 if bad is None else bad)[0]
        np.testing.assert_array_equal(saved["inputs"], expected)
