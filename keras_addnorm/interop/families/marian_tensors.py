"""The tensors of a model of Marian: their names, and one form for those of all versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_addnorm import norms, schemes
from keras_addnorm.interop.families.bart_like import layers
from keras_addnorm.interop.families.marian_settings import HEAD, tables_of
from keras_addnorm.interop.families.rows import (
    NEVER,
    ONE_ROW,
    TRANSPOSED,
    Extra,
    PlacedRows,
    Row,
    WeightTable,
)
from keras_addnorm.interop.tensor_files import ComputedTensor, StoredTensor
from keras_addnorm.models import Seq2SeqConfig

BIAS = f"{HEAD}_b"
"""The bias of the logits."""

# What the engine multiplies activations by before it rounds them: of each product one number.
ACTIVATIONS = "_QuantMultA"


def in_one_form(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, StoredTensor]:
    """Return the tensors with a head as Marian stores it today, a bias, and tables of one size."""
    found = dict(tensors)
    tables = tables_of(found)
    old, head, bias = (f"{HEAD}_{name}" for name in ("W", "Wt", "b"))
    if old in found:
        kernel = found.pop(old)
        found[head] = ComputedTensor.of(kernel, kernel.shape[::-1], lambda: kernel.read().T)
    if settings.get("output-omit-bias") and bias not in found:
        shape = (1, found[tables[-1]].shape[0])
        found[bias] = ComputedTensor.of(
            found[tables[-1]], shape, lambda: np.zeros(shape, np.float32)
        )
    size = max(found[name].shape[0] for name in tables)
    for name, axis, value in (
        *((name, 0, 0.0) for name in tables),
        (head, 0, 0.0),
        (bias, 1, NEVER),
    ):
        if name in found and found[name].shape[axis] < size:
            found[name] = _filled(found[name], axis, size, value)
    return found


def _filled(stored: StoredTensor, axis: int, size: int, value: float) -> StoredTensor:
    """Return a matrix with as many rows, or columns, as `size`."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (0, size - stored.shape[axis])
    shape = tuple(old + more for old, (_, more) in zip(stored.shape, widths, strict=True))
    return ComputedTensor.of(
        stored, shape, lambda: np.pad(stored.floats(), widths, constant_values=value)
    )


def weight_table(config: Seq2SeqConfig, ids: Mapping[str, Sequence[int]]) -> WeightTable:
    """Return the tensors of a model. Matrices lie as ours do.

    Args:
        config: Our config.
        ids: For `"encoder"` and `"decoder"`, our id of each token that Marian's model has.

    Returns:
        The table.
    """
    is_pre = schemes.get(config.scheme).plan(None).norm_slots == ("pre_norm",)
    rows = [row for side, index in layers(config) for row in _layer(config, side, index, is_pre)]
    for side in ("encoder", "decoder"):
        if schemes.get(config.scheme).needs_final_norm:
            rows += _norm(config.norm, f"{side}.final_norm", f"{side}_top_ln", "")
        if config.embedding_norm is not None:
            ours = f"{side}_embedding.embedding_norm"
            rows += _norm(config.embedding_norm, ours, f"{side}_emb_ln", "_pre")
    sizes = {"encoder": config.source_vocabulary_size, "decoder": config.target_vocabulary_size}

    def rows_of(side: str, value: float = 0.0) -> PlacedRows:
        return PlacedRows(tuple(ids[side]), sizes[side], value)

    tables = ("decoder",) if config.share_embeddings else ("encoder", "decoder")
    for side in tables:
        name = "Wemb" if config.share_embeddings else f"{side}_Wemb"
        rows.append(Row((f"{side}_embedding.embeddings",), name, (rows_of(side),)))
    bias = "decoder_embedding.logits_bias"
    if not config.tie_embeddings:
        bias = "vocabulary_projection.bias"
        kernel = ("vocabulary_projection.kernel",)
        rows.append(Row(kernel, f"{HEAD}_Wt", (rows_of("decoder"), TRANSPOSED)))
    if config.has_logits_bias:
        rows.append(Row((bias,), BIAS, (ONE_ROW, rows_of("decoder", NEVER))))
    return WeightTable(tuple(rows), (Extra(f".*{ACTIVATIONS}"),))


# The word that Marian has for a cell, and the letter of each of its projections.
_CELLS = {
    "ssru": ("rnn", {"cell_projection": "", "forget_projection": "f"}),
    "average_attention": (
        "aan",
        {
            "feed_forward.intermediate_projection": "1",
            "feed_forward.output_projection": "2",
            "input_gate": "i",
            "forget_gate": "f",
        },
    ),
}


def _layer(config: Seq2SeqConfig, side: str, index: int, is_pre: bool) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"{side}_l{index + 1}"
    slot, suffix = ("pre_norm", "_pre") if is_pre else ("post_norm", "")
    attentions = [("cross_attention", "context")] if side == "decoder" else []
    cell = config.self_attention if side == "decoder" else "multi_head_attention"
    cell = cell["name"] if isinstance(cell, dict) else cell
    if cell == "multi_head_attention":
        attentions.insert(0, ("self_attention", "self"))
    else:
        prefix, projections = _CELLS[cell]
        for part, weight in projections.items():
            yield Row((f"{ours}.self_attention.{part}.kernel",), f"{theirs}_{prefix}_W{weight}")
            if part != "cell_projection":
                bias = f"{ours}.self_attention.{part}.bias"
                yield Row((bias,), f"{theirs}_{prefix}_b{weight}", (ONE_ROW,))
        add_norm = f"{ours}.self_attention_add_norm.{slot}"
        # Only of a recurrence are the norms before and behind called otherwise.
        place = "" if is_pre and prefix == "rnn" else "_ffn"
        yield from _norm(config.norm, add_norm, f"{theirs}_{prefix}{place}_ln", suffix)
    for name, their_name in attentions:
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            projection = f"{ours}.{name}.{part}_projection"
            yield Row((f"{projection}.kernel",), f"{theirs}_{their_name}_W{letter}")
            yield Row((f"{projection}.bias",), f"{theirs}_{their_name}_b{letter}", (ONE_ROW,))
        yield from _norm(
            config.norm, f"{ours}.{name}_add_norm.{slot}", f"{theirs}_{their_name}_Wo_ln", suffix
        )
    for number, part in enumerate(("intermediate", "output"), start=1):
        projection = f"{ours}.feed_forward.{part}_projection"
        yield Row((f"{projection}.kernel",), f"{theirs}_ffn_W{number}")
        yield Row((f"{projection}.bias",), f"{theirs}_ffn_b{number}", (ONE_ROW,))
    yield from _norm(
        config.norm, f"{ours}.feed_forward_add_norm.{slot}", f"{theirs}_ffn_ffn_ln", suffix
    )


def _norm(kind: norms.NormLike, ours: str, theirs: str, suffix: str) -> Iterator[Row]:
    for name, part in zip(norms.get(kind)().output_weights, ("scale", "bias"), strict=False):
        yield Row((f"{ours}.{name}",), f"{theirs}_{part}{suffix}", (ONE_ROW,))
