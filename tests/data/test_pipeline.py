import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.data import (
    BatchesOfManySizes,
    SubwordSampling,
    Tokenizer,
    TokenizerPair,
    bucket_by_length,
    corpus,
    fit_bucket_lengths,
    make_training_batches,
    make_training_dataset,
)
from keras_addnorm.data.buckets import num_batches

LETTERS = "abcdefg"


@pytest.fixture(scope="module")
def tokenizer():
    """A vocabulary of single letters, each of them a word: n letters are 2 n tokens or fewer."""
    return Tokenizer.train([" ".join(LETTERS)] * 5, vocabulary_size=4 + 1 + len(LETTERS))


def sentence(generator, length):
    """Makes a text of exactly `length` tokens: the space mark and letters."""
    return "".join(generator.choice(list(LETTERS), length - 1))


def sentence_pairs(count, longest, seed=0):
    generator = np.random.default_rng(seed)
    return [
        (sentence(generator, s), sentence(generator, t))
        for s, t in generator.integers(2, longest + 1, (count, 2))
    ]


def rows(dataset):
    """Reads every row that is not padding: (source, target, labels)."""
    return [
        tuple(map(tuple, row))
        for inputs, labels in dataset
        for row in zip(
            inputs["source"].numpy(), inputs["target"].numpy(), labels.numpy(), strict=True
        )
        if any(row[0])
    ]


def unpadded(dataset):
    return [tuple(tuple(i for i in ids if i) for ids in row) for row in rows(dataset)]


def expected_rows(pairs, tokenizer):
    out = []
    for source, target in pairs:
        s, t = tokenizer.encode(source), tokenizer.encode(target)
        out.append(((*s, 2), (1, *t), (*t, 2)))
    return out


def test_teacher_forcing_on_literals(tokenizer):
    mark, a, b, c = (tokenizer.encode("a")[0], *(tokenizer.encode(x)[1] for x in "abc"))
    dataset = make_training_dataset(
        [("ab", "c"), ("c", "ba")], tokenizer, tokens_per_batch=15, bucket_lengths=(5,)
    )
    ((inputs, labels),) = dataset
    expected = {
        "source": [[mark, a, b, 2, 0], [mark, c, 2, 0, 0], [0] * 5],
        "target": [[1, mark, c, 0, 0], [1, mark, b, a, 0], [0] * 5],
    }
    for side, ids in expected.items():
        np.testing.assert_array_equal(inputs[side], ids)
        assert inputs[side].dtype == tf.int32
    np.testing.assert_array_equal(labels, [[mark, c, 2, 0, 0], [mark, b, a, 2, 0], [0] * 5])
    assert labels.dtype == tf.int32


def test_every_pair_once_in_the_smallest_bucket_that_holds_it(tokenizer):
    pairs = sentence_pairs(61, 12)
    dataset = make_training_dataset(
        pairs, tokenizer, tokens_per_batch=39, bucket_lengths=(5, 13, 7), shuffle_seed=11
    )
    assert sorted(unpadded(dataset)) == sorted(expected_rows(pairs, tokenizer))
    for source, _, labels in rows(dataset):
        need = max(len(np.flatnonzero(source)), len(np.flatnonzero(labels)))
        assert len(source) == min(length for length in (5, 7, 13) if length >= need)


def test_one_shape_a_bucket_and_one_trace_a_shape(tokenizer):
    traces = []

    @tf.function
    def step(inputs, labels):
        traces.append(labels.shape)
        return tf.reduce_sum(labels)

    dataset = make_training_dataset(
        sentence_pairs(61, 12), tokenizer, tokens_per_batch=39, bucket_lengths=(5, 7, 13)
    )
    for inputs, labels in dataset:
        assert inputs["source"].shape == inputs["target"].shape == labels.shape
        step(inputs, labels)
    assert sorted(map(tuple, traces)) == [(3, 13), (5, 7), (7, 5)]


