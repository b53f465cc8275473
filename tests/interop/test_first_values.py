"""Weights that begin with given numbers."""

import keras
import numpy as np
import pytest
from filled_models import SOURCE, TARGET, tiny_model

from keras_addnorm.basics.arrays import to_numpy
from keras_addnorm.interop import load_pretrained, make_random_folder
from keras_addnorm.interop.first_values import built_with
from keras_addnorm.interop.tensor_files import DamagedFileError, find_tensors


def small():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def test_weights_have_the_given_numbers_and_no_others_before(monkeypatch):
    expected = tiny_model()

    def draw(*arguments, **options):
        raise AssertionError("random numbers were drawn")

    for kind in (keras.initializers.GlorotUniform, keras.initializers.RandomNormal):
        monkeypatch.setattr(kind, "__call__", draw)
    numbers = [to_numpy(weight) for weight in expected.weights]
    model = built_with(
        lambda: type(expected)(expected.config),
        lambda new: {
            id(weight): each.copy for weight, each in zip(new.weights, numbers, strict=True)
        },
    )
    batch = {"source": SOURCE, "target": TARGET}
    np.testing.assert_array_equal(*map(to_numpy, (model(batch), expected(batch))))
    assert [weight.path for weight in model.weights] == [weight.path for weight in expected.weights]


def test_a_failure_is_raised_once_and_leaves_nothing():
    def fail():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        built_with(small, lambda model: {id(weight): fail for weight in model.weights})
    with pytest.raises(KeyError):
        built_with(small, lambda model: {}["nothing"])
    with keras.StatelessScope():  # It gives values to all that has none, or fails.
        small()


def test_a_file_that_changes_while_it_is_read(tmp_path):
    folder = make_random_folder("marian", tmp_path / "opus")
    tensor = find_tensors(folder)["model.shared.weight"]
    model = load_pretrained(folder, tokenizers=None).model
    path = folder / "model.safetensors"
    before = [to_numpy(weight).copy() for weight in model.weights]
    content = path.read_bytes()
    with path.open("r+b") as file:  # The same file, other numbers.
        file.write(bytes(len(content)))
    after = [to_numpy(weight) for weight in model.weights]
    assert all(map(np.array_equal, before, after))
    path.write_bytes(content[: tensor.offset + 4])
    with pytest.raises(DamagedFileError, match="has become shorter"):
        tensor.read()


def test_weights_of_half_precision(tmp_path):
    folder = make_random_folder("bart", tmp_path / "bart")
    half = load_pretrained(folder, tokenizers=None, dtype="float16").model
    full = load_pretrained(folder, tokenizers=None).model
    for weight, other in zip(half.weights, full.weights, strict=True):
        expected = to_numpy(keras.ops.cast(other, weight.dtype))
        np.testing.assert_array_equal(to_numpy(weight), expected)
