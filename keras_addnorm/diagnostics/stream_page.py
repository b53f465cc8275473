"""The part of a report's page about streams and memory."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from keras_addnorm.diagnostics.page_style import (
    AXIS,
    DIVERGING,
    LAYOUT,
    SEQUENTIAL,
    lines,
    scale_of,
    stack_name,
)
from keras_addnorm.diagnostics.report_data import SublayerReport
from keras_addnorm.diagnostics.stream_charts import (
    TITLES,
    Chart,
    HeatMap,
    LineChart,
    stream_charts,
)


def stream_section(stacks: Mapping[str, Sequence[SublayerReport]]) -> tuple[str, dict[str, Any]]:
    """Draw what there is.

    Args:
        stacks: The sublayers by stack.

    Returns:
        Boxes as HTML, and by their ids the charts as plotly's data and layout; nothing for a model
        of one stream.
    """
    drawn = [stream_charts(items) for items in stacks.values()]
    boxes, charts = [], {}
    for name, title in TITLES.items():
        # Stacks stand side by side: on one kind of scale they can be compared.
        scale = _scale([found[name] for found in drawn if name in found])
        for number, (stack, items) in enumerate(stacks.items()):
            chart = drawn[number].get(name)
            if chart is None:
                continue
            place = f"{name}-{number}"
            figure = _LINES_OR_MAP[type(chart)](items, chart, scale)
            charts[place] = figure
            is_wide = isinstance(chart, HeatMap) and len(chart.values[0]) > _WIDE
            caption = f"{stack_name(stack)}: {title}"
            boxes.append(_box(place, caption, figure["layout"], is_wide=is_wide))
    return "".join(boxes), charts


def _scale(charts: Sequence[Chart]) -> dict[str, Any]:
    rows = [
        row
        for chart in charts
        for row in (chart.series.values() if isinstance(chart, LineChart) else chart.values)
    ]
    values = [value for row in rows for value in row]
    if any(isinstance(chart, LineChart) and chart.is_log for chart in charts):
        return {"type": "log", "dtick": 1}
    if any(isinstance(chart, LineChart) for chart in charts):
        return scale_of(values)
    shown = [value for value in values if value is not None and math.isfinite(value)]
    high = max([1e-6, *map(abs, shown)])
    if any(value < 0 for value in shown):
        return {"colorscale": DIVERGING, "zmin": -high, "zmax": high}
    return {"colorscale": SEQUENTIAL, "zmin": 0, "zmax": high}


def _lines(
    items: Sequence[SublayerReport], chart: LineChart, scale: dict[str, Any]
) -> dict[str, Any]:
    return lines(items, chart.series, chart.unit, scale)


def _heat_map(
    items: Sequence[SublayerReport], chart: HeatMap, scale: dict[str, Any]
) -> dict[str, Any]:
    trace = {
        "type": "heatmap",
        "z": chart.values,
        "customdata": [[html.escape(text) for text in row] for row in chart.texts],
        "hovertemplate": "%{customdata}<br><b>%{z:.6g}</b><extra></extra>",
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        **scale,
    }
    rows = len(chart.values)
    layout = {
        **LAYOUT,
        # White, where a weight is 0, stands out from the gaps.
        "plot_bgcolor": "#e4e7eb",
        "margin": {"l": 20, "r": 20, "t": 16, "b": 36},
        "xaxis": _labels(chart.column_labels),
        "yaxis": {**_labels(chart.row_labels), "autorange": "reversed"},
        "height": max(220, 70 + max(14, min(24, 600 // rows)) * rows),
    }
    return {"data": [trace], "layout": layout}


def _labels(labels: Mapping[float, str]) -> dict[str, Any]:
    return {
        **AXIS,
        "showgrid": False,
        "zeroline": False,
        "tickvals": list(labels),
        "ticktext": [html.escape(text) for text in labels.values()],
    }


_LINES_OR_MAP: dict[type, Any] = {LineChart: _lines, HeatMap: _heat_map}


_WIDE = 45
"""Columns of a heat map, from which on it takes the whole width of the page."""


def _box(place: str, caption: str, layout: dict[str, Any], *, is_wide: bool) -> str:
    height = f' style="height: {layout["height"]}px"' if "height" in layout else ""
    kind = ' class="wide"' if is_wide else ""
    return (
        f'<figure{kind}><figcaption id="{place}-caption">{html.escape(caption)}</figcaption>'
        f'<div class="chart"{height} id="{place}" role="img" tabindex="0" '
        f'aria-labelledby="{place}-caption"></div></figure>'
    )
