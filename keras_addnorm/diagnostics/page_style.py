"""How charts of a report's page look, and the parts that they share."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_addnorm.diagnostics.report_data import SublayerReport

# Okabe and Ito's palette, which people with every kind of colour vision can tell apart.
BLUE, VERMILION = "#0072B2", "#D55E00"
PALETTE = (BLUE, VERMILION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#000000")
_INK, _GRID = "#1f2933", "#e4e7eb"
_SYMBOLS = {"cross_attention": "diamond", "feed_forward": "square"}

AXIS: dict[str, Any] = {
    "gridcolor": _GRID,
    "zerolinecolor": _GRID,
    "linecolor": _GRID,
    "automargin": True,
}
LAYOUT: dict[str, Any] = {
    "template": "none",
    "autosize": True,
    "font": {"family": "system-ui, 'Segoe UI', Arial, sans-serif", "size": 13, "color": _INK},
    "margin": {"l": 62, "r": 18, "t": 44, "b": 48},
    "paper_bgcolor": "#ffffff",
    "plot_bgcolor": "#ffffff",
    "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": _INK, "font": {"color": _INK}},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
}
SEQUENTIAL = [[0, "#ffffff"], [0.15, "#d5e5f2"], [0.5, "#4b9bcb"], [1, "#08306b"]]
DIVERGING = [[0, VERMILION], [0.5, "#ffffff"], [1, BLUE]]


def stack_name(stack: str) -> str:
    """Return what a caption calls a stack."""
    return stack.replace("_", " ").capitalize() or "Model"


def lines(
    items: Sequence[SublayerReport],
    series: Mapping[str, Sequence[float | None]],
    unit: str,
    scale: dict[str, Any],
) -> dict[str, Any]:
    """Return lines over the sublayers of a stack, as plotly's data and layout."""
    depth = list(range(1, len(items) + 1))
    if scale["type"] == "log":  # Zeros are gaps there.
        series = {
            label: [value if value is not None and value > 0 else None for value in values]
            for label, values in series.items()
        }
    names = [html.escape(item.name) for item in items]
    data = []
    for index, (label, values) in enumerate(series.items()):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label,
                "x": depth,
                "y": list(values),
                "customdata": names,
                "line": {"color": PALETTE[index % len(PALETTE)], "width": 2},
                "marker": {
                    "size": 7,
                    "symbol": [_SYMBOLS.get(item.kind, "circle") for item in items],
                },
                "hovertemplate": f"%{{customdata}}<br>{label}: <b>%{{y:.6g}}</b><extra></extra>",
            }
        )
    starts = [index for index, item in enumerate(items) if _starts_layer(items, index)]
    starts = starts[:: max(1, len(starts) // 9)]
    layout = {
        **LAYOUT,
        "xaxis": {
            **AXIS,
            "title": {"text": "layer"},
            "tickvals": [depth[index] for index in starts],
            "ticktext": [html.escape(_layer_label(items[index])) for index in starts],
            "zeroline": False,
        },
        "yaxis": {
            **AXIS,
            **scale,
            "title": {"text": unit},
            "exponentformat": "power",
        },
    }
    return {"data": data, "layout": layout}


def _starts_layer(items: Sequence[SublayerReport], index: int) -> bool:
    return index == 0 or items[index].layer != items[index - 1].layer or not items[index].layer


def _layer_label(item: SublayerReport) -> str:
    return item.layer.rpartition("/")[2] or item.name


def scale_of(values: Iterable[float | None]) -> dict[str, Any]:
    """Return a logarithmic axis where numbers span more than a power of ten and a half."""
    values = list(values)
    if any(value is not None and value < 0 for value in values):
        return {"type": "linear"}
    shown = [value for value in values if value is not None and 0 < value < math.inf]
    span = math.log10(max(shown) / min(shown)) if shown else 0
    if span < 1.5:
        return {"type": "linear", "rangemode": "tozero"}
    return {"type": "log", "dtick": 1 if span > 3 else "D2"}
