"""Numbers of streams against NumPy on the whole tensors, on each backend; tables and charts."""

import dataclasses
import functools
import json
import pathlib
import re

import keras
import numpy as np
import pytest
from filled_models import LABELS, array, batch, tiny_model
from new_process import run_on

from keras_addnorm.diagnostics import (
    Report,
    ResidualLog,
    ResidualMonitor,
    StreamLog,
    StreamRow,
    StreamStatistics,
    inspect,
    observe,
)
from keras_addnorm.diagnostics.stream_statistics import stream_statistics
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

HERE = pathlib.Path(__file__).parent
MIXING = {"name": "mhc_lite", "num_streams": 3, "off_diagonal": -1.0}
SCHEMES = {
    "mixing": MIXING,
    "depth": {"name": "attention_residuals", "block_size": 1},
    "static": {"name": "hyper_connections", "num_streams": 2, "dynamic": False},
    "dense": "dense_former",
    "dual": "resi_dual",
    "parts": {"name": "frac_connections", "num_streams": 2, "dynamic": True},
    "sinkhorn": {"name": "mhc", "num_streams": 2, "iterations": 1},
}


def in_numpy(record):
    """The statistics of a record, in float64, position by position."""
    ids = batch()["source" if record.name.startswith("encoder") else "target"]
    places = list(zip(*np.nonzero(ids), strict=True))

    def rows(tensor, axes):
        """At each real token; a weight without positions is that of all of them."""
        x = array(keras.ops.convert_to_tensor(tensor)).astype("float64")
        return [x[place] if x.ndim == axes + 2 else x for place in places]

    streams = [rows(x, 1) for x in record.next_state.streams]
    memory = [rows(x, 1) for x in record.next_state.memory]
    weights = {
        name: rows(x, 2 if name == "mixing" else 1) for name, x in record.coefficients.items()
    }
    found = {
        "rms": [np.sqrt(np.mean(np.square(x))) for x in streams],
        "memory_rms": [np.sqrt(np.mean(np.square(x))) for x in memory],
        "cosine": [[np.mean([_cosine(*pair) for pair in zip(a, b, strict=True)]) for b in streams]
                   for a in streams],
        **{name: np.mean(x, axis=0) for name, x in weights.items()},
    }  # fmt: skip
    if "mixing" in weights:
        found["row_error"] = max(abs(row.sum() - 1) for m in weights["mixing"] for row in m)
        found["column_error"] = max(abs(row.sum() - 1) for m in weights["mixing"] for row in m.T)
        found["smallest_mixing"] = min(m.min() for m in weights["mixing"])
    if "depth" in weights:
        shares = [np.abs(a) / np.abs(a).sum() for a in weights["depth"]]
        found["depth_entropy"] = np.mean([-sum(p * np.log(p) for p in a if p) for a in shares])
    return found


def _cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def check(scheme):
    """The statistics of each sublayer, after a comparison."""
    model = tiny_model(scheme=scheme, num_encoder_layers=1)
    with observe(model) as observation:
        model(batch())
    statistics = {record.name: stream_statistics(record) for record in observation}
    for record in observation:
        found, expected = statistics[record.name], in_numpy(record)
        for name, value in expected.items():
            # The error of an exact mixing is rounding.
            np.testing.assert_allclose(
                getattr(found, name), value, rtol=2e-4, atol=3e-6, err_msg=f"{record.name} {name}"
            )
        absent = set(vars(found)) - {name for name, value in expected.items() if len(_list(value))}
        assert all(getattr(found, name) in (None, ()) for name in absent)
    return statistics


def _list(value):
    return value if isinstance(value, list) else [value]


@functools.cache
def checked(scheme):
    return check(SCHEMES[scheme])


@pytest.fixture(scope="module")
def report():
    return inspect(tiny_model(scheme=MIXING, num_encoder_layers=1), (batch(), LABELS))


def with_streams(report, statistics):
    """A report that says this of its sublayers."""
    items = tuple(
        dataclasses.replace(item, streams=statistics.get(item.name)) for item in report.sublayers
    )
    return dataclasses.replace(report, sublayers=items)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_are_those_of_numpy(scheme):
    assert all(isinstance(found, StreamStatistics) for found in checked(scheme).values())


