"""The examples with our layers run, learn something, and are of the size that they say."""

import re

import numpy as np
import pytest


@pytest.fixture
def run_smoke(load_example, capsys):
    """Runs an example as `--smoke` does; returns its module, its result and what it printed."""

    def run(name):
        with load_example(name) as module:
            result = module.main(smoke=True)
        return module, result, capsys.readouterr().out

    return run


def printed_parameters(text):
    return [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) parameters", text)]


def encoder_size(hidden_dim, intermediate_dim):
    """Weights of a Pre-LN encoder layer: four projections, the feed-forward, two norms."""
    d, f = hidden_dim, intermediate_dim
    return 4 * (d * d + d) + (d * f + f) + (f * d + d) + 2 * 2 * d


@pytest.mark.slow
def test_the_classifier_sees_what_a_bag_of_words_cannot(run_smoke):
    module, results, _ = run_smoke("sentence_classifier")
    transformer, words = results["transformer"], results["bag_of_words"]
    chance = 1 / len(module.ANSWERS)
    assert words.accuracy > chance + 0.1 and transformer.accuracy > chance + 0.1

    vocabulary_size = words.model.layers[1].input_dim
    assert transformer.model.count_params() == (
        vocabulary_size * 32 + 2 * encoder_size(32, 64) + 2 * 32 + 33 * len(module.ANSWERS)
    )
    # Padding is no word.
    ids = np.array([[3, 5, 7, 2]])
    for model in (transformer.model, words.model):
        padded = model(np.pad(ids, ((0, 0), (0, 3))))
        np.testing.assert_allclose(padded, model(ids), rtol=1e-4, atol=1e-5)
    # The order of the words is what only one of them sees.
    assert np.abs(words.model(ids[:, ::-1]) - words.model(ids)).max() < 1e-5
    assert np.abs(transformer.model(ids[:, ::-1]) - transformer.model(ids)).max() > 1e-2


def test_the_journeys_are_answered_by_where_they_end(load_example):
    with load_example("sentence_classifier") as module:
        journeys = module.make_data(50)
        assert len(journeys) == 50
        for sentence, answer in journeys:
            destination = re.search(r"\bto ([A-Z]\w+)", sentence)[1]
            assert destination in module.CONTINENTS[module.ANSWERS[answer]]


@pytest.mark.slow
def test_the_forecaster_learns_and_does_not_look_ahead(run_smoke):
    module, result, text = run_smoke("time_series_forecaster")
    expected = 3 * 32 + 2 * encoder_size(32, 64) + 2 * 32 + 33 * module.DAY
    assert printed_parameters(text) == [expected] == [result.model.count_params()]
    assert result.errors["transformer"] < result.errors["last value"]

    window = np.random.default_rng(3).normal(size=(2, 11, 2)).astype("float32")
    changed = window.copy()
    changed[:, 7:] += 5
    before, after = result.model(window), result.model(changed)
    np.testing.assert_allclose(after[:, :7], before[:, :7], rtol=1e-4, atol=1e-5)
    assert np.abs(after[:, 7] - before[:, 7]).max() > 1e-2


def test_the_simple_forecasts_are_what_they_are_called(load_example):
    with load_example("time_series_forecaster") as module:
        time = np.arange(module.WINDOW + module.DAY, dtype="float32")
        window, day = time[None, : module.WINDOW], time[module.WINDOW :]
        forecasts = module.simple_forecasts(window)
        for name, days_ago in (("a day ago", 1), ("a week ago", 7)):
            np.testing.assert_array_equal(
                forecasts[name][0], day - days_ago * module.DAY, err_msg=name
            )
        # On a straight line, a week ago moved by the rise of a week is the truth.
        np.testing.assert_allclose(forecasts["a week ago, moved"][0], day)


def test_each_position_of_a_window_has_the_changes_of_its_next_day(load_example):
    with load_example("time_series_forecaster") as module:
        series = module.make_series(3, np.random.default_rng(5))
        inputs, days = module.windows_and_days(series)
        assert inputs.shape[:2] == days.shape[:2] == (3, module.WINDOW - module.WEEK)
        np.testing.assert_array_equal(inputs[..., 0], series[:, module.WEEK : module.WINDOW])
        for position in (0, 5, -1):
            now = module.WEEK + position % inputs.shape[1]
            last_week = series[:, now + 1 - module.WEEK : now + 1 - module.WEEK + module.DAY]
            next_day = series[:, now + 1 : now + 1 + module.DAY]
            np.testing.assert_array_equal(days[:, position], next_day - last_week)
            change = series[:, now] - series[:, now - module.WEEK]
            np.testing.assert_array_equal(inputs[:, position, 1], change)


