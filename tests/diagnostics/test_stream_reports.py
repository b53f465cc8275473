"""Reports on schemes of several streams: at the start they are what those on Pre-LN are."""

import functools

import numpy as np
import pytest
from filled_models import LABELS, array, batch

from keras_addnorm.diagnostics import inspect, observe, predict_stability
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import StreamState

STARTS_AS_PRE_LN = (
    "hyper_connections",
    "mhc_lite",
    "attention_residuals",
    {"name": "attention_residuals", "block_size": 3},
    "dense_former",
    "frac_connections",
)
NUMBERS = ("residual_rms", "branch_rms", "merged_rms", "residual_ratio", "effect", "gradient_norm")


def config(scheme):
    return Seq2SeqConfig(
        source_vocabulary_size=13,
        target_vocabulary_size=11,
        num_encoder_layers=1,
        num_decoder_layers=1,
        hidden_dim=6,
        intermediate_dim=17,
        num_heads=2,
        max_length=19,
        dropout=0.0,
        scheme=scheme,
    )


@functools.cache
def pre_ln():
    rng = np.random.default_rng(5)
    model = Seq2SeqTransformer(config("pre_ln"))
    for weight in model.weights:
        weight.assign(array(weight) + rng.normal(scale=0.1, size=weight.shape))
    return model, inspect(model, (batch(), LABELS))


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("scheme", STARTS_AS_PRE_LN, ids=str)
def test_the_report_is_that_of_pre_ln_at_the_start(scheme):
    """The gradient of a stream too: an offset moves all streams, or one of the sources."""
    reference, expected = pre_ln()
    weights = {weight.path: weight for weight in reference.weights}
    model = Seq2SeqTransformer(config(scheme))
    for weight in model.weights:
        if weight.path in weights:
            weight.assign(weights[weight.path])
    report = inspect(model, (batch(), LABELS))
    assert report.loss == pytest.approx(expected.loss, rel=1e-4)
    for found, sublayer in zip(report.sublayers, expected.sublayers, strict=True):
        assert found.name == sublayer.name
        for number in NUMBERS:
            assert getattr(found, number) == pytest.approx(getattr(sublayer, number), rel=2e-3), (
                found.name,
                number,
            )


def test_records_have_states_and_coefficients():
    model = Seq2SeqTransformer(config({"name": "mhc_lite", "num_streams": 3}))
    with observe(model) as observation:
        model(batch())
    for record in observation:
        assert isinstance(record.state, StreamState)
        assert len(record.state.streams) == len(record.next_state.streams) == 3
        mean = sum(map(array, record.state.streams)) / 3
        np.testing.assert_allclose(array(record.residual), mean, rtol=1e-5, atol=1e-6)
        assert record.mask is not None
        shapes = {name: value.shape[-2:] for name, value in record.coefficients.items()}
        assert shapes["mixing"] == (3, 3) and shapes["read"][-1] == shapes["write"][-1] == 3


def test_a_forecast_of_several_streams_is_about_the_one_that_they_collapse_to():
    """That of ResiDual is the stream of Post-LN, in the encoder, which the end does not reach."""
    found, expected = (
        predict_stability(config(scheme), max_width=8, batch_size=2, length=4)
        for scheme in ("resi_dual", "post_ln")
    )
    assert found.sublayers == expected.sublayers
    assert found.sublayers[:2] == ("encoder/0/self_attention", "encoder/0/feed_forward")
    for profile in ("activations", "branch_ratios", "token_signal"):
        ours, theirs = getattr(found, profile), getattr(expected, profile)
        np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-4, err_msg=profile)
        assert len(ours) == len(theirs) == len(found.sublayers)
    assert len(found.gradients) == len(found.sublayers) and min(found.gradients) > 0
