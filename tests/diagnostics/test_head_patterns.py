"""Scores of heads for simple rules, and their table in a report, printed or as a page."""

import dataclasses
import re

import numpy as np
import pytest

from keras_addnorm.diagnostics import statistics
from keras_addnorm.diagnostics.head_table import head_table
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.diagnostics.report_data import AttentionStatistics, SublayerReport
from keras_addnorm.diagnostics.report_page import page


def _one_hot(keys, length):
    return np.eye(length)[keys]


def test_each_rule_is_followed_by_the_head_that_was_made_for_it():
    # Two sentences of 5 and 3 tokens, padded to 5; a head for each rule, and one that looks evenly.
    lengths = (5, 3)
    real = np.arange(5) < np.array(lengths)[:, None]
    weights = np.zeros((2, 6, 5, 5))
    for b, n in enumerate(lengths):
        t = np.arange(5)
        clipped = np.minimum(t, n - 1)
        rules = (
            np.maximum(clipped - 1, 0),
            clipped,
            np.minimum(clipped + 1, n - 1),
            np.zeros(5, int),
            np.full(5, n - 1),
        )
        for head, keys in enumerate(rules):
            weights[b, head] = _one_hot(keys, 5)
        weights[b, 5, :, :n] = 1 / n
    found = statistics.head_patterns(weights, real)
    assert list(found) == ["previous", "own", "next", "first", "last", "even"]
    even = (5 * (1 / 5) + 3 * (1 / 3)) / 8
    # By hand, over 8 queries; of previous and next over the 6 that have such a key.
    inside = (4 * (1 / 5) + 2 * (1 / 3)) / 6
    np.testing.assert_allclose(found["previous"], [1, 0, 0, 2 / 6, 0, inside])
    np.testing.assert_allclose(found["own"], [2 / 8, 1, 2 / 8, 2 / 8, 2 / 8, even])
    np.testing.assert_allclose(found["next"], [0, 0, 1, 0, 2 / 6, inside])
    np.testing.assert_allclose(found["first"], [4 / 8, 2 / 8, 0, 1, 0, even])
    np.testing.assert_allclose(found["last"], [0, 2 / 8, 4 / 8, 0, 1, even])
    np.testing.assert_allclose(found["even"], np.full(6, even))


def test_under_a_causal_mask_nobody_looks_at_the_next_token():
    weights = np.tril(np.random.default_rng(1).uniform(0.1, 1, (1, 2, 3, 3)))
    weights /= weights.sum(-1, keepdims=True)
    found = statistics.head_patterns(weights, np.ones((1, 3), bool))
    assert "next" not in found
    np.testing.assert_allclose(found["last"], found["own"])
    np.testing.assert_allclose(found["previous"], (weights[0, :, 1, 0] + weights[0, :, 2, 1]) / 2)
    np.testing.assert_allclose(found["even"], np.full(2, (1 + 1 / 2 + 1 / 3) / 3))


def test_a_batch_without_real_queries_has_no_patterns():
    assert statistics.head_patterns(np.zeros((1, 2, 3, 3)), np.zeros((1, 3), bool)) == {}


@pytest.fixture
def sublayer():
    found = AttentionStatistics(
        entropy=(1.0, 1.0),
        entropy_share=(0.5, 0.5),
        similarity=((1.0, 0.0), (0.0, 1.0)),
        patterns={"previous": (0.125, 0.75), "even": (0.25, 0.25)},
    )
    values = dict.fromkeys((f.name for f in dataclasses.fields(SublayerReport)), None)
    numbers = {name: 1.0 for name in values if name.endswith(("rms", "ratio", "cosine", "norm"))}
    return SublayerReport(
        **values
        | numbers
        | {"name": "encoder/0/self_attention", "effect": 1.0, "norms": ()}
        | {"attention": found}
    )


def test_the_table_names_the_head_that_follows_a_rule_most(sublayer):
    old = dataclasses.replace(sublayer.attention, patterns=None)
    others = [
        dataclasses.replace(sublayer, name=f"encoder/{n}/x", attention=each)
        for n, each in enumerate((None, old), 1)
    ]
    *_, header, row, last = head_table([sublayer, *others])
    assert header.split() == ["heads", "previous", "even"]
    assert row.split() == ["encoder/0/self_attention", "0.75", "(head", "2)", "0.25"]
    assert last == "encoder/2/x"
    assert head_table(others) == []


def test_a_report_keeps_its_patterns(sublayer):
    report = Report(loss=1.0, sublayers=(sublayer,), verdicts=())
    again = Report.from_dict(report.to_dict())
    assert again == report
    assert "0.75 (head 2)" in str(again)


def test_the_page_has_the_same_table(sublayer):
    pytest.importorskip("plotly")
    name = "encoder/0/<b>self & own</b>"
    report = Report(loss=1.0, sublayers=(dataclasses.replace(sublayer, name=name),), verdicts=())
    text = page(report, [], "A model")
    (table,) = re.findall(r'aria-labelledby="patterns-caption"><table>(.+?)</table>', text)
    assert re.findall("<th scope=.col.>(.*?)</th>", table) == ["attention", "previous", "even"]
    cells = re.findall("<td>(.*?)</td>", table)
    assert cells == ["encoder/0/&lt;b&gt;self &amp; own&lt;/b&gt;", "0.75 (head 2)", "0.25"]
    old = dataclasses.replace(sublayer.attention, patterns=None)
    without = Report(1.0, (dataclasses.replace(sublayer, attention=old),), ())
    assert "patterns-caption" not in page(without, [], "A model")
