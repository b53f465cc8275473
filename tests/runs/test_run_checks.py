"""What a run looks at before, beside and after the training: data, best epochs, speed, average."""

import dataclasses
import errno
import os
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_addnorm.data import LineReport, PipelineReport, Tokenizer, TokenizerPair
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.pair_faults import FaultCounter, OtherPairs
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory, UserError, callbacks, weight_files
from keras_addnorm.runs import train as train_module
from keras_addnorm.runs.callbacks import BestEpochs, MovingAverage, RunRecorder
from keras_addnorm.runs.checks_before_training import require_room, require_same_run, require_start
from keras_addnorm.runs.data_check import DataCheck
from keras_addnorm.runs.optimization import (
    about_smoothing,
    compile_model,
    computing_in,
    go_on_with_learning_rate,
)
from keras_addnorm.runs.progress import epoch_line, summary
from keras_addnorm.runs.resuming import _going_on, _starting_anew
from keras_addnorm.runs.terminal import duration
from keras_addnorm.runs.text_data import load_or_train_tokenizers
from keras_addnorm.runs.train import train
from keras_addnorm.runs.updates import Course, about_updates, with_warmup
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy, RDropCrossentropy
from keras_addnorm.training.checkpoint_file import TrainingState

REPORT = PipelineReport(
    kept=7,
    empty=1,
    too_long=2,
    source_tokens=31,
    target_tokens=29,
    batches=3,
    padding=0.125,
    buckets=((13, 3, 7),),
)


def checked(pairs, held_out, report, *lines, **choices):
    counter = FaultCounter(OtherPairs(HeldOutTexts(held_out)))
    assert list(counter.watch(pairs)) == pairs
    return DataCheck.of(counter.counts(), report, *lines, **choices)


def test_suspicious_pairs_are_counted_and_a_strict_run_stops():
    pairs = [
        ("a", "b"),
        ("a", "b"),
        ("a", "c"),
        ("d", "d"),
        ("", ""),
        ("e\ufffd", "f"),
        ("a", "b"),
        ("g", "h"),
    ]
    check = checked(pairs, [("g", "h"), ("x", "y")], REPORT)
    assert {name: count for name, count in check.faults.items() if count} == {
        "duplicates": 2,
        "copies": 1,
        "broken_text": 1,
        "in_held_out": 1,
    }
    found = "1 empty, 2 too long, 2 duplicates, 1 copies, 1 broken text, 1 in held out"
    assert str(check) == found
    with pytest.raises(UserError, match=rf"not clean: {found}\..*--strict"):
        check.require_clean()
    left_out = LineReport(
        "train", kept=8, empty=3, invalid_utf8=4, too_long=5, surplus=6, no_text=7
    )
    check = checked(pairs[5:6], [], REPORT, [left_out])
    assert check.left_out == {
        **{"empty": 1 + 3, "too_long": 2 + 5, "not_utf8": 4},
        **{"surplus_columns": 6, "zero_characters": 7},
    }
    with pytest.raises(
        UserError, match="4 not utf8, 6 surplus columns, 7 zero characters, 1 broken"
    ):
        check.require_clean()
    check = checked([("a\u00adb", "c"), ("d", "\ufeff"), ("é", "ü")], [], REPORT)
    with pytest.raises(UserError, match="2 invisible"):  # reports.md, F5
        check.require_clean()


def test_hints_stop_no_strict_run():
    report = dataclasses.replace(REPORT, empty=0, too_long=0)
    near = ("nearly held out but one", "x")
    check = checked([near], [("nearly held out but two", "y")], report)
    meaning = "a side is one of a validation or test set, but for a word"
    assert str(check) == f"perhaps 1 near held out ({meaning})"
    check.require_clean()
    sets = [near], [("nearly held out but two", "y")], report
    assert str(checked(*sets, expected=("near_held_out",))) == "no pair has a fault"
    assert str(checked([near], [], report)) == "no pair has a fault"


@pytest.mark.parametrize(
    ("settings", "buckets", "warnings"),
    [
        ({"warmup_steps": 60}, ((13, 3, 7),), []),
        ({"warmup_steps": 61}, ((13, 3, 7),), ["60 updates are fewer than the 61 over which"]),
        ({"warmup_steps": 61, "schedule": "constant"}, ((13, 3, 7),), []),
        ({"tokens_per_batch": 4, "warmup_steps": 9}, ((4, 1, 4), (8, 1, 3)), []),
        (
            {"tokens_per_batch": 4, "warmup_steps": 9},
            ((4, 1, 3), (8, 1, 4)),
            ["4 of 7 pairs are longer than a batch of 4 tokens"],
        ),
    ],
)
def test_too_few_or_too_small_updates_are_said(settings, buckets, warnings):
    training = RunConfig.from_dict({"training": {"epochs": 20, **settings}}).training
    said, *found = about_updates(training, dataclasses.replace(REPORT, buckets=buckets))
    assert said == "Updates: 60, 3 an epoch."
    assert len(found) == len(warnings)
    for line, words in zip(found, warnings, strict=True):
        assert line.startswith("Warning: ") and words in line