def test_the_report_counts_what_the_batches_hold(tokenizer):
    pairs = [*sentence_pairs(61, 12), ("a", ""), (" ", "b"), ("a" * 13, "b"), ("a", "b" * 20)]
    dataset = make_training_dataset(pairs, tokenizer, tokens_per_batch=39, bucket_lengths=(5, 13))
    report, batches = dataset.report, list(dataset)
    assert (report.kept, report.empty, report.too_long, report.dropped) == (61, 2, 2, 4)
    assert report.batches == len(batches) == int(dataset.cardinality())
    labels = [labels.numpy() for _, labels in batches]
    assert report.target_tokens == sum((ids != 0).sum() for ids in labels)
    assert report.source_tokens == sum(
        (inputs["source"].numpy() != 0).sum() for inputs, _ in batches
    )
    assert report.padding == pytest.approx(
        1 - report.target_tokens / sum(ids.size for ids in labels), abs=1e-12
    )
    assert [bucket[:2] for bucket in report.buckets] == [(5, 7), (13, 3)]
    assert sum(bucket[2] for bucket in report.buckets) == 61
    assert str(report).startswith("61 pairs kept, 2 empty, 2 too long; ")
    assert f" in {len(batches)} batches of length 5, 13: " in str(report)
    # A length that no pair needs is none of them.
    one = make_training_dataset([("a", "b")], tokenizer, bucket_lengths=(5, 13)).report
    assert " 1 batch of length 5: " in str(one)


def test_a_seed_shuffles_every_epoch_anew_and_every_run_alike(tokenizer):
    def epochs(count, **options):
        dataset = make_training_dataset(
            sentence_pairs(61, 12),
            tokenizer,
            tokens_per_batch=39,
            bucket_lengths=(5, 13),
            **options,
        )
        return [rows(dataset) for _ in range(count)]

    first, second, third = epochs(3, shuffle_seed=5)
    assert [first, second, third] == epochs(3, shuffle_seed=5)
    assert [second, third] == epochs(2, shuffle_seed=5, first_epoch=1)
    assert first != second != third and first != third
    assert sorted(first) == sorted(second) == sorted(third)
    assert [first] != epochs(1, shuffle_seed=6)
    # Batches of unlike lengths alternate.
    lengths = [len(row[0]) for row in first]
    assert lengths != sorted(lengths)


def test_no_seed_keeps_the_order(tokenizer):
    pairs = sentence_pairs(23, 12)
    dataset = make_training_dataset(pairs, tokenizer, tokens_per_batch=39, bucket_lengths=(13,))
    assert unpadded(dataset) == unpadded(dataset) == expected_rows(pairs, tokenizer)


def test_max_length_is_the_largest_bucket(tokenizer):
    def shapes(max_length):
        dataset = make_training_dataset(
            sentence_pairs(61, 18), tokenizer, bucket_lengths=(5, 7, 13), max_length=max_length
        )
        return [bucket[0] for bucket in dataset.report.buckets], dataset.report.too_long

    assert shapes(None)[0] == [5, 7, 13]
    assert shapes(9)[0] == [5, 7, 9]
    assert shapes(19) == ([5, 7, 13, 19], 0)
    assert shapes(9)[1] > shapes(None)[1] > 0


def test_a_long_bucket_has_one_row(tokenizer):
    dataset = make_training_dataset(
        [("a" * 10, "b")], tokenizer, tokens_per_batch=3, bucket_lengths=(13,)
    )
    assert next(iter(dataset))[1].shape == (1, 13)


def test_two_vocabularies_and_dataset_input(tokenizer):
    other = Tokenizer.train(["x y z"] * 3, vocabulary_size=8)
    texts = tf.data.Dataset.from_tensor_slices((["ab", "c"], ["xy", "z"]))
    dataset = make_training_dataset(
        texts, TokenizerPair(tokenizer, other), tokens_per_batch=10, bucket_lengths=(5,)
    )
    assert unpadded(dataset) == [
        ((*tokenizer.encode(s), 2), (1, *other.encode(t)), (*other.encode(t), 2))
        for s, t in (("ab", "xy"), ("c", "z"))
    ]


def id_dataset(pairs, tokenizer):
    ids = [(tokenizer.encode(source), tokenizer.encode(target)) for source, target in pairs]
    vector = tf.TensorSpec([None], tf.int32)
    return tf.data.Dataset.from_generator(lambda: ids, output_signature=(vector, vector))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ({"tokens_per_batch": 39}, {(7, 5), (5, 7), (3, 13)}),
        ({"batch_size": 3}, {(3, 5), (3, 7), (3, 13)}),
    ],
)
def test_bucket_by_length_streams_the_same_rows(tokenizer, size, expected):
    pairs = sentence_pairs(61, 12)
    junk = [("a", ""), ("", "b"), ("a" * 13, "b")]
    dataset = bucket_by_length(
        id_dataset(pairs + junk, tokenizer), bucket_lengths=(13, 5, 7), **size
    )
    assert sorted(unpadded(dataset)) == sorted(expected_rows(pairs, tokenizer))
    shapes = {tuple(labels.shape) for _, labels in dataset}
    assert shapes == expected
    for inputs, labels in dataset:
        assert inputs["source"].shape == inputs["target"].shape == labels.shape
        assert inputs["source"].dtype == inputs["target"].dtype == labels.dtype == tf.int32


