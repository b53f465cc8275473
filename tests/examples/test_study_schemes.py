"""The study: its plan, the page from made-up records, and one trial from end to end."""

import dataclasses
import json
import types

import pytest


@pytest.fixture(scope="module")
def example(load_example):
    with load_example("study_schemes") as module:
        yield module


@pytest.fixture
def study(example, tmp_path):
    plan = example.Plan(("pre_ln", "post_ln"), depths=(2, 4, 8), rates=(0.1, 0.2), norms=("none",))
    records = example.Records(tmp_path / "records.jsonl")
    return example.Study(plan, example.SMALL, records, {"demo": "demo/en-de"}, tmp_path)


def outcome(loss, milliseconds=10.0, machine="mine", has_warmup=True, memory=50.0):
    """What a training might have come to."""
    profile = {"stream_growth": 2.0, "gradient_ratio": 0.5}
    found = {
        "machine": machine,
        "milliseconds": milliseconds,
        "memory_mib": memory,
        "seconds": 360.0,
        "forecast": None if has_warmup else "needs warm-up",
        "validation_loss": loss,
        "bleu": None if loss is None else 10 * loss,
        "start": None if has_warmup else {"encoder": profile, "decoder": profile},
        "end": None,
        "skips": None,
        "effective_depth": None,
    }
    if loss is not None:
        skips = {"encoder/0/feed_forward": 0.1, "decoder/0/feed_forward": 0.3}
        end = {"encoder": profile, "decoder": profile}
        found |= {"end": end, "skips": skips, "effective_depth": 3.5}
    return found


def test_the_rate_of_a_scheme_is_chosen_before_all_else(example, study):
    grid = study.missing()
    assert [(trial.scheme, trial.layers, trial.learning_rate) for trial in grid[:4]] == [
        ("pre_ln", 4, 0.1),
        ("pre_ln", 4, 0.2),
        ("post_ln", 4, 0.1),
        ("post_ln", 4, 0.2),
    ]
    assert study.plan.best_rate("pre_ln", study.find) is None
    for trial, loss in zip(grid, (3.0, 2.0, 5.0, None), strict=False):
        study.records.keep(trial.key(study.scale), outcome(loss))
    assert study.plan.best_rate("pre_ln", study.find) == 0.2
    assert study.plan.best_rate("post_ln", study.find) == 0.1
    rest = study.missing()
    # What the grid trained is part of the study and is not trained again.
    assert not set(rest) & set(grid[:4])
    assert [(t.scheme, t.layers) for t in rest if t.has_warmup and t.seed == 1][:4] == [
        ("pre_ln", 2),
        ("post_ln", 2),
        ("pre_ln", 8),
        ("post_ln", 8),
    ]
    assert {t.learning_rate for t in rest if t.scheme == "post_ln"} == {0.1}
    # Those of the grid are looked into after their end, those without warm-up before they begin.
    inspected = [trial for trial in rest if trial.is_inspected and trial.norm == "layer_norm"]
    assert [(trial.layers, trial.has_warmup) for trial in inspected] == 2 * [(4, False)]


@pytest.mark.parametrize(
    ("losses", "tried", "best"),
    [
        ([9.0, 3.0, 2.0, 4.0, 9.0], [2, 3, 4], 3),
        ([1.0, 2.0, 3.0, 4.0, 9.0], [1, 2, 3, 4], 1),
        ([9.0, 3.0, 2.5, 2.0, 5.0], [2, 3, 4, 5], 4),
        ([9.5, 9.0, None, 9.0, 9.0], [1, 2, 3, 4], 2),  # of equals the lower rate
        ([None, None, None, None, None], [1, 2, 3, 4], 1),
    ],
)
def test_a_rate_further_out_is_tried_where_its_neighbour_is_the_best(example, losses, tried, best):
    rates = (1.0, 2.0, 3.0, 4.0, 5.0)
    plan, known = example.Plan(("pre_ln",), rates=rates), {}
    while missing := [trial for trial in plan.grid("pre_ln", known.get) if trial not in known]:
        assert plan.best_rate("pre_ln", known.get) is None
        for trial in missing:
            known[trial] = {"validation_loss": losses[rates.index(trial.learning_rate)]}
    assert sorted(trial.learning_rate for trial in known) == tried
    assert plan.best_rate("pre_ln", known.get) == best


