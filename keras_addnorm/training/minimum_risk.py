"""Minimum risk training: the expected cost of candidate translations as a loss."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_number, is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.training.cross_entropy import (
    accumulation_dtype,
    checked_labels_and_logits,
    checked_pad_id,
    checked_smoothing,
    real_tokens,
    token_cross_entropy,
)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MinimumRisk(keras.losses.Loss):
    """The expected cost of a sentence's candidates plus the cross-entropy of its reference.

    Cross-entropy asks for the reference and nothing else: a translation nearly as good costs as
    much as a bad one. Here a sentence has n candidates, found by a search of a trained model, and
    each has a reward r_k in [0, 1], its sentence BLEU, say. With the model's logarithm of the
    probability of a whole candidate y_k, the loss of a batch is::

        q = softmax(α log p(y_1), ..., α log p(y_n))
        loss = mean over sentences of Σ_k q_k (1 - r_k)  +  λ · CE(references)

    The first term moves probability from the candidates of low reward to those of high reward, the
    second one, label-smoothed and mean per real token, keeps the model where it was. It is
    for a trained model and few epochs at a low rate; docs/results.md says what that gave.

    A batch has the sentences one after the other, each with `rows_per_sentence` rows: first the
    reference, then the candidates. A row of padding alone is no candidate, so that sentences may
    have fewer than the others, or none; a sentence without a reference is padding, too. The rewards
    are the sample weights: `model.fit` takes `(inputs, labels, rewards)`, and `shuffle=False`,
    since rows have to stay together. The reward of a reference is not read.

    On one device, and without gradient accumulation, whose weights are others.

    Args:
        rows_per_sentence: n + 1, at least 2.
        sharpness: α, above 0: 1 takes the model's own probabilities, less lets improbable
            candidates count, too.
        reference_weight: λ, at least 0.
        label_smoothing: ε of the references, at least 0 and below 1.
        pad_id: The label that counts nowhere.
        name: Name of the loss.

    Raises:
        ValueError: If an argument is outside of its range; in a call, if there are no rewards, the
            number of rows is not a multiple of `rows_per_sentence`, labels are not integers or lie
            outside the vocabulary, or the shapes are not (B, T), (B, T, V) and (B,) or (B, 1).

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import MinimumRisk
        >>> labels = np.array([[1], [2], [3]])  # a reference and two candidates of one token
        >>> rewards = np.array([1.0, 0.2, 0.6])
        >>> logits = np.zeros((3, 1, 4), "float32")  # the candidates are equally probable
        >>> round(float(MinimumRisk(3, reference_weight=0.0)(labels, logits, rewards)), 4)
        0.6

    Reference:
        Shen et al., Minimum Risk Training for Neural Machine Translation (2016), section 3, has the
        risk over a subset of all translations, with α. Edunov et al., Classical Structured
        Prediction Losses for Sequence to Sequence Learning (2018), has it in equation 4, and its
        weighted sum with the label-smoothed token loss.
    """

    def __init__(
        self,
        rows_per_sentence: int,
        sharpness: float = 0.5,
        reference_weight: float = 0.3,
        label_smoothing: float = 0.0,
        pad_id: int = 0,
        name: str = "minimum_risk",
    ) -> None:
        super().__init__(name=name)
        if not is_whole(rows_per_sentence, 2):
            raise ArgumentError(
                "A sentence has a reference and its candidates.",
                "an int `rows_per_sentence` of at least 2",
                rows_per_sentence=rows_per_sentence,
            )
        if not is_number(sharpness, above=0):
            raise ArgumentError(
                "sharpness is the exponent of the probabilities.",
                "a number above 0",
                received=f"{sharpness!r}; 0.5 is a good start",
            )
        if not is_number(reference_weight, least=0):
            raise ArgumentError(
                "`reference_weight` weighs the references' cross-entropy.",
                "at least 0",
                received=f"{reference_weight!r}; 0.3 is a good start",
            )
        self.rows_per_sentence = int(rows_per_sentence)
        self.sharpness = float(sharpness)
        self.reference_weight = float(reference_weight)
        self.label_smoothing = checked_smoothing(label_smoothing)
        self.pad_id = checked_pad_id(pad_id)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The loss of a batch: (B, T), (B, T, V) and rewards (B,) or (B, 1) -> ()."""
        with keras.name_scope(self.name):
            labels, logits = checked_labels_and_logits(
                y_true, y_pred, type(self).__name__, self.pad_id
            )
            self._check_rows(labels, sample_weight)
            real = real_tokens(labels, self.pad_id)
            risk = self._risk(labels, logits, real, sample_weight)
            return risk + self.reference_weight * self._of_references(labels, logits, real)

    def _check_rows(self, labels: Any, rewards: Any) -> None:
        rows = labels.shape[0]
        if rows is not None and rows % self.rows_per_sentence:
            raise ArgumentError(
                f"Each sentence has {self.rows_per_sentence} rows, a reference and its candidates.",
                f"a multiple of {self.rows_per_sentence} rows",
                "Fill up with rows of padding.",
                received=f"labels of shape {tuple(labels.shape)}",
            )
        if rewards is None or tuple(ops.shape(rewards))[1:] not in ((), (1,)):
            received = None if rewards is None else f"shape {tuple(ops.shape(rewards))}"
            raise ArgumentError(
                "MinimumRisk reads the candidates' rewards as sample weights.",
                "one a row, of shape (batch,) or (batch, 1)",
                "Pass (inputs, labels, rewards) to `fit`, and leave out validation data that have "
                "none.",
                received=str(received),
            )

    def _risk(self, labels: Any, logits: Any, real: Any, rewards: Any) -> Any:
        dtype = accumulation_dtype(logits)
        each = (-1, self.rows_per_sentence)
        nll = ops.where(real, token_cross_entropy(labels, logits), 0)
        # (B,) -> (B / (n + 1), n)
        log_p = -ops.reshape(ops.sum(nll, axis=-1), each)[:, 1:]
        is_candidate = ops.reshape(ops.any(real, axis=-1), each)[:, 1:]
        costs = 1 - ops.reshape(ops.cast(rewards, dtype), each)[:, 1:]
        costs = ops.where(is_candidate, costs, 0)
        q = ops.softmax(ops.where(is_candidate, self.sharpness * log_p, -1e30), axis=-1)
        risks = ops.sum(q * costs, axis=-1)
        is_sentence = ops.any(real[:: self.rows_per_sentence], axis=-1)
        return _mean(risks, is_sentence, dtype)

    def _of_references(self, labels: Any, logits: Any, real: Any) -> Any:
        one_in = slice(None, None, self.rows_per_sentence)
        values = token_cross_entropy(labels[one_in], logits[one_in], self.label_smoothing)
        return _mean(values, real[one_in], accumulation_dtype(logits))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "rows_per_sentence": self.rows_per_sentence,
            "sharpness": self.sharpness,
            "reference_weight": self.reference_weight,
            "label_smoothing": self.label_smoothing,
            "pad_id": self.pad_id,
            "name": self.name,
        }


def _mean(values: Any, counts: Any, dtype: str) -> Any:
    """Mean of the values that count; 0 if none does."""
    number = ops.sum(ops.cast(counts, dtype))
    return ops.sum(ops.where(counts, values, 0)) / ops.maximum(number, 1.0)
