"""A report as data, as text, as figures and as a page."""

import dataclasses
import json
import re
import sys

import numpy as np
import pytest
from filled_models import LABELS, SOURCE, TARGET, batch, tiny_model

from keras_addnorm.diagnostics import Report, ResidualRow, Sentence, inspect
from keras_addnorm.diagnostics.report_data import AttentionMap, StreamStatistics

NASTY = ["<script>", "</script>", "$x$", "&amp;", "<b>", "“ü”", "'\""]


@pytest.fixture(scope="module")
def report():
    sentence = Sentence(
        {"source": SOURCE[:1], "target": TARGET[:1, :4]}, source=NASTY, target=list("wxyz")
    )
    return inspect(tiny_model(), (batch(), LABELS), sentence=sentence)


def test_as_data_and_back(report):
    values = report.to_dict()
    assert values["format"] == 1
    assert Report.from_dict(json.loads(json.dumps(values, allow_nan=False))) == report
    with pytest.raises(ValueError, match=r"Expected format 1\. Received: 7"):
        Report.from_dict({**values, "format": 7})


def test_numbers_that_are_not_finite_survive_json():
    report = inspect(tiny_model(scheme="plain"), (batch(), LABELS))
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert report.sublayers[0].effect == float("inf")
    assert Report.from_dict(json.loads(text)) == report


def test_a_report_is_read_by_the_types_of_its_fields(report):
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    sublayer = values["sublayers"][0]

    def _with(**fields):
        return {**values, "sublayers": [{**sublayer, **fields}]}

    attention = sublayer["attention"]
    for wrong, message in {
        "a list": ([], "format 1"),
        "no number": ({**values, "format": True}, "format 1"),
        "nothing": ({"format": 1}, "has no `?loss"),
        "a text": ({**values, "loss": "x"}, "loss is not .* Expected a number. Received: 'x'"),
        "a switch": ({**values, "loss": True}, "Expected a number. Received: True"),
        "none": ({**values, "sublayers": None}, "sublayers is not .* a list. Received: None"),
        "another field": ({**values, "extra": 1}, "Received: 'extra'"),
        "a number": (_with(name=5), r"sublayers\[0\].name` is not .* a text"),
        "no norms": (_with(norms=[{}]), r"has no `sublayers\[0\].norms\[0\].slot"),
        "half": (_with(attention={**attention, "entropy": [1.0]}), "1 numbers, one a head"),
        "ragged": (_with(streams={"mixing": [[1.0], [1.0, 2.0]]}), "rows of one length"),
        "thresholds": ({**values, "thresholds": {"dead_units": "x"}}, "dead_units is not"),
        "a map": ({**values, "attention_maps": [{**values["attention_maps"][0], "keys": []}]}, "0"),
    }.values():
        with pytest.raises(ValueError, match=message) as error:
            Report.from_dict(wrong)
        assert len(str(error.value)) < 400
    named = _with(name="nan")
    assert Report.from_dict(named).sublayers[0].name == "nan"


def test_a_value_that_is_nested_too_deeply_is_named():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ValueError, match="Received: a list that is nested too deeply"):
        Report.from_dict({"format": 1, "loss": deep, "sublayers": (), "verdicts": ()})


def test_heads_have_few_patterns(report):
    item = next(item for item in report.sublayers if item.attention is not None)
    heads = item.attention.entropy
    many = dict.fromkeys(map(str, range(101)), heads)
    wide = dataclasses.replace(item, attention=dataclasses.replace(item.attention, patterns=many))
    with pytest.raises(ValueError, match=r"at most 100\. Received: 101"):
        Report.from_dict(dataclasses.replace(report, sublayers=(wide,)).to_dict())


def test_without_any_sublayer(tmp_path):
    report = Report(loss=2.0, sublayers=(), verdicts=())
    assert str(report).splitlines()[-1].startswith("sublayer")
    assert report.plot() == {}
    assert "0 sublayers" in report.to_html()


