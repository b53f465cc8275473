"""Which reports can be drawn: not as much as a file says, at any size."""

from __future__ import annotations

from collections.abc import Iterable

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.report_data import ReportData, SublayerReport, by_stack

# Of all maps and lines over the sublayers: those of some thousand sublayers.
_MOST_CELLS = 1_000_000
# Each is a chart of its own, which takes milliseconds.
_MOST_STACKS, _MOST_HEADS = 50, 3000


def require_moderate(report: ReportData) -> None:
    """Refuse a report whose maps would have far more cells than it has numbers.

    A map has a row for each layer and a column for each kind of sublayer, whichever there are, and
    as much room for each as the largest needs.

    Args:
        report: The report.

    Raises:
        ValueError: If they would have too many.
    """
    stacks = by_stack(report.sublayers)
    cells = sum(map(_cells, stacks.values()))
    heads = sum(len(found.weights) for found in report.attention_maps)
    for what, count, most in (
        ("cells in the maps of layers, streams and depth", cells, _MOST_CELLS),
        ("stacks of layers", len(stacks), _MOST_STACKS),
        ("heads in the maps of attention", heads, _MOST_HEADS),
    ):
        if count > most:
            raise ArgumentError(
                "The report is too large to be drawn.",
                f"at most {most:,} {what}",
                "Its numbers are in to_dict(), and print(report) shows them.",
                received=f"{count:,}",
            )


def _cells(items: list[SublayerReport]) -> int:
    places = len({item.layer or item.name for item in items}) * len({item.kind for item in items})
    found = [item.streams for item in items if item.streams is not None]
    lists = ([one.rms, one.read or (), one.write or (), one.depth or ()] for one in found)
    matrices = [one.mixing or () for one in found]
    mixing = max(_longest(matrices), *(_longest(each) for each in matrices), 0)
    longest = sum(map(_longest, zip(*lists, strict=True)))
    return places * (1 + (mixing + 1) ** 2 * bool(mixing)) + len(items) * (1 + longest)


def _longest(lists: Iterable[tuple[object, ...]]) -> int:
    return max(map(len, lists), default=0)
