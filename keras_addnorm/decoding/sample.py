"""Sampling from the model's distribution, or from its more probable part."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.basics.argument_checks import is_number, is_whole, require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding.greedy import ChooseTokens, search_rows
from keras_addnorm.decoding.length_penalties import CoverageLike, LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import SearchInputs, SearchResult
from keras_addnorm.decoding.strategy import MOST_SAMPLES, StepModel, Strategy
from keras_addnorm.decoding.tensor_ops import (
    IMPOSSIBLE,
    best_first,
    gumbel,
    is_possible,
    select,
    sentence_keys,
    spread,
)

Tensor = Any
# Divided by less, the log-probability even of the best of a million tokens could be below -5e8,
# which is impossible.
_COLDEST = 1e-6


@dataclasses.dataclass(frozen=True)
class Sample(Strategy):
    """Draws each token from the model's distribution.

    First the log-probabilities are divided by the temperature; then only the `top_k` most
    probable tokens are kept; then, of what these have among them, only the fewest tokens that
    together reach the probability `top_p`. Of equals the smaller id is kept. The score of an
    output is that of every strategy: the sum of the model's own log-probabilities, at temperature
    1 and over the whole vocabulary.

    What is drawn depends on the seed, the source and the number of the draw alone: the same
    sentence with the same seed gives the same output, in any batch, on any backend.

    Args:
        temperature: Below 1 for more probable outputs, above 1 for more varied ones.
        top_k: Number of tokens that are kept; `None` for all.
        top_p: Probability that is kept; `None` for all.
        seed: Tells draws apart. Another one needs no new compilation.
        num_return: Number of outputs drawn for each sentence; returned the best first, and now
            and then the same twice.
        length_penalty: What scores are divided by; see `Greedy`.
        coverage_penalty: What is added to scores; see `Greedy`.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020 (`top_p`);
        Fan et al., "Hierarchical Neural Story Generation", 2018 (`top_k`).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    num_return: int = 1
    length_penalty: LengthPenaltyLike = 0.0
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        if not is_number(self.temperature, least=_COLDEST):
            raise ArgumentError(
                f"The temperature has to be at least {_COLDEST} and finite in float32.",
                remedy="For the most probable token at each step, use Greedy().",
                temperature=self.temperature,
            )
        if self.top_k is not None:
            require_int("Nothing would be left to draw from.", top_k=self.top_k)
        if self.top_p is not None and not is_number(self.top_p, above=0, most=1):
            raise ArgumentError(
                "`top_p` is a share of the probability.", "0 < `top_p` <= 1", top_p=self.top_p
            )
        if not is_whole(self.seed, -(2**31), 2**31 - 1):
            raise ArgumentError("A seed has 32 bits.", "an int32", value=self.seed)
        require_int("There is nothing to return.", most=MOST_SAMPLES, num_return=self.num_return)
        self.resolve_penalties()

    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Draw until every row has ended; the best draw of each sentence comes first."""
        return search_rows(self, self._draw_for, model, inputs)

    def _draw_for(self, inputs: SearchInputs) -> ChooseTokens:
        """Return what draws the next tokens of the rows of some inputs."""
        seed = self.seed if inputs.seed is None else inputs.seed
        keys = sentence_keys(inputs.source_ids, inputs.source_mask, seed)
        draws = ops.arange(self.num_return, dtype="int32")
        keys = ops.reshape(spread(ops.expand_dims(keys, -1), draws), (-1,))  # (B N,)

        def choose(log_p: Tensor, index: Tensor) -> Tensor:
            keys_now = ops.expand_dims(spread(keys, index), -1)
            log_p, tokens = self._candidates(log_p)
            drawn = ops.argmax(log_p + gumbel(spread(keys_now, tokens)), axis=-1)
            return ops.cast(select(tokens, ops.expand_dims(drawn, -1))[:, 0], "int32")

        return choose

    def _candidates(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is drawn from: log-probabilities up to a constant, and their tokens."""
        vocabulary_size = log_p.shape[-1]
        log_p = ops.where(is_possible(log_p), log_p / self.temperature, IMPOSSIBLE)
        if self.top_k is None and self.top_p is None:
            tokens = ops.expand_dims(ops.arange(vocabulary_size, dtype="int32"), 0)
            return log_p, ops.broadcast_to(tokens, ops.shape(log_p))
        log_p, tokens = best_first(log_p, min(self.top_k or vocabulary_size, vocabulary_size))
        if self.top_p is not None:
            probability = ops.softmax(log_p, axis=-1)
            before = ops.cumsum(probability, axis=-1) - probability
            # What falls short of `top_p` by rounding only has reached it.
            log_p = ops.where(before < self.top_p - 1e-6, log_p, IMPOSSIBLE)
        return log_p, tokens
