"""What is trained: trials, their scale, and the order in which they are done."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from claims.records import built_in_texts

DEMO, MULTI30K = "demo", "multi30k"
PAIRS = 20_000  # of a corpus, the first ones; those that are too long are left out


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large everything is, the same for every scheme.

    Attributes:
        hidden_dim: Width of the stream; the feed-forward layers are twice as wide.
        num_heads: Heads of each attention.
        vocabulary_size: Pieces of the one vocabulary for both languages.
        length: Tokens of a sentence at most, the end included; longer pairs are left out.
        batch_size: Sentence pairs in an update.
        updates: Updates of a training.
        warmup: Updates in which the rate rises; afterwards it falls linearly to 0.
        scored: Validation pairs that are translated and scored.
    """

    hidden_dim: int = 64
    num_heads: int = 4
    vocabulary_size: int = 1000
    length: int = 32
    batch_size: int = 32
    updates: int = 400
    warmup: int = 100
    scored: int = 200


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training from scratch.

    Attributes:
        scheme: Name of the residual scheme.
        layers: Layers of encoder and decoder together, half of them each.
        learning_rate: The highest rate.
        seed: Of the first weights and of the order of the batches.
        corpus: `"demo"`, the built-in set, or `"multi30k"`.
        norm: Name of the norm.
        pairs: Training pairs; `None` for all.
        has_warmup: Whether the rate rises to its height, or starts there.
        is_inspected: Whether to look inside: after the training, or before one without warm-up.
        self_attention: What stands in the place of the decoder's self-attention.
        has_means: Whether to keep the means of the decoder's stream after the training.
    """

    scheme: str
    layers: int
    learning_rate: float
    seed: int = 1
    corpus: str = DEMO
    norm: str = "layer_norm"
    pairs: int | None = None
    has_warmup: bool = True
    is_inspected: bool = True
    self_attention: str = "multi_head_attention"
    has_means: bool = False

    def rates(self, scale: Scale) -> list[float]:
        """The learning rate of each update."""
        warmup = scale.warmup if self.has_warmup else 1
        steps = range(scale.updates)
        fall = max(1, scale.updates - warmup)
        return [
            self.learning_rate * min((step + 1) / warmup, (scale.updates - step) / fall)
            for step in steps
        ]

    def key(self, scale: Scale) -> dict[str, Any]:
        """All that the result depends on."""
        return {**dataclasses.asdict(self), **corpus_key(self.corpus, scale)}


def corpus_key(corpus: str, scale: Scale) -> dict[str, Any]:
    """What all results on a corpus depend on; the texts of the built-in set may change."""
    texts = {"texts": built_in_texts()} if corpus == DEMO else {}
    return {"corpus": corpus, "scale": dataclasses.asdict(scale), **texts}


Outcome = dict[str, Any]
Find = Callable[[Trial], Outcome | None]
"""Returns the result of a trial that was done, or `None`."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """All trials of the study, in an order in which every beginning is a study of its own.

    Attributes:
        schemes: The schemes to compare, the reference first.
        depths: Numbers of layers; the second one is where rates are chosen.
        rates: The grid of learning rates, the same for every scheme, in rising order. The three in
            the middle are tried first, and one further out only where its neighbour is the best.
        seeds: Seeds of the built-in set.
        norms: Norms to compare with layer norm in the reference scheme, on all pairs and on few.
        few_pairs: How many pairs are few.
        multi30k: Schemes to train on Multi30k, with `depths[1]` layers; none without the data.
    """

    schemes: tuple[str, ...]
    depths: tuple[int, ...] = (6, 12, 24)
    rates: tuple[float, ...] = (0.001, 0.002, 0.005, 0.01, 0.02)
    seeds: tuple[int, ...] = (1, 2)
    norms: tuple[str, ...] = ()
    few_pairs: int = 1000
    multi30k: tuple[str, ...] = ()

    @property
    def middle(self) -> int:
        """The depth at which rates are chosen."""
        return self.depths[min(1, len(self.depths) - 1)]

    def trial(self, scheme: str, layers: int, rate: float, seed: int, **changed: Any) -> Trial:
        """A training of the plan; it is looked into at one depth, with the first seed."""
        is_inspected = layers == self.middle and seed == self.seeds[0]
        return Trial(scheme, layers, rate, seed, is_inspected=is_inspected, **changed)

    def with_few_pairs(self, norm: str, rate: float) -> Trial:
        """A training of the reference scheme with a norm, where data is scarce."""
        (scheme, *_), (seed, *_) = self.schemes, self.seeds
        few = self.few_pairs
        return Trial(scheme, self.middle, rate, seed, norm=norm, pairs=few, is_inspected=False)

    def grid(self, scheme: str, find: Find, norm: str = "layer_norm") -> list[Trial]:
        """The trainings that choose the rate of a scheme, as far as what is known tells."""
        trials = [Trial(scheme, self.middle, rate, self.seeds[0], norm=norm) for rate in self.rates]
        outer = max(0, (len(trials) - 3) // 2)
        first, last = outer, len(trials) - 1 - outer
        while all(find(trial) for trial in trials[first : last + 1]):
            best = min(range(first, last + 1), key=lambda index: loss_of(find(trials[index])))
            if best == first > 0:
                first -= 1
            elif best == last < len(trials) - 1:
                last += 1
            else:
                break
        return trials[first : last + 1]

    def best_rate(self, scheme: str, find: Find, norm: str = "layer_norm") -> float | None:
        """The rate with the lowest validation loss; `None` while a training is missing."""
        found = [(trial, find(trial)) for trial in self.grid(scheme, find, norm)]
        if any(outcome is None for _, outcome in found):
            return None
        return min(found, key=lambda pair: loss_of(pair[1]))[0].learning_rate

    def stages(self, find: Find) -> Iterator[tuple[str, list[Trial]]]:
        """The stages with their titles; the trials of a scheme follow once its rate is known."""
        grids = (self.grid(scheme, find) for scheme in self.schemes)
        yield "learning rates", list(itertools.chain.from_iterable(grids))
        first, *more = self.seeds
        yield "depths", list(self._chosen(find, seed=first))
        yield (
            "no warm-up",
            [
                dataclasses.replace(trial, has_warmup=False)
                for trial in self._chosen(find, seed=first, depths=(self.middle,))
            ],
        )
        yield "Multi30k", list(self._on_multi30k(find))
        yield "norms", list(self._norms(find))
        # The depth at which most claims are tried comes first.
        depths = tuple(sorted(self.depths, key=lambda depth: (depth != self.middle, depth)))
        for seed in more:
            yield f"seed {seed}", list(self._chosen(find, seed=seed, depths=depths))

    def _chosen(
        self, find: Find, seed: int, depths: tuple[int, ...] | None = None
    ) -> Iterator[Trial]:
        for layers, scheme in itertools.product(depths or self.depths, self.schemes):
            rate = self.best_rate(scheme, find)
            if rate is not None:
                yield self.trial(scheme, layers, rate, seed)

    def _on_multi30k(self, find: Find) -> Iterator[Trial]:
        for scheme in self.multi30k:
            rate = self.best_rate(scheme, find)
            if rate is not None:
                yield Trial(scheme, self.middle, rate, self.seeds[0], MULTI30K)

    def _norms(self, find: Find) -> Iterator[Trial]:
        for norm in ("layer_norm", *self.norms):
            yield from self.grid(self.schemes[0], find, norm)
            rate = self.best_rate(self.schemes[0], find, norm)
            if rate is not None:
                yield self.with_few_pairs(norm, rate)


def loss_of(outcome: Outcome | None) -> float:
    """The validation loss; infinite for a training that diverged."""
    loss = None if outcome is None else outcome["validation_loss"]
    return float("inf") if loss is None else float(loss)