@pytest.mark.parametrize(
    ("settings", "updates", "steps"),
    [
        ({}, 4003, 1000),
        ({}, 3999, 999),
        ({}, 3, 1),
        ({"warmup_steps": 61}, 60, 61),
        ({"schedule": "noam"}, 60, 1000),
    ],
)
def test_the_warm_up_follows_the_number_of_updates_unless_it_is_given(settings, updates, steps):
    """A training of twenty updates once rose for a thousand, and learned nothing."""
    training = RunConfig.from_dict({"training": settings}).training
    assert training.warmup(updates) == steps


@pytest.mark.parametrize(("smoothing", "pieces"), [(0.1, 700), (0.25, 37)])
def test_the_best_loss_under_smoothing_is_the_loss_of_the_smoothed_labels(smoothing, pieces):
    best = np.full((1, 1, pieces), smoothing / pieces)
    best[..., 5] += 1 - smoothing
    loss = MaskedSparseCategoricalCrossentropy(smoothing)(np.array([[5]]), np.log(best))
    [line] = about_smoothing(smoothing, pieces)
    assert f"at best {float(loss):.2f}, as label smoothing is {smoothing};" in line
    assert not list(about_smoothing(0.0, pieces))


def test_a_run_keeps_the_warm_up_that_was_chosen_for_it(tmp_path):
    report = dataclasses.replace(REPORT, buckets=((13, 7, 7),), batches=7)
    directory = RunDirectory(tmp_path)
    config = RunConfig().replace({"training.epochs": 5})
    directory.write_config(config)
    chosen, said = with_warmup(config, directory, report)
    assert chosen == config.replace({"training.warmup_steps": 8})
    assert said.startswith("Warm-up: 8 updates")
    directory.write_config(chosen)
    longer = config.replace({"training.epochs": 50})
    found, _ = with_warmup(longer, directory, report)
    assert found == longer.replace({"training.warmup_steps": 8})
    given = config.replace({"training.warmup_steps": 900})
    assert with_warmup(given, directory, report) == (given, None)


def test_a_training_rises_over_the_warm_up_that_it_records(monkeypatch, tmp_path):
    model, *_ = what_fit_trains(monkeypatch, tmp_path, {"epochs": 3, "tokens_per_batch": 512})
    steps = RunDirectory(tmp_path).read_config().training.warmup_steps
    assert 1 < steps < 100
    peak = RunConfig().training.peak_learning_rate
    expected = [peak * (steps - 1) / steps, peak, peak * (steps / (steps + 1)) ** 0.5]
    np.testing.assert_allclose(rates(model, [steps - 1, steps, steps + 1]), expected, rtol=1e-6)


def test_accumulated_batches_are_one_update():
    training = RunConfig.from_dict(
        {"training": {"batches_per_update": 3, "epochs": 2, "warmup_steps": 1000}}
    ).training
    said, warning = about_updates(training, dataclasses.replace(REPORT, batches=6))
    assert said == "Updates: 4, 2 an epoch."
    assert warning.startswith("Warning: 4 updates are fewer")


