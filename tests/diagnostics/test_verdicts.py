"""Each verdict fires on a case that was built for it, and stays quiet on healthy models."""

import dataclasses

import keras
import numpy as np
import pytest
from filled_models import LABELS, array, batch

from keras_addnorm import norms
from keras_addnorm.diagnostics import Thresholds, inspect
from keras_addnorm.layers import TransformerEncoder, TransformerEncoderLayer
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


def _fresh(**overrides):
    keras.utils.set_random_seed(7)
    return Seq2SeqTransformer(
        Seq2SeqConfig(
            **{
                "source_vocabulary_size": 13,
                "target_vocabulary_size": 11,
                "num_encoder_layers": 2,
                "num_decoder_layers": 2,
                "hidden_dim": 30,
                "intermediate_dim": 37,
                "num_heads": 3,
                "max_length": 19,
                **overrides,
            }
        )
    )


def _inspect(model, **arguments):
    return inspect(model, (batch(), LABELS), **arguments)


def _kinds(report):
    return [verdict.kind for verdict in report.verdicts]


HEALTHY = ("post_ln", "pre_ln", "sandwich_ln", "deep_norm", "layer_scale")


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("scheme", HEALTHY)
def test_fresh_models_are_healthy(scheme):
    report = _inspect(_fresh(scheme=scheme))
    assert _kinds(report) == ["healthy"], report
    assert report.is_healthy
    # A threshold stands behind a finding; here there is none.
    assert "Threshold" not in str(report) and 'class="threshold"' not in report.to_html()
    assert str(report.verdicts[0]) == report.verdicts[0].text


def _scale(weight, factor):
    weight.assign(factor * array(weight))


def _swamped(model):
    for weight in model.encoder.layers[1].feed_forward.output_projection.weights:
        _scale(weight, 40)


def _identity(model):
    for weight in model.decoder.layers[1].cross_attention.output_projection.weights:
        _scale(weight, 0.001)


def _collapsed_gain(model):
    _scale(model.decoder.layers[0].feed_forward_add_norm.pre_norm.gamma, 0.03)


def _collapsed_variance(model):
    _scale(model.encoder_embedding.embeddings, 1e-4)
    # Learned positions, so that there is nothing but a small number in front of the first norm.
    _scale(model.encoder_embedding.position_encoding.weights[0], 1e-4)


def _copied_heads(model):
    attention = model.encoder.layers[0].self_attention
    for projection in (attention.query_projection, attention.key_projection):
        kernel, bias = projection.get_weights()
        kernel[:, 10:20] = kernel[:, :10]
        projection.set_weights([kernel, bias])


def _dead_units(model):
    projection = model.decoder.layers[0].feed_forward.intermediate_projection
    kernel, bias = projection.get_weights()
    bias[:20] = -99
    projection.set_weights([kernel, bias])


BROKEN = {
    "swamped": (_swamped, "encoder/1/feed_forward"),
    "near_identity": (_identity, "decoder/1/cross_attention"),
    "norm_collapsed": (_collapsed_gain, "decoder/0/feed_forward"),
    "copied_heads": (_copied_heads, "encoder/0/self_attention"),
    "dead_units": (_dead_units, "decoder/0/feed_forward"),
}


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_named(kind):
    breaks, name = BROKEN[kind]
    model = _fresh(scheme="pre_ln", positions="learned")
    assert _kinds(_inspect(model)) == ["healthy"]
    breaks(model)
    verdicts = {verdict.kind: verdict for verdict in _inspect(model).verdicts}
    assert verdicts[kind].sublayers[0] == name
    assert name in verdicts[kind].text
    assert verdicts[kind].threshold
    assert verdicts[kind].advice
    assert "healthy" not in verdicts


def test_a_norm_without_variance():
    model = _fresh(scheme="pre_ln", positions="learned")
    _collapsed_variance(model)
    report = _inspect(model)
    (verdict,) = [item for item in report.verdicts if item.kind == "norm_collapsed"]
    assert verdict.sublayers == ("encoder/0/self_attention",)
    assert "variance in front of pre_norm" in verdict.text


def test_rezero_starts_as_the_identity():
    report = _inspect(_fresh(scheme="rezero"))
    assert _kinds(report) == ["near_identity"]
    assert len(report.verdicts[0].sublayers) == len(report.sublayers) == 10
    assert "and 7 more" in report.verdicts[0].text


@pytest.mark.parametrize("scheme", ["plain", "no_residual"])
def test_deep_without_a_skip(scheme):
    report = _inspect(_fresh(scheme=scheme, num_encoder_layers=1, num_decoder_layers=7))
    kinds = _kinds(report)
    assert kinds[:2] == ["no_skip", "vanishing_gradient"]
    assert report.verdicts[1].sublayers == ("decoder/0/self_attention",)
    assert "down the decoder" in report.verdicts[1].text


