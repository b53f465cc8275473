"""The part of a printed report about heads: which of them looks where a simple rule says."""

from __future__ import annotations

from collections.abc import Sequence

from keras_addnorm.diagnostics.report_data import AttentionStatistics, SublayerReport

_EVEN = "even"
_CAPTION = (
    "Heads, by the weight on one token: the head that has most, and its mean weight. "
    "even: a head that looks everywhere evenly."
)


def head_table(sublayers: Sequence[SublayerReport]) -> list[str]:
    """Return the lines: an empty one, a caption and a row an attention; none without heads."""
    rows = {item.name: item.attention for item in sublayers if item.attention is not None}
    names = list(dict.fromkeys(name for found in rows.values() for name in found.patterns or ()))
    if not names:
        return []
    names.sort(key=lambda name: name == _EVEN)
    width = max(map(len, rows))
    lines = [" ".join([f"{'heads':{width}}", *(f"{name:>14}" for name in names)])]
    for sublayer, found in rows.items():
        cells = [f"{_best(found, name):>14}" for name in names]
        lines.append(" ".join([f"{sublayer:{width}}", *cells]).rstrip())
    return ["", _CAPTION, *lines]


def _best(found: AttentionStatistics, name: str) -> str:
    heads = (found.patterns or {}).get(name)
    if not heads:
        return ""
    best = max(heads)
    return f"{best:.2f}" if name == _EVEN else f"{best:.2f} (head {heads.index(best) + 1})"
