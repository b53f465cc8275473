"""A folded model computes what the model did: every scheme that has a gain, every norm."""

import keras
import numpy as np
import pytest
from filled_models import SOURCE, SUBLAYERS, array, batch, tiny_model

from keras_addnorm import norms, schemes
from keras_addnorm.models import Seq2SeqTransformer, fold, is_foldable

FOLDED = {
    "rezero": "no_norm",
    "layer_scale": "pre_ln",
    "deep_norm": "post_ln",
    "ln_scaling": "pre_ln",
    "keel": "keel",
}
NOTHING_TO_FOLD = [name for name in schemes.names() if name not in FOLDED]
# Relative to the largest logit; float32 has seven digits, and the gains are multiplied in.
TOLERANCE = 1e-5


def logits(model, dtype="float32"):
    return array(keras.ops.cast(model(batch()), dtype))


def assert_same_outputs(model, folded, tolerance=TOLERANCE):
    expected, got = logits(model), logits(folded)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def scheme_name(model):
    return schemes.serialize(schemes.get(model.config.scheme))["name"]


CASES = [
    *(("rezero", {}), ("layer_scale", {}), ("layer_scale", {"activation": "swiglu"})),
    *(("layer_scale", {"norm": norm}) for norm in ("rms_norm", "none")),
    *(("ln_scaling", {"norm": norm}) for norm in ("layer_norm", "scale_norm", "dynamic_tanh")),
    ("ln_scaling", {"pruned_sublayers": ("encoder/1/feed_forward",)}),
    *(
        ("deep_norm", {"norm": norm, "epsilon": 0.01})
        for norm in norms.names()
        if norm not in ("none", "batch_norm", "seed_norm", "taper_norm")
    ),
    ("deep_norm", {"norm": {"encoder": "batch_norm", "decoder": "scale_norm"}}),
    ("deep_norm", {"norm": {"name": "dynamic_tanh", "initial_alpha": 0.7}}),
    ("deep_norm", {"pruned_sublayers": ("encoder/1/feed_forward",), "epsilon": 0.1}),
    ("layer_scale", {"pruned_sublayers": ("encoder/1/feed_forward",)}),
    # The epsilon shows at which places it was divided.
    ("keel", {"norm": {"encoder": "batch_norm", "decoder": "derf"}, "epsilon": 0.1}),
    ("keel", {"pruned_sublayers": ("encoder/0/self_attention", "encoder/1/feed_forward")}),
    ("keel", {"norm": {"name": "rms_norm", "epsilon": 0.3}, "num_decoder_layers": 3}),
]


@pytest.mark.fast_cases(8)
@pytest.mark.parametrize(("scheme", "options"), CASES)
def test_outputs_stay_and_the_gains_go(scheme, options):
    model = tiny_model(scheme=scheme, **options)
    before = [array(weight).copy() for weight in model.weights]
    assert is_foldable(model)
    folded = fold(model)
    assert not is_foldable(folded)
    assert scheme_name(folded) == FOLDED[scheme]
    assert not [weight.path for weight in folded.weights if "branch_scale" in weight.path]
    assert_same_outputs(model, folded)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), value)


def test_the_output_projection_has_the_gain_of_its_own_channel():
    model = tiny_model(scheme="layer_scale")
    folded = fold(model)
    for name in SUBLAYERS:
        side, index, sublayer = name.split("/")
        old, new = (getattr(m, side).layers[int(index)] for m in (model, folded))
        gain = array(getattr(old, f"{sublayer}_add_norm").branch_scale)
        assert gain.shape == (6,)
        for weight in ("kernel", "bias"):
            unfolded = array(getattr(getattr(old, sublayer).output_projection, weight))
            expected = np.einsum("...d,d->...d", unfolded, gain)
            got = array(getattr(getattr(new, sublayer).output_projection, weight))
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_deep_norms_epsilon_shrinks_by_alpha_squared_on_each_side():
    """With epsilon as large as the variance, another epsilon than this could not pass."""
    model = tiny_model(scheme="deep_norm", epsilon=1.0)
    folded = fold(model)
    assert_same_outputs(model, folded)
    # Table 2 of the paper, N = 2 encoder and M = 1 decoder layers.
    alphas = {"encoder": 0.81 * (2**4 * 1) ** (1 / 16), "decoder": (3 * 1) ** 0.25}
    for side, alpha in alphas.items():
        norm = folded.config.norm[side]
        assert norm["name"] == "layer_norm"
        np.testing.assert_allclose(norm["epsilon"], 1.0 / alpha**2, rtol=1e-12)


@pytest.mark.slow
def test_the_cache_and_the_search_agree_too():
    model = tiny_model(scheme="deep_norm")
    folded = fold(model)
    expected, expected_scores = model.generate(SOURCE, num_beams=2, max_length=5)
    ids, scores = folded.generate(SOURCE, num_beams=2, max_length=5)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_a_folded_model_comes_back_from_its_files(tmp_path):
    folded = fold(tiny_model(scheme="deep_norm", norm="rms_norm"))
    expected = logits(folded)
    folded.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert again.config == folded.config
    np.testing.assert_array_equal(logits(again), expected)
    folded.save_weights(tmp_path / "m.weights.h5")
    fresh = Seq2SeqTransformer(type(folded.config).from_json(folded.config.to_json()))
    fresh.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(logits(fresh), expected)


