"""Constraints: rules about which token may come next, the same in every strategy.

A constraint reads what has been generated and returns the tokens that are allowed next. Scores do
not change: the log-probability of a token stays the model's own. Several constraints hold together.

```python
from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.decoding import constraints

constraints.get({"name": "no_repeat_ngram", "size": 3})  # NoRepeatNgram(size=3)
```
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_addnorm.basics import Table
from keras_addnorm.basics.argument_checks import is_number, is_whole, require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_tensor
from keras_addnorm.decoding.checks import listed
from keras_addnorm.decoding.decoder import SpecialIds

Tensor = Any


class View(NamedTuple):
    """What a constraint sees before a token is chosen, for N rows.

    Args:
        sequences: `(N, T)`, what has been generated, padded, as columns.
        index: Number of tokens generated so far, a scalar.
        source_lengths: `(N,)`, number of tokens of each source, its end token included.
        vocabulary_size: The number of columns, V.
        ids: The columns of the special ids.
        listed: `(V,)`, the token of each column of a `Shortlist`; `None` where columns are tokens.
    """

    sequences: Tensor
    index: Tensor
    source_lengths: Tensor
    vocabulary_size: int
    ids: SpecialIds
    listed: Tensor | None = None

    @property
    def tokens(self) -> Tensor:
        """`(V,)` int32, the token that each column stands for."""
        if self.listed is None:
            return ops.arange(self.vocabulary_size, dtype="int32")
        return self.listed

    @property
    def is_end(self) -> Tensor:
        """`(1, V)`, True at the end token."""
        return ops.expand_dims(
            ops.equal(ops.arange(self.vocabulary_size, dtype="int32"), self.ids.end_id), 0
        )


# More tokens than any output has, and an int32 holds them.
_MANY = 2.0**30


class Constraint(abc.ABC):
    """A rule about the next token. A subclass is a frozen dataclass."""

    @abc.abstractmethod
    def allowed(self, view: View) -> Tensor:
        """Say which tokens may come next.

        Args:
            view: What has been generated.

        Returns:
            Booleans that broadcast to `(N, V)`.
        """

    def check(self, vocabulary_size: int, max_length: int) -> None:  # noqa: B027
        """Raise a `ValueError` unless the rule fits the model and the request; here it always does.

        Args:
            vocabulary_size: V.
            max_length: Number of tokens to generate at most.
        """


@dataclasses.dataclass(frozen=True)
class _LengthLimit(Constraint):
    """A number of tokens that depends on the source: `source_factor * S + length`."""

    length: int = 0
    source_factor: float = 0.0

    def __post_init__(self) -> None:
        fits = is_whole(self.length, 0) and is_number(self.source_factor, least=0)
        if not fits or self.length == self.source_factor == 0:
            raise ArgumentError(
                "A limit on the length needs a number of tokens, or a factor of the source's "
                "length, or both.",
                "an int length and a finite `source_factor` that are not negative, one of them "
                "positive",
                length=self.length,
                source_factor=self.source_factor,
            )

    def _tokens(self, source_lengths: Tensor) -> Tensor:
        # A thousandth more: 4.2 * 15 is 62.999996 in float32, and meant to be 63.
        product = self.source_factor * ops.cast(source_lengths, "float32") + (self.length + 1e-3)
        return ops.cast(ops.floor(ops.minimum(product, _MANY)), "int32")


@dataclasses.dataclass(frozen=True)
class MinLength(_LengthLimit):
    """No end before the sequence has `source_factor * S + length` tokens, rounded down.

    Tokens are counted as by `max_length`: with the end token. S is the length of the source, its
    end token included.

    Args:
        length: The part that is the same for all sentences.
        source_factor: The part that grows with the source.

    Raises:
        ValueError: If both are 0, or one is negative or no number.
    """

    def allowed(self, view: View) -> Tensor:
        """Allow the end token from the minimum on: `(N, V)`."""
        minimum = self._tokens(view.source_lengths)
        may_end = ops.expand_dims(view.index + 1 >= minimum, -1)
        return ops.logical_or(may_end, ops.logical_not(view.is_end))

    def check(self, vocabulary_size: int, max_length: int) -> None:
        """Raise if no sequence can be long enough.

        Args:
            vocabulary_size: V.
            max_length: Number of tokens to generate at most.
        """
        if self.length > max_length:
            raise ArgumentError(
                "The shortest output would be longer than the longest.",
                "a minimum length <= `max_length`",
                received=f"a minimum of {self.length}",
                max_length=max_length,
            )


@dataclasses.dataclass(frozen=True)
class MaxLength(_LengthLimit):
    """The end token at `source_factor * S + length` tokens, rounded down, and 1 at least.

    Unlike `max_length`, which cuts a sequence off, this makes it end: the last token that fits
    has to be the end token, and counts in the score. S is the length of the source, its end token
    included.

    Args:
        length: The part that is the same for all sentences.
        source_factor: The part that grows with the source.

    Raises:
        ValueError: If both are 0, or one is negative or no number.
    """

    def allowed(self, view: View) -> Tensor:
        """Allow only the end token from the maximum on: `(N, V)`."""
        maximum = self._tokens(view.source_lengths)
        may_go_on = ops.expand_dims(view.index + 1 < maximum, -1)
        return ops.logical_or(may_go_on, view.is_end)


@dataclasses.dataclass(frozen=True)
class NoRepeatNgram(Constraint):
    """No `size` tokens in a row twice in one output. 1 forbids every repetition.

    Args:
        size: Length of the sequences that may not come again.

    Raises:
        ValueError: If it is not positive.
    """

    size: int

    def __post_init__(self) -> None:
        require_int("An n-gram has tokens.", size=self.size)

    def allowed(self, view: View) -> Tensor:
        """Forbid each token that would complete an n-gram of the output again: `(N, V)`."""
        sequences, n = view.sequences, self.size
        num_rows, num_windows = ops.shape(sequences)[0], sequences.shape[1] - n + 1
        if num_windows < 1:
            return ops.ones((1, 1), dtype="bool")
        # (N, windows): is the window full, and do its first n - 1 tokens equal the last n - 1?
        is_full = ops.arange(num_windows, dtype="int32") + n - 1 < view.index
        comes_again = ops.broadcast_to(is_full, (num_rows, num_windows))
        for i in range(n - 1):
            place = ops.maximum(view.index - (n - 1) + i, ops.cast(0, "int32"))
            last = ops.take(sequences, place, axis=1)
            same = ops.equal(sequences[:, i : i + num_windows], ops.expand_dims(last, -1))
            comes_again = ops.logical_and(comes_again, same)
        token = ops.where(comes_again, sequences[:, n - 1 :], 0)
        row = ops.expand_dims(ops.arange(num_rows, dtype="int32"), -1) + ops.zeros_like(token)
        counts = ops.scatter(
            ops.reshape(ops.stack([row, token], axis=-1), (-1, 2)),
            ops.reshape(ops.cast(comes_again, "int32"), (-1,)),
            (num_rows, view.vocabulary_size),
        )
        return ops.equal(counts, 0)


@dataclasses.dataclass(frozen=True)
class ForbiddenTokens(Constraint):
    """Tokens that are never generated.

    Args:
        tokens: Their ids.

    Raises:
        ValueError: If there is none, or one is no id.
    """

    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", listed("Forbidden tokens", self.tokens))
        if not self.tokens:
            raise ArgumentError("Nothing is forbidden.", "at least one token id", value=())
        if wrong := [token for token in self.tokens if not is_whole(token, 0)]:
            raise ArgumentError(
                "A forbidden token is named by its id.", "ints from 0 on", value=wrong
            )

    def allowed(self, view: View) -> Tensor:
        """Allow all other tokens: `(1, V)`."""
        beyond = max(self.tokens) + 1
        allowed = np.ones(beyond + 1, "bool")
        allowed[list(self.tokens)] = False
        table = to_tensor(allowed)
        places = ops.minimum(view.tokens, ops.cast(beyond, "int32"))
        return ops.expand_dims(ops.take(table, places), 0)

    def check(self, vocabulary_size: int, max_length: int) -> None:
        """Raise a `ValueError` if a token lies outside the vocabulary."""
        if not all(0 <= token < vocabulary_size for token in self.tokens):
            raise ArgumentError(
                "A forbidden token lies outside the vocabulary.",
                f"ids from 0 to {vocabulary_size - 1}",
                value=self.tokens,
            )


ConstraintLike = str | dict[str, Any] | Constraint
"""What `get` makes a constraint of."""

_TABLE: Table[Constraint] = Table(
    "constraint",
    Constraint,  # type: ignore[type-abstract]
    {
        "min_length": MinLength,
        "max_length": MaxLength,
        "no_repeat_ngram": NoRepeatNgram,
        "forbidden_tokens": ForbiddenTokens,
    },
    module="keras_addnorm.decoding.constraints",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize


def forbidden_by(tokenizer: Any) -> tuple[Constraint, ...]:
    """Return the rule that a target's tokenizer makes, or none: its `unused_ids` have no piece."""
    unused = tuple(getattr(tokenizer, "unused_ids", ()))
    return (ForbiddenTokens(unused),) if unused else ()


