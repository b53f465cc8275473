"""`quantize("int8")` makes kernels and tables whole numbers, by Keras' own methods."""

import keras
import numpy as np
import pytest
from filled_models import LABELS, SOURCE, array, batch, tiny_model

from keras_addnorm.diagnostics import prune
from keras_addnorm.layers import FeedForward, PositionalEmbedding, Projection, TransformerEncoder
from keras_addnorm.models import Seq2SeqTransformer, fold, merge_lora
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

OPTIONS = {
    "tied": {},
    "shared, learned": {
        "share_embeddings": True,
        "target_vocabulary_size": 13,
        "positions": "learned",
    },
    "untied, t5": {"tie_embeddings": False, "positions": "t5"},
}


def rounded(weight, axis):
    """Symmetric rounding to -127 ... 127, with one factor for each output; NumPy."""
    factor = 127 / np.abs(weight).max(axis=axis, keepdims=True)
    return np.round(weight * factor) / factor


def small_model(**options):
    """Keras looks for garbage at each weight that it quantises."""
    return tiny_model(num_encoder_layers=1, **options)


def logits(model):
    return array(model(batch()))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("options", OPTIONS)
def test_f9_all_kernels_and_tables_are_whole_numbers_before_a_first_call(options):
    model, like = small_model(**OPTIONS[options]), small_model(**OPTIONS[options])
    model.quantize("int8")
    for weight in model.weights:
        is_matrix = len(weight.shape) == 2 and "positions" not in weight.path
        assert (weight.dtype == "int8") == is_matrix, weight.path

    # Weights alone, rounded by NumPy: what is left is the rounding of what they multiply.
    for weight in like.weights:
        if weight.name == "kernel":
            weight.assign(rounded(array(weight), 0))
        elif weight.name == "embeddings" and "positions" not in weight.path:
            weight.assign(rounded(array(weight), 1))
    exact = logits(small_model(**OPTIONS[options]))
    spread = np.ptp(exact)
    np.testing.assert_allclose(logits(model), logits(like), atol=0.05 * spread)
    assert np.abs(logits(model) - exact).max() > 1e-4


