"""Metrics over real tokens, exact across batches of different length."""

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.basics.tensors import inside_vocabulary
from keras_addnorm.training.cross_entropy import (
    accumulation_dtype,
    checked_labels_and_logits,
    checked_pad_id,
    token_cross_entropy,
    token_weights,
)


class _TokenMetric(keras.metrics.Metric):
    """Σ w · value / Σ w over all tokens since the last reset; a subclass gives the values.

    The weights are those of the loss: 0 on padding, else 1 or the sample weight. Keras passes
    sample weights to the `weighted_metrics` of `compile` only. A label outside the vocabulary is
    refused where its value is there, and gives NaN in a compiled program, as in the loss.
    """

    def __init__(self, pad_id: int, name: str, dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self.pad_id = checked_pad_id(pad_id)
        self.total = self.add_variable((), "zeros", dtype="float32", name="total")
        self.weight = self.add_variable((), "zeros", dtype="float32", name="weight")

    @property
    def reads_label_logits(self) -> bool:
        """Whether `LabelLogits` do in the place of logits: not for a subclass."""
        return type(self) in (MaskedAccuracy, Perplexity)

    def token_values(self, labels: Any, logits: Any) -> Any:
        """Value of each token. (B, T), (B, T, V) -> (B, T)."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch: labels (B, T), logits (B, T, V), and weights (B,), (B, 1) or (B, T)."""
        labels, logits = checked_labels_and_logits(
            y_true, y_pred, type(self).__name__, self.pad_id, sample_weight
        )
        weights = token_weights(labels, self.pad_id, sample_weight, accumulation_dtype(logits))
        values = ops.cast(self.token_values(labels, logits), weights.dtype)
        # where: 0 times a value that is not finite would still be NaN.
        values = ops.where(ops.equal(weights, 0), 0, values * weights)
        self.total.assign_add(ops.cast(ops.sum(values), "float32"))
        self.weight.assign_add(ops.cast(ops.sum(weights), "float32"))

    def mean(self) -> Any:
        """The weighted mean so far; 0 before the first real token."""
        return ops.divide_no_nan(self.total, self.weight)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "pad_id": self.pad_id}


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MaskedAccuracy(_TokenMetric):
    """Share of real tokens whose label has the highest logit, counted over the whole epoch.

    Of equal highest logits the lowest id is the prediction, as with argmax.

    Args:
        pad_id: The label that counts nowhere.
        name: Name in the logs.
        dtype: Type of the result.

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import MaskedAccuracy
        >>> metric = MaskedAccuracy()
        >>> logits = np.eye(4, dtype="float32")[[[1, 3, 0]]]  # predicts 1, 3, 0
        >>> float(metric(np.array([[1, 2, 0]]), logits))  # one of two; the third is padding
        0.5
    """

    _direction = "up"  # what Keras' callbacks read when their mode is "auto"

    def __init__(self, pad_id: int = 0, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(pad_id=pad_id, name=name, dtype=dtype)

    def token_values(self, labels: Any, logits: Any) -> Any:
        """1 where the prediction is the label, else 0, and NaN where the label is none.

        Args:
            labels: (B, T).
            logits: (B, T, V), or `LabelLogits`.

        Returns:
            (B, T).
        """
        if isinstance(logits, LabelLogits):
            # An id compared as a float: of up to 24 bits they are whole. NaN stays NaN.
            is_right = ops.equal(logits.prediction, ops.cast(labels, logits.prediction.dtype))
            return ops.where(ops.isnan(logits.prediction), logits.prediction, is_right)
        # argmax in two plain reductions: XLA's own does not use the CPU's vector units.
        highest = ops.max(logits, axis=-1, keepdims=True)
        ids = ops.arange(ops.shape(logits)[-1], dtype="int32")
        vocabulary_size = ops.shape(logits)[-1]
        prediction = ops.min(ops.where(ops.equal(logits, highest), ids, vocabulary_size), axis=-1)
        is_right = ops.equal(prediction, ops.cast(labels, "int32"))
        is_inside = inside_vocabulary(labels, vocabulary_size)
        return ops.where(is_inside, ops.cast(is_right, "float32"), float("nan"))

    def result(self) -> Any:
        """Accuracy so far; 0 before the first real token."""
        return ops.cast(self.mean(), self.dtype)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Perplexity(_TokenMetric):
    """exp of the mean cross-entropy per real token, without smoothing, over the whole epoch.

    The mean is taken over all tokens before the exponential, so batches of different length
    count by their tokens. A mean beyond about 88.7 gives infinity in float32, without a warning.

    Args:
        pad_id: The label that counts nowhere.
        name: Name in the logs.
        dtype: Type of the result.

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import Perplexity
        >>> metric = Perplexity()
        >>> round(float(metric(np.array([[1, 2, 0]]), np.zeros((1, 3, 4), "float32"))), 3)
        4.0
    """

    _direction = "down"

    def __init__(self, pad_id: int = 0, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(pad_id=pad_id, name=name, dtype=dtype)

    def token_values(self, labels: Any, logits: Any) -> Any:
        """Cross-entropy of each token. (B, T), (B, T, V) -> (B, T)."""
        return token_cross_entropy(labels, logits)

    def result(self) -> Any:
        """Perplexity so far; 1 before the first real token."""
        return ops.cast(ops.exp(self.mean()), self.dtype)
