"""Penalties of scores: what they are divided by for their length, and that of coverage.

A length penalty is the divisor of a sum of log-probabilities, by the length of the hypothesis. The
coverage penalty lowers the score of hypotheses that leave source tokens unattended.

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
import math
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics import Table
from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.fields import from_fields
from keras_addnorm.decoding.checks import require_layer

Tensor = Any


class LengthPenalty(abc.ABC):
    """Divides sums of log-probabilities. A subclass is a frozen dataclass."""

    @abc.abstractmethod
    def divisor(self, length: int | Tensor) -> Tensor:
        """Return the divisor for a number of log-probabilities.

        It is positive. It may rise and fall with the length: a search that asks what an unfinished
        hypothesis can still reach looks at the divisors of all lengths to come.

        Args:
            length: Number of tokens n, end token included, or a tensor of such numbers.

        Returns:
            The divisor of each, float32.
        """


class _Power(LengthPenalty):
    """A penalty that is a power of a number, whose size can be told without computing it."""

    alpha: float

    @abc.abstractmethod
    def base(self, length: Any) -> Any:
        """Return the number, of an int or of a float32 tensor."""


@dataclasses.dataclass(frozen=True)
class NoPenalty(LengthPenalty):
    """Divides by 1: the score is the sum itself, and short outputs have the advantage."""

    def divisor(self, length: int | Tensor) -> Tensor:
        """Return ones."""
        return ops.ones_like(ops.cast(length, "float32"))


@dataclasses.dataclass(frozen=True)
class GNMTPenalty(_Power):
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
        return self.base(ops.cast(length, "float32")) ** self.alpha

    def base(self, length: Any) -> Any:
        """Return `(5 + n) / 6`."""
        return (5.0 + length) / 6.0


@dataclasses.dataclass(frozen=True)
class AveragePenalty(_Power):
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
        return self.base(ops.maximum(ops.cast(length, "float32"), 1.0)) ** self.alpha

    def base(self, length: Any) -> Any:
        """Return `n`."""
        return length


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
        raise ArgumentError(
            "The exponent of a length penalty has to be a number, finite in float32.", alpha=alpha
        )


# What a divisor may be, for n tokens: sums of log-probabilities are between -1e-7, float32's step
# below 0, and some -20 n. Their quotients have to be normal numbers, and above -5e8: a score below
# that counts as impossible.
_LARGEST = 1e30
_SMALLEST_OF_A_TOKEN = 4e-8


def require_scores(penalty: LengthPenalty, max_length: int, *, may_compute: bool = True) -> None:
    """Raise a `ValueError` unless scores of all lengths can be told apart in float32.

    Divided by 1e40 all of them are 0, and by 1e-40 minus infinity. The divisors of a penalty of
    another class are taken as they are in a traced function, which may not compute them.
    """
    numbers = np.arange(1, max_length + 1)
    if isinstance(penalty, _Power):
        logs = penalty.alpha * np.log(penalty.base(numbers))
    elif may_compute:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(ops.convert_to_numpy(penalty.divisor(numbers)).astype("float64"))
    else:
        return
    fits = (np.log(_SMALLEST_OF_A_TOKEN * numbers) < logs) & (logs < math.log(_LARGEST))
    if not fits.all():
        place = int(np.flatnonzero(~fits)[-1])
        length, log = place + 1, logs[place]
        raise ArgumentError(
            "Scores are sums of log-probabilities divided by the length penalty, and float32 "
            "could not tell them apart.",
            f"a divisor between {_SMALLEST_OF_A_TOKEN * length:.0e} and {_LARGEST:.0e} for "
            f"{length} tokens",
            "Take an exponent nearer to 0, or a smaller `max_length`.",
            received=f"{penalty}, which divides by about 1e{log / math.log(10):+.0f} there",
        )


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
"""What `get_coverage` makes a coverage penalty of."""


def get_coverage(identifier: CoverageLike) -> CoveragePenalty | None:
    """Return a coverage penalty of its weight, its fields or itself; `None` for none."""
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return CoveragePenalty(float(identifier)) if identifier != 0 else None
    return from_fields(CoveragePenalty, identifier, "A coverage penalty that is no weight")