def get_all(identifiers: Iterable[ConstraintLike]) -> tuple[Constraint, ...]:
    """Return several constraints, of a list of what `get` takes."""
    return tuple(map(get, listed("Constraints", identifiers)))


def require_possible(
    constraints: Iterable[Constraint], vocabulary_size: int | None, max_length: int, ids: SpecialIds
) -> None:
    """Raise a `ValueError` unless constraints fit a model, and leave something to generate.

    What depends on the source or on what was generated cannot be known before: there a search
    finds nothing, and says so with the score minus infinity.

    Args:
        constraints: The constraints.
        vocabulary_size: V; `None` if it is not known.
        max_length: Number of tokens to generate at most.
        ids: The special ids.

    Raises:
        ValueError: If one does not fit, or nothing is allowed.
    """
    constraints = tuple(constraints)
    if vocabulary_size is not None:
        for constraint in constraints:
            constraint.check(vocabulary_size, max_length)
    forbidden = set(ids.never_generated)
    for constraint in constraints:
        if isinstance(constraint, ForbiddenTokens):
            forbidden.update(constraint.tokens)
    if vocabulary_size is not None and forbidden.issuperset(range(vocabulary_size)):
        raise ArgumentError(
            "The constraints leave nothing to generate: each token of the vocabulary is forbidden.",
            f"at least one of {vocabulary_size} tokens that is allowed",
            value=constraints,
        )
    for least in (each for each in constraints if isinstance(each, MinLength)):
        for most in (each for each in constraints if isinstance(each, MaxLength)):
            # For a source of one token, its end; others have the more, the faster a limit grows.
            needs, allows = (each.length + each.source_factor for each in (least, most))
            grows_faster = least.source_factor >= most.source_factor
            if needs >= 2 and needs - allows >= 1 and grows_faster:
                raise ArgumentError(
                    "The constraints leave nothing to generate: an output would have to be longer "
                    "than it may be.",
                    "a minimum that is not above the maximum",
                    received=f"{least} and {most}",
                )
    if ids.end_id in forbidden and any(isinstance(each, MaxLength) for each in constraints):
        raise ArgumentError(
            "The constraints leave nothing to generate: MaxLength makes outputs end, and the end "
            "token is forbidden.",
            "one of the two",
            value=constraints,
        )
