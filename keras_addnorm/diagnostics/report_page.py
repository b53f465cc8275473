"""A report as one self-contained HTML page, with figures drawn by plotly."""

from __future__ import annotations

import html
import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.printing import printable
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.basics.web_page import json_in_html, shown_steps
from keras_addnorm.diagnostics.figure_size import require_moderate
from keras_addnorm.diagnostics.head_table import HEADS_CAPTION, head_rows
from keras_addnorm.diagnostics.page_style import (
    AXIS,
    DIVERGING,
    LAYOUT,
    SEQUENTIAL,
    lines,
    scale_of,
    stack_name,
)
from keras_addnorm.diagnostics.report_data import (
    AttentionMap,
    ReportData,
    SublayerReport,
    Verdict,
    by_stack,
)
from keras_addnorm.diagnostics.residual_log import ResidualRow
from keras_addnorm.diagnostics.stream_page import stream_section
from keras_addnorm.diagnostics.stream_table import stream_columns

_STREAM = {"residual_rms": "x", "branch_rms": "F(x)", "merged_rms": "y"}
_GRADIENTS = {"gradient_norm": "at the stream x", "weight_gradient_norm": "at the weights"}
_SKIPS = {"skip_cost": "without the sublayer"}
_METRICS = (
    {"key": "residual_ratio", "text": "‖F(x)‖ / ‖x‖", "is_log": True},
    {"key": "cosine", "text": "cos(x, y)", "is_log": False},
    {"key": "merged_rms", "text": "rms of y", "is_log": True},
    {"key": "gradient_norm", "text": "gradient norm at x", "is_log": True},
    {"key": "branch_mean", "text": "mean of F(x)", "is_log": False},
    {"key": "merged_mean", "text": "mean of y", "is_log": False},
)
_HEADLINES = {
    "healthy": "Healthy",
    "not_finite": "Numbers that are not finite",
    "no_final_norm": "No final norm",
    "no_skip": "No skip connection",
    "swamped": "The branch swamps the stream",
    "near_identity": "Near-identity sublayers",
    "vanishing_gradient": "The gradient vanishes",
    "exploding_gradient": "The gradient explodes",
    "norm_collapsed": "A norm has collapsed",
    "copied_heads": "Heads that copy each other",
    "dead_units": "Dead feed-forward units",
}


def page(report: ReportData, log: Sequence[ResidualRow], title: str) -> str:
    """Draw a report.

    Args:
        report: The report.
        log: Rows of a `ResidualMonitor`'s log; may be empty.
        title: Heading of the page.

    Returns:
        The page, with everything that it needs inside.

    Raises:
        ImportError: If plotly is not installed.
        ValueError: If the report is too large to be drawn.
    """
    require_moderate(report)
    plotly = _plotly()
    stacks = by_stack(report.sublayers)
    charts = {}
    depth = report.effective_depth
    for name, fields, unit in (
        ("stream", _STREAM, "root mean square"),
        ("gradients", _GRADIENTS, "norm of the gradient"),
        *([] if depth is None else [("skips", _SKIPS, "increase of the loss")]),
    ):
        # Stacks stand side by side: on one kind of axis they can be compared.
        scale = scale_of(getattr(item, field) for item in report.sublayers for field in fields)
        for number, items in enumerate(stacks.values()):
            series = {
                label: [getattr(item, field) for item in items] for field, label in fields.items()
            }
            charts[f"{name}-{number}"] = lines(items, series, unit, scale)
    stream_boxes, stream_charts = stream_section(stacks)
    maps = [_map(number, stack, report.sublayers) for number, stack in enumerate(stacks)]
    attention_maps = {found.name: found for found in reversed(report.attention_maps)}
    heads = [item for item in report.sublayers if item.attention is not None]
    data = {
        "charts": {**charts, **stream_charts},
        "layout": LAYOUT,
        "axis": AXIS,
        "sequential": SEQUENTIAL,
        "diverging": DIVERGING,
        "metrics": _METRICS,
        "names": [html.escape(item.name) for item in report.sublayers],
        "maps": maps,
        "frames": _frames(report, log),
        "heads": [_heads(item, attention_maps.get(item.name)) for item in heads],
    }
    template = string.Template(read_resource(__package__, "page", "page.html"))
    return template.substitute(
        title=html.escape(printable(title)),
        summary=" · ".join(
            [
                f"Loss of the batch {report.loss:.4g}",
                f"{len(report.sublayers)} sublayers",
                *([html.escape(report.without_heads)] if report.without_heads else []),
            ]
        ),
        style=read_resource(__package__, "page", "page.css"),
        verdicts="\n".join(map(_verdict, report.verdicts)),
        stream=_boxes("stream", stacks),
        gradients=_boxes("gradients", stacks),
        depth="" if depth is None else depth.summary + ".",
        depth_hidden=" hidden" if depth is None else "",
        skips=_boxes("skips", [] if depth is None else stacks),
        streams_hidden="" if stream_boxes else " hidden",
        streams=stream_boxes,
        metrics=_options((item["key"], item["text"]) for item in _METRICS),
        maps=_boxes("map", stacks),
        sublayers=_options((str(index), item.name) for index, item in enumerate(heads)),
        heads_hidden="" if heads else " hidden",
        patterns=_patterns(report.sublayers),
        table=_table(report.sublayers),
        data=json_in_html(_finite(data)),
        plotly=plotly,
        script=read_resource(__package__, "page", "page.js"),
    )


def _plotly() -> str:
    """The whole of plotly.js, which the page brings along."""
    purpose = "A report as a page (Report.plot draws without it)"
    _, offline = require_extra("report", purpose, "plotly", "plotly.offline")
    return str(offline.get_plotlyjs())


