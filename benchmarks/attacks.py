"""Files and arguments from outside that are made to harm: what is answered, how soon, how much?

Each attack is a file of about a megabyte, or an argument, in a process of its own. It holds if the
file is read, or refused in a sentence that can be printed; within five seconds a megabyte, and
within 200 MB more than the process has before.

    python benchmarks/attacks.py                      # all; about ten minutes
    python benchmarks/attacks.py data --only zip      # one part, or those with a word in their name

The exit status is 1 if an attack does not hold. `serving.py --attack` has those on the server.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hostile_data
import hostile_folders

from keras_addnorm.basics.printing import printable_lines

SECONDS, MEGABYTES = 5, 200
_PATIENCE = 60
_LONGEST_SENTENCE = 2100
# Errors that are sentences for whoever gave the file; others are faults of the program.
_SENTENCES = (ValueError, OSError, ImportError)

Attack = Callable[[Path], object]


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of an attack."""

    name: str
    answer: str
    seconds: float
    megabytes: float
    size: float = 0

    @property
    def holds(self) -> bool:
        """Whether nobody was harmed."""
        is_answer = self.answer.startswith(("read", "said: "))
        return (
            is_answer
            and self.seconds <= SECONDS * max(1, self.size)
            and self.megabytes <= MEGABYTES
        )


def _read_pairs(path: Path) -> object:
    """Reads a file as `keras-addnorm data` does."""
    from keras_addnorm.data.loading import open_translation
    from keras_addnorm.data.request import Request

    return sum(1 for _ in open_translation(Request(path, "en", "de")).read("train"))


def _attack_data(name: str, folder: Path) -> object:
    return _read_pairs(folder / hostile_data.FILES[name][0])


def _attacks_on_data() -> Iterator[tuple[str, Callable[[Path], object], Attack]]:
    for name in hostile_data.FILES:
        make = functools.partial(hostile_data.write, name=name)
        yield name, make, functools.partial(_attack_data, name)
    for name, special in hostile_data.SPECIAL.items():
        yield (
            name,
            lambda folder: None,
            lambda folder, special=special: _read_pairs(special(folder)),
        )


def _attack_importer(name: str, folder: Path) -> object:
    """Imports a folder up to its weights: a model of this size is made in no time."""
    from keras_addnorm.interop import load_pretrained

    family = hostile_folders.FOLDERS[name][0]
    named = family if family in ("joey_nmt",) else None
    return type(load_pretrained(folder / family, named)).__name__


def _attacks_on_importer() -> Iterator[tuple[str, Callable[[Path], object], Attack]]:
    # What all need is imported once, and the processes are forks, made before the first tensor.
    import keras_addnorm.interop  # noqa: F401

    for name in hostile_folders.FOLDERS:
        make = functools.partial(hostile_folders.write, name=name)
        yield name, make, functools.partial(_attack_importer, name)


PARTS = {"data": _attacks_on_data, "importer": _attacks_on_importer}


def _answer(attack: Attack, folder: Path) -> str:
    try:
        return f"read: {attack(folder)!r:.40}"
    except _SENTENCES as error:
        said = str(error)
        if len(said) > _LONGEST_SENTENCE or printable_lines(said) != said:
            return f"an error of {len(said):,} characters, or with control characters"
        return f"said: {said}"
    except BaseException as error:
        return f"raw: {type(error).__name__}: {error}"[:300]


def run(name: str, attack: Attack, folder: Path, before: float = 0.0) -> Row:
    """Runs an attack in a fork of this process."""
    out, into = os.pipe()
    start = time.monotonic()
    process = os.fork()
    if not process:
        os.close(out)
        with os.fdopen(into, "w") as file:
            json.dump(_answer(attack, folder), file)
        os._exit(0)
    os.close(into)
    answers, _, _ = select.select([out], [], [], _PATIENCE)
    if not answers:
        os.kill(process, signal.SIGKILL)
    with os.fdopen(out) as file:
        text = file.read()
    _, status, used = os.wait4(process, 0)
    answer = json.loads(text) if text else f"stopped: signal {os.WTERMSIG(status)}"
    return Row(name, answer, time.monotonic() - start, used.ru_maxrss / 1000 - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []])
    parser.add_argument("--only", default="", help="a word of the names")
    options = parser.parse_args()
    # What all attacks need is imported once.
    import keras_addnorm.data.loading  # noqa: F401

    # An attack that fills the memory ends there, and nothing else does.
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
    failed = 0
    print("| attack | holds | s | MB | answer |\n|---|---|---:|---:|---|")
    for part in options.parts or PARTS:
        before = 0.0
        for name, make, attack in PARTS[part]():
            before = before or run("nothing", lambda folder: None, Path()).megabytes
            if options.only not in name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                # Made by another process, whose memory is not this one's.
                run(name, make, Path(folder))
                files = [path for path in Path(folder).rglob("*") if path.is_file()]
                size = sum(path.stat().st_size for path in files) / 1e6
                row = dataclasses.replace(run(name, attack, Path(folder), before), size=size)
            failed += not row.holds
            print(
                f"| {name} | {'yes' if row.holds else 'NO'} | {row.seconds:.1f} | "
                f"{row.megabytes:.0f} | {row.answer[:160]} |",
                flush=True,
            )
    print(f"\n{failed} do not hold." if failed else "\nAll hold.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
