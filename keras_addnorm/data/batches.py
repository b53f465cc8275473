"""Batches as NumPy arrays, without TensorFlow, and a base class for such batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_addnorm.data.pipeline import Batch, Epochs, PipelineReport, tokenised
from keras_addnorm.data.tokenizer import Tokenizer, TokenizerPair


class BatchesOfManySizes(keras.utils.PyDataset):
    """A `PyDataset` whose batches differ in rows and lengths, for `fit` on every backend.

    Keras on TensorFlow takes what the first two batches have in common for the shape of all, and
    ends a training at the first batch of another one. Here the second of these two has one more row
    and position, the first two axes of each array; it is looked at and not trained on.

    A subclass has `__len__` and `batch_at`, and calls `super().on_epoch_begin()` in a method of
    that name. Batches are read in one process and thread.

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
        self._is_looked_at = False

    def batch_at(self, index: int) -> Any:
        """What a `PyDataset` has as `__getitem__`.

        Args:
            index: From 0.

        Returns:
            Inputs, or a tuple of inputs, labels and weights, of NumPy arrays.

        Raises:
            NotImplementedError: If the subclass has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no batch_at(index).")

    def __getitem__(self, index: int) -> Any:
        """Returns `batch_at(index)`, or what Keras has to see."""
        batch = self.batch_at(index)
        if index == 1 and self._is_looked_at:
            return keras.tree.map_structure(_one_larger, batch)
        return batch

    @property
    def workers(self) -> int:
        """One. Keras asks for it whenever it is about to look at the first two batches."""
        self._is_looked_at = True
        return 1

    def on_epoch_begin(self) -> None:
        """Notes that what is read now is trained on."""
        self._is_looked_at = False


def _one_larger(x: np.ndarray) -> np.ndarray:
    # (B, T, ...) -> (B + 1, T + 1, ...)
    return np.pad(x, [(0, int(axis < 2)) for axis in range(x.ndim)])


class TrainingBatches(BatchesOfManySizes):
    """Bucketed batches as NumPy arrays, for `fit`, `evaluate` and `predict` on every backend.

    On TensorFlow, `make_training_dataset` has the same batches as a `tf.data.Dataset`.

    Each epoch of `fit` is the next of `epochs`. Pass `shuffle=False` to `fit`: the order is
    shuffled already, and Keras would shuffle it once more, otherwise in each run.

    A `TrainingPosition` takes it as its `epochs`, and a training then goes on where it was stopped.

    Args:
        report: What there is.
        epochs: The epochs.

    Attributes:
        report: What there is, a `PipelineReport`.
        epoch: Number of the epoch that is served.
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
        return self.report.batches

    def batch_at(self, index: int) -> Batch:
        """A batch of the epoch; one after the other costs least.

        Args:
            index: From 0.

        Returns:
            Inputs by name, and labels.
        """
        # Behind the rest of an epoch, where nobody trains, for Keras may read a batch ahead.
        batch = (self._first + index) % len(self)
        if batch != self._next:
            self._batches = self._epochs.batches(self.epoch, batch)
        self._next = batch + 1
        return next(self._batches)

    @property
    def plan(self) -> str:
        """A digest of all that decides which pairs a batch has, see `Epochs.plan`."""
        return self._epochs.plan

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Says which batch is the first one from now on.

        Args:
            epoch: Number of the epoch, from 0.
            batch: How many of its batches are left out. The length stays that of a whole epoch, so
                whoever starts inside of one has to stop in time.
        """
        self.epoch = epoch
        self._batches = self._epochs.batches(epoch, batch)
        self._first = batch
        self._next = batch

    def on_epoch_begin(self) -> None:
        """Notes that an epoch has begun: batches were looked at before, not trained on."""
        super().on_epoch_begin()
        self._begun = True

    def on_epoch_end(self) -> None:
        """Goes on to the next epoch, if this one is over: Keras calls it before the first, too."""
        if self._begun and self._next == len(self):
            self.start_at(self.epoch + 1)
        self._begun = False


def make_training_batches(
    pairs: Iterable[Any], tokenizers: Tokenizer | TokenizerPair, **options: Any
) -> TrainingBatches:
    """Tokenises sentence pairs once and serves them as bucketed batches, without TensorFlow.

    The batches of an epoch, and their order, are those of `make_training_dataset` with the same
    options.

    Args:
        pairs: An iterable of two strings each, source and target.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages.
        **options: Any of the keyword arguments of `make_training_dataset`.

    Returns:
        A `keras.utils.PyDataset` of `({"source", "target"}, labels)`, with an attribute `report`.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings, or an option is unknown.
        ValueError: If a length is not positive, or no pair is left.

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
    return TrainingBatches(*tokenised(pairs, tokenizers, **options))