@pytest.mark.slow
def test_the_character_model_learns_and_goes_on_with_a_prompt(run_smoke):
    module, result, text = run_smoke("character_model")
    expected = module.VOCABULARY_SIZE * 16 + encoder_size(16, 64) + 2 * 16
    assert printed_parameters(text) == [expected]
    assert result.loss < np.log(module.VOCABULARY_SIZE) - 0.5
    assert set(result.samples) == {"sampled", "greedy"}
    for sample in result.samples.values():
        assert sample.startswith("Return the ") and len(sample) <= 31
        assert sample in text
    # Greedy search without a cache: the whole text again for each character.
    ids = [module.START, *module.encode("Return the ")]
    while len(ids) < 32 and ids[-1] != module.END:
        logits = np.array(result.model(np.array([ids]))[0, -1])
        ids.append(int(logits.argmax()))
    assert result.samples["greedy"] == module.text_of(np.array(ids))


def steps_of(model, start_ids, memory=None, mask=None):
    """The logits of each position, decoded one after the other."""
    cache = model.initial_cache(memory, *start_ids.shape)
    logits = []
    for index in range(start_ids.shape[1]):
        step, cache = model.decode_step(start_ids[:, index], cache, index, mask)
        logits.append(step)
    return np.stack(logits, axis=1)


def test_the_character_model_reads_from_its_cache_what_it_would_without(load_example):
    with load_example("character_model") as module:
        model = module.CharacterModel(8, 1)
        ids = np.array([[module.START, *module.encode("The cat.")]])
        np.testing.assert_allclose(steps_of(model, ids), model(ids), rtol=1e-4, atol=1e-4)


def test_rows_of_characters_begin_with_a_start_and_end_with_a_text(load_example):
    with load_example("character_model") as module:
        texts = ["a" * 200, "b" * 60]
        inputs, labels = module.rows_of(texts)
        assert inputs.shape == labels.shape == (2, module.LENGTH)  # The last few are left out.
        read = [*module.encode("a" * 200), module.END, *module.encode("b" * 55)]
        assert labels.reshape(-1).tolist() == read
        for row, answer in zip(inputs, labels, strict=True):
            assert row.tolist() == [module.START, *answer[:-1]]
        assert module.text_of(labels[1]) == "a" * 72 + "b" * 55


def test_the_table_of_pairs_counts_pairs(load_example):
    with load_example("character_model") as module:
        train = module.encode("ababac")
        size = module.VOCABULARY_SIZE
        inputs, labels = module.encode("a")[None], module.encode("b")[None]
        # After "a" came "b" twice and "c" once; each count is one higher.
        loss = module.pair_loss(train[:-1], train[1:], inputs, labels)
        assert loss == pytest.approx(-np.log(3 / (size + 3)))


@pytest.mark.slow
def test_a_model_of_ones_own_learns_and_is_searched(run_smoke):
    module, result, text = run_smoke("search_your_own_model")
    width, size = 16, module.VOCABULARY_SIZE
    gru = 3 * (2 * width * width + 2 * width)
    assert printed_parameters(text) == [size * width + 2 * gru + (2 * width + 1) * size]
    assert set(result.exact_match) == {"greedy", "beam of 4"}
    outputs, scores = zip(*result.n_best, strict=True)
    assert len(set(outputs)) == 4 and list(scores) == sorted(scores, reverse=True)
    assert all(len(set(output)) == len(output) for output in result.no_digit_twice)


def test_the_steps_of_a_model_of_ones_own_are_those_it_is_trained_with(load_example):
    with load_example("search_your_own_model") as module:
        model = module.GRUTranslator(4)
        source = module.encode(["123", "98765"])
        target = np.array([[module.START, 5, 4, 3], [module.START, 9, 10, 11]])
        whole = np.array(model({"source": source, "target": target}))
        steps = steps_of(model, target, *model.encode(source))
        np.testing.assert_allclose(steps, whole, rtol=1e-4, atol=1e-5)
        # Padding is no digit.
        padded = model({"source": np.pad(source, ((0, 0), (0, 3))), "target": target})
        np.testing.assert_allclose(padded, whole, rtol=1e-4, atol=1e-5)
        # It reads the source.
        other = model({"source": source[::-1], "target": target})
        assert np.abs(other - whole).max() > 1e-4


def test_numbers_are_different_and_come_back_from_their_ids(load_example):
    with load_example("search_your_own_model") as module:
        numbers = module.make_numbers(50, np.random.default_rng(3))
        assert len(set(numbers)) == 50
        assert {len(number) for number in numbers} <= set(range(3, module.LONGEST + 1))
        ids = module.encode(numbers)
        assert [module.text_of(row) for row in ids] == numbers
        assert ((ids == module.END).sum(1) == 1).all()


