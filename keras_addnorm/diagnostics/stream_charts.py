"""What is drawn of streams and memory: the same for the page and for matplotlib's figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from keras_addnorm.diagnostics.report_data import StreamStatistics, SublayerReport

Values = Sequence[float | None]


@dataclasses.dataclass(frozen=True)
class LineChart:
    """Lines over the sublayers of a stack, by label; `None` is a gap."""

    series: Mapping[str, Values]
    unit: str
    is_log: bool = False


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """A grid of numbers; `None` is a gap.

    Attributes:
        values: By row and column.
        texts: What each cell is.
        row_labels: By row; a label may stand in front of several rows, at a place between them.
        column_labels: By column.
    """

    values: Sequence[Values]
    texts: Sequence[Sequence[str]]
    row_labels: Mapping[float, str]
    column_labels: Mapping[float, str]


Chart = LineChart | HeatMap


def stream_charts(items: Sequence[SublayerReport]) -> dict[str, Chart]:
    """Say what there is to draw."""
    drawn = {name: draw(items) for name, draw in _CHARTS.items()}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _of_each(
    items: Sequence[SublayerReport],
    field: Callable[[StreamStatistics], Sequence[float] | None],
    unit: str,
) -> LineChart | None:
    """A line for each stream."""
    rows = [(field(item.streams) or ()) if item.streams else () for item in items]
    count = max(map(len, rows), default=0)
    if count < 2:
        return None
    series = {
        f"stream {i}": [row[i] if i < len(row) else None for row in rows] for i in range(count)
    }
    return LineChart(series, unit)


def _fields(
    items: Sequence[SublayerReport], fields: Mapping[str, str], unit: str
) -> LineChart | None:
    """A line for each field of the statistics."""
    series = {
        label: [getattr(item.streams, field, None) for item in items]
        for field, label in fields.items()
    }
    if all(value is None for values in series.values() for value in values):
        return None
    return LineChart(series, unit)


def _errors(items: Sequence[SublayerReport]) -> LineChart | None:
    """The errors of the sums, none drawn smaller than float32 can tell from 0."""
    fields = {"row_error": "rows", "column_error": "columns"}
    chart = _fields(items, fields, "largest |sum - 1|")
    if chart is None:
        return None
    series = {
        label: [None if value is None else max(value, 1e-7) for value in values]
        for label, values in chart.series.items()
    }
    return dataclasses.replace(chart, series=series, is_log=True)


def _mixing(items: Sequence[SublayerReport]) -> HeatMap | None:
    """The matrices side by side: a column of them for each layer, a row for each kind."""
    matrices = {
        (item.layer or item.name, item.kind): (item.name, item.streams.mixing)
        for item in items
        if item.streams is not None and item.streams.mixing is not None
    }
    size = max((max(len(one), *map(len, one)) for _, one in matrices.values() if one), default=0)
    if size < 2:
        return None
    layers = list(dict.fromkeys(layer for layer, _ in matrices))
    kinds = list(dict.fromkeys(kind for _, kind in matrices))
    # A gap stands behind each matrix but the last.
    step = size + 1
    height, width = step * len(kinds) - 1, step * len(layers) - 1
    values: list[list[float | None]] = [[None] * width for _ in range(height)]
    texts = [[""] * width for _ in range(height)]
    for (layer, kind), (name, matrix) in matrices.items():
        top, left = step * kinds.index(kind), step * layers.index(layer)
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                values[top + i][left + j] = value
                texts[top + i][left + j] = f"{name}: stream {i} of stream {j}"
    middle = (size - 1) / 2
    return HeatMap(
        values,
        texts,
        {step * i + middle: kind.replace("_", " ") for i, kind in enumerate(kinds)},
        {step * i + middle: layer.rpartition("/")[2] for i, layer in enumerate(layers)},
    )


def _depth(items: Sequence[SublayerReport]) -> HeatMap | None:
    """A row for each sublayer that weighs what was before, a column for each source."""
    rows = {
        item.name: item.streams.depth
        for item in items
        if item.streams is not None and item.streams.depth is not None
    }
    if not rows:
        return None
    count = max(map(len, rows.values()))
    return HeatMap(
        [[*row, *(None,) * (count - len(row))] for row in rows.values()],
        [[f"{name}: source {i}" for i in range(count)] for name in rows],
        {i: name.partition("/")[2] or name for i, name in enumerate(rows)},
        {i: str(i) for i in range(0, count, max(1, count // 12))},
    )


_CHARTS: dict[str, Callable[[Sequence[SublayerReport]], Chart | None]] = {
    "stream_rms": lambda items: _of_each(items, lambda found: found.rms, "root mean square"),
    "stream_cosine": lambda items: _fields(
        items, {"mean_cosine": "mean of all pairs"}, "cosine between streams"
    ),
    "read": lambda items: _of_each(items, lambda found: found.read, "weight"),
    "write": lambda items: _of_each(items, lambda found: found.write, "weight"),
    "mixing": _mixing,
    "mixing_errors": _errors,
    "depth": _depth,
}
TITLES: dict[str, str] = {
    "stream_rms": "size of each stream",
    "stream_cosine": "how alike the streams are",
    "read": "how strongly each stream is read",
    "write": "how strongly each stream is written",
    "mixing": "mixing matrices, by layer and sublayer",
    "mixing_errors": "how far the mixing is from doubly stochastic (1e-7 is rounding)",
    "depth": "weights over what was before, by sublayer and source (0 is the oldest)",
}
