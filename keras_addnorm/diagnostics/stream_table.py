"""The part of a printed report about streams and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keras_addnorm.diagnostics.report_data import StreamStatistics, SublayerReport

_COLUMNS: dict[str, Callable[[StreamStatistics], str]] = {
    "rms": lambda found: _range(found.rms),
    "memory rms": lambda found: _range(found.memory_rms),
    "cos": lambda found: _number(found.mean_cosine),
    "read": lambda found: _range(found.read),
    "write": lambda found: _range(found.write),
    "row err": lambda found: _number(found.row_error),
    "col err": lambda found: _number(found.column_error),
    "depth": lambda found: _range(found.depth),
    "entropy": lambda found: _number(found.depth_entropy),
}


def stream_columns(sublayers: Sequence[SublayerReport]) -> dict[str, list[str]]:
    """Return columns by title, a cell a sublayer: those that any has, often none."""
    columns = {
        title: ["" if item.streams is None else show(item.streams) for item in sublayers]
        for title, show in _COLUMNS.items()
    }
    return {title: cells for title, cells in columns.items() if any(cells)}


def stream_table(sublayers: Sequence[SublayerReport]) -> list[str]:
    """Return the lines: an empty one and the table, or nothing for a model of one stream."""
    columns = stream_columns(sublayers)
    if not columns:
        return []
    named = {"streams": [item.name for item in sublayers], **columns}
    padded: list[list[str]] = []
    for title, cells in named.items():
        width = max(map(len, [title, *cells]))
        pad = str.rjust if padded else str.ljust
        padded.append([pad(cell, width) for cell in [title, *cells]])
    return ["", *("  ".join(row).rstrip() for row in zip(*padded, strict=True))]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _range(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    low, high = _number(min(values)), _number(max(values))
    return low if low == high else f"{low} to {high}"
