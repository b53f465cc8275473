"""Work on many texts in portions: kept on disk batch by batch, and resumed where it was killed.

A portion is a file of results, one a line, in the order of the texts. One that is not finished is a
`.part` file, to which each batch is added as a whole. So a killed process loses the batch that it
was at, and nothing that is written is computed again. Portions may be shared among processes, also
of several machines: each takes every n-th.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from keras_addnorm.basics.argument_checks import is_whole, to_file
from keras_addnorm.basics.atomic import atomic_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.basics.locks import lock_soon
from keras_addnorm.basics.text import encodable_text
from keras_addnorm.runs.worker_processes import in_processes, shares_of_cores

Item = TypeVar("Item")

TEXTS_IN_PORTION = 1024
"""Enough that texts of similar length share batches, and few enough to be sorted in memory."""

# What a killed process has at work it may hold a moment longer than it lives.
_SECONDS_OF_ENDING = 10.0


@dataclass(frozen=True)
class Share:
    """Which portions a process works on: the one of this number, and each `count`-th after it.

    Attributes:
        number: From 0.
        count: How many share the work.

    Raises:
        ValueError: If there is no such share.
    """

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not is_whole(self.count, 1) or not is_whole(self.number, 0) or self.number >= self.count:
            raise ArgumentError(
                "A share is one of several.",
                "a whole `number` of 0 or more, and a larger `count`",
                number=self.number,
                count=self.count,
            )

    def part(self, number: int, count: int) -> Share:
        """One of several parts of this share."""
        return Share(self.number + self.count * number, self.count * count)


WHOLE = Share()


def is_anything(result: Any) -> bool:
    """Takes any value that JSON has."""
    return True


def is_translation(result: Any) -> bool:
    """Tells a text with its score, and with its nearness to a reference where that was asked."""
    return (
        isinstance(result, list)
        and len(result) in (2, 3)
        and isinstance(result[0], str)
        and encodable_text(result[0]) == result[0]
        and result[1] is not None
        and all(map(is_score, result[1:]))
    )


def are_translations(result: Any) -> bool:
    """Tells the translations of a text, of which there is one or more."""
    return isinstance(result, list) and bool(result) and all(map(is_translation, result))


def is_score(result: Any) -> bool:
    """Tells a number, or that there is none."""
    return result is None or (isinstance(result, int | float) and not isinstance(result, bool))


@dataclass(frozen=True)
class Portions(Generic[Item]):
    """The results of a piece of work on each of many texts, in a folder.

    Attributes:
        folder: The folder, which belongs to this piece of work alone.
        total: The number of texts.
        size: The number of texts in a portion.
        is_result: Tells a result from what only looks like one: the folder may be somebody else's.

    Example:
        >>> import tempfile
        >>> portions = Portions(tempfile.mkdtemp(), total=5, size=2)
        >>> texts = ["one", "three", "four", "two", "eleven"]
        >>> upper = lambda some: [text.upper() for text in some]
        >>> portions.fill(upper, lambda those: texts[those.start : those.stop], len, batch_size=1)
        >>> list(portions)
        ['ONE', 'THREE', 'FOUR', 'TWO', 'ELEVEN']
    """

    folder: str | os.PathLike[str]
    total: int
    size: int = TEXTS_IN_PORTION
    is_result: Callable[[Any], bool] = is_anything

    @property
    def count(self) -> int:
        """The number of portions."""
        return -(-self.total // self.size)

    def texts_of(self, number: int) -> range:
        """The numbers of the texts of a portion."""
        return range(number * self.size, min(self.total, (number + 1) * self.size))

    def fill(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Any]],
        read: Callable[[range], Sequence[Item]],
        length: Callable[[Item], int],
        *,
        batch_size: int,
        share: Share = WHOLE,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        """Computes the results that are not there.

        Args:
            compute: Takes a batch of texts; returns the result of each, as JSON has it.
            read: Takes numbers of texts; returns these texts.
            length: The length of a text: those of similar length share a batch.
            batch_size: The number of texts in a batch. Which texts share one follows from it alone:
                after a kill they are those that they would have been.
            share: Which portions to work on.
            done: Is called after each batch.

        Raises:
            UserError: If another process is at work on the same portion.
        """
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        for number in self.of(share):
            if not self._finished(number).exists():
                self._fill(number, compute, read, length, batch_size, done)

    def of(self, share: Share) -> range:
        """The numbers of the portions of a share."""
        return range(share.number, self.count, share.count)

    def has(self, share: Share) -> bool:
        """Whether all results of a share are there."""
        return all(self._finished(number).exists() for number in self.of(share))

    def count_done(self) -> int:
        """Counts the results that are written."""
        done = 0
        for number in range(self.count):
            if self._finished(number).exists():
                done += len(self.texts_of(number))
            elif (part := self._part(number)).exists():
                # Of a batch that was half written some results come twice.
                lines = to_file(part).read_bytes().count(b"\n")
                done += min(lines, len(self.texts_of(number)))
        return done

    @property
    def is_full(self) -> bool:
        """Whether all results are there."""
        return self.has(WHOLE)

    def __iter__(self) -> Iterator[Any]:
        """Reads all results in the order of the texts; a `DamagedFileError` names a bad file."""
        for number in range(self.count):
            yield from self.read(number)

    def read(self, number: int) -> list[Any]:
        """Reads the results of a portion."""
        path, expected = self._finished(number), len(self.texts_of(number))
        try:
            *lines, digest = to_file(path).read_bytes().splitlines()
            if json.loads(digest) != _digest(lines):
                reason = "its content has changed since it was written"
            elif len(lines) != expected:
                reason = f"it has {len(lines):,} results, and {expected:,} were expected"
            else:
                results = [json.loads(line) for line in lines]
                if all(map(self.is_result, results)):
                    return results
                reason = "it has something else than results"
        except FileNotFoundError:
            reason = "there is no such file"
        except (ValueError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise DamagedFileError(
            f"The results '{path}' cannot be read: {reason}. Remove the file: the same command "
            "makes it anew, and no other."
        )

    def _finished(self, number: int) -> Path:
        return Path(self.folder, f"{number:07d}.jsonl")

    def _part(self, number: int) -> Path:
        return Path(self.folder, f"{number:07d}.part")

    def _fill(
        self,
        number: int,
        compute: Callable[[Sequence[Item]], Sequence[Any]],
        read: Callable[[range], Sequence[Item]],
        length: Callable[[Item], int],
        batch_size: int,
        done: Callable[[], object],
    ) -> None:
        items = read(self.texts_of(number))
        order = sorted(range(len(items)), key=lambda index: length(items[index]))
        part = self._part(number)
        # What is added behind a hard link would be added to the other file, too.
        if part.is_symlink() or (part.is_file() and part.stat().st_nlink > 1):
            raise UserError(f"{str(part)!r} is a link. Expected a file of results. Remove it.")
        with to_file(part).open("ab") as file:
            if not lock_soon(file.fileno(), _SECONDS_OF_ENDING):
                raise UserError(
                    f"Another process is at work on {str(part)!r}. Wait for it, or stop it: the "
                    "same command goes on where it was."
                )
            if self._finished(number).exists():  # The other process has just done it.
                part.unlink(missing_ok=True)
                return
            found = _read_part(part, len(items), self.is_result)
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                if found.keys() >= set(batch):
                    continue
                rows = list(zip(batch, compute([items[i] for i in batch]), strict=True))
                file.write(b"".join(_line(row) for row in rows))
                file.flush()
                found.update(rows)
                done()
            lines = [_line(found[index]).rstrip(b"\n") for index in range(len(items))]
            with atomic_file(self._finished(number)) as temporary:
                temporary.write_bytes(b"\n".join([*lines, _line(_digest(lines))]))
            part.unlink(missing_ok=True)


def fill_in_processes(
    function: Callable[..., object],
    job: Mapping[str, Any],
    portions: Portions[Any],
    processes: int,
    done: Callable[[], object],
    share: Share = WHOLE,
) -> None:
    """Fills portions with a function of this package, in this process or in several.

    Args:
        function: Takes the job's arguments, and `share`, the two numbers of a `Share`; in this
            process also `done`.
        job: Its arguments, as JSON has them.
        portions: What it fills.
        processes: The number of processes.
        done: Is called now and then.
        share: Which portions to work on.
    """
    if portions.has(share):
        return
    processes = min(processes, len(portions.of(share)))
    shares = [dataclasses.astuple(share.part(number, processes)) for number in range(processes)]
    if processes == 1:
        function(**job, share=shares[0], done=done)
        return
    jobs = [{**job, "share": one} for one in shares]
    place = f"{function.__module__}:{function.__qualname__}"
    in_processes(place, jobs, shares_of_cores(processes), done)


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode() + b"\n"


def _digest(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def _read_part(path: Path, size: int, is_result: Callable[[Any], bool]) -> dict[int, Any]:
    """Reads what a killed process has left of a portion; cuts off what is not a whole line."""
    found: dict[int, Any] = {}
    whole = 0
    content = path.read_bytes() if path.exists() else b""
    for line in content.splitlines(keepends=True):
        try:
            index, result = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            break
        is_of_text = line.endswith(b"\n") and is_whole(index, 0) and index < size
        if not is_of_text or not is_result(result):
            break
        found[index] = result
        whole += len(line)
    if whole < len(content):
        os.truncate(path, whole)
    return found
