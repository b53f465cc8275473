"""Decoders with another layer in the place of self-attention: their trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from study.trial import Find, Plan, Trial


@dataclasses.dataclass(frozen=True)
class DecoderPlan:
    """Some schemes with another decoder, each at the rate that it has with self-attention.

    Attributes:
        attention: The study with self-attention, which chooses the rates.
        self_attention: What stands in the place of self-attention.
        schemes: The schemes to compare, the reference first.
        others: Further trainings whose means are looked at: decoder, scheme and norm.
        seeds: Seeds of the schemes.
    """

    attention: Plan
    self_attention: str
    schemes: tuple[str, ...]
    others: tuple[tuple[str, str, str], ...] = ()
    seeds: tuple[int, ...] = (1, 2)

    def trial(self, scheme: str, seed: int, find: Find) -> Trial | None:
        """A training of a scheme; `None` while its rate is not known."""
        return self._trial(self.self_attention, scheme, "layer_norm", seed, find)

    def trials_with_means(self, find: Find) -> list[Trial]:
        """The trainings whose means are looked at, those of the others last."""
        first, kind = self.seeds[0], self.self_attention
        cases = [*((kind, scheme, "layer_norm") for scheme in self.schemes), *self.others]
        trials = (self._trial(*case, first, find) for case in cases)
        return [trial for trial in trials if trial is not None]

    def stages(self, find: Find) -> Iterator[tuple[str, list[Trial]]]:
        """The stages with their titles."""
        first, *more = self.seeds
        yield f"{self.self_attention}, seed {first}", self.trials_with_means(find)
        for seed in more:
            trials = (self.trial(scheme, seed, find) for scheme in self.schemes)
            yield f"{self.self_attention}, seed {seed}", [one for one in trials if one is not None]

    def _trial(
        self, self_attention: str, scheme: str, norm: str, seed: int, find: Find
    ) -> Trial | None:
        rate = self.attention.best_rate(scheme, find)
        if rate is None:
            return None
        return Trial(
            scheme,
            self.attention.middle,
            rate,
            seed,
            norm=norm,
            is_inspected=False,
            self_attention=self_attention,
            has_means=seed == self.seeds[0],
        )