def test_lines_that_no_pair_is_made_of_stop_a_strict_run(tmp_path):
    """They are dropped when the folder is read: the pairs alone do not show them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    words = ["red", "green", "blue", "big", "small", "old", "new"]
    good = [f"{a} {b}".encode() for a in words for b in words]
    for name, lines in (("train", good[::2]), ("val", good[1::2])):
        (folder / f"{name}.en").write_bytes(b"\n".join(lines))
        (folder / f"{name}.de").write_bytes(b"\n".join(line.upper() for line in lines))
    for language in ("en", "de"):
        with (folder / f"train.{language}").open("ab") as file:
            file.write(b"\n\nbad \xff\n" + b"x" * 1001 + b"\n")
    config = RunConfig.from_dict(
        {
            "data": str(folder),
            "tokenizer": {"vocabulary_size": 40},
            "model": {"hidden_dim": 8, "num_heads": 2},
            "training": {"strict": True},
        }
    )
    said = []
    with pytest.raises(UserError, match=r"not clean: 1 empty, 1 too long, 1 not utf8. Expected"):
        train(config, RunDirectory(tmp_path / "run"), say=said.append, verbose=0)
    assert any("25 of 28 pairs kept" in line and "(lines 26, 27, 28)" in line for line in said)


def rows(**columns):
    return [
        {"epoch": float(epoch), **dict(zip(columns, values, strict=True))}
        for epoch, values in enumerate(zip(*columns.values(), strict=True))
    ]


def test_the_best_epochs_of_a_log():
    log = rows(val_loss=[3.0, np.nan, 1.0, 2.0, 1.0], val_bleu=[5.0, 9.0, np.nan, 7.0, 8.0])
    assert BestEpochs("val_loss", high=False, count=3).epochs(log) == [2, 4, 3]
    assert BestEpochs("val_bleu", high=True, count=2).epochs(log) == [1, 4]
    assert BestEpochs("val_chrf", high=True).epochs(log) == []


def model_of(value):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign([[value]])
    return model


def kernel(path):
    model = model_of(0.0)
    model.load_weights(path)
    return float(model.layers[0].kernel[0, 0])


def test_the_best_k_are_kept_and_what_is_beaten_goes(tmp_path):
    directory = RunDirectory(tmp_path)
    best = BestEpochs("val_bleu", high=True, count=2)
    scores = [5.0, 3.0, 4.0, 6.0]
    kept = []
    for epoch in range(len(scores)):
        best.keep(model_of(float(epoch)), directory, rows(val_bleu=scores[: epoch + 1]))
        kept.append([p.name[6:10] for p in sorted(directory.best_epochs.iterdir())])
    assert kept == [["0001"], ["0001", "0002"], ["0001", "0003"], ["0001", "0004"]]
    assert kernel(directory.best_weights) == 3.0
    assert kernel(directory.best_epochs / "epoch-0001.weights.h5") == 0.0


def test_the_moving_average_is_validated_and_the_weights_come_back(tmp_path):
    """The optimiser's average by its formula; validation sees it, training does not."""
    x, y = np.array([[1.0], [2.0]], "float32"), np.array([[3.0], [5.0]], "float32")
    model = model_of(0.5)
    model.compile(
        keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.75), "mse", run_eagerly=True
    )
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(float(model.layers[0].kernel[0, 0]))
    )
    after = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(float(model.layers[0].kernel[0, 0]))
    )
    history = model.fit(
        x,
        y,
        batch_size=2,
        epochs=3,
        verbose=0,
        shuffle=False,
        validation_data=(x, y),
        callbacks=[watch, MovingAverage(), after],
    ).history
    weight, average, expected, losses = 0.5, None, [], []
    for _ in range(3):
        weight -= 0.05 * float(np.mean(2 * (weight * x - y) * x))
        average = weight if average is None else 0.75 * average + 0.25 * weight
        expected += [average, weight]
        losses.append(float(np.mean((average * x - y) ** 2)))
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    np.testing.assert_allclose(history["val_loss"], losses, rtol=1e-6)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.6, "8 s"), (60, "1 min 00 s"), (199, "3 min 19 s"), (7500, "2 h 05 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_line_an_epoch_and_a_summary(tmp_path):
    log = rows(
        val_loss=[3.0, 1.5],
        seconds=[30.0, 50.0],
        examples_per_second=[1234.0, 2345.6],
        tokens_per_second=[9.0, 45678.0],
        padding=[0.125, 0.125],
        peak_memory_mib=[512.0, 640.0],
    )
    assert epoch_line(log[1], Course(12, 3), 40.0) == (
        "Epoch 2 of 12: 2,346 examples/s, 45,678 tokens/s, 12.5% padding; 6 min 40 s left."
    )
    slow = log[1] | {"examples_per_second": 1.3}
    assert epoch_line(slow, Course(12, 3), None) == (
        "Epoch 2 of 12: 1 example/s, 45,678 tokens/s, 12.5% padding; "
        "most of it compiled; the next epoch shows how much time is left."
    )
    assert epoch_line(log[1], Course(2, 3), None).endswith("; 0 s left.")
    directory = RunDirectory(tmp_path)
    directory.best_weights.touch()
    text = summary(directory, log, 1, REPORT)
    assert len(text.splitlines()) < 24
    for part in ("2, the best is 2", "val_loss 1.5", "1 min 20 s, 40 s an epoch", "640 MiB"):
        assert part in text


def test_a_disk_without_room_is_an_error_before_the_first_step(monkeypatch, tmp_path):
    model, training = SimpleNamespace(count_params=lambda: 2**18), RunConfig().training
    # 1 MiB of weights: five checkpoints of three times that, and three files of weights.
    for free, fits in ((18 * 2**20, True), (18 * 2**20 - 1, False)):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free)
        )
        if fits:
            require_room(RunDirectory(tmp_path), model, training)
            continue
        with pytest.raises(UserError, match="Expected room for the checkpoints, 18 MiB"):
            require_room(RunDirectory(tmp_path), model, training)


