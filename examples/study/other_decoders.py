"""Decoders with another layer in the place of self-attention: their trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from study.trial import Find, Plan, Trial


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A training whose means are looked at.

    Attributes:
        self_attention: What stands in the place of self-attention.
        scheme: Name of the residual scheme.
        norm: Name of the norm.
    """

    self_attention: str
    scheme: str
    norm: str = "layer_norm"


@dataclasses.dataclass(frozen=True)
class DecoderPlan:
    """Some schemes with another decoder, each at the rate that it has with self-attention.

    Attributes:
        attention: The study with self-attention, which chooses the rates. Schemes are compared at
            its smallest depth, and means are looked at where it chooses the rates.
        self_attention: What stands in the place of self-attention.
        schemes: The schemes to compare, the reference first.
        decoders: What is trained for its means.
    """

    attention: Plan
    self_attention: str
    schemes: tuple[str, ...]
    decoders: tuple[Decoder, ...] = ()

    @property
    def layers(self) -> int:
        """The depth at which schemes are compared."""
        return self.attention.depths[0]

    def trial(self, scheme: str, seed: int, find: Find) -> Trial | None:
        """A training of a scheme; `None` while its rate is not known."""
        rate = self.attention.best_rate(scheme, find)
        if rate is None:
            return None
        kind = self.self_attention
        return Trial(scheme, self.layers, rate, seed, is_inspected=False, self_attention=kind)

    def with_means(self, decoder: Decoder, find: Find) -> Trial | None:
        """A training whose means are looked at; `None` while its rate is not known."""
        rate = self.attention.best_rate(decoder.scheme, find)
        if rate is None:
            return None
        return Trial(
            decoder.scheme,
            self.attention.middle,
            rate,
            self.attention.seeds[0],
            norm=decoder.norm,
            is_inspected=False,
            self_attention=decoder.self_attention,
            has_means=True,
        )

    def stages(self, find: Find) -> Iterator[tuple[str, list[Trial]]]:
        """The stages with their titles."""
        first, *more = self.attention.seeds
        yield f"{self.self_attention}, seed {first}", self._trials(first, find)
        trials = (self.with_means(decoder, find) for decoder in self.decoders)
        yield "means", [one for one in trials if one is not None]
        for seed in more:
            yield f"{self.self_attention}, seed {seed}", self._trials(seed, find)

    def _trials(self, seed: int, find: Find) -> list[Trial]:
        trials = (self.trial(scheme, seed, find) for scheme in self.schemes)
        return [one for one in trials if one is not None]
