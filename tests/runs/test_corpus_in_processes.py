"""`keras-addnorm data` in several processes: the report and the copy of one, to the byte."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.forked_map import map_in_order

EXAMINE = """
import os, sys
from keras_addnorm.runs import corpus_report
corpus_report._PAIRS_IN_CHUNK = 7
original = corpus_report.spoiling_faults
def spoiling(*arguments):
    print(os.getpid(), file=sys.stderr)
    return original(*arguments)
corpus_report.spoiling_faults = spoiling
corpus = corpus_report.CorpusSplits.opened(["corpus"], source="en", target="de")
processes = int(sys.argv[1])
report = corpus_report.examine(corpus, processes)
print(report)
print([vars(one) for one in report.splits])
print(corpus_report.write_clean(corpus, report, sys.argv[2], ["copies"], processes))
"""
# Each stands in several chunks.
PAIRS = (
    ("A red house stands here.", "Hier steht ein rotes Haus."),
    ("The same text on both sides.", "The same text on both sides."),
    ("A caf\u00c3\u00a9 in Lyon, for example.", "Ein Caf\ufffd in Lyon zum Beispiel."),
    ("Short, is it not so?", "Dies ist auf der anderen Seite sehr viel länger. " * 3),
    ("Another script in this line.", "Это строка на другом языке."),
    ("Nothing beside it", ""),
    ("Zero\u200bwidth is in the text", "Das ist unsichtbar im Text"),
    ("The first line of the test set", "Die erste Zeile des Testsatzes"),
    ("The last line of the test set", "Die letzte Zeile des Testsatzes"),
)
HELD_OUT = PAIRS[-2]


def write_corpus(folder):
    pairs = [(f"Line {number} is short.", f"Zeile {number} ist kurz.") for number in range(200)]
    for place, pair in enumerate(PAIRS):
        for start in (20, 90, 95):
            pairs.insert(start + 3 * place, pair)
    folder.mkdir()
    for split, some in {"train": pairs, "test": [HELD_OUT], "val": pairs[3:9]}.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def run(folder, program, *arguments):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_several_processes_say_and_write_what_one_does(tmp_path):
    write_corpus(tmp_path / "corpus")
    one, three = (run(tmp_path, EXAMINE, count, f"clean{count}") for count in (1, 3))
    assert three.stdout.replace("clean3", "clean1") == one.stdout
    for fault in ("duplicates", "copies", "broken_text", "wrong_script", "near_held_out"):
        assert f"  {fault} " in one.stdout
    assert len(set(one.stderr.split())) == 1
    assert len(set(three.stderr.split())) > 1
    names = {path.name for path in (tmp_path / "clean1").iterdir()}
    assert names == {"train.en", "train.de", "test.en", "test.de", "val.en", "val.de"}
    for name in names:
        expected = (tmp_path / "clean1" / name).read_bytes()
        assert (tmp_path / "clean3" / name).read_bytes() == expected


def test_what_a_process_raises_is_raised_and_a_killed_one_is_named(tmp_path):
    program = """
import os, signal
from keras_addnorm.runs.forked_map import map_in_order
def work(item):
    if item == 5:
        raise ValueError("five")
    if item == 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item
def tried(items):
    found = []
    try:
        for pair in map_in_order(work, items, 2):
            found.append(pair)
    except Exception as error:
        print(type(error).__name__, error)
    return found
assert tried(range(5)) == [(n, n * n) for n in range(5)]
assert tried(range(9)) == [(n, n * n) for n in range(5)]
assert not tried(range(50, 90))
assert tried([3]) == [(3, 9)]
"""
    first, second = run(tmp_path, program).stdout.splitlines()
    assert first == "ValueError five"
    assert second.startswith("UserError A process of this command was killed")


def test_processes_end_with_the_one_that_started_them(tmp_path):
    program = """
import os, time
from keras_addnorm.runs.forked_map import map_in_order
def work(item):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
next(map_in_order(work, range(9), 2))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        workers = [int(process.stdout.readline()) for _ in range(2)]
        assert process.pid not in workers
        process.kill()
    deadline = time.monotonic() + 30
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_where_a_copy_of_this_process_would_not_work_it_does_all_itself():
    import tensorflow  # noqa: F401

    def work(item):
        if item == 3:
            raise UserError("three")
        return os.getpid()

    assert list(map_in_order(work, range(3), 2)) == [(item, os.getpid()) for item in range(3)]
    with pytest.raises(UserError, match="three"):
        list(map_in_order(work, range(5), 2))
