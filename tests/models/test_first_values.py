"""Weights that begin with given numbers."""

import shutil

import keras
import numpy as np
import pytest

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.interop import load_pretrained, make_random_folder
from keras_addnorm.interop.tensor_files import DamagedFileError, find_tensors
from keras_addnorm.models.first_values import built_with


def small():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def ones(model):
    return {id(weight): lambda shape=weight.shape: np.ones(shape) for weight in model.weights}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a pretrained model."""
    return make_random_folder("bart", tmp_path_factory.mktemp("first_values") / "bart")


def test_weights_have_the_given_numbers_and_no_others_before(folder, monkeypatch):
    def draw(*arguments, **options):
        raise AssertionError("random numbers were drawn")

    for kind in (keras.initializers.GlorotUniform, keras.initializers.RandomNormal):
        monkeypatch.setattr(kind, "__call__", draw)
    model = load_pretrained(folder, tokenizers=None).model
    expected = find_tensors(folder)["model.shared.weight"].read()
    np.testing.assert_array_equal(to_numpy(model.decoder_embedding.embeddings), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_weights_of_half_precision_are_the_rounded_numbers(folder, dtype):
    model, exact = (
        load_pretrained(folder, tokenizers=None, dtype=each).model for each in (dtype, "float32")
    )
    kept = "float32" if dtype.startswith("mixed") else dtype
    for weight, other in zip(model.weights, exact.weights, strict=True):
        assert weight.dtype == kept
        expected = to_numpy(keras.ops.cast(other.value, kept))
        np.testing.assert_array_equal(to_numpy(weight), expected, err_msg=weight.path)


def test_a_failure_is_raised_once_and_leaves_nothing():
    def fail():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        built_with(small, lambda model: {id(weight): fail for weight in model.weights})
    with pytest.raises(KeyError):
        built_with(small, lambda model: {}["nothing"])
    with keras.StatelessScope():  # It gives values to all that has none, or fails.
        small()


def test_a_model_that_cannot_be_made_leaves_nothing():
    """Not even a weight that no later scope could give values to."""

    def huge():
        keras.Sequential([keras.Input((10**9,)), keras.layers.Dense(10**9)])
        raise MemoryError("too large")

    with pytest.raises(MemoryError, match="too large"):
        built_with(huge, lambda model: {})

    def large():
        return keras.Sequential([keras.Input((10**9,)), keras.layers.Dense(10**9)])

    with pytest.raises(KeyError):
        built_with(large, lambda model: {}["nothing"])
    assert built_with(small, ones).predict_on_batch(np.ones((2, 3)))[0, 0] == 4.0


def test_a_file_that_changes_while_it_is_read(folder, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "copy")
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


def test_weights_of_half_precision(folder):
    half = load_pretrained(folder, tokenizers=None, dtype="float16").model
    full = load_pretrained(folder, tokenizers=None).model
    for weight, other in zip(half.weights, full.weights, strict=True):
        expected = to_numpy(keras.ops.cast(other, weight.dtype))
        np.testing.assert_array_equal(to_numpy(weight), expected)
