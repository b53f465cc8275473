"""The figures of a report about streams and memory, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_addnorm.diagnostics.figure_parts import draw_lines, new_figure, set_labels
from keras_addnorm.diagnostics.label_fonts import literal
from keras_addnorm.diagnostics.report_data import SublayerReport
from keras_addnorm.diagnostics.stream_charts import (
    TITLES,
    Chart,
    HeatMap,
    LineChart,
    stream_charts,
)


def stream_figures(stacks: Mapping[str, Sequence[SublayerReport]]) -> dict[str, Figure]:
    """Draw what there is, by the names of `TITLES`; nothing for a model of one stream."""
    drawn = {stack: stream_charts(items) for stack, items in stacks.items()}
    figures = {}
    for name in TITLES:
        charts = {stack: found[name] for stack, found in drawn.items() if name in found}
        if charts:
            figures[name] = _figure(name, charts, stacks)
    return figures


def _figure(
    name: str, charts: Mapping[str, Chart], stacks: Mapping[str, Sequence[SublayerReport]]
) -> Figure:
    grids = [_grid(chart) for chart in charts.values() if isinstance(chart, HeatMap)]
    rows, columns = np.max([(0, 0), *(grid.shape for grid in grids)], axis=0)
    width, height = 5.2 + 0.1 * max(0, columns - 30), max(3.6, 1.0 + 0.2 * rows)
    figure = new_figure(width * len(charts), height)
    figure.suptitle(TITLES[name])
    cells = np.concatenate([[0.0], *(grid[np.isfinite(grid)] for grid in grids)])
    limits = (-np.abs(cells).max() if np.any(cells < 0) else 0.0, np.abs(cells).max())
    for number, (stack, chart) in enumerate(charts.items()):
        axes = figure.add_subplot(1, len(charts), number + 1, title=literal(stack))
        if isinstance(chart, LineChart):
            draw_lines(axes, stacks[stack], chart.series)
            axes.set_ylabel(chart.unit)
            axes.set_yscale("log" if chart.is_log else "linear")
        else:
            _draw_map(axes, chart, limits)
    return figure


def _grid(chart: HeatMap) -> np.ndarray:
    return np.array(chart.values, "float64")


def _draw_map(axes: Axes, chart: HeatMap, limits: tuple[float, float]) -> None:
    low, high = limits
    colors = "RdBu" if low < 0 else "Blues"
    image = axes.imshow(_grid(chart), cmap=colors, vmin=low, vmax=high, aspect="auto")
    axes.set_facecolor("#e4e7eb")
    set_labels(axes.set_xticks, chart.column_labels, fontsize=8)
    set_labels(axes.set_yticks, chart.row_labels, fontsize=8)
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes)
