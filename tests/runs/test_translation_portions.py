"""Many texts in portions on the disk: killed, shared, changed, and the same output in the end."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killed_training import config

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.portions import WHOLE, Portions, Share
from keras_addnorm.runs.rows import Rows
from keras_addnorm.runs.translation_portions import in_portions

TEXTS = [f"{'ab' * (number * 5 % 7)}{number}" for number in range(601)]
RESULTS = [[[text[::-1], float(len(text))]] for text in TEXTS]


class KilledError(Exception):
    """In the place of a signal."""


class Turned:
    """A translator that turns texts round, and is killed after some batches."""

    def __init__(self, killed_after=None, model="turned"):
        self.model = model
        self.left = killed_after
        self.seen = []

    def made_from(self):
        return {"model": self.model}

    def job(self):
        return self.fill, {}

    def fill(self, texts, folder, size, share, done):
        rows = Rows(texts)
        Portions(folder, len(rows), size).fill(
            self.compute, rows.read, len, batch_size=50, share=Share(*share), done=done
        )

    def compute(self, batch):
        if self.left == 0:
            raise KilledError
        self.left = self.left and self.left - 1
        self.seen += batch
        return [[(text[::-1], float(len(text)))] for text in batch]


def translated(folder, translator, texts=TEXTS, shard=WHOLE, said=None):
    say = (said if said is not None else []).append
    with in_portions(folder, iter(texts), translator, shard=shard, say=say) as portions:
        return None if portions is None else list(portions)


def test_order_is_kept_and_nothing_stays(tmp_path):
    assert translated(tmp_path / "out", Turned()) == RESULTS
    assert translated(tmp_path / "out", Turned(), []) == []
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("killed_after", [0, 1, 7])
def test_a_killed_work_goes_on(tmp_path, killed_after):
    first, second, said = Turned(killed_after), Turned(), []
    with pytest.raises(KilledError):
        translated(tmp_path / "out", first)
    assert translated(tmp_path / "out", second, said=said) == RESULTS
    assert sorted(first.seen + second.seen) == sorted(TEXTS)  # Nothing twice.
    expected = [f"{len(first.seen)} of 601 texts are there already."] if first.seen else []
    assert said == expected
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_shards_in_any_order_make_the_output_once(tmp_path, order):
    workers = [Turned() for _ in order]
    found = [
        translated(tmp_path / "out", worker, shard=Share(number, 3))
        for number, worker in zip(order, workers, strict=True)
    ]
    assert found == [None, None, RESULTS]
    assert sorted(text for worker in workers for text in worker.seen) == sorted(TEXTS)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("changed", [{"texts": ["other"]}, {"model": "other"}])
def test_other_texts_or_another_model_begin_anew_and_say_so(tmp_path, changed):
    with pytest.raises(KilledError):
        translated(tmp_path / "out", Turned(3))
    texts, said = changed.get("texts", TEXTS), []
    other = Turned(model=changed.get("model", "turned"))
    assert len(translated(tmp_path / "out", other, texts, said=said)) == len(texts)
    assert sorted(other.seen) == sorted(texts)
    assert len(said) == 1 and "translations of other texts, by another model" in said[0]
    assert not [*tmp_path.iterdir()]


def test_what_another_process_is_at_stays(tmp_path):
    """Two commands of one output and two models: each is whole, and neither removes the other's."""

    class Meanwhile(Turned):
        def compute(self, batch):
            if not self.seen:
                assert translated(tmp_path / "out", Turned(model="other")) == RESULTS
            return super().compute(batch)

    assert translated(tmp_path / "out", Meanwhile()) == RESULTS
    assert not [*tmp_path.iterdir()]


def test_a_shard_that_comes_too_late_makes_nothing(tmp_path):
    class Overtaken(Turned):
        def fill(self, **job):
            super().fill(**job)
            assert translated(tmp_path / "out", Turned()) == RESULTS

    # The other one could not remove what this one holds.
    assert translated(tmp_path / "out", Overtaken()) == RESULTS
    assert not [*tmp_path.iterdir()]


def test_texts_that_cannot_be_read_leave_nothing(tmp_path):
    def texts():
        yield "one"
        raise UserError("no text")

    with pytest.raises(UserError, match="no text"):
        translated(tmp_path / "out", Turned(), texts())
    assert not [*tmp_path.iterdir()]


