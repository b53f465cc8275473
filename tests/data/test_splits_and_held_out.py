"""Parts of splits, what is left of them, and pairs that are held out."""

import pytest
import tensorflow as tf

from keras_addnorm.data import hold_out
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.request import Request
from keras_addnorm.data.splits import intervals, names_in, resolve_split, without

SIZES = {"train": 100, "validation": 10}


@pytest.mark.parametrize(
    ("split", "other", "left"),
    [
        ("train", "train[:1%]", "train[1:100]"),
        ("train", "train[90%:]", "train[0:90]"),
        ("train", "train[20:30]+train[50:60]", "train[0:20]+train[30:50]+train[60:100]"),
        ("train[:50]+validation", "train[40:70]+validation[:3]", "train[0:40]+validation[3:10]"),
        ("train", "validation", "train[0:100]"),
        ("train[10:20]", "train", ""),
    ],
)
def test_m3_what_a_split_leaves_of_another(split, other, left):
    assert without(split, other, SIZES) == left


def test_intervals_and_names():
    assert intervals("train[-10%:] + validation", SIZES) == [
        ("train", 90, 100),
        ("validation", 0, 10),
    ]
    assert names_in("train[:1]+validation + train[5:]") == ("train", "validation")
    # Of as many blanks, the square would take hours; and no split has so many pairs.
    for wrong in (f"train[{' ' * 1_000_000}x]", f"train[:{'9' * 400}%]"):
        with pytest.raises(ValueError, match=r"'train\[.{74}' is no split") as error:
            intervals(wrong, {"train": 5})
        assert len(str(error.value)) < 1000
    with pytest.raises(ValueError, match=r"'train\[:x\]' is no split"):
        intervals("train[:x]", SIZES)


@pytest.mark.parametrize(
    ("split", "splits", "resolved"),
    [
        ("val[:3]", ["train", "validation"], "validation[:3]"),
        ("dev", ["train", "newsdev2016"], "newsdev2016"),
        ("validation", ["train", "dev2010", "devtest"], "dev2010"),
        ("test", ["train", "newstest2014"], "newstest2014"),
        ("test", ["test_a", "newstest2014"], "test_a"),
        ("test", ["test", "test_a"], "test"),
    ],
)
def test_m2_common_names_of_splits(split, splits, resolved):
    assert resolve_split(split, splits, "it") == resolved


def test_a_common_name_for_two_splits_is_refused():
    with pytest.raises(ValueError, match=r"no split 'test'. It has 'newstest2013', 'newstest2014'"):
        resolve_split("test", ["newstest2013", "newstest2014"], "it")


PAIRS = [(f"sentence number {n}", f"Satz {n}") for n in range(400)]


def test_m3_the_same_pairs_are_held_out_each_time_in_any_order():
    training, held = hold_out(PAIRS)
    assert (len(training), len(held)) == (360, 40)
    assert {*training} | {*held} == {*PAIRS}
    again = hold_out(PAIRS[::-1])
    assert {*again[1]} == {*held}
    # More pairs later: what was held out of these is held out still.
    more = hold_out(PAIRS + [(f"another {n}", "x") for n in range(400)])[1]
    assert len(more) == 80
    assert len({*held} & {*more}) > 30
    # Fixed by a hash, whatever Python's own hashes do in this process.
    assert held[:2] == [PAIRS[10], PAIRS[14]]


def test_m3_all_translations_of_a_sentence_are_on_one_side():
    pairs = [(text, f"{target} {n}") for text, target in PAIRS for n in range(3)]
    pairs += [(text.upper().replace(" ", "  "), target) for text, target in PAIRS]
    training, held = hold_out(pairs, 10)
    sides = [{" ".join(text.lower().split()) for text, _ in some} for some in (training, held)]
    assert sides[0].isdisjoint(sides[1])
    assert len(held) == 12


def test_m3_a_data_set_is_divided_into_two_of_known_size():
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*PAIRS, strict=True))))
    training, held = hold_out(dataset)
    expected = hold_out(PAIRS)
    for some, pairs in zip((training, held), expected, strict=True):
        assert len(some) == len(pairs)
        assert [tuple(map(bytes.decode, pair)) for pair in some.as_numpy_iterator()] == pairs


def test_pairs_of_a_file_are_divided_as_they_are_read(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    pairs = open_translation(Request(path, "en", "de")).read("train")
    training, held = hold_out(pairs)
    assert (list(training), list(held)) == hold_out(PAIRS)
    assert (len(training), len(held)) == (360, 40)
    with path.open("a") as file:
        file.write("one more\teins mehr\n")
    with pytest.raises(ValueError, match=r"400 pairs when .* now there are 401"):
        list(held)


@pytest.mark.parametrize(
    ("pairs", "count", "message"),
    [
        (PAIRS, 0, "at least 1 pair to hold out. Received: count=0"),
        (PAIRS, 400, "400 of 400 pairs cannot be held out"),
        ([("same", str(n)) for n in range(50)], None, "none would be left to train on"),
        ([], None, "0 pairs cannot be held out"),
    ],
)
def test_m3_what_cannot_be_held_out(pairs, count, message):
    with pytest.raises(ValueError, match=message):
        hold_out(pairs, count)


def test_a_file_that_is_not_there_is_no_split_with_a_strange_name():
    with pytest.raises(ValueError, match=r"^There is no file 'old\.tsv', and spa has no split"):
        resolve_split("old.tsv", ("train", "test"), "spa")
