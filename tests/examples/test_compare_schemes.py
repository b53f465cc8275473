"""The comparison of schemes: each case is trained as it says, and the table is right."""

import pytest


@pytest.fixture
def example(load_example):
    with load_example("compare_schemes") as module:
        yield module


def test_each_training_has_the_scheme_and_the_seed_of_its_case(example, tmp_path, monkeypatch):
    trained = []

    def keep(config, directory, **_):
        trained.append((directory, config))
        directory.write_log([{"epoch": 0, "val_loss": 3.5}, {"epoch": 1, "val_loss": 3.25}])

    def score(_, split):
        directory, _ = trained[-1]
        directory.write_scores({split: {"cased": {"bleu": 20.0 + len(trained)}}})

    monkeypatch.setattr(example, "train", keep)
    monkeypatch.setattr(example, "evaluate", score)
    config = example.RunConfig.from_dict(example.BUDGET)
    results = example.compare(config, example.CASES, range(1, 4), tmp_path)
    assert len({directory.path for directory, _ in trained}) == 12
    seen = [(c.training.seed, c.model.overrides["scheme"]) for _, c in trained]
    assert seen == [(s, c["scheme"]) for s in (1, 2, 3) for c in example.CASES.values()]
    norms = [c.model.overrides.get("norm") for _, c in trained]
    assert norms == [None, None, None, "rms_norm"] * 3
    assert results["Pre-LN"] == [example.Result(3.25, bleu) for bleu in (22.0, 26.0, 30.0)]
    row = "| Pre-LN | 3 | 3.250 (3.250 to 3.250) | 26.0 (22.0 to 30.0) |"
    assert row in example.table(results)

    # A case of one's own is tried by --smoke, too.
    trained.clear()
    monkeypatch.setitem(example.CASES, "Mine", {"norm": "scale_norm"})
    assert example.main(example.parser().parse_args(["--smoke"])).keys() == example.CASES.keys()
    assert trained[-1][1].model.overrides["norm"] == "scale_norm"


@pytest.mark.release
def test_it_runs(example, capsys, monkeypatch):
    monkeypatch.setattr(example, "CASES", {"Mine": {"scheme": "pre_ln", "norm": "rms_norm"}})
    results = example.main(example.parser().parse_args(["--smoke"]))
    (result,) = results["Mine"]
    assert 0 < result.loss < 10 and 0 <= result.bleu <= 100
    assert example.table(results) in capsys.readouterr().out
