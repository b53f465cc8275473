"""Batches as a `keras.utils.PyDataset` of NumPy arrays, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.batching import Batch, Batching
from keras_addnorm.data.epochs import Epochs
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.data.tokenizer_pair import TokenizerPair


class BatchesOfManySizes(keras.utils.PyDataset):
    """A `PyDataset` whose batches differ in rows and lengths, for `fit` on every backend.

    Keras on TensorFlow infers the shape of all batches from the first two, before it trains: axes
    of equal size are taken as fixed, and a training fails at the first batch of another size. So
    while Keras inspects the first two batches, this class makes the first two axes of the second
    batch longer by one. Training sees the batches as they are.

    A subclass defines `__len__` and `batch_at`. If it defines `on_epoch_begin`, that method calls
    `super().on_epoch_begin()`. Batches are read in one process and thread.

    Example:
        ```python
        import numpy as np
        from keras_addnorm.data import BatchesOfManySizes

        class Lines(BatchesOfManySizes):
            def __len__(self):
                return 3

            def batch_at(self, index):
                shape = [(4, 8), (4, 8), (2, 16)][index]
                return np.ones(shape), np.zeros(shape[0])

        assert [inputs.shape for inputs, labels in Lines()] == [(4, 8), (4, 8), (2, 16)]
        # model.fit(Lines())
        ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_inspected = False

    def batch_at(self, index: int) -> Any:
        """Makes one batch: what `__getitem__` is in a `PyDataset`.

        Args:
            index: Number of the batch, from 0.

        Returns:
            Inputs, or a tuple of inputs, labels and weights, of NumPy arrays.

        Raises:
            NotImplementedError: If the subclass has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no batch_at(index).")

    def __getitem__(self, index: int) -> Any:
        """Returns `batch_at(index)`; a larger second batch while Keras inspects the shapes."""
        batch = self.batch_at(index)
        if index == 1 and self._is_inspected:
            return self._one_larger(batch)
        return batch

    def _one_larger(self, batch: Any) -> Any:
        # (B, T, ...) -> (B + 1, T + 1, ...)
        return keras.tree.map_structure(lambda x: _padded(x, 2), batch)

    @property
    def workers(self) -> int:
        """One. Keras reads this property right before it inspects the first two batches."""
        self._is_inspected = True
        return 1

    def on_epoch_begin(self) -> None:
        """Notes that Keras trains on the batches that it reads from now on."""
        self._is_inspected = False


def _padded(x: np.ndarray, axes: int) -> np.ndarray:
    return np.pad(x, [(0, int(axis < axes)) for axis in range(x.ndim)])


class TrainingBatches(BatchesOfManySizes):
    """Bucketed batches as NumPy arrays, for `fit`, `evaluate` and `predict` on every backend.

    On TensorFlow, `make_training_dataset` has the same batches as a `tf.data.Dataset`.

    Each epoch of `fit` is the next of `epochs`. Pass `shuffle=False` to `fit`: the batches are
    shuffled already, and Keras would shuffle them again, in another order in each run.

    Pass an instance as the `epochs` of a `TrainingPosition` to resume a training that was stopped.

    Args:
        report: Counts of the data set.
        epochs: The epochs.

    Attributes:
        report: Counts of the data set.
        epoch: Number of the current epoch.
    """

    def __init__(self, report: PipelineReport, epochs: Epochs) -> None:
        super().__init__()
        self.report = report
        self.epoch = epochs.next_epoch
        self._epochs = epochs
        self._batches = epochs.batches(self.epoch)
        self._first = 0
        self._next = 0
        self._begun = False

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return len(self._epochs)

    def batch_at(self, index: int) -> Batch:
        """Makes a batch of the epoch. Reading in order is the fastest.

        Args:
            index: Number of the batch, from 0.

        Returns:
            Inputs by name, and labels; row weights as the third part, if asked for.
        """
        # Keras may read one batch past the end of an epoch that was resumed inside.
        batch = (self._first + index) % len(self)
        if batch != self._next:
            self._batches = self._epochs.batches(self.epoch, batch)
        self._next = batch + 1
        return next(self._batches)

    def _one_larger(self, batch: Any) -> Any:
        # Alignments are (B, T, S).
        return keras.tree.map_structure(lambda x: _padded(x, 3), batch)

    @property
    def epochs(self) -> TrainingBatches:
        """Itself: where the next epoch starts, as the `epochs` of `make_training_dataset`."""
        return self

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Makes the batches of any epoch.

        Args:
            epoch: Number of the epoch, from 0.
            first: The number of the first batch.

        Returns:
            The batches from there to the end of the epoch.
        """
        return self._epochs.batches(epoch, first)

    @property
    def plan(self) -> str:
        """A digest of all that decides which pairs a batch has: ids, buckets and seed."""
        return self._epochs.plan

    @property
    def largest_ids(self) -> dict[str, int]:
        """The largest id of "source" and "target", so that a model can tell what it cannot read."""
        return self._epochs.largest_ids

    @property
    def longest_row(self) -> int:
        """The length of the longest rows, padding included: a model may have fewer positions."""
        return self._epochs.longest_row

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Sets which batch comes first from now on.

        Args:
            epoch: Number of the epoch, from 0.
            batch: How many of its batches are left out. The length stays that of a whole epoch, so
                a training that resumes inside an epoch has to stop before the batches left out.
        """
        self.epoch = epoch
        self._batches = self._epochs.batches(epoch, batch)
        self._first = batch
        self._next = batch

    def on_epoch_begin(self) -> None:
        """Notes that an epoch has begun: Keras only inspected the batches it read before."""
        super().on_epoch_begin()
        self._begun = True

    def on_epoch_end(self) -> None:
        """Moves to the next epoch if this one is over. Keras also calls it before the first one."""
        if self._begun and self._next == len(self):
            self.start_at(self.epoch + 1)
        self._begun = False


def make_training_batches(
    pairs: Iterable[Any], tokenizers: BaseTokenizer | TokenizerPair, **options: Any
) -> TrainingBatches:
    """Tokenises sentence pairs once and serves them as bucketed batches, without TensorFlow.

    Each epoch has the batches and the order of `make_training_dataset` with the same options.

    Args:
        pairs: An iterable of two strings each, source and target.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages.
        **options: Any of the keyword arguments of `make_training_dataset`.

    Returns:
        A `keras.utils.PyDataset` of `({"source", "target"}, labels)`, with an attribute `report`.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings, or an option is unknown.
        ValueError: As for `make_training_dataset`.

    Example:
        ```python
        from keras_addnorm.data import TokenizerPair, make_training_batches

        pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")]
        tokenizers = TokenizerPair.train(pairs, vocabulary_size=22)
        batches = make_training_batches(
            pairs, tokenizers, tokens_per_batch=64, bucket_lengths=(16, 32), shuffle_seed=1
        )
        inputs, labels = batches[0]
        assert inputs["source"].shape == inputs["target"].shape == labels.shape
        # model.fit(batches, epochs=10, shuffle=False)
        ```
    """
    batching = Batching(**options)
    epochs = Epochs.from_texts(pairs, tokenizers, batching)
    return TrainingBatches(epochs.report(batching.first_epoch), epochs)