def test_the_rate_rises_and_falls(example):
    scale = dataclasses.replace(example.SMALL, updates=6, warmup=2)
    trial = example.Trial("pre_ln", 2, 1.0)
    assert trial.rates(scale) == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25])
    without = dataclasses.replace(trial, has_warmup=False)
    assert without.rates(scale) == pytest.approx([1.0, 1.0, 0.8, 0.6, 0.4, 0.2])


def test_differences_of_bleu_are_tested_where_translations_are_on_record(example, study):
    from study.differences import differences
    from study.results import Results

    right = [f"the dog has {number} balls" for number in range(23)]
    rates = {"pre_ln": 0.1, "post_ln": 0.2}
    for trial in study.missing()[:4]:
        loss = 1.0 if rates[trial.scheme] == trial.learning_rate else 2.0
        study.records.keep(trial.key(study.scale), outcome(loss))
    results = Results(study)
    assert "study_schemes.py --translations" in differences(results)
    study.wants_translations = True
    again = study.missing()[:2]
    assert {trial.scheme: trial.learning_rate for trial in again} == rates
    said = {"pre_ln": right, "post_ln": [text.replace("dog", "cat") for text in right]}
    for trial in again:
        found = outcome(1.0) | {"translations": said[trial.scheme]}
        study.records.keep(trial.key(study.scale), found)
    assert not set(again) & set(study.missing())
    key = {"name": "references", **example.corpus_key("demo", study.scale)}
    study.records.keep(key, {"texts": right})
    text = differences(results)
    assert "| `pre_ln` | 100.0 | 100.0 ± 0.0 |  |  |  |" in text
    assert text.splitlines()[-1].startswith("| `post_ln` | ") and text.endswith(" | yes |")


def test_results_on_other_texts_are_other_records(example, study, monkeypatch):
    here = study.missing()[0]
    there = dataclasses.replace(here, corpus="multi30k")
    for trial in (here, there):
        study.records.keep(trial.key(study.scale), outcome(1.0))
    assert study.find(here) == study.find(there) == outcome(1.0)
    monkeypatch.setattr("study.trial.built_in_texts", lambda: "of another day")
    assert study.find(here) is None
    assert study.find(there) == outcome(1.0)  # its texts are those of the user's files


