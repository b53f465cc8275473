"""What users of Keras do with a layer or a model: each public layer, and the translation model.

The idea is that of `run_layer_test` in Keras' own tests. `test_on_other_backends` runs this file on
JAX and torch.
"""

import copy
import functools
import gc
import itertools
import pickle
import weakref

import keras
import numpy as np
import pytest
from filled_models import LABELS, SOURCE, TARGET, array, tiny_model

from keras_addnorm.layers import (
    SSRU,
    AddNorm,
    AverageAttention,
    FeedForward,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    PositionalEmbedding,
    Projection,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

B, T, S, D, H, F, V = 4, 5, 7, 6, 2, 11, 13
BACKEND = keras.backend.backend()


def numbers(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


X, MEMORY = numbers(B, T, D), numbers(B, S, D, seed=4)
IDS = np.array([[4, 5, 6, 0, 0], [7, 3, 2, 1, 0], [1, 0, 0, 0, 0], [12, 4, 9, 3, 2]], "int32")

LAYERS = {
    "AddNorm": (lambda **k: AddNorm("admin", **k), [X, X[::-1].copy()]),
    "FeedForward": (lambda **k: FeedForward(F, "swiglu", **k), [X]),
    "Projection": (lambda **k: Projection(3, **k), [X]),
    "PositionalEmbedding": (lambda **k: PositionalEmbedding(V, D, **k), [IDS]),
    "MultiHeadSelfAttention": (lambda **k: MultiHeadSelfAttention(H, **k), [X]),
    "SSRU": (lambda **k: SSRU(**k), [X]),
    "AverageAttention": (lambda **k: AverageAttention(F, **k), [X]),
    "MultiHeadCrossAttention": (lambda **k: MultiHeadCrossAttention(H, **k), [X, MEMORY]),
    "TransformerEncoderLayer": (
        lambda **k: TransformerEncoderLayer(
            num_heads=H, intermediate_dim=F, scheme="layer_scale", positions="t5", **k
        ),
        [X],
    ),
    "TransformerDecoderLayer": (
        lambda **k: TransformerDecoderLayer(num_heads=H, intermediate_dim=F, **k),
        [X, MEMORY],
    ),
    "TransformerEncoder": (
        lambda **k: TransformerEncoder(2, num_heads=H, intermediate_dim=F, scheme="pre_ln", **k),
        [X],
    ),
    "TransformerDecoder": (
        lambda **k: TransformerDecoder(
            1, num_heads=H, intermediate_dim=F, scheme="deep_norm", norm="rms_norm", **k
        ),
        [X, MEMORY],
    ),
}


def model_of_all_layers(**options):
    """Each public layer once: one model tries them all."""
    layers = {name: make(**options) for name, (make, _) in LAYERS.items()}
    source, ids = keras.Input((None, D)), keras.Input((None,), dtype="int32")
    memory = layers["TransformerEncoder"](layers["TransformerEncoderLayer"](source))
    x = layers["PositionalEmbedding"](ids)
    x = layers["AddNorm"](x, layers["MultiHeadSelfAttention"](x))
    x = x + layers["MultiHeadCrossAttention"](x, memory)
    x = x + layers["FeedForward"](x) + layers["SSRU"](x) + layers["AverageAttention"](x)
    x = layers["TransformerDecoder"](layers["TransformerDecoderLayer"](x, memory), memory)
    pooled = keras.layers.GlobalAveragePooling1D()(layers["Projection"](x))
    model = keras.Model([source, ids], keras.layers.Dense(1, dtype="float32")(pooled))
    return fill(model), [MEMORY, IDS], numbers(B, 1)


def translation_model(**options):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = tiny_model(**{"scheme": "pre_ln", "dropout": 0.0, **sizes, **options})
    four = {"source": np.tile(SOURCE, (2, 1))[:4], "target": np.tile(TARGET, (2, 1))[:4]}
    inputs = {name: ids.astype("int32") for name, ids in four.items()}
    return model, inputs, np.tile(LABELS, (2, 1))[:4]


def fill(model):
    rng = np.random.default_rng(5)
    for weight in model.weights:
        start = array(weight)
        middle = start if np.ptp(start) == 0 else 0  # Initial gains stay; kernels are ours.
        weight.assign(middle + rng.normal(scale=0.3, size=start.shape))
    return model


MODELS = {"all layers": model_of_all_layers, "Seq2SeqTransformer": translation_model}
# For habits that change no model.
SHARED = {name: functools.cache(make) for name, make in MODELS.items()}


def fitted(make, epochs=2, callbacks=(), **compiling):
    """The losses of some epochs, two batches each, and the model."""
    model, inputs, labels = make()
    is_translation = isinstance(model, Seq2SeqTransformer)
    loss = MaskedSparseCategoricalCrossentropy() if is_translation else "mse"
    compiling = {"jit_compile": False, **compiling}
    model.compile(keras.optimizers.Adam(0.01), loss, **compiling)
    history = model.fit(
        inputs, labels, batch_size=2, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
    )
    return np.array(history.history["loss"]), model


def outputs(model, inputs):
    return array(keras.ops.cast(model(inputs), "float32"))


HABITS, WHOLE_HABITS = {}, {}


def habit(function):
    """Adds what users do: a function of what makes a model, and of a folder."""
    HABITS[function.__name__] = function
    return function


def whole_habit(function):
    """Adds one that trains, compiles or exports."""
    WHOLE_HABITS[function.__name__] = function
    return function


@habit
def config_round_trip(make, folder):
    model, inputs, _ = make()
    again = type(model).from_config(model.get_config())
    assert again.get_config() == model.get_config()
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(outputs(again, inputs), outputs(model, inputs))


@habit
def clone_model(make, folder):
    model, inputs, _ = make()
    clone = keras.models.clone_model(model)
    assert type(clone) is type(model)
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    assert not {id(w) for w in clone.weights} & {id(w) for w in model.weights}
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(outputs(clone, inputs), outputs(model, inputs))


@habit
def deep_copy_and_pickle(make, folder):
    model, inputs, _ = make()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again) is type(model)
        np.testing.assert_array_equal(outputs(again, inputs), outputs(model, inputs))


@whole_habit
def save_and_load(make, folder):
    _, model = fitted(make, epochs=1)
    _, inputs, labels = make()
    model.save(folder / "m.keras")
    again = keras.saving.load_model(folder / "m.keras")
    assert type(again) is type(model)
    np.testing.assert_array_equal(outputs(again, inputs), outputs(model, inputs))
    losses = [m.train_on_batch(inputs, labels) for m in (model, again)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


@habit
def plot_model(make, folder):
    model, _, _ = make()
    dot = keras.utils.model_to_dot(model, show_shapes=True, show_dtype=True, expand_nested=True)
    assert model.layers[-1].name in dot.to_string()


@habit
def summary(make, folder):
    model, _, _ = make()
    lines = []
    model.summary(print_fn=lines.append, expand_nested=True)
    assert f"{model.count_params():,}" in "\n".join(lines)


@habit
def other_sizes(make, folder):
    """The model is not bound to the batch and the lengths that it saw first."""
    model, inputs, _ = make()
    expected = outputs(model, inputs)
    first = keras.tree.map_structure(lambda x: x[:1], inputs)
    np.testing.assert_allclose(outputs(model, first), expected[:1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.predict(inputs, batch_size=3, verbose=0), expected, rtol=1e-5, atol=1e-6
    )


@whole_habit
def steps_per_execution(make, folder):
    alone, _ = fitted(make)
    together, _ = fitted(make, steps_per_execution=2)
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert alone[-1] < alone[0]


@whole_habit
def run_eagerly(make, folder):
    losses = [fitted(make, epochs=1, run_eagerly=eagerly)[0] for eagerly in (False, True)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@whole_habit
def mixed_float16(make, folder):
    losses, model = fitted(lambda: make(dtype="mixed_float16"))
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


@whole_habit
def freezing(make, folder):
    def frozen():
        model, inputs, labels = make()
        model.layers[-1].trainable = True
        for layer in model.layers[:-1]:
            layer.trainable = False
        return model, inputs, labels

    before, (_, model) = make()[0], fitted(frozen, epochs=1)
    moved = {
        id(weight)
        for weight, value in zip(model.weights, before.get_weights(), strict=True)
        if not np.array_equal(array(weight), value)
    }
    assert moved == {id(weight) for weight in model.layers[-1].trainable_weights}


@whole_habit
def callbacks(make, folder):
    best = folder / "best.keras"
    losses, model = fitted(
        make,
        epochs=3,
        callbacks=[
            keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True),
            keras.callbacks.ReduceLROnPlateau(monitor="loss", min_delta=1e9, patience=1),
            keras.callbacks.TerminateOnNaN(),
        ],
    )
    assert losses.argmin() == 2  # so that the best model is the last one
    np.testing.assert_allclose(model.optimizer.learning_rate, 1e-4, rtol=1e-5)
    _, inputs, _ = make()
    np.testing.assert_array_equal(
        outputs(keras.saving.load_model(best), inputs), outputs(model, inputs)
    )


@whole_habit
def backup_and_restore(make, folder):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    whole, _ = fitted(make, epochs=2)
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    with pytest.raises(KeyboardInterrupt):
        fitted(make, epochs=2, callbacks=[backup, Stop()])
    rest, _ = fitted(
        make, epochs=2, callbacks=[keras.callbacks.BackupAndRestore(folder / "backup")]
    )
    np.testing.assert_allclose(rest, whole[1:], rtol=1e-5)


@habit
def sub_model(make, folder):
    model, inputs, _ = make()
    inner = keras.Model(model.input, model.layers[-2].output)
    assert np.isfinite(array(inner(inputs))).all()
    outer = keras.Model(model.input, model(model.input))
    np.testing.assert_array_equal(outputs(outer, inputs), outputs(model, inputs))


@whole_habit
def jit_compile(make, folder):
    losses = [fitted(make, jit_compile=compiles)[0] for compiles in (False, True)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@whole_habit
def export(make, folder):
    import tensorflow as tf

    model, inputs, _ = make()
    expected = outputs(model, inputs)
    model.export(folder / "export", verbose=False)
    served = tf.saved_model.load(folder / "export")
    found = served.serve(keras.tree.map_structure(tf.constant, inputs))
    np.testing.assert_allclose(array(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.fast_cases(7)
@pytest.mark.parametrize(("name", "what"), [*itertools.product(MODELS, HABITS)])
def test_habit(name, what, tmp_path):
    HABITS[what](SHARED[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"),
    [
        *(("Seq2SeqTransformer", what) for what in WHOLE_HABITS),
        # What depends on the layers and not on how Keras trains.
        ("all layers", "export"),
        *(
            pytest.param("all layers", what, marks=pytest.mark.release)
            for what in ("save_and_load", "mixed_float16", "jit_compile")
        ),
    ],
)
def test_whole_habit(name, what, tmp_path):
    WHOLE_HABITS[what](MODELS[name], tmp_path)


SINGLE = [name for name, (_, arrays) in LAYERS.items() if len(arrays) == 1]


@pytest.mark.parametrize("name", SINGLE)
def test_a_layer_in_sequential_and_time_distributed(name, tmp_path):
    make, (x,) = LAYERS[name]
    layer = make()
    model = fill(keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype.name), layer]))
    expected = array(model(x))
    np.testing.assert_allclose(array(layer(x)), expected, rtol=1e-6, atol=1e-6)
    # Two pages of a batch of two: (4, T, ...) -> (2, 2, T, ...)
    pages = x.reshape((2, 2, *x.shape[1:]))
    inputs = keras.Input(pages.shape[1:], dtype=x.dtype.name)
    distributed = keras.Model(inputs, keras.layers.TimeDistributed(layer)(inputs))
    found = array(distributed(pages))
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)
    distributed.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(array(again(pages)), found)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_says_its_output_before_it_computes(name):
    """Shape and dtype, by a symbolic call; and no weight changes its name by being built so."""
    make, arrays = LAYERS[name]
    for dtype in ("float32", "mixed_bfloat16"):
        layer, other = (make(dtype=dtype, name="layer") for _ in range(2))
        inputs = [keras.KerasTensor((None, *a.shape[1:]), dtype=a.dtype.name) for a in arrays]
        said, found = layer(*inputs), layer(*arrays)
        assert said.shape[1:] == tuple(found.shape[1:])
        # While Keras traces on torch's device "meta", a variable forgets the compute dtype.
        forgets = name.startswith(("MultiHead", "AverageAttention"))
        if BACKEND != "torch" or dtype == "float32" or not forgets:
            assert said.dtype == keras.backend.standardize_dtype(found.dtype)
        other(*arrays)
        assert [weight.path for weight in layer.weights] == [w.path for w in other.weights]


def test_clones_of_the_model_generate():
    model, _, _ = translation_model(share_embeddings=True, target_vocabulary_size=13)
    expected = model.generate(SOURCE, max_length=4, jit_compile=False)
    for clone in (
        keras.models.clone_model(model),
        Seq2SeqTransformer.from_config(model.get_config()),
    ):
        assert clone.config == model.config
        assert clone.encoder_embedding is clone.decoder_embedding is not model.decoder_embedding
        clone.set_weights(model.get_weights())
        found = clone.generate(SOURCE, max_length=4, jit_compile=False)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_clone_does_not_keep_the_original_alive():
    model, _, _ = translation_model()
    clone, original = keras.models.clone_model(model), weakref.ref(model)
    del model
    gc.collect()
    assert clone.built and original() is None


def test_a_clone_function_is_asked_for_each_layer():
    model, _, _ = translation_model(tie_embeddings=False)
    seen = []

    def half_the_width(layer):
        seen.append(layer.name)
        config = layer.get_config()
        if isinstance(layer, TransformerDecoder):
            config["intermediate_dim"] = 3
        return type(layer).from_config(config)

    clone = keras.models.clone_model(model, clone_function=half_the_width)
    assert seen == [layer.name for layer in model.layers if hasattr(model, layer.name)]
    assert clone.decoder.layers[0].feed_forward.intermediate_dim == 3
    assert clone.vocabulary_projection is clone.get_layer("vocabulary_projection")


def test_a_graph_alone_makes_no_model():
    model, _, _ = translation_model()
    with pytest.raises(TypeError, match=r"made from a Seq2SeqConfig.*Received: the inputs"):
        Seq2SeqTransformer(model.input, model.output)
