"""A report as matplotlib figures."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from keras_addnorm.diagnostics.figure_parts import draw_lines, new_figure, set_labels
from keras_addnorm.diagnostics.figure_size import require_moderate
from keras_addnorm.diagnostics.label_fonts import literal
from keras_addnorm.diagnostics.report_data import AttentionMap, ReportData, by_stack
from keras_addnorm.diagnostics.stream_figures import stream_figures

_STREAM = {"residual_rms": "x", "branch_rms": "F(x)", "merged_rms": "y"}
_GRADIENTS = {"gradient_norm": "at the stream x", "weight_gradient_norm": "at the weights"}
_SKIPS = {"skip_cost": "without the sublayer"}


def figures(report: ReportData) -> dict[str, Figure]:
    """Draw a report; returns figures by name, see `Report.plot`."""
    require_moderate(report)
    if not report.sublayers:  # Of a model that all were pruned of.
        return {}
    skips = {}
    if report.effective_depth is not None:
        skips["effective_depth"] = _lines(report, _SKIPS, "increase of the loss")
    return {
        "stream": _lines(report, _STREAM, "root mean square"),
        "gradients": _lines(report, _GRADIENTS, "norm of the gradient"),
        **skips,
        **stream_figures(by_stack(report.sublayers)),
        "ratios": _ratios(report),
        **{found.name: _attention(found) for found in report.attention_maps},
    }


def _lines(report: ReportData, fields: dict[str, str], unit: str) -> Figure:
    stacks = by_stack(report.sublayers)
    figure = new_figure(5.2 * len(stacks), 3.6)
    for number, (stack, items) in enumerate(stacks.items()):
        axes = figure.add_subplot(1, len(stacks), number + 1, title=literal(stack), ylabel=unit)
        series = {
            label: [getattr(item, field) for item in items] for field, label in fields.items()
        }
        draw_lines(axes, items, series)
    return figure


def _ratios(report: ReportData) -> Figure:
    stacks = by_stack(report.sublayers)
    rows = max(len({item.layer for item in items}) for items in stacks.values())
    figure = new_figure(4.6 * len(stacks), 1.6 + 0.32 * rows)
    for number, (stack, items) in enumerate(stacks.items()):
        layers = list(dict.fromkeys(item.layer for item in items))
        kinds = list(dict.fromkeys(item.kind for item in items))
        grid = np.full((len(layers), len(kinds)), np.nan)
        for item in items:
            grid[layers.index(item.layer), kinds.index(item.kind)] = item.residual_ratio
        axes = figure.add_subplot(
            1, len(stacks), number + 1, title=literal(f"{stack} ‖F(x)‖ / ‖x‖")
        )
        image = axes.imshow(grid, cmap="cividis", aspect="auto")
        set_labels(axes.set_xticks, dict(enumerate(kinds)), write=_in_lines, fontsize=8)
        set_labels(axes.set_yticks, dict(enumerate(layers)), fontsize=8)
        figure.colorbar(image, ax=axes)
    return figure


def _in_lines(kind: str) -> str:
    return literal(kind).replace("_", "\n")


def _attention(found: AttentionMap) -> Figure:
    panels = np.asarray(found.weights)
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    width, height = 1.2 + 0.3 * len(found.keys), 1.4 + 0.27 * len(found.queries)
    figure = new_figure(width * columns, height * lines)
    figure.suptitle(literal(found.name))
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, index + 1, xlabel=f"head {index + 1}")
        axes.imshow(panel, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        set_labels(axes.set_xticks, dict(enumerate(found.keys)), rotation=60, ha="left")
        set_labels(axes.set_yticks, dict(enumerate(found.queries)))
        axes.xaxis.tick_top()
    return figure
