import h5py
import keras
import numpy as np
import pytest

from keras_addnorm.training import LastCheckpoints, average_checkpoints, average_weights


def model(units=5, dtype="float32", seed=1):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((3,), dtype=dtype),
            keras.layers.Dense(units, dtype=dtype),
            keras.layers.Dense(2, dtype=dtype, use_bias=False),
        ]
    )
    model.compile("adam", "mse")
    return model


def checkpoints(folder, count, **arguments):
    """Weight files of random weights, and those weights."""
    values = []
    for index in range(count):
        one = model(seed=index, **arguments)
        values.append(
            [np.random.default_rng(index).normal(0, 9, w.shape) for w in one.get_weights()]
        )
        one.set_weights(values[-1])
        one.save_weights(folder / f"{index}.weights.h5")
        values[-1] = [np.asarray(w, "float64") for w in one.get_weights()]
    return sorted(folder.glob("*.weights.h5")), values


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_mean_is_exact(tmp_path, count):
    paths, values = checkpoints(tmp_path, count)
    average = average_checkpoints(paths, tmp_path / "out" / "mean.weights.h5")
    expected = [np.mean(tensors, axis=0).astype("float32") for tensors in zip(*values, strict=True)]
    keys = ["layers/dense/vars/0", "layers/dense/vars/1", "layers/dense_1/vars/0"]
    for key, tensor in zip(keys, expected, strict=True):
        assert average[key].dtype == np.float32
        np.testing.assert_array_equal(average[key], tensor)
    loaded = model(seed=99)
    loaded.load_weights(tmp_path / "out" / "mean.weights.h5")
    for ours, tensor in zip(loaded.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(ours, tensor)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mean.weights.h5"]


def test_sums_are_not_rounded_to_the_type_of_the_files(tmp_path):
    """In float16, 2048 + 1 is 2048: a sum in the file's own type would lose the second file."""
    for index, value in enumerate([2048.0, 1.0, 1.0, 2.0]):
        one = model(dtype="float16")
        one.set_weights([np.full(w.shape, value) for w in one.get_weights()])
        one.save_weights(tmp_path / f"{index}.weights.h5")
    average = average_checkpoints(sorted(tmp_path.iterdir()))
    np.testing.assert_array_equal(average["layers/dense/vars/1"], np.full(5, 513, "float16"))


def test_bfloat16_weights(tmp_path):
    paths, values = checkpoints(tmp_path, 3, dtype="bfloat16")
    twin = model(dtype="bfloat16")
    average_weights(twin, paths)
    for ours, tensors in zip(twin.get_weights(), zip(*values, strict=True), strict=True):
        np.testing.assert_array_equal(ours, np.mean(tensors, axis=0).astype(ours.dtype))


def test_average_weights_loads_into_the_model(tmp_path):
    paths, values = checkpoints(tmp_path, 3)
    twin = model(seed=99)
    average_weights(twin, paths)
    for ours, tensors in zip(twin.get_weights(), zip(*values, strict=True), strict=True):
        np.testing.assert_array_equal(ours, np.mean(tensors, axis=0).astype("float32"))
    assert sorted(tmp_path.iterdir()) == paths


def test_counters_come_from_the_last_file(tmp_path):
    one, data = model(), np.ones((2, 3), "float32")
    for index in range(3):
        one.fit(data, data[:, :2], epochs=1, verbose=0)
        one.save_weights(tmp_path / f"{index}.weights.h5")
    average = average_checkpoints(sorted(tmp_path.iterdir()))
    assert average["optimizer/vars/0"] == 3  # iterations
    moments = []
    for path in sorted(tmp_path.iterdir()):
        with h5py.File(path) as file:
            moments.append(file["optimizer/vars/2"][...].astype("float64"))
    np.testing.assert_array_equal(
        average["optimizer/vars/2"], np.mean(moments, axis=0).astype("float32")
    )


def test_different_models_are_refused_by_name(tmp_path):
    model(units=5).save_weights(tmp_path / "a.weights.h5")
    model(units=7).save_weights(tmp_path / "b.weights.h5")
    message = r"differ in 3 tensors(.|\n)*layers/dense/vars/0: float32 \(3, 5\) \| float32 \(3, 7\)"
    with pytest.raises(ValueError, match=message):
        average_checkpoints([tmp_path / "a.weights.h5", tmp_path / "b.weights.h5"])
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)]).save_weights(
        tmp_path / "c.weights.h5"
    )
    with pytest.raises(ValueError, match=r"layers/dense_1/vars/0: float32 \(5, 2\) \| missing"):
        average_checkpoints([tmp_path / "a.weights.h5", tmp_path / "c.weights.h5"])


