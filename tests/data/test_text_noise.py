"""Noise in training text: what each kind does, and that chance has no other say."""

import collections

import pytest

from keras_addnorm.data.text_noise import TextNoise

NONE = dict.fromkeys(TextNoise().shares, 0.0)
SOURCE, TARGET = "Emma waits two hours, and sings.", "Emma wartet zwei Stunden und singt."


def only(**shares):
    return TextNoise(**{**NONE, **shares})


def test_without_noise_pairs_are_as_they_were():
    assert only()(5, SOURCE, TARGET) == [(SOURCE, TARGET)]
    assert TextNoise().scaled(0.0)(5, SOURCE, TARGET) == [(SOURCE, TARGET)]


def test_case_is_changed_on_both_sides():
    assert only(upper_case=1.0)(0, "it's ß.", "ach so.") == [("IT'S SS.", "ACH SO.")]
    assert only(title_case=1.0)(0, "don't  go", "geh nicht") == [("Don't  Go", "Geh Nicht")]


@pytest.mark.parametrize(
    "pair, expected",
    [
        (("Stop it!", "Hör auf!"), ("Stop it", "Hör auf")),
        (("停下。", "Stop..."), ("停下", "Stop")),
        (("Stop it", "Hör auf!"), ("Stop it", "Hör auf!")),
        (("...", "Ja."), ("...", "Ja.")),
        (("Stop .", "Halt ."), ("Stop", "Halt")),
    ],
)
def test_marks_go_where_both_sides_have_some(pair, expected):
    assert only(no_end_punctuation=1.0)(0, *pair) == [expected]


def test_a_typo_is_in_the_source_alone_and_in_one_long_word():
    for number in range(60):
        ((source, target),) = only(typos=1.0)(number, SOURCE, TARGET)
        assert target == TARGET
        before, after = SOURCE.split(), source.split()
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        for word, wrong in changed:
            assert len(word.strip(",.")) >= 4
            assert set(wrong) <= set(word) and abs(len(word) - len(wrong)) <= 1
        assert len(changed) <= 1  # The two letters that changed places may be equal.
    assert only(typos=1.0)(0, "Is it so?", "Ist es so?") == [("Is it so?", "Ist es so?")]


def test_a_long_text_has_a_typo_in_every_tenth_word_and_is_else_the_same():
    words = [f"word{letter}of{letter}" for letter in "abcdefghij" * 30]
    ((source, _),) = only(typos=1.0)(0, "  ".join(words), "x")
    changed = [new for old, new in zip(words, source.split("  "), strict=True) if new != old]
    assert len(changed) == 31
    assert all(abs(len(new) - len(words[0])) <= 1 for new in changed)


def test_a_line_of_noise_is_its_own_translation_behind_the_pair():
    pair, (source, target) = only(noise_lines=1.0)(3, SOURCE, TARGET)
    assert pair == (SOURCE, TARGET)
    assert source == target != ""
    assert 2 <= len(source.split()) <= 5


def test_shares_are_those_of_the_chances_and_follow_from_seed_and_number():
    noise = TextNoise(seed=7)
    results = [noise(number, SOURCE, TARGET) for number in range(4000)]
    assert results == [TextNoise(seed=7)(number, SOURCE, TARGET) for number in range(4000)]
    assert results != [TextNoise(seed=8)(number, SOURCE, TARGET) for number in range(4000)]
    kinds = collections.Counter()
    for (source, target), *more in results:
        kinds["noise_lines"] += len(more)
        kinds["upper_case"] += target.isupper()
        kinds["title_case"] += target.istitle()
        kinds["no_end_punctuation"] += not target.endswith(".")
        kinds["typos"] += source.lower().rstrip(".") != SOURCE.lower().rstrip(".")
    for name, share in noise.shares.items():
        # Four standard deviations; a few typos change equal letters, and capitals win over titles.
        wide = 4 * (4000 * share * (1 - share)) ** 0.5 + 25
        assert abs(kinds[name] - 4000 * share) < wide, name


def test_scaled_shares_stop_at_one():
    assert TextNoise().scaled(10).shares == pytest.approx(
        {
            "upper_case": 0.7,
            "title_case": 0.5,
            "typos": 0.5,
            "no_end_punctuation": 1.0,
            "noise_lines": 0.005,
        }
    )


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "all"])
def test_a_share_outside_of_its_range_is_refused(share):
    with pytest.raises(ValueError, match="typos from 0 to 1"):
        TextNoise(typos=share)


@pytest.mark.parametrize("factor", [float("nan"), -1, "2"])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(ValueError, match="factor"):
        TextNoise().scaled(factor)


def test_a_seed_is_an_int():
    with pytest.raises(ValueError, match="Expected an int"):
        TextNoise(seed=[1])