def test_a_resumed_run_needs_no_room_for_the_files_that_it_replaces(monkeypatch, tmp_path):
    model, training = SimpleNamespace(count_params=lambda: 2**18), RunConfig().training
    directory = RunDirectory(tmp_path)
    free = []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[-1]))

    def requires(mebibytes):
        free.append(mebibytes * 2**20)
        require_room(directory, model, training)
        free.append(mebibytes * 2**20 - 1)
        with pytest.raises(UserError, match=f"Expected room for the checkpoints, {mebibytes} MiB"):
            require_room(directory, model, training)

    directory.checkpoints.mkdir()
    for path, mebibytes in (
        (directory.best_weights, 1),
        (directory.checkpoints / "epoch-0001.weights.h5", 3),
    ):
        path.touch()
        os.truncate(path, mebibytes * 2**20)
    requires(18 - 4)
    # A new checkpoint and its weights are written before old ones go, however many these are.
    os.truncate(directory.best_weights, 99 * 2**20)
    requires(3 + 1)


def full_disk():
    return OSError(errno.ENOSPC, "Can't write data (file write failed)")


def closed_on_a_full_disk():
    return RuntimeError("Can't decrement id ref count (errno = 28, 'No space left on device')")


def hidden_by_another():
    error = RuntimeError("Unable to close the file")
    error.__context__ = full_disk()
    return error


@pytest.mark.parametrize("error", [full_disk, closed_on_a_full_disk, hidden_by_another])
def test_a_disk_that_fills_up_is_a_user_error(monkeypatch, tmp_path, error):
    def fails(*_):
        raise error()

    monkeypatch.setattr(train_module, "prepare", fails)
    with pytest.raises(UserError, match=r"The disk of .*run' is full \(.*make room, and the same"):
        train(RunConfig(), RunDirectory(tmp_path / "run"), verbose=0)


def test_other_errors_say_nothing_of_a_full_disk(monkeypatch, tmp_path):
    def fails(*_):
        raise OSError(errno.ENOEXEC, "Exec format error")

    monkeypatch.setattr(train_module, "prepare", fails)
    with pytest.raises(OSError, match="Exec format"):
        train(RunConfig(), RunDirectory(tmp_path), verbose=0)


@pytest.mark.parametrize("save", ["save_weights", "save_average"])
def test_weights_are_written_on_the_disk_of_the_run_and_a_failure_leaves_what_was_there(
    monkeypatch, tmp_path, save
):
    checkpoint = tmp_path / "epoch-0001.weights.h5"
    model_of(2.0).save_weights(checkpoint)
    first = {"save_weights": model_of(2.0), "save_average": [checkpoint]}[save]
    write, path = getattr(weight_files, save), tmp_path / "best" / "best.weights.h5"
    write(first, path)
    before = path.read_bytes()
    seen = []

    def fails(old, new):
        seen.append(old)
        new.with_name(f".{os.getpid()}.{new.name}").unlink(missing_ok=True)
        raise full_disk()

    monkeypatch.setattr(weight_files, "_copy_weights", fails)
    with pytest.raises(OSError, match="file write failed"):
        write(first, path)
    assert tmp_path in seen[0].parents
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["best.weights.h5"]
    assert kernel(checkpoint) == 2.0


def test_what_a_killed_training_left_goes_at_the_next_start(monkeypatch, tmp_path):
    directory = RunDirectory(tmp_path)
    for folder in (directory.tokenizer, directory.best_epochs, directory.checkpoints):
        folder.mkdir()
    left = [
        tmp_path / ".7.best.weights.h5",
        tmp_path / ".7.config.toml",
        tmp_path / ".7.nonfinite-step-3.npz",
        directory.best_epochs / ".12.epoch-0001.weights.h5",
        directory.checkpoints / ".12.epoch-0001.weights.h5",
        directory.tokenizer / ".7.tokenizer.model",
        directory.tokenizer / ".7.text_format.json",
        tmp_path / ".7.abc.best.weights.h5" / "best.weights.h5",
    ]
    left[-1].parent.mkdir()
    # Another command may be writing the first of these now.
    kept = [tmp_path / ".7.scores.json", directory.best_weights, directory.tokenizer / "a.model"]
    kept.append(directory.tokenizer / ".tokenizer.model.original")
    for path in (*left, *kept):
        path.touch()
    directory.write_config(RunConfig())

    def stops(*_):
        assert not any(path.exists() for path in left)
        raise UserError("enough")

    monkeypatch.setattr(train_module, "prepare", stops)
    with pytest.raises(UserError, match="enough"):
        train(RunConfig(), directory, verbose=0)
    assert not left[-1].parent.exists()
    assert all(path.exists() for path in kept)


def test_a_directory_that_cannot_be_written_is_a_user_error(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode & os.W_OK))
    with pytest.raises(UserError, match="cannot be written to"):
        train(RunConfig(), RunDirectory(tmp_path), verbose=0)


class Killed(BaseException):
    pass


