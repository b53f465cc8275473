"""The loss of a batch, as Keras computes it for the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.models.checks import check_data, require_loss_of_logits
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

Tensor = Any
LossLike = str | Callable[[Any, Any], Any]
Batch = tuple[Any, Any, Any]


def parts_of(batch: Any) -> Batch:
    """Return inputs, labels and sample weights, or raise a `ValueError` if a batch has others."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise ArgumentError(
            "A batch has two or three parts.",
            "(inputs, labels), or (inputs, labels, sample weights), as the training pipeline has "
            "them",
            value=batch,
        )
    inputs, labels, *weights = batch
    return inputs, labels, weights[0] if weights else None


def require_loss(loss: LossLike | None) -> None:
    """Raise a `ValueError` unless it is a function, the name of a loss, or `None`."""
    if isinstance(loss, str):
        keras.losses.get(loss)  # Says which names there are.
    elif loss is not None and not callable(loss):
        raise ArgumentError(
            "A loss is a function of labels and outputs.",
            "one, the name of one, or None for that of the model",
            "Several losses, their weights and those of several outputs go to `compile`.",
            value=loss,
        )


class BatchLoss:
    """The loss of a model's batch: one scalar, whatever the loss was given as.

    Without a loss of its own it is what `evaluate` gives for this batch: the model's
    `compute_loss`, with everything that was compiled, with what layers add and with regularisers.
    Nothing in the model changes: neither metrics nor moving statistics nor random numbers.

    Args:
        model: A built model, or a layer.
        loss: A function of labels and outputs, the name of one, or `None`.

    Raises:
        ValueError: If the loss is something else, or takes probabilities where the model gives
            logits; in a call, if there is no loss, or what comes out is no scalar.
    """

    def __init__(self, model: Any, loss: LossLike | None = None) -> None:
        require_loss(loss)
        if isinstance(model, Seq2SeqTransformer):
            require_loss_of_logits(loss)
        self.model = model
        self.loss = loss
        self._keras: Any = None
        if loss is not None and not isinstance(loss, keras.losses.Loss):
            self._keras = keras.Model()  # One that reduces as each other one does.
            self._keras.compile(loss=loss)

    def __call__(self, batch: Batch, *, training: bool = False) -> Tensor:
        """Run the model on inputs, labels and sample weights, and return the loss, a scalar."""
        model = self.model
        inputs, labels, weights = batch
        if isinstance(model, Seq2SeqTransformer):
            # With weights the loss looks by itself: a label of weight 0 may be any.
            counted = labels if weights is None else None
            check_data(inputs, counted, model.config, self.loss or self._of_model())
        # Regularisers read the weights from the scope, what layers add is collected in it.
        state = [(variable, variable.value) for variable in model.variables]
        with keras.StatelessScope(state_mapping=state, collect_losses=True):
            outputs = model(inputs, training=training)
            if self.loss is None:
                loss = self._compiled(inputs, labels, outputs, weights, training)
            elif self._keras is None:
                loss = self.loss(labels, outputs, weights)  # type: ignore[operator, call-arg]
            else:
                loss = self._reduced(labels, outputs, weights)
        if tuple(ops.shape(loss)):
            raise ArgumentError(
                "A loss to look at is one number for the batch.",
                "a scalar",
                "Has a loss the reduction None?",
                received=f"a tensor of shape {tuple(ops.shape(loss))}",
            )
        return loss

    def _of_model(self) -> Any:
        """Return what the model was compiled with, or else what its `pad_id` says; or `None`."""
        if getattr(self.model, "loss", None) is not None:
            return self.model.loss
        pad_id = getattr(getattr(self.model, "config", None), "pad_id", None)
        return None if pad_id is None else MaskedSparseCategoricalCrossentropy(pad_id=pad_id)

    def _compiled(
        self, inputs: Any, labels: Any, outputs: Any, weights: Any, training: bool
    ) -> Tensor:
        model, loss = self.model, self._of_model()
        if _has_loss(model):
            labels, weights = keras.tree.map_structure(_as_tensor, (labels, weights))
            # What `evaluate` calls: `compute_loss`, with `training` only where it takes that.
            return model._compute_loss(
                x=inputs, y=labels, y_pred=outputs, sample_weight=weights, training=training
            )
        if loss is None:
            raise ArgumentError(
                "There is no loss to look at.",
                "a compiled model, or `loss`",
                "For logits (batch, length, vocabulary) and token ids, pass "
                "MaskedSparseCategoricalCrossentropy(pad_id=...).",
                received=f"{model!r:.80}, which was not compiled with one, and loss=None",
            )
        return loss(labels, outputs, weights)

    def _reduced(self, labels: Any, outputs: Any, weights: Any) -> Tensor:
        """Call a function as it is; where it gives no scalar or ranks differ, as Keras does."""
        if callable(self.loss) and weights is None and not _differ_by_one_axis(labels, outputs):
            loss = self.loss(labels, outputs)
            if not tuple(ops.shape(loss)):
                return loss
        return self._keras.compute_loss(y=labels, y_pred=outputs, sample_weight=weights)


def _has_loss(model: Any) -> bool:
    """Whether a model that has just run can compute a loss by itself."""
    if not isinstance(model, keras.Model):
        return False
    usual = (keras.Model.compute_loss, Seq2SeqTransformer.compute_loss)
    if type(model).compute_loss not in usual:
        return True
    return model.compiled and (model.loss is not None or bool(model.losses))


def _as_tensor(leaf: Any) -> Any:
    """Return an array as the tensor that `fit` makes of it."""
    return ops.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def _differ_by_one_axis(labels: Any, outputs: Any) -> bool:
    """Whether one is (B,) and the other one (B, 1), say, which Keras takes for the same."""
    if not all(hasattr(tensor, "shape") for tensor in (labels, outputs)):
        return False
    shorter, longer = sorted((tuple(tensor.shape) for tensor in (labels, outputs)), key=len)
    return len(longer) == len(shorter) + 1 and longer[-1] == 1
