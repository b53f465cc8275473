"""Tokenised sentence pairs in memory, and the batches of an epoch."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_addnorm.data.batching import Batch, Batching
from keras_addnorm.data.buckets import Bucket, bucket_of, num_batches
from keras_addnorm.data.piece_links import PieceLinks, encode_pairs
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.data.subword_sampling import SubwordSampling
from keras_addnorm.data.text_format import BoundFormat
from keras_addnorm.data.tokenizer_pair import TokenizerPair

# How many sampled segmentations of the corpus decide how many batches every epoch has.
_SAMPLES = 2


@dataclass(frozen=True)
class TokenRows:
    """The ids of all sentences of one language, one after the other."""

    ids: np.ndarray  # (tokens,) int32
    offsets: np.ndarray  # (sentences + 1,) int64

    @classmethod
    def from_rows(cls, rows: list[np.ndarray]) -> TokenRows:
        """Concatenates the ids of each sentence."""
        sizes = [len(row) for row in rows]
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        return cls(ids, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    def replaced(self, rows: Sequence[Sequence[int]], where: np.ndarray) -> TokenRows:
        """Other ids for the sentences `where`, the same ids for the rest."""
        own = np.split(self.ids, self.offsets[1:-1])
        return self.from_rows(
            [
                np.array(row, np.int32) if is_replaced else kept
                for row, kept, is_replaced in zip(rows, own, where, strict=True)
            ]
        )

    def to_lists(self) -> list[list[int]]:
        """The ids of each sentence as Python lists."""
        ids = self.ids.tolist()
        return [ids[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sentence."""
        return np.diff(self.offsets)

    def lengths_of(self, members: np.ndarray) -> np.ndarray:
        """The number of tokens of the sentences `members`."""
        sizes: np.ndarray = self.offsets[members + 1] - self.offsets[members]
        return sizes

    def padded(
        self,
        members: np.ndarray,
        shape: tuple[int, int],
        pad_id: int,
        before: Sequence[int],
        behind: Sequence[int],
    ) -> np.ndarray:
        """An array of padding with one sentence a row, between the ids `before` and `behind`."""
        out = np.full(shape, pad_id, np.int32)
        starts, sizes = self.offsets[members], self.lengths_of(members)
        shift, rows = len(before), np.arange(len(members))[:, None]
        out[: len(members), :shift] = before
        out[rows, (sizes + shift)[:, None] + np.arange(len(behind))] = behind
        row = np.repeat(np.arange(len(members)), sizes)
        column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[row, column + shift] = self.ids[np.repeat(starts, sizes) + column]
        return out


