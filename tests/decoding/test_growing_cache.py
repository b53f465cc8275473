"""Growing caches and smaller batches change nothing of what a search finds."""

import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from models_reference import SOURCE, V_TARGET, array, tiny_model

from keras_addnorm.decoding import Beam, DiverseBeam, Greedy, MaxLength, MinLength, Sample
from keras_addnorm.decoding.engine import (
    XLAEngine,
    engine_for,
    tf_graph,
    xla,
)
from keras_addnorm.decoding.engine.base import run_until_few
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.search import Search

T = 11
STRATEGIES = [
    Greedy(0.6, coverage_penalty=0.3),
    Beam(3, 1.0, num_return=2, early_stopping=False, coverage_penalty=0.2),
    DiverseBeam(4, 2, num_return=3),
    Sample(1.5, seed=2, num_return=3),
]


NUM_SENTENCES = 9
SENTENCES = np.random.default_rng(7).integers(3, 13, (NUM_SENTENCES, 7)).astype("int32")
for row, length in enumerate((7, 3, 5, 1, 6, 2, 0, 4, 7)):
    SENTENCES[row, length:] = 0


@pytest.fixture
def short_stages(monkeypatch):
    """Stages of 2, 4 and 11 positions; in one loop of 2, 4, 8 and 11."""
    monkeypatch.setattr(xla, "_FIRST", 2)
    monkeypatch.setattr(xla, "_MARGIN", -99)
    monkeypatch.setattr(xla, "_GROWTH", 2)
    monkeypatch.setattr(tf_graph, "_FIRST", 2)
    assert xla.stage_lengths(T, 7) == [2, 4, 11]


@pytest.fixture
def groups_of_few(monkeypatch):
    """A batch of 4 is a large one, and a third of it goes on: of 9 sentences 3, of 3 all."""
    monkeypatch.setattr(xla, "_LARGE_BATCH", 4)
    monkeypatch.setattr(xla, "_GROUPS", 3)


def make_model(end_bias, **settings):
    keras.utils.set_random_seed(4)
    settings = {"num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": T, **settings}
    model = tiny_model(tie_embeddings=False, **settings)
    bias = np.zeros(V_TARGET)
    bias[model.config.end_id] = end_bias
    model.vocabulary_projection.bias.assign(bias)
    return model


def run(model, strategy, under_xla=True, source=SOURCE, prefix=None, constraints=()):
    search = Search(strategy, max_length=T, constraints=constraints, target_prefix=prefix)
    source = keras.ops.convert_to_tensor(source, "int32")
    found = run_search(model, source, search, engine_for(under_xla))
    return array(found.ids), array(found.scores)


@functools.cache
def found_at_once(strategy, end_bias):
    return run(make_model(end_bias, num_decoder_layers=2), strategy)


@functools.cache
def found_in_one_group(strategy, has_prefix):
    return run(make_model(1.0), strategy, source=SENTENCES, **rules_of_groups(has_prefix))


def rules_of_groups(has_prefix):
    rules = {"constraints": (MinLength(source_factor=0.8), MaxLength(1, 1.2))}
    if has_prefix:
        prefix = np.zeros((NUM_SENTENCES, 2), "int32")
        prefix[:, 0], prefix[::2, 1] = np.arange(NUM_SENTENCES) % 7 + 4, 5
        rules["prefix"] = keras.ops.convert_to_tensor(prefix)
    return rules


def compiled(model, strategy, under_xla, shape=(None, None)):
    """The same for sources of this shape, traced as a whole."""
    search = Search(strategy, max_length=T)
    spec = tf.TensorSpec(shape, tf.int32)

    @tf.function(input_signature=[spec], jit_compile=under_xla, autograph=False)
    def find(source):
        found = run_search(model, source, search, engine_for(under_xla))
        return found.ids, found.scores

    return find


def num_steps(ids):
    """How many tokens the longest hypothesis of each sentence has."""
    return (ids != 0).sum(-1).max(-1)


