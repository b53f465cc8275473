"""Diverse beam search: groups of hypotheses that are kept apart."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.decoding import coverage, length_penalties
from keras_addnorm.decoding.argument_checks import check_num_return, require_positive
from keras_addnorm.decoding.beam import Candidates, Layout, search_beams
from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.early_stopping import EarlyStopping, rule_of
from keras_addnorm.decoding.indexing import select
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.log_probabilities import is_possible
from keras_addnorm.decoding.search_inputs import SearchInputs, SearchResult
from keras_addnorm.decoding.step_model import StepModel
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.top_k import best_first

Tensor = Any
# Beside a larger cost, times the hypotheses, float32 could not tell sums apart.
_DEAREST = 10_000


@dataclasses.dataclass(frozen=True)
class DiverseBeam(Strategy):
    """Divides a beam into groups, each of which avoids what the groups before it do.

    The groups are beams of `num_beams / num_groups` hypotheses. At each step they choose one after
    the other. A token costs a group `diversity` for each time that it is among the best
    continuations (as many as the group has hypotheses) of the groups before it, at this step (the
    paper's Hamming diversity). The cost counts in the step's choice only: sums and scores stay
    the model's own. Each group offers its best hypotheses, as many as it keeps; the best of these
    are returned, and two groups may have found the same one. With one group this is `Beam`.

    Args:
        num_beams: Number of hypotheses of all groups, a multiple of `num_groups`.
        num_groups: Number of groups, G.
        diversity: The cost, in units of log-probability; the paper's λ.
        length_penalty: What scores are divided by; see `Greedy`.
        num_return: Number of hypotheses to return for each sentence, best first.
        early_stopping: When a group is done; see `Beam`. Until the last group of a sentence is,
            the others go on unseen, for it to differ from.
        coverage_penalty: What is added to scores; see `Greedy`.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Vijayakumar et al., "Diverse Beam Search", 2016, algorithm 1.
    """

    num_beams: int = 4
    num_groups: int = 2
    diversity: float = 0.5
    length_penalty: LengthPenaltyLike = 0.0
    num_return: int = 1
    early_stopping: EarlyStopping = False
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        require_positive(
            "Groups need hypotheses.", num_beams=self.num_beams, num_groups=self.num_groups
        )
        if self.num_beams % self.num_groups:
            raise ValueError(
                "The hypotheses cannot be shared out evenly. Expected num_beams to be a multiple "
                f"of num_groups. Received: num_beams={self.num_beams}, "
                f"num_groups={self.num_groups}"
            )
        if not is_number(self.diversity, least=0, most=_DEAREST):
            raise ValueError(
                "Being like the others can cost something or nothing. Expected 0 <= diversity <= "
                f"{_DEAREST}. Received: {self.diversity!r}"
            )
        check_num_return(self.num_return, self.num_beams)
        rule_of(self.early_stopping)
        object.__setattr__(self, "length_penalty", length_penalties.get(self.length_penalty))
        object.__setattr__(self, "coverage_penalty", coverage.get(self.coverage_penalty))

    @property
    def rows_per_sentence(self) -> int:
        """One row a hypothesis."""
        return self.num_beams

    @property
    def rows_per_beam(self) -> int:
        """Those of a group."""
        return self.num_beams // self.num_groups

    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every sentence is done."""
        layout = Layout(self.num_groups, self.rows_per_beam, self.num_return)
        return search_beams(self, layout, self._candidates, model, inputs)

    def _candidates(self, sums: Tensor, count: int) -> Candidates:
        """Return the candidates of each group, chosen one group after the other."""
        num_beams, vocabulary_size = sums.shape[1:]
        # (B G, K, V) -> (B, G, K V)
        sums = ops.reshape(sums, (-1, self.num_groups, num_beams * vocabulary_size))
        cost = ops.zeros((ops.shape(sums)[0], vocabulary_size), dtype="float32")
        chosen = []
        for group in range(self.num_groups):
            own = sums[:, group]
            weighed = own - ops.tile(cost, (1, num_beams))
            _, flat = best_first(weighed, count, line=vocabulary_size)
            candidates = Candidates(
                select(own, flat),
                flat // vocabulary_size,
                flat % vocabulary_size,
            )
            is_used = ops.expand_dims(is_possible(candidates.sums[:, :num_beams]), -1)
            used = ops.one_hot(candidates.token[:, :num_beams], vocabulary_size, dtype="float32")
            cost = cost + self.diversity * ops.sum(ops.where(is_used, used, 0.0), axis=1)
            chosen.append(candidates)
        # G times (B, C) -> (B G, C)
        fields = (ops.stack(groups, axis=1) for groups in zip(*chosen, strict=True))
        return Candidates(*(ops.reshape(field, (-1, count)) for field in fields))
