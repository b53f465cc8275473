"""Several batches that share an update teach what one batch of them all would."""

import keras
import numpy as np
import pytest

from keras_addnorm.data import Tokenizer, make_training_dataset
from keras_addnorm.training import (
    InverseSquareRootSchedule,
    MaskedSparseCategoricalCrossentropy,
    ScheduleOfUpdates,
)
from keras_addnorm.training.resume import TrainingPosition

K = 3
PAIRS = [("a b"[: 1 + i % 3], "b a c d e f g"[: 1 + (5 * i) % 13]) for i in range(23)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["a b c d e f g"] * 5, vocabulary_size=12)


def data(tokenizer, batches_per_update):
    return make_training_dataset(
        PAIRS,
        tokenizer,
        tokens_per_batch=29,
        bucket_lengths=(7, 11, 17),
        shuffle_seed=5,
        batches_per_update=batches_per_update,
    )


def compiled(tokenizer, **settings):
    keras.utils.set_random_seed(7)
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras.layers.Embedding(tokenizer.vocabulary_size, 5)(target)
    logits = keras.layers.Dense(tokenizer.vocabulary_size)(hidden)
    source = keras.Input((None,), dtype="int32", name="source")
    model = keras.Model({"source": source, "target": target}, logits)
    weighted_sum = settings.pop("weighted_sum", False)
    model.compile(
        optimizer=keras.optimizers.SGD(0.5, momentum=0.9, **settings),
        loss=MaskedSparseCategoricalCrossentropy(0.1, weighted_sum=weighted_sum),
        run_eagerly=True,
    )
    return model


def one_batch(batches):
    """Lays batches of different lengths into one."""
    parts = [[b[0]["source"], b[0]["target"], b[1]] for b in batches]
    longest = max(part[2].shape[1] for part in parts)
    source, target, labels = (
        np.concatenate([np.pad(a, ((0, 0), (0, longest - a.shape[1]))) for a in arrays])
        for arrays in zip(*parts, strict=True)
    )
    return {"source": source, "target": target}, labels


def test_accumulated_is_the_large_batch(tokenizer):
    dataset = data(tokenizer, K)
    assert dataset.report.batches % K == 0
    assert len({size for size, *_ in dataset.report.buckets}) == 3
    accumulated = compiled(tokenizer, gradient_accumulation_steps=K, weighted_sum=True)
    position = TrainingPosition(dataset.epochs, dataset.report.batches)
    accumulated.fit(dataset, epochs=2, shuffle=False, verbose=0, callbacks=[position])

    large = compiled(tokenizer)
    means = compiled(tokenizer, gradient_accumulation_steps=K)
    for epoch in range(2):
        batches = list(dataset.epochs.batches(epoch))
        for first in range(0, len(batches), K):
            large.train_on_batch(*one_batch(batches[first : first + K]))
        for inputs, labels, _ in batches:
            means.train_on_batch(inputs, labels)
    for ours, expected in zip(accumulated.get_weights(), large.get_weights(), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)
    # What Keras does by itself: the mean of the batches' means.
    assert np.abs(means.get_weights()[0] - large.get_weights()[0]).max() > 1e-3


def test_the_batches_are_those_without_accumulation(tokenizer):
    plain, weighted = data(tokenizer, 1).epochs, data(tokenizer, K).epochs
    one, other = list(plain.batches(4)), list(weighted.batches(4))
    for (inputs, labels), (again, labels_again, weights) in zip(one, other, strict=False):
        np.testing.assert_array_equal(inputs["source"], again["source"])
        np.testing.assert_array_equal(inputs["target"], again["target"])
        np.testing.assert_array_equal(labels, labels_again)
        assert weights.shape == (len(labels), 1)
    assert not any(labels.any() for _, labels, _ in other[len(one) :])
    for first in range(0, len(other), K):
        update = other[first : first + K]
        total = sum(((labels != 0) * weights).sum() for _, labels, weights in update)
        np.testing.assert_allclose(total, K, rtol=1e-6)


def test_an_epoch_can_start_anywhere(tokenizer):
    dataset = data(tokenizer, K)
    whole = list(dataset.epochs.batches(2))
    dataset.epochs.start_at(2, batch=5)
    rest = list(dataset.take(len(whole) - 5).as_numpy_iterator())
    for (inputs, labels, _), (again, labels_again, _) in zip(whole[5:], rest, strict=True):
        np.testing.assert_array_equal(inputs["target"], again["target"])
        np.testing.assert_array_equal(labels, labels_again)
    following = next(iter(dataset.as_numpy_iterator()))
    np.testing.assert_array_equal(following[1], next(dataset.epochs.batches(3))[1])


def test_a_schedule_of_updates_survives_saving():
    schedule = ScheduleOfUpdates(InverseSquareRootSchedule(0.5, warmup_steps=2), K)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert [float(again(batch)) for batch in range(7)] == [0, 0, 0, 0.25, 0.25, 0.25, 0.5]
    with pytest.raises(ValueError, match="batches_per_update must be an integer of at least 1"):
        ScheduleOfUpdates(schedule, 0)