def test_a_report_has_them_and_comes_back_from_json(report):
    for item in report.sublayers:
        for name, value in vars(checked("mixing")[item.name]).items():
            if value not in (None, ()):
                np.testing.assert_allclose(getattr(item.streams, name), value, atol=1e-6)
    depth = with_streams(report, checked("depth"))
    for one in (report, depth):
        values = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert Report.from_dict(values) == one


def test_what_each_scheme_has():
    mixing, depth, static, dense, dual, parts, sinkhorn = (
        checked(scheme)["decoder/0/feed_forward"] for scheme in SCHEMES
    )
    assert len(mixing.rms) == len(mixing.mixing) == len(mixing.mixing[0]) == 3
    assert mixing.row_error < 1e-6 and mixing.column_error < 1e-6 < mixing.smallest_mixing
    assert static.row_error > 0.01  # random weights
    assert depth.rms == () and len(depth.memory_rms) == 4
    assert sum(depth.depth) == pytest.approx(1) and depth.depth_entropy < np.log(3)
    assert len(dense.rms) == 1 and len(dense.depth) == 2 and dense.mean_cosine is None
    assert dual.mean_cosine == pytest.approx(dual.cosine[0][1]) and dual.read is None
    # Frac-connections read with a matrix, not with a weight a stream.
    assert parts.read is None and len(parts.write) == len(parts.mixing) == len(parts.rms) == 2
    # One round of Sinkhorn ends with one of the two: the other sum is not yet 1.
    errors = sorted((sinkhorn.row_error, sinkhorn.column_error))
    assert errors[0] < 1e-6 and errors[1] > 1e-3


def test_a_report_of_one_stream_has_no_such_part(report):
    model = tiny_model(num_encoder_layers=1)
    with observe(model) as observation:
        model(batch())
    report = with_streams(report, {item.name: stream_statistics(item) for item in observation})
    assert all(item.streams is None for item in report.sublayers)
    assert "\nstreams" not in str(report)
    assert not {"stream_rms", "mixing", "depth"} & set(report.plot())
    page = report.to_html()
    assert 'id="streams" hidden' in page and "mixing-0" not in page


def test_as_text_figures_and_a_page(report, tmp_path):
    _, table = str(report).split("\nstreams")
    head, first, *_ = table.splitlines()
    assert head.split() == ["rms", "cos", "read", "write", "row", "err", "col", "err"]
    streams = report.sublayers[0].streams
    assert f"{min(streams.rms):.3g} to {max(streams.rms):.3g}" in first
    figures = report.plot()
    names = ["stream_rms", "stream_cosine", "read", "write", "mixing", "mixing_errors"]
    assert [name for name in figures if name in names] == names
    figures["mixing"].savefig(tmp_path / "mixing.png")
    drawn = [line.get_ydata() for line in figures["stream_rms"].axes[0].lines]
    items = [item for item in report.sublayers if item.stack == "encoder"]
    np.testing.assert_array_equal(np.transpose(drawn), [item.streams.rms for item in items])
    page = report.to_html()
    assert 'id="streams">' in page
    charts = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["charts"]
    trace = charts["mixing-1"]["data"][0]
    matrix = report["decoder/0/cross_attention"].streams.mixing
    assert [row[:3] for row in trace["z"][4:7]] == [list(row) for row in matrix]
    assert trace["z"][3] == [None] * 3  # between two matrices
    assert trace["customdata"][5][2] == "decoder/0/cross_attention: stream 1 of stream 2"
    assert [line["name"] for line in charts["read-0"]["data"]] == [f"stream {i}" for i in range(3)]


def test_weights_over_depth_are_drawn_by_sublayer_and_source(report):
    report = with_streams(report, checked("depth"))
    assert "depth" in report.plot() and "stream_rms" not in report.plot()
    page = report.to_html()
    charts = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["charts"]
    first, second = charts["depth-1"]["data"][0]["z"]
    assert first == [*report["decoder/0/cross_attention"].streams.depth, None]
    assert second == [*report["decoder/0/feed_forward"].streams.depth]


