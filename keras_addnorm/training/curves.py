"""Plots a training log."""

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class _Panel:
    """One panel: its title, its columns in the log, and how they are drawn.

    Attributes:
        title: Above the panel.
        columns: Columns drawn, if the log has them, with their legend.
        best: min or max: which value of the last column is marked.
        format: How the marked value is written.
        scale: linear, percent or log.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    best: str
    format: str
    scale: str = "linear"


def _both(name: str) -> tuple[tuple[str, str], ...]:
    return ((name, "training"), (f"val_{name}", "validation"))


_PANELS = (
    _Panel("Loss per token", _both("loss"), "min", "{:.4g}"),
    _Panel("Accuracy per token", _both("accuracy"), "max", "{:.1%}", scale="percent"),
    _Panel("Perplexity", _both("perplexity"), "min", "{:.2f}", scale="log"),
    _Panel("Translations", (("val_chrf", "chrF"), ("val_bleu", "BLEU")), "max", "{:.1f}"),
)

_COLORS = ("#9aa5b1", "#1f5fa8")  # quiet for the training curve, strong for the one that counts
_INK = "#333f4b"
# What a picture has room for: of a value, and of the number of an epoch or an update.
_LARGEST, _LAST_PLACE = 1e100, 1 << 53


def plot_curves(csv_path: str | os.PathLike[str], png_path: str | os.PathLike[str]) -> Path:
    r"""Draws the log of a training, as `keras.callbacks.CSVLogger` writes it, to a PNG.

    One panel each for loss, accuracy, perplexity and translation scores, as far as the log has
    them; the best value of each panel's main curve is marked. Epochs are counted from 1; a log with
    a column `updates`, of a run that validates by updates, is drawn over these. Missing values
    (`NA`, NaN, empty), and those beyond 1e100 or -1e100, leave no point. When a resumed run logged
    an epoch again, the later line counts.

    Args:
        csv_path: The log.
        png_path: The picture; renamed into place when whole.

    Returns:
        The path of the picture.

    Raises:
        ValueError: If the log has no column `epoch`, no row, or nothing that could be drawn.
        FileNotFoundError: If there is no log.

    Example:
        >>> import pathlib, tempfile
        >>> from keras_addnorm.training import plot_curves
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> text = "epoch,loss,val_loss\n0,2.0,2.1\n1,1.0,1.5\n"
        >>> _ = (folder / "log.csv").write_text(text)
        >>> plot_curves(folder / "log.csv", folder / "curves.png").name
        'curves.png'
    """
    # Imported here, and without pyplot: no global state, no display, nothing for training to wait.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    unit, series = _read(to_path(csv_path))
    panels = [p for p in _PANELS if any(series.get(name) for name, _ in p.columns)]
    if not panels:
        known = ", ".join(name for panel in _PANELS for name, _ in panel.columns)
        raise ArgumentError(
            f"The log {csv_path} has nothing to draw.",
            f"a column out of {known}",
            received=", ".join(series) or "none",
        )
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.2 * columns, 3.3 * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for index, panel in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, index + 1), panel, series, unit)
    with atomic_file(png_path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    return to_path(png_path)


Points = list[tuple[int, float]]


def _read(path: Path) -> tuple[str, dict[str, Points]]:
    """What a log counts in, and its columns as points (place, value) without the missing ones."""
    try:
        lines = list(filter(None, csv.reader(io.StringIO(read_text(path), newline=""))))
    except csv.Error as error:
        raise ArgumentError(
            f"{path} is not a training log: it is no CSV.", because=error
        ) from error
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    columns = {name: index for index, name in enumerate(header)}
    if "epoch" not in columns or not rows:
        raise ArgumentError(
            f"{path} is not a training log: expected a column 'epoch' and at least one row, as "
            "keras.callbacks.CSVLogger writes.",
            received=f"columns {header} and {len(rows)} rows",
        )
    has_updates = "updates" in columns
    counted, unit, first = ("updates", "update", 0) if has_updates else ("epoch", "epoch", 1)
    try:
        by_place = {_place(_cell(row, columns[counted])) + first: row for row in rows}
    except ValueError as error:
        raise ArgumentError(
            f"{path} is not a training log: a row has no number of its epoch or update.",
            because=error,
        ) from error
    ordered = sorted(by_place.items())
    drawn = {name for panel in _PANELS for name, _ in panel.columns}
    # Not each column of each row: a header may have more of them than all rows have values.
    return unit, {
        name: [
            (place, value)
            for place, row in (ordered if name in drawn else ())
            if abs(value := _number(_cell(row, index))) <= _LARGEST
        ]
        for name, index in columns.items()
        if name not in ("epoch", "updates")
    }


def _cell(row: Sequence[str], index: int) -> str:
    return row[index] if index < len(row) else ""


def _place(text: str) -> int:
    number = float(text)
    if abs(number) > _LAST_PLACE:
        raise ValueError(f"{number:g} is beyond {_LAST_PLACE:,}")
    return int(number)


def _number(text: str) -> float:
    try:
        return float(text or "nan")
    except ValueError:  # CSVLogger writes NA where an epoch has no value.
        return math.nan


def _draw(axes: "Axes", panel: _Panel, series: dict[str, Points], unit: str) -> None:
    """Draws one panel and marks the best point of its last curve."""
    from matplotlib.ticker import MaxNLocator

    drawn = [
        (label, series[name], color)
        for (name, label), color in zip(panel.columns, _COLORS, strict=True)
        if series.get(name)
    ]
    for label, points, color in drawn:
        marker = "o" if len(points) <= 40 else None
        axes.plot(*zip(*points, strict=True), color=color, label=label, marker=marker, ms=3, lw=1.8)
    axes.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", color=_INK)
    _scale(axes, panel.scale)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(unit, color=_INK)
    axes.tick_params(colors=_INK, length=0)
    axes.grid(axis="y", color="#e4e8ec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#cbd2d9")
    _mark_best(axes, panel, unit, *drawn[-1])
    axes.legend(frameon=False, labelcolor=_INK, fontsize=9)


def _scale(axes: "Axes", scale: str) -> None:
    """Sets the vertical axis, with labels that are read without a legend."""
    from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter, StrMethodFormatter

    if scale == "percent":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    elif scale == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def _mark_best(
    axes: "Axes", panel: _Panel, unit: str, label: str, points: Points, color: str
) -> None:
    """Rings the best point and says its value and place in the corner above the panel."""
    choose = min if panel.best == "min" else max
    place, value = choose(points, key=lambda point: point[1])
    axes.plot([place], [value], "o", ms=8, mfc="white", mec=color, mew=1.8, zorder=3)
    text = f"best {label} {panel.format.format(value)}, {unit} {place:,}"
    axes.set_title(text, loc="right", fontsize=9, color=color)
