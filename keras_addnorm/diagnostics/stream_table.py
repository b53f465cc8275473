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


def stream_table(sublayers: Sequence[SublayerReport]) -> list[str]:
    """Return the lines: a row a sublayer, the columns that any of them has; often none.

    Args:
        sublayers: Those of the report.

    Returns:
        An empty line and the table, or nothing for a model of one stream.
    """
    found = {item.name: item.streams for item in sublayers if item.streams is not None}
    cells = {
        title: column
        for title, show in _COLUMNS.items()
        if any(column := [show(streams) for streams in found.values()])
    }
    if not cells:
        return []
    columns = [["streams", *found], *([title, *column] for title, column in cells.items())]
    widths = [max(map(len, column)) for column in columns]
    return [
        "",
        *(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in zip(*columns, strict=True)
        ),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _range(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    low, high = _number(min(values)), _number(max(values))
    return low if low == high else f"{low} to {high}"