def test_bucket_by_length_pads_with_the_given_id():
    ids = tf.data.Dataset.from_tensors(([5, 6], [7]))
    ((inputs, labels),) = bucket_by_length(ids, bucket_lengths=(4,), batch_size=2, pad_id=9)
    np.testing.assert_array_equal(inputs["source"], [[5, 6, 2, 9], [9] * 4])
    np.testing.assert_array_equal(inputs["target"], [[1, 7, 9, 9], [9] * 4])
    np.testing.assert_array_equal(labels, [[7, 2, 9, 9], [9] * 4])


def test_bad_arguments(tokenizer):
    ids = tf.data.Dataset.from_tensors(([5], [7]))
    with pytest.raises(ValueError, match="either tokens_per_batch or batch_size"):
        bucket_by_length(ids, bucket_lengths=(4,))
    with pytest.raises(ValueError, match="either tokens_per_batch or batch_size"):
        bucket_by_length(ids, bucket_lengths=(4,), batch_size=1, tokens_per_batch=1)
    for lengths in ((), (1, 5), (0,), (-3,)):
        with pytest.raises(ValueError, match="bucket lengths, ints of at least 2"):
            make_training_dataset([("a", "b")], tokenizer, bucket_lengths=lengths)
    for tokens in (0, -1):
        with pytest.raises(ValueError, match="a positive size"):
            make_training_dataset([("a", "b")], tokenizer, tokens_per_batch=tokens)
    with pytest.raises(ValueError, match="Received: 1 pairs with an empty side and 1 that are too"):
        make_training_dataset([("", "b"), ("a" * 99, "b")], tokenizer, bucket_lengths=(5,))
    with pytest.raises(ValueError, match="No sentence pair is left"):
        make_training_dataset([], tokenizer)
    with pytest.raises(TypeError, match="Expected pairs"):
        make_training_dataset(["a"], tokenizer)
    with pytest.raises(
        TypeError, match=r"of one split\. Received a dict of 'train', 'test': choose"
    ):
        make_training_dataset({"train": [], "test": []}, tokenizer)
    with pytest.raises(TypeError, match="Expected a TokenizerPair"):
        make_training_dataset([("a", "b")], None)


@pytest.mark.parametrize("batches_per_update", [1, 2])
def test_each_row_twice_in_succession(tokenizer, batches_per_update):
    def batches(repeats):
        return make_training_dataset(
            sentence_pairs(29, 7),
            tokenizer,
            tokens_per_batch=40,
            bucket_lengths=(5, 8),
            shuffle_seed=3,
            batches_per_update=batches_per_update,
            repeats=repeats,
        )

    once, twice = batches(1), batches(2)
    assert once.report == twice.report
    for one, two in zip(once, twice, strict=True):
        one, two = (tf.nest.flatten(batch) for batch in (one, two))
        for expected, rows in zip(one[:3], two[:3], strict=True):
            filled = [
                tf.boolean_mask(ids, tf.reduce_any(ids != 0, axis=1)) for ids in (expected, rows)
            ]
            np.testing.assert_array_equal(tf.repeat(filled[0], 2, axis=0), filled[1])
            assert rows.shape[0] == 2 * expected.shape[0]
        if batches_per_update > 1:  # Twice the tokens, so half the weight for each.
            np.testing.assert_allclose(two[3], tf.repeat(one[3], 2, axis=0) / 2)


def test_numpy_batches_are_those_of_the_dataset_epoch_for_epoch(tokenizer):
    pairs = sentence_pairs(23, 11)
    options = {"tokens_per_batch": 40, "bucket_lengths": (5, 8, 12), "shuffle_seed": 3}
    dataset = make_training_dataset(pairs, tokenizer, first_epoch=2, **options)
    batches = make_training_batches(pairs, tokenizer, first_epoch=2, **options)
    assert batches.report == dataset.report
    for epoch in (2, 3):
        assert batches.epoch == epoch
        # Keras looks at the first batch before it begins; any other order is possible, too.
        assert_equal_batches(batches[0], batches[0])
        expected = list(dataset.as_numpy_iterator())
        assert len(batches) == len(expected)
        batches.on_epoch_end()
        batches.on_epoch_begin()
        for index in (1, 0, *range(len(expected))):
            assert_equal_batches(batches[index], expected[index])
        batches.on_epoch_end()


