"""Attention weights of a sentence pair, as arrays and as a picture."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.label_fonts import fitting_fonts
from keras_addnorm.models.checks import check_inputs
from keras_addnorm.models.seq2seq import require_model

_INK, _DOTS = "#333f4b", 130  # dots an inch
# Pixels along a side that viewers still open, and of a picture whose labels still can be read in
# the eighth part of them.
_LONGEST_SIDE, _MOST_PIXELS = 32_767, 1 << 27
_FINE = 1 << 24  # pixels; while they are drawn, each takes some forty bytes


@dataclasses.dataclass(frozen=True)
class AttentionMaps:
    """The weights of every attention for one pair of sentences, float32.

    Each row sums to 1 (to less with a sink). A pruned attention looks at nothing: zeros. So do the
    maps of a decoder whose self-attention is of another kind (SSRU, average attention), which has
    none.

    Args:
        encoder_self: Source to source, `(L, H, S, S)`.
        decoder_self: Target to target, `(L, H, T, T)`; zeros above the diagonal.
        cross: Target to source, `(L, H, T, S)`. Row t says where the decoder looks while it reads
            target token t, that is, while it decides on token t + 1.
    """

    encoder_self: np.ndarray
    decoder_self: np.ndarray
    cross: np.ndarray


def attention_maps(model: Any, source_ids: Any, target_ids: Any) -> AttentionMaps:
    """Computes the weights of every attention for one pair of sentences.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: The source sentence with its end token, (S,).
        target_ids: What the decoder reads, start token first, (T,).

    Returns:
        The maps.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`.
        ValueError: If a sentence is not a single row of the model's ids, or is empty.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, num_encoder_layers=1,
        ...     num_decoder_layers=3, hidden_dim=10, intermediate_dim=7, num_heads=2,
        ... )
        >>> attention_maps(Seq2SeqTransformer(config), [4, 5, 6, 2], [1, 7, 8]).cross.shape
        (3, 2, 3, 4)
    """
    require_model(model)
    source = _one_row(source_ids, "source_ids")
    target = _one_row(target_ids, "target_ids")
    check_inputs({"source": source, "target": target}, model.config)
    # Only now: an id beyond int32 would become another one.
    source, target = source.astype("int32"), target.astype("int32")
    encoder_scores, decoder_scores = attention_scores(model, source, target)
    heads = model.config.num_heads
    return AttentionMaps(
        _stacked(encoder_scores, heads),
        _stacked([layer["self_attention"] for layer in decoder_scores], heads),
        _stacked([layer["cross_attention"] for layer in decoder_scores], heads),
    )


def attention_scores(
    model: Any, source_ids: np.ndarray, target_ids: np.ndarray
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Runs a model and returns the attention weights of its stacks.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: (B, S).
        target_ids: (B, T).

    Returns:
        Those of the encoder and of the decoder, one entry a layer.
    """
    source_mask = ops.not_equal(source_ids, model.config.pad_id)
    memory, encoder_scores = model.encoder(
        model.encoder_embedding(source_ids),
        padding_mask=source_mask,
        return_attention_scores=True,
        training=False,
    )
    _, decoder_scores = model.decoder(
        model.decoder_embedding(target_ids),
        memory,
        memory_padding_mask=source_mask,
        return_attention_scores=True,
        training=False,
    )
    return encoder_scores, decoder_scores


def plot_attention(
    weights: np.ndarray,
    key_labels: Sequence[str],
    query_labels: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """Draws attention weights to a PNG: what is looked at across, what looks down.

    A picture of more than 16 million pixels is drawn in so many, with fewer an inch.
    Labels are drawn in fonts of this machine that have their characters; where none has, a box is
    drawn, and that is logged.

    Args:
        weights: (T, S) for one panel, (H, T, S) for one panel a head, or (L, H, T, S) for one panel
            a layer, the mean of its heads.
        key_labels: Labels of the columns, S of them: for a cross-attention, the source's pieces.
        query_labels: Labels of the rows, T of them: for a cross-attention, the target's pieces,
            best those that the decoder is about to say.
        path: The picture; renamed into place when whole.

    Returns:
        The path of the picture.

    Raises:
        ValueError: If the weights do not fit the labels, or the picture would be too large: that of
            one panel ends at about 300 labels a side.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp(), "attention.png")
        >>> plot_attention(np.eye(2), ["a", "house"], ["ein", "Haus"], path).name
        'attention.png'
    """
    # Without pyplot there is no global state and no display to look for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for name, labels in {"key_labels": key_labels, "query_labels": query_labels}.items():
        if isinstance(labels, str | None) or not all(
            isinstance(each, str) for each in _each(labels)
        ):
            raise ArgumentError(expected=f"{name} as a list of strings", value=labels)
    weights = np.asarray(weights)
    expected = (len(query_labels), len(key_labels))
    are_numbers = weights.dtype.kind in "biuf"
    is_map = weights.ndim in (2, 3, 4) and weights.shape[-2:] == expected and weights.size
    if not are_numbers or not is_map:
        raise ArgumentError(
            "The attention weights do not fit their labels.",
            f"(T, S), (H, T, S) or (L, H, T, S) with T, S = {expected}, and none of them 0",
            received=f"{weights.shape}, {weights.dtype}",
        )
    panels = weights.mean(axis=1) if weights.ndim == 4 else weights.reshape(-1, *expected)
    caption = "head {}" if weights.ndim == 3 else "layer {}, mean of heads"
    size = (1.2 + 0.3 * expected[1]) * len(panels), 1.4 + 0.27 * expected[0]
    width, height = (round(_DOTS * inches) for inches in size)
    _require_drawable(width, height)
    fonts, labels = fitting_fonts([*key_labels, *query_labels])
    key_labels, query_labels = labels[: expected[1]], labels[expected[1] :]
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        axes.imshow(panel, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(expected[1]), key_labels, color=_INK, family=fonts)
        axes.set_yticks(range(expected[0]), query_labels, color=_INK, family=fonts)
        axes.xaxis.tick_top()
        for label in axes.get_xticklabels():
            label.set(rotation=60, ha="left", rotation_mode="anchor")
        axes.tick_params(length=0)
        axes.spines[:].set_color("#cbd2d9")
        if len(panels) > 1:
            axes.set_xlabel(caption.format(index + 1), color=_INK)
    with atomic_file(path) as temporary:
        dots = _DOTS * min(1, (_FINE / (width * height)) ** 0.5)
        figure.savefig(temporary, dpi=dots, format="png")
    return to_path(path)


def _require_drawable(width: int, height: int) -> None:
    if max(width, height) > _LONGEST_SIDE or width * height > _MOST_PIXELS:
        raise ArgumentError(
            "The picture of these attention weights is too large.",
            f"at most {_LONGEST_SIDE:,} pixels a side and {_MOST_PIXELS:,} in all",
            "Draw fewer heads or layers in one picture, or a part of the sentences.",
            received=f"{width:,} x {height:,} pixels",
        )


def _each(labels: Any) -> Iterable[Any]:
    return labels if isinstance(labels, Iterable) else (None,)


def _one_row(ids: Any, name: str) -> np.ndarray:
    row = np.asarray(ids)
    if row.ndim != 1 or row.size == 0 or not np.issubdtype(row.dtype, np.integer):
        raise ArgumentError(
            f"`{name}` has to be one sentence.",
            "a non-empty row of integer ids",
            received=f"shape {row.shape}, {row.dtype}",
        )
    return row[None]


def _stacked(layers: Sequence[Any], heads: int) -> np.ndarray:
    # (1, H, T, S), one a layer -> (L, H, T, S); a pruned attention has no heads
    arrays = [ops.convert_to_numpy(ops.cast(weights[0], "float32")) for weights in layers]
    return np.stack(
        [a if a.shape[0] else np.zeros((heads, *a.shape[1:]), "float32") for a in arrays]
    )
