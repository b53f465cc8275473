"""Length penalties: the divisor of a sum of log-probabilities, by the length of the hypothesis.

```python
from keras_addnorm.decoding import length_penalties

length_penalties.get(0.6)  # GNMTPenalty(alpha=0.6)
length_penalties.get("average")  # AveragePenalty(alpha=1.0)
length_penalties.get({"name": "average", "alpha": 0.8})
```
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.basics import Table
from keras_addnorm.basics.argument_checks import is_number

Tensor = Any


class LengthPenalty(abc.ABC):
    """Divides sums of log-probabilities. A subclass is a frozen dataclass."""

    @abc.abstractmethod
    def divisor(self, length: int | Tensor) -> Tensor:
        """Return the divisor for a number of log-probabilities.

        It is positive, and only rises or only falls with the length: the best score that an
        unfinished hypothesis can still reach is found at the shortest or the longest length.

        Args:
            length: Number of tokens n, end token included.

        Returns:
            The divisor, float32.
        """


@dataclasses.dataclass(frozen=True)
class NoPenalty(LengthPenalty):
    """Divides by 1: the score is the sum itself, and short outputs have the advantage."""

    def divisor(self, length: int | Tensor) -> Tensor:
        """Return ones."""
        return ops.ones_like(ops.cast(length, "float32"))


@dataclasses.dataclass(frozen=True)
class GNMTPenalty(LengthPenalty):
    """Divides by `((5 + n) / 6)^alpha`.

    Args:
        alpha: 0 for no penalty; larger values favour longer outputs.

    Raises:
        ValueError: If `alpha` is not a finite number.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, equation 14.
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def divisor(self, length: int | Tensor) -> Tensor:
        """Return `((5 + n) / 6)^alpha`."""
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.alpha


@dataclasses.dataclass(frozen=True)
class AveragePenalty(LengthPenalty):
    """Divides by `n^alpha`: with 1, the score is the mean log-probability of a token.

    This is `length_penalty` of CTranslate2, `--normalize` of Marian and `--lenpen` of fairseq.

    Args:
        alpha: 0 for no penalty, 1 for the mean.

    Raises:
        ValueError: If `alpha` is not a finite number.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def divisor(self, length: int | Tensor) -> Tensor:
        """Return `n^alpha`, and 1 for a sequence of no tokens."""
        return ops.maximum(ops.cast(length, "float32"), 1.0) ** self.alpha


LengthPenaltyLike = float | str | dict[str, Any] | LengthPenalty
"""What `get` makes a length penalty of."""

_TABLE: Table[LengthPenalty] = Table(
    "length penalty",
    LengthPenalty,  # type: ignore[type-abstract]
    {"none": NoPenalty, "gnmt": GNMTPenalty, "average": AveragePenalty},
    module="keras_addnorm.decoding.length_penalties",
)
names = _TABLE.names
register = _TABLE.register
serialize = _TABLE.serialize


def get(identifier: LengthPenaltyLike) -> LengthPenalty:
    """Return a length penalty by name, from its config, by GNMT's exponent, or as it is.

    Args:
        identifier: A number (the exponent of the GNMT penalty, 0 for none), a name such as
            `"average"`, a dict with the name and the fields, or an instance.

    Returns:
        The penalty.

    Raises:
        ValueError: If there is no such penalty or field, or the number is not finite.
    """
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return NoPenalty() if identifier == 0 else GNMTPenalty(float(identifier))
    return _TABLE.get(identifier)  # type: ignore[arg-type]


def _check_alpha(alpha: float) -> None:
    if not is_number(alpha):
        raise ValueError(
            f"The exponent of a length penalty has to be a finite number. Received: alpha={alpha!r}"
        )