class Recorder(keras.Model):
    """Learns nothing and keeps what `fit` gives it."""

    def __init__(self):
        super().__init__()
        self.trained = []

    def train_step(self, data):
        self.trained.append(data)
        return {"loss": keras.ops.zeros(())}


def test_fit_trains_on_the_first_epoch_of_one_batch_too(tokenizer):
    """Keras looks at a batch before the first epoch: that is not the end of an epoch of one."""
    pairs = sentence_pairs(9, 11)
    options = {"tokens_per_batch": 400, "bucket_lengths": (12,), "shuffle_seed": 3}
    dataset = make_training_dataset(pairs, tokenizer, **options)
    batches = make_training_batches(pairs, tokenizer, **options)
    assert len(batches) == 1
    model = Recorder()
    model.compile(run_eagerly=True)
    model.fit(batches, epochs=3, shuffle=False, verbose=0)
    for trained in model.trained:
        (expected,) = dataset
        assert_equal_batches(trained, expected)
    assert len(model.trained) == 3


def test_fit_takes_batches_whose_first_two_are_alike(tokenizer):
    """Of these Keras on TensorFlow concludes which sizes may differ."""
    pairs = [*sentence_pairs(30, 4), *sentence_pairs(1, 11)]
    options = {"tokens_per_batch": 10, "bucket_lengths": (5, 12)}
    alike = 0
    for seed in range(4):
        dataset = make_training_dataset(pairs, tokenizer, shuffle_seed=seed, **options)
        batches = make_training_batches(pairs, tokenizer, shuffle_seed=seed, **options)
        expected = list(dataset.as_numpy_iterator())
        alike += expected[0][1].shape == expected[1][1].shape
        assert len({labels.shape for _, labels in expected}) == 2
        model = Recorder()
        model.compile(run_eagerly=True)
        model.fit(batches, shuffle=False, verbose=0)
        assert_equal_batches(model.trained, expected)

        # A training that was stopped inside of an epoch, and another one after it.
        stop = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, model=model: setattr(
                model, "stop_training", batch == 2
            )
        )
        batches.start_at(0)
        model.fit(batches, shuffle=False, verbose=0, callbacks=[stop])
        batches.start_at(0)
        assert_equal_batches([batches[1]], [expected[1]])
        model.trained.clear()
        model.fit(batches, shuffle=False, verbose=0)
        assert_equal_batches(model.trained, expected)
    assert alike


class Vectors(BatchesOfManySizes):
    """Vectors of a width that a model has to know, in sequences of two lengths."""

    def __len__(self):
        return 3

    def batch_at(self, index):
        rows, length = [(4, 8), (4, 8), (2, 16)][index]
        return np.full((rows, length, 3), index, "float32"), np.ones((rows, length, 1), "float32")


def test_fit_takes_batches_of_many_sizes_of_vectors():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(Vectors(), epochs=2, shuffle=False, verbose=0).history["loss"]
    assert len(history) == 2 and np.all(np.isfinite(history))
    assert model.evaluate(Vectors(), verbose=0) < history[0]
    assert model.weights[0].shape == (3, 1)
    assert [x.shape for x, _ in Vectors()] == [(4, 8, 3), (4, 8, 3), (2, 16, 3)]


def test_batches_of_many_sizes_need_a_method():
    class Nothing(BatchesOfManySizes):
        def __len__(self):
            return 1

    with pytest.raises(NotImplementedError, match="Nothing has no batch_at"):
        Nothing()[0]


def test_an_epoch_begun_inside_has_the_batches_that_are_stated(tokenizer):
    """First the rest, then what nobody trains on: Keras may read one batch ahead."""
    options = {"tokens_per_batch": 40, "bucket_lengths": (5, 8, 12), "shuffle_seed": 3}
    dataset = make_training_dataset(sentence_pairs(23, 11), tokenizer, **options)
    whole = list(dataset.as_numpy_iterator())
    dataset.epochs.start_at(0, 3)
    shortened = list(dataset.as_numpy_iterator())
    assert len(shortened) == len(whole) == dataset.report.batches > 4
    for batch, expected in zip(shortened, whole[3:] + whole[:3], strict=True):
        assert_equal_batches(batch, expected)
    assert dataset.epochs.next_epoch == 1


