import keras
import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from models_reference import SCHEMES, SOURCE, V_SOURCE, V_TARGET, array, tiny_model
from search_reference import all_sequences, padded, penalty

from keras_addnorm.decoding import Beam, Greedy, decode
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.engine import XLAEngine
from keras_addnorm.decoding.search_inputs import SearchResult

IDS = SpecialIds(pad_id=0, start_id=1, end_id=2)
L = 6


@pytest.fixture(scope="module")
def model():
    """One layer a side, untied and with an end that is likely, so that rows end at all lengths."""
    keras.utils.set_random_seed(5)
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1, tie_embeddings=False)
    model.vocabulary_projection.kernel.assign(model.vocabulary_projection.kernel * 2.0)
    bias = np.zeros(V_TARGET)
    bias[IDS.end_id] = 1.5
    model.vocabulary_projection.bias.assign(bias)
    return model


def run(model, source, **options):
    ids, scores = decode(model, keras.ops.convert_to_tensor(source, "int32"), **options)
    return array(ids), array(scores)


def log_p_of_the_full_pass(model, source, sequences):
    """Teacher-forced sums of log-probabilities, without any cache. Padding counts nothing."""
    sequences = np.asarray(sequences)
    start = np.full((len(sequences), 1), IDS.start_id)
    logits = array(model({"source": source, "target": np.hstack([start, sequences])[:, :-1]}))
    logits = logits.astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    own = np.take_along_axis(log_p, sequences[..., None], -1)[..., 0]
    return (own * (sequences != IDS.pad_id)).sum(-1)


def check_rows(ids):
    for row in ids.tolist():
        own = [t for t in row if t != IDS.pad_id]
        assert row == padded(own, len(row), IDS)
        assert IDS.end_id not in own[:-1]
        assert len(own) == len(row) or own[-1] == IDS.end_id