def test_precision_stays_that_of_the_model():
    model = tiny_model(scheme="layer_scale", dtype="mixed_bfloat16")
    folded = fold(model)
    assert folded.decoder.dtype_policy.name == "mixed_bfloat16"
    assert_same_outputs(model, folded, tolerance=0.03)


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("scheme", NOTHING_TO_FOLD)
def test_a_scheme_without_a_gain_is_copied_and_says_so(scheme):
    model, lines = tiny_model(scheme=scheme, num_encoder_layers=1), []
    folded = fold(model, say=lines.append)
    assert folded is not model
    assert folded.config == model.config
    assert lines == [f"{scheme_name(model)} has no gain to fold. The model is an equal copy."]
    assert not is_foldable(model)
    np.testing.assert_array_equal(logits(folded), logits(model))


@pytest.mark.parametrize("kind", ["ssru", "average_attention"])
def test_a_self_attention_without_output_projection_takes_no_gain_and_says_so(kind):
    model, lines = tiny_model(scheme="rezero", self_attention=kind), []
    folded = fold(model, say=lines.append)
    assert folded.config == model.config
    np.testing.assert_array_equal(logits(folded), logits(model))
    assert f"self_attention={kind!r} cannot be folded: decoder/0/self_attention" in lines[0]
    assert not is_foldable(model)


@pytest.mark.parametrize(
    ("scheme", "place"),
    [
        ("deep_norm", "encoder/0/self_attention"),
        ("ln_scaling", "encoder/1/self_attention"),
        ("keel", "encoder/1/self_attention"),
    ],
)
def test_a_norm_that_cannot_make_up_for_a_gain_leaves_the_scheme_and_says_so(scheme, place):
    model, lines = tiny_model(scheme=scheme, norm="none"), []
    folded = fold(model, say=lines.append)
    assert folded.config == model.config
    np.testing.assert_array_equal(logits(folded), logits(model))
    (line,) = lines
    assert f"{scheme} with norm='none' cannot be folded" in line
    assert f"the gain of {place}." in line
    assert not is_foldable(model)


def test_norms_that_have_tapered_off_become_gains():
    norm = {"name": "taper_norm", "calibration_steps": 1, "taper_steps": 1}
    inside = {"query_key_norm": norm}  # Stays: it is the attention's own.
    sides = {"encoder": norm, "decoder": "rms_norm"}
    model = tiny_model(scheme="layer_scale", norm=sides, attention=inside)
    assert is_foldable(model)  # the scheme's gains alone
    counts = [weight for weight in model.weights if weight.path.endswith("/step")]
    assert fold(model).config.norm == model.config.norm and len(counts) == 5 + 8
    for weight in model.weights:
        if weight.path.endswith(("/step", "/mean_size", "/mean_square")):
            weight.assign(2.0 if weight.path.endswith("/step") else 0.7 + len(weight.path) / 100)
    said = []
    folded = fold(model, say=said.append)
    assert said == ["taper_norm folded into a gain a channel.", "layer_scale folded into pre_ln."]
    assert folded.config.norm == {"encoder": {**norm, "is_folded": True}, "decoder": "rms_norm"}
    assert scheme_name(folded) == "pre_ln" and not is_foldable(folded)
    assert len([weight for weight in folded.weights if weight.path.endswith("/step")]) == 8
    assert_same_outputs(model, folded)


def test_another_kind_of_model_is_refused():
    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer. Received: a Sequential"):
        fold(keras.Sequential([keras.layers.Dense(3)]))
    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer. Received: a Sequential"):
        is_foldable(keras.Sequential([keras.layers.Dense(3)]))


@pytest.mark.parametrize("name", norms.names())
def test_norms_know_what_a_factor_on_their_input_does(name):
    """N_eps(a x) = N'_(eps / a^p)(x), for a large epsilon, in float64."""
    make = norms.get(name)
    x = np.random.default_rng(7).normal(size=(3, 5, 7))
    norm = make(epsilon=0.3, dtype="float64")
    norm.build(x.shape)
    if norm.epsilon_power is None:
        assert name in ("none", "seed_norm", "taper_norm")
        return
    for weight in norm.weights:
        weight.assign(np.linspace(0.5, 2.0, num=weight.shape.num_elements()).reshape(weight.shape))
    expected = array(norm(2.5 * x))
    other = norms.get({"name": name, "epsilon": 0.3 / 2.5**norm.epsilon_power})(
        epsilon=9.0, dtype="float64"
    )
    other.build(x.shape)
    other.set_weights(norm.get_weights())
    other.absorb_input_gain(2.5)
    # Weights are float32 while they are built, whatever the norm computes in.
    np.testing.assert_allclose(array(other(x)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in norms.names() if name != "none"])
def test_norms_know_which_weights_a_factor_on_their_output_goes_into(name):
    x = np.random.default_rng(7).normal(size=(3, 5, 7))
    norm = norms.get(name)(epsilon=0.3, dtype="float64")
    norm.build(x.shape)
    before = array(norm(x))
    for weight in norm.output_weights:
        getattr(norm, weight).assign(getattr(norm, weight) * 1.5)
    np.testing.assert_allclose(array(norm(x)), 1.5 * before, rtol=1e-6, atol=1e-6)


def test_the_former_place_of_fold_still_has_it():
    from keras_addnorm import diagnostics

    assert diagnostics.fold is fold and diagnostics.is_foldable is is_foldable
