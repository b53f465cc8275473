"""The claims' example: its arithmetic, and a page whose numbers are those on record."""

import dataclasses
import json
import os
import re

import keras
import numpy as np
import pytest

from keras_addnorm.basics.errors import UserError


@pytest.fixture(scope="module", autouse=True)
def example(load_example):
    with load_example("why_add_and_norm") as module:
        yield module


def made_up(lab, training, loss):
    """Puts a training on record that never was."""
    losses = [loss] * lab.scale.steps
    lab.measure("training", dataclasses.asdict(training), lambda: {"losses": losses})


def test_the_identity_of_the_highway_in_float64():
    from claims.highway import check_identity

    found = check_identity(3, hidden_dim=6, seed=2)
    assert found["error"] < 1e-10
    assert found["difference_error"] < 1e-6
    assert len(found["branch_share"]) == 6
    assert min(found["branch_share"]) > 0.01  # else the branch was not looked at


@pytest.mark.slow
def test_the_second_claim_end_to_end(example, tmp_path):
    page, records = tmp_path / "docs" / "why.md", tmp_path / "records.jsonl"
    example.main([2], page, records, quick=True)
    part = page.parent / "why_add.md"
    text = part.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    profiles = {
        (line["measured"]["scheme"], line["measured"]["depth"]): line["result"]["norms"]
        for line in lines
        if line["measured"]["name"] == "gradients along a stack"
    }
    assert len(profiles) == 10
    from claims.page import number

    for scheme in ("plain", "no_residual", "no_norm", "post_ln", "pre_ln"):
        ratios = [profiles[scheme, depth][0] / profiles[scheme, depth][-1] for depth in (2, 4)]
        assert f"| `{scheme}` | {number(ratios[0])} | {number(ratios[1])} |" in text
    (image,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert (page.parent / image).read_bytes().startswith(b"\x89PNG")

    # Again, from the records alone: the same page.
    before = records.read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("claims.highway.loss_gradients", None)
        example.main([2], page, records, quick=True)
    assert part.read_text(encoding="utf-8") == text
    assert records.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    "line", ["{", "[1]", "null", '{"measured": {}}', '{"measured": 1, "result": 2}', "[" * 10**5]
)
def test_a_line_that_is_no_record_is_named(example, tmp_path, line):
    from claims import records

    path = tmp_path / "records.jsonl"
    path.write_text('{"measured": {}, "result": {}}\n' + line + "\n")
    with pytest.raises(UserError, match=r"Line 2 of '.*records\.jsonl' is no record"):
        records.Records(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="is a pipe"):
        records.Records(pipe)