def test_a_run_killed_before_its_tokenizers_were_whole_goes_on(monkeypatch, tmp_path):
    """Where the tokeniser's directory is empty, or holds one of two, they are trained again."""
    directory = RunDirectory(tmp_path)
    tokenizer = {"vocabulary_size": 300, "joint": False}
    config = RunConfig.from_dict({"tokenizer": tokenizer})
    save = Tokenizer.save

    def killed(tokenizer, path):
        if path.name == "target.model":
            raise Killed
        return save(tokenizer, path)

    def go():
        train(config, directory, split="train[:200]", say=lambda line: None, verbose=0)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Tokenizer, "save", killed)
        go()
    assert [path.name for path in directory.tokenizer.iterdir()] == ["source.model"]
    # `--resume` needs it.
    assert directory.read_config() == config.replace({"split": "train[:200]"})

    def fit(*_, **__):
        raise Killed

    monkeypatch.setattr(keras.Model, "fit", fit)
    with pytest.raises(Killed):
        go()
    assert directory.has_tokenizers()


def test_a_configuration_that_is_refused_does_not_stay(monkeypatch, tmp_path):
    """The next command would take its settings for the run's."""
    directory = RunDirectory(tmp_path)
    config = RunConfig.from_dict(
        {"tokenizer": {"vocabulary_size": 300}, "model": {"hiden_dim": 12}}
    )
    with pytest.raises(UserError, match="hiden_dim"):
        train(config, directory, split="train[:200]", say=lambda line: None, verbose=0)
    assert not directory.config.exists()


def test_a_directory_that_cannot_be_made_is_a_user_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        train(RunConfig(), RunDirectory(tmp_path / "file" / "run"), verbose=0)


def test_two_averages_exclude_each_other(tmp_path):
    config = RunConfig().replace({"training.ema": 0.9, "training.average_last": 3})
    with pytest.raises(UserError, match=r"training.ema=0.9, training.average_last=3"):
        train(config, RunDirectory(tmp_path), verbose=0)


def test_a_metric_that_nothing_measures_is_refused(tmp_path):
    config = RunConfig().replace({"training.best_metric": "val_bleu"})
    with pytest.raises(UserError, match="Nothing would measure 'val_bleu'"):
        train(config, RunDirectory(tmp_path), verbose=0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"scheme": "pre_nl"}, "Unknown residual scheme 'pre_nl'. Did you mean 'pre_ln'"),
        ({"norm": "rmsnorm"}, "Unknown norm 'rmsnorm'. Did you mean 'rms_norm'"),
        ({"positions": "rotery"}, "rotery.*rotary"),
        ({"hiden_dim": 8}, "Unknown setting 'model.hiden_dim'. Did you mean 'model.hidden_dim'"),
        ({"hidden_dim": 10, "num_heads": 3}, "num_heads"),
        ({"attention": {"windo": 3}}, "windo"),
    ],
)
def test_a_model_is_refused_before_data_are_read(monkeypatch, tmp_path, model, message):
    monkeypatch.setattr("keras_addnorm.runs.prepare.run_pairs", lambda *_: pytest.fail("read"))
    config = RunConfig.from_dict({"model": model})
    with pytest.raises(UserError, match=message) as caught:
        train(config, tmp_path / "run", verbose=0)
    assert not any(word in str(caught.value) for word in ("ResidualScheme", "dict", "None"))
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_becomes_the_largest_that_the_text_allows(tmp_path):
    pairs = [("a small house", "ein kleines Haus"), ("a small mouse", "eine Maus")]
    config = RunConfig.from_dict({"tokenizer": {"vocabulary_size": 500}})
    strict = config.replace({"training.strict": True})
    with pytest.raises(UserError, match="vocabulary_size=500 is too large"):
        load_or_train_tokenizers(strict, RunDirectory(tmp_path / "strict"), pairs)
    said = []
    found = load_or_train_tokenizers(config, RunDirectory(tmp_path), pairs, said.append)
    size = found.source.vocabulary_size
    assert said == [
        f"The vocabulary has {size} pieces, not 500: there are no more in the training text."
    ]
    with pytest.raises(ValueError, match=f"at most {size}"):
        TokenizerPair.train(pairs, vocabulary_size=size + 1, kind="bpe")
    apart = config.replace({"tokenizer.joint": False, "tokenizer.kind": "unigram"})
    found = load_or_train_tokenizers(apart, RunDirectory(tmp_path / "apart"), pairs, said.append)
    assert found.source.vocabulary_size < found.target.vocabulary_size < size
    assert [line.split()[1] for line in said[1:]] == ["source", "target"]


def progress_lines(monkeypatch, batch, epoch):
    """Returns a clock, the place in a training of five epochs, what was said, and who says it."""
    now, said = [0.0], []
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    position = SimpleNamespace(batch=batch, epoch=epoch, batches_per_epoch=100)
    lines = callbacks.ProgressLines(said.append, position, Course(5, 100))
    lines.on_epoch_begin(epoch)
    return now, position, said, lines


