"""The part of a report about heads: which of them looks where a simple rule says."""

from __future__ import annotations

from collections.abc import Sequence

from keras_addnorm.diagnostics.report_data import AttentionStatistics, SublayerReport

_EVEN = "even"
HEADS_CAPTION = (
    "Heads, by the weight on one token: the head that has most, and its mean weight. "
    "even: a head that looks everywhere evenly."
)


def head_rows(sublayers: Sequence[SublayerReport]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the rules, and by attention a cell for each; no rules without heads."""
    found = {item.name: item.attention for item in sublayers if item.attention is not None}
    rules = list(dict.fromkeys(rule for each in found.values() for rule in each.patterns or ()))
    rules.sort(key=lambda rule: rule == _EVEN)
    return rules, {name: [_best(each, rule) for rule in rules] for name, each in found.items()}


def head_table(sublayers: Sequence[SublayerReport]) -> list[str]:
    """Return the lines: an empty one, a caption and a row an attention; none without heads."""
    rules, rows = head_rows(sublayers)
    if not rules:
        return []
    width = max(map(len, rows))
    lines = [
        " ".join([f"{name:{width}}", *(f"{cell:>14}" for cell in cells)]).rstrip()
        for name, cells in {"heads": rules, **rows}.items()
    ]
    return ["", HEADS_CAPTION, *lines]


def _best(found: AttentionStatistics, rule: str) -> str:
    heads = (found.patterns or {}).get(rule)
    if not heads:
        return ""
    best = max(heads)
    return f"{best:.2f}" if rule == _EVEN else f"{best:.2f} (head {heads.index(best) + 1})"
