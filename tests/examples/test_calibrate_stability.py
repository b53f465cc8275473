"""The calibration page: what counts as right, and that its numbers are those on record."""

import dataclasses
import re
from pathlib import Path

import pytest

from keras_addnorm import schemes
from keras_addnorm.diagnostics import stability

PAGE = Path(__file__).parents[2] / "docs" / "stability.md"


@pytest.fixture(scope="module")
def example(load_example):
    with load_example("calibrate_stability") as module:
        yield module


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ((0.5, 0.1), "trains without warm-up"),
        ((0.9, 0.9), "trains without warm-up"),
        ((0.49, 0.5), "needs warm-up"),
        ((-3.0, 0.49), "will not train"),
    ],
)
def test_what_the_trainings_say(example, progress, expected):
    outcome = example.Outcome(
        case=example.Case("pre_ln", 2, 0.1),
        forecast="needs warm-up",
        signal=0.1,
        signal_after_step=0.1,
        growth=1.0,
        losses={},
        progress=dict(zip(example.WARMUPS, progress, strict=True)),
    )
    assert outcome.observed == expected
    assert outcome.hit == (expected == "needs warm-up")


def test_the_page_holds_the_records(example, tmp_path):
    lab = example.Lab(example.QUICK, example.Records(tmp_path / "records.jsonl"))
    floor = {"what": "frequencies of the target tokens"}
    lab.measure("floor", floor, lambda: {"loss": 5.0})
    # The best runs lose 1.0 without warm-up and 2.0 with it: half of the way are 3.0 and 3.5.
    made_up = {
        example.Case("pre_ln", 2, 0.002): ((1.0, 2.0), "trains without warm-up"),
        example.Case("post_ln", 4, 0.002): ((3.11, 3.47), "needs warm-up"),
        example.Case("plain", 4, 0.002): ((2.99, 4.44), "will not train"),
    }
    for case, (losses, forecast) in made_up.items():
        for warmup, loss in zip(example.WARMUPS, losses, strict=True):
            key = dataclasses.asdict(example._training(case, warmup))
            lab.measure("training", key, lambda loss=loss: {"losses": [loss]})
        found = {"forecast": forecast, "signal": 0.31, "signal_after_step": 0.21, "growth": 1.0}
        lab.measure("forecast", dataclasses.asdict(case), lambda found=found: found)
    cases = list(made_up)
    parts = {"Cases that were seen": cases[:2], "Fresh cases": cases[2:]}
    page = example.main(parts, tmp_path / "stability.md", lab)
    text = page.read_text(encoding="utf-8")
    assert "| Cases that were seen | 2 of 2 | 100% |" in text
    assert "| Fresh cases | 0 of 1 | 0% |" in text
    assert (
        "| `post_ln`, 4, 0.002 | 0.31 | 0.21 | 1.00 | 3.11 | 3.47 | needs warm-up | needs warm-up |"
        in text
    )
    assert "forecast *will not train*, observed *trains without warm-up*" in text.split("Misses")[1]
    assert "It came 50% of the way without warm-up and 19% with it." in text
    # `sandwich_ln` has two names, and both are others.
    others = text.split("## What is calibrated")[1].split("[The study]")[0]
    assert "`peri_ln`" in others and "`mhc`" in others and "`pre_ln`" not in others
    assert (tmp_path / "images" / "stability_signal.png").exists()


def test_calibrated_is_what_the_pages_and_the_example_have(example):
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`, (\d+), .*\|(.*) \|$", page, re.MULTILINE)
    on_page = {(scheme, int(depth)) for scheme, depth, _ in rows}
    assert on_page == {(c.scheme, c.depth) for part in example.PARTS.values() for c in part}
    study = PAGE.with_name("study_schemes.md").read_text(encoding="utf-8")
    depth, table = re.search(
        r"^## Without warm-up$\s+At (\d+) layers(.*?)^## ", study, re.MULTILINE | re.DOTALL
    ).groups()
    more = re.findall(r"^\| `(\w+)` \|.*\|(.*) \|$", table, re.MULTILINE)
    rows += [(scheme, depth, last) for scheme, last in more]
    left = re.search(r"^- learning rates, 12 layers: (.*)$", study, re.MULTILINE)
    untrained = set(re.findall(r"`(\w+)`", left.group(1) if left else ""))
    assert {scheme for scheme, _ in more} | untrained == set(schemes.names()) - {"peri_ln"}
    expected = {}
    for scheme in {scheme for scheme, _, _ in rows}:
        own = [(int(depth), "miss" in last) for name, depth, last in rows if name == scheme]
        # More forecasts wrong than right: no word on that scheme.
        if 2 * sum(miss for _, miss in own) <= len(own):
            expected[scheme] = max(depth for depth, _ in own)
    assert expected == stability.CALIBRATED
