"""The epochs of a training data set, which can be resumed at any batch."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.batching import Batch, Batching
from keras_addnorm.data.buckets import Bucket
from keras_addnorm.data.corpus import Corpus, TokenizedPairs
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.data.text_format import DEFAULT_IDS
from keras_addnorm.data.tokenizer_pair import TokenizerPair


class Epochs:
    """The epochs of a training data set: which one is next, and single batches of any.

    The order of an epoch follows from the seed and its number alone. So a training can be resumed
    in the middle of an epoch, and a batch that caused an error can be made again.

    With `steps_per_epoch`, an epoch is a stretch of so many batches of the stream in which one pass
    over the pairs follows the other; each pass has an order of its own.

    Args:
        corpus: The tokenised pairs.
        batching: How the pairs become batches.
    """

    def __init__(self, corpus: Corpus, batching: Batching) -> None:
        self._corpus = corpus
        self._batching = batching
        together = batching.batches_per_update
        self._batches_of_pass = -(-corpus.num_batches // together) * together
        self._next = (batching.first_epoch, 0)
        self._resampled: tuple[int, Corpus] | None = None

    @classmethod
    def from_texts(
        cls,
        pairs: Iterable[Any] | TokenizedPairs,
        tokenizers: BaseTokenizer | TokenizerPair,
        batching: Batching,
    ) -> Epochs:
        """Tokenises sentence pairs.

        Args:
            pairs: Pairs (source text, target text), as for `make_training_dataset`; or those that
                these tokenizers have tokenised.
            tokenizers: The pair of tokenizers, or one tokenizer for both languages.
            batching: How the pairs become batches.

        Returns:
            The epochs.

        Raises:
            TypeError: If an element of `pairs` is not a pair of strings.
            ValueError: If the rows cannot be shared evenly, or no pair is left.
        """
        tokenizers = TokenizerPair.of(tokenizers)
        if not isinstance(pairs, TokenizedPairs):
            pairs = TokenizedPairs.of(pairs, tokenizers)
        corpus = Corpus.of(pairs, tokenizers, batching)
        _require_even_shares(corpus.buckets, batching.row_share)
        report = corpus.report(batching.batches_per_update)
        if not report.kept:
            raise ArgumentError(
                "No sentence pair is left to train on.",
                f"at least one pair with text on both sides and at most {batching.longest} tokens",
                "Check the files, or pass a larger `max_length`.",
                received=f"{report.empty} pairs with an empty side and {report.too_long} that are "
                "too long",
            )
        return cls(corpus, batching)

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Sets where the next iteration over the data set starts."""
        self._next = (epoch, batch)

    @functools.cached_property
    def plan(self) -> str:
        """A digest of all that decides which pairs a batch has: ids, buckets and seed."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self._corpus.buckets, self._batching.shuffle_seed)).encode())
        if self._batching.sampling is not None:
            digest.update(repr(self._batching.sampling).encode())
        around = self._corpus.text_format.ids
        # Runs from before there were formats go on with the digest that they have.
        if around != DEFAULT_IDS:
            digest.update(repr(around).encode())
        for side in (self._corpus.source, self._corpus.target):
            side.update(digest)
        if (links := self._corpus.links) is not None:
            digest.update(links.offsets.data)
            digest.update(links.places.data)
        return digest.hexdigest()

    @property
    def largest_ids(self) -> dict[str, int]:
        """The largest id of "source" and "target", so that a model can tell what it cannot read."""
        return self._corpus.largest_ids

    @property
    def longest_row(self) -> int:
        """The length of the longest rows, padding included: a model may have fewer positions."""
        return self._corpus.longest_row

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next iteration is of."""
        return self._next[0]

    def next_iteration(self) -> Iterator[Batch]:
        """Returns the batches of the next iteration; the one after it is the next epoch."""
        epoch, batch = self._next
        self._next = (epoch + 1, 0)
        if not batch:
            return self.batches(epoch)
        # On JAX with a GPU, Keras reads a batch ahead, and must not find fewer than are stated.
        left_out = itertools.islice(self.batches(epoch), batch)
        return itertools.chain(self.batches(epoch, batch), left_out)

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._batching.steps_per_epoch or self._batches_of_pass

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Makes the batches of an epoch, from the batch `first` on."""
        left = len(self) - first
        number, start = divmod(epoch * len(self) + first, self._batches_of_pass)
        while left > 0:
            some = self._corpus_of(number).batches(self._batching, number, start)
            yield from itertools.islice(some, left)
            left -= self._batches_of_pass - start
            number, start = number + 1, 0

    def report(self, epoch: int) -> PipelineReport:
        """Counts pairs, tokens and batches of the pass over the pairs that an epoch begins in."""
        number = epoch * len(self) // self._batches_of_pass
        return self._corpus_of(number).report(self._batching.batches_per_update)

    def _corpus_of(self, epoch: int) -> Corpus:
        """The corpus with an epoch's pieces; the last one asked for is kept."""
        if self._resampled is None or self._resampled[0] != epoch:
            self._resampled = epoch, self._corpus.resampled(self._batching.seed_of(epoch))
        return self._resampled[1]


def _require_even_shares(buckets: tuple[Bucket, ...], row_share: tuple[int, int]) -> None:
    index, count = row_share
    rows = [bucket.batch_size for bucket in buckets]
    if not 0 <= index < count or any(size % count for size in rows):
        raise ArgumentError(
            "The rows of a batch cannot be shared evenly.",
            "`row_share=(index, count)` with 0 <= index < count, and batches with a multiple of "
            "count rows",
            f"Pass `rows_multiple_of={count}`.",
            received=f"row_share={row_share} and batches with {rows} rows",
        )
