"""Searches whose caches grow find what they find with room for all positions from the start."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_reference import SOURCE, V_TARGET, array, tiny_model

from keras_addnorm.decoding import Beam, DiverseBeam, Greedy, Sample, search, stages
from keras_addnorm.decoding.search import Request

T = 11
STRATEGIES = [
    Greedy(0.6),
    Greedy(coverage_penalty=0.3),
    Beam(3, 0.6, num_return=2),
    Beam(3, 1.0, early_stopping=False, coverage_penalty=0.2),
    DiverseBeam(4, 2, num_return=3),
    Sample(1.5, seed=2, num_return=3),
]


@pytest.fixture
def short_stages(monkeypatch):
    """Stages of 2, 4 and 11 positions."""
    monkeypatch.setattr(stages, "_FIRST", 2)
    monkeypatch.setattr(stages, "_GROWTH", 2)
    assert stages.stages(T) == [2, 4, 11]


def make_model(end_bias, **settings):
    keras.utils.set_random_seed(4)
    settings = {"num_encoder_layers": 1, "num_decoder_layers": 2, "max_length": T, **settings}
    model = tiny_model(tie_embeddings=False, **settings)
    bias = np.zeros(V_TARGET)
    bias[model.config.end_id] = end_bias
    model.vocabulary_projection.bias.assign(bias)
    return model


def run(model, strategy, under_xla=True):
    request = Request(strategy, T, under_xla=under_xla)
    found = search.search(model, keras.ops.convert_to_tensor(SOURCE, "int32"), request)
    return array(found.ids), array(found.scores)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (1, [1]),
        (64, [64]),
        (127, [127]),
        (128, [64, 128]),
        (256, [64, 256]),
        (511, [64, 511]),
        (512, [64, 256, 512]),
        (4096, [64, 256, 1024, 4096]),
    ],
)
def test_the_lengths_of_the_stages(longest, expected):
    assert stages.stages(longest) == expected


@pytest.mark.parametrize("under_xla", [True, False])
@pytest.mark.parametrize("end_bias", [-9.0, 1.0], ids=["to the end", "some end before"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_growing_caches_change_nothing(request, strategy, end_bias, under_xla):
    model = make_model(end_bias)
    expected_ids, expected_scores = run(model, strategy)
    request.getfixturevalue("short_stages")
    ids, scores = run(model, strategy, under_xla)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    assert (ids != 0).sum(-1).max() > 4, "no row reaches the last stage"


@pytest.mark.parametrize(
    "positions", ["rotary", "alibi", "t5", {"name": "shaw", "max_distance": 3}]
)
def test_positions_mean_the_same_in_each_stage(request, positions):
    model = make_model(0.0, positions=positions, hidden_dim=8)
    expected_ids, expected_scores = run(model, Beam(3))
    request.getfixturevalue("short_stages")
    ids, scores = run(model, Beam(3))
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.parametrize("under_xla", [True, False])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=lambda s: type(s).__name__)
def test_each_stage_has_room_for_its_positions(short_stages, strategy, under_xla):
    """That is all that attention reads, and all that the cache of a stage holds."""
    model, sizes = make_model(-9.0), []
    count = strategy.rows_per_beam

    def looking(step):
        def look(tokens, index, cache):
            length = cache.rows["ancestors"].shape[1]
            for entry in cache.shared:
                assert entry.keys.shape[2] == entry.values.shape[1] == length * count
            sizes.append(length)
            return step(tokens, index, cache)

        return look

    class Looking(type(strategy)):
        def search(self, step, cache, task):
            sizes.append(cache.rows["ancestors"].shape[1])
            return super().search(looking(step), cache, task)

    request = Request(Looking(**vars(strategy)), T, under_xla=under_xla)
    tf.function(lambda: search.search(model, tf.constant(SOURCE), request).ids)()
    whole, *rest = sizes
    assert whole == T  # For strategies with loops of their own.
    assert sorted(rest) == rest and set(rest) == {2, 4, T}
