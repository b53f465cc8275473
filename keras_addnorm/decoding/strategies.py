"""The table of strategies.

```python
from keras_addnorm.decoding import strategies

strategies.names()  # ('greedy', 'beam', ...)
strategies.get("greedy")  # Greedy()
strategies.get({"name": "beam", "num_beams": 5, "length_penalty": 0.6})
```
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_addnorm.basics import Table
from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.beam import Beam, DiverseBeam
from keras_addnorm.decoding.coverage import CoveragePenalty
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.length_penalties import LengthPenalty
from keras_addnorm.decoding.sample import Sample
from keras_addnorm.decoding.strategy import Strategy

StrategyLike = str | dict[str, Any] | Strategy
"""What `get` makes a strategy of."""

_TABLE: Table[Strategy] = Table(
    "decoding strategy",
    Strategy,  # type: ignore[type-abstract]
    {"greedy": Greedy, "beam": Beam, "diverse_beam": DiverseBeam, "sample": Sample},
    module="keras_addnorm.decoding.strategies",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get


def serialize(strategy: Strategy) -> dict[str, Any]:
    """Return a config of plain values, from which `get` makes an equal strategy.

    Args:
        strategy: A strategy of the table.

    Returns:
        A dict of plain values, to be written as JSON.

    Raises:
        ValueError: If the strategy's class is not in the table.
    """
    plain: dict[str, Any] = _plain(_TABLE.serialize(strategy))
    return plain


def choose(
    strategy: StrategyLike | None,
    num_beams: int | None,
    length_penalty: length_penalties.LengthPenaltyLike | None,
) -> Strategy:
    """Return the strategy that the short way or the long way of `generate` asks for.

    Args:
        strategy: What `get` takes, or `None` for the short way.
        num_beams: The short way: number of hypotheses; 1, as `None`, is greedy search.
        length_penalty: The short way: what scores are divided by; `None` for nothing.

    Returns:
        The strategy.

    Raises:
        ValueError: If both ways are used at once, or an option does not fit.
    """
    if num_beams is not None:
        require_int("A search needs hypotheses.", num_beams=num_beams)
    if strategy is None:
        penalty = 0.0 if length_penalty is None else length_penalty
        return Greedy(penalty) if num_beams is None or num_beams == 1 else Beam(num_beams, penalty)
    if num_beams is not None or length_penalty is not None:
        raise ArgumentError(
            "The search is described twice.",
            "either `strategy` or the short way with `num_beams` and `length_penalty`",
            "Put them into the strategy, such as Beam(num_beams=4, `length_penalty=0.6`).",
            strategy=strategy,
            num_beams=num_beams,
            length_penalty=length_penalty,
        )
    return get(strategy)


def _plain(value: Any) -> Any:
    """Return a field of a strategy, or all of them, as plain values."""
    if isinstance(value, dict):  # A strategy may hold another one.
        return {name: _plain(field) for name, field in value.items()}
    if isinstance(value, LengthPenalty):
        return length_penalties.serialize(value)
    return dataclasses.asdict(value) if isinstance(value, CoveragePenalty) else value
