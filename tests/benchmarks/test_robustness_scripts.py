"""bit_flips.py, kills.py and attacks.py of benchmarks/: what they count, and what they notice."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"},
        capture_output=True,
        text=True,
        check=False,
    )


class Worker:
    """Answers in turn, and looks at the file that is read."""

    def __init__(self, subject, answers):
        self.subject, self.answers, self.seen, self.loads = subject, [*answers], [], 0

    def ask(self, job):
        if job["do"] == "read":
            return "digest"
        self.seen.append((job["byte"], job["bit"], job["expected"], job["verify"]))
        return self.answers.pop(0)


def test_flips_are_counted_and_bits_put_back(bit_flips, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    subject = bit_flips.Subject("run", str(tmp_path), "a.bin")
    answers = [("named", "x"), ("silent", ""), ("harmless", ""), None, ("not named", "y")]
    worker = Worker(subject, answers)
    found = bit_flips.flip(worker, subject, 5, seed=1, verify=True)
    assert found["counts"] == {
        "named": 1,
        "silent": 1,
        "harmless": 1,
        "raw error": 1,
        "not named": 1,
    }
    assert [line.split(": ", 3)[-1].split(" ")[0] for line in found["said"]] == [
        "silent",
        "raw",
        "not",
    ]
    assert len({*worker.seen}) > 3 and all(0 <= byte < 10 for byte, *_ in worker.seen)
    assert {rest for *_, one, two in worker.seen for rest in [(one, two)]} == {("digest", True)}
    assert (tmp_path / "a.bin").read_bytes() == b"0123456789"
    again = Worker(subject, answers)
    bit_flips.flip(again, subject, 5, seed=1, verify=True)
    assert again.seen == worker.seen


def test_a_reader_is_judged_by_what_it_says(bit_flips, monkeypatch):
    subject = bit_flips.Subject("run", "folder", "tokenizer/tokenizer.model")

    def judged(answer):
        def read(*_):
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(bit_flips, "read", read)
        return bit_flips.judge(subject, "digest", True)[0]

    assert judged("digest") == "harmless"
    assert judged("another") == "silent"
    assert judged(ValueError("'folder/tokenizer/tokenizer.model' is damaged")) == "named"
    assert judged(ValueError("something is damaged")) == "not named"
    assert judged(RuntimeError("tokenizer.model")) == "raw error"


@pytest.mark.release
def test_every_flipped_bit_of_an_import_is_named():
    done = run(ROOT / "benchmarks" / "bit_flips.py", "--of", "import", "--bits", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| import")]
    names = {row[1].strip("`") for row in rows}
    assert {"config.toml", "model.json", "best.weights.h5", "manifest.json"} <= names
    assert all(row[3] == "3" for row in rows if row[1] != "`manifest.json`"), done.stdout


KILLS = """
    import pathlib, random, sys, tempfile, time

    import kills
    from keras_addnorm.basics import atomic_folder

    def export(run, folder):
        version = len(list(folder.glob("[!.]*"))) + 1
        with atomic_folder(folder / str(version)) as inside:
            for name in ("one", "two", "three"):
                time.sleep(0.1)
                (inside / name).write_text(name)

    kills.export, kills.load_run = export, lambda run: run
    kills.load_translator = lambda folder: lambda texts: (folder / "three").read_text()
    chance = random.Random(3)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        assert kills.exports(folder, None, 4, chance) == []
        (folder / "served" / "1" / "one").write_text("changed")
        assert kills.contents(folder / "served" / "1")["one"] == b"changed"
        wrong, run = kills.trainings(folder, 1, chance)
        assert wrong == [], wrong
        other = kills.RunDirectory(folder / "killed-1")
        (other.checkpoints / ".7.left").touch()
        with kills.h5py.File(other.best_weights, "r+") as file:
            file.visititems(lambda name, item: (
                item.write_direct(item[()] + 1) if hasattr(item, "shape") else None
            ))
        assert kills.differences(run, other) == [
            "best.weights.h5 has other bits", ".7.left is left over"
        ]
"""


@pytest.mark.release
def test_what_is_killed_loses_nothing():
    done = run("-c", textwrap.dedent(KILLS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 exports killed, 0 wrong." in done.stdout
    assert "1 of 1 trainings killed" in done.stdout


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ("attack", "answer", "holds"),
    [
        (lambda folder: 3, "read: 3", True),
        (lambda folder: _raise(ValueError("no file")), "said: no file", True),
        (lambda folder: _raise(ValueError("\x1b[2J")), "an error of 4 characters, or with", False),
        (lambda folder: _raise(ValueError("x" * 10**4)), "an error of 10,000 characters", False),
        (lambda folder: _raise(KeyError("a")), "raw: KeyError at test_robust", False),
        (lambda folder: bytearray(400_000_000).count(1), "read: 0", False),
    ],
)
def test_what_an_attack_does_is_seen(attacks, tmp_path, attack, answer, holds):
    before = attacks.run(attacks.Try("", "nothing", lambda folder: None), tmp_path).megabytes
    row = attacks.run(attacks.Try("", "x", attack), tmp_path, before)
    assert row.answer.startswith(answer)
    assert row.holds is holds


def test_the_table_has_the_worst_of_each_kind(attacks):
    def tries():
        yield attacks.Try("a", "one", lambda folder: _raise(ValueError("no")))
        yield attacks.Try("a", "two", lambda folder: _raise(ValueError("no file here")))
        yield attacks.Try("b", "three", lambda folder: (folder / "made").read_text(), _make)
        yield attacks.Try("b", "four", lambda folder: _raise(KeyError("a")))
        yield attacks.Try("b", "five", lambda folder: attacks.time.sleep(60), patience=0.1)
        yield attacks.Try("c", "six", lambda folder: sum(range(10**7)), seconds=0.001)

    rows = attacks.attack_all(tries())
    assert [(row.tries, row.holds) for row in rows.values()] == [(2, True), (3, False), (1, False)]
    assert rows["a"].answer == "said: no file here"
    assert rows["b"].answer.startswith("raw: KeyError at")
    assert attacks.attack_all(tries(), "thr")["b"].answer == "read: 'x'"
    *_, last = attacks.table(rows.values())
    assert last.startswith("| c | 1 | NO | ")


def _make(folder):
    (folder / "made").write_text("x")


@pytest.mark.slow
def test_some_attacks_hold():
    done = run(str(ROOT / "benchmarks/attacks.py"), "data", "--only", "a path for")
    assert done.returncode == 0, done.stdout
    assert "| files of pairs | 1 | yes |" in done.stdout and "All hold." in done.stdout


@pytest.mark.release
@pytest.mark.parametrize("part", ["data", "importer", "runs", "arguments", "disks", "pages"])
def test_a_little_of_each_part_holds(part):
    done = run(str(ROOT / "benchmarks/attacks.py"), part, "--smoke")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_memory_may_grow_in_an_attack_once(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from serving_attacks import holds_out

    def row(memory, p99=20):
        waits = {"p99_ms": p99, "/healthz_ms": 99, "/metrics_ms": 99}
        return {**waits, "lost": 0, "mb": memory, "mb_after": memory}

    assert holds_out([row(900), row(1200), row(1300), row(1250)])
    assert not holds_out([row(900), row(1200), row(1400)])
    assert not holds_out([row(900), row(1200), row(1200, p99=200)])
    assert not holds_out([row(900), row(1200), row(1200) | {"lost": 1}])
