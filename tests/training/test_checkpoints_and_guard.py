"""Checkpoints that are damaged are found out; numbers that are not finite end a training."""

import dataclasses
import functools
import os
import shutil
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest

from keras_addnorm.basics import integrity
from keras_addnorm.basics.integrity import DIGEST_ATTRIBUTE, STATE_NAME, DamagedFileError
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import (
    MaskedSparseCategoricalCrossentropy,
    average_checkpoints,
    average_weights,
)
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    load_checkpoint,
    newest_checkpoint,
    read_checkpoint,
    read_unverified,
    save_checkpoint,
)
from keras_addnorm.training.checkpoints import LastCheckpoints
from keras_addnorm.training.guard import NonFiniteError, NonFiniteGuard, first_bad_layer
from keras_addnorm.training.resume import Checkpoints, TrainingPosition, _first_count


class Data:
    """Seven batches of two rows, in the same order each epoch."""

    def __init__(self):
        self.started = []

    def start_at(self, epoch, batch=0):
        self.started.append((epoch, batch))

    def batch(self, epoch, index):
        return np.full((2, 3), index / 7, "float32"), np.full((2, 1), epoch + index, "float32")


def compiled(rate=0.1):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(5, name="first"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1, name="second"),
        ]
    )
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"], run_eagerly=True)
    return model


@pytest.fixture
def folder(tmp_path):
    model = compiled()
    model.fit(*Data().batch(0, 0), verbose=0)
    for name, state in {
        "epoch-0001": TrainingState(1),
        "epoch-0001-batch-000003": TrainingState(1, 3, callbacks={"c": {"best": float("inf")}}),
        "epoch-0001-batch-000005": TrainingState(1, 5),
        "epoch-0002": TrainingState(2),
    }.items():
        save_checkpoint(model, tmp_path / f"{name}.weights.h5", state)
    return tmp_path


def flip_a_byte(path):
    """Changes one bit of a weight: the file's own structure stays whole."""
    weight = compiled()
    load_checkpoint(weight, path, Data().batch(0, 0))
    value = weight.layers[0].kernel.numpy().tobytes()
    content = bytearray(path.read_bytes())
    assert content.count(value) >= 1
    content[content.find(value)] ^= 1
    path.write_bytes(content)


def test_damaged_checkpoints_are_named_and_left_out(folder):
    damaged = []
    note = lambda path, error: damaged.append((path.name, str(error)))  # noqa: E731
    assert newest_checkpoint(folder, note)[1] == TrainingState(2)
    assert damaged == []
    os.truncate(folder / "epoch-0002.weights.h5", 1000)
    flip_a_byte(folder / "epoch-0001-batch-000005.weights.h5")
    path, state = newest_checkpoint(folder, note)
    assert path.name == "epoch-0001-batch-000003.weights.h5"
    assert state == TrainingState(1, 3, callbacks={"c": {"best": float("inf")}})
    names, reasons = zip(*damaged, strict=True)
    assert names == ("epoch-0002.weights.h5", "epoch-0001-batch-000005.weights.h5")
    assert "cannot be read" in reasons[0]
    assert reasons[1] == "its content has changed since it was written"
    assert newest_checkpoint(folder / "none", note) is None


def test_a_checkpoint_is_a_weight_file_as_any_other(folder, tmp_path):
    """Keras loads it, and its state does not disturb an average."""
    paths = [folder / f"epoch-000{n}.weights.h5" for n in (1, 2)]
    average = average_checkpoints(paths)
    assert not any("state" in name for name in average)
    model = compiled()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(paths[1])
    np.testing.assert_array_equal(model.layers[0].kernel, average["layers/dense/vars/0"])


def test_a_file_without_state_counts_by_its_name(tmp_path):
    saver = LastCheckpoints(tmp_path)
    saver.set_model(compiled())
    saver.on_epoch_end(3)
    assert newest_checkpoint(tmp_path, pytest.fail)[1] == TrainingState(4)