def test_the_plan_is_that_of_the_pairs_in_each_batch(tokenizer):
    pairs = sentence_pairs(23, 11)
    options = {"tokens_per_batch": 40, "bucket_lengths": (5, 8, 12), "shuffle_seed": 3}

    def plan(pairs, **changes):
        return make_training_dataset(pairs, tokenizer, **{**options, **changes}).epochs.plan

    assert plan(pairs) == plan(pairs, first_epoch=2) == plan(pairs, row_weights=True, repeats=2)
    others = [
        plan(pairs),
        plan(pairs[::-1]),
        plan(pairs, shuffle_seed=7),
        plan(pairs, bucket_lengths=(5, 7, 12)),
        plan(pairs, tokens_per_batch=50),
    ]
    assert len(set(others)) == 5


WORDS = ["under", "over", "table", "stable", "unable", "tower", "lower", "ladder"]


@pytest.fixture(scope="module")
def words():
    """Pairs of words that a BPE vocabulary has as one piece each, and that vocabulary."""
    generator = np.random.default_rng(4)
    pairs = [
        tuple(" ".join(generator.choice(WORDS, size)) for size in sizes)
        for sizes in generator.integers(1, 5, (60, 2))
    ]
    return pairs, Tokenizer.train([" ".join(WORDS)] * 9, vocabulary_size=46, kind="bpe")


def sampled(words, sampling=0.1, **changes):
    pairs, tokenizer = words
    options = {"tokens_per_batch": 90, "bucket_lengths": (6, 9, 13, 30), "shuffle_seed": 3}
    return make_training_dataset(
        pairs,
        tokenizer,
        sampling=sampling and SubwordSampling(sampling),
        **{**options, **changes},
    )


def test_each_epoch_splits_the_same_pairs_into_other_pieces(words):
    pairs, tokenizer = words
    dataset = sampled(words)
    epochs = [list(dataset.as_numpy_iterator()) for _ in range(3)]
    assert {len(batches) for batches in epochs} == {dataset.report.batches}
    labels = [[ids for _, labels in batches for ids in labels if ids[0]] for batches in epochs]
    texts = sorted(target for _, target in pairs)
    for rows in labels:
        assert sorted(map(tokenizer.decode, rows)) == texts
    counts = {sum((ids != 0).sum() for ids in rows) for rows in labels}
    assert len(counts) == 3
    assert dataset.report.target_tokens == sum((ids != 0).sum() for ids in labels[0])
    plain = sampled(words, sampling=None).report.target_tokens
    assert min(counts) > plain


def test_sampled_epochs_are_alike_in_each_run_and_from_any_batch_on(words):
    dataset = sampled(words)
    epochs = [list(dataset.as_numpy_iterator()) for _ in range(2)]
    later = sampled(words, first_epoch=1)
    assert_equal_batches(list(later.as_numpy_iterator()), epochs[1])
    dataset.epochs.start_at(1, 3)
    assert_equal_batches(list(dataset.as_numpy_iterator())[:-3], epochs[1][3:])
    batches = make_training_batches(
        *words,
        tokens_per_batch=90,
        bucket_lengths=(6, 9, 13, 30),
        shuffle_seed=3,
        sampling=SubwordSampling(0.1),
    )
    assert_equal_batches([batches[index] for index in (2, 0)], [epochs[0][2], epochs[0][0]])


def served(dataset):
    """The rows of an epoch, source and labels, without padding; beside each its bucket's length."""
    for inputs, labels in dataset.as_numpy_iterator():
        for row in zip(inputs["source"], labels, strict=True):
            if row[0][0]:
                yield labels.shape[1], *(tuple(ids[ids != 0]) for ids in row)


def test_each_epoch_has_the_buckets_that_its_pieces_need(words):
    dataset, lengths = sampled(words), (6, 9, 13, 30)
    buckets = []
    for _ in range(4):
        rows = list(served(dataset))
        for bucket, *sides in rows:
            assert bucket == min(n for n in lengths if n >= max(map(len, sides)))
        buckets.append(sorted(bucket for bucket, *_ in rows))
    assert len(set(map(tuple, buckets))) > 1


