"""`inspect`: a report from one forward and backward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics import statistics
from keras_addnorm.diagnostics.batch_loss import BatchLoss, LossLike, parts_of
from keras_addnorm.diagnostics.effective_depth import EffectiveDepth
from keras_addnorm.diagnostics.final_norm import missing_final_norm
from keras_addnorm.diagnostics.gradients import LossGradients, gradients_of
from keras_addnorm.diagnostics.layer_hooks import watch_attention, watch_feed_forward, watch_norms
from keras_addnorm.diagnostics.observe import (
    SublayerRecord,
    observe,
)
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.diagnostics.report_data import (
    AttentionMap,
    AttentionStatistics,
    NormStatistics,
    SublayerReport,
    Thresholds,
)
from keras_addnorm.diagnostics.stream_statistics import stream_statistics
from keras_addnorm.diagnostics.verdicts import judge
from keras_addnorm.layers.pruned import PrunedSublayer
from keras_addnorm.layers.sublayers import Sublayer, named_sublayers

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence to draw attention maps of.

    Args:
        inputs: What the model is called with, one row.
        source: The encoder's tokens, as people read them.
        target: The decoder's tokens; those that it reads, start token first.
    """

    inputs: Any
    source: Sequence[str]
    target: Sequence[str] = ()


def inspect(
    model: Any,
    batch: tuple[Any, ...],
    loss: LossLike | None = None,
    *,
    sentence: Sentence | None = None,
    thresholds: Thresholds | None = None,
    depth: EffectiveDepth | None = None,
) -> Report:
    """Look into a model: one forward and backward pass over a batch, without dropout.

    Nothing in the model changes. Numbers are over real tokens: positions that the model's own
    (Keras) mask hides are left out. Pruned sublayers have no numbers.

    Args:
        model: A `Seq2SeqTransformer`, or any built Keras model with our layers inside.
        batch: Inputs, labels and, if there are any, sample weights, as the training pipeline gives
            them.
        loss: `loss(labels, outputs)`, or the name of a loss, reduced as Keras does; `None` for what
            `evaluate` gives: the model's `compute_loss`, with all that was compiled or added. For a
            `Seq2SeqTransformer` that is not compiled, `MaskedSparseCategoricalCrossentropy`.
        sentence: A sentence to draw attention maps of.
        thresholds: Where a number becomes a verdict.
        depth: What `effective_depth` found for the same batch and loss, to be part of the report.

    Returns:
        The report.

    Raises:
        ValueError: If there is no Add & Norm in the model, or none of them ran; if there is no
            loss, or it is no scalar, or takes probabilities where the model gives logits.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.diagnostics import inspect
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro"))
    batch = {"source": np.array([[5, 6, 7, 2]]), "target": np.array([[1, 8, 9]])}
    report = inspect(model, (batch, np.array([[8, 9, 2]])))
    print(report)
    ```
    """
    parts = parts_of(batch)
    inputs = parts[0]
    _require_type("sentence", sentence, Sentence)
    _require_type("thresholds", thresholds, Thresholds)
    _require_type("depth", depth, EffectiveDepth)
    batch_loss = BatchLoss(model, loss)
    sublayers = named_sublayers(model)
    with (
        observe(model) as observation,
        watch_attention(model) as attention,
        watch_feed_forward(model) as activations,
        watch_norms(model) as norms,
    ):
        model(inputs, training=False)
    records = {record.name: record for record in observation}
    if not records:
        raise ArgumentError(
            "No sublayer ran.",
            "the model to merge at least one sublayer's output",
            received=f"{model!r}, whose Add & Norm layers {list(sublayers)} were not called",
        )
    probes = {name: ops.zeros_like(record.residual) for name, record in records.items()}
    gradients = gradients_of(batch_loss, parts, probes)
    found = tuple(
        _sublayer_report(
            record,
            sublayers[name],
            gradients,
            {slot: both for (owner, slot), both in norms.items() if owner == name},
            activations.get(name),
            attention.get(name),
        )
        for name, record in records.items()
        if not isinstance(sublayers[name].layer, PrunedSublayer)
    )
    if depth is not None:
        costs = depth.increases
        found = tuple(dataclasses.replace(item, skip_cost=costs.get(item.name)) for item in found)
    limits = thresholds or Thresholds()
    return Report(
        loss=gradients.loss,
        sublayers=found,
        verdicts=judge(gradients.loss, found, limits, missing_final_norm(model, sublayers)),
        thresholds=limits,
        attention_maps=() if sentence is None else _attention_maps(model, sentence),
    )


def _require_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind | None):
        raise ArgumentError(
            f"`{name}` is of another type.", f"a {kind.__name__}, or None", value=value
        )