def test_an_epoch_says_how_far_it_is(monkeypatch):
    now, position, said, lines = progress_lines(monkeypatch, batch=40, epoch=2)
    for batch in range(60):
        position.batch, now[0] = 41 + batch, now[0] + 2.5
        lines.on_train_batch_end(batch, {"loss": 1.25})
    assert said == [
        "Epoch 3 of 5: 64 of 100 batches, loss 1.2500; 1 min 30 s left of it.",
        "Epoch 3 of 5: 88 of 100 batches, loss 1.2500; 30 s left of it.",
    ]


def test_the_time_that_is_left_is_without_the_compilation(monkeypatch):
    now, position, said, lines = progress_lines(monkeypatch, batch=0, epoch=0)
    for batch, seconds in enumerate([70.0, 70.0, *[1.0] * 68]):
        position.batch, now[0] = batch + 1, now[0] + seconds
        lines.on_train_batch_end(batch)
    assert said == [
        "Epoch 1 of 5: 1 of 100 batches; compiling.",
        "Epoch 1 of 5: 2 of 100 batches; compiling.",
        "Epoch 1 of 5: 62 of 100 batches; 38 s left of it.",
    ]
    assert callbacks.typical_seconds([]) == 0.0


def test_what_is_said_when_a_run_goes_on():
    training = RunConfig().replace({"training.early_stopping": 3}).training
    waited = {"early_stopping": {"wait": 3.0}}
    said = _going_on(TrainingState(9, callbacks=waited), 7, training)
    assert said.startswith(
        "Stopped early after epoch 9: val_perplexity did not get better for 3 epochs."
    )
    waited["early_stopping"]["wait"] = 2.0
    said = _going_on(TrainingState(9, 5, callbacks=waited), 7, training)
    assert said == "Going on after epoch 9 of 20 and 5 of 7 batches."


def test_what_is_said_when_the_data_are_others():
    said = _starting_anew(TrainingState(9, 5))
    assert "5 batches into epoch 10" in said
    assert "starts anew" in said


def test_the_seconds_of_an_epoch_go_on_with_it(monkeypatch, tmp_path):
    """Callbacks run in the order of a run: the position remembers, then the recorder begins."""
    now = [100.0]
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(callbacks, "plot_curves", lambda *_: None)
    recorder = RunRecorder(RunDirectory(tmp_path), REPORT, 0, BestEpochs(), Course(20, 3))
    assert recorder.memory() == {"epoch_seconds": 0.0}
    recorder.remember({"epoch_seconds": 30.0})
    recorder.on_epoch_begin(0)
    now[0] += 5
    assert recorder.memory() == {"epoch_seconds": 35.0}
    now[0] += 5
    recorder.on_epoch_end(0, {"loss": 1.0})
    assert recorder.memory() == {"epoch_seconds": 0.0}
    recorder.on_epoch_begin(1)
    now[0] += 7
    recorder.on_epoch_end(1, {"loss": 1.0})
    assert [row["seconds"] for row in recorder.rows] == [40.0, 7.0]
    assert [row["tokens_per_second"] for row in recorder.rows] == [60 / 40, 8.6]
    recorder.remember({"seconds": 99.0})  # Of an older checkpoint, between two epochs.
    recorder.on_epoch_begin(2)
    assert recorder.memory() == {"epoch_seconds": 0.0}


@pytest.fixture
def timed(monkeypatch, tmp_path):
    """A recorder, its clock, and what runs an epoch of batches, a validation and a checkpoint."""
    now, drawn = [50.0], []
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now[0])

    def draw(*_):
        drawn.append(len(recorder.rows))
        now[0] += 3.0

    monkeypatch.setattr(callbacks, "plot_curves", draw)
    recorder = RunRecorder(RunDirectory(tmp_path), REPORT, 0, BestEpochs(), Course(20, 3))

    def epoch(training, validation, writing):
        recorder.on_epoch_begin(len(recorder.rows))
        for batches, begin, end in (
            (training, recorder.on_train_batch_begin, recorder.on_train_batch_end),
            (validation, recorder.on_test_batch_begin, recorder.on_test_batch_end),
        ):
            for batch, seconds in enumerate(batches):
                begin(batch)
                now[0] += seconds
                end(batch)
        recorder.on_epoch_end(len(recorder.rows), {"loss": 1.0})
        now[0] += writing
        return recorder.seconds_an_epoch()

    return recorder, drawn, epoch


def test_an_epoch_of_few_batches_that_were_compiled_tells_no_time(timed):
    """One batch an epoch was compared with itself: 43 s of compilation gave 2 min for 3 epochs."""
    recorder, _, epoch = timed
    assert recorder.seconds_an_epoch() is None
    assert epoch([40.0], [2.0], 5.0) is None
    # 5 s are of the checkpoint of the epoch before.
    assert epoch([0.5], [0.25], 7.0) == 5.75
    assert epoch([0.5], [0.25], 5.0) == (5.75 + 7.75) / 2