@pytest.mark.parametrize(
    ("longest", "source_length", "expected"),
    [
        (1, 16, [1]),
        (63, 16, [63]),
        (64, 16, [32, 64]),
        (256, 1, [32, 256]),
        (256, 16, [32, 256]),
        (256, 32, [48, 256]),
        (256, 64, [80, 256]),
        (256, 256, [256, 256]),
        (511, 16, [32, 511]),
        (512, 16, [32, 256, 512]),
        (512, 64, [80, 512, 512]),
        (4096, 16, [32, 256, 2048, 4096]),
    ],
)
def test_the_lengths_of_the_stages(longest, source_length, expected):
    assert xla.stage_lengths(longest, source_length) == expected
    unknown = keras.ops.convert_to_tensor(source_length)
    assert list(map(int, xla.stage_lengths(longest, unknown))) == expected


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    ("strategy", "end_bias", "under_xla"),
    covering(STRATEGIES, (-9.0, 1.0), (True, False)),  # to the end, or some end before
    ids=str,
)
def test_growing_caches_change_nothing(request, strategy, end_bias, under_xla):
    expected_ids, expected_scores = found_at_once(strategy, end_bias)
    request.getfixturevalue("short_stages")
    ids, scores = run(make_model(end_bias, num_decoder_layers=2), strategy, under_xla)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    assert num_steps(ids).max() > 4, "no row reaches the last stage"


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    ("strategy", "has_prefix", "under_xla"),
    covering(STRATEGIES, (False, True), (True, False)),
    ids=str,
)
def test_groups_change_nothing(request, strategy, has_prefix, under_xla):
    """Each sentence keeps its own memory, prefix, limits, draws and attention."""
    expected_ids, expected_scores = found_in_one_group(strategy, has_prefix)
    request.getfixturevalue("short_stages")
    request.getfixturevalue("groups_of_few")
    rules = rules_of_groups(has_prefix)
    ids, scores = run(make_model(1.0), strategy, under_xla, SENTENCES, **rules)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    steps = np.sort(num_steps(ids))
    assert len(set(steps)) > 3 and steps[0] == 0 and steps[-1] > 4, "no batch of several lengths"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "under_xla", "shape"),
    covering([Greedy(), Beam(3, 0.6)], (True, False), [(None, None), SENTENCES.shape]),
    ids=str,
)
def test_compiled_groups_change_nothing(request, strategy, under_xla, shape):
    model = make_model(1.0)
    expected, _ = run(model, strategy, source=SENTENCES)
    request.getfixturevalue("short_stages")
    request.getfixturevalue("groups_of_few")
    ids, _ = compiled(model, strategy, under_xla, shape)(tf.constant(SENTENCES))
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.slow
def test_further_stages_may_have_no_more_room(request, monkeypatch):
    """As behind long sources, whose first stage has all of it."""
    expected, _ = found_in_one_group(Beam(3, 0.6, num_return=2), False)
    request.getfixturevalue("short_stages")
    request.getfixturevalue("groups_of_few")
    monkeypatch.setattr(xla, "_MARGIN", T)
    assert xla.stage_lengths(T, 7) == [T, T, T]
    rules = rules_of_groups(False)
    ids, _ = run(make_model(1.0), Beam(3, 0.6, num_return=2), source=SENTENCES, **rules)
    np.testing.assert_array_equal(ids, expected)


