"""`Report`: the results of `inspect`, as data, text, figures and a page."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.head_table import head_table
from keras_addnorm.diagnostics.report_data import ReportData, SublayerReport, Verdict
from keras_addnorm.diagnostics.report_reader import report_fields
from keras_addnorm.diagnostics.residual_log import ResidualRow
from keras_addnorm.diagnostics.stream_table import stream_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1
"""Of `to_dict`; a reader refuses what it does not know."""


@dataclasses.dataclass(frozen=True)
class Report(ReportData):
    """What `inspect` found; `print` it for a table.

    Example:
        >>> report = Report(loss=2.0, sublayers=(), verdicts=())
        >>> report.is_healthy
        True
        >>> Report.from_dict(report.to_dict()) == report
        True
    """

    def __getitem__(self, name: str) -> SublayerReport:
        for sublayer in self.sublayers:
            if sublayer.name == name:
                return sublayer
        raise KeyError(
            f"The report has no such sublayer. Expected one of "
            f"{[sublayer.name for sublayer in self.sublayers]}. Received: {name!r}"
        )

    def __str__(self) -> str:
        depth = self.effective_depth
        lines = [
            f"Loss of the batch: {self.loss:.4g}",
            *([] if depth is None else [depth.summary]),
            *([self.without_heads] if self.without_heads else []),
            "",
            *map(_bullet, self.verdicts),
            "",
        ]
        tables = (_table, stream_table, head_table)
        return "\n".join([*lines, *(line for each in tables for line in each(self.sublayers))])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values.

        Keys are the names of the attributes, with `"format"` in front. Numbers that are not finite
        become the strings `"nan"`, `"inf"` and `"-inf"`, since JSON has no word for them.

        Returns:
            Dicts, lists, strings, numbers and `None`.
        """
        return {"format": FORMAT, **_plain(dataclasses.asdict(self))}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        """Return the report that `to_dict` described.

        Args:
            values: From `to_dict`, also by way of JSON.

        Returns:
            An equal report.

        Raises:
            ValueError: If it is of another format, or a value is missing or of another kind.
        """
        found = values.get("format") if isinstance(values, Mapping) else values
        if not is_whole(found) or found != FORMAT:
            raise ArgumentError(
                "This is no report that can be read.",
                f"format {FORMAT}",
                "Inspect the model again with this version.",
                value=found,
            )
        return cls(**report_fields(values))

    def plot(self) -> dict[str, Figure]:
        """Draw the report with matplotlib.

        Returns:
            Figures by name: `"stream"`, `"gradients"`, `"effective_depth"` if it was measured,
            `"ratios"`, and one for each attention map by the name of its sublayer. For schemes of
            several streams or with a memory also those that they have of `"stream_rms"`,
            `"stream_cosine"`, `"read"`, `"write"`, `"mixing"`, `"mixing_errors"` and `"depth"`.
            Save one with `figure.savefig("stream.png")`. None of a report without sublayers.

        Raises:
            ValueError: If a figure, or a map in it, would be too large.
        """
        from keras_addnorm.diagnostics.report_figures import figures

        return figures(self)

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        log: Iterable[ResidualRow] = (),
        title: str = "What Add & Norm does",
    ) -> str:
        """Draw the report as one page that needs nothing else: no network, no other file.

        Args:
            path: Where to write it; `None` to write nothing.
            log: Rows of a `ResidualMonitor`'s log, `ResidualLog(path).read()`: then the map of
                ratios has a slider for the training step; of a long log, for some of them.
            title: Heading of the page.

        Returns:
            The page.

        Raises:
            ImportError: If plotly is not installed.
            ValueError: If a map in it would be too large.
        """
        from keras_addnorm.diagnostics.report_page import page

        text = page(self, tuple(log), title)
        if path is not None:
            with atomic_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return text


def _bullet(verdict: Verdict) -> str:
    mark = "+" if verdict.kind == "healthy" else "!"
    threshold = f"  Threshold: {verdict.threshold}." if verdict.threshold else ""
    lines = [f"{mark} {verdict.text}", threshold, f"  {verdict.advice}"]
    return "\n".join(line.rstrip() for line in lines if line.strip())


_COLUMNS: dict[str, str] = {
    "rms x": "residual_rms",
    "rms F(x)": "branch_rms",
    "rms y": "merged_rms",
    "F/x": "residual_ratio",
    "cos": "cosine",
    "effect": "effect",
    "dL/dx": "gradient_norm",
    "dL/dw": "weight_gradient_norm",
    "skip": "skip_cost",
}
_WITHOUT_WEIGHTS = (
    "No dL/dw: the sublayer has no weights to train, or AddNorm is called around a layer of yours, "
    "which it does not hold; loss_gradients has the gradient of each weight."
)


def _table(sublayers: tuple[SublayerReport, ...]) -> list[str]:
    width = max(map(len, ["sublayer", *(item.name for item in sublayers)]))
    columns = {
        title: field
        for title, field in _COLUMNS.items()
        if any(getattr(item, field) is not None for item in sublayers)
    }
    lines = [" ".join([f"{'sublayer':{width}}", *(f"{title:>9}" for title in columns)])]
    for item in sublayers:
        cells = [_cell(getattr(item, field)) for field in columns.values()]
        lines.append(" ".join([f"{item.name:{width}}", *cells]))
    if any(item.weight_gradient_norm is None for item in sublayers):
        lines.append(_WITHOUT_WEIGHTS)
    return lines


def _cell(value: float | None) -> str:
    return f"{'':>9}" if value is None else f"{value:9.3g}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
