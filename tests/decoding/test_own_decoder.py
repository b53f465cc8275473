"""Decoders of one's own: any object with `encode`, `initial_cache` and `decode_step`."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from search_reference import all_sequences, padded, penalty

from keras_addnorm.decoding import (
    Beam,
    Decoder,
    DiverseBeam,
    Greedy,
    MinLength,
    Sample,
    decode,
    generate,
)
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.engine import engine_for
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.search import Search
from keras_addnorm.layers import PositionalEmbedding, TransformerDecoder

IDS = SpecialIds()
V, L, WIDTH = 6, 4, 5
SOURCE = np.array([[3, 4, 2], [5, 2, 0], [4, 3, 5]], "int32")
RANDOM = np.random.default_rng(11)


class Recurrent:
    """A plain Python object: a recurrent network that reads a bag of source tokens at each step.

    No Keras model, no config and no variables. Its state is a tuple in a dict, and nothing in it
    has the shape of a KV cache.
    """

    def __init__(self, scale=1.5):
        self.table = RANDOM.normal(scale=scale, size=(V, WIDTH)).astype("float32")
        self.recurrent = RANDOM.normal(scale=0.7, size=(WIDTH, WIDTH)).astype("float32")
        self.output = RANDOM.normal(scale=scale, size=(WIDTH, V)).astype("float32")

    def encode(self, source_ids):
        mask = ops.not_equal(source_ids, 0)
        return ops.take(ops.convert_to_tensor(self.table), source_ids, axis=0), mask

    def initial_cache(self, memory, batch_size, max_length):
        state = ops.zeros((batch_size, WIDTH), dtype="float32")
        return {"state": (state, state + 1.0), "memory": memory}

    def decode_step(self, token_ids, cache, index, memory_padding_mask):
        memory, (state, count) = cache["memory"], cache["state"]
        x = ops.take(ops.convert_to_tensor(self.table), token_ids, axis=0)
        weight = ops.cast(memory_padding_mask, "float32")
        bag = ops.sum(memory * ops.expand_dims(weight, -1), axis=1)  # (N, S, K) -> (N, K)
        state = ops.tanh(ops.matmul(state, self.recurrent) + x + bag / count)
        cache = {"state": (state, count + 1.0), "memory": memory}
        return ops.matmul(state, ops.convert_to_tensor(self.output)), cache

    def log_p(self, source, sequence):
        """The sum of log-probabilities of one sequence, in NumPy."""
        state, token, total = np.zeros(WIDTH), IDS.start_id, 0.0
        bag = self.table[source[source != 0]].sum(0)
        for index, following in enumerate(sequence):
            state = np.tanh(state @ self.recurrent + self.table[token] + bag / (index + 1))
            logits = state @ self.output
            total += logits[following] - np.log(np.exp(logits).sum())
            token = following
        return total


@pytest.fixture(scope="module")
def decoder():
    return Recurrent()


def test_it_is_a_decoder(decoder):
    assert isinstance(decoder, Decoder)
    assert not isinstance(keras.layers.Dense(3), Decoder)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(decoder, jit_compile, alpha):
    ids, scores = generate(
        decoder,
        SOURCE,
        num_beams=V**2,
        length_penalty=alpha,
        max_length=L,
        jit_compile=jit_compile,
    )
    sequences = list(all_sequences(L, IDS, V))
    for row, score, source in zip(ids, scores, SOURCE, strict=True):
        found = [(decoder.log_p(source, s) / penalty(len(s), alpha), s) for s in sequences]
        best_score, best = max(found)
        assert row.tolist() == padded(best, L, IDS)
        assert score == pytest.approx(best_score, abs=1e-4)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_greedy_search_takes_the_most_probable_token(decoder, jit_compile):
    ids, scores = generate(decoder, SOURCE, max_length=L, jit_compile=jit_compile)
    for row, score, source in zip(ids, scores, SOURCE, strict=True):
        sequence = []
        while len(sequence) < L and IDS.end_id not in sequence:
            nexts = range(IDS.end_id, V)
            sequence.append(max(nexts, key=lambda t: decoder.log_p(source, [*sequence, t])))
        assert row.tolist() == padded(sequence, L, IDS)
        assert score == pytest.approx(decoder.log_p(source, sequence), abs=1e-4)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("strategy", [Beam(3), DiverseBeam(4, 2), Sample(seed=3, num_return=2)])
def test_engines_and_batches_agree(decoder, strategy):
    options = {"strategy": strategy, "max_length": L}
    expected = generate(decoder, SOURCE, **options)
    others = [generate(decoder, SOURCE, jit_compile=False, **options)]
    alone = [generate(decoder, SOURCE[i : i + 1], **options) for i in range(3)]
    others.append([np.concatenate(parts) for parts in zip(*alone, strict=True)])
    for ids, scores in others:
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("under_xla", [True, False])
def test_it_is_traced_with_unknown_sizes(decoder, under_xla):
    search = Search(Beam(3, 0.6), max_length=L)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        jit_compile=under_xla,
        autograph=False,
    )
    def find(source):
        return run_search(decoder, source, search, engine_for(under_xla)).ids

    expected, _ = decode(
        decoder, ops.convert_to_tensor(SOURCE), strategy=Beam(3, 0.6), max_length=L
    )
    np.testing.assert_array_equal(find(SOURCE)[:, 0], expected)


def test_its_special_ids_are_arguments(decoder):
    """With another end, a sequence ends elsewhere."""
    ids, _ = generate(decoder, SOURCE, max_length=L, end_id=5, start_id=1)
    search, source = Search(Greedy(), max_length=L), ops.convert_to_tensor(SOURCE)
    found = run_search(decoder, source, search, engine_for(), SpecialIds(end_id=5))
    np.testing.assert_array_equal(ids, found.ids[:, 0])
    for row in ids.tolist():
        own = row[: row.index(5) + 1] if 5 in row else row
        assert row == [*own, *[0] * (L - len(own))]


def test_what_is_missing_is_named(decoder):
    with pytest.raises(ValueError, match="Expected max_length, for a decoder without a config"):
        generate(decoder, SOURCE)
    with pytest.raises(ValueError, match=r"method decode_sequence\. Received: a Recurrent"):
        generate(decoder, SOURCE, max_length=L, return_details=True)
    with pytest.raises(ValueError, match="Source ids need two axes"):
        generate(decoder, SOURCE[0], max_length=L)


class Characters:
    """Decoder-only, of our layers, as somebody would write it in a few lines."""

    def __init__(self, attention=None):
        self.embedding = PositionalEmbedding(V, 8, mask_zero=False)
        self.decoder = TransformerDecoder(
            2, num_heads=2, intermediate_dim=16, scheme="pre_ln", attention=attention
        )
        self.decoder.build((None, None, 8))

    def encode(self, source_ids):
        return None, None

    def initial_cache(self, memory, batch_size, max_length):
        return self.decoder.initial_cache(batch_size, max_length)

    def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
        x = self.embedding(ops.expand_dims(token_ids, 1), start_index=index)
        x, cache = self.decoder(x, cache=cache, cache_update_index=index)
        return self.embedding(x, reverse=True)[:, 0], cache

    def logits(self, ids):
        return self.embedding(self.decoder(self.embedding(ids)), reverse=True)


@pytest.fixture(scope="module")
def characters():
    keras.utils.set_random_seed(6)
    model = Characters()
    # A table of larger numbers, so that sequences differ.
    model.embedding.embeddings.assign(model.embedding.embeddings * 3.0)
    return model


PREFIX = np.array([[3, 4], [5, 0], [4, 4]])


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_decoder_only_model_goes_on_with_a_prefix(characters, jit_compile):
    ids, scores = generate(
        characters, target_prefix=PREFIX, num_beams=3, max_length=6, jit_compile=jit_compile
    )
    for row, score, prefix in zip(ids, scores, PREFIX, strict=True):
        given = prefix[prefix != 0].tolist()
        own = row[row != 0].tolist()
        assert own[: len(given)] == given
        logits = ops.convert_to_numpy(characters.logits(np.array([[IDS.start_id, *own[:-1]]])))
        log_p = logits[0] - np.log(np.exp(logits[0]).sum(-1, keepdims=True))
        assert score == pytest.approx(log_p[np.arange(len(own)), own].sum(), abs=1e-4)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_wide_beam_of_a_decoder_only_model_is_exhaustive(characters, jit_compile):
    given = [3, 4]
    ids, scores = generate(
        characters, target_prefix=[given], num_beams=16, max_length=4, jit_compile=jit_compile
    )
    words = range(3, V)
    ends = [(IDS.end_id,), *((w, IDS.end_id) for w in words), *itertools.product(words, repeat=2)]
    table = np.array([padded([*given, *end], 4, IDS) for end in ends])
    inputs = np.hstack([np.full((len(table), 1), IDS.start_id), table[:, :-1]])
    logits = ops.convert_to_numpy(characters.logits(inputs))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    own = np.take_along_axis(log_p, table[..., None], -1)[..., 0] * (table != 0)
    best = own.sum(-1).argmax()
    np.testing.assert_array_equal(ids[0], table[best])
    assert scores[0] == pytest.approx(own.sum(-1)[best], abs=1e-4)


class Wrapped:
    """Hides a decoder behind functions, where no engine finds its layers."""

    def __init__(self, inner):
        self.encode = lambda source: inner.encode(source)
        self.initial_cache = lambda *arguments: inner.initial_cache(*arguments)
        self.decode_step = lambda *arguments: inner.decode_step(*arguments)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3), DiverseBeam(4, 2)], ids=str)
def test_caches_that_no_engine_knows_are_reordered_row_by_row(characters, jit_compile, strategy):
    options = {"target_prefix": PREFIX, "max_length": 6, "strategy": strategy}
    expected = generate(characters, **options)
    found = generate(Wrapped(characters), jit_compile=jit_compile, **options)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)


class Mixed(Characters):
    """Keeps something of its own besides: how often each token has been written."""

    def initial_cache(self, memory, batch_size, max_length):
        counts = ops.zeros((batch_size, V), dtype="float32")
        return super().initial_cache(memory, batch_size, max_length), counts

    def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
        layers, counts = cache
        counts = counts + ops.one_hot(token_ids, V)
        logits, layers = super().decode_step(token_ids, layers, index)
        return logits - 2.0 * counts, (layers, counts)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_cache_of_ones_own_beside_ours_follows_its_hypotheses(jit_compile):
    keras.utils.set_random_seed(6)
    model = Mixed()
    ids, scores = generate(model, SOURCE, num_beams=3, max_length=5, jit_compile=jit_compile)
    expected = generate(Wrapped(model), SOURCE, num_beams=3, max_length=5)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-4)
    assert len({tuple(row) for row in ids.tolist()}) == 1  # It looks at no source.


class OwnStack(TransformerDecoder):
    """A subclass, which no engine replaces."""


class Forgetful(Characters):
    """Never looks at the first position again: a mask of its own positions."""

    def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
        length = cache[0]["self_attention"].shape[2]
        is_seen = ops.logical_or(ops.arange(length) > 0, ops.equal(index, 0))
        x = self.embedding(ops.expand_dims(token_ids, 1), start_index=index)
        x, cache = self.decoder(
            x,
            attention_mask=ops.expand_dims(is_seen, 0),
            cache=cache,
            cache_update_index=index,
        )
        return self.embedding(x, reverse=True)[:, 0], cache


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_mask_of_the_decoders_own_positions_needs_a_subclass(jit_compile):
    keras.utils.set_random_seed(6)
    model = Forgetful()
    stack = OwnStack(num_layers=2, num_heads=2, intermediate_dim=16, scheme="pre_ln")
    stack.build((None, None, 8))
    stack.set_weights(model.decoder.get_weights())
    options = {"num_beams": 3, "max_length": 5, "jit_compile": jit_compile}
    options["constraints"] = [MinLength(4)]
    own, free = Forgetful(), Characters()
    own.embedding, free.embedding = model.embedding, model.embedding
    own.decoder, free.decoder = stack, stack
    ids, scores = generate(own, SOURCE, **options)
    expected = generate(Wrapped(own), SOURCE, **options)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-4)
    assert (scores != generate(free, SOURCE, **options)[1]).all()


class Masked(Characters):
    """Passes a mask to a stack that is shared."""

    def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
        x = self.embedding(ops.expand_dims(token_ids, 1), start_index=index)
        mask = ops.ones((1, 1), dtype="bool")
        return self.decoder(x, attention_mask=mask, cache=cache, cache_update_index=index)


def test_a_mask_that_a_shared_cache_cannot_have_is_named():
    with pytest.raises(ValueError, match="or use a subclass of TransformerDecoder"):
        decode(Masked(), ops.convert_to_tensor(SOURCE), max_length=4)


def test_compiled_searches_read_the_weights_of_today():
    keras.utils.set_random_seed(6)
    model = Characters()
    before, _ = generate(model, SOURCE, max_length=6)
    table = model.embedding.embeddings
    table.assign(-ops.convert_to_tensor(table))
    after, _ = generate(model, SOURCE, max_length=6)
    fresh, _ = decode(model, ops.convert_to_tensor(SOURCE), max_length=6)
    assert (before != after).any()
    np.testing.assert_array_equal(after, fresh)