def test_an_epoch_that_would_need_too_many_batches_takes_the_plain_pieces(words, monkeypatch):
    pairs, tokenizer = words
    # As if no sample were longer than the plain pieces.
    monkeypatch.setattr(corpus, "_SAMPLES", 0)
    dataset = sampled(words, 0.9)
    assert dataset.report.batches == sampled(words, sampling=None).report.batches
    for _ in range(2):
        rows = list(served(dataset))
        assert sorted(tokenizer.decode(ids) for _, _, ids in rows) == sorted(t for _, t in pairs)
    assert {ids for _, ids, _ in rows} == {(*tokenizer.encode(source), 2) for source, _ in pairs}


def test_no_more_pairs_than_necessary_are_split_as_ever(words):
    """One batch fewer than an epoch wants: the last pairs give way, and not all of them."""
    free = sampled(words, 0.3).epochs._corpus
    wanted = free.resampled((3, 0))
    fewer = num_batches(wanted.bucket_of, wanted.buckets) - 1
    tight = dataclasses.replace(free, num_batches=fewer).resampled((3, 0))
    ids = [np.split(c.target.ids, c.target.offsets[1:-1]) for c in (free, wanted, tight)]
    drawn = [np.array_equal(got, asked) for _, asked, got in zip(*ids, strict=True)]
    plain = [np.array_equal(got, usual) for usual, _, got in zip(*ids, strict=True)]
    assert all(one or other for one, other in zip(drawn, plain, strict=True))
    first = drawn.index(False)
    assert first > len(drawn) / 2 and all(plain[first:])


def test_there_are_never_more_batches_than_pairs(words):
    pairs, tokenizer = words
    dataset = sampled((pairs[:1], tokenizer))
    assert dataset.report.batches == 1
    assert len(list(served(dataset))) == 1


def test_a_draw_that_is_too_long_for_every_bucket_gives_way_to_the_plain_pieces(words):
    """Nearly every merge is left out: what does not fit is as `encode` has it."""
    pairs, tokenizer = words
    dataset = sampled(words, 0.9, bucket_lengths=(9,))
    plain = {tuple(tokenizer.encode(target)) for _, target in pairs}
    assert (dataset.report.kept, dataset.report.too_long) == (60, 0)
    kept = 0
    for _, labels in dataset.as_numpy_iterator():
        for ids in labels[labels[:, 0] != 0]:
            ids = tuple(ids[: list(ids).index(2)])
            kept += ids in plain
    assert 30 < kept < 60


def test_sampled_rows_are_weighed_by_their_own_tokens(words):
    for _, labels, weights in sampled(words, row_weights=True).as_numpy_iterator():
        np.testing.assert_allclose(weights, 1 / (labels != 0).sum(), rtol=1e-6)


def test_sampling_says_that_no_pair_is_left(words):
    with pytest.raises(ValueError, match="No sentence pair is left"):
        sampled(([], words[1]))


def test_sampling_is_part_of_the_plan_and_needs_a_seed(words):
    plans = {sampled(words, alpha).epochs.plan for alpha in (None, 0.1, 0.2)}
    assert len(plans) == 3
    with pytest.raises(ValueError, match=r"shuffle_seed with SubwordSampling\(alpha=0.1\)"):
        sampled(words, shuffle_seed=None)


