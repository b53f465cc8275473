"""The chain of trainings: what each step is made of, and that a stopped chain goes on."""

import pytest

from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.training import Scores

STEPS = [
    "forward",
    "backward",
    "text-1",
    "forward-2",
    "backward-2",
    "text-2",
    "forward-3",
    "sampled",
    "sampled-2",
    "risk-1",
    "risk-2",
    "best",
]


@pytest.fixture
def example(load_example):
    with load_example("multi30k_chain") as module:
        yield module


class StopError(Exception):
    """What stands for a signal here."""


class Ledger:
    """Takes the place of all that takes long: writes its result, and what it was asked for."""

    def __init__(self, example, runs, monkeypatch, stops=False):
        self.runs, self.found, self.stops = runs, {}, stops
        for name in ("train", "diversify", "minimum_risk", "save_average"):
            monkeypatch.setattr(example, name, getattr(self, name))

    def note(self, to, *what):
        name = to.relative_to(self.runs).parts[0]
        if self.stops and name not in self.found:
            self.found[name] = []
            raise StopError
        self.found.setdefault(name, []).append(what)

    def train(self, config, directory, verbose):
        self.note(directory.path, config)
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.write_config(config)
        kept = config.training.average_last > 1
        (directory.averaged_weights if kept else directory.best_weights).touch()

    def diversify(self, forward, backward, to, data, earlier):
        self.note(to, forward.path.name, backward.path.name, data, list(earlier))
        to.mkdir()
        (to / "train.en").write_text(f"{to.name}\n")
        (to / "train.de").write_text("x\n")

    def minimum_risk(self, runs, to, settings, candidates):
        self.note(to.path, [run.path.name for run in runs], settings, candidates)
        to.path.mkdir()
        to.write_config(runs[0].read_config())
        to.best_weights.touch()

    def save_average(self, paths, to):
        self.note(to, [path.relative_to(self.runs).as_posix() for path in paths])


def test_each_step_is_made_as_the_results_say(example, tmp_path, monkeypatch):
    ledger = Ledger(example, tmp_path, monkeypatch)
    best = example.best_model(example.Chain("corpus", tmp_path))
    found = {name: calls[0] for name, calls in ledger.found.items()}
    assert list(found) == STEPS and all(len(calls) == 1 for calls in ledger.found.values())

    def of(name):
        (config,) = found[name]
        t = config.training
        return config.data, config.source, t.epochs, t.cooldown_epochs, t.r_drop, t.tokens_per_batch

    one, two = (str(tmp_path / f"text-{n}") for n in (1, 2))
    assert of("forward") == ("corpus", "en", 50, 8, 2.0, 2048)
    assert of("forward-2") == (one, "en", 64, 14, 0.0, 4096)
    assert of("forward-3") == (two, "en", 74, 10, 0.0, 4096)
    assert of("backward") == ("corpus", "de", 10, 4, 0.0, 4096)
    assert of("backward-2") == (one, "de", 14, 4, 0.0, 4096)
    sampling = {
        name: (
            found[name][0].tokenizer.vocabulary_size,
            found[name][0].training.epochs,
            found[name][0].training.subword_sampling,
            found[name][0].training.peak_learning_rate,
        )
        for name in ("sampled", "sampled-2")
    }
    assert sampling == {"sampled": (10000, 70, 0.05, 0.005), "sampled-2": (10000, 80, 0.0, 0.002)}
    assert found["text-1"] == ("forward", "backward", "corpus", [])
    assert found["text-2"] == ("forward-2", "backward-2", "corpus", [("text-1", "x")])
    runs, settings, shared = found["risk-1"]
    assert (runs, settings.candidates) == (["student", "forward-2"], 5)
    assert found["risk-2"] == (
        ["student", "forward-2", "forward", "sampled-2"],
        example.RiskSettings(seed=7, candidates=7, tokens_per_batch=8800),
        shared,
    )
    assert found["best"] == (["risk-1/best.weights.h5", "risk-2/best.weights.h5"],)
    assert best.read_config().data == "corpus"


def test_a_chain_that_was_stopped_anywhere_comes_to_the_same(example, tmp_path, monkeypatch):
    ledger = Ledger(example, tmp_path, monkeypatch, stops=True)
    chain = example.Chain("corpus", tmp_path)
    for number in range(len(STEPS)):
        with pytest.raises(StopError):
            example.best_model(chain)
        assert list(ledger.found) == STEPS[: number + 1]
    example.best_model(chain)
    # What trains looks by itself whether there is something left to do; all else is done once.
    for name, calls in ledger.found.items():
        assert all(call == calls[0] for call in calls)
        assert len(calls) == 1 or name.startswith(("forward", "backward", "sampled"))
    assert not list(tmp_path.glob("tmp*"))


def test_the_validation_set_chooses_the_length_penalty(example, tmp_path, monkeypatch):
    config = example.RunConfig()
    run = RunDirectory(tmp_path)
    run.write_config(config)
    loaded = TrainedRun(run, config, None, None)
    monkeypatch.setattr(example, "load_run", lambda directory: loaded)

    def score(run, split):
        assert split == "validation"
        bleu = -abs(run.config.evaluation.length_penalty - 2.2)
        return example.Evaluation(split, [], [], [], Scores(bleu, 0.0, "", ""), None, 0, 0)

    monkeypatch.setattr(example, "evaluate", score)
    example.with_best_penalty(run)
    assert run.read_config().evaluation.length_penalty == 2.0


@pytest.mark.release
def test_it_runs(example, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "LENGTH_PENALTIES", (1.0, 2.0))  # Each is a search to compile.
    chain = example.small_chain(tmp_path)
    found = example.run(chain, "validation")
    assert len(found.translations) == 10 and 0 <= found.cased.bleu <= 100
    printed = capsys.readouterr().out
    assert all(f"Length penalty {penalty}: " in printed for penalty in example.LENGTH_PENALTIES)
    assert "training pairs have become" in printed
    assert len(list((chain.runs / "candidates").iterdir())) == 4
    one, other, mean = (
        load_run(RunDirectory(chain.runs / name)).model.get_weights()
        for name in ("risk-1", "risk-2", "best")
    )
    for a, b, c in zip(one, other, mean, strict=True):
        assert abs(c - (a + b) / 2).max() < 1e-6
