"""What LoRA has learned goes along wherever a model is copied, folded, pruned or averaged."""

import keras
import numpy as np
import pytest
from filled_models import SOURCE, array, batch, tiny_model

from keras_addnorm.diagnostics import prune
from keras_addnorm.models import Seq2SeqTransformer, enable_lora, fold, merge_lora, rebuild
from keras_addnorm.training import average_weights

RANK, ALPHA = 2, 3
OPTIONS = {
    "tied": {},
    "shared": {"share_embeddings": True, "target_vocabulary_size": 13},
    "untied": {"tie_embeddings": False},
}


def small_model(**options):
    return tiny_model(num_encoder_layers=1, **options)


def with_lora(**options):
    """A model whose projections and embeddings all have LoRA matrices of random numbers."""
    model = small_model(**options)
    rng = np.random.default_rng(3)
    adapted = [layer for layer in model._flatten_layers() if hasattr(layer, "enable_lora")]
    # Two embeddings, or one; four projections an attention, two a feed-forward.
    num_tables = 1 if model.config.share_embeddings else 2
    assert len(adapted) == num_tables + 4 * 3 + 2 * 2 + (not model.config.tie_embeddings)
    for layer in adapted:
        layer.enable_lora(RANK, ALPHA)
    for weight in model.weights:
        if weight.name.startswith("lora_"):
            weight.assign(rng.normal(scale=0.3, size=tuple(weight.shape)))
    return model


def logits(model):
    return array(keras.ops.cast(model(batch()), "float32"))


def assert_equal(got, expected, tolerance=1e-5):
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def by_hand(model):
    """The same model without LoRA: NumPy adds `(alpha / rank) A B` to each weight."""
    values = {weight.path: array(weight) for weight in model.weights}
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            kind = "kernel" if hasattr(layer, "_kernel") else "embeddings"
            a, b = (array(getattr(layer, f"lora_{kind}_{matrix}")) for matrix in "ab")
            values[getattr(layer, f"_{kind}").path] += ALPHA / RANK * a @ b
    other = Seq2SeqTransformer(model.config)
    for weight in other.weights:
        weight.assign(values[weight.path])
    return other


def test_only_the_matrices_of_the_chosen_layers_are_trained():
    model = small_model()
    enable_lora(model, RANK, ALPHA, filters=["query", "^decoder_embedding$"])
    adapted = [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]
    assert {layer.name for layer in adapted} == {"query_projection", "decoder_embedding"}
    assert {(layer.lora_rank, layer.lora_alpha) for layer in adapted} == {(RANK, ALPHA)}
    trained = [weight.name for weight in model.trainable_weights]
    assert len(trained) == 2 * len(adapted) and all(name.startswith("lora_") for name in trained)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "Expected an int >= 1. Received: 0"),
        ({"rank": 2, "filters": "nowhere"}, "no layer to adapt.*Received: filters='nowhere'"),
        ({"rank": 2}, "can have LoRA once.*Received: layers with LoRA: decoder_embedding"),
    ],
)
def test_a_model_that_cannot_be_adapted_is_left_as_it_is(options, words):
    model = small_model()
    model.decoder_embedding.enable_lora(RANK)
    before = [(weight.path, weight.trainable) for weight in model.weights]
    with pytest.raises(ValueError, match=words):
        enable_lora(model, **options)
    assert [(weight.path, weight.trainable) for weight in model.weights] == before


@pytest.mark.parametrize("options", OPTIONS)
def test_f1_layers_with_lora_compute_with_the_merged_weights(options):
    model = with_lora(**OPTIONS[options])
    assert_equal(logits(model), logits(by_hand(model)))


# Those that a fold changes; of the others, which test_fold.py copies one by one, some of each kind.
FOLDS = ("rezero", "layer_scale", "deep_norm", "ln_scaling", "keel")
COPIES = ("post_ln", "gpas", "mhc_lite", "attention_residuals")


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("scheme", [*FOLDS, *COPIES])
def test_f1_a_fold_has_what_lora_learned(scheme):
    model = with_lora(scheme=scheme)
    before = [array(weight) for weight in model.weights]
    for copy in (fold(model), merge_lora(model)):
        assert copy is not model
        assert not [weight.path for weight in copy.weights if "lora" in weight.path]
        assert_equal(logits(copy), logits(model))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), value)


@pytest.mark.parametrize("options", OPTIONS)
def test_f1_embeddings_and_the_vocabulary_projection_are_merged(options):
    model = with_lora(**OPTIONS[options])
    assert_equal(logits(merge_lora(model)), logits(model))


def test_f1_a_model_without_lora_is_its_own_merge():
    model = small_model()
    assert merge_lora(model) is model


def test_f1_a_pruned_model_has_what_lora_learned():
    model, names = with_lora(scheme="pre_ln"), ["encoder/0/self_attention"]
    pruned = prune(model, names).model
    assert_equal(logits(pruned), logits(prune(by_hand(model), names).model))
    assert (
        np.abs(logits(pruned) - logits(prune(small_model(scheme="pre_ln"), names).model)).max() > 1
    )


def test_f1_a_mean_of_weight_files_has_what_lora_learned(tmp_path):
    model, path = with_lora(), tmp_path / "m.weights.h5"
    model.save_weights(path)
    plain = small_model(seed=9)
    average_weights(plain, [path])
    assert_equal(logits(plain), logits(model))


def test_f1_training_goes_on_from_a_file_that_has_the_merged_weights(tmp_path):
    """Keras sets both matrices to zero when it loads: neither had a gradient any more."""
    model, path = with_lora(), tmp_path / "m.weights.h5"
    expected = logits(model)
    model.save_weights(path)
    model.load_weights(path)
    assert_equal(logits(model), expected)
    for layer in (model.decoder_embedding, model.encoder.layers[0].feed_forward.output_projection):
        kind = "kernel" if hasattr(layer, "_kernel") else "embeddings"
        a, b = (array(getattr(layer, f"lora_{kind}_{matrix}")) for matrix in "ab")
        assert a.any() and not b.any()


def test_f1_weights_that_have_no_place_in_the_copy_are_refused():
    model = small_model()
    layer = model.encoder.layers[0].feed_forward.output_projection
    layer._tracker.unlock()
    layer.extra = layer.add_weight((3,), name="extra")
    with pytest.raises(
        ValueError, match=r"has weights that one of its config does not have.*extra"
    ):
        rebuild(model)


def test_another_model_is_told_how_its_lora_is_merged():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.layers[0].enable_lora(1)
    with pytest.raises(
        TypeError, match=r"LoRA is merged by model.save\(path\) and keras.models.load_model\(path\)"
    ):
        merge_lora(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "jit_compile"), [*zip(OPTIONS, (True, False, True), strict=True)]
)
def test_f1_searches_read_the_merged_weights(options, jit_compile):
    """The engines' views: fused QKV, transposed tables, split kernels."""
    model = with_lora(**OPTIONS[options], scheme="pre_ln")
    search = {"num_beams": 2, "max_length": 5, "jit_compile": jit_compile}
    ids, scores = model.generate(SOURCE, **search)
    expected, expected_scores = by_hand(model).generate(SOURCE, **search)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4)