def test_a_place_in_data_that_were_divided_otherwise_is_the_start_of_its_epoch():
    state = TrainingState(2, 5, batches=7, random=[[1, 2]], metrics=[3.0])
    assert state.with_batches(7) is state
    assert state.with_batches(9) == TrainingState(2)
    between = TrainingState(2, callbacks={"c": {"wait": 1.0}})
    assert between.with_batches(9) is between


def test_a_place_in_other_data_of_as_many_batches_is_the_start_of_its_epoch(tmp_path):
    state = TrainingState(2, 5, batches=7, random=[[1, 2]], plan="one")
    assert state.with_batches(7, "one") is state
    assert state.with_batches(7, "two") == TrainingState(2)
    assert state.with_batches(7) is state
    older = TrainingState(2, 5, batches=7)
    assert older.with_batches(7, "two") is older
    between = TrainingState(2, plan="one")
    assert between.with_batches(7, "two") is between
    position = TrainingPosition(Data(), 7, plan="one")
    position.set_model(compiled())
    position.on_epoch_begin(0)
    assert position.state().plan == "one"


def test_a_checkpoint_of_a_version_without_plans_is_read(tmp_path, monkeypatch):
    model, path = compiled(), tmp_path / "epoch-0001-batch-000003.weights.h5"
    content = dataclasses.asdict(TrainingState(1, 3))
    del content["plan"]
    monkeypatch.setattr(dataclasses, "asdict", lambda state: content)
    model.fit(*Data().batch(0, 0), verbose=0)
    save_checkpoint(model, path, TrainingState(1, 3))
    assert read_checkpoint(path) == TrainingState(1, 3)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])  # Of torch, JAX and TensorFlow.
def test_random_numbers_of_any_epoch_fit_their_type(dtype):
    starts = [_first_count(epoch, dtype) for epoch in range(1000)]
    assert starts[:128] == [epoch * 2**24 for epoch in range(128)]
    assert np.array(starts, dtype).tolist() == starts
    gaps = np.diff(np.sort(starts))
    assert gaps.min() >= 2**20
    assert max(starts) + 2**20 <= np.iinfo(dtype).max


def test_a_late_epoch_begins():
    model = compiled()
    position = TrainingPosition(Data(), 7)
    position.set_model(model)
    (state,) = (v for v in model.variables if v.path.endswith("seed_generator_state"))
    for epoch in (2, 1000):
        position.on_epoch_begin(epoch)
        assert int(state.numpy()[1]) == _first_count(epoch, state.dtype)


def test_later_checkpoints_do_not_push_out_new_ones(folder):
    """Two damaged ones of a later place, say: what is written now has to stay."""
    (folder / "epoch-0002.weights.h5").unlink()
    for name in ("epoch-0001-batch-000004", "epoch-0001-batch-000006"):
        (folder / f"{name}.weights.h5").write_bytes(b"")
    (folder / "epoch-0003.weights.h5").write_bytes(b"")
    position = TrainingPosition(Data(), 7)
    saver = Checkpoints(folder, position, every_batches=1)
    for callback in (position, saver):
        callback.set_model(compiled())
    position.on_epoch_begin(1)
    for batch in range(2):
        position.on_train_batch_end(batch)
        saver.on_train_batch_end(batch)
    assert sorted(path.name.removesuffix(".weights.h5") for path in folder.iterdir()) == [
        "epoch-0001",
        "epoch-0001-batch-000001",
        "epoch-0001-batch-000002",
        "epoch-0003",
    ]


def test_the_epochs_files_are_known_without_another_epoch(folder):
    saver = Checkpoints(folder, TrainingPosition(Data(), 7, TrainingState(2)), keep=5)
    names = ["epoch-0001.weights.h5", "epoch-0002.weights.h5"]
    assert [path.name for path in saver.paths] == names
    saver = Checkpoints(folder, TrainingPosition(Data(), 7, TrainingState(2)), keep=1)
    assert [path.name for path in saver.paths] == names[1:]
    assert Checkpoints(folder / "none", TrainingPosition(Data(), 7)).paths == []


