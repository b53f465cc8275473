"""Which source tokens a decoder looks at, as numbers and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.training.files import written_whole

_INK = "#333f4b"


def cross_attention(model: Any, source_ids: Any, target_ids: Any) -> np.ndarray:
    """Computes the weights of every cross-attention for one pair of sentences.

    Row t of the result says where the decoder looks while it reads target token t, that is, while
    it decides on token t + 1.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: The source sentence with its end token, (S,).
        target_ids: What the decoder reads, start token first, (T,).

    Returns:
        The weights, (L, H, T, S), float32; each row sums to 1.

    Raises:
        ValueError: If a sentence is not a single row of ids, or is empty.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, num_encoder_layers=1,
        ...     num_decoder_layers=3, hidden_dim=10, intermediate_dim=7, num_heads=2,
        ... )
        >>> cross_attention(Seq2SeqTransformer(config), [4, 5, 6, 2], [1, 7, 8]).shape
        (3, 2, 3, 4)
    """
    source = _one_row(source_ids, "source_ids")
    target = _one_row(target_ids, "target_ids")
    memory, memory_padding_mask = model.encode(source)
    _, scores = model.decoder(
        model.decoder_embedding(target),
        memory,
        padding_mask=ops.not_equal(target, model.config.pad_id),
        memory_padding_mask=memory_padding_mask,
        return_attention_scores=True,
        training=False,
    )
    layers = [ops.cast(layer["cross_attention"][0], "float32") for layer in scores]
    return np.asarray(keras.ops.convert_to_numpy(ops.stack(layers)))


def plot_attention(
    weights: np.ndarray,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """Draws attention weights to a PNG: source pieces across, target pieces down.

    Args:
        weights: (T, S) for one panel, or (L, H, T, S) for one panel a layer, the mean of its heads.
        source_pieces: Labels of the columns, S of them.
        target_pieces: Labels of the rows, T of them: what the decoder is about to say.
        path: The picture; renamed into place when whole.

    Returns:
        The path of the picture.

    Raises:
        ValueError: If the weights do not fit the labels.

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

    weights = np.asarray(weights)
    expected = (len(target_pieces), len(source_pieces))
    if weights.ndim not in (2, 4) or weights.shape[-2:] != expected:
        raise ValueError(
            "The attention weights do not fit their labels. Expected (T, S) or (L, H, T, S) with "
            f"T, S = {expected}. Received: {weights.shape}."
        )
    panels = [weights] if weights.ndim == 2 else list(weights.mean(axis=1))
    height = 1.4 + 0.27 * expected[0]
    width = 1.2 + 0.3 * expected[1]
    figure = Figure(figsize=(width * len(panels), height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        axes.imshow(panel, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(expected[1]), source_pieces, color=_INK)
        axes.set_yticks(range(expected[0]), target_pieces, color=_INK)
        axes.xaxis.tick_top()
        for label in axes.get_xticklabels():
            label.set(rotation=60, ha="left", rotation_mode="anchor")
        axes.tick_params(length=0)
        axes.spines[:].set_color("#cbd2d9")
        if len(panels) > 1:
            axes.set_xlabel(f"decoder layer {index + 1}, mean of heads", color=_INK)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    return Path(path)


def _one_row(ids: Any, name: str) -> np.ndarray:
    row = np.asarray(ids)
    if row.ndim != 1 or row.size == 0 or not np.issubdtype(row.dtype, np.integer):
        raise ValueError(
            f"`{name}` has to be one sentence. Expected a non-empty row of integer ids. "
            f"Received: shape {row.shape}, {row.dtype}."
        )
    return row[None].astype("int32")
