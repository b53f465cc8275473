"""What matplotlib's figures of a report share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_addnorm.diagnostics.figure_size import require_drawable
from keras_addnorm.diagnostics.label_fonts import literal
from keras_addnorm.diagnostics.page_style import PALETTE
from keras_addnorm.diagnostics.report_data import SublayerReport

_DOTS = 100  # an inch, of a figure that is saved


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; without pyplot there is no global state and no display needed."""
    require_drawable(
        "this report",
        round(_DOTS * width),
        round(_DOTS * height),
        "Its numbers are in to_dict(), and print(report) shows them.",
    )
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


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