def _sublayers(report, names, **fields):
    first = dataclasses.replace(report.sublayers[0], attention=None, **fields)
    found = tuple(dataclasses.replace(first, name=name) for name in names)
    return dataclasses.replace(report, sublayers=found, attention_maps=())


@pytest.mark.parametrize(
    "names, fields",
    [
        # 300 KB of empty rows would be a map of ten thousand million cells.
        (["encoder/0/a"], {"streams": StreamStatistics(mixing=((),) * 100_000)}),
        (
            [f"encoder/{n}/a" for n in range(100)],
            {"streams": StreamStatistics(depth=(1.0,) * 9999)},
        ),
        ([f"encoder/{n}/{n}" for n in range(1001)], {}),
        ([str(n) for n in range(1001)], {}),
    ],
    ids=["mixing", "depth", "kinds", "names"],
)
def test_no_map_has_far_more_cells_than_the_report_has_numbers(report, names, fields, monkeypatch):
    large = _sublayers(report, names, **fields)
    for module in ("stream_page", "stream_figures"):  # Before anything is laid out.
        monkeypatch.setattr(f"keras_addnorm.diagnostics.{module}.stream_charts", None)
    for draw in (large.plot, large.to_html):
        with pytest.raises(ValueError, match=r"too large to be drawn\. Expected at most 1,000,000"):
            draw()


def test_a_report_of_very_many_charts_is_not_drawn(report, monkeypatch):
    monkeypatch.setattr("keras_addnorm.diagnostics.figure_parts.Figure", None)
    stacks = _sublayers(report, [f"{number}/0/a" for number in range(51)])
    with pytest.raises(ValueError, match=r"at most 50 stacks of layers\. Received: 51"):
        stacks.plot()
    heads = AttentionMap("encoder/0/a", ("a",), ("b",), (((1.0,),),) * 3001)
    one = dataclasses.replace(_sublayers(report, ["encoder/0/a"]), attention_maps=(heads,))
    with pytest.raises(ValueError, match=r"at most 3,000 heads .* Received: 3,001"):
        one.to_html()


def test_pictures_have_a_moderate_size_and_number_of_labels(report):
    deep = _sublayers(report, [f"encoder/{number}/feed_forward" for number in range(2000)])
    wide = AttentionMap("encoder/0/a", ("a",) * 700, ("b",) * 150, (((1.0,) * 150,) * 700,) * 4)
    figures = dataclasses.replace(deep, attention_maps=(wide,)).plot()
    for figure in figures.values():
        width, height = figure.get_size_inches()
        assert max(width, height) <= 300.01 and width * height <= 3300.01
        for axes in figure.axes:
            assert len(axes.get_xticks()) <= 300 and len(axes.get_yticks()) <= 300
    np.testing.assert_allclose(figures["ratios"].get_size_inches(), (4.6, 300))


def test_matrices_need_not_be_square(report, tmp_path):
    streams = StreamStatistics(mixing=((1.0, 2.0, 3.0),) * 2)
    drawn = _sublayers(report, ["encoder/0/a", "encoder/1/a"], streams=streams)
    assert drawn.plot()["mixing"].axes[0].get_images()[0].get_array().shape == (3, 7)
    assert "mixing" in drawn.to_html()


def test_names_are_no_mathematics(report, tmp_path):
    drawn = _sublayers(report, ["$\\frac{$/0/$x$", "$\\frac{$/1/$x$"])
    for place, figure in drawn.plot().items():
        figure.savefig(tmp_path / f"{place}.png")
        assert figure.axes[0].get_title().startswith(r"\$\frac{\$")


def test_as_text(report):
    lines = str(report).splitlines()
    assert lines[0] == f"Loss of the batch: {report.loss:.4g}"
    (head,) = [line for line in lines if line.startswith("sublayer ")]
    assert head.split()[-1] == "dL/dw"  # What leaving sublayers out costs was not measured.
    measured = dataclasses.replace(report.sublayers[0], skip_cost=0.125)
    text = str(dataclasses.replace(report, sublayers=(measured, *report.sublayers[1:])))
    assert "dL/dw      skip\n" in text and "    0.125\n" in text
    for item in report.sublayers:
        line = next(line for line in lines if line.startswith(item.name))
        assert f"{item.residual_rms:.3g}" in line
        assert f"{item.gradient_norm:.3g}" in line
    for verdict in report.verdicts:
        assert any(verdict.text in line for line in lines)


