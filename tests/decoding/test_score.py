import keras
import numpy as np
import pytest
from models_reference import SOURCE, V_TARGET, array, tiny_model
from search_reference import all_sequences, padded

from keras_addnorm.decoding import (
    Beam,
    CoveragePenalty,
    Details,
    Greedy,
    Sample,
    length_penalties,
)
from keras_addnorm.decoding.decoder import SpecialIds

IDS = SpecialIds(pad_id=0, start_id=1, end_id=2)
L = 6
STRATEGIES = {
    "greedy": Greedy(),
    "beam": Beam(4, num_return=3, early_stopping=False),
    "sample": Sample(1.5, top_p=0.9, num_return=2),
}


@pytest.fixture(scope="module")
def model():
    """Two decoder layers, untied and with an end that is likely: rows of several lengths."""
    keras.utils.set_random_seed(1)
    model = tiny_model(num_encoder_layers=1, tie_embeddings=False)
    model.vocabulary_projection.kernel.assign(model.vocabulary_projection.kernel * 2.0)
    bias = np.zeros(V_TARGET)
    bias[IDS.end_id] = 1.5
    model.vocabulary_projection.bias.assign(bias)
    return model


@pytest.fixture(scope="module")
def source():
    """Three sentences and an empty one."""
    return np.pad(SOURCE, ((0, 1), (0, 0)))


@pytest.fixture(scope="module")
def generations(model, source):
    options = {"max_length": L, "jit_compile": False}
    details = Details(layer=0, with_attention=True)
    return {
        name: model.generate(source, strategy, return_details=details, **options)
        for name, strategy in STRATEGIES.items()
    }


