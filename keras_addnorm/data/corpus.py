"""Tokenised sentence pairs in buckets, and the batches of an epoch."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.data.batching import Batch, Batching
from keras_addnorm.data.buckets import Bucket, bucket_of, num_batches
from keras_addnorm.data.piece_links import PieceLinks, encode_pairs
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.data.subword_sampling import SubwordSampling
from keras_addnorm.data.text_format import BoundFormat
from keras_addnorm.data.token_rows import FileRows, MemoryRows, TokenRows, map_rows, type_of_ids
from keras_addnorm.data.tokenizer_pair import TokenizerPair

# How many sampled segmentations of the corpus decide how many batches every epoch has.
_SAMPLES = 2
# Pairs that are Python lists at a time.
_PAIRS_AT_ONCE = 10_000


@dataclass(frozen=True)
class TokenizedPairs:
    """Sentence pairs as token ids, without what stands around them in a batch.

    Attributes:
        source: The source sentences' ids.
        target: The target sentences' ids.
    """

    source: TokenRows
    target: TokenRows

    @classmethod
    def of(
        cls, pairs: Iterable[Any], tokenizers: TokenizerPair, folder: Path | None = None
    ) -> TokenizedPairs:
        """Tokenises pairs, some at a time: into memory, or into the files of a folder."""
        writers = []
        for side in ("source", "target"):
            dtype = type_of_ids(getattr(tokenizers, side).vocabulary_size)
            writers.append(MemoryRows(dtype) if folder is None else FileRows(folder, side, dtype))
        encoded = (rows for _, rows in encode_pairs(pairs, tokenizers, tokenizers.bound_format))
        while some := list(itertools.islice(encoded, _PAIRS_AT_ONCE)):
            for writer, rows in zip(writers, zip(*some, strict=True), strict=True):
                writer.add(rows)
        source, target = (writer.finish() for writer in writers)
        return cls(source, target)

    @classmethod
    def mapped(cls, folder: Path) -> TokenizedPairs:
        """Maps the files of a folder; a `ValueError` says that they are damaged."""
        source, target = (map_rows(folder, side) for side in ("source", "target"))
        if len(source) != len(target):
            raise ValueError(
                f"The token ids in {str(folder)!r} are of {len(source):,} sources and "
                f"{len(target):,} targets. Expected as many of both."
            )
        return cls(source, target)

    def positions(self, around: BoundFormat) -> np.ndarray:
        """The positions that each pair takes: its longer side, with what stands around it."""
        longer = self.source.lengths + np.int32(around.source_length)
        return np.maximum(longer, self.target.lengths + np.int32(around.target_length), out=longer)

    def parts(self) -> Iterator[slice]:
        """The numbers of the pairs, some at a time."""
        count = len(self.source)
        for start in range(0, count, _PAIRS_AT_ONCE):
            yield slice(start, min(start + _PAIRS_AT_ONCE, count))


@dataclass(frozen=True)
class Resampler:
    """Samples other segmentations of a corpus."""

    tokenizers: TokenizerPair
    sampling: SubwordSampling

    def sample(self, pairs: TokenizedPairs, seed: tuple[int, ...]) -> TokenizedPairs:
        """Samples other ids for both sides, in memory; the same seed gives the same ids."""
        seeds = np.random.SeedSequence(seed).generate_state(2)
        sides = []
        for side, own_seed in zip(("source", "target"), seeds, strict=True):
            tokenizer, rows = getattr(self.tokenizers, side), getattr(pairs, side)
            plain = (row for part in pairs.parts() for row in rows.part(part.start, part.stop))
            drawn = tokenizer.resampled(plain, self.sampling, int(own_seed))
            writer = MemoryRows(type_of_ids(tokenizer.vocabulary_size))
            while some := list(itertools.islice(drawn, _PAIRS_AT_ONCE)):
                writer.add(some)
            sides.append(writer.finish())
        return TokenizedPairs(*sides)


@dataclass(frozen=True)
class Corpus:
    """Tokenised pairs, and the bucket of each pair.

    The ids may lie on the disk. In memory are one byte a pair, the bucket, and in an epoch four
    more, the order (eight from two billion pairs on).

    Attributes:
        pairs: The ids.
        buckets: The buckets, the shortest first.
        bucket_of: For each pair the index of its bucket; -1 if a side is empty, `len(buckets)` if
            the pair is too long.
        num_batches: Batches of every epoch.
        text_format: What stands around the tokens of a text.
        resampler: How each epoch samples its pieces; `None` if it samples none.
        links: Which tokens of the two sides belong together, for guided alignment.
    """

    pairs: TokenizedPairs
    buckets: tuple[Bucket, ...]
    bucket_of: np.ndarray
    num_batches: int
    text_format: BoundFormat
    resampler: Resampler | None
    links: PieceLinks | None = None

    @classmethod
    def of(cls, pairs: TokenizedPairs, tokenizers: TokenizerPair, batching: Batching) -> Corpus:
        """Divides tokenised pairs into buckets."""
        given, sizes = batching.alignments, (pairs.source.lengths, pairs.target.lengths)
        links = None if given is None else PieceLinks.of(given, *sizes)
        filled = np.minimum(*sizes) > 0
        del sizes
        # What a text itself begins with stands among its tokens.
        around = tokenizers.bound_format.without_leading_piece()
        sampling = batching.sampling
        resampler = None if sampling is None else Resampler(tokenizers, sampling)
        plain = pairs.positions(around)
        counts = filled & (plain <= batching.longest)
        sampled = (
            [resampler.sample(pairs, (seed,)).positions(around) for seed in range(_SAMPLES)]
            if resampler is not None and counts.any()
            else []
        )
        buckets = batching.buckets_for(
            np.concatenate([lengths[counts] for lengths in (plain, *sampled)])
        )
        index = bucket_of(plain, buckets)
        index[~filled] = -1
        batches = num_batches(index, buckets)
        corpus = cls(pairs, buckets, index, batches, around, resampler, links)
        if resampler is None:
            return corpus
        needed = [
            num_batches(corpus._rebucketed(lengths, corpus._fits(lengths)), buckets) + 1
            for lengths in sampled
        ]
        batches = max([corpus.num_batches, *needed])
        return dataclasses.replace(corpus, num_batches=min(batches, int(corpus.kept.sum())))

    @property
    def source(self) -> TokenRows:
        """The source sentences' ids."""
        return self.pairs.source

    @property
    def target(self) -> TokenRows:
        """The target sentences' ids."""
        return self.pairs.target

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
        rows = self.resampler.sample(self.pairs, seed)
        lengths = rows.positions(self.text_format)
        fits = self._fits(lengths)
        # A sample seldom needs more batches than an epoch has. Then the last pairs keep the pieces
        # of `encode`: a sixty-fourth of the pairs, or 2, 4, ... times as many, until the rest fits.
        for share in (0.0, *(0.5**power for power in reversed(range(7)))):
            fits[len(fits) - int(share * len(fits)) :] = False
            index = self._rebucketed(lengths, fits)
            if num_batches(index, self.buckets) <= self.num_batches:
                break
        return dataclasses.replace(self, pairs=self._chosen(rows, fits), bucket_of=index)

    def _chosen(self, sampled: TokenizedPairs, where: np.ndarray) -> TokenizedPairs:
        """The sampled ids of the pairs `where`, the usual ids of the others, in memory."""
        sides = []
        for side in ("source", "target"):
            drawn, usual = getattr(sampled, side), getattr(self.pairs, side)
            writer = MemoryRows(drawn.ids.dtype)
            for part in self.pairs.parts():
                both = (rows.part(part.start, part.stop) for rows in (drawn, usual))
                rows = zip(*both, where[part].tolist(), strict=True)
                writer.add([other if is_drawn else own for other, own, is_drawn in rows])
            sides.append(writer.finish())
        return TokenizedPairs(*sides)

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
            order = self._members_of(index)
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

    def _members_of(self, bucket: int) -> np.ndarray:
        """The numbers of a bucket's pairs, in the smallest type that holds all of them."""
        dtype = np.int32 if len(self.bucket_of) < 1 << 31 else np.int64
        found = [np.zeros(0, dtype)]
        for part in self.pairs.parts():
            some = np.flatnonzero(self.bucket_of[part] == bucket) + part.start
            found.append(some.astype(dtype))
        return np.concatenate(found)

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