@dataclass(frozen=True)
class Resampler:
    """Samples other segmentations of a corpus."""

    tokenizers: TokenizerPair
    sampling: SubwordSampling

    def sample(
        self, sides: tuple[TokenRows, TokenRows], seed: tuple[int, ...]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Samples other ids for both sides; the same seed gives the same ids."""
        seeds = np.random.SeedSequence(seed).generate_state(2)
        source, target = (
            tokenizer.resample_batch(side.to_lists(), self.sampling, int(own_seed))
            for tokenizer, side, own_seed in zip(
                (self.tokenizers.source, self.tokenizers.target), sides, seeds, strict=True
            )
        )
        return source, target


@dataclass(frozen=True)
class Corpus:
    """Tokenised pairs in memory, and the bucket of each pair.

    Attributes:
        source: The source sentences' ids.
        target: The target sentences' ids.
        buckets: The buckets, the shortest first.
        bucket_of: For each pair the index of its bucket; -1 if a side is empty, `len(buckets)` if
            the pair is too long.
        num_batches: Batches of every epoch.
        text_format: What stands around the tokens of a text.
        resampler: How each epoch samples its pieces; `None` if it samples none.
        links: Which tokens of the two sides belong together, for guided alignment.
    """

    source: TokenRows
    target: TokenRows
    buckets: tuple[Bucket, ...]
    bucket_of: np.ndarray
    num_batches: int
    text_format: BoundFormat
    resampler: Resampler | None
    links: PieceLinks | None = None

    @classmethod
    def from_texts(
        cls, pairs: Iterable[Any], tokenizers: TokenizerPair, batching: Batching
    ) -> Corpus:
        """Tokenises sentence pairs and divides them into buckets."""
        around = tokenizers.bound_format
        sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for _, rows in encode_pairs(pairs, tokenizers, around):
            for side, ids in zip(sides, rows, strict=True):
                side.append(np.array(ids, np.int32))
        source, target = map(TokenRows.from_rows, sides)
        given = batching.alignments
        links = None if given is None else PieceLinks.of(given, source.lengths, target.lengths)
        # What a text itself begins with stands among its tokens.
        around = around.without_leading_piece()
        sampling = batching.sampling
        resampler = None if sampling is None else Resampler(tokenizers, sampling)
        plain = np.maximum(
            source.lengths + around.source_length, target.lengths + around.target_length
        )
        filled = np.minimum(source.lengths, target.lengths) > 0
        counts = filled & (plain <= batching.longest)
        sampled = (
            [
                _lengths(resampler.sample((source, target), (seed,)), around)
                for seed in range(_SAMPLES)
            ]
            if resampler is not None and counts.any()
            else []
        )
        buckets = batching.buckets_for(
            np.concatenate([lengths[counts] for lengths in (plain, *sampled)])
        )
        index = np.where(filled, bucket_of(plain, buckets), -1)
        batches = num_batches(index, buckets)
        corpus = cls(source, target, buckets, index, batches, around, resampler, links)
        if resampler is None:
            return corpus
        needed = [
            num_batches(corpus._rebucketed(lengths, corpus._fits(lengths)), buckets) + 1
            for lengths in sampled
        ]
        batches = max([corpus.num_batches, *needed])
        return dataclasses.replace(corpus, num_batches=min(batches, int(corpus.kept.sum())))

    @functools.cached_property
    def kept(self) -> np.ndarray:
        """Which pairs are in the batches."""
        return (self.bucket_of >= 0) & (self.bucket_of < len(self.buckets))

    @functools.cached_property
    def largest_ids(self) -> dict[str, int]:
        """The largest id that a batch may hold, of "source" and "target"."""
        around = self.text_format
        beside = {
            "source": (*around.source_prefix, *around.text_prefix, *around.source_suffix),
            "target": (*around.target_prefix, around.start_id, around.end_id),
        }
        found = {}
        for side, ids in beside.items():
            sampled = 0
            if self.resampler is not None:  # Of any pieces.
                sampled = getattr(self.resampler.tokenizers, side).vocabulary_size - 1
            own = int(getattr(self, side).ids.max(initial=0))
            found[side] = max(own, sampled, around.pad_id, *ids)
        return found

    @functools.cached_property
    def longest_row(self) -> int:
        """The length of the longest rows, padding included."""
        return self.buckets[int(self.bucket_of[self.kept].max())].length

    def resampled(self, seed: tuple[int, int] | None) -> Corpus:
        """The same pairs, split into the pieces of an epoch, in the buckets that these need."""
        if self.resampler is None or seed is None:
            return self
        rows = self.resampler.sample((self.source, self.target), seed)
        lengths = _lengths(rows, self.text_format)
        fits = self._fits(lengths)
        # A sample seldom needs more batches than an epoch has. Then the last pairs keep the pieces
        # of `encode`: a sixty-fourth of the pairs, or 2, 4, ... times as many, until the rest fits.
        for share in (0.0, *(0.5**power for power in reversed(range(7)))):
            fits[len(fits) - int(share * len(fits)) :] = False
            index = self._rebucketed(lengths, fits)
            if num_batches(index, self.buckets) <= self.num_batches:
                break
        source, target = (
            side.replaced(sampled, fits)
            for side, sampled in zip((self.source, self.target), rows, strict=True)
        )
        return dataclasses.replace(self, source=source, target=target, bucket_of=index)

    def _fits(self, lengths: np.ndarray) -> np.ndarray:
        """Which of the kept pairs the largest bucket also holds with other lengths."""
        fits: np.ndarray = self.kept & (lengths <= self.buckets[-1].length)
        return fits

    def _rebucketed(self, lengths: np.ndarray, where: np.ndarray) -> np.ndarray:
        """The bucket of each pair, with other lengths for the pairs `where`."""
        return np.where(where, bucket_of(lengths, self.buckets), self.bucket_of)

    def report(self, batches_per_update: int) -> PipelineReport:
        """Counts the pairs, tokens and batches of an epoch."""
        around = self.text_format
        tokens = [
            int(side.lengths[self.kept].sum() + more * self.kept.sum())
            for side, more in (
                (self.source, around.source_length),
                (self.target, around.target_length),
            )
        ]
        plan = self._plan(None)
        positions = sum(bucket.batch_size * bucket.length for bucket, _ in plan)
        return PipelineReport(
            kept=int(self.kept.sum()),
            empty=int((self.bucket_of == -1).sum()),
            too_long=int((self.bucket_of == len(self.buckets)).sum()),
            source_tokens=tokens[0],
            target_tokens=tokens[1],
            batches=-(-len(plan) // batches_per_update) * batches_per_update,
            padding=1 - tokens[1] / positions if positions else 0.0,
            buckets=tuple(
                (bucket.length, bucket.batch_size, int((self.bucket_of == index).sum()))
                for index, bucket in enumerate(self.buckets)
            ),
        )

    def batches(self, batching: Batching, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Makes the batches of an epoch from the batch `first` on."""
        seed, repeats = batching.seed_of(epoch), batching.repeats
        plan = [
            (Bucket(bucket.length, bucket.batch_size * repeats), members.repeat(repeats))
            for bucket, members in self._plan(None if seed is None else np.random.default_rng(seed))
        ]
        if batching.has_row_weights:
            batches = self._weighted(plan, first, batching.batches_per_update)
        else:
            batches = itertools.starmap(self.batch, plan[first:])
        return map(batching.own_rows, batches)

    def _plan(self, generator: np.random.Generator | None) -> list[tuple[Bucket, np.ndarray]]:
        """The bucket and the pairs of each batch, in a random order or in a fixed one."""
        plan = []
        for index, bucket in enumerate(self.buckets):
            order = np.flatnonzero(self.bucket_of == index)
            if generator is not None:
                order = generator.permutation(order)
            plan += [
                (bucket, order[start : start + bucket.batch_size])
                for start in range(0, len(order), bucket.batch_size)
            ]
        while len(plan) < self.num_batches:
            fullest = max(range(len(plan)), key=lambda batch: len(plan[batch][1]))
            bucket, members = plan[fullest]
            half = len(members) // 2
            plan[fullest : fullest + 1] = [(bucket, members[:half]), (bucket, members[half:])]
        if generator is not None:
            plan = [plan[batch] for batch in generator.permutation(len(plan))]
        return plan

    def _weighted(
        self, plan: list[tuple[Bucket, np.ndarray]], first: int, batches_per_update: int
    ) -> Iterator[Batch]:
        """Adds the weight of each row: the batches of an update divided by its tokens."""
        no_pairs = np.zeros(0, np.int64)
        plan = plan + [(plan[-1][0], no_pairs)] * (-len(plan) % batches_per_update)
        more = self.text_format.target_length
        tokens = [
            int(self.target.lengths_of(members).sum()) + more * len(members) for _, members in plan
        ]
        for index, (bucket, members) in enumerate(plan[first:], first):
            start = index - index % batches_per_update
            weight = batches_per_update / sum(tokens[start : start + batches_per_update])
            yield (
                *self.batch(bucket, members, weight),
                np.full((bucket.batch_size, 1), weight, np.float32),
            )

    def batch(self, bucket: Bucket, members: np.ndarray, weight: float | None = None) -> Batch:
        """Lays out one batch for teacher forcing, every array (rows, length).

        With links, `"alignment"` is `(rows, length, length)`, with the weight of each token in it.
        """
        shape, around = (bucket.batch_size, bucket.length), self.text_format
        before = (*around.source_prefix, *around.text_prefix)
        prefix, end = around.target_prefix, (around.end_id,)
        pad_id, start = around.pad_id, around.start_id
        source = self.source.padded(members, shape, pad_id, before, around.source_suffix)
        labels = self.target.padded(members, shape, pad_id, prefix, end)
        target = self.target.padded(members, shape, pad_id, (start, *prefix), ())
        inputs = {"source": source, "target": target}
        if self.links is not None:
            if weight is None:
                weight = 1 / max(int(np.count_nonzero(labels != pad_id)), 1)
            shifts = (len(before), len(prefix))
            inputs["alignment"] = self.links.weights(members, shape, shifts) * np.float32(weight)
        return inputs, labels


def _lengths(
    sides: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]], around: BoundFormat
) -> np.ndarray:
    """The positions that each pair takes: its longer side, with what stands around the tokens."""
    return np.array(
        [
            max(len(source) + around.source_length, len(target) + around.target_length)
            for source, target in zip(*sides, strict=True)
        ]
    )