def train(tmp_path, batches, state=None, path=None):
    """Trains up to a number of batches, as a process that is killed then would."""
    model, data = compiled(), Data()
    state = state or TrainingState(0)
    if path:
        load_checkpoint(model, path, data.batch(0, 0))
    stopping = keras.callbacks.EarlyStopping("loss", patience=9)
    position = TrainingPosition(data, 7, state, {"stopping": stopping})
    saver = Checkpoints(tmp_path, position, every_batches=2)
    callbacks = keras.callbacks.CallbackList([position, stopping, saver], model=model)
    callbacks.on_train_begin()
    seen, logs = 0, {}
    for epoch in range(state.epoch, 3):
        model.reset_metrics()
        callbacks.on_epoch_begin(epoch)
        for step, index in enumerate(range(position.batch, 7)):
            logs = model.train_on_batch(*data.batch(epoch, index), return_dict=True)
            callbacks.on_train_batch_end(step, logs)
            seen += 1
            if seen == batches:
                return model, logs, data
        callbacks.on_epoch_end(epoch, logs)
        assert not model.stop_training
    return model, logs, data


@pytest.mark.slow
def test_going_on_anywhere_gives_the_same_bits(tmp_path):
    expected, logs, _ = train(tmp_path / "whole", 99)
    for batches in (3, 7, 12):
        folder = tmp_path / str(batches)
        train(folder, batches)
        path, state = newest_checkpoint(folder, pytest.fail)
        assert (state.epoch, state.batch) == {3: (0, 2), 7: (0, 6), 12: (1, 4)}[batches]
        again, logs_again, data = train(folder, 99, state, path)
        assert data.started[0] == (state.epoch, state.batch)
        assert logs == logs_again
        for one, other in zip(expected.get_weights(), again.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


class PyData(Data, keras.utils.PyDataset):
    """The same data as Keras' own kind, whose epochs `fit` cannot cut short."""


@pytest.mark.parametrize(
    ("data", "epochs", "is_refused"),
    [
        (PyData, 5, True),
        (PyData, 2, False),
        (Data, 5, False),
    ],
)
def test_what_keras_cannot_go_on_with_is_refused_before_the_first_batch(data, epochs, is_refused):
    position = TrainingPosition(data(), 7, TrainingState(1, 3))
    position.set_model(compiled())
    position.set_params({"epochs": epochs})
    if not is_refused:
        position.on_epoch_begin(1)
        return
    with pytest.raises(
        ValueError, match=r"Expected .* epochs=2. Received: epochs=5.*initial_epoch"
    ):
        position.on_epoch_begin(1)


def test_a_second_fit_remembers_what_the_first_one_did():
    stopping = keras.callbacks.EarlyStopping("loss", patience=9)
    position = TrainingPosition(Data(), 7, TrainingState(1, 3), {"stopping": stopping})
    for callback in (position, stopping):
        callback.set_model(compiled())
    position.on_epoch_begin(1)
    stopping.best, stopping.wait = 0.25, 2
    position.on_epoch_end(1)
    position.on_train_end()
    stopping.on_train_begin()
    assert (stopping.best, stopping.wait) == (None, 0)
    position.on_epoch_begin(2)
    assert (stopping.best, stopping.wait) == (0.25, 2)


def guarded(model, data, folder, last_good=None):
    """The callbacks that know the place in the data and watch the numbers."""
    position = TrainingPosition(data, 7)
    guard = NonFiniteGuard(position, data.batch, folder, lambda: last_good)
    for callback in (position, guard):
        callback.set_model(model)
    return position, guard


def test_the_guard_names_layer_weight_and_batch(tmp_path):
    model, data = compiled(), Data()
    position, guard = guarded(model, data, tmp_path)
    position.on_epoch_begin(1)
    position.on_train_batch_end(4)
    guard.on_train_batch_end(4, {"loss": 1.0})
    guard.check_weights()
    bias = model.get_layer("second").bias
    bias.assign([np.nan])
    with pytest.raises(NonFiniteError) as caught:
        guard.on_train_batch_end(4, {"loss": float("nan")})
    text = str(caught.value)
    assert "The loss is nan after step 0: batch 5 of epoch 2." in text
    assert f"first layer with an output that is not finite: {model.name}/second" in text
    assert f"first weight that is not finite: {bias.path} (1 of 4)" in text
    with np.load(tmp_path / "nonfinite-step-0.npz") as saved:
        np.testing.assert_array_equal(saved["inputs"], data.batch(1, 4)[0])
        np.testing.assert_array_equal(saved["labels"], data.batch(1, 4)[1])
    with pytest.raises(NonFiniteError, match="A weight is not finite after step 0"):
        guard.check_weights()
    assert "call" not in vars(model.get_layer("second"))


def test_the_guard_says_when_float16_skips_every_step(tmp_path):
    model, data = compiled(), Data()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), "mse")
    _, guard = guarded(model, data, tmp_path)
    guard.check_weights()  # Before the first step there is no scale.
    model.optimizer.build(model.trainable_variables)
    weights = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    infinite = [np.full(weight.shape, np.inf, "float32") for weight in weights]
    for _ in range(28):  # 2 ** 15 becomes 2 ** -13.
        guard.check_weights()
        model.optimizer.apply([keras.ops.convert_to_tensor(each) for each in infinite])
    for weight, before in zip(model.weights, weights, strict=True):
        np.testing.assert_array_equal(weight, before)
    guard.check_weights()
    model.optimizer.apply([keras.ops.convert_to_tensor(each) for each in infinite])
    with pytest.raises(NonFiniteError, match=r"at each step, with a loss scale of only 6.1e-05"):
        guard.check_weights()


