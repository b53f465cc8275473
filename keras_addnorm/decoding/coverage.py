"""Coverage penalty: lowers the score of hypotheses that leave source tokens unattended."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding.checks import require_layer

Tensor = Any
# Lower bound of the attention to a token: the logarithm of 0 would exclude the hypothesis.
_UNREAD = 1e-9
# A token that nothing looked at costs 20.7 times the weight, and a score below -5e8 would count as
# impossible: with this weight, that of a source of 24,000 tokens.
_HEAVIEST = 1000


@dataclasses.dataclass(frozen=True)
class CoveragePenalty:
    """Adds `beta * sum_i log(min(sum_j p_ij, 1))` to the score of a hypothesis.

    `p_ij` is the attention of the target token j to the source token i, averaged over the heads
    of one layer: a source token that no target token looked at costs most, one that was looked at
    with a total weight of 1 costs nothing. The end tokens of both sides count. The term is added
    after the division by the length penalty. It ranks hypotheses when they finish (and the
    unfinished ones at the end); which tokens are continued is up to the log-probabilities.

    Args:
        beta: Its weight; GNMT uses 0.2.
        layer: The decoder layer that is asked; -1 is the last.

    Raises:
        ValueError: If `beta` is not a number above 0 and at most 1000, or the layer is no int.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, equation 14.
    """

    beta: float
    layer: int = -1

    def __post_init__(self) -> None:
        if not is_number(self.beta, above=0, most=_HEAVIEST):
            raise ArgumentError(
                f"The weight of a coverage penalty has to be above 0 and at most {_HEAVIEST}.",
                remedy="0 as `coverage_penalty` means none.",
                beta=self.beta,
            )
        require_layer(self.layer)

    def term(self, attention: Tensor, source_mask: Tensor) -> Tensor:
        """Return the term of each score, `(N,)`, from the summed attention to tokens, `(N, S)`."""
        logs = ops.log(ops.clip(attention, _UNREAD, 1.0))
        return self.beta * ops.sum(ops.where(source_mask, logs, 0.0), axis=-1)


CoverageLike = float | dict[str, Any] | CoveragePenalty | None
"""What `get` makes a coverage penalty of."""


def get(identifier: CoverageLike) -> CoveragePenalty | None:
    """Return a coverage penalty, or `None` for none.

    Args:
        identifier: The weight beta, 0 or `None` for none, a dict of fields, or an instance.

    Returns:
        The penalty.

    Raises:
        ValueError: If it is something else, or a number does not fit.
    """
    if identifier is None or isinstance(identifier, CoveragePenalty):
        return identifier
    if isinstance(identifier, dict) and "beta" in identifier and {*identifier} <= {"beta", "layer"}:
        return CoveragePenalty(**identifier)
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return CoveragePenalty(float(identifier)) if identifier != 0 else None
    raise ArgumentError(
        "There is no such coverage penalty.",
        "a weight, {'beta': ..., 'layer': ...}, or a CoveragePenalty",
        value=identifier,
    )