@pytest.mark.slow
def test_deep_post_ln_vanishes_where_pre_ln_does_not():
    depth = {"num_encoder_layers": 1, "num_decoder_layers": 12, "intermediate_dim": 61}
    # A decoder of 25 layers and more falls below the default: too long for a test.
    limits = Thresholds(gradient_fall=0.15)
    kinds = {
        scheme: _kinds(_inspect(_fresh(scheme=scheme, **depth), thresholds=limits))
        for scheme in ("post_ln", "pre_ln")
    }
    assert kinds == {"post_ln": ["vanishing_gradient"], "pre_ln": ["healthy"]}


def test_without_norms_it_explodes():
    report = _inspect(_fresh(scheme="no_norm", num_encoder_layers=9, num_decoder_layers=1))
    exploding = [verdict for verdict in report.verdicts if verdict.kind == "exploding_gradient"]
    assert [verdict.sublayers for verdict in exploding] == [("encoder/0/self_attention",)]


def test_after_a_nan_nothing_else_is_said():
    model = _fresh(scheme="pre_ln")
    _scale(model.encoder.layers[1].feed_forward.output_projection.kernel, np.nan)
    report = _inspect(model)
    assert _kinds(report) == ["not_finite"]
    assert "first at" in report.verdicts[0].text
    assert "nan" in str(report)


@pytest.mark.parametrize(
    ("threshold", "value", "kind"),
    [
        ("swamping_effect", 0.001, "swamped"),
        ("identity_effect", 99.0, "near_identity"),
        ("gradient_fall", 99.0, "vanishing_gradient"),
        ("gradient_rise", 1e-3, "exploding_gradient"),
        ("norm_gain", 1.1, "norm_collapsed"),
        ("norm_variance", 99.0, "norm_collapsed"),
        ("head_similarity", -1.0, "copied_heads"),
        ("dead_units", -0.1, "dead_units"),
    ],
)
def test_each_threshold_is_the_one_that_counts(fresh_report, threshold, value, kind):
    from keras_addnorm.diagnostics.verdicts import judge

    limits = dataclasses.replace(Thresholds(), **{threshold: value})
    verdicts = judge(fresh_report.loss, fresh_report.sublayers, limits)
    assert {verdict.kind for verdict in verdicts} == {kind}
    assert f"{100 * value:g}" in verdicts[0].threshold or f"{value:g}" in verdicts[0].threshold


@pytest.fixture(scope="module")
def fresh_report():
    return _inspect(_fresh(scheme="pre_ln"))


def test_a_large_branch_behind_a_small_gain_swamps_nothing(fresh_report):
    """LayerScale's F(x) may be large: what counts is what reaches the stream."""
    from keras_addnorm.diagnostics.verdicts import judge

    def kinds(**changes):
        item = dataclasses.replace(fresh_report.sublayers[0], **changes)
        return {verdict.kind for verdict in judge(1.0, (item,))}

    assert kinds(residual_ratio=11.0, effect=0.9) == {"healthy"}
    assert kinds(residual_ratio=11.0, effect=1.1) == {"swamped"}
    assert kinds(residual_ratio=1.0, effect=4.1) == {"swamped"}


def test_fresh_heads_do_not_copy_each_other_in_a_short_sentence():
    """Three queries leave six heads little room to differ: that is chance, not a copy."""
    short = {"source": np.array([[5, 6, 2]]), "target": np.array([[1, 7, 8]])}
    report = inspect(_fresh(num_heads=6), (short, np.array([[7, 8, 2]])))
    assert "copied_heads" not in _kinds(report)
    attention = [item.attention for item in report.sublayers if item.attention is not None]
    closest = max(np.tril(np.asarray(each.similarity), -1).max() for each in attention)
    assert closest > report.thresholds.head_similarity
    free = {each.free_weights for each in attention}
    assert free == {6, 3}, "3 queries of 3 keys, or of 1, 2 and 3, whose weights sum to 1"


def _of_single_layers(scheme, *behind):
    layer = TransformerEncoderLayer(num_heads=2, intermediate_dim=7, scheme=scheme, name="mine")
    return keras.Sequential([keras.Input((5, 6)), layer, *behind, keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: _of_single_layers("pre_ln"), ("mine/feed_forward",)),
        (lambda: _of_single_layers("pre_ln", keras.layers.LayerNormalization()), ()),
        (lambda: _of_single_layers("pre_ln", norms.get("rms_norm")()), ()),
        (lambda: _of_single_layers("post_ln"), ()),
        (lambda: keras.Sequential([keras.Input((5, 6)), _stack("pre_ln")]), ()),
        (lambda: keras.Sequential([_of_single_layers("pre_ln")]), ("mine/feed_forward",)),
    ],
    ids=["none", "of Keras", "ours", "post_ln", "stack", "model inside"],
)
def test_layers_one_by_one_want_their_final_norm(model, named):
    x = np.random.default_rng(3).normal(size=(3, 5, 6)).astype("float32")
    report = inspect(model(), (x, 0.0), lambda labels, outputs: keras.ops.mean(outputs**2))
    found = [verdict for verdict in report.verdicts if verdict.kind == "no_final_norm"]
    assert [verdict.sublayers for verdict in found] == [named] * bool(named)
    if named:
        assert "No norm follows 'mine'" in str(report)


def _stack(scheme):
    return TransformerEncoder(1, num_heads=2, intermediate_dim=7, scheme=scheme)