def step_by_step(model, source, ids):
    """Log-probabilities `(B, N, T)` and attention of the first layer `(B, N, T, S)`, cached."""
    memory, mask = model.encode(source)
    rows = ids.reshape(-1, L)
    cache = model.initial_cache(memory, len(rows), L)
    log_p, attention, tokens = [], [], np.full(len(rows), IDS.start_id)
    for index in range(L):
        logits, cache, layers = model.decode_step(
            tokens, cache, index, mask, return_attention_scores=True
        )
        logits, tokens = array(logits).astype("float64"), rows[:, index]
        own = np.take_along_axis(logits, tokens[:, None], 1)[:, 0]
        log_p.append(own - np.log(np.exp(logits).sum(-1)))
        attention.append(array(layers[0]["cross_attention"])[:, :, 0].mean(1))
    return (
        np.stack(log_p, 1).reshape(ids.shape),
        np.stack(attention, 1).reshape(*ids.shape, -1),
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_details_are_what_the_model_said_step_by_step(name, model, source, generations):
    found = generations[name]
    assert found.ids.shape == (4, STRATEGIES[name].num_return, L)
    log_p, attention = step_by_step(model, source, found.ids)
    is_token = found.ids != IDS.pad_id
    assert is_token.sum() > 3 * STRATEGIES[name].num_return, "rows of one token only"
    expected = np.where(is_token, log_p, 0.0)
    np.testing.assert_allclose(found.token_log_probabilities, expected, atol=1e-4)
    np.testing.assert_allclose(found.scores[:3], expected[:3].sum(-1), atol=1e-4)
    expected = np.where(is_token[..., None], attention, 0.0)
    np.testing.assert_allclose(found.attention, expected, atol=1e-5)
    expected = np.where(is_token, attention.argmax(-1), -1)
    np.testing.assert_array_equal(found.alignments, expected)


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_empty_sentence_has_no_tokens(name, generations):
    found = generations[name]
    assert found.scores[3].tolist() == [0.0] + [-np.inf] * (STRATEGIES[name].num_return - 1)
    np.testing.assert_array_equal(found.ids[3], IDS.pad_id)
    np.testing.assert_array_equal(found.alignments[3], -1)
    np.testing.assert_array_equal(found.token_log_probabilities[3], 0.0)
    np.testing.assert_array_equal(found.attention[3], 0.0)


def test_score_gives_what_generate_found(model, source, generations):
    found = generations["beam"]
    scores = model.score(source, found.ids, jit_compile=False)
    np.testing.assert_allclose(
        scores.token_log_probabilities, found.token_log_probabilities, atol=1e-5
    )
    np.testing.assert_allclose(scores.log_probabilities[:3], found.scores[:3], atol=1e-4)
    one = model.score(source, found.ids[:, 1], jit_compile=False)
    np.testing.assert_allclose(
        one.token_log_probabilities, scores.token_log_probabilities[:, 1], atol=1e-5
    )
    assert one.log_probabilities.shape == (4,)


@pytest.mark.slow
def test_xla_padding_and_neighbours_change_no_score(model, source, generations):
    ids = generations["beam"].ids
    expected = model.score(source, ids, jit_compile=False)
    longer = model.score(
        np.pad(source, ((0, 1), (0, 13))), np.pad(ids, ((0, 1), (0, 0), (0, 14)))
    ).token_log_probabilities
    assert longer.shape == (5, 3, L + 14)
    np.testing.assert_allclose(longer[:4, :, :L], expected.token_log_probabilities, atol=1e-5)
    np.testing.assert_array_equal(longer[:, :, L:], 0.0)
    np.testing.assert_array_equal(longer[4], 0.0)


def test_nothing_to_score(model):
    none = model.score(np.zeros((0, 3), int), np.zeros((0, 5), int))
    assert (none.token_log_probabilities.shape, none.log_probabilities.shape) == ((0, 5), (0,))
    empty = model.score(np.full((2, 3), 4), np.zeros((2, 0), int))
    np.testing.assert_array_equal(empty.log_probabilities, np.zeros(2))


def test_details_of_nothing(model):
    found = model.generate(np.zeros((0, 3), int), max_length=4, return_details=True)
    assert (found.ids.shape, found.alignments.shape) == ((0, 1, 4), (0, 1, 4))
    found = model.generate(
        np.zeros((1, 0), int), max_length=4, return_details=True, jit_compile=False
    )
    assert found.alignments.tolist() == [[[-1] * 4]]
    assert found.attention is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (np.full((2, 4), 5), r"do not go with the source.*batch of 3. Received: \(2, 4\)"),
        (np.full(3, 5), r"Received: \(3,\)"),
        (np.full((3, 4), 5.0), "Target ids have to be integers"),
        (np.full((3, 4), V_TARGET), f"A target id lies outside.*0 <= id < {V_TARGET}"),
        ([[1, 5, 6]] * 3, "hold the start token.*Leave the first column out"),
    ],
)
def test_bad_targets_are_named(target, message, model):
    with pytest.raises(ValueError, match=message):
        model.score(SOURCE, target)


# Coverage


def test_the_term_is_equation_14():
    attention = np.array([[0.5, 2.0, 1.0, 0.1], [0.0, 0.9, 0.0, 0.0]])
    mask = np.array([[True, True, True, False], [True, True, False, False]])
    expected = 0.3 * np.array([np.log(0.5), np.log(1e-9) + np.log(0.9)])
    np.testing.assert_allclose(CoveragePenalty(0.3).term(attention, mask), expected, rtol=1e-5)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    ("strategy", "layer"),
    [
        (Greedy(0.6, CoveragePenalty(0.7, 0)), 0),
        (Beam(4, 0.6, 3, coverage_penalty=0.7), -1),
        (Sample(num_return=2, length_penalty=0.6, coverage_penalty=CoveragePenalty(0.7, 0)), 0),
    ],
    ids=["greedy", "beam", "sample"],
)
def test_scores_hold_the_coverage_of_the_whole_output(strategy, layer, model, source):
    found = model.generate(
        source,
        strategy,
        max_length=L,
        return_details=Details(layer, with_attention=True),
        jit_compile=False,
    )
    is_real = source[:3, None] != 0
    read = np.minimum(found.attention[:3].sum(2), 1.0)
    term = 0.7 * np.where(is_real, np.log(np.where(is_real, read, 1.0)), 0.0).sum(-1)
    lengths = (found.ids[:3] != 0).sum(-1)
    sums = found.token_log_probabilities[:3].sum(-1)
    expected = sums / ((5 + lengths) / 6) ** 0.6 + term
    np.testing.assert_allclose(found.scores[:3], expected, atol=1e-4)
    assert len(set(lengths.flat)) > 1
    assert found.scores[3, 0] == 0.0


