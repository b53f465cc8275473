"""A beam over a trained model of low loss: its answer is the best that a beam of its width sees."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_addnorm.decoding import AveragePenalty, Beam, Greedy
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

V, S, T, K = 23, 6, 16, 4
PAD, START, END = 0, 1, 2
PENALTIES = {
    0.0: lambda n: n**0,
    0.6: lambda n: ((5 + n) / 6) ** 0.6,
    AveragePenalty(): lambda n: n,
}


def pairs(count, seed):
    """Each word of a source has a phrase of one to three words, the same in every sentence."""
    words = np.random.default_rng(4)
    phrases = [words.integers(3, V, words.integers(1, 4)) for _ in range(V)]
    generator = np.random.default_rng(seed)
    source, target = np.zeros((count, S), int), np.zeros((count, T), int)
    for row, output in zip(source, target, strict=True):
        sentence = generator.integers(3, V, generator.integers(1, S))
        translation = [word for one in sentence for word in phrases[one]]
        row[: len(sentence) + 1] = [*sentence, END]
        output[: len(translation) + 1] = [*translation, END]
    return source, target


def after_start(target):
    return np.hstack([np.full((len(target), 1), START), target[:, :-1]])


@pytest.fixture(scope="module")
def model():
    """Trained for some seconds."""
    keras.utils.set_random_seed(11)
    sizes = {"hidden_dim": 32, "intermediate_dim": 64, "num_heads": 2, "max_length": T}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Seq2SeqTransformer(Seq2SeqConfig(V, V, **layers, **sizes, dropout=0.0, scheme="pre_ln"))

    def loss(y, logits):
        losses = ops.sparse_categorical_crossentropy(y, logits, from_logits=True)
        is_token = ops.cast(y != PAD, "float32")
        return ops.sum(losses * is_token) / ops.sum(is_token)

    source, target = pairs(4096, seed=1)
    model.compile(keras.optimizers.Adam(0.005), loss=loss)
    inputs = {"source": source, "target": after_start(target)}
    history = model.fit(inputs, target, batch_size=64, epochs=6, verbose=0)
    assert history.history["loss"][-1] < 0.1
    return model


def best_seen(model, source, divisors):
    """The best scores that a beam in plain NumPy sees, which runs the whole model at each step.

    Returns one list a divisor: the scores of all sentences.
    """
    size = len(source)
    repeated = np.repeat(source, K, axis=0)
    alive = np.zeros((size, K, T), int)
    sums = np.where(np.arange(K) == 0, 0.0, -1e9) * np.ones((size, 1))
    seen = [np.full(size, -np.inf) for _ in divisors]
    for index in range(T):
        inputs = {"source": repeated, "target": after_start(alive.reshape(-1, T))}
        logits = ops.convert_to_numpy(model(inputs))[:, index].astype("float64")
        log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        log_p[:, [PAD, START]] = -1e9
        total = (sums[..., None] + log_p.reshape(size, K, V)).reshape(size, -1)
        best = np.argsort(-total, axis=1, kind="stable")[:, : 2 * K]
        total = np.take_along_axis(total, best, 1)
        origin, token = np.divmod(best, V)
        is_end = token == END
        kept = np.argsort(is_end, axis=1, kind="stable")[:, :K]
        for scores, divisor in zip(seen, divisors, strict=True):
            ended = np.where(is_end, total, -np.inf)[:, :K].max(1) / divisor(index + 1)
            np.maximum(scores, ended, out=scores)
        alive = np.take_along_axis(alive, np.take_along_axis(origin, kept, 1)[..., None], 1)
        alive[..., index] = np.take_along_axis(token, kept, 1)
        sums = np.where(
            np.take_along_axis(is_end, kept, 1), -1e9, np.take_along_axis(total, kept, 1)
        )
    return [
        np.maximum(scores, sums.max(1) / divisor(T))
        for scores, divisor in zip(seen, divisors, strict=True)
    ]


@pytest.mark.slow
def test_a_beam_finds_the_best_that_it_sees_and_greedy_search_no_better(model):
    source, _ = pairs(200, seed=2)

    def search(strategy):
        return model.generate(source, strategy, max_length=T, jit_compile=False)

    ids, sums = search(Greedy())
    lengths = (ids != PAD).sum(-1)
    expected = best_seen(model, source, PENALTIES.values())
    for (penalty, divisor), best in zip(PENALTIES.items(), expected, strict=True):
        _, scores = search(Beam(K, penalty))
        np.testing.assert_allclose(scores, best, atol=1e-4)
        # No output of greedy search is dropped by the beam here.
        assert (scores >= sums / divisor(lengths) - 1e-4).all()
    # Else this would show nothing: as many as K junk ends come before the one good end.
    _, scores = search(Beam(K, early_stopping=True))
    assert (scores < sums - 0.1).any()