def test_the_page_holds_the_records(example, study, tmp_path):
    losses = {"pre_ln": {2: 1.0, 4: 0.75, 8: 0.5}, "post_ln": {2: 1.5, 4: 1.25, 8: None}}
    while missing := [trial for trial in study.missing() if trial.seed == 1]:
        for trial in missing:
            worse = 0.3 * (trial.learning_rate == 0.2) + 0.25 * (trial.pairs is not None)
            if not trial.has_warmup:
                worse += 3.5 if trial.scheme == "post_ln" else 0.5
            loss = losses[trial.scheme][trial.layers]
            # Only those without warm-up, trained one after the other, are compared in time.
            slower = 30.0 if trial.scheme == "post_ln" and not trial.has_warmup else 10.0
            loss = None if loss is None else loss + worse
            study.records.keep(
                trial.key(study.scale), outcome(loss, slower, has_warmup=trial.has_warmup)
            )
    # The second seed, on another machine: its memory is compared with that of that machine.
    for scheme, memory in (("pre_ln", 20.0), ("post_ln", 60.0)):
        key = study.plan.trial(scheme, 4, 0.1, seed=2).key(study.scale)
        second = outcome(losses[scheme][4] + 0.25, machine="another", memory=memory)
        study.records.keep(key, second)
    study.records.keep({"name": "floor", **example.corpus_key("demo", study.scale)}, {"loss": 5.0})
    from study.page import write

    decoders = example.DecoderPlan(study.plan, "ssru", ("pre_ln", "post_ln"))
    page = tmp_path / "docs" / "study.md"
    write(study, decoders, page)
    text = page.read_text(encoding="utf-8")
    text_of_records = study.records.path.read_text(encoding="utf-8")
    assert "| `pre_ln` | 0.1 | 1.000 | 10.0 | 0.750, 1.000 | 8.8 | 0.500 | 5.0 |" in text
    first = text.split("\n\n")[1]
    assert first.startswith("**The lowest loss at 4 layers has `pre_ln`; ")
    assert "BLEU with 2, 4 and 8 layers: `pre_ln` 10.0, 8.8, 5.0; `post_ln` 15.0, 13.8, -." in first
    assert "| `post_ln` | 0.1 | 1.500 | 15.0 | 1.250, 1.500 | 13.8 | diverged |  |" in text
    assert "word frequencies alone (5.00 nats): `post_ln` with 8 layers." in text
    assert "| `post_ln` | 3.00 | 2.00 | 2.0 | 2.0 | 0.5 | 0.5 | 3.5 |" in text
    miss = "| `pre_ln` | 0.750 | 1.250 | needs warm-up | trains without warm-up | **miss** |"
    assert miss in text
    assert "| `post_ln` | 1.250 | 4.750 | needs warm-up | needs warm-up |  |" in text
    assert "(5.00 nats)" in text and "1 of 2 forecasts are right" in text
    worse = "Worse than `pre_ln` at every depth, by more than 0.02 nats with each seed: `post_ln`."
    assert worse in text and "Better than" not in text
    assert "| `layer_norm` | 0.1 | 0.750 | 1.000 |" in text
    assert "| `none` | 0.1 | 0.750 | 1.000 |" in text
    claim = "Pre-LN loses nothing without warm-up (Xiong et al., 2020)"
    assert f"| {claim} | no (one seed) | -0.500 |" in text
    # Two seeds of `pre_ln` are 0.75 and 1, of `post_ln` 1.25 and 1.5.
    assert "differ by 0.250 nats at the median" in text
    assert "at most by a factor of 1.3 (`pre_ln` with 4 layers)" in text
    better = "Dynamic tanh can take the place of LayerNorm"
    assert better not in text  # It was not tried.
    assert "| learning rates | 4 | 4 |" in text
    assert "| seed 2 | 2 | 6 |" in text
    assert [line for line in text.splitlines() if line.startswith("- seed")] == [
        "- seed 2, 2 layers: `pre_ln`, `post_ln`",
        "- seed 2, 8 layers: `pre_ln`, `post_ln`",
    ]
    trained = text_of_records.count('"scheme"')
    assert f"took {trained / 10:.1f} hours of one core" in text  # a tenth of one each
    # One of two seeds comes to nothing.
    key = study.plan.trial("pre_ln", 2, 0.1, seed=2).key(study.scale)
    study.records.keep(key, outcome(5.5))
    write(study, decoders, page)
    text = page.read_text(encoding="utf-8")
    failed = "`pre_ln` with 2 layers (1 of 2 seeds), `post_ln` with 8 layers."
    assert failed in text and "a factor of 5.5 (`pre_ln` with 2 layers)" in text
    for name in ("pareto", "skips"):
        assert (page.parent / "images" / f"study_{name}.png").read_bytes().startswith(b"\x89PNG")


def means(mean):
    """What may be found of a decoder of two layers."""
    return [
        {
            "name": f"decoder/{layer}/{name}",
            "branch_mean": mean * (layer + 1),
            "stream_mean": mean * 4,
            "stream_rms": 8.0,
        }
        for layer in range(2)
        for name in ("self_attention", "feed_forward")
    ]


