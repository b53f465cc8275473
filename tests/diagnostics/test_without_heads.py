"""A decoder whose self-attention has no weights: what looks at them does without and says so."""

import keras
import numpy as np
import pytest

from keras_addnorm.diagnostics import (
    ResidualLog,
    ResidualMonitor,
    attention_maps,
    head_diversity,
    inspect,
    prune,
)
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

SOURCE, TARGET = np.array([[5, 6, 7, 2]]), np.array([[1, 8, 9]])
LABELS = np.array([[8, 9, 2]])
INPUTS = {"source": SOURCE, "target": TARGET}
WITHOUT = ["decoder/0/self_attention", "decoder/1/self_attention"]


@pytest.fixture(scope="module", params=["ssru", "average_attention"])
def model(request):
    keras.utils.set_random_seed(3)
    return Seq2SeqTransformer(Seq2SeqConfig.preset("micro", self_attention=request.param))


def test_a_report_has_its_numbers_and_names_the_sublayers_without_weights(model, tmp_path):
    report = inspect(model, (INPUTS, LABELS))
    line = f"No attention weights in {', '.join(WITHOUT)}."
    assert line in str(report).split("\n")
    assert all(report[name].branch_rms > 0 and report[name].attention is None for name in WITHOUT)
    assert report["decoder/0/cross_attention"].attention is not None
    assert Report.from_dict(report.to_dict()).without_heads == line
    assert line in report.to_html(tmp_path / "report.html")


def test_a_report_of_attention_alone_has_no_such_line():
    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro"))
    assert inspect(model, (INPUTS, LABELS)).without_heads == ""


def test_maps_are_zeros_and_diversity_leaves_them_out(model):
    maps = attention_maps(model, SOURCE[0], TARGET[0])
    heads = model.config.num_heads
    np.testing.assert_array_equal(maps.decoder_self, np.zeros((2, heads, 3, 3)))
    np.testing.assert_allclose(maps.cross.sum(-1), 1, atol=1e-6)
    names = [entry.name for entry in head_diversity(model, SOURCE, TARGET)]
    assert names and not set(names) & set(WITHOUT)


def test_a_pruned_one_is_the_stream_alone(model):
    pruned = prune(model, WITHOUT).model
    assert pruned.config.self_attention == model.config.self_attention
    h = keras.random.normal((1, 3, model.config.hidden_dim))
    np.testing.assert_array_equal(pruned.decoder.layers[0].self_attention(h), np.zeros(h.shape))
    assert pruned.generate(SOURCE, num_beams=2, max_length=3)[0].shape == (1, 3)


def test_the_monitor_watches_its_stream(model, tmp_path):
    model.compile("sgd", MaskedSparseCategoricalCrossentropy())
    monitor = ResidualMonitor((INPUTS, LABELS), csv=tmp_path / "log.csv", every=1)
    model.fit(INPUTS, LABELS, epochs=1, verbose=0, callbacks=[monitor])
    rows = ResidualLog(tmp_path / "log.csv").read()
    assert set(WITHOUT) <= {row.sublayer for row in rows}