def test_a_page_from_records(example, tmp_path):
    from claims import depth, lab, records, warmup

    path = tmp_path / "records.jsonl"
    bench = lab.Lab(lab.QUICK, records.Records(path))
    bench.measure("floor", {"what": "frequencies of the target tokens"}, lambda: {"loss": 5.0})
    losses = iter(np.arange(1.01, 2.0, 0.01).round(2))
    expected = {}
    for scheme in depth.SCHEMES:
        for layers in lab.QUICK.depths:
            training = lab.Training(scheme, layers)
            expected[training] = float(next(losses))
            made_up(bench, training, expected[training])
    for scheme in warmup.SCHEMES:
        for rate in warmup.RATES:
            for steps in warmup.WARMUPS:
                training = lab.Training(scheme, lab.QUICK.middle_depth, rate, steps)
                expected[training] = float(next(losses))
                made_up(bench, training, expected[training])
    page = example.main([1, 7], tmp_path / "why.md", path, quick=True)
    verdicts = page.read_text(encoding="utf-8")
    assert verdicts.startswith("# Why add, and why norm\n")
    assert "| 7. Post-LN needs a warm-up, Pre-LN does not | " in verdicts
    add, norm = ((tmp_path / f"why_{part}.md").read_text("utf-8") for part in ("add", "norm"))
    text = add + norm
    assert text.endswith("\n")
    for training, loss in expected.items():
        assert f"{loss:.2f}" in text, training
    # No scheme degrades by half a nat in these numbers.
    assert "## 1. Without residual connections, deep stacks degrade" in add
    assert "**Verdict: reproduced in part.**" in add
    assert "**Verdict: not reproduced" not in add
    assert "\n## 7. Post-LN" in norm
    assert len(list((tmp_path / "images").glob("why_*.png"))) == 2
    assert not list(tmp_path.rglob(".*"))


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A laboratory of forty short sentences, and two updates."""
    from claims import lab, records

    scale = dataclasses.replace(lab.QUICK, pairs=40, steps=2, vocabulary_size=40)
    pairs = [(f"word {n} of many", f"wort {n} von vielen") for n in range(40)]
    monkeypatch.setattr(lab, "load_translation", lambda name, split: pairs)
    return lab.Lab(scale, records.Records(tmp_path / "records.jsonl"))


@pytest.mark.slow
def test_a_training_that_starts_again_is_the_same(bench):
    from claims import lab

    training = lab.Training("pre_ln", 2)
    first = bench._train(training)
    large = bench._train(dataclasses.replace(training, initialization="std_1"))
    again = bench._train(training)
    assert first["losses"] == again["losses"]
    assert first["held_out_loss"] == again["held_out_loss"]
    assert first["held_out_loss"] == first["held_out_loss_in_training_mode"]
    assert large["losses"] != first["losses"]
    assert len(first["losses"]) == 2


def test_initial_kernels_have_the_size_of_their_name():
    from claims import lab

    config = lab.Training("deep_norm", 2).config(
        dataclasses.replace(lab.QUICK, hidden_dim=40, vocabulary_size=31)
    )
    trainable = lab.TrainableModel(config, 1)
    layer = trainable.model.encoder.layers[0]
    query, output = layer.self_attention.query_projection, layer.feed_forward.output_projection
    beta = layer.feed_forward_add_norm.init_gain
    for name, (query_std, output_std) in {
        "glorot": (np.sqrt(2 / 80), np.sqrt(2 / 120)),
        "he": (np.sqrt(2 / 40), np.sqrt(2 / 80)),
        "std_1": (1.0, 1.0),
    }.items():
        trainable.start_again(name)
        stds = [
            np.std(keras.ops.convert_to_numpy(kernel)) for kernel in (query.kernel, output.kernel)
        ]
        np.testing.assert_allclose(stds, [query_std, beta * output_std], rtol=0.06)


def test_the_rate_rises_and_stays():
    from claims.lab import Training

    rates = Training("pre_ln", 2, learning_rate=0.4, warmup_steps=4).rates(6)
    np.testing.assert_allclose(rates, [0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert Training("pre_ln", 2, learning_rate=0.4, warmup_steps=0).rates(2) == [0.4, 0.4]


def test_batches_of_like_length_hold_the_same_sentences():
    from claims.lab import Sentences

    lengths = np.array([5, 2, 4, 1, 3, 6, 2])
    ids = np.where(np.arange(6) < lengths[:, None], np.arange(7)[:, None] + 1, 0)
    sentences = Sentences(ids, ids + 10, ids + 20)
    batches = sentences.batches(2, sorted_by_length=True, seed=3)
    found = sorted(sorted((row != 0).sum() for row in inputs["source"]) for inputs, _ in batches)
    assert found == [[1, 2], [2, 3], [4, 5]]  # the longest is left over
    plain = sentences.batches(3)
    assert [inputs["target"][0, 0] for inputs, _ in plain] == [11, 14]
    np.testing.assert_array_equal(plain[1][1], ids[3:6] + 20)


def test_numbers_read_well():
    from claims.page import number

    assert [number(x) for x in (0, 1.234, 0.01234, 12345.0, 0.00012, float("inf"))] == [
        "0.00",
        "1.23",
        "0.012",
        "1.2·10⁴",
        "1.2·10⁻⁴",
        "diverged",
    ]


def test_a_final_loss_without_numbers_is_infinite():
    from claims.lab import final_loss

    assert final_loss({"losses": [9.0, 1.0, 2.0]}, over=2) == 1.5
    assert final_loss({"losses": [1.0, None]}) == np.inf


def test_the_command_knows_its_claims(example):
    assert example._numbers("7,2") == [2, 7]
    with pytest.raises(example.argparse.ArgumentTypeError, match="there are no claims \\[19\\]"):
        example._numbers("1,19")


def test_claims_that_are_not_run_again_stay_in_their_page(tmp_path):
    from claims.lab import QUICK
    from claims.page import Section, Verdict, write_pages

    def section(title, verdict):
        return Section(title, "A claim.", "A formula.", "Tried.", ["Found."], verdict, "Because.")

    page = tmp_path / "why.md"
    first = {1: section("One", Verdict.REPRODUCED), 13: section("Last", Verdict.NOT_HERE)}
    write_pages(page, QUICK, first)
    write_pages(page, QUICK, {8: section("Eight", Verdict.IN_PART)})
    write_pages(page, QUICK, {4: section("Four", Verdict.REPRODUCED)})
    add, norm = ((tmp_path / f"why_{part}.md").read_text("utf-8") for part in ("add", "norm"))
    assert re.findall("^## (.+)$", add, re.M) == ["1. One", "8. Eight", "13. Last"]
    assert first[13].markdown(13) in add and add.count("Because.") == 3
    assert re.findall("^## (.+)$", norm, re.M) == ["4. Four"]
    rows = re.findall(r"^\| (\d+\. .+) \| (.+) \|$", page.read_text("utf-8"), re.M)
    assert rows == [
        ("1. One", "reproduced"),
        ("8. Eight", "reproduced in part"),
        ("13. Last", "not reproduced at this size"),
        ("4. Four", "reproduced"),
    ]


def test_effective_smoothness_is_that_of_a_parabola(monkeypatch):
    from claims import smoothness

    def at(self, weights, batch):
        return float(weights @ curvature @ weights / 2), curvature @ weights

    curvature, start = np.diag([2.0, 5.0, 3.0]), np.array([1.0, 0.5, -2.0])
    monkeypatch.setattr(smoothness.Landscape, "at", at)
    landscape = object.__new__(smoothness.Landscape)
    found = landscape.walk([start[:1], start[1:]], None)
    gradient = curvature @ start
    unit = gradient / np.linalg.norm(gradient)
    np.testing.assert_allclose(found["turns"], 4 * [np.linalg.norm(curvature @ unit)], rtol=1e-5)
    there = start - 0.4 * unit
    expected = there @ curvature @ there / 2
    np.testing.assert_allclose(found["losses_by_distance"][2], expected, rtol=1e-5)
    there = start - 0.05 * gradient
    np.testing.assert_allclose(found["losses_by_rate"][0], there @ curvature @ there / 2, rtol=1e-5)


def test_a_landscape_gives_the_gradient_that_keras_differentiates():
    from claims import lab, smoothness

    config = lab.Training("pre_ln", 2).config(dataclasses.replace(lab.QUICK, vocabulary_size=11))
    landscape = smoothness.Landscape(config)
    ids = np.array([[5, 7, 2], [4, 2, 0]], "int32")
    batch = ({"source": ids, "target": ids}, ids)
    variables = landscape.model.trainable_variables
    start = np.concatenate([np.asarray(v).ravel() for v in variables])
    expected = float(landscape.model.test_on_batch(*batch))
    loss, gradient = landscape.at(start, batch)
    assert loss == pytest.approx(expected, rel=1e-4)
    direction = np.random.default_rng(1).standard_normal(start.shape).astype("float32")
    step = 1e-2 / np.linalg.norm(direction) * direction
    ahead, back = (landscape.at(start + side * step, batch)[0] for side in (1, -1))
    assert ahead - back == pytest.approx(2 * gradient @ step, rel=0.02)


def test_what_is_left_of_an_embedding():
    from claims.retention import left_of

    rng = np.random.default_rng(1)
    wanted, other = rng.standard_normal((2, 400, 3))
    group = np.arange(400) // 7
    seen = wanted @ rng.standard_normal((3, 5)) + 2  # all of it, in other coordinates
    assert left_of(wanted, seen, group) == pytest.approx(1, abs=0.01)
    assert abs(left_of(wanted, other, group)) < 0.1
    two_of_three = np.c_[wanted[:, :2], other]
    assert left_of(wanted, two_of_three, group) == pytest.approx(2 / 3, abs=0.08)


def test_updates_to_a_loss_and_held_out_loss_at_a_training_loss():
    from claims.generalisation import at_training_loss
    from claims.retention import updates_to

    assert updates_to([5.0, 3.0, 1.0, 1.0], 2.5, over=2) == 3
    assert updates_to([5.0, None, 1.0], 0.5, over=2) == np.inf
    one = {"training": [4.0, 2.0, 1.0, 1.5], "held_out": [4.1, 3.0, 2.0, 9.0]}
    assert at_training_loss(one, 1.25) == pytest.approx(2.25)
    assert at_training_loss(one, 4.5) == 4.1
    assert at_training_loss(one, 0.5) == np.inf


def test_the_share_that_all_rows_have_in_common():
    from claims.drift import common_share

    assert common_share(np.array([[1.0, -2.0], [1.0, -2.0]])) == 1
    assert common_share(np.array([[3.0, 1.0], [-3.0, 1.0]])) == pytest.approx(1 / 10)


@pytest.mark.release
def test_another_seed_has_other_weights_and_sentences(bench):
    from claims import lab

    trainings = [lab.Training("pre_ln", 2, seed=seed) for seed in (1, 2, 1, None)]
    losses = [bench._train(training)["losses"] for training in trainings]
    sources = [bench.batches(training)[0][0]["source"] for training in trainings]
    assert losses[0] == losses[2] != losses[1]
    assert not np.array_equal(sources[0], sources[1])
    first, last = (
        np.concatenate([b[0]["source"] for b in bench.batches(t)]) for t in trainings[1:3]
    )
    assert sorted(map(tuple, first)) == sorted(map(tuple, last))


@pytest.mark.release
@pytest.mark.parametrize("claim", [9, 10, 11, 12, 13, 14])
def test_the_later_claims_run(example, tmp_path, claim):
    page = example.main([claim], tmp_path / "why.md", tmp_path / "records.jsonl", quick=True)
    (row,) = re.findall(rf"^\| {claim}\. .+ \| .+ \|$", page.read_text("utf-8"), re.M)
    assert row.endswith(("reproduced |", "reproduced in part |", "not reproduced at this size |"))
    pictures = 2 if claim == 13 else 1
    assert len(list((tmp_path / "images").glob("why_*.png"))) == pictures