def test_f9_an_embedding_reads_and_projects_with_the_rounded_table():
    layer = PositionalEmbedding(11, 6, positions="none")
    table, x = array(layer.embeddings), np.random.default_rng(2).normal(size=(2, 3, 6))
    ids = np.array([[4, 5, 0], [7, 10, 1]])
    layer.quantize("int8")
    assert [(w.name, w.dtype, tuple(w.shape)) for w in layer.weights] == [
        ("embeddings", "int8", (11, 6)),
        ("embeddings_scale", "float32", (11,)),
    ]
    rows = rounded(table, 1)
    np.testing.assert_allclose(array(layer(ids)), rows[ids] * 6**0.5, rtol=1e-5, atol=1e-6)
    expected = x @ rows.T
    np.testing.assert_allclose(array(layer(x, reverse=True)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(layer.logits(x[0])), expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_f9_a_projection_multiplies_as_keras_dense(mode):
    x = np.random.default_rng(2).normal(size=(2, 3, 6)).astype("float32")
    ours, theirs = Projection(5), keras.layers.Dense(5)
    for layer in (ours, theirs):
        layer.build(x.shape)
    theirs.set_weights(ours.get_weights())
    for layer in (ours, theirs):
        layer.quantize(mode)
    np.testing.assert_allclose(array(ours(x)), array(theirs(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_f9_float8_says_which_layers_it_leaves_out():
    model = tiny_model(num_encoder_layers=1)
    with pytest.warns(UserWarning, match="embedding.* stays as it is: .*float8"):
        model.quantize("float8")
    assert all(weight.dtype == "float32" for weight in model.encoder_embedding.weights)
    assert "outputs_grad_scale" in {weight.name for weight in model.encoder.weights}


class OwnProjection(Projection):
    """Somebody's own."""


class OwnEmbedding(PositionalEmbedding):
    """Somebody's own."""


@pytest.mark.parametrize("layer", [lambda: OwnProjection(5), lambda: OwnEmbedding(11, 6)])
def test_f9_a_layer_of_ones_own_is_quantised_on_request_alone(layer):
    layer = layer()
    layer.build((2, 6))
    with pytest.raises(NotImplementedError, match="Own"):
        layer.quantize("int8")
    layer.quantize("int8", type_check=False)
    assert layer.weights[-1].name.endswith("_scale")


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    ("options", "mode"), [*zip(OPTIONS, ("int8", "int4", "int8"), strict=True)]
)
def test_f9_a_quantised_model_comes_back_from_its_files(mode, options, tmp_path):
    model = small_model(**OPTIONS[options])
    model.quantize(mode)
    expected = logits(model)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert again.get_config() == model.get_config()
    np.testing.assert_array_equal(logits(again), expected)
    model.save_weights(tmp_path / "m.weights.h5")
    fresh = Seq2SeqTransformer(model.config)
    fresh.quantize(mode)
    fresh.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(logits(fresh), expected)


def test_f9_filters_choose_layers():
    model = small_model()
    model.quantize("int8", filters=["output_projection", "^decoder_embedding$"])
    quantized = {w.path.split("/")[-2] for w in model.weights if w.dtype == "int8"}
    assert quantized == {"output_projection", "decoder_embedding"}
    assert model.encoder_embedding.quantization_mode is None
    clone = Seq2SeqTransformer.from_config(model.get_config())
    assert [w.dtype for w in clone.weights] == [w.dtype for w in model.weights]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_f9_lora_tunes_a_quantised_model(options):
    model = small_model(**OPTIONS[options], dropout=0.0)
    model.quantize("int8")
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
    before = logits(model)
    model.compile(
        keras.optimizers.Adam(0.03), MaskedSparseCategoricalCrossentropy(), jit_compile=False
    )
    losses = model.fit(batch(), LABELS, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.3
    assert np.abs(logits(model) - before).max() > 1e-3
    log_p = model.score(SOURCE, LABELS, jit_compile=False).log_probabilities
    np.testing.assert_allclose(
        -log_p.sum() / (LABELS != 0).sum(),
        float(MaskedSparseCategoricalCrossentropy()(LABELS, logits(model))),
        rtol=1e-4,
    )


@pytest.mark.parametrize("act", [fold, merge_lora, lambda model: prune(model, [])])
def test_f9_copies_of_a_quantised_model_are_refused(act):
    model = small_model(scheme="rezero")
    model.quantize("int8", filters="query")
    with pytest.raises(ValueError, match=r"Received: 3 quantised layers.*in int8.*quantise last"):
        act(model)


def test_f9_a_second_time_and_float16_are_refused():
    model = small_model()
    model.quantize("int8")
    with pytest.raises(ValueError, match="already quantized"):
        model.quantize("int8")
    with pytest.raises(ValueError, match="float16"):
        small_model(dtype="float16").quantize("int8")


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method implemented")
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_f9_layers_in_a_model_of_ones_own(tmp_path):
    """Keras' `Model.quantize` reaches the projections; an embedding is asked itself."""
    ids = np.array([[4, 5, 6, 0], [7, 3, 0, 0]])
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            PositionalEmbedding(11, 6),
            TransformerEncoder(1, num_heads=2, intermediate_dim=7),
            FeedForward(5),
        ]
    )
    exact = array(model(ids))
    model.quantize("int8")
    model.layers[0].quantize("int8")
    assert {w.dtype for w in model.weights if len(w.shape) == 2} == {"int8"}
    found = array(model(ids))
    np.testing.assert_allclose(found, exact, atol=0.3)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert [w.dtype for w in again.weights] == [w.dtype for w in model.weights]
    np.testing.assert_array_equal(array(again(ids)), found)


def test_f9_a_file_with_another_quantised_layer_is_refused():
    layer = FeedForward(5)
    layer.build((None, None, 6))
    layer.intermediate_projection.quantize("int8")
    described = layer.get_build_config()
    (policy,) = described["quantized"].values()
    described["quantized"] = {"third_projection": policy}
    with pytest.raises(ValueError, match=r"not in it.*intermediate_projection.*'third_projection'"):
        FeedForward(5).build_from_config(described)


def _policy(**config):
    return {"module": "keras", "class_name": "QuantizedDTypePolicy", "config": config}


@pytest.mark.parametrize(
    "quantized",
    [
        ["intermediate_projection"],
        {"intermediate_projection": "int8_from_float32"},
        {"intermediate_projection": None},
        {"intermediate_projection": {"a": 1}},
        {"intermediate_projection": _policy(mode="int9", source_name="float32")},
        {"intermediate_projection": {**_policy(name="float32"), "class_name": "DTypePolicy"}},
    ],
    ids=str,
)
def test_a_file_that_does_not_say_what_is_quantised_is_refused(quantized):
    with pytest.raises(ValueError, match=r"The file does not say (which|how).*Received: .{1,200}"):
        FeedForward(5).build_from_config({"input_shape": (None, None, 6), "quantized": quantized})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "jit_compile"), [*zip(OPTIONS, (False, True, False), strict=True)]
)
def test_f9_it_generates(options, jit_compile):
    model = small_model(**OPTIONS[options], scheme="pre_ln")
    model.quantize("int8")
    for beams in (1, 3):
        ids, scores = model.generate(
            SOURCE, num_beams=beams, length_penalty=0.0, max_length=5, jit_compile=jit_compile
        )
        found = model.score(SOURCE, ids, jit_compile=jit_compile).log_probabilities
        np.testing.assert_allclose(scores, found, rtol=1e-4)