def test_an_error_while_the_output_is_written_keeps_the_translations(tmp_path):
    with (
        pytest.raises(KilledError),
        in_portions(tmp_path / "out", TEXTS, Turned(), say=print),
    ):
        raise KilledError
    again = Turned(0)
    assert translated(tmp_path / "out", again) == RESULTS
    assert not again.seen


COMMAND = [sys.executable, "-W", "ignore", "-m", "keras_addnorm.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """The smallest trained run."""
    from keras_addnorm.runs.train import train

    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    settings = config(corpus).replace({"training.epochs": 1, "evaluation.num_beams": 1})
    train(settings, directory, say=lambda line: None, verbose=0)
    return directory


def lines(count):
    words = ("red", "green", "blue", "big", "a")
    base = len(words)
    return [
        " ".join(words[number // base**place % base] for place in range(1 + number % 7))
        for number in range(count)
    ]


def command(*arguments, **options):
    done = functools.partial(subprocess.run, capture_output=True, text=True, env=ENVIRONMENT)
    found = done([*COMMAND, *map(str, arguments)], **options)
    assert found.returncode == 0, found.stderr
    return found


def killed(arguments, source, folder):
    """Starts a command, and kills it when it has translated some texts."""
    with (
        source.open("rb") as file,
        subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        ) as process,
    ):
        while not any(part.stat().st_size for part in folder.rglob("*.part")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)


def translates_in_portions(run, tmp_path, count):
    """Kills a translation of so many lines by two processes; returns its output in the end."""
    source, output = tmp_path / "lines.en", tmp_path / "lines.de"
    write_text(source, "".join(f"{line}\n" for line in lines(count)))
    arguments = ["translate", run.path, "--scores", "--output", output]
    killed([*arguments, "--processes", "2"], source, tmp_path / "lines.de.portions")
    assert not output.exists()
    with source.open("rb") as file:
        done = command(*arguments, "--processes", "2", stdin=file)
    assert f"of {count:,} texts are there already" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"lines.en", "lines.de"}
    return output.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_two_processes_that_were_killed_say_what_one_says(run, tmp_path):
    found = translates_in_portions(run, tmp_path, 700)
    with (tmp_path / "lines.en").open("rb") as file:
        command("translate", run.path, "--scores", "--output", tmp_path / "one", stdin=file)
    # The score, to four places, tells which line a translation is of.
    assert found == (tmp_path / "one").read_text(encoding="utf-8").splitlines()
    assert len(set(found)) > 100


@pytest.mark.release
def test_shards_of_an_evaluation_score_what_one_command_scores(run, tmp_path):
    split = tmp_path / "dev.tsv"
    write_text(split, "".join(f"{line}\t{line[::-1]}\n" for line in lines(600)))
    arguments = ["evaluate", run.path, "--split", split]
    whole = command(*arguments)
    figures = run.read_scores()[str(split)]
    translations = run.translations.read_bytes()
    run.translations.unlink()
    first = command(*arguments, "--shard", "2/2").stdout
    assert first == "Shard 2 of 2 is translated, not all are: the last one prints the scores.\n"
    assert run.evaluation.exists() and not run.translations.exists()
    last = command(*arguments, "--shard", "1/2")
    assert last.stdout == whole.stdout
    again = run.read_scores()[str(split)]
    assert again.pop("seconds") is None and figures.pop("seconds") > 0
    assert again == figures
    assert run.translations.read_bytes() == translations
    assert not run.evaluation.exists()


@pytest.mark.release
def test_a_hundred_thousand_lines(run, tmp_path):
    found = translates_in_portions(run, tmp_path, 100_000)
    assert len(found) == 100_000
    from keras_addnorm.runs.trained_run import load_run
    from keras_addnorm.runs.translate import n_best_translations

    texts, chosen = lines(100_000), np.random.default_rng(7).integers(0, 100_000, 200)
    expected = n_best_translations(load_run(run), [texts[index] for index in chosen])
    for index, ((text, score),) in zip(chosen, expected, strict=True):
        said, _, rest = found[index].partition("\t")
        assert rest == text
        assert float(said) == pytest.approx(score, abs=2e-4)
