"""The loss without each sublayer: equal to that of a pruned model, and the model stays as it is."""

import math

import numpy as np
import pytest
from filled_models import LABELS, SUBLAYERS, array, batch, tiny_model

from keras_addnorm.diagnostics import EffectiveDepth, effective_depth, inspect, prune
from keras_addnorm.layers.sublayers import named_add_norms
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

LOSS = MaskedSparseCategoricalCrossentropy()


def _loss(model):
    return {"loss": float(LOSS(LABELS, model(batch())))}


# A norm behind the sum, none, on the branch; a gain; a memory; several streams.
@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "scheme",
    ["post_ln", "pre_ln", "sandwich_ln", "rezero", "b2t", "attention_residuals", "mhc_lite"],
)
def test_skipping_costs_what_pruning_costs(scheme):
    model = tiny_model(scheme=scheme)
    found = effective_depth(model, (batch(), LABELS), LOSS)
    assert tuple(found.without) == SUBLAYERS
    whole, *each, _ = prune(model, SUBLAYERS, evaluate=_loss).table
    np.testing.assert_allclose(found.loss, whole.scores["loss"], rtol=1e-5)
    np.testing.assert_allclose(
        list(found.without.values()), [row.scores["loss"] for row in each], rtol=1e-5
    )


def test_the_model_stays_as_it_is():
    model = tiny_model()
    before = array(model(batch()))
    calls = [vars(add_norm).get("call") for add_norm in named_add_norms(model).values()]
    effective_depth(model, (batch(), LABELS))
    assert [vars(add_norm).get("call") for add_norm in named_add_norms(model).values()] == calls
    np.testing.assert_array_equal(array(model(batch())), before)


def test_an_output_that_is_not_finite_is_skipped_and_pruned_sublayers_are_left_out():
    model = tiny_model(pruned_sublayers=("encoder/0/self_attention",))
    kernel = model.decoder.layers[0].feed_forward.output_projection.kernel
    kernel.assign(np.full(kernel.shape, math.nan))
    found = effective_depth(model, (batch(), LABELS))
    assert "encoder/0/self_attention" not in found.without
    assert math.isnan(found.loss)
    assert math.isnan(found.depth)
    assert math.isfinite(found.without["decoder/0/feed_forward"])


@pytest.mark.parametrize(
    ("losses", "depth"),
    [
        ((2.5, 2.5, 2.5), 3.0),
        ((3.0, 2.0, 2.0), 1.0),
        ((3.0, 3.0, 1.0), 2.0),
        ((1.0, 2.0, 2.0), 0.0),
        ((6.0, 4.0, 2.0), 1.8),
    ],
    ids=lambda value: str(value),
)
def test_the_depth_is_the_participation_ratio_of_the_increases(losses, depth):
    found = EffectiveDepth(2.0, {f"encoder/{i}/feed_forward": x for i, x in enumerate(losses)})
    assert found.depth == pytest.approx(depth)


def test_a_report_shows_it():
    model = tiny_model()
    depth = effective_depth(model, (batch(), LABELS))
    report = inspect(model, (batch(), LABELS), depth=depth)
    assert report.effective_depth.without == pytest.approx(depth.without)
    item = report["encoder/1/feed_forward"]
    assert item.skip_cost == depth.increases["encoder/1/feed_forward"]
    assert depth.summary in str(report).splitlines()
    assert f"{item.skip_cost:.3g}" in str(report)
    assert report.from_dict(report.to_dict()) == report
    (encoder, _) = report.plot()["effective_depth"].axes
    drawn = encoder.lines[0].get_ydata().tolist()
    assert drawn == [item.skip_cost for item in report.sublayers if item.stack == "encoder"]
    page = report.to_html()
    assert depth.summary in page
    assert '<section aria-labelledby="depth-heading" id="depth">' in page
    unmeasured = inspect(model, (batch(), LABELS))
    assert unmeasured.effective_depth is None
    assert "effective_depth" not in unmeasured.plot()
    assert 'id="depth" hidden>' in unmeasured.to_html()