def test_decoders_are_compared_at_the_rate_of_self_attention(example, study, tmp_path):
    decoders = example.DecoderPlan(
        study.plan,
        "ssru",
        ("pre_ln", "post_ln"),
        (example.Decoder("ssru", "pre_ln", "rms_norm"), example.Decoder("ssru", "post_ln")),
    )
    other = study.with_plan(decoders)
    assert other.missing() == []  # No rate is known.
    losses = {"pre_ln": 1.0, "post_ln": 1.5}
    while missing := [trial for trial in study.missing() if trial.norm == "layer_norm"]:
        for trial in missing:
            loss = losses[trial.scheme] + 0.3 * (trial.learning_rate == 0.2) + trial.seed / 50
            found = outcome(loss, has_warmup=trial.has_warmup)
            study.records.keep(trial.key(study.scale), found)
    trials = other.missing()
    assert [(t.scheme, t.norm, t.layers, t.seed, t.has_means) for t in trials] == [
        ("pre_ln", "layer_norm", 2, 1, False),
        ("post_ln", "layer_norm", 2, 1, False),
        ("pre_ln", "rms_norm", 4, 1, True),
        ("post_ln", "layer_norm", 4, 1, True),
        ("pre_ln", "layer_norm", 2, 2, False),
        ("post_ln", "layer_norm", 2, 2, False),
    ]
    assert {(t.self_attention, t.learning_rate) for t in trials} == {("ssru", 0.1)}
    for trial in trials[2:4]:
        key = {"name": "means at the start", **trial.key(study.scale)}
        study.records.keep(key, {"means": means(1.0)})
    for trial in trials[:3] + trials[4:]:
        # With an SSRU Post-LN is the better one.
        loss = {"pre_ln": 1.25, "post_ln": 1.0}[trial.scheme] + trial.seed / 50
        found = outcome(loss)
        if trial.has_means:
            found["means"] = means(-0.5)
        other.records.keep(trial.key(other.scale), found)
    study.records.keep({"name": "floor", **example.corpus_key("demo", study.scale)}, {"loss": 5.0})
    from study.page import write

    page = tmp_path / "docs" / "study.md"
    write(study, decoders, page)
    text = page.read_text(encoding="utf-8")
    row = "| SSRU | `pre_ln` | `rms_norm` | +1.500 | +0.500 | -0.750 | -0.250 | 1.270 |"
    assert row in text
    assert "| SSRU | `post_ln` | `layer_norm` | +1.500 | +0.500 |  |  |  |" in text
    assert "| `post_ln` | 1.520, 1.540 | 15.3 | 1.020, 1.040 | 10.3 | +0.500, +0.500 |" in text
    better = "with each seed, `post_ln` is better with an SSRU, and `pre_ln` is worse."
    assert better in text and "correlate by -1.00" in text
    assert "is another one, by more than 0.02 nats with each seed: `pre_ln` and `post_ln`." in text
    assert "- means, 4 layers: `post_ln`" in text
    image = page.parent / "images" / "study_means.png"
    assert image.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("margins", "at_least", "verdict"),
    [
        ([0.1, 0.03], 0.02, "yes"),
        ([0.1, 0.0], 0.02, "no clear difference"),
        ([0.1, -0.1], 0.02, "no clear difference"),
        ([-0.1, -0.03], 0.02, "no"),
        ([float("inf")], 0.02, "yes"),  # The other one diverged.
        ([-0.01], -0.02, "yes"),  # Nothing is lost.
        ([-0.03], -0.02, "no"),
        ([0.1, -0.03], -0.02, "no clear difference"),
    ],
)
def test_a_claim_holds_where_all_seeds_agree(example, margins, at_least, verdict):
    from study.page import Claim

    assert Claim("", lambda results: margins, at_least).verdict(margins) == verdict


def test_a_claim_is_tried_at_the_depth_that_it_is_about(example):
    """The page says so in a sentence for all claims."""
    from study.page import CLAIMS

    asked = []

    class Results:
        study = types.SimpleNamespace(plan=example.FULL)

        def by_seed(self, scheme, layers, **changed):
            assert scheme in example.FULL.schemes
            asked.append(layers)
            return {}

        def norm_losses(self, norm):
            assert norm in ("layer_norm", *example.FULL.norms)
            asked.append(12)
            return {}

    for claim in CLAIMS:
        asked.clear()
        claim.margins(Results())
        depth = 24 if "in deep models" in claim.text else 6 if "smallest" in claim.text else 12
        assert asked == [depth, depth], claim.text


def test_a_trial_that_fails_is_named_and_the_others_are_kept(example, study, monkeypatch):
    def result(self, trial, core):
        if trial.scheme == "post_ln":
            raise RuntimeError("ended with 1: no memory")
        return outcome(1.0)

    monkeypatch.setattr(example.Study, "_in_a_process", result)
    failed = study.run(processes=1, minutes=1)
    assert len(failed) == 2
    assert "no memory" in failed[0]
    assert study.plan.best_rate("pre_ln", study.find) == 0.1
    lines = study.records.path.read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["measured"]["scheme"] for line in lines} == {"pre_ln"}


@pytest.mark.release
def test_one_trial_from_end_to_end(example, tmp_path):
    plan = dataclasses.replace(example.QUICK, schemes=("resi_dual",))
    records = example.Records(tmp_path / "records.jsonl")
    data = {"demo": "demo/en-de"}
    study = example.Study(plan, example.SMALL, records, data, tmp_path / "sentences")
    (trial,) = study.missing()
    found = study._in_a_process(trial, core=0)
    # Three updates teach nothing: about the logarithm of 300 pieces, or worse.
    assert 5 < found["validation_loss"] < 8
    assert len(found["curve"]) == 1
    assert list(found["skips"]) == [
        "encoder/0/self_attention",
        "encoder/0/feed_forward",
        "decoder/0/self_attention",
        "decoder/0/cross_attention",
        "decoder/0/feed_forward",
    ]