def test_a_wide_beam_finds_the_best_coverage_and_probability_of_all():
    model = tiny_model(target_vocabulary_size=5, num_encoder_layers=1, num_decoder_layers=1)
    sequences = np.array([padded(s, 3, IDS) for s in all_sequences(3, IDS, 5)])
    every = np.tile(sequences, (3, 1, 1))
    expected = model.score(SOURCE, every, jit_compile=False).log_probabilities
    expected += 4.0 * coverage_of(model, every)
    order = np.argsort(-expected, axis=1)[:, :2]
    strategy = Beam(25, coverage_penalty=4.0, num_return=2)
    ids, scores = model.generate(SOURCE, strategy, max_length=3, jit_compile=False)
    np.testing.assert_array_equal(ids, sequences[order])
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), atol=1e-4)


def coverage_of(model, targets):
    """Equation 14's sum, from a pass over whole outputs, `(B, N)`."""
    batch_size, number, length = targets.shape
    memory, mask = (np.repeat(array(t), number, axis=0) for t in model.encode(SOURCE))
    rows = targets.reshape(-1, length)
    inputs = np.hstack([np.full((len(rows), 1), IDS.start_id), rows[:, :-1]])
    _, layers = model.decode_sequence(inputs, memory, mask, return_attention_scores=True)
    attention = array(layers[-1]["cross_attention"]).mean(1) * (rows != IDS.pad_id)[..., None]
    read = np.where(mask, np.minimum(attention.sum(1), 1.0), 1.0)
    return np.log(read).sum(-1).reshape(batch_size, number)


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        (None, None),
        (0.0, None),
        (0.2, CoveragePenalty(0.2)),
        ({"beta": 1, "layer": 0}, CoveragePenalty(1, 0)),
        (CoveragePenalty(3.0), CoveragePenalty(3.0)),
    ],
)
def test_a_coverage_penalty_is_a_number_or_an_object(identifier, expected):
    assert length_penalties.get_coverage(identifier) == expected


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        (-0.2, "has to be above 0 and at most 1000. Received: beta=-0.2"),
        (1e6, "beta=1000000.0"),
        (1e39, "beta=1e[+]39"),
        (float("nan"), "beta=nan"),
        ({"layer": 1}, "coverage penalty.*Missing: beta.*{'layer': 1}"),
        ("gnmt", "coverage penalty.*Received: 'gnmt'"),
    ],
)
def test_what_is_no_coverage_penalty(identifier, message):
    with pytest.raises(ValueError, match=message):
        length_penalties.get_coverage(identifier)


def test_a_layer_that_cannot_be_asked_is_named(model):
    for options in (
        {"return_details": Details(layer=2)},
        {"strategy": Greedy(coverage_penalty=CoveragePenalty(0.1, -3))},
    ):
        with pytest.raises(ValueError, match=r"no such decoder layer. Expected -2 <= layer < 2"):
            model.generate(SOURCE, **options)
    pruned = tiny_model(pruned_sublayers=("decoder/1/cross_attention",))
    with pytest.raises(ValueError, match=r"its cross-attention was pruned.*Received: -1"):
        pruned.generate(SOURCE, return_details=True)
    first = Details(layer=0)
    assert pruned.generate(SOURCE, max_length=2, return_details=first, jit_compile=False)
