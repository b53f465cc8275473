"""What is on record of the study, and how its numbers are written."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from claims.page import number

from study.trial import Outcome, Trial, loss_of

if TYPE_CHECKING:
    from study_schemes import Study

EFFECT = 0.02  # nats: smaller differences of the loss are taken for chance
HUGE = 100  # nats: such losses are not drawn, need no decimals, and say nothing about chance


@dataclasses.dataclass(frozen=True)
class Results:
    """The study, with what is asked of it often."""

    study: Study

    @property
    def reference(self) -> str:
        """The scheme that others are compared with."""
        return self.study.plan.schemes[0]

    def by_seed(self, scheme: str, layers: int, **changed: Any) -> dict[int, Outcome]:
        """The outcomes of a scheme at its own rate."""
        plan = self.study.plan
        rate = plan.best_rate(scheme, self.study.find)
        if rate is None:
            return {}
        trials = {seed: plan.trial(scheme, layers, rate, seed, **changed) for seed in plan.seeds}
        found = {seed: self.study.find(trial) for seed, trial in trials.items()}
        return {seed: outcome for seed, outcome in found.items() if outcome is not None}

    def of(self, scheme: str, layers: int, **changed: Any) -> list[Outcome]:
        """The same, one a seed, without the seeds."""
        return list(self.by_seed(scheme, layers, **changed).values())

    def losses(self, scheme: str, layers: int, **changed: Any) -> list[float]:
        """The validation losses, one a seed; infinite where one diverged."""
        return [loss_of(outcome) for outcome in self.of(scheme, layers, **changed)]

    def loss(self, scheme: str, layers: int, **changed: Any) -> float | None:
        """The mean of the same."""
        found = self.losses(scheme, layers, **changed)
        return statistics.mean(found) if found else None

    def best_first(self) -> list[str]:
        """The schemes by their loss where rates are chosen; those without one come last."""

        def rank(scheme: str) -> tuple[bool, float]:
            loss = self.loss(scheme, self.study.plan.middle)
            return loss is None, loss or 0.0

        return sorted(self.study.plan.schemes, key=rank)

    def norm_losses(self, norm: str) -> dict[str, float]:
        """The loss of the reference scheme with a norm, trained on `"all"` pairs and on `"few"`."""
        plan, find = self.study.plan, self.study.find
        rate = plan.best_rate(self.reference, find, norm)
        if rate is None:
            return {}
        whole = Trial(self.reference, plan.middle, rate, plan.seeds[0], norm=norm)
        found = {"all": find(whole), "few": find(plan.with_few_pairs(norm, rate))}
        return {pairs: loss_of(one) for pairs, one in found.items() if one is not None}

    def time(self, scheme: str) -> float | None:
        """The time of an update, as a factor of that of the reference.

        It is that of the trainings without warm-up: their stage has one of each scheme, one after
        the other. Rates and seeds are trained hours apart, with other programs beside them, or
        before a scheme became faster.
        """
        return self._ratio(scheme, "milliseconds", has_warmup=False)

    def memory(self, scheme: str) -> float | None:
        """How much memory it takes, as a factor of that of the reference."""
        return self._ratio(scheme, "memory_mib")

    def _ratio(self, scheme: str, name: str, **changed: Any) -> float | None:
        """A number of a scheme over that of the reference, on the same machine."""
        ours, theirs = (self._medians(each, name, **changed) for each in (scheme, self.reference))
        ratios = [value / theirs[machine] for machine, value in ours.items() if machine in theirs]
        return statistics.median(ratios) if ratios else None

    def _medians(self, scheme: str, name: str, **changed: Any) -> dict[str, float]:
        """The median of a number over the seeds, by machine."""
        values: dict[str, list[float]] = {}
        for one in self.of(scheme, self.study.plan.middle, **changed):
            if one[name]:
                values.setdefault(one["machine"], []).append(one[name])
        return {machine: statistics.median(some) for machine, some in values.items()}


def of_each_seed(losses: Sequence[float]) -> str:
    return ", ".join(map(nats, losses))


def nats(loss: float) -> str:
    return f"{loss:.3f}" if loss < HUGE else number(loss, 0)


def bleu(outcomes: Iterable[Outcome]) -> str:
    """The mean BLEU; nothing where a training diverged."""
    known = [one["bleu"] for one in outcomes if one["bleu"] is not None]
    return f"{statistics.mean(known):.1f}" if known else ""