def _finite(value: Any) -> Any:
    """The same with `None`, a gap in a chart, for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _map(number: int, stack: str, sublayers: Sequence[SublayerReport]) -> dict[str, Any]:
    """Which sublayer stands in which cell of a stack's map of layers and kinds."""
    cells = {
        (item.layer or item.name, item.kind): index
        for index, item in enumerate(sublayers)
        if item.stack == stack
    }
    layers = list(dict.fromkeys(layer for layer, _ in cells))
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    return {
        "id": f"map-{number}",
        "title": stack_name(stack),
        "layers": [html.escape(layer) for layer in layers],
        "kinds": [html.escape(kind.replace("_", " ")) for kind in kinds],
        "cells": [[cells.get((layer, kind)) for kind in kinds] for layer in layers],
    }


def _frames(report: ReportData, log: Sequence[ResidualRow]) -> list[dict[str, Any]]:
    """The numbers of the maps: one frame a logged step, or one of the report alone."""
    steps: dict[int | None, dict[str, Any]] = {}
    for row in log:
        steps.setdefault(row.step, {})[row.sublayer] = row
    steps = steps or {None: {item.name: item for item in report.sublayers}}
    shown = shown_steps(list(steps), len(report.sublayers))
    return [
        {
            "step": step,
            "values": {
                metric["key"]: [
                    getattr(rows.get(item.name), str(metric["key"]), None)
                    for item in report.sublayers
                ]
                for metric in _METRICS
            },
        }
        for step, rows in ((step, steps[step]) for step in shown)
    ]


def _heads(item: SublayerReport, drawn: AttentionMap | None) -> dict[str, Any]:
    attention = item.attention
    assert attention is not None
    return {
        "title": item.name,
        "entropy": attention.entropy,
        "entropy_share": attention.entropy_share,
        "similarity": attention.similarity,
        # Plotly reads tags in its labels; a token that looks like one has to be seen.
        "map": {
            "queries": [html.escape(token) for token in drawn.queries],
            "keys": [html.escape(token) for token in drawn.keys],
            "weights": drawn.weights,
        }
        if drawn is not None
        else None,
    }


def _verdict(verdict: Verdict) -> str:
    names = ""
    if len(verdict.sublayers) > 1:
        listed = ", ".join(f"<code>{html.escape(name)}</code>" for name in verdict.sublayers)
        names = f"<details><summary>All {len(verdict.sublayers)}</summary>{listed}</details>"
    good = " healthy" if verdict.kind == "healthy" else ""
    headline = html.escape(_HEADLINES.get(verdict.kind, verdict.kind))
    threshold = ""
    if verdict.threshold:
        threshold = f'<p class="threshold">Threshold: {html.escape(verdict.threshold)}.</p>'
    return (
        f'<article class="verdict{good}"><h3>{headline}</h3>'
        f"<p>{html.escape(verdict.text)}</p><p>{html.escape(verdict.advice)}</p>"
        f"{threshold}{names}</article>"
    )


def _boxes(prefix: str, stacks: Iterable[str]) -> str:
    """A captioned place for a chart of each stack."""
    return "".join(
        f'<figure><figcaption id="{prefix}-{number}-caption">'
        f"{html.escape(stack_name(stack))}</figcaption>"
        f'<div class="chart" id="{prefix}-{number}" role="img" tabindex="0" '
        f'aria-labelledby="{prefix}-{number}-caption"></div></figure>'
        for number, stack in enumerate(stacks)
    )


def _options(items: Iterable[tuple[Any, Any]]) -> str:
    return "".join(
        f'<option value="{html.escape(str(value), quote=True)}">{html.escape(str(text))}</option>'
        for value, text in items
    )


_NUMBERS = {
    "residual_rms": "rms x",
    "branch_rms": "rms F(x)",
    "merged_rms": "rms y",
    "residual_ratio": "‖F(x)‖/‖x‖",
    "cosine": "cos(x, y)",
    "effect": "effect",
    "gradient_norm": "gradient at x",
    "weight_gradient_norm": "gradient at weights",
    "skip_cost": "cost of skipping",
    "dead_units": "dead units",
    "branch_mean": "mean F(x)",
    "merged_mean": "mean y",
}


def _table(sublayers: Sequence[SublayerReport]) -> str:
    streams = stream_columns(sublayers)
    titles = [
        "sublayer",
        *_NUMBERS.values(),
        *(f"streams: {title}" for title in streams),
        "norms: mean, variance before → after",
    ]
    rows = []
    for index, item in enumerate(sublayers):
        cells = [_number(getattr(item, field)) for field in _NUMBERS]
        cells += [column[index] for column in streams.values()]
        norms = "; ".join(
            f"{norm.slot}: {norm.input_mean:.3g}, {norm.input_variance:.3g} → "
            f"{norm.output_mean:.3g}, {norm.output_variance:.3g}"
            for norm in item.norms
        )
        rows.append([item.name, *cells, norms])
    return _html_table(titles, rows)


def _patterns(sublayers: Sequence[SublayerReport]) -> str:
    """Which head follows a rule most, as a table; nothing where no head was scored."""
    rules, rows = head_rows(sublayers)
    if not rules:
        return ""
    table = _html_table(["attention", *rules], [[name, *cells] for name, cells in rows.items()])
    return (
        f'<p id="patterns-caption">{html.escape(HEADS_CAPTION)}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="patterns-caption">'
        f"{table}</div>"
    )


def _html_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in titles)
    lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