def test_a_failed_average_leaves_the_old_file(tmp_path, monkeypatch):
    paths, _ = checkpoints(tmp_path, 2)
    output = tmp_path / "mean" / "mean.weights.h5"
    average_checkpoints(paths, output)
    before = output.read_bytes()
    monkeypatch.setattr(h5py.Dataset, "__setitem__", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        average_checkpoints(paths[:1], output)
    assert output.read_bytes() == before
    assert list(output.parent.iterdir()) == [output]


def test_bad_paths_are_named(tmp_path):
    with pytest.raises(ValueError, match="paths is empty"):
        average_checkpoints([])
    with pytest.raises(ValueError, match=r"must be a list of files. Received: the single path"):
        average_checkpoints(tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match=r"ends in '.weights.h5'"):
        average_checkpoints([tmp_path / "model.keras"])
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*a.weights.h5"):
        average_checkpoints([tmp_path / "a.weights.h5"])
    paths, _ = checkpoints(tmp_path, 1)
    with pytest.raises(ValueError, match=r"output must end in '.weights.h5'"):
        average_checkpoints(paths, tmp_path / "mean.h5")


def fit(built, callback, epochs, initial_epoch=0):
    data = np.ones((2, 3), "float32")
    built.fit(
        data,
        data[:, :2],
        epochs=epochs,
        initial_epoch=initial_epoch,
        callbacks=[callback],
        verbose=0,
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_last_checkpoints_are_kept(tmp_path):
    built, callback = model(), LastCheckpoints(tmp_path / "new", keep=2)
    fit(built, callback, epochs=4)
    assert names(tmp_path / "new") == ["epoch-0003.weights.h5", "epoch-0004.weights.h5"]
    assert [path.name for path in callback.paths] == names(tmp_path / "new")
    twin = model(seed=99)  # its optimizer has no moments yet: no reason to warn
    average_weights(twin, callback.paths[-1:])
    for ours, theirs in zip(twin.get_weights(), built.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_resumed_run_goes_on_with_the_files_there(tmp_path):
    built = model()
    fit(built, LastCheckpoints(tmp_path, keep=3), epochs=3)
    resumed = LastCheckpoints(tmp_path, keep=3)
    fit(built, resumed, epochs=5, initial_epoch=3)
    assert names(tmp_path) == [f"epoch-000{n}.weights.h5" for n in (3, 4, 5)]
    assert [path.name for path in resumed.paths] == names(tmp_path)


def test_files_that_are_not_its_own_stay(tmp_path):
    others = ["best.weights.h5", "epoch-0020.weights.h5", "epoch-1.weights.h5", "notes.txt"]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    callback = LastCheckpoints(tmp_path, keep=1)
    fit(model(), callback, epochs=2)
    assert names(tmp_path) == sorted(["epoch-0002.weights.h5", *others])
    assert [path.name for path in callback.paths] == ["epoch-0002.weights.h5"]


def test_an_interrupted_save_leaves_nothing(tmp_path, monkeypatch):
    built = model()

    def half(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(built, "save_weights", half)
    callback = LastCheckpoints(tmp_path)
    callback.set_model(built)
    with pytest.raises(KeyboardInterrupt):
        callback.on_epoch_end(0)
    assert names(tmp_path) == []


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match=r"keep must be at least 1 checkpoint. Received: 0"):
        LastCheckpoints(tmp_path, keep=0)