def test_names_that_do_not_exist(report):
    with pytest.raises(KeyError, match="no such sublayer"):
        report["encoder/9/feed_forward"]


def test_as_figures(report, tmp_path):
    figures = report.plot()
    assert list(figures) == [
        "stream",
        "gradients",
        "ratios",
        *(item.name for item in report.attention_maps),
    ]
    encoder, decoder = figures["stream"].axes
    assert (encoder.get_title(), decoder.get_title()) == ("encoder", "decoder")
    drawn = [line.get_ydata().tolist() for line in encoder.lines]
    items = [item for item in report.sublayers if item.stack == "encoder"]
    assert drawn[0] == [item.residual_rms for item in items]
    assert drawn[1] == [item.branch_rms for item in items]
    for name, figure in figures.items():
        path = tmp_path / f"{name.replace('/', '-')}.png"
        figure.savefig(path)
        assert path.read_bytes().startswith(b"\x89PNG")


def _data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_as_a_page(report, tmp_path):
    path = tmp_path / "new" / "report.html"
    page = report.to_html(path, title="Tom & <Jerry>")
    assert path.read_text(encoding="utf-8") == page
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    assert "<title>Tom &amp; &lt;Jerry&gt;</title>" in page
    data = _data(page)
    assert data["names"] == [item.name for item in report.sublayers]
    assert data["frames"] == [
        {
            "step": None,
            "values": {
                key: [getattr(item, key) for item in report.sublayers]
                for key in (
                    *("residual_ratio", "cosine", "merged_rms", "gradient_norm"),
                    *("branch_mean", "merged_mean"),
                )
            },
        }
    ]
    assert data["heads"][0]["map"]["keys"][:2] == ["&lt;script&gt;", "&lt;/script&gt;"]
    for name in ("src=", "@import", "https://cdn"):
        assert name not in page.replace(_plotly(), "")


def _plotly():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_nothing_breaks_out_of_the_data(report):
    before, _, after = report.to_html().partition('id="data">')
    inside = after.partition("</script>")[0]
    assert "<" not in inside
    assert before.count("<script") == 1


def test_a_log_makes_frames(report):
    rows = [
        ResidualRow(step, item.name, 1.0, 2.0, 3.0, 0.25 * step, 0.5, 0.125)
        for step in (10, 20)
        for item in report.sublayers[1:]
    ]
    frames = _data(report.to_html(log=rows))["frames"]
    assert [frame["step"] for frame in frames] == [10, 20]
    ratios = frames[1]["values"]["residual_ratio"]
    # A sublayer that the log does not know is a gap.
    assert ratios == [None] + 6 * [5.0]


def test_of_a_long_log_a_page_has_some_steps_and_the_last_one(report):
    name = report.sublayers[0].name
    rows = [ResidualRow(step, name, 1.0, 2.0, 3.0, 0.5, 0.5, 0.125) for step in range(2**15)]
    frames = _data(report.to_html(log=rows))["frames"]
    assert [frame["step"] for frame in frames] == list(range(1, 2**15, 2))


@pytest.mark.parametrize("decoder, scale", [(0.5, "linear"), (1e-4, "log")])
def test_stacks_share_one_kind_of_axis(report, decoder, scale):
    norms = {"encoder": 1.0, "decoder": decoder}
    sublayers = tuple(
        dataclasses.replace(
            item, gradient_norm=norms[item.stack], weight_gradient_norm=norms[item.stack]
        )
        for item in report.sublayers
    )
    charts = _data(dataclasses.replace(report, sublayers=sublayers).to_html())["charts"]
    for chart in ("gradients-0", "gradients-1"):
        assert charts[chart]["layout"]["yaxis"]["type"] == scale


def test_plotly_is_optional(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install .*\[report\]"):
        report.to_html()
