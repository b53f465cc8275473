"""Measures how much the heads of each attention differ."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.attention_maps import attention_scores
from keras_addnorm.layers.attention import MultiHeadAttention
from keras_addnorm.layers.head_diversity import HeadDiversity
from keras_addnorm.models.checks import check_ids, check_inputs, id_array
from keras_addnorm.models.seq2seq import require_model


@dataclasses.dataclass(frozen=True)
class HeadDifferences:
    """How much the heads of one attention differ: 1 minus their agreement.

    0 says that all heads do the same. Heads at right angles to one another have 1 - 1/H in
    `subspaces` and `outputs`; heads that look at many keys have more in `positions`. See
    `keras_addnorm.layers.HeadDiversity` for what agreement is.

    Args:
        name: Which attention: `"encoder/0/self_attention"`, `"decoder/2/cross_attention"`.
        subspaces: Of the heads' values.
        positions: Of their attention weights.
        outputs: Of their outputs.
    """

    name: str
    subspaces: float
    positions: float
    outputs: float


def head_diversity(model: Any, source_ids: Any, target_ids: Any) -> list[HeadDifferences]:
    """Measures how much the heads of each attention differ on a batch.

    Padding counts nowhere. Pruned attentions have no heads and are left out, as are SSRU and
    average attention.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: (B, S).
        target_ids: What the decoder reads, (B, T).

    Returns:
        One entry an attention, encoder first.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`.
        ValueError: If the ids have no batch axis, or are no ids of the model.

    Reference:
        Li et al., "Multi-Head Attention with Disagreement Regularization", 2018 (arXiv 1810.10183).

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        >>> config = Seq2SeqConfig.preset(
        ...     "tiny", source_vocabulary_size=11, target_vocabulary_size=11, num_encoder_layers=1,
        ...     num_decoder_layers=1, hidden_dim=10, intermediate_dim=7, num_heads=2,
        ... )
        >>> found = head_diversity(
        ...     Seq2SeqTransformer(config), np.array([[4, 5, 6, 2]]), np.array([[1, 7, 8]])
        ... )
        >>> [entry.name for entry in found]
        ['encoder/0/self_attention', 'decoder/0/self_attention', 'decoder/0/cross_attention']
    """
    require_model(model)
    source, target = id_array("source", source_ids), id_array("target", target_ids)
    if source.ndim != 2 or target.ndim != 2:
        raise ArgumentError(
            "Head diversity is measured on a batch.",
            "`source_ids` (B, S) and `target_ids` (B, T)",
            received=f"{source.shape} and {target.shape}",
        )
    check_ids("source", source, model.config.source_vocabulary_size)
    check_ids("target", target, model.config.target_vocabulary_size)
    check_inputs({"source": source, "target": target}, model.config)
    found: list[HeadDifferences] = []
    with contextlib.ExitStack() as stack:
        for name, attention in _attentions(model):
            stack.enter_context(_recorded(attention, name, found))
        attention_scores(model, source.astype("int32"), target.astype("int32"))
    return found


def _attentions(model: Any) -> Iterator[tuple[str, MultiHeadAttention]]:
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(stack.layers):
            for sublayer in ("self_attention", "cross_attention"):
                attention = getattr(layer, sublayer, None)
                if isinstance(attention, MultiHeadAttention):
                    yield f"{side}/{index}/{sublayer}", attention


@contextlib.contextmanager
def _recorded(
    attention: MultiHeadAttention, name: str, found: list[HeadDifferences]
) -> Iterator[None]:
    """Replace an attention's regulariser by a function that records the heads."""

    def see(*heads: Any) -> None:
        *tensors, _ = heads
        differences = {
            kind: 1.0 - float(ops.convert_to_numpy(HeadDiversity(**{kind: 1.0}).loss(*tensors)))
            for kind in ("subspaces", "positions", "outputs")
        }
        found.append(HeadDifferences(name, **differences))

    attention.show_heads = see  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del attention.show_heads
