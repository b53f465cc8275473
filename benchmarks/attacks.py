"""Everything from outside that is made to harm: what is answered, how soon, how much does it take?

Files of sentence pairs, checkpoints, run directories, arguments of functions and flags of commands,
trainings that are killed or meet another one, full disks, pages with other people's texts, and the
server. Each try has a process of its own. It holds if the file or argument is taken, or refused in
a sentence that can be printed; within five seconds of computing for each megabyte of input, and
within 200 MB more than the process has before. What a part does beside that says its row.

    python benchmarks/attacks.py                      # all; half an hour or more
    python benchmarks/attacks.py --smoke              # a little of each part; minutes
    python benchmarks/attacks.py data --only zip      # one part, or what has a word in its name

At the end it prints a table, and its exit status is 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

from keras_addnorm.basics.printing import printable_lines

SECONDS, MEGABYTES = 5, 200
LONGEST_SENTENCE = 2100
# Errors that are sentences for whoever gave the file; others are faults of the program.
_SENTENCES = (ValueError, OSError, ImportError)


@dataclasses.dataclass(frozen=True)
class Try:
    """One attack.

    Attributes:
        kind: The row of the table that it belongs to.
        name: What it does.
        attack: Does it, in a folder of its own; what it returns was taken.
        make: Makes the files in the folder, in another process.
        seconds: How long it may compute; with files, for each megabyte of them.
        megabytes: How much more memory than before it may take; `None` for any.
        patience: Seconds until it is ended.
    """

    kind: str
    name: str
    attack: Callable[[Path], object]
    make: Callable[[Path], object] = lambda folder: None
    seconds: float = SECONDS
    megabytes: float | None = MEGABYTES
    patience: float = 60


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one try, or of all of a kind: the worst of each figure."""

    name: str
    answer: str
    seconds: float
    megabytes: float
    holds: bool
    tries: int = 1

    def and_also(self, other: Row) -> Row:
        """Returns this row with another try: what does not hold is its answer."""
        worst = other if self.holds and (not other.holds or other.rank > self.rank) else self
        return Row(
            self.name,
            worst.answer,
            max(self.seconds, other.seconds),
            max(self.megabytes, other.megabytes),
            self.holds and other.holds,
            self.tries + other.tries,
        )

    @property
    def rank(self) -> tuple[bool, int]:
        """How bad the answer of a try that holds is: a sentence, the longer the worse."""
        return (self.answer.startswith("said: "), len(self.answer))


def said(error: BaseException | str) -> str:
    """Judges a message that somebody gets."""
    text = str(error)
    if len(text) > LONGEST_SENTENCE or printable_lines(text) != text:
        return f"an error of {len(text):,} characters, or with control characters"
    return f"said: {text}"


def _answer(attack: Callable[[Path], object], folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = attack(folder)
        except _SENTENCES as error:
            return said(error)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            return f"raw: {type(error).__name__} at {where}: {error}"[:300]
    judged = ("said: ", "read: ", "an error of", "raw: ")
    is_judged = isinstance(found, str) and found.startswith(judged)
    return str(found) if is_judged else f"read: {found!r:.40}"


def run(tried: Try, folder: Path, before: float = 0.0) -> Row:
    """Runs an attack in a fork of this process, in `folder`; `before` are the megabytes of it."""
    out, into = os.pipe()
    process = os.fork()
    if not process:
        os.setsid()  # With what it starts, it can be ended.
        os.close(out)
        with os.fdopen(into, "w") as file:
            json.dump(_answer(tried.attack, folder), file)
        os._exit(0)
    os.close(into)
    answers, _, _ = select.select([out], [], [], tried.patience)
    if not answers:
        os.killpg(process, signal.SIGKILL)
    with os.fdopen(out) as file:
        text = file.read()
    _, status, used = os.wait4(process, 0)
    answer = json.loads(text) if text else f"stopped: signal {os.WTERMSIG(status)}"
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1000 - before
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = max(1, sum(path.stat().st_size for path in files) / 1e6)
    holds = (
        answer.startswith(("read", "said: "))
        and seconds <= tried.seconds * size
        and (tried.megabytes is None or megabytes <= tried.megabytes + 5 * size)
    )
    return Row(tried.name, answer, seconds, max(0.0, megabytes), holds)


def attack_all(tries: Iterable[Try], only: str = "") -> dict[str, Row]:
    """Runs tries and says what does not hold; returns the rows of the table by kind."""
    rows: dict[str, Row] = {}
    before = 0.0
    for tried in tries:
        # The first one has imported what all of them share.
        before = before or run(Try("", "nothing", lambda folder: None), Path()).megabytes
        if only not in f"{tried.kind} {tried.name}":
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="attack") as name:
            folder = Path(name)
            # Made by another process, whose memory is not this one's.
            made = run(dataclasses.replace(tried, attack=tried.make, patience=600), folder)
            if not made.answer.startswith("read"):
                raise RuntimeError(f"{tried.name} could not be made: {made.answer}")
            row = run(tried, folder, before)
        known = rows.get(tried.kind)
        named = dataclasses.replace(row, name=tried.kind)
        rows[tried.kind] = named if known is None else known.and_also(named)
        mark = " " if row.holds else "! "
        print(
            f"{mark}{tried.kind}, {tried.name}: {row.seconds:.1f} s, {row.megabytes:.0f} MB "
            f"({time.monotonic() - start:.0f} s): {row.answer[:300]}",
            file=sys.stderr,
            flush=True,
        )
    return rows


def table(rows: Iterable[Row]) -> Iterator[str]:
    """The lines of the table at the end."""
    yield "| attack | tries | holds | s | MB | worst answer |"
    yield "|---|---:|---|---:|---:|---|"
    for row in rows:
        answer = row.answer[:120].replace("|", "/").replace("\n", " ")
        yield (
            f"| {row.name} | {row.tries} | {'yes' if row.holds else 'NO'} | {row.seconds:.1f} | "
            f"{row.megabytes:.0f} | {answer} |"
        )


def _parts() -> dict[str, Callable[[bool], Iterator[Try]]]:
    import attacked_arguments
    import attacked_commands
    import attacked_files

    return {
        "data": attacked_files.data,
        "importer": attacked_files.importer,
        "runs": attacked_files.runs,
        "arguments": attacked_arguments.arguments,
        "resume": attacked_commands.resume,
        "disks": attacked_commands.disks,
        "pages": attacked_commands.pages,
        "server": attacked_commands.server,
    }


def attack_part(part: str, is_smoke: bool, only: str) -> list[Row]:
    """Runs all tries of a part."""
    return list(attack_all(_parts()[part](is_smoke), only).values())


def main() -> int:
    parts = _parts()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], choices=[*parts, []])
    parser.add_argument("--only", default="", help="a word of the names")
    parser.add_argument("--smoke", action="store_true", help="a little of each part")
    options = parser.parse_args()
    # An attack that fills the memory ends there, and nothing else does.
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
    rows: list[Row] = []
    for part in options.parts or parts:
        # Tries are forks of a process that has what the part shares. After another part's
        # TensorFlow it would have threads, and a fork would wait for them in vain.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            rows += process.submit(attack_part, part, options.smoke, options.only).result()
    print("\n".join(table(rows)))
    failed = sum(not row.holds for row in rows)
    print(f"\n{failed} do not hold." if failed else "\nAll hold.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
