"""What a student is trained on beside its labels: word alignments, and a teacher's predictions."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.basics.argument_checks import is_number, require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.training.cross_entropy import (
    accumulation_dtype,
    checked_labels_and_logits,
    checked_pad_id,
    real_tokens,
)
from keras_addnorm.training.losses import mean_over_tokens

_SMALL = 1e-6
"""What is added to an attention weight before its logarithm, as Marian does."""


class GuidedAlignment:
    """Teaches cross-attention where to look, from word alignments.

    With a_tj = 1 / (links of target token t) for each source token j that t is linked with, and p
    the mean over the heads of the last decoder layer's cross-attention::

        loss = -weight · Σ_tj a_tj log(p_tj + 1e-6) / (target tokens of the batch)

    A target token without a link counts nothing but as a token. Pass it to
    `Seq2SeqTransformer.compile(guided_alignment=...)`, and batches with `"alignment"` among their
    inputs to `fit`, as `make_training_dataset(alignments=...)` makes them: they hold a_tj divided
    by the tokens, or times the weight of the row. It is used while training only.

    Args:
        weight: Its weight beside the loss on labels. 0.1 is usual.

    Raises:
        ValueError: If the weight is not above 0.

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import GuidedAlignment
        >>> attention = np.array([[[[0.5, 0.5]]]], "float32")  # one head, one target token
        >>> loss = GuidedAlignment(weight=1.0)(np.array([[[1.0, 0.0]]], "float32"), attention)
        >>> round(float(loss), 4)  # log 2
        0.6931

    Reference:
        Chen et al., "Guided Alignment Training for Topic-Aware Neural Machine Translation", 2016.
    """

    def __init__(self, weight: float = 0.1) -> None:
        if not is_number(weight, above=0):
            raise ArgumentError("Guided alignment needs a weight.", "above 0", weight=weight)
        self.weight = float(weight)

    def __call__(self, alignment: Any, attention: Any) -> Any:
        """Returns the loss of `(B, T, S)` shares of links and `(B, H, T, S)` attention weights."""
        dtype = accumulation_dtype(attention)
        p = ops.mean(ops.cast(attention, dtype), axis=1)
        return -self.weight * ops.sum(ops.cast(alignment, dtype) * ops.log(p + _SMALL))


class TokenDistillation:
    """Teaches a student the distribution of a teacher over each token, beside the labels.

    With z and t the logits of student and teacher for one token, and τ the temperature::

        loss = weight · mean over the real tokens of τ² KL(softmax(t / τ) ‖ softmax(z / τ))

    Padding counts nothing, and sample weights count as in `MaskedSparseCategoricalCrossentropy`.
    The teacher runs without dropout and learns nothing. Both need the same vocabularies. Pass it
    to `Seq2SeqTransformer.compile(distillation=...)`; it is used while training only.

    Args:
        teacher: A model of the same inputs, such as a `Seq2SeqTransformer`.
        weight: Its weight beside the loss on labels.
        temperature: τ: above 1, rare tokens count more.
        pad_id: The label that counts nowhere.
        weighted_sum: See `MaskedSparseCategoricalCrossentropy`.

    Raises:
        ValueError: If the teacher is no model, or the weight or the temperature is not above 0.

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import TokenDistillation
        >>> loss = TokenDistillation(lambda inputs, training: np.log([[[0.5, 0.5]]]))
        >>> student = np.log([[[0.25, 0.75]]])
        >>> round(float(loss({}, np.array([[1]]), student)), 4)  # log(2/√3)
        0.1438

    Reference:
        Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; Kim and Rush,
        "Sequence-Level Knowledge Distillation", 2016, section 3.1.
    """

    def __init__(
        self,
        teacher: Any,
        weight: float = 1.0,
        temperature: float = 1.0,
        pad_id: int = 0,
        weighted_sum: bool = False,
    ) -> None:
        if not callable(teacher):
            raise ArgumentError(
                "A teacher gives logits.",
                "a model, or a function of inputs and `training`",
                value=teacher,
            )
        require_bool(weighted_sum=weighted_sum)
        self.pad_id, self.weighted_sum = checked_pad_id(pad_id), weighted_sum
        for name, value in {"weight": weight, "temperature": temperature}.items():
            if not is_number(value, above=0):
                raise ArgumentError(
                    f"`{name}` of a distillation has to be above 0.", "1, as is usual", value=value
                )
        self.teacher, self.weight, self.temperature = teacher, float(weight), float(temperature)

    def __call__(self, inputs: Any, labels: Any, logits: Any, sample_weight: Any = None) -> Any:
        """Returns the loss of a batch.

        Args:
            inputs: What both models read.
            labels: `(B, T)`.
            logits: The student's, `(B, T, V)`.
            sample_weight: None, or `(B,)`, `(B, 1)` or `(B, T)`.

        Returns:
            A scalar.

        Raises:
            ValueError: If the teacher's vocabulary is another.
        """
        labels, logits = checked_labels_and_logits(
            labels, logits, type(self).__name__, self.pad_id, sample_weight
        )
        taught = ops.stop_gradient(self.teacher(inputs, training=False))
        if taught.shape[-1] != logits.shape[-1]:
            raise ArgumentError(
                "Teacher and student need the same vocabulary, token by token.",
                f"{logits.shape[-1]} target tokens, as the student has",
                "A teacher of another vocabulary can teach by its translations: "
                "keras-addnorm distill.",
                received=f"a teacher of {taught.shape[-1]}",
            )
        values = ops.where(real_tokens(labels, self.pad_id), self._divergence(taught, logits), 0)
        return self.weight * mean_over_tokens(
            labels, values, self.pad_id, sample_weight, weighted_sum=self.weighted_sum
        )

    def _divergence(self, taught: Any, logits: Any) -> Any:
        """τ² KL(teacher ‖ student) of each position. (B, T, V), (B, T, V) -> (B, T)."""
        dtype, tau = accumulation_dtype(logits), self.temperature
        taught, logits = (ops.cast(z, dtype) / tau for z in (taught, logits))
        log_q, log_p = ops.log_softmax(taught, axis=-1), ops.log_softmax(logits, axis=-1)
        return tau**2 * ops.sum(ops.exp(log_q) * (log_q - log_p), axis=-1)