def test_at_the_end_of_an_epoch_the_guard_names_its_last_batch(tmp_path):
    model, data = compiled(), Data()
    position, guard = guarded(model, data, tmp_path)
    position.on_epoch_begin(1)
    position.on_train_batch_end(6)
    position.on_epoch_end(1)
    model.get_layer("second").bias.assign([np.nan])
    with pytest.raises(NonFiniteError, match="batch 7 of epoch 2"):
        guard.check_weights()
    with np.load(tmp_path / "nonfinite-step-0.npz") as saved:
        np.testing.assert_array_equal(saved["labels"], data.batch(1, 6)[1])


def test_the_layer_is_looked_for_with_the_last_good_weights(tmp_path):
    model, data = compiled(), Data()
    path = tmp_path / "epoch-0001.weights.h5"
    model.fit(*data.batch(0, 0), verbose=0)
    save_checkpoint(model, path, TrainingState(1))
    for weight in model.weights:
        weight.assign(np.full(weight.shape, np.nan))
    assert first_bad_layer(model, data.batch(0, 0)[0]).endswith("/first")
    _, guard = guarded(model, data, tmp_path, path)
    with pytest.raises(NonFiniteError) as caught:
        guard.check_weights()
    assert "not finite: none (with the weights of epoch-0001.weights.h5)" in str(caught.value)
    assert "(4 of 4)" in str(caught.value)


def test_the_guard_says_that_the_model_refuses_the_batch(tmp_path):
    """Ids outside the vocabulary give NaN in a compiled step, and are named where they are seen."""
    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", max_length=8))
    model.compile("sgd", MaskedSparseCategoricalCrossentropy())
    ids = np.array([[5, 106, 7, 2]])
    batch = {"source": ids, "target": ids % 100}, ids % 100
    data = SimpleNamespace(batch=lambda epoch, index: batch, start_at=lambda *place: None)
    _, guard = guarded(model, data, tmp_path)
    with pytest.raises(NonFiniteError, match="loss is nan after step 0") as caught:
        guard.on_train_batch_end(0, {"loss": float("nan")})
    assert "the model refuses the batch: A source id lies outside" in str(caught.value)
    assert "Ids and labels outside the vocabulary give NaN, too" in str(caught.value)


