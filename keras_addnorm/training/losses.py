"""The training loss of a sequence-to-sequence model."""

from typing import Any

import keras
from keras import ops

from keras_addnorm.training.tokens import (
    accumulation_dtype,
    checked_labels_and_logits,
    checked_pad_id,
    real_tokens,
    token_cross_entropy,
    token_weights,
)


class _WeightedMean(keras.losses.Loss):
    """Keras' own weighted mean, which also shares out among the replicas of a strategy."""

    def __init__(self, dtype: str) -> None:
        super().__init__(name="token_mean", reduction="mean_with_sample_weight", dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MaskedSparseCategoricalCrossentropy(keras.losses.Loss):
    """Label-smoothed cross-entropy of integer labels, mean per real token of the batch.

    For one token with logits z, label y, vocabulary size V and smoothing ε::

        loss = logsumexp(z) - (1 - ε) z_y - ε mean(z)

    which is the cross-entropy against (1 - ε) · one-hot(y) + ε / V, as in
    `torch.nn.CrossEntropyLoss(label_smoothing=ε, ignore_index=pad_id)`, without the one-hot rows.
    The batch's loss is Σ w · loss / Σ w, where w is 0 on padding and 1 elsewhere, times the
    sample weight if there is one: a token of weight 2 counts as two tokens, one of weight 0 as
    padding.

    Masking: a label counts if and only if it differs from `pad_id`. Keras masks attached to the
    predictions change nothing. A batch of only padding gives 0 and a gradient of zeros.

    Differences from `keras.losses.SparseCategoricalCrossentropy`: it takes logits, smooths, has
    no `reduction` argument, does not move labels through float32, computes in float32 whatever
    the precision of the logits (float64 stays float64), and divides by the number of real tokens
    instead of the number of positions. Under `tf.distribute` each replica divides by its own
    tokens and the replicas are averaged. `model.fit` shows the mean of the batches' losses, each
    weighted with its rows; `Perplexity` weights by token. Second derivatives are right on
    TensorFlow and JAX, not on torch.

    Label ids outside [0, V) cannot be checked in a compiled graph: check the data.

    Args:
        label_smoothing: ε, at least 0 and below 1.
        pad_id: The label that counts nowhere. Any integer, also a negative one such as -100.
        name: Name of the loss.
        weighted_sum: Whether a batch that comes with sample weights gives Σ w · loss instead, not
            divided by Σ w. Gradient accumulation needs it: the weights of
            `make_training_dataset(batches_per_update=...)` divide by the tokens of the whole
            update. Not for `tf.distribute`.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1) or `pad_id` is not an integer; in a
            call, if labels are not integers or the shapes are not (B, T) and (B, T, V).

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import MaskedSparseCategoricalCrossentropy
        >>> loss = MaskedSparseCategoricalCrossentropy()
        >>> labels = np.array([[1, 2, 0]])  # the last position is padding
        >>> logits = np.zeros((1, 3, 4), "float32")
        >>> round(float(loss(labels, logits)), 4)  # log 4
        1.3863

    Reference:
        Szegedy et al., Rethinking the Inception Architecture (2016), section 7: label smoothing.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        pad_id: int = 0,
        name: str = "masked_sparse_categorical_crossentropy",
        weighted_sum: bool = False,
    ) -> None:
        super().__init__(name=name, reduction="mean_with_sample_weight")
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                "label_smoothing is the share of the label's probability that is spread over the "
                f"vocabulary: at least 0 and below 1. Received {label_smoothing!r}; 0.1 is usual."
            )
        self.label_smoothing = float(label_smoothing)
        self.pad_id = checked_pad_id(pad_id)
        self.weighted_sum = weighted_sum

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Mean over the real tokens of the batch.

        Not left to the base class because that would cast the labels to float32 and merge the
        Keras mask of the predictions into the mean.
        """
        with keras.name_scope(self.name):
            values = self.call(y_true, y_pred)
            labels = ops.convert_to_tensor(y_true)
            dtype = accumulation_dtype(values)
            weights = token_weights(labels, self.pad_id, sample_weight, dtype)
            if self.weighted_sum and sample_weight is not None:
                return ops.sum(weights * ops.cast(values, dtype))
            return _WeightedMean(dtype)(weights, values, sample_weight=weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Loss of each token, 0 on padding. (B, T), (B, T, V) -> (B, T)."""
        labels, logits = checked_labels_and_logits(y_true, y_pred, type(self).__name__)
        values = token_cross_entropy(labels, logits, self.label_smoothing)
        return ops.where(real_tokens(labels, self.pad_id), values, 0)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "label_smoothing": self.label_smoothing,
            "pad_id": self.pad_id,
            "name": self.name,
            "weighted_sum": self.weighted_sum,
        }