# Each scheme is searched in one of two ways; those with operations of their own in both.
SEARCHES = [
    *covering(SCHEMES, (1, 3), strength=1),
    *(("keel", 3), ("orthogonal", 3), ("gpas", 3), ("hybrid_norm", 1)),
]


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(("scheme", "num_beams"), SEARCHES)
def test_scores_are_those_of_the_full_pass(scheme, num_beams):
    model = tiny_model(scheme=scheme, num_encoder_layers=1)
    ids, scores = run(model, SOURCE, num_beams=num_beams, length_penalty=0.6, max_length=L)
    check_rows(ids)
    lengths = (ids != 0).sum(-1)
    expected = log_p_of_the_full_pass(model, SOURCE, ids) / penalty(lengths, 0.6)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_greedy_search_is_the_argmax_of_the_full_pass(positions):
    model = tiny_model(num_encoder_layers=1, positions=positions, max_length=8)
    ids, _ = run(model, SOURCE, max_length=8)
    target = np.full((3, 1), IDS.start_id)
    for t in range(8):
        logits = array(model({"source": SOURCE, "target": target}))[:, -1]
        logits[:, [IDS.pad_id, IDS.start_id]] = -np.inf
        is_done = (target[:, 1:] == IDS.end_id).any(-1)
        best = np.where(is_done, IDS.pad_id, logits.argmax(-1))
        np.testing.assert_array_equal(ids[:, t], best)
        # After its end a row reads what greedy search never reads; it is compared no more.
        target = np.hstack([target, best[:, None]])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha):
    model = tiny_model(target_vocabulary_size=5, num_encoder_layers=1, num_decoder_layers=1)
    length = 3
    found, scores = run(model, SOURCE, num_beams=5**2, length_penalty=alpha, max_length=length)
    sequences = list(all_sequences(length, IDS, 5))
    table = np.array([padded(s, length, IDS) for s in sequences])
    lengths = np.array([len(s) for s in sequences])
    for i, source in enumerate(SOURCE):
        sums = log_p_of_the_full_pass(model, np.tile(source, (len(table), 1)), table)
        expected = sums / penalty(lengths, alpha)
        np.testing.assert_array_equal(found[i], table[expected.argmax()])
        assert scores[i] == pytest.approx(expected.max(), abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_of_one_is_greedy_search(alpha, model):
    greedy, greedy_scores = run(model, SOURCE, strategy=Greedy(alpha), max_length=L)
    beam, beam_scores = run(model, SOURCE, strategy=Beam(1, alpha), max_length=L)
    np.testing.assert_array_equal(beam, greedy)
    np.testing.assert_allclose(beam_scores, greedy_scores, rtol=1e-6)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_batch_padding_and_neighbours_change_nothing(num_beams, model):
    options = {"num_beams": num_beams, "length_penalty": 0.6, "max_length": L}
    ids, scores = run(model, SOURCE, **options)
    assert len(set((ids != 0).sum(-1))) > 1, "rows of one length: the test would show little"
    longer, longer_scores = run(model, np.pad(SOURCE, ((0, 2), (0, 5))), **options)
    np.testing.assert_array_equal(longer[:3], ids)
    np.testing.assert_allclose(longer_scores[:3], scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(longer[3:], 0)
    np.testing.assert_array_equal(longer_scores[3:], 0.0)
    for i in range(3):
        alone, score = run(model, SOURCE[i : i + 1], **options)
        np.testing.assert_array_equal(alone[0], ids[i])
        np.testing.assert_allclose(score, scores[i : i + 1], rtol=1e-5, atol=1e-6)


def test_a_longer_limit_changes_only_rows_that_had_not_ended(model):
    short, short_scores = run(model, SOURCE, max_length=3)
    long, long_scores = run(model, SOURCE, max_length=9)
    ended = (short == IDS.end_id).any(-1)
    assert 0 < ended.sum() < 3
    np.testing.assert_array_equal(long[ended, :3], short[ended])
    np.testing.assert_array_equal(long_scores[ended], short_scores[ended])
    np.testing.assert_array_equal(long[~ended, :3], short[~ended])
    assert (long_scores[~ended] < short_scores[~ended]).all()


# Compiled


@pytest.fixture(scope="module")
def generated(model):
    """Results of `generate` with XLA: (num_beams) -> (ids, scores)."""
    options = {"length_penalty": 0.6, "max_length": L}
    return {n: model.generate(SOURCE, num_beams=n, **options) for n in (1, 3)}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_xla_graph_and_eager_give_the_same(num_beams, model, generated):
    options = {"num_beams": num_beams, "length_penalty": 0.6, "max_length": L}
    ids, scores = generated[num_beams]
    assert (ids.dtype, scores.dtype) == ("int32", "float32")
    assert (ids.shape, scores.shape) == ((3, L), (3,))
    for other_ids, other_scores in (
        run(model, SOURCE, **options),
        model.generate(SOURCE, jit_compile=False, **options),
    ):
        np.testing.assert_array_equal(ids, other_ids)
        np.testing.assert_allclose(scores, other_scores, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_decode_can_be_traced_with_unknown_sizes(model, generated):
    function = tf.function(
        lambda ids: decode(model, ids, num_beams=3, length_penalty=0.6, max_length=L),
        input_signature=[tf.TensorSpec((None, None), tf.int32)],
    )
    for source in (SOURCE, np.pad(SOURCE, ((0, 1), (0, 3)))):
        ids, scores = function(source.astype("int32"))
        assert ids.shape == (len(source), L)
        np.testing.assert_array_equal(ids[:3], generated[3][0])
        np.testing.assert_allclose(scores[:3], generated[3][1], rtol=1e-5, atol=1e-5)


def test_few_shapes_are_compiled_for_many_requests(monkeypatch, model):
    monkeypatch.setitem(vars(model), "_compiled_decoders", {})
    compiled = []

    def compile_function(engine, function, inputs, decoder):
        compiled.append(inputs[0].shape)
        return lambda ids, prefix, seed: SearchResult(
            np.zeros((len(ids), 1, 3), "int32"), np.zeros((len(ids), 1), "float32"), np.array(3)
        )

    monkeypatch.setattr(XLAEngine, "compile", compile_function)
    for batch_size in range(1, 17):
        for length in range(1, 33):
            ids, scores = model.generate(np.full((batch_size, length), 3), max_length=3)
            assert (ids.shape, scores.shape) == ((batch_size, 3), (batch_size,))
    # 1, 2, 4, 8, 16 rows, each of 16 or 32 tokens
    assert sorted(compiled) == [(n, t) for n in (1, 2, 4, 8, 16) for t in (16, 32)]
    assert len(vars(model)["_compiled_decoders"]) == 10


def test_a_compiled_decoder_reads_the_weights_of_today(model, generated):
    kernel = model.vocabulary_projection.kernel
    before = array(kernel)
    kernel.assign(-before)
    changed, _ = model.generate(SOURCE, num_beams=3, length_penalty=0.6, max_length=L)
    kernel.assign(before)
    again, _ = model.generate(SOURCE, num_beams=3, length_penalty=0.6, max_length=L)
    assert (changed != generated[3][0]).any()
    np.testing.assert_array_equal(again, generated[3][0])


def test_a_model_with_compiled_decoders_is_saved_without_them(model, generated, tmp_path):
    assert vars(model)["_compiled_decoders"]
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    assert "_compiled_decoders" not in vars(reloaded)
    ids, _ = run(reloaded, SOURCE, num_beams=3, length_penalty=0.6, max_length=L)
    np.testing.assert_array_equal(ids, generated[3][0])


def test_max_length_is_the_configs_unless_given(model, monkeypatch):
    monkeypatch.setitem(vars(model), "_compiled_decoders", {})
    ids, scores = model.generate(np.zeros((0, 4), int))
    assert (ids.shape, scores.shape) == ((0, model.config.max_length), (0,))
    assert model.generate(np.zeros((0, 4), int), max_length=5)[0].shape == (0, 5)


def test_learned_positions_leave_room_for_the_whole_source():
    """Sources are padded to a multiple of 16, but never past the table of positions."""
    model = tiny_model(
        num_encoder_layers=1, num_decoder_layers=1, positions="learned", max_length=9
    )
    source = np.pad(SOURCE, ((0, 0), (2, 0)), constant_values=5)
    assert source.shape == (3, 9)
    ids, scores = model.generate(source, jit_compile=False)
    expected, expected_scores = run(model, source, max_length=9)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"Expected at most 9 positions. Received: 10"):
        model.generate(np.full((1, 10), 3))
    with pytest.raises(ValueError, match=r"cannot generate past them. Expected max_length <= 9"):
        model.generate(source, max_length=10)


def test_sources_of_no_length(model):
    ids, scores = model.generate(np.zeros((2, 0), int), max_length=3, jit_compile=False)
    np.testing.assert_array_equal(ids, np.zeros((2, 3)))
    np.testing.assert_array_equal(scores, np.zeros(2))


@pytest.mark.parametrize(
    "source",
    [SOURCE.tolist(), SOURCE.astype("uint8"), tf.constant(SOURCE)],
    ids=["list", "uint8", "tensor"],
)
def test_ids_may_come_as_any_integers(source, model, generated):
    ids, _ = model.generate(source, num_beams=3, length_penalty=0.6, max_length=L)
    np.testing.assert_array_equal(ids, generated[3][0])


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (SOURCE[0], {}, r"need two axes.*Received: \(7,\).*ids\[None\]"),
        (SOURCE[None], {}, "need two axes"),
        (["A dog."], {}, "have to be integers.*decoding.translate"),
        (SOURCE.astype("float32"), {}, "have to be integers.*Received: float32"),
        (np.array([["ein", "Haus"]]), {}, "have to be integers.*decoding.translate"),
        (np.array([[3, V_SOURCE]]), {}, r"Expected 0 <= id < 13. Received: ids from 3 to 13"),
        (np.array([[-1, 3]]), {}, "outside the vocabulary.*from -1 to 3"),
        (SOURCE, {"num_beams": 0}, "needs hypotheses. Expected an int num_beams >= 1. Received: 0"),
        (SOURCE, {"num_beams": -3}, "Expected an int num_beams >= 1. Received: -3"),
        (SOURCE, {"max_length": 0}, "Expected an int max_length >= 1. Received: 0"),
    ],
)
def test_bad_requests_are_named(source, options, message, model):
    with pytest.raises(ValueError, match=message):
        model.generate(source, **options)
