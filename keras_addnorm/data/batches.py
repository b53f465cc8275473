"""The same batches as `make_training_dataset`, without TensorFlow: for JAX and torch alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from keras_addnorm.data.pipeline import Batch, Epochs, PipelineReport, tokenised
from keras_addnorm.data.tokenizer import Tokenizer, TokenizerPair


class TrainingBatches(keras.utils.PyDataset):
    """Bucketed batches as NumPy arrays, for `fit`, `evaluate` and `predict` on JAX and torch.

    On TensorFlow take `make_training_dataset`: there Keras concludes from the first two batches
    which sizes may differ, and stops at a later one of another size if these two were alike.

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

    def __getitem__(self, index: int) -> Batch:
        """Returns a batch of the epoch; one after the other costs least."""
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
