"""What losses and metrics need of the logits of a large vocabulary, which are never whole."""

from __future__ import annotations

from typing import Any, NamedTuple

Tensor = Any


class LabelLogits(NamedTuple):
    """Of each position, four numbers in the place of V logits. Shapes (B, T), float32 or float64.

    A label outside the vocabulary has NaN in each of them.

    Attributes:
        log_normalizer: The logarithm of the sum of the exponentials of all logits.
        label: The logit of the label.
        mean: The mean of all logits.
        prediction: The id of the highest logit; of equal ones, the lowest id.
    """

    log_normalizer: Tensor
    label: Tensor
    mean: Tensor
    prediction: Tensor