def _sublayer_report(
    record: SublayerRecord,
    sublayer: Sublayer,
    gradients: LossGradients,
    norms: Mapping[str, tuple[Tensor, Tensor]],
    activations: Tensor | None,
    attention: Tensor | None,
) -> SublayerReport:
    without = _without_branch(record, sublayer)
    x, f, y, y0 = (
        to_numpy(tensor) for tensor in (record.residual, record.branch, record.merged, without)
    )
    real = _real(record, x.shape[:-1])
    return SublayerReport(
        name=record.name,
        residual_rms=statistics.rms(x, real),
        branch_rms=statistics.rms(f, real),
        merged_rms=statistics.rms(y, real),
        residual_ratio=statistics.norm_ratio(f, x, real),
        cosine=statistics.mean_cosine(x, y, real),
        effect=statistics.norm_ratio(y - y0, y0, real),
        gradient_norm=float(np.linalg.norm(gradients.residuals[record.name])),
        weight_gradient_norm=_weight_gradient_norm(sublayer.layer, gradients),
        norms=tuple(
            _norm_statistics(slot, getattr(sublayer.add_norm, slot), before, after, real)
            for slot, (before, after) in norms.items()
        ),
        dead_units=None
        if activations is None
        else statistics.dead_share(
            to_numpy(activations).reshape(*real.shape, -1),
            real,
            is_gated=hasattr(sublayer.layer, "gate_projection"),
        ),
        attention=None if attention is None else _attention_statistics(attention, real),
        streams=stream_statistics(record),
        residual_mean=statistics.mean(x, real),
        branch_mean=statistics.mean(f, real),
        merged_mean=statistics.mean(y, real),
    )


def _without_branch(record: SublayerRecord, sublayer: Sublayer) -> Tensor:
    """Return the stream after a sublayer whose output is zero."""
    zeros, add_norm = ops.zeros_like(record.branch), sublayer.add_norm

    def without_effect(h: Tensor) -> Tensor:
        return zeros

    state = record.residual if record.state is None else record.state
    return add_norm.scheme.collapse(add_norm(state, without_effect, training=False))


def _real(record: SublayerRecord, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, bool) if record.mask is None else to_numpy(record.mask).astype(bool)


def _weight_gradient_norm(layer: keras.layers.Layer | None, found: LossGradients) -> float | None:
    if layer is None or not layer.trainable_variables:
        return None
    norms = [np.linalg.norm(found.weights[weight.path]) for weight in layer.trainable_variables]
    return float(np.linalg.norm(norms))


def _norm_statistics(
    slot: str, norm: keras.layers.Layer, before: Tensor, after: Tensor, real: np.ndarray
) -> NormStatistics:
    input_mean, input_variance = statistics.mean_and_variance(to_numpy(before), real)
    output_mean, output_variance = statistics.mean_and_variance(to_numpy(after), real)
    gains = [gain for name in _GAINS if (gain := getattr(norm, name, None)) is not None]
    return NormStatistics(
        slot=slot,
        input_mean=input_mean,
        input_variance=input_variance,
        output_mean=output_mean,
        output_variance=output_variance,
        gain=float(np.sqrt(np.mean(to_numpy(gains[0].value) ** 2))) if gains else None,
    )


_GAINS = ("gamma", "scale")
"""What norms call their gain."""


def _attention_statistics(attention: Tensor, real: np.ndarray) -> AttentionStatistics:
    weights = to_numpy(attention)
    entropy, share = statistics.head_entropies(weights, real)
    similarity = statistics.head_similarity(weights, real)
    return AttentionStatistics(
        entropy=tuple(entropy.tolist()),
        entropy_share=tuple(share.tolist()),
        similarity=tuple(map(tuple, similarity.tolist())),
        free_weights=statistics.free_weights(weights, real),
        patterns={
            name: tuple(heads.tolist())
            for name, heads in statistics.head_patterns(weights, real).items()
        },
    )


def _attention_maps(model: Any, sentence: Sentence) -> tuple[AttentionMap, ...]:
    with watch_attention(model) as attention:
        model(sentence.inputs, training=False)
    maps = []
    for name, weights in attention.items():
        of_row = to_numpy(weights)[0]
        queries, keys = _tokens(name, sentence)
        maps.append(
            AttentionMap(
                name=name,
                queries=_labels(queries, of_row.shape[1]),
                keys=_labels(keys, of_row.shape[2]),
                weights=tuple(tuple(map(tuple, head)) for head in of_row.tolist()),
            )
        )
    return tuple(maps)


def _tokens(name: str, sentence: Sentence) -> tuple[Sequence[str], Sequence[str]]:
    if name.endswith("cross_attention"):
        return sentence.target, sentence.source
    side = sentence.target if name.startswith("decoder") and sentence.target else sentence.source
    return side, side


def _labels(tokens: Sequence[str], length: int) -> tuple[str, ...]:
    if len(tokens) != length:
        raise ArgumentError(
            "The tokens of the sentence do not fit its ids.",
            f"one token for each id, {length} of them",
            received=f"{len(tokens)}, {list(tokens)}",
        )
    return tuple(tokens)