class ShortMemory:
    """A model whose encoder keeps less than all positions."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    def encode(self, source_ids):
        memory, mask = self.model.encode(source_ids)
        return memory[:, :2], mask[:, :2]


def test_room_is_made_for_the_source_not_for_the_memory(monkeypatch):
    model = ShortMemory(make_model(-9.0))
    expected, _ = run(model, Beam(3, 0.6))
    monkeypatch.setattr(xla, "_FIRST", 2)
    monkeypatch.setattr(xla, "_MARGIN", 0)
    assert xla.stage_lengths(T, SOURCE.shape[1])[0] > 2
    ids, _ = run(model, Beam(3, 0.6))
    np.testing.assert_array_equal(ids, expected)


def steps_of(strategy, lengths, under_xla):
    """The steps of a search whose outputs have these lengths: `(index, number of sentences)`."""
    steps, count = [], strategy.rows_per_sentence

    class Counting(type(strategy)):
        def search(self, model, inputs):
            def counted(tokens, index, cache):
                assert len(tokens) == count * len(cache.fixed["memory_mask"])
                steps.append((int(index), len(tokens) // count))
                return model.step(tokens, index, cache)

            return super().search(dataclasses.replace(model, step=counted), inputs)

    source = np.arange(max(lengths)) < np.array(lengths)[:, None]
    rules = (MaxLength(source_factor=1.0),)
    counting = Counting(**vars(strategy))
    ids, _ = run(make_model(-99.0), counting, under_xla, 4 * source, constraints=rules)
    np.testing.assert_array_equal(num_steps(ids), lengths)
    return steps


def steps(start, end, num_sentences):
    return [(index, num_sentences) for index in range(start, end)]


FEW_LONG = [2, 9, 2, 2, 2, 5, 2, 2, 2, 7, 2, 2, 2, 2, 2, 4]
MANY_LONG = [9, 2, 6, 3, 5, 2, 3, 7, 2, 2, 6, 2, 8, 2, 2, 5]


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    ("strategy", "lengths", "under_xla", "expected"),
    [
        # A quarter of 16 still runs after two steps. In one loop three enter the second stage, of
        # which two would still be more than half.
        (Greedy(), FEW_LONG, True, steps(0, 2, 16) + steps(2, 9, 4)),
        (
            Beam(2),
            FEW_LONG,
            False,
            steps(0, 2, 16) + steps(2, 4, 4) + steps(4, 7, 3) + steps(7, 9, 1),
        ),
        # Seven do at the end of the first stage: the fourth of the second group has ended before,
        # or it would run to 9 once more. In one loop these seven leave a step before.
        (DiverseBeam(2), MANY_LONG, True, steps(0, 4, 16) + steps(4, 9, 4) + steps(4, 8, 4)),
        (
            Greedy(),
            MANY_LONG,
            False,
            steps(0, 3, 16) + steps(3, 6, 7) + steps(6, 8, 3) + steps(8, 9, 1),
        ),
        # Too few to leave any of them; in one loop never.
        (Beam(2, num_return=2), FEW_LONG[1:], True, steps(0, 4, 15) + steps(4, 9, 15)),
        (
            DiverseBeam(2),
            FEW_LONG[1:],
            False,
            steps(0, 2, 15) + steps(2, 4, 4) + steps(4, 7, 3) + steps(7, 9, 1),
        ),
        # A batch that ends in its first stage has no second one.
        (Beam(2), [3] * 11 + [4] * 5, True, steps(0, 4, 16)),
        (Greedy(), [3] * 11 + [4] * 5, False, steps(0, 3, 16) + steps(3, 4, 5)),
    ],
)
def test_who_steps(monkeypatch, strategy, lengths, under_xla, expected):
    monkeypatch.setattr(xla, "_FIRST", 4)
    monkeypatch.setattr(xla, "_MARGIN", -99)
    monkeypatch.setattr(xla, "_GROUPS", 4)
    monkeypatch.setattr(tf_graph, "_FIRST", 4)
    assert xla.stage_lengths(T, 9) == [4, T]
    assert steps_of(strategy, lengths, under_xla) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "under_xla"),
    [
        ({"positions": "rotary"}, True),
        ({"positions": "alibi"}, False),
        ({"positions": {"name": "shaw", "max_distance": 3}}, False),
        ({"attention": {"num_key_value_heads": 1, "window": 3}}, True),
        ({"attention": {"value_residual": True}, "num_decoder_layers": 2}, True),
        ({"attention": {"value_residual": True}, "num_decoder_layers": 2}, False),
    ],
    ids=str,
)
def test_attention_means_the_same_in_each_stage(request, settings, under_xla):
    """Whoever reads a cache may not know its size while it is traced."""
    model = make_model(0.0, hidden_dim=8, **settings)
    expected_ids, expected_scores = run(model, Beam(3))
    request.getfixturevalue("short_stages")
    ids, scores = map(array, compiled(model, Beam(3), under_xla)(tf.constant(SOURCE, tf.int32)))
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("under_xla", [True, False])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=lambda s: type(s).__name__)
def test_each_stage_has_room_for_its_positions(short_stages, strategy, under_xla):
    """That is all that attention reads, and all that the cache of a stage holds."""
    model, sizes = make_model(-9.0), []
    count = strategy.rows_per_beam

    def looking(step):
        def look(tokens, index, cache):
            kept = cache.rows["decoder"]
            slots = {entry.keys.shape[-1] for entry in kept.own}
            slots |= {entry.values.shape[-2] for entry in kept.own}
            if count > 1:
                slots.add(kept.ancestors.shape[1] * count)
            (size,) = slots
            sizes.append(size // count)
            return step(tokens, index, cache)

        return look

    class Looking(type(strategy)):
        def search(self, model, inputs):
            return super().search(dataclasses.replace(model, step=looking(model.step)), inputs)

    if under_xla:
        find = compiled(model, Looking(**vars(strategy)), under_xla, SOURCE.shape)
        find(tf.constant(SOURCE, tf.int32))
    else:  # Where a trace does not know the sizes.
        run(model, Looking(**vars(strategy)), under_xla)
    assert sorted(sizes) == sizes and set(sizes) == ({2, 4, T} if under_xla else {2, 4, 8, T})


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("length", [3, 6])
def test_the_first_stage_is_a_little_longer_than_the_sources(monkeypatch, length):
    """Also where a trace does not know their length: the program has caches of its room."""
    monkeypatch.setattr(xla, "_FIRST", 2)
    monkeypatch.setattr(xla, "_MARGIN", 2)
    model = make_model(1.0)
    source = tf.constant(SENTENCES[:, :length])
    program = compiled(model, Greedy(), True).experimental_get_compiler_ir(source)(stage="hlo")
    cache = model.initial_cache(keras.ops.zeros((1, length, model.config.hidden_dim)), 1, T)
    _, _, _, heads, width = cache[0]["self_attention"].shape
    shape = rf"f32\[{NUM_SENTENCES * heads},{width},(\d+)\]"
    written = re.findall(rf"{shape}\S* dynamic-update-slice", program)
    assert set(map(int, written)) == {length + 2, T}


class WholeBatch(XLAEngine):
    """Runs all sentences to the end, in a loop without stages."""

    def run_with_growing_cache(self, growing, state, inputs):
        loop = growing.loop_of(inputs)
        state = state._replace(cache=growing.grow(state.cache, inputs.max_length))
        return loop.hypotheses(run_until_few(loop, state, 0, inputs.max_length))


@pytest.mark.slow
def test_a_loop_of_its_own_makes_all_the_room_first(short_stages, groups_of_few):
    rooms = []

    class OwnLoop(Greedy):
        def search(self, model, inputs):
            def look(tokens, index, cache):
                rooms.append((len(tokens), cache.rows["decoder"].own[0].keys.shape[-1]))
                return model.step(tokens, index, cache)

            looking = dataclasses.replace(model, step=look, engine=WholeBatch())
            return super().search(looking, inputs)

    model = make_model(1.0)
    expected, _ = run(model, Greedy(), source=SENTENCES)
    ids, _ = run(model, OwnLoop(), source=SENTENCES)
    np.testing.assert_array_equal(ids, expected)
    assert set(rooms) == {(NUM_SENTENCES, T)}