def test_an_epoch_of_many_batches_tells_the_time_without_those_that_were_compiled(timed):
    _, _, epoch = timed
    # The curves take 3 s; each of the two batches of the validation is as one of the training.
    assert epoch([70.0, *[1.0] * 10], [30.0, 0.5], 1.0) == 11 + 2 + 3


def test_curves_are_drawn_when_they_are_half_a_minute_old_and_at_the_end(timed):
    recorder, drawn, epoch = timed
    for _ in range(4):
        epoch([9.0], [1.0], 1.0)
    assert drawn == [1, 4]  # 3 x 11 seconds after the first drawing.
    recorder.draw_curves()
    assert drawn == [1, 4]
    epoch([9.0], [1.0], 1.0)
    recorder.draw_curves()
    assert drawn == [1, 4, 5]


@pytest.mark.parametrize(
    ("key", "old", "new", "is_refused"),
    [
        ("ema", 0.0, 0.9, True),
        ("ema", 0.9, 0.99, False),
        ("batches_per_update", 1, 2, True),
        ("batches_per_update", 4, 2, False),
        ("precision", "float16", "float32", True),
        ("precision", "float32", "bfloat16", False),
        ("schedule", "constant", "cosine", True),
        ("schedule", "noam", "cosine", False),
        ("lora_rank", 4, 2, True),
    ],
)
def test_another_optimiser_is_refused_once_there_is_a_checkpoint(
    tmp_path, key, old, new, is_refused
):
    directory = RunDirectory(tmp_path)
    started = RunConfig().replace({"training.start_from": "start"})  # Only such a run has LoRA.
    directory.write_config(started.replace({f"training.{key}": old}))
    now = started.replace({f"training.{key}": new})
    require_same_run(now, directory)
    directory.model.touch()
    directory.checkpoints.mkdir()
    (directory.checkpoints / "epoch-0001.weights.h5").touch()
    if not is_refused:
        require_same_run(now, directory)
        return
    with pytest.raises(UserError, match=f"training.{key} = {old!r}. Received: {new!r}"):
        require_same_run(now, directory)


def what_fit_trains(monkeypatch, folder, training, split="train[:200]"):
    """The model and the data of a run that ends as soon as it has them."""

    class Seen(Exception):  # noqa: N818 - it says that all is seen, and ends the run.
        pass

    def fit(model, dataset, labels=None, *, validation_data, **_):
        raise Seen(model, dataset, validation_data)

    monkeypatch.setattr(keras.Model, "fit", fit)
    config = RunConfig.from_dict({"tokenizer": {"vocabulary_size": 300}, "training": training})
    with pytest.raises(Seen) as caught:
        train(config, RunDirectory(folder), split=split, say=lambda line: None)
    return caught.value.args


def test_a_training_that_is_stopped_draws_its_curves(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(RunRecorder, "draw_curves", lambda self: drawn.append(self.directory.path))
    what_fit_trains(monkeypatch, tmp_path, {"epochs": 2})
    assert drawn == [tmp_path]


def test_r_drop_shows_each_pair_twice_to_a_loss_that_compares_them(monkeypatch, tmp_path):
    model, *datasets = what_fit_trains(monkeypatch, tmp_path, {"r_drop": 3.0})
    assert isinstance(model.loss, RDropCrossentropy)
    assert (model.loss.alpha, model.loss.label_smoothing) == (3.0, 0.1)
    for data in datasets:
        _, labels = next(data.as_numpy_iterator())
        np.testing.assert_array_equal(labels[::2], labels[1::2])


def test_sampling_splits_the_training_pairs_anew_and_the_validation_pairs_alike(
    monkeypatch, tmp_path
):
    _, *datasets = what_fit_trains(monkeypatch, tmp_path, {"subword_sampling": 0.1})
    training, validation = (
        [
            sorted(tuple(row) for _, labels in data.as_numpy_iterator() for row in labels)
            for _ in range(2)
        ]
        for data in datasets
    )
    assert training[0] != training[1]
    assert validation[0] == validation[1]


def test_a_cooldown_takes_the_last_epochs_updates(monkeypatch, tmp_path):
    settings = {
        "epochs": 4,
        "cooldown_epochs": 2,
        "batches_per_update": 2,
        "tokens_per_batch": 512,
        "bucket_lengths": [32],
        "warmup_steps": 1,
        "peak_learning_rate": 1.0,
    }
    model, data, _ = what_fit_trains(monkeypatch, tmp_path, settings)
    batches = len(data)
    updates = batches // 2
    assert batches % 2 == 0 and updates > 3
    rate = model.optimizer._learning_rate  # Keras asks for the rate of each batch.
    for batch in range(4 * batches):
        update = batch // 2
        left = (4 * updates - update) / (2 * updates)
        expected = min(update, max(update, 1) ** -0.5) * min(1, left)
        assert float(rate(batch)) == pytest.approx(expected, rel=1e-5), batch


@pytest.fixture
def compiled():
    """A small model as a run compiles it, with the settings given."""

    def make(**settings):
        training = RunConfig.from_dict({"training": settings}).training
        size = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 4, "num_heads": 1}
        vocabularies = {"source_vocabulary_size": 5, "target_vocabulary_size": 5}
        model = Seq2SeqTransformer(Seq2SeqConfig.preset("tiny", **vocabularies, **size))
        compile_model(model, training, steps_per_epoch=30)
        model.optimizer.build(model.trainable_variables)
        return model, training

    return make


