"""Whether a model's loss reads the vocabulary in chunks, and what keeps its logits whole."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.layers import PositionalEmbedding, Projection

LABELS = "labels"
"""The name under which a step hands the labels to the model beside its inputs."""

_LARGE = 65_536
"""Above so many entries the loss reads chunks by itself: logits then outweigh a product more."""
_CHUNK = 8_192

_SETTING = "vocabulary_chunk_size"
_CHUNKED = "_chunked_loss"
"""The attribute that the class of models declares whose steps know of chunks."""


@dataclasses.dataclass(frozen=True)
class ChunkedLoss:
    """The loss and metrics of a step whose logits are made a chunk at a time.

    Attributes:
        chunk_size: How many entries of the vocabulary a chunk has at most.
        loss: As `compile` got it; it reads `LabelLogits`.
        metrics: Those that count tokens.
        weighted_metrics: Those that are given sample weights.
    """

    chunk_size: int
    loss: Any
    metrics: tuple[Any, ...]
    weighted_metrics: tuple[Any, ...]

    @classmethod
    def chosen(
        cls, model: Any, given: int | None, compiled: Mapping[str, Any]
    ) -> ChunkedLoss | None:
        """Return it, or `None` where logits stay whole.

        Args:
            model: A `Seq2SeqTransformer`.
            given: The size of a chunk that was asked for; 0 for whole logits, `None` for what fits.
            compiled: The arguments of `keras.Model.compile`, by name.

        Returns:
            The loss in chunks, or `None`.

        Raises:
            ValueError: If a size was asked for that is none, or something needs whole logits.
        """
        reasons = [*_reasons_for_whole_logits(model, compiled)]
        size = _chosen_chunk_size(given, model.config.target_vocabulary_size, reasons)
        metrics, weighted = (
            tuple(one for one in keras.tree.flatten(compiled.get(name)) if one is not None)
            for name in ("metrics", "weighted_metrics")
        )
        return cls(size, compiled.get("loss"), metrics, weighted) if size else None

    def with_labels(self, data: Any) -> Any:
        """Return a batch whose labels stand among the inputs, too."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, Mapping) or y is None:
            return data
        return keras.utils.pack_x_y_sample_weight({**x, LABELS: y}, y, sample_weight)

    def update_metrics(self, y: Any, y_pred: LabelLogits, sample_weight: Any) -> None:
        """Count a batch."""
        for metric in self.metrics:
            metric.update_state(y, y_pred)
        for metric in self.weighted_metrics:
            metric.update_state(y, y_pred, sample_weight)


def _chosen_chunk_size(given: int | None, vocabulary_size: int, reasons: list[str]) -> int:
    """Return how many entries of the vocabulary a chunk has, 0 for whole logits.

    Args:
        given: What the user asked for: a size, 0 for whole logits, `None` for the size that fits.
        vocabulary_size: V.
        reasons: What needs whole logits.

    Raises:
        ValueError: If a size was asked for, and something needs whole logits.
    """
    if given is not None and not (is_number(given, least=0) and isinstance(given, int)):
        raise ArgumentError(
            f"`{_SETTING}` is how many entries of the vocabulary the loss reads at a time.",
            "a whole number; 0 for all of them; None for what fits the vocabulary",
            value=given,
        )
    wanted = (_CHUNK if vocabulary_size > _LARGE else 0) if given is None else given
    if not wanted or wanted >= vocabulary_size:
        return 0
    if not reasons:
        return wanted
    if given is not None:
        raise ArgumentError(
            "The loss cannot read the vocabulary in chunks: whole logits are needed.",
            f"`{_SETTING}` 0 or None",
            "Or leave out what needs them.",
            received=f"{_SETTING}={given}, and {'; '.join(reasons)}",
        )
    warnings.warn(
        f"Each training step keeps logits of all {vocabulary_size:,} entries of the vocabulary, "
        f"because of {'; '.join(reasons)}. Chunks would need less memory: they work with "
        "MaskedSparseCategoricalCrossentropy, MaskedAccuracy and Perplexity.",
        stacklevel=5,
    )
    return 0


def _reasons_for_whole_logits(model: Any, compiled: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a compiled model needs whole logits; nothing if nothing does.

    Args:
        model: A `Seq2SeqTransformer`.
        compiled: The arguments of `compile`.
    """
    loss = compiled.get("loss")
    if not getattr(loss, "reads_label_logits", False):
        yield f"the loss {_name(loss)}"
    if compiled.get("loss_weights") is not None:
        yield "`loss_weights`"
    metrics = [compiled.get(name) for name in ("metrics", "weighted_metrics")]
    for metric in keras.tree.flatten(metrics):
        if metric is not None and not getattr(metric, "reads_label_logits", False):
            yield f"the metric {_name(metric)}"
    if model.distillation is not None:
        yield "`distillation`, which compares whole distributions"
    base = next(kind for kind in type(model).__mro__ if _CHUNKED in vars(kind))
    for name in ("call", "compute_loss", "compute_metrics"):
        if getattr(type(model), name) is not getattr(base, name):
            yield f"{type(model).__name__}, which has a {name} of its own"
    head = model.vocabulary_projection or model.decoder_embedding
    if type(head) not in (PositionalEmbedding, Projection):
        yield f"an output layer of its own class, {type(head).__name__}"
    elif head.quantization_mode is not None:
        yield "a quantised output layer"
    if _is_spread():
        yield "a distribution that spreads the vocabulary over devices"


def _name(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _is_spread() -> bool:
    """Return whether each copy of the weights is spread over devices."""
    layout = keras.distribution.distribution()
    if not isinstance(layout, keras.distribution.ModelParallel):
        return False
    sizes = dict(zip(layout.device_mesh.axis_names, layout.device_mesh.shape, strict=True))
    return math.prod(sizes.values()) != sizes[layout.batch_dim_name]
