"""Minimum risk training as an example: what is searched, chosen and put into batches."""

import dataclasses
import json
import types

import keras
import numpy as np
import pytest

from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.settings import TrainingConfig
from keras_addnorm.runs.trained_run import load_run


@pytest.fixture
def example(load_example):
    with load_example("minimum_risk") as module:
        yield module


def test_the_most_probable_and_the_best_are_chosen_but_never_the_reference(example):
    reference = "a b c d e f"
    found = [
        {"a x c y e z": -1.0, reference: -2.0, "a b c d e x": -9.0, "": -0.5},
        {"u v w x y z": -3.0, "a b x d e f": -4.0},
    ]
    texts, rewards = example.chosen(found, reference, 3)
    assert texts == ["a x c y e z", "u v w x y z", "a b c d e x"]
    assert rewards[2] > rewards[0] > rewards[1] >= 0 and rewards[2] < 1
    assert example.chosen(found, reference, 4)[0] == [*texts[:2], "a b x d e f", texts[2]]
    assert example.chosen([{reference: -1.0}], reference, 3) == ([], [])


def batches_of(example, sentences, **settings):
    ids = types.SimpleNamespace(pad_id=0, start_id=1, end_id=2)
    run = types.SimpleNamespace(
        model=types.SimpleNamespace(config=ids),
        config=types.SimpleNamespace(training=TrainingConfig(bucket_lengths=(3, 5))),
    )
    return example.Batches(sentences, run, example.Settings(**settings))


def test_a_batch_has_each_sentence_with_its_rows(example):
    sentences = [
        example.Sentence([5, 6], [[7], [8, 9]], [1.0, 0.25]),
        example.Sentence([5, 6, 7], [[8]], [1.0]),
        example.Sentence([5] * 5, [[8]], [1.0]),  # longer than every bucket
        example.Sentence([5], [[]], [1.0]),  # an empty reference
    ]
    batches = batches_of(example, sentences, candidates=2, tokens_per_batch=18)
    assert len(batches) == batches.kept == 2
    by_length = {inputs["source"].shape[1]: (inputs, *rest) for inputs, *rest in batches}
    inputs, labels, rewards = by_length[3]
    assert inputs["source"].tolist() == [[5, 6, 2]] * 3 + [[0, 0, 0]] * 3
    assert inputs["target"].tolist()[:3] == [[1, 7, 0], [1, 8, 9], [0, 0, 0]]
    assert labels.tolist()[:3] == [[7, 2, 0], [8, 9, 2], [0, 0, 0]]
    assert rewards.tolist() == [1.0, 0.25, 0.0, 0.0, 0.0, 0.0]
    assert by_length[5][1].tolist() == [[8, 2, 0, 0, 0], [0] * 5, [0] * 5]


def test_each_epoch_has_every_sentence_once_in_an_order_of_its_own(example):
    sentences = [example.Sentence([i], [[i], [i]], [1.0, 0.5]) for i in range(3, 40)]
    orders = []
    for _ in range(2):
        batches = batches_of(example, sentences, candidates=1, tokens_per_batch=24)
        for _ in range(2):
            rows = np.concatenate([batches[i][1] for i in range(len(batches))])
            orders.append([row[0] for row in rows.tolist()[::2] if row[0]])
            batches.on_epoch_end()
    assert all(sorted(order) == list(range(3, 40)) for order in orders)
    assert orders[0] == orders[2] != orders[1] == orders[3]


class Counting(keras.Model):
    """Learns nothing and notes the length of each batch."""

    def train_step(self, data):
        (inputs, labels, rewards) = data
        assert inputs["target"].shape == labels.shape and rewards.shape == labels.shape[:1]
        self.lengths.append(labels.shape[1])
        return {"loss": keras.ops.zeros(())}


def test_a_training_goes_on_where_the_first_two_batches_are_of_one_length(example):
    """Of these Keras on TensorFlow concludes what may differ between batches."""
    sentences = [example.Sentence([5] * n, [[6]], [1.0]) for n in [2] * 30 + [4]]
    alike = 0
    for seed in range(4):
        batches, same = (
            batches_of(example, sentences, candidates=1, tokens_per_batch=6, seed=seed)
            for _ in range(2)
        )
        assert len(batches) == 31
        batches.on_epoch_end()  # as Keras does before the first epoch
        expected = [batches[i][1].shape[1] for i in range(31)]
        assert set(expected) == {3, 5} and expected.count(5) == 1
        alike += expected[0] == expected[1]
        model = Counting()
        model.lengths = []
        model.compile(run_eagerly=True)
        model.fit(same, shuffle=False, verbose=0)
        assert model.lengths == expected
    assert alike
    alone = batches_of(example, sentences[:1], candidates=1, tokens_per_batch=6)
    assert len(alone) == 1


@pytest.mark.parametrize("line", ["[1]", '{"a": "b"}', '{"a": NaN}', "{"])
def test_candidates_that_are_none_are_named(example, tmp_path, line):
    file = tmp_path / "candidates.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"candidates\.jsonl' holds something else than"):
        example.found_translations(None, ["a"], file, None)


@pytest.mark.release
def test_it_runs_and_goes_on_behind_the_candidates_that_are_there(example, tmp_path, capsys):
    runs = example.small_runs(tmp_path)
    to = RunDirectory(tmp_path / "new")
    history = example.minimum_risk(runs, to, example.SMOKE_SETTINGS)
    assert np.all(np.isfinite(history.history["loss"])) and "val_bleu" in history.history
    assert "Translating 40 sentences" in capsys.readouterr().out
    before, after = load_run(runs[0]).model, load_run(to).model
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(before.get_weights(), after.get_weights(), strict=True)
    )
    with pytest.raises(FileExistsError, match="give --to another name"):
        example.minimum_risk(runs, to, example.SMOKE_SETTINGS)

    # As if it had been killed in the middle of a line: what stands before it is kept as it is.
    file = min(to.path.glob("candidates-*.jsonl"))
    whole = file.read_text()
    first = json.dumps({"not searched again": -1.0}) + "\n"
    file.write_text(first + whole[whole.index("\n") + 1 : whole.rindex("{") + 3])
    to.best_weights.unlink()
    again = example.minimum_risk(
        runs, to, dataclasses.replace(example.SMOKE_SETTINGS, epochs=1)
    ).history
    assert len(again["loss"]) == 1 and to.best_weights.exists()
    (_, *kept, last), (start, *there, end) = whole.splitlines(), file.read_text().splitlines()
    assert [start + "\n", *there] == [first, *kept]
    assert list(json.loads(end)) == list(json.loads(last))
