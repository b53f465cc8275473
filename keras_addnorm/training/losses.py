"""The training losses of a sequence-to-sequence model."""

import abc
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_number, require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.training.cross_entropy import (
    accumulation_dtype,
    checked_labels_and_logits,
    checked_pad_id,
    checked_smoothing,
    real_tokens,
    softmax_parts,
    token_cross_entropy,
    token_weights,
)


class _WeightedMean(keras.losses.Loss):
    """Keras' own weighted mean, which also divides among the replicas of a strategy."""

    def __init__(self, dtype: str) -> None:
        super().__init__(name="token_mean", reduction="mean_with_sample_weight", dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred


def mean_over_tokens(
    labels: Any, values: Any, pad_id: int, sample_weight: Any, *, weighted_sum: bool
) -> Any:
    """The mean of a value of each token over the real ones, or Σ w · value with sample weights.

    Args:
        labels: (B, T).
        values: (B, T), 0 on padding.
        pad_id: The label that counts nowhere.
        sample_weight: None, or (B,), (B, 1) or (B, T).
        weighted_sum: Whether sample weights give a sum.

    Returns:
        A scalar.
    """
    dtype = accumulation_dtype(values)
    weights = token_weights(labels, pad_id, sample_weight, dtype)
    if sample_weight is not None:  # 0 times a value that is not finite would be NaN.
        values = ops.where(ops.equal(weights, 0), 0, values)
    if weighted_sum and sample_weight is not None:
        return ops.sum(weights * ops.cast(values, dtype))
    return _WeightedMean(dtype)(weights, values, sample_weight=weights)


class TokenLoss(keras.losses.Loss, abc.ABC):
    """A loss of each token, and its mean over the real tokens of the batch.

    Args:
        pad_id: The label that counts nowhere. Any integer, also a negative one such as -100.
        name: Name of the loss.
        weighted_sum: Whether a batch that comes with sample weights gives Σ w · loss instead, not
            divided by Σ w: see `MaskedSparseCategoricalCrossentropy`.

    Raises:
        ValueError: If `pad_id` is not an integer.
    """

    def __init__(self, pad_id: int, name: str, weighted_sum: bool) -> None:
        super().__init__(name=name, reduction="mean_with_sample_weight")
        require_bool(weighted_sum=weighted_sum)
        self.pad_id = checked_pad_id(pad_id)
        self.weighted_sum = weighted_sum

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Mean over the real tokens of the batch.

        Not left to the base class because that would cast the labels to float32 and merge the
        Keras mask of the predictions into the mean.
        """
        with keras.name_scope(self.name):
            where = type(self).__name__
            labels, logits = checked_labels_and_logits(
                y_true, y_pred, where, self.pad_id, sample_weight
            )
            own_call = type(self).call is not TokenLoss.call  # A subclass may replace `call`.
            values = (self.call if own_call else self._real_values)(labels, logits)
            return mean_over_tokens(
                labels, values, self.pad_id, sample_weight, weighted_sum=self.weighted_sum
            )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Loss of each token, 0 on padding. (B, T), (B, T, V) -> (B, T)."""
        where = type(self).__name__
        return self._real_values(*checked_labels_and_logits(y_true, y_pred, where, self.pad_id))

    def _real_values(self, labels: Any, logits: Any) -> Any:
        values = self.token_values(labels, logits)
        return ops.where(real_tokens(labels, self.pad_id), values, 0)

    @abc.abstractmethod
    def token_values(self, labels: Any, logits: Any) -> Any:
        """Loss of each position, on padding anything. (B, T), (B, T, V) -> (B, T)."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"pad_id": self.pad_id, "name": self.name, "weighted_sum": self.weighted_sum}


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MaskedSparseCategoricalCrossentropy(TokenLoss):
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
    tokens and the replicas are averaged, unless `weighted_sum` is used. Second derivatives are
    right on TensorFlow and JAX, not on torch.

    `model.fit` and `evaluate` show the mean of the batches' losses, each weighted with its rows,
    which depends on the batch size. `Perplexity` weights by token: stop and choose by that.

    A label outside [0, V) that counts is refused where its value is there, in arrays and eager
    tensors (not of torch). A compiled program cannot refuse it: the loss and its gradient are NaN.

    Args:
        label_smoothing: ε, at least 0 and below 1.
        pad_id: The label that counts nowhere. Any integer, also a negative one such as -100.
        name: Name of the loss.
        weighted_sum: Whether a batch that comes with sample weights gives Σ w · loss instead, not
            divided by Σ w. Gradient accumulation and the replicas of `tf.distribute` need it: the
            weights of `make_training_dataset(batches_per_update=..., row_weights=True)` divide by
            the tokens of the whole update, and Keras adds the replicas' gradients.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1) or `pad_id` is not an integer; in a
            call, if labels are not integers or lie outside the vocabulary, or the shapes are not
            (B, T) and (B, T, V).

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
        super().__init__(pad_id, name, weighted_sum)
        self.label_smoothing = checked_smoothing(label_smoothing)

    @property
    def reads_label_logits(self) -> bool:
        """Whether `LabelLogits` do in the place of logits: not for a subclass."""
        return type(self) is MaskedSparseCategoricalCrossentropy

    def token_values(self, labels: Any, logits: Any) -> Any:
        """Label-smoothed cross-entropy of each position. (B, T), (B, T, V) -> (B, T)."""
        return token_cross_entropy(labels, logits, self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"label_smoothing": self.label_smoothing, **super().get_config()}


@keras.saving.register_keras_serializable(package="keras_addnorm")
class RDropCrossentropy(TokenLoss):
    """Label-smoothed cross-entropy plus the divergence of two dropout passes (R-Drop).

    Each row stands twice in a batch, in succession, and gets two different dropout masks. With p
    and q the two predictions of a token and CE the loss of `MaskedSparseCategoricalCrossentropy`::

        loss = ½ (CE(p) + CE(q)) + ½ α · ½ (KL(p ‖ q) + KL(q ‖ p))

    mean per real token. This is half of the paper's loss, which sums over the two rows, so a
    learning rate means what it meant without R-Drop. `make_training_dataset(repeats=2)` makes such
    batches. Without dropout the two are equal: the validation loss is the cross-entropy.

    An epoch takes twice the time and memory, and fits a small corpus less closely.

    Args:
        alpha: α, the weight of the second term, at least 0. The paper takes 5 for translation.
        label_smoothing: ε, at least 0 and below 1.
        pad_id: The label that counts nowhere.
        name: Name of the loss.
        weighted_sum: See `MaskedSparseCategoricalCrossentropy`.

    Raises:
        ValueError: If `alpha` is negative, `label_smoothing` is outside [0, 1) or `pad_id` is not
            an integer; in a call, if the number of rows is odd, labels are not integers or lie
            outside the vocabulary, or the shapes are not (B, T) and (B, T, V).

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import RDropCrossentropy
        >>> labels = np.array([[1], [1]])  # one row, twice
        >>> logits = np.log([[[0.5, 0.5]], [[0.25, 0.75]]]).astype("float32")
        >>> round(float(RDropCrossentropy(alpha=0.0)(labels, logits)), 4)
        0.4904
        >>> round(float(RDropCrossentropy(alpha=5.0)(labels, logits)), 4)
        0.8337

    Reference:
        Liang et al., R-Drop: Regularized Dropout for Neural Networks (2021), equations 2 to 4.
    """

    def __init__(
        self,
        alpha: float = 5.0,
        label_smoothing: float = 0.0,
        pad_id: int = 0,
        name: str = "r_drop_crossentropy",
        weighted_sum: bool = False,
    ) -> None:
        super().__init__(pad_id, name, weighted_sum)
        if not is_number(alpha, least=0):
            raise ArgumentError(
                "`alpha` weighs the difference of the two predictions: at least 0.",
                remedy="5 is usual for translation.",
                alpha=alpha,
            )
        self.alpha = float(alpha)
        self.label_smoothing = checked_smoothing(label_smoothing)

    def token_values(self, labels: Any, logits: Any) -> Any:
        """Both terms for each position, the second one shared. (B, T), (B, T, V) -> (B, T)."""
        values = token_cross_entropy(labels, logits, self.label_smoothing)
        return values + 0.5 * self.alpha * _disagreement(logits)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "alpha": self.alpha,
            "label_smoothing": self.label_smoothing,
            **super().get_config(),
        }


def _disagreement(logits: Any) -> Any:
    """½ (KL(p ‖ q) + KL(q ‖ p)) of the rows 2i and 2i + 1, for both. (B, T, V) -> (B, T).

    With z and z' the logits of a row and of its twin, and p and p' their softmax::

        D = ½ (s + s'),  s = Σ_v p_v (z_v - z'_v)
        ∂D / ∂z_v = ½ (p_v - p'_v + p_v (z_v - z'_v - s))

    where the normalisers cancel. The gradient is written by hand, one pass over the logits: with
    TensorFlow under XLA, R-Drop adds about 50 ms to a loss of 42, where the same formula
    differentiated automatically added 80 (4,080 tokens, V = 6,000, one core).
    """
    rows = logits.shape[0]
    if rows is not None and rows % 2:
        raise ArgumentError(
            "R-Drop compares two predictions of each row.",
            "an even number of rows, each twice in succession",
            "Make batches with make_training_dataset(repeats=2), for validation, too.",
            received=f"logits of shape {tuple(logits.shape)}",
        )

    @ops.custom_gradient
    def disagreement(logits: Any) -> tuple[Any, Any]:
        z = ops.cast(logits, accumulation_dtype(logits))
        _, exponentials, total = softmax_parts(z)
        p = exponentials / total
        s = ops.sum(p * (z - _twins(z)), axis=-1, keepdims=True)

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:  # TensorFlow and JAX pass it alone, torch as a keyword.
                (upstream,) = args
            upstream = ops.expand_dims(ops.cast(upstream, z.dtype), -1)
            upstream = upstream + _twins(upstream)
            slope = 0.5 * upstream * (p - _twins(p) + p * (z - _twins(z) - s))
            # A pair without weight has no gradient even where its logits are not finite.
            return ops.cast(ops.where(ops.equal(upstream, 0), 0, slope), logits.dtype)

        return ops.squeeze(0.5 * (s + _twins(s)), -1), gradient

    return disagreement(logits)


def _twins(x: Any) -> Any:
    """Each row in the place of the other one of its pair. (B, ...) -> (B, ...)."""
    pairs = ops.reshape(x, (-1, 2, *ops.shape(x)[1:]))
    return ops.reshape(ops.flip(pairs, axis=1), ops.shape(x))
