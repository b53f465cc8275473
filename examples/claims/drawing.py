"""Pictures: one look for all, colours that the colour-blind can tell apart, and markers besides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_addnorm.basics import atomic_file

# Okabe and Ito's colours; yellow is left out, as it does not show on white.
_BLACK, _ORANGE, _SKY, _GREEN, _BLUE, _VERMILION, _PURPLE, _GREY = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#777777",
)

_STYLES: dict[str, dict[str, Any]] = {
    "plain": {"color": _BLACK, "marker": "x", "linestyle": ":"},
    "no_residual": {"color": _GREY, "marker": "+", "linestyle": ":"},
    "no_norm": {"color": _ORANGE, "marker": "^", "linestyle": "--"},
    "post_ln": {"color": _VERMILION, "marker": "s", "linestyle": "-"},
    "pre_ln": {"color": _BLUE, "marker": "o", "linestyle": "-"},
    "deep_norm": {"color": _GREEN, "marker": "D", "linestyle": "-"},
    "rezero": {"color": _PURPLE, "marker": "v", "linestyle": "-"},
    "sandwich_ln": {"color": _SKY, "marker": "P", "linestyle": "-"},
    "ln_scaling": {"color": _GREEN, "marker": "*", "linestyle": "-"},
    "concatenate_and_project": {"color": _GREY, "marker": "h", "linestyle": "--"},
    "layer_scale": {"color": _GREY, "marker": "<", "linestyle": "-"},
    "res_post_norm": {"color": _BLACK, "marker": ">", "linestyle": "-"},
    "mix_ln": {"color": _ORANGE, "marker": "d", "linestyle": "-"},
    "layer_norm": {"color": _BLUE, "marker": "o", "linestyle": "-"},
    "batch_norm": {"color": _VERMILION, "marker": "s", "linestyle": "--"},
}


_OTHERS: dict[str, Any] = {"label": "others", "color": _SKY, "marker": ".", "linestyle": "-"}


def style(name: str) -> dict[str, Any]:
    """Colour, marker and line of a scheme or norm, the same in every picture.

    More names than can be told apart are the others.
    """
    own = {"label": name, **_STYLES[name]} if name in _STYLES else _OTHERS
    return {"markersize": 5, "linewidth": 1.6, **own}


@contextlib.contextmanager
def picture(path: Path, panels: int = 1, width: float = 7.5, height: float = 4.0) -> Iterator[Any]:
    """Give the axes of a new figure, and write it when the block ends: a list if panels > 1."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels)
    for axis in [axes] if panels == 1 else axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    yield axes
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=90, metadata={"Software": None})