def test_the_layer_is_found_inside_of_a_transformer():
    model = Seq2SeqTransformer(
        Seq2SeqConfig.preset(
            "tiny",
            source_vocabulary_size=11,
            target_vocabulary_size=13,
            num_encoder_layers=2,
            num_decoder_layers=1,
            hidden_dim=6,
            intermediate_dim=7,
            num_heads=2,
            max_length=5,
        )
    )
    batch = {"source": np.array([[5, 6, 2, 0]]), "target": np.array([[1, 5, 0]])}
    assert first_bad_layer(model, batch) is None  # For all its masked attention scores.
    feed_forward = [w for w in model.weights if "encoder/layer_1/feed_forward/" in w.path]
    bias = next(weight for weight in feed_forward if weight.path.endswith("/bias"))
    bias.assign(np.full(bias.shape, np.inf))
    assert first_bad_layer(model, batch) == bias.path.removesuffix("/bias")
    for weight in model.weights:
        weight.assign(np.full(weight.shape, np.nan))
    assert first_bad_layer(model, batch) is not None


def test_a_digest_is_of_attributes_too(folder):
    """Keras says there that a tensor is of bfloat16, which HDF5 does not know."""
    path = folder / "epoch-0002.weights.h5"
    with h5py.File(path, "r+") as file:
        file["layers/dense/vars/0"].attrs["dtype"] = "bfloat16"
    with pytest.raises(DamagedFileError, match="has changed"):
        read_checkpoint(path)
    assert read_unverified(path) == TrainingState(2)
    with h5py.File(path, "r+") as file:
        del file.attrs[DIGEST_ATTRIBUTE]
    with pytest.raises(DamagedFileError, match="its digest is gone"):
        read_checkpoint(path)


def test_a_checkpoint_of_an_earlier_version_has_a_digest_of_its_numbers(folder):
    path = folder / "epoch-0002.weights.h5"
    with h5py.File(path, "r+") as file:
        file.attrs[DIGEST_ATTRIBUTE] = integrity._weights_digest(file, with_attributes=False)
    assert read_checkpoint(path) == TrainingState(2)
    flip_a_byte(path)
    with pytest.raises(DamagedFileError, match="has changed"):
        read_checkpoint(path)


def test_a_place_knows_the_tokenizers_of_its_ids():
    position = TrainingPosition(Data(), 7, tokenizers="0123")
    position.set_model(compiled())
    position.on_epoch_begin(0)
    assert position.state().tokenizers == "0123"


def test_means_are_taken_of_whole_checkpoints_and_are_whole(folder, tmp_path):
    paths = [folder / f"epoch-000{number}.weights.h5" for number in (1, 2)]
    mean = tmp_path / "mean" / "epoch-0003.weights.h5"
    average_checkpoints(paths, mean)
    assert read_checkpoint(mean) == TrainingState(2)
    average_checkpoints([*paths, mean])
    flip_a_byte(paths[0])
    for take in (average_checkpoints, functools.partial(average_weights, compiled())):
        with pytest.raises(DamagedFileError, match=r"'.*epoch-0001.weights.h5' is damaged"):
            take(paths)
    average_checkpoints(paths, verify=False)
    os.truncate(paths[1], 999)
    with pytest.raises(DamagedFileError, match=r"'.*epoch-0002.*: it cannot be read.*Copy"):
        average_checkpoints(paths[1:], verify=False)


def test_a_weight_file_with_the_digest_of_another_is_no_checkpoint(folder, tmp_path):
    """As an earlier version wrote the mean of a run: the digest was that of one of its parts."""
    path = tmp_path / "averaged.weights.h5"
    shutil.copy(folder / "epoch-0002.weights.h5", path)
    with h5py.File(path, "r+") as file:
        file.attrs[DIGEST_ATTRIBUTE] = "0123"
        del file[STATE_NAME]
    average_checkpoints([path])