def assert_equal_batches(batch, expected):
    for ours, theirs in zip(tf.nest.flatten(batch), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype == np.int32


@pytest.mark.parametrize("changes", [{}, {"batches_per_update": 2}, {"shuffle_seed": None}])
def test_steps_of_an_epoch_go_on_through_the_passes_over_the_pairs(tokenizer, changes):
    """Eleven epochs of six batches are the first 66 batches of one pass after the other."""
    pairs = sentence_pairs(61, 12)
    options = {"tokens_per_batch": 39, "bucket_lengths": (5, 13), "shuffle_seed": 5, **changes}

    def flat(batch):
        return [np.asarray(array) for array in tf.nest.flatten(batch)]

    whole = make_training_dataset(pairs, tokenizer, **options)
    passes = [flat(batch) for _ in range(4) for batch in whole]
    dataset = make_training_dataset(pairs, tokenizer, **options, steps_per_epoch=6)
    batches = make_training_batches(pairs, tokenizer, **options, steps_per_epoch=6)
    assert whole.report.batches % 6 and len(passes) > 66
    assert dataset.report == whole.report and dataset.epochs.plan == whole.epochs.plan
    assert int(dataset.cardinality()) == len(batches) == 6
    for epoch in range(11):
        served = [flat(batch) for batch in dataset]
        batches.start_at(epoch)
        again = [flat(batches[index]) for index in range(6)]
        for found in (served, again):
            for one, expected in zip(found, passes[6 * epoch : 6 * epoch + 6], strict=True):
                for array, wanted in zip(one, expected, strict=True):
                    np.testing.assert_array_equal(array, wanted)
    dataset.epochs.start_at(2, 4)
    for one, expected in zip(list(dataset)[:2], passes[16:18], strict=True):
        np.testing.assert_array_equal(flat(one)[0], expected[0])


def test_steps_of_an_epoch_are_whole_updates(tokenizer):
    with pytest.raises(ValueError, match=r"multiple of batches_per_update = 2\. Received: 3"):
        make_training_batches([("a", "b")], tokenizer, steps_per_epoch=3, batches_per_update=2)


def test_processes_read_each_row_once(tokenizer):
    """Shares of the same batches, in the same order; with weights of the whole batch."""
    pairs = sentence_pairs(61, longest=11)
    settings = {"tokens_per_batch": 70, "bucket_lengths": (7, 12), "shuffle_seed": 5}

    def batches(**share):
        dataset = make_training_dataset(
            pairs, tokenizer, **settings, rows_multiple_of=3, row_weights=True, **share
        )
        return list(dataset.as_numpy_iterator())

    whole = batches()
    shares = [batches(row_share=(index, 3)) for index in range(3)]
    assert {len(labels) for _, labels, _ in whole} == {9, 3}  # 70 // 7 and 70 // 12, in threes
    for batch, *parts in zip(whole, *shares, strict=True):
        flat = [tf.nest.flatten(part) for part in parts]
        for array, *pieces in zip(tf.nest.flatten(batch), *flat, strict=True):
            assert len({len(piece) for piece in pieces}) == 1
            np.testing.assert_array_equal(np.concatenate(pieces), array)
        _, labels, weights = batch
        np.testing.assert_allclose(weights, 1 / (labels != 0).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ((0, 2), r"shared evenly.*batches with \[9\] rows"),
        ((3, 3), r"shared evenly.*batches with \[9\] rows"),
        ((-1, 3), r"row_share=\(index, count\), two ints. Received: \(-1, 3\)"),
    ],
)
def test_rows_that_cannot_be_shared_are_refused(tokenizer, share, message):
    with pytest.raises(ValueError, match=message):
        make_training_dataset(
            sentence_pairs(5, longest=6),
            tokenizer,
            tokens_per_batch=63,
            bucket_lengths=(7,),
            row_share=share,
        )


def test_lengths_fit_the_pairs_unless_they_are_given(tokenizer):
    pairs = [*sentence_pairs(61, 12), *sentence_pairs(7, 30, seed=3), ("a" * 99, "b")]
    options = {"tokens_per_batch": 39, "max_length": 50}
    dataset = make_training_dataset(pairs, tokenizer, num_buckets=3, **options)
    report, served = dataset.report, list(dataset)
    lengths = [max(len(tokenizer.encode(text)) for text in pair) + 1 for pair in pairs]
    fitted = fit_bucket_lengths(lengths, 3, **options)
    assert tuple(length for length, *_ in report.buckets) == fitted
    assert {labels.shape[1] for _, labels in served} == set(fitted)
    assert (report.kept, report.too_long) == (68, 1)
    assert sorted(unpadded(served)) == sorted(expected_rows(pairs[:-1], tokenizer))
    given = make_training_dataset(pairs, tokenizer, bucket_lengths=(8, 16, 50), **options)
    assert report.padding < given.report.padding
    assert report.target_tokens == given.report.target_tokens


def test_fitted_lengths_hold_what_sampled_pieces_need(words):
    pairs, _ = words
    dataset = sampled(words, 0.3, bucket_lengths=None, num_buckets=4)
    longest = dataset.report.buckets[-1][0]
    plain = sampled(words, None, bucket_lengths=None, num_buckets=4).report.buckets[-1][0]
    assert longest > plain
    epochs = [list(served(dataset)) for _ in range(2)]
    assert [len(rows) for rows in epochs] == [len(pairs)] * 2
    assert {labels for *_, labels in epochs[0]} != {labels for *_, labels in epochs[1]}
