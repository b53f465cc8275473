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
def test_the_character_model_writes_from_its_cache_what_it_would_without(run_smoke):
    module, result, text = run_smoke("character_model")
    expected = len(module.ALPHABET) * 16 + encoder_size(16, 64) + 2 * 16
    assert printed_parameters(text) == [expected]
    assert result.loss < np.log(len(module.ALPHABET)) - 0.5
    assert result.sample.startswith("Return the ") and len(result.sample) == 31
    assert result.sample in text

    characters = result.character_model
    ids = module.encode("Return the cat.")[None]
    cache = characters.decoder.initial_cache(1, max_length=17)
    first, cache = characters.step(ids[:, :6], cache, 0)
    second, cache = characters.step(ids[:, 6:7], cache, 6)
    third, _ = characters.step(ids[:, 7:], cache, 7)
    cached = np.concatenate([first, second, third], axis=1)
    np.testing.assert_allclose(cached, characters.model(ids), rtol=1e-4, atol=1e-4)


def test_the_table_of_pairs_counts_pairs(load_example):
    with load_example("character_model") as module:
        train = module.encode("ababac")
        size = len(module.ALPHABET)
        inputs, labels = module.encode("a")[None], module.encode("b")[None]
        # After "a" came "b" twice and "c" once; each count is one higher.
        assert module.pair_loss(train, inputs, labels) == pytest.approx(-np.log(3 / (size + 3)))


@pytest.mark.slow
def test_fine_tuning_learns_the_second_domain(run_smoke):
    module, results, text = run_smoke("fine_tune")
    assert list(results) == ["travel", "then shopping", "then shopping, travel"]
    for scores in results.values():
        assert set(scores) == set(module.DOMAINS)
        assert all(0 <= score.exact_match <= 1 for score in scores.values())
    before = results["travel"]["shopping"].loss
    assert results["then shopping"]["shopping"].loss < before
    assert results["then shopping, travel"]["shopping"].loss < before
    assert f"{results['travel']['travel'].loss:.3f}" in text


def test_the_domains_share_no_sentence(load_example):
    with load_example("fine_tune") as module:
        domains = [module.Domain.collect(kinds, 30, 5) for kinds in module.DOMAINS.values()]
        splits = [domain.train for domain in domains] + [domain.test for domain in domains]
        assert [len(split) for split in splits] == [30, 30, 5, 5]
        assert len({pair for split in splits for pair in split}) == 70


@pytest.mark.slow
def test_a_loaded_model_goes_on_as_if_nothing_were(run_smoke):
    _, losses, text = run_smoke("load_and_go_on")
    assert len(losses["at once"]) == 2
    np.testing.assert_allclose(losses["in two processes"], losses["at once"], rtol=1e-5)
    assert losses["at once"][1] < losses["at once"][0]
    (difference,) = re.findall(r"difference of an output: (\S+)", text)
    assert float(difference) < 1e-6
