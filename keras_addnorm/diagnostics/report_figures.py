"""A report as matplotlib figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_addnorm.diagnostics.report_data import AttentionMap, ReportData, SublayerReport

# Okabe and Ito's palette, which people with every kind of colour vision can tell apart.
_COLORS = ("#0072B2", "#D55E00", "#009E73")
_STREAM = {"residual_rms": "x", "branch_rms": "F(x)", "merged_rms": "y"}
_GRADIENTS = {"gradient_norm": "at the stream x", "weight_gradient_norm": "at the weights"}
_SKIPS = {"skip_cost": "without the sublayer"}


def figures(report: ReportData) -> dict[str, Figure]:
    """Draw a report; returns figures by name, see `Report.plot`."""
    skips = {}
    if report.effective_depth is not None:
        skips["effective_depth"] = _lines(report, _SKIPS, "increase of the loss")
    return {
        "stream": _lines(report, _STREAM, "root mean square"),
        "gradients": _lines(report, _GRADIENTS, "norm of the gradient"),
        **skips,
        "ratios": _ratios(report),
        **{found.name: _attention(found) for found in report.attention_maps},
    }


def _figure(width: float, height: float) -> Figure:
    # Without pyplot there is no global state and no display to look for.
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _stacks(report: ReportData) -> dict[str, list[SublayerReport]]:
    stacks: dict[str, list[SublayerReport]] = {}
    for item in report.sublayers:
        stacks.setdefault(item.stack, []).append(item)
    return stacks


def _lines(report: ReportData, fields: dict[str, str], unit: str) -> Figure:
    stacks = _stacks(report)
    figure = _figure(5.2 * len(stacks), 3.6)
    for number, (stack, items) in enumerate(stacks.items()):
        axes = figure.add_subplot(1, len(stacks), number + 1, title=stack, ylabel=unit)
        depth = range(1, len(items) + 1)
        for (field, label), color in zip(fields.items(), _COLORS, strict=False):
            values = [_or_nan(getattr(item, field)) for item in items]
            axes.plot(depth, values, marker="o", markersize=4, color=color, label=label)
        step = max(1, len(items) // 12)
        labels = [f"{item.layer.rpartition('/')[2]} {item.kind}".strip() for item in items[::step]]
        axes.set_xticks(depth[::step], labels, rotation=60, ha="right", fontsize=8)
        axes.grid(color="#e4e7eb")
        axes.legend(frameon=False)
    return figure


def _ratios(report: ReportData) -> Figure:
    stacks = _stacks(report)
    rows = max(len({item.layer for item in items}) for items in stacks.values())
    figure = _figure(4.6 * len(stacks), 1.6 + 0.32 * rows)
    for number, (stack, items) in enumerate(stacks.items()):
        layers = list(dict.fromkeys(item.layer for item in items))
        kinds = list(dict.fromkeys(item.kind for item in items))
        grid = np.full((len(layers), len(kinds)), np.nan)
        for item in items:
            grid[layers.index(item.layer), kinds.index(item.kind)] = item.residual_ratio
        axes = figure.add_subplot(1, len(stacks), number + 1, title=f"{stack} ‖F(x)‖ / ‖x‖")
        image = axes.imshow(grid, cmap="cividis", aspect="auto")
        axes.set_xticks(range(len(kinds)), [kind.replace("_", "\n") for kind in kinds], fontsize=8)
        axes.set_yticks(range(len(layers)), layers, fontsize=8)
        figure.colorbar(image, ax=axes)
    return figure


def _attention(found: AttentionMap) -> Figure:
    panels = np.asarray(found.weights)
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    width, height = 1.2 + 0.3 * len(found.keys), 1.4 + 0.27 * len(found.queries)
    figure = _figure(width * columns, height * lines)
    figure.suptitle(found.name)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, index + 1, xlabel=f"head {index + 1}")
        axes.imshow(panel, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(found.keys)), _literal(found.keys), rotation=60, ha="left")
        axes.set_yticks(range(len(found.queries)), _literal(found.queries))
        axes.xaxis.tick_top()
    return figure


def _literal(tokens: Sequence[str]) -> list[str]:
    # Matplotlib reads a pair of dollar signs as mathematics.
    return [token.replace("$", r"\$") for token in tokens]


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
