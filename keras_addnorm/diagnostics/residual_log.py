"""The log files of `ResidualMonitor`: `residuals.csv`, and `residuals_streams.csv` beside it."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import LARGEST_WHOLE, to_file, to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_text


@dataclasses.dataclass(frozen=True)
class ResidualRow:
    """One sublayer at one step: one line of the log, its columns in this order.

    Root mean squares and norms are taken over the real (not padded) positions of the probe batch,
    in float32; means, over their channels, too. In a log of before there were means, these are NaN.

    Args:
        step: Number of training steps done, counted over all runs that went on with one another.
        sublayer: `"encoder/0/self_attention"` and so on.
        residual_rms: Root mean square of the stream `x` that enters the Add & Norm.
        branch_rms: That of the sublayer's output `F(x)`.
        merged_rms: That of the stream `y` that leaves it.
        residual_ratio: `||F(x)|| / ||x||`.
        cosine: Mean cosine between `x` and `y`, position by position.
        gradient_norm: Norm of the loss's gradient at `x`.
        residual_mean: Mean of `x`.
        branch_mean: That of `F(x)`.
        merged_mean: That of `y`.
    """

    step: int
    sublayer: str
    residual_rms: float
    branch_rms: float
    merged_rms: float
    residual_ratio: float
    cosine: float
    gradient_norm: float
    residual_mean: float = math.nan
    branch_mean: float = math.nan
    merged_mean: float = math.nan


COLUMNS = tuple(field.name for field in dataclasses.fields(ResidualRow))


@dataclasses.dataclass(frozen=True)
class StreamRow:
    """One number of the streams around a sublayer at one step: one line of the second log.

    Args:
        step: As in `ResidualRow`.
        sublayer: As there.
        quantity: A field of `StreamStatistics`, such as `"rms"` or `"mixing"`.
        index: Which entry of it, from 0: empty for a single number, `"2"` for stream 2, `"0:1"` for
            row 0 and column 1 of a matrix.
        value: The number.
    """

    step: int
    sublayer: str
    quantity: str
    index: str
    value: float


Row = TypeVar("Row", ResidualRow, StreamRow)


class _Log(Generic[Row]):
    """A file: a header, then the rows of step after step."""

    _row: type[Row]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = to_path(path)

    def append(self, rows: Iterable[Row]) -> None:
        """Writes the rows of a step behind the others."""
        text = _lines([dataclasses.astuple(row) for row in rows])
        to_file(self.path)  # At a pipe one would wait.
        if not self.path.exists():
            # A link that leads nowhere is replaced: no file is made where it leads.
            with atomic_file(self.path) as temporary:
                temporary.write_text(_lines([self._columns]) + text, encoding="utf-8", newline="")
            return
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(text)

    def read(self) -> list[Row]:
        """Returns all rows, in the order of the file.

        Returns:
            The rows; none if there is no file.

        Raises:
            ValueError: If the file has other columns, or a value of another kind in them.
        """
        if not self.path.exists():
            return []
        whole: str = read_text(self.path).rpartition("\n")[0]
        try:
            rows = list(csv.reader(io.StringIO(whole)))
        except csv.Error:  # A value without an end.
            rows = []
        header = rows[0] if rows else []
        if tuple(header) not in self._known_columns:
            raise ArgumentError(
                f"{str(self.path)!r} is not a log of ResidualMonitor.",
                f"the columns {', '.join(self._columns)}",
                received=", ".join(header),
            )
        try:
            return [self._read(line) for line in rows[1:]]
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"{str(self.path)!r} is damaged.",
                "a value in each column, as ResidualMonitor writes them",
                because=error,
            ) from error

    def drop_after(self, step: int) -> None:
        """Removes the rows of later steps, which a training that goes on will see again."""
        if not self.path.exists():
            return
        kept: list[tuple[Any, ...]] = [
            dataclasses.astuple(row) for row in self.read() if row.step <= step
        ]
        with atomic_file(self.path) as temporary:
            temporary.write_text(_lines([self._columns, *kept]), encoding="utf-8", newline="")

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(self._row))

    @property
    def _known_columns(self) -> list[tuple[str, ...]]:
        """Those of this version, and of one that had no columns of those with a default."""
        fields = dataclasses.fields(self._row)
        first = [field.name for field in fields if field.default is dataclasses.MISSING]
        return [self._columns, tuple(first)]

    def _read(self, line: list[str]) -> Row:
        if len(line) not in map(len, self._known_columns):
            raise ValueError(f"A row has {len(line):,} values.")
        values = zip(dataclasses.fields(self._row), line, strict=False)
        return self._row(*(_TYPES[str(field.type)](value) for field, value in values))


def _step(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST_WHOLE:
        raise ValueError(f"A step is beyond {LARGEST_WHOLE:,}.")
    return number


_TYPES: dict[str, Callable[[str], Any]] = {"int": _step, "str": str, "float": float}


class ResidualLog(_Log[ResidualRow]):
    """The file: a header, then the rows of step after step.

    The rows of a step are written at once, so that a process that is killed leaves whole lines; a
    line that is not whole all the same (a full disk) is left out when reading and removed by
    `drop_after`.

    Args:
        path: The CSV file; it need not exist yet.

    Example:
        >>> import pathlib, tempfile
        >>> log = ResidualLog(pathlib.Path(tempfile.mkdtemp(), "residuals.csv"))
        >>> log.append([ResidualRow(100, "encoder/0/feed_forward", 1.0, 0.5, 1.1, 0.5, 0.9, 0.02)])
        >>> log.read()[0].residual_ratio
        0.5
    """

    _row = ResidualRow

    @property
    def streams(self) -> StreamLog:
        """The second log, of streams: `residuals_streams.csv` beside `residuals.csv`."""
        return StreamLog(self.path.with_name(f"{self.path.stem}_streams{self.path.suffix}"))


class StreamLog(_Log[StreamRow]):
    """The second file, for schemes of several streams or with a memory: a row for each number.

    It is written and read like `ResidualLog`, and `ResidualLog(path).streams` is the one beside it.

    Args:
        path: The CSV file; it need not exist yet.

    Example:
        >>> import pathlib, tempfile
        >>> log = StreamLog(pathlib.Path(tempfile.mkdtemp(), "residuals_streams.csv"))
        >>> log.append([StreamRow(100, "encoder/0/feed_forward", "mixing", "0:1", 0.25)])
        >>> log.read()[0].index
        '0:1'
    """

    _row = StreamRow


def _lines(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