OLD = {
    "format": 1,
    "loss": 2.5,
    "sublayers": [
        {
            "name": "encoder/0/self_attention",
            **dict.fromkeys(("residual_rms", "branch_rms", "merged_rms", "residual_ratio"), 1.0),
            **dict.fromkeys(("cosine", "effect", "gradient_norm", "weight_gradient_norm"), 0.5),
            "norms": [],
            "dead_units": None,
            "attention": {"entropy": [0.5], "entropy_share": [0.4], "similarity": [[1.0]]},
        }
    ],
    "verdicts": [],
    "thresholds": {},
    "attention_maps": [
        {
            "name": "encoder/0/self_attention",
            "queries": ["inf"],
            "keys": ["nan"],
            "weights": [[[1.0]]],
        }
    ],
}


def test_a_report_of_before_is_read_and_tokens_stay_words():
    report = Report.from_dict(OLD)
    assert report.sublayers[0].streams is None
    assert (report.attention_maps[0].queries, report.attention_maps[0].keys) == (("inf",), ("nan",))
    assert "encoder/0/self_attention" in str(report)
    assert Report.from_dict(report.to_dict()) == report


def train(scheme, csv):
    keras.utils.set_random_seed(11)
    model = tiny_model(scheme=scheme, num_encoder_layers=1)
    model.compile(keras.optimizers.Adam(0.01), MaskedSparseCategoricalCrossentropy())
    monitor = ResidualMonitor((batch(), LABELS), every=1, csv=csv)
    model.fit(batch(), LABELS, batch_size=3, verbose=0, callbacks=[monitor])
    return model, monitor


def check_monitor(csv):
    model, monitor = train(MIXING, csv)
    rows = ResidualLog(csv).streams.read()
    assert rows[-len(monitor.stream_rows) :] == monitor.stream_rows
    assert {row.step for row in rows} == {0, 1}
    report = inspect(model, (batch(), LABELS))
    for name in ("encoder/0/feed_forward", "decoder/0/self_attention"):
        streams = report[name].streams
        found = {
            (row.quantity, row.index): row.value
            for row in monitor.stream_rows
            if row.sublayer == name
        }
        expected = {
            (field, ":".join(map(str, place))): value
            for field in vars(streams)
            if getattr(streams, field) not in (None, ())
            for place, value in np.ndenumerate(getattr(streams, field))
        }
        assert list(found) == list(expected)
        np.testing.assert_allclose(list(found.values()), list(expected.values()), atol=3e-6)


@pytest.mark.slow
def test_the_monitor_logs_them_in_a_table_of_their_own(tmp_path):
    csv = tmp_path / "residuals.csv"
    check_monitor(csv)
    lines = (tmp_path / "residuals_streams.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "step,sublayer,quantity,index,value"
    assert lines[1].startswith("0,encoder/0/self_attention,rms,0,")
    header = csv.read_text(encoding="utf-8").splitlines()[0]
    assert header.endswith(",merged_mean") and header.count(",") == 10
    # A training of one stream starts anew, and leaves no numbers of another.
    train("pre_ln", csv)
    assert ResidualLog(csv).streams.read() == []
    train("pre_ln", tmp_path / "other.csv")
    assert not (tmp_path / "other_streams.csv").exists()


def test_the_log_of_streams(tmp_path):
    log = ResidualLog(tmp_path / "residuals.csv").streams
    assert isinstance(log, StreamLog) and log.path.name == "residuals_streams.csv"
    rows = [StreamRow(step, "a", "mixing", "0:1", step / 3) for step in (1, 2)]
    log.append(rows)
    assert log.read() == rows
    log.drop_after(1)
    assert log.read() == rows[:1]


def test_statistics_without_streams_or_pairs_have_no_cosine():
    assert StreamStatistics().mean_cosine is None


SCRIPT = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import test_stream_statistics as t
for scheme in t.SCHEMES:
    t.checked(scheme)
t.check_monitor(pathlib.Path(sys.argv[2]))
"""


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_other_backends(backend, tmp_path):
    run_on(backend, "-c", SCRIPT, HERE, tmp_path / "r.csv", folders=[HERE.parent])