@pytest.mark.release
def test_fine_tuning_learns_the_second_domain(run_smoke):
    module, results, text = run_smoke("fine_tune")
    names = ["travel", "then shopping", "then shopping, travel", "the same, with LoRA"]
    assert list(results) == [*names, "and in int8"]
    for scores in results.values():
        assert set(scores) == set(module.DOMAINS)
        assert all(0 <= score.exact_match <= 1 for score in scores.values())
    before = results["travel"]["shopping"].loss
    assert results["then shopping"]["shopping"].loss < before
    assert results["then shopping, travel"]["shopping"].loss < before
    assert results["the same, with LoRA"]["shopping"].loss < before
    tuned, small = (results[name]["travel"].loss for name in ("the same, with LoRA", "and in int8"))
    assert 0 < abs(small - tuned) < 0.1
    assert f"{results['travel']['travel'].loss:.3f}" in text


def test_the_domains_share_no_sentence(load_example):
    with load_example("fine_tune") as module:
        domains = [module.Domain.collect(kinds, 30, 5) for kinds in module.DOMAINS.values()]
        splits = [domain.train for domain in domains] + [domain.test for domain in domains]
        assert [len(split) for split in splits] == [30, 30, 5, 5]
        assert len({pair for split in splits for pair in split}) == 70


@pytest.mark.release
def test_a_loaded_model_goes_on_as_if_nothing_were(run_smoke):
    _, losses, text = run_smoke("load_and_go_on")
    assert len(losses["at once"]) == 2
    np.testing.assert_allclose(losses["in two processes"], losses["at once"], rtol=1e-5)
    assert losses["at once"][1] < losses["at once"][0]
    (difference,) = re.findall(r"difference of an output: (\S+)", text)
    assert float(difference) < 1e-6


@pytest.mark.slow
def test_plain_and_residual_networks_differ_by_the_sum_alone(run_smoke):
    module, losses, text = run_smoke("deep_cnn")
    assert losses.keys() == {(depth, kind) for depth in (4, 8) for kind in (False, True)}
    assert np.isfinite([*losses.values()]).all() and text.count("\n") == 4
    plain, residual = (module.network(8, kind) for kind in (False, True))
    assert [w.shape for w in plain.weights] == [w.shape for w in residual.weights]
    for model in (plain, residual):
        # No block computes anything: what is left is the widened picture, or nothing.
        for layer in model.layers[2:-1]:
            if "conv" in layer.name:
                layer.kernel.assign(np.zeros(layer.kernel.shape))
    pixels, _ = module.pictures(5)
    left = [np.ptp(np.asarray(model(pixels)), axis=0).max() for model in (plain, residual)]
    assert left[0] < 1e-6 < left[1]


@pytest.mark.release
def test_frozen_gains_stay_one_and_zero(run_smoke):
    module, losses, _ = run_smoke("gamma_and_beta")
    assert losses.keys() == {(s, learns) for s in ("post_ln", "pre_ln") for learns in (True, False)}
    for scheme in ("post_ln", "pre_ln"):
        free, frozen = (module.stack(scheme, learns) for learns in (True, False))
        assert [w.shape for w in free.weights] == [w.shape for w in frozen.weights]
        kept = [w.name for w in frozen.trainable_weights if w.name in ("gamma", "beta")]
        lost = len(free.trainable_weights) - len(frozen.trainable_weights)
        assert kept == [] and lost == 2 * (6 + (scheme == "pre_ln"))


def test_brackets_are_balanced_and_matched(load_example):
    with load_example("brackets") as module:
        ids, opened_at, depth = module.brackets(40, 3)
        labels = module.kinds(ids, opened_at)
    for row, places, nesting, wanted in zip(ids, opened_at, depth, labels, strict=True):
        stack = []
        for place, token in enumerate(row):
            if token == 2:
                opening = stack.pop()
                assert (places[place], wanted[place]) == (opening, row[opening])
            else:
                stack.append(place)
                assert places[place] == wanted[place] == -1
            assert nesting[place] == len(stack)
        assert not stack
    assert set(np.unique(labels)) == {-1, 0, 1}


def test_scores_of_a_head_that_matches_brackets(load_example):
    with load_example("brackets") as module:
        _, opened_at, depth = module.brackets(7, 3)
        weights = np.full((7, 2, 12, 12), 1 / 12)
        weights[:, 1] = np.eye(12)[np.maximum(opened_at, 0)]
        np.testing.assert_allclose(module.matching_scores(weights, opened_at), [1 / 12, 1])
        stream = np.stack([2 * depth + 1, np.ones_like(depth)], axis=-1)
        assert module.probe(stream, depth) == pytest.approx(1)
        assert module.probe(np.zeros((7, 12, 1)), depth) == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_the_report_behind_the_brackets_has_a_table_of_heads(run_smoke):
    _, found, text = run_smoke("brackets")
    ((right, score, nesting),) = found.values()
    assert 0 < right <= 1 and 0 < score <= 1 and len(nesting) == 3
    assert text.count("\nencoder/0/self_attention") == 2  # in the report's two tables
    assert "previous" in text
