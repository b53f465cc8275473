"""What matplotlib's figures of a report share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_addnorm.diagnostics.label_fonts import literal
from keras_addnorm.diagnostics.page_style import PALETTE
from keras_addnorm.diagnostics.report_data import SublayerReport

_LONGEST, _LARGEST = 300, 3300  # inches, and square inches: 33 million pixels, of 100 an inch
_MOST_LABELS = 300  # of an axis: each takes milliseconds


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; without pyplot there is no global state and no display needed."""
    # A smaller one of very much is still to be seen, and does not take all memory.
    width, height = min(width, _LONGEST), min(height, _LONGEST)
    share = min(1, (_LARGEST / (width * height)) ** 0.5)
    width, height = share * width, share * height
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def set_labels(
    set_ticks: Callable[..., object],
    labels: Mapping[float, str],
    write: Callable[[str], str] = literal,
    **style: Any,
) -> None:
    """Label places of an axis; of very many, some of them, evenly chosen."""
    places = list(labels)[:: 1 + len(labels) // _MOST_LABELS]
    set_ticks(places, [write(labels[place]) for place in places], **style)


def draw_lines(
    axes: Axes, items: Sequence[SublayerReport], series: Mapping[str, Sequence[float | None]]
) -> None:
    """Draw lines over the sublayers of a stack, by label; `None` is a gap."""
    depth = range(1, len(items) + 1)
    for index, (label, values) in enumerate(series.items()):
        shown = [np.nan if value is None else value for value in values]
        color = PALETTE[index % len(PALETTE)]
        axes.plot(depth, shown, marker="o", markersize=4, color=color, label=label)
    step = max(1, len(items) // 12)
    labels = [
        literal(f"{item.layer.rpartition('/')[2]} {item.kind}".strip()) for item in items[::step]
    ]
    axes.set_xticks(depth[::step], labels, rotation=60, ha="right", fontsize=8)
    axes.grid(color="#e4e7eb")
    axes.legend(frameon=False)
