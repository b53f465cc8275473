"""Models, tokenizers and recorded trainings as one self-contained HTML file."""

from __future__ import annotations

import dataclasses
import html
import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from keras_addnorm import schemes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.resources import list_resources, read_resource
from keras_addnorm.basics.text import parse_json
from keras_addnorm.basics.web_page import json_in_html, shown_steps
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.explain.described_model import describe_model
from keras_addnorm.explain.described_tokenizer import describe_tokenizer
from keras_addnorm.explain.packed_weights import pack
from keras_addnorm.models import Seq2SeqTransformer

_SCRIPTS = (
    # Words, then what computes, then what draws, then what joins all.
    "languages.js",
    *list_resources(__package__, "page", "language_*.js"),
    "tensor.js",
    "weights.js",
    "tokenizer.js",
    "model.js",
    "search.js",
    "statistics.js",
    "elements.js",
    "words.js",
    "formula.js",
    "bars.js",
    "embedding_view.js",
    "stack_view.js",
    "sublayer_view.js",
    "attention_view.js",
    "next_token_view.js",
    "beam_view.js",
    "depth_view.js",
    "deeper_view.js",
    "tour.js",
    "main.js",
)
_STYLES = ("page.css",)
_START_OF_DATA, _END_OF_DATA = '<script type="application/json" id="data">', "</script>"

RECORDED = ("residual_rms", "branch_rms", "merged_rms", "residual_ratio", "cosine", "gradient_norm")
"""The columns of a log of `ResidualMonitor` that the page draws."""


@dataclasses.dataclass(frozen=True)
class ExplainedRun:
    """A trained model and what belongs to it on the page.

    Args:
        name: What the page calls it, such as the name of its scheme.
        model: The model.
        tokenizers: Its tokenizers.
        log: Rows of the log of a `ResidualMonitor`, with `step`, `sublayer` and the numbers; may be
            empty.
        validation_loss: The best loss of its training, if it is known.
        length_penalty: Kind (`"gnmt"` or `"average"`) and exponent of what a beam's scores are
            divided by.
    """

    name: str
    model: Seq2SeqTransformer
    tokenizers: TokenizerPair
    log: Sequence[Any] = ()
    validation_loss: float | None = None
    length_penalty: tuple[str, float] = ("gnmt", 0.0)


def page(
    runs: Sequence[ExplainedRun],
    sentences: Iterable[tuple[str, str]],
    *,
    title: str,
    note: str = "",
) -> str:
    """Write the page.

    Args:
        runs: The models between which the page switches, the first one shown first.
        sentences: Examples to begin with: texts, and a reference each or an empty text.
        title: Heading of the page.
        note: What the models have in common, in a sentence.

    Returns:
        HTML, with everything that it needs inside.

    Raises:
        ValueError: If there is no run, or a run has something that the page cannot do.
    """
    if not runs:
        raise ArgumentError("A page needs a model.", "at least one run", received="none")
    tokenizers: list[BaseTokenizer] = []
    data = {
        "title": title,
        "note": note,
        "sentences": [list(pair) for pair in sentences],
        "models": [_model(run, tokenizers) for run in runs],
        "tokenizers": [describe_tokenizer(tokenizer) for tokenizer in tokenizers],
    }
    return _written(data)


def remade_page(text: str, *, note: str | None = None) -> str:
    """Write a page again, with the same models and this version's JavaScript, styles and words.

    Nothing is loaded or trained: weights, vocabularies and records of trainings are the page's.

    Args:
        text: HTML that `page` has written.
        note: Another sentence on what the models have in common; by default the one in the page.

    Returns:
        HTML, with everything that it needs inside.

    Raises:
        ValueError: If the text is no such page.
    """
    parts = text.split(_START_OF_DATA) if isinstance(text, str) else []
    if len(parts) != 2 or _END_OF_DATA not in parts[1]:
        raise ArgumentError(
            "This is no page of `keras-addnorm explain`.",
            'one element with its data, <script ... id="data">',
            "Give the page as it was written.",
            received=f"{max(0, len(parts) - 1)} of them in a {type(text).__name__}",
        )
    try:
        data = parse_json(parts[1].partition(_END_OF_DATA)[0])
        json_in_html(data)  # JSON has no NaN, and Python reads it.
        for model in data["models"]:
            model["idea"] = schemes.get(model["config"]["scheme"]).idea
        if not isinstance(data["title"], str):
            raise ValueError("its title is no text")
    except (LookupError, TypeError, ValueError) as error:
        is_said = isinstance(error, ValueError)
        raise ArgumentError(
            "The data of the page cannot be read.",
            "what `keras-addnorm explain` writes",
            "Make the page anew.",
            because=error if is_said else None,
            received="" if is_said else "data of another kind",
        ) from error
    if note is not None:
        data["note"] = note
    return _written(data)


def _written(data: dict[str, Any]) -> str:
    template = string.Template(_resource("page.html"))
    return template.substitute(
        title=html.escape(data["title"]),
        style="\n".join(map(_resource, _STYLES)),
        data=json_in_html(data),
        script="\n".join(map(_resource, _SCRIPTS)),
    )


def _model(run: ExplainedRun, tokenizers: list[BaseTokenizer]) -> dict[str, Any]:
    try:
        described = describe_model(run.model)
        packed = pack(described.arrays)
        around = run.tokenizers.bound_format
        if around.leading_piece is not None:
            raise ValueError(
                "The page cannot read the languages that a text itself begins with. Expected a "
                "run of one pair of languages."
            )
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from error
    return {
        "name": run.name,
        **described.description,
        "config": run.model.config.to_dict(),
        "weights": packed,
        "source_tokenizer": _place(run.tokenizers.source, tokenizers),
        "target_tokenizer": _place(run.tokenizers.target, tokenizers),
        "before_source": [*around.source_prefix, *around.text_prefix],
        "behind_source": list(around.source_suffix),
        "target_prefix": list(around.target_prefix),
        "log": _log(run.log),
        "validation_loss": run.validation_loss,
        "length_penalty": {"name": run.length_penalty[0], "alpha": run.length_penalty[1]},
    }


def _place(tokenizer: BaseTokenizer, tokenizers: list[BaseTokenizer]) -> int:
    """Return where a tokenizer stands among those of the page; equal ones stand there once."""
    if tokenizer not in tokenizers:
        tokenizers.append(tokenizer)
    return tokenizers.index(tokenizer)


def _log(rows: Sequence[Any]) -> dict[str, Any] | None:
    """Return steps, sublayers, and for each column a row of numbers a step."""
    if not rows:
        return None
    sublayers = list(dict.fromkeys(row.sublayer for row in rows))
    steps = shown_steps(list(dict.fromkeys(row.step for row in rows)), len(sublayers))
    found = {(row.step, row.sublayer): row for row in rows}
    return {
        "steps": steps,
        "sublayers": sublayers,
        "values": {
            column: [
                [_short(getattr(found.get((step, name)), column, None)) for name in sublayers]
                for step in steps
            ]
            for column in RECORDED
        },
    }


def _short(value: float | None) -> float | None:
    """A number with four digits; none where it is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _resource(name: str) -> str:
    return read_resource(__package__, "page", name).rstrip("\n")