def rates(model, steps):
    return [float(model.optimizer._learning_rate(step)) for step in steps]


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("schedule", ["inverse_square_root", "noam", "cosine"])
def test_going_on_as_before_changes_no_rate(compiled, schedule, together):
    model, training = compiled(
        epochs=10, schedule=schedule, cooldown_epochs=2, batches_per_update=together
    )
    before = rates(model, range(0, 300, 7))
    model.optimizer._iterations.assign(95)
    go_on_with_learning_rate(model, training, 30, 300 - 95)
    assert rates(model, range(0, 300, 7)) == before


def test_of_the_two_optimisers_of_float16_the_inner_one_counts_the_batches(compiled):
    with computing_in("float16"):
        model, training = compiled(epochs=10, cooldown_epochs=2, precision="float16")
    inner = model.optimizer.inner_optimizer
    before = [float(inner._learning_rate(step)) for step in range(0, 300, 7)]
    inner._iterations.assign(95)
    go_on_with_learning_rate(model, training, 30, 300 - 95)
    assert [float(inner._learning_rate(step)) for step in range(0, 300, 7)] == before


def test_a_cooldown_ends_with_the_training_however_long_its_epochs_were(compiled):
    model, training = compiled(epochs=10, cooldown_epochs=2, warmup_steps=1)
    peak = training.peak_learning_rate
    model.optimizer._iterations.assign(8 * 30)
    go_on_with_learning_rate(model, training, 10, 2 * 10)  # The last two have ten batches each.
    expected = [peak * step**-0.5 * (260 - step) / 20 for step in range(240, 261)]
    np.testing.assert_allclose(rates(model, range(240, 261)), expected, rtol=1e-6)

    model.optimizer._iterations.assign(2)
    go_on_with_learning_rate(model, training, 30, 10)  # Less is left than is to cool down.
    np.testing.assert_allclose(rates(model, [12]), [0])


def test_a_constant_rate_is_the_one_that_is_given_now(compiled):
    model, training = compiled(schedule="constant", peak_learning_rate=0.5)
    model.optimizer.learning_rate = 0.25  # As the checkpoint has it.
    go_on_with_learning_rate(model, training, 30, 30)
    assert float(model.optimizer.learning_rate) == 0.5


@pytest.fixture
def before(monkeypatch, tmp_path):
    """A run to start from: its tokenisers, its model and some weights."""
    model, *_ = what_fit_trains(monkeypatch, tmp_path / "before", {"subword_sampling": 0.1})
    directory = RunDirectory(tmp_path / "before")
    # As a training does: without an optimiser. Keras warns of that where it looks for one.
    weight_files.save_weights(model, directory.best_weights)
    return model, directory


@pytest.mark.slow
def test_a_run_starts_from_the_weights_and_tokenisers_of_another(monkeypatch, tmp_path, before):
    model, directory = before
    new = RunDirectory(tmp_path / "new")
    settings = {"start_from": str(directory.path), "seed": 7}
    started, *_ = what_fit_trains(monkeypatch, new.path, settings, split="train[200:300]")
    assert len(started.weights) == len(model.weights) > 10
    for one, other in zip(started.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(started.optimizer.iterations) == 0
    tokenizers = TokenizerPair.load(directory.tokenizer)
    assert tokenizers == TokenizerPair.load(new.tokenizer)

    # What has begun needs the other run no more.
    shutil.rmtree(directory.path)
    with pytest.raises(UserError, match="before' is not a run directory"):
        require_start(new.read_config(), new)
    new.checkpoints.mkdir()
    (new.checkpoints / "epoch-0001.weights.h5").touch()
    require_start(new.read_config(), new)


def test_a_run_to_start_from_has_to_be_trained_and_alike(tmp_path, before):
    _, directory = before
    config = directory.read_config().replace({"training.start_from": str(directory.path)})
    new = RunDirectory(tmp_path / "new")
    require_start(config, new)
    require_start(config.replace({"model.dropout": 0.5, "model.drop_path": 0.25}), new)
    for key, change in (("tokenizer", "tokenizer.vocabulary_size"), ("model", "model.hidden_dim")):
        with pytest.raises(UserError, match=f"cannot start from .*before' with another '{key}'"):
            require_start(config.replace({change: 40}), new)
    directory.best_weights.unlink()
    with pytest.raises(UserError, match=r"no trained weights in .*before"):
        require_start(config, new)
