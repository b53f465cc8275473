"""A checkpoint holds what each variable holds, whatever the layers save of it."""

import functools

import h5py
import keras
import numpy as np
import pytest

from keras_addnorm.basics.integrity import write_weights_digest
from keras_addnorm.layers import FeedForward, MultiHeadSelfAttention, PositionalEmbedding
from keras_addnorm.models import enable_lora
from keras_addnorm.training import average_checkpoints
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from keras_addnorm.training.held_variables import VARIABLES_NAME, VariablePlace

layers = keras.layers


class Rounded(layers.Layer):
    """A layer that saves otherwise than it holds."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale", initializer="ones")

    def call(self, x):
        return x * self.scale

    def save_own_variables(self, store):
        store["0"] = keras.ops.round(self.scale)

    def load_own_variables(self, store):
        self.scale.assign(store["0"])


def batch(index):
    random = np.random.default_rng(index)
    return random.normal(size=(2, 5)).astype("float32"), random.normal(size=(2, 1))


def ids(index):
    random = np.random.default_rng(index)
    return random.integers(1, 7, (2, 5)), random.normal(size=(2, 1))


def compiled(seed, *stack, rank=0, quantized=None, **options):
    """A model with first weights and seeds of dropout of its own."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([layer() for layer in stack])
    if quantized:
        for layer in model._flatten_layers():
            if layer is not model and hasattr(layer, "kernel"):
                layer.quantize(quantized)
    if rank:
        enable_lora(model, rank)
    # TensorFlow has no gradient of Keras' layers in float8 outside of a graph.
    eagerly = quantized != "float8"
    optimizer = keras.optimizers.Adam(0.1, **options)
    model.compile(optimizer, "mse", run_eagerly=eagerly, jit_compile=False)
    return model


plain_input = functools.partial(keras.Input, (5,))
of_keras = (plain_input, functools.partial(layers.Dense, 3), functools.partial(layers.Dense, 1))
dropout = functools.partial(layers.Dropout, 0.5)
ours = (
    functools.partial(keras.Input, (5,), dtype="int32"),
    functools.partial(PositionalEmbedding, 7, 6, max_length=5),
    functools.partial(MultiHeadSelfAttention, num_heads=2, dropout=0.3),
    functools.partial(FeedForward, 11),
    layers.GlobalAveragePooling1D,
    functools.partial(layers.Dense, 1),
)
KINDS = {
    "LoRA": functools.partial(compiled, stack=of_keras, rank=2),
    "LoRA in layers of ours": functools.partial(compiled, stack=ours, rank=2, use_ema=True),
    "LoRA on int8": functools.partial(compiled, stack=of_keras, rank=2, quantized="int8"),
    "float8": functools.partial(compiled, stack=of_keras, quantized="float8"),
    "another layer": functools.partial(
        compiled, stack=(plain_input, Rounded, dropout, of_keras[2])
    ),
}


def make(name, seed):
    options = dict(KINDS[name].keywords)
    return compiled(seed, *options.pop("stack"), **options)


def bits(model):
    return [
        keras.ops.convert_to_numpy(variable).tobytes()
        for variable in (*model.variables, *model.optimizer.variables)
    ]


def trained(name, path, batches):
    model = make(name, 1)
    for index in range(2):
        model.train_on_batch(*batches(index))
    save_checkpoint(model, path, TrainingState(1))
    assert read_checkpoint(path) == TrainingState(1)
    return model


def without_places(path):
    """The file as an earlier version wrote it."""
    with h5py.File(path, "r+") as file:
        del file[VARIABLES_NAME]
        write_weights_digest(file)


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", KINDS)
def test_all_variables_come_back_to_the_bit_and_go_on(name, tmp_path):
    path = tmp_path / "epoch-0001.weights.h5"
    batches = ids if name == "LoRA in layers of ours" else batch
    model = trained(name, path, batches)
    # Of other seeds, and with other numbers in the names that Keras gives to layers.
    resumed = make(name, 2)
    load_checkpoint(resumed, path, batches(0))
    assert bits(resumed) == bits(model)
    for one in (model, resumed):
        one.train_on_batch(*batches(2))
    assert bits(resumed) == bits(model)


def test_other_uses_of_a_checkpoint_have_the_merged_weights(tmp_path):
    paths = [tmp_path / f"epoch-000{number}.weights.h5" for number in (1, 2)]
    model = trained("LoRA", paths[0], batch)
    first = [layer.kernel.numpy() for layer in model.layers]
    model.train_on_batch(*batch(3))
    save_checkpoint(model, paths[1], TrainingState(2))
    plain = compiled(3, *of_keras)
    plain.load_weights(paths[0], objects_to_skip=[plain.optimizer])
    for layer, kernel in zip(plain.layers, first, strict=True):
        np.testing.assert_array_equal(layer.kernel, kernel)
    mean = tmp_path / "mean.weights.h5"
    average = average_checkpoints(paths, mean)
    second = model.layers[0].kernel.numpy()
    expected = ((first[0].astype("float64") + second) / 2).astype("float32")
    np.testing.assert_array_equal(average["layers/dense/vars/0"], expected)
    # A mean of sums is no mean of A and of B.
    assert read_checkpoint(mean) == TrainingState(2)
    with pytest.raises(ValueError, match="does not hold 4 variables"):
        load_checkpoint(model, mean, batch(0))


def test_a_checkpoint_of_an_earlier_version_is_taken_where_it_holds_all(tmp_path):
    path = tmp_path / "epoch-0001.weights.h5"
    stack = (plain_input, dropout, of_keras[2])
    model = compiled(1, *stack)
    model.train_on_batch(*batch(0))
    save_checkpoint(model, path, TrainingState(1))
    without_places(path)
    resumed = compiled(1, *stack)
    load_checkpoint(resumed, path, batch(0))
    seed = next(i for i, v in enumerate(model.variables) if "seed_generator" in v.path)
    expected, found = bits(model), bits(resumed)
    assert expected[:seed] + expected[seed + 1 :] == found[:seed] + found[seed + 1 :]


def test_a_checkpoint_of_an_earlier_version_is_refused_with_lora(tmp_path):
    path = tmp_path / "epoch-0001.weights.h5"
    trained("LoRA", path, batch)
    without_places(path)
    with pytest.raises(ValueError, match=r"dense\w*/lora_kernel_a.*earlier version.*LoRA merged"):
        load_checkpoint(make("LoRA", 1), path, batch(0))


@pytest.mark.parametrize(
    ("rank", "options", "said"),
    [
        (0, {}, r"the checkpoint alone has .*lora_kernel_a \(5, 2\)"),
        (3, {}, r"lora_kernel_a \(5, 2\).*the model alone has .*lora_kernel_a \(5, 3\)"),
        (2, {"use_ema": True}, r"the model alone has .*average \(5, 2\)"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_before_it_changes_anything(
    rank, options, said, tmp_path
):
    path = tmp_path / "epoch-0001.weights.h5"
    trained("LoRA", path, batch)
    other = compiled(1, *of_keras, rank=rank, **options)
    before = [array.copy() for array in other.get_weights()]
    with pytest.raises(ValueError, match=rf"is of another model or optimiser: .*{said}"):
        load_checkpoint(other, path, batch(0))
    for one, array in zip(before, other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, array)


def test_a_place_of_very_many_axes_is_none(tmp_path):
    """The product of their sizes takes minutes, and NumPy has no such array."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.ones(1, "float32")
        assert VariablePlace("a", (1,) * 64, "float32", "x", False).is_in(file)
        assert not VariablePlace("a", (1,) * 65, "float32", "x", False).is_in(file)
