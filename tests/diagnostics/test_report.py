"""A report as data, as text, as figures and as a page."""

import dataclasses
import json
import re
import sys

import pytest
from filled_models import LABELS, SOURCE, TARGET, batch, tiny_model

from keras_addnorm.diagnostics import Report, ResidualRow, Sentence, inspect

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


def test_a_map_without_an_end_is_refused(report):
    """A cell for each layer and each kind: two megabytes of names made gigabytes."""
    (item, *_) = report.sublayers
    names = [f"encoder/0/x{number}" for number in range(1100)]
    names += [f"encoder/{number}/x" for number in range(1000)]
    sublayers = tuple(dataclasses.replace(item, name=name) for name in names)
    with pytest.raises(
        ValueError, match=r"1,048,576 cells. Received: 1,000 layers and 1,101 kinds"
    ):
        dataclasses.replace(report, sublayers=sublayers).to_html()


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
