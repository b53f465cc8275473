"""Forecasts: clear cases, the numbers behind them, and what they refuse."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_addnorm.diagnostics import (
    Stability,
    StabilityThresholds,
    observe,
    predict_stability,
    stability,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


def config(layers=1, **overrides):
    return Seq2SeqConfig(
        **{
            "source_vocabulary_size": 23,
            "target_vocabulary_size": 19,
            "num_encoder_layers": layers,
            "num_decoder_layers": layers,
            "hidden_dim": 12,
            "intermediate_dim": 17,
            "num_heads": 2,
            "dropout": 0.3,
            **overrides,
        }
    )


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    ("scheme", "layers", "rate", "expected"),
    [
        ("pre_ln", 6, 0.002, Stability.TRAINS),
        ("plain", 12, 0.002, Stability.WILL_NOT_TRAIN),
        ("no_residual", 3, 0.002, Stability.WILL_NOT_TRAIN),
        ("no_norm", 6, 0.002, Stability.WILL_NOT_TRAIN),
        ("post_ln", 3, 0.01, Stability.NEEDS_WARMUP),
        ("rezero", 2, 0.002, Stability.TRAINS),
    ],
)
def test_clear_cases(scheme, layers, rate, expected):
    shape = {"hidden_dim": 32, "intermediate_dim": 64, "target_vocabulary_size": 400}
    forecast = predict_stability(config(layers, scheme=scheme, **shape), learning_rate=rate)
    assert forecast.verdict is expected, str(forecast)
    assert forecast.reasons[0].verdict is expected
    assert expected.value in str(forecast).splitlines()[0]
    remedies = {Stability.TRAINS: "", Stability.NEEDS_WARMUP: "a warm-up"}
    assert remedies.get(expected, forecast.reasons[0].remedy) == forecast.reasons[0].remedy
    if expected is Stability.WILL_NOT_TRAIN:
        assert f"without {forecast.reasons[0].remedy}" in str(forecast)


def test_the_profile_is_that_of_the_model():
    forecast = predict_stability(config(2, num_decoder_layers=1), seed=5, batch_size=3, length=7)
    assert forecast.sublayers == (
        "encoder/0/self_attention",
        "encoder/0/feed_forward",
        "encoder/1/self_attention",
        "encoder/1/feed_forward",
        "decoder/0/self_attention",
        "decoder/0/cross_attention",
        "decoder/0/feed_forward",
    )
    keras.utils.set_random_seed(5)
    model = Seq2SeqTransformer(forecast.looked_at)
    inputs, labels = stability._random_batch(forecast.looked_at, 3, 7, 5)
    assert inputs["target"].tolist() == [[1, *row[:-1]] for row in labels.tolist()]
    assert inputs["source"].shape == (3, 7) and inputs["source"].min() >= 3
    with observe(model) as observation:
        model(inputs, training=True)
    x, f = (
        np.array([np.sqrt(np.mean(np.array(getattr(r, name)) ** 2)) for r in observation])
        for name in ("residual", "branch")
    )
    np.testing.assert_allclose(forecast.activations, x, rtol=1e-5)
    np.testing.assert_allclose(forecast.branch_ratios, f / x, rtol=1e-5)
    assert forecast.gradients.shape == forecast.token_signal.shape == (7,)
    assert forecast.token_signal_after_step.shape == (7,)
    assert np.all(forecast.gradients > 0)
    assert forecast.loss == pytest.approx(np.log(19), abs=1.5)


def test_the_token_signal_by_loops():
    x = np.random.default_rng(3).normal(size=(3, 5, 2)) + 1
    own, kept = np.zeros((3, 4, 2)), x[:, 1:]
    for b in range(3):
        for t in range(4):
            others = kept[b].mean(0) + kept[:, t].mean(0) - kept.mean((0, 1))
            own[b, t] = kept[b, t] - others
    expected = np.sqrt(np.mean(own**2) / np.mean(kept**2))
    assert stability._token_signal(x) == pytest.approx(expected, rel=1e-12)


def test_what_all_share_is_no_token_signal():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3, 1, 2)) + rng.normal(size=(1, 5, 2))
    assert stability._token_signal(x) < 1e-12
    assert stability._token_signal(np.zeros((3, 5, 2))) == 0
    assert stability._token_signal(np.full((3, 5, 2), np.inf)) == 0


def test_it_is_the_same_each_time_and_plain_data():
    first, second = (predict_stability(config(), learning_rate=0.01).to_dict() for _ in range(2))
    assert first == second
    again = json.loads(json.dumps(first, allow_nan=False))
    assert again == first
    assert again["verdict"] in {verdict.value for verdict in Stability}
    assert again["looked_at"]["num_decoder_layers"] == 1
    assert again["reasons"][0].keys() == {"verdict", "text", "value", "threshold", "remedy"}


def test_only_models_of_which_most_forecasts_on_record_were_right_are_calibrated():
    found = predict_stability(config(), batch_size=2, length=4)
    cases = {
        "": [
            {},
            {"layers": 12, "scheme": "pre_ln"},
            {"scheme": {"name": "post_ln", "final_norm": False}},
            {"norm": {"encoder": {"name": "layer_norm"}, "decoder": "layer_norm"}},
        ],
        "more than 24 layers": [{"layers": 13}],
        "more than 12 layers": [{"layers": 7, "scheme": "mhc"}],
        "PostLN(final_norm=True)": [{"scheme": {"name": "post_ln", "final_norm": True}}],
        "Admin(": [{"scheme": "admin"}],
        "the norm batch_norm": [{"norm": {"encoder": "batch_norm", "decoder": "layer_norm"}}],
        "the norm rms_norm": [{"norm": "rms_norm"}],
    }
    for missing, fields in ((key, each) for key, some in cases.items() for each in some):
        forecast = dataclasses.replace(found, looked_at=config(**fields))
        assert forecast.is_calibrated == forecast.to_dict()["is_calibrated"] == (not missing)
        assert ("not calibrated" in str(forecast)) == bool(missing) and missing in str(forecast)


def test_numbers_that_are_none_are_none():
    assert stability._plain((np.array([np.inf, 1.0]), np.nan)) == [[None, 1.0], None]


def test_a_gradient_without_limit_is_the_worst():
    growth = stability._growth(np.array([1.0, np.nan, 1.0]), 3.0)
    assert growth == np.inf == stability._growth(np.array([1.0, 1.0]), np.nan)
    assert stability._growth(np.array([3.0, 6.0, 2.0]), 1.0) == 3


def test_a_large_model_is_looked_at_in_small():
    base = Seq2SeqConfig.preset(
        "base", source_vocabulary_size=900, target_vocabulary_size=31, scheme="deep_norm"
    )
    small = stability._reduced(base, 64, 512, 16)
    assert (small.num_encoder_layers, small.num_decoder_layers) == (6, 6)
    assert (small.scheme, small.norm) == (base.scheme, base.norm)
    assert (small.hidden_dim, small.intermediate_dim, small.num_heads) == (64, 256, 8)
    assert (small.source_vocabulary_size, small.target_vocabulary_size) == (512, 31)
    assert small.dropout == small.attention_dropout == small.activation_dropout == 0
    # No width below 64 divides into seven even heads but 56; a small model stays as it is.
    odd = dataclasses.replace(base, num_heads=7, hidden_dim=70)
    assert stability._reduced(odd, 64, 512, 16).hidden_dim == 56
    assert stability._reduced(config(), 64, 512, 16) == dataclasses.replace(config(), dropout=0.0)


def test_thresholds_decide():
    strict = StabilityThresholds(weak_signal=1.0)
    assert predict_stability(config(), thresholds=strict).verdict is Stability.NEEDS_WARMUP
    stricter = StabilityThresholds(lost_signal=0.99, weak_signal=1.0)
    assert predict_stability(config(), thresholds=stricter).verdict is Stability.WILL_NOT_TRAIN


def test_batch_norm_is_judged_as_it_trains():
    norm = {"encoder": "batch_norm", "decoder": "layer_norm"}
    forecast = predict_stability(config(norm=norm, scheme="post_ln"))
    # With the statistics of the batch, the second sublayer reads a stream of variance 1.
    assert forecast.activations[1] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": 0.0}, "Expected a finite number above 0. Received: learning_rate=0.0"),
        ({"learning_rate": float("inf")}, "Pass the peak of your schedule"),
        ({"batch_size": 1}, "Expected batch_size >= 2. Received: 1"),
        ({"length": 2}, "Expected length >= 3. Received: 2"),
        ({"max_width": 2}, "Expected max_width >= 4. Received: 2"),
        ({"max_vocabulary_size": 3}, "Expected max_vocabulary_size >= 16. Received: 3"),
    ],
)
def test_it_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        predict_stability(config(), **arguments)
