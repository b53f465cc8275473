"""Folders of parallel text: which files, which lines, in what order, and every way to be wrong."""

import gzip
import logging

import pytest
import tensorflow as tf

from keras_addnorm.data import LineReport, line_reports, load_translation
from keras_addnorm.data.line_report import LineChecker
from keras_addnorm.data.parallel_files import find_languages, find_parallel_files
from keras_addnorm.data.readers import InputFile
from keras_addnorm.data.strings import string_pairs

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "numbers"
    folder.mkdir()
    _write(folder / "train.en", ENGLISH)
    _write(folder / "train.de", GERMAN)
    _write(folder / "val.en.gz", ENGLISH[:3])
    _write(folder / "val.de.gz", GERMAN[:3])
    _write(folder / "test_2016_flickr.en", ENGLISH[5:])
    _write(folder / "test_2016_flickr.de.gz", GERMAN[5:])
    (folder / "README.md").write_text("No text here.")
    return folder


@pytest.fixture
def load(folder):
    def load(source="en", target="de", **choices):
        return load_translation(folder, source=source, target=target, **choices)

    return load


def test_all_splits_plain_and_gzipped_in_the_order_of_the_files(load):
    splits = load()
    assert {name: _texts(pairs) for name, pairs in splits.items()} == {
        "train": list(zip(ENGLISH, GERMAN, strict=True)),
        "validation": list(zip(ENGLISH[:3], GERMAN[:3], strict=True)),
        "test_2016_flickr": list(zip(ENGLISH[5:], GERMAN[5:], strict=True)),
    }
    assert len(splits["train"]) == 7


def test_pairs_are_a_tf_data_set(load):
    pairs = load(split="train[2:5]")
    assert isinstance(pairs, tf.data.Dataset) and len(pairs) == pairs.cardinality() == 3
    assert pairs.element_spec == (tf.TensorSpec((), tf.string),) * 2
    expected = list(zip(ENGLISH, GERMAN, strict=True))[2:5]
    assert _texts(pairs) == expected
    assert list(pairs.as_numpy_iterator()) == [(a.encode(), b.encode()) for a, b in expected]


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("de", None), (None, "en")])
def test_the_other_direction(load, source, target):
    pairs = load(source, target, split="test_2016_flickr")
    assert _texts(pairs) == [("sechs", "six"), ("sieben", "seven")]


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("train[:2]", ["one", "two"]),
        ("train[-50%:]", ["four", "five", "six", "seven"]),
        ("val", ["one", "two", "three"]),
        ("dev[1:]", ["two", "three"]),
        ("test", ["six", "seven"]),
        ("test[:1]+valid[2:]", ["six", "three"]),
        ("train[1:2] + train[3:4]", ["two", "four"]),
    ],
)
def test_splits_and_their_parts(load, split, words):
    assert [source for source, _ in _texts(load(split=split))] == words


def test_a_changed_file_is_read_as_it_is_now(load, folder):
    pairs = load(split="train")
    assert _texts(pairs)[0] == ("one", "eins")
    _write(folder / "train.de", ["EINS", *GERMAN[1:]])
    assert _texts(pairs)[0] == ("one", "EINS")


def test_bad_lines_are_counted_logged_once_and_left_out(folder, load, caplog):
    source = [b"one", b"", b"\xff\xfe", b"four", b"five " * 9, b"six", b" \t ", b"eight"]
    target = [b"eins", b"zwei", b"drei", b"\xe3\x80\x80", b"f", b"\xc3", b"", "acht\u2028".encode()]
    (folder / "train.en").write_bytes(b"\n".join(source) + b"\n")
    (folder / "train.de").write_bytes(b"\n".join(target))
    with caplog.at_level(logging.INFO, logger="keras_addnorm"):
        pairs = load(split="train+val", max_chars=40)
        expected = [("one", "eins"), ("eight", "acht"), *zip(ENGLISH[:3], GERMAN[:3], strict=True)]
        assert _texts(pairs) == _texts(pairs) == expected
    report = LineReport(
        "train",
        kept=2,
        empty=3,
        invalid_utf8=2,
        too_long=1,
        max_chars=40,
        first_bad_lines=(2, 3, 4, 5, 6),
    )
    said = (
        "train: 2 of 8 pairs kept; left out: 3 empty, 2 not UTF-8, 1 longer than 40 characters "
        "(lines 2, 3, 4, 5, 6, ...)"
    )
    assert (str(report), report.total, report.left_out) == (said, 8, 6)
    assert [record.getMessage() for record in caplog.records] == [
        said,
        "validation: all 3 pairs kept",
    ]
    stored = line_reports(folder, source="de", target="en", max_chars=40)
    assert stored["train"] == report
    of_a_part = line_reports(
        folder, source="de", target="en", split="train[:50%]+test", max_chars=40
    )
    assert of_a_part == {name: stored[name] for name in ("train", "test_2016_flickr")}
    assert stored["validation"] == LineReport("validation", kept=3, max_chars=40)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\n", [b"a", b""]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a", b"\xef\xbb\xbfb"]),
        ("a\u2028b\x0bc\x85\n".encode(), ["a\u2028b\x0bc\x85".encode()]),
    ],
)
@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_lines_end_with_a_line_feed_and_nothing_else(tmp_path, name, content, lines):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(InputFile(path).lines()) == lines


def test_the_longest_line_that_is_kept():
    checker = LineChecker("train", max_chars=3)
    assert checker.check("äöü".encode(), b"abc") == ("äöü", "abc")
    assert checker.check("äöüß".encode(), b"abc") is None
    assert checker.check(b"a", b"abcd") is None
    assert checker.report().too_long == 2


def test_split_names_become_words(tmp_path):
    for name in ("test-2017.a.en", "test-2017.a.de", "valid.en", "valid.de"):
        _write(tmp_path / name, ["x"])
    assert [files.split for files in find_parallel_files(_files(tmp_path), "en", "de", "it")] == [
        "validation",
        "test_2017_a",
    ]
    assert find_languages(_files(tmp_path), "it") == ("de", "en")


def test_a_plain_file_goes_before_its_compressed_copy(tmp_path):
    _write(tmp_path / "train.en", ["plain"])
    _write(tmp_path / "train.en.gz", ["compressed"])
    _write(tmp_path / "train.de", ["x"])
    assert find_parallel_files(_files(tmp_path), "en", "de", "it")[0].source.name == "train.en"


def test_three_languages_need_both_said(folder, load):
    _write(folder / "train.fr", ["x"] * 7)
    with pytest.raises(ValueError, match=r"'de', 'en', 'fr', and the direction is open.*None"):
        load("en", None)


def test_no_direction(load):
    with pytest.raises(ValueError, match=r"the direction is open. Received: source=None"):
        load(None, None)


def test_unequal_line_counts(folder, load):
    _write(folder / "train.de", [*GERMAN, "acht"])
    with pytest.raises(ValueError, match=r"train.en has 7 lines and train.de has 8"):
        load()


def test_a_split_that_is_not_read_is_not_looked_at(folder, load):
    (folder / "val.de.gz").write_bytes(b"no gzip")
    assert len(load(split="train[:2]+test")) == 4


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*train.en, train.de"):
        load_translation(tmp_path / "nowhere", source="en", target="de")


def test_an_empty_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no parallel text in .*holds: nothing"):
        load_translation(str(tmp_path), source="en", target="de")


def test_a_missing_side(folder, load):
    (folder / "val.de.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"'validation' of .* has val.en.gz but no file in 'de'"
    ):
        load()


def test_two_files_for_one_split(folder, load):
    _write(folder / "dev.en", ["x"])
    with pytest.raises(ValueError, match=r"two files for the split 'validation' in 'en': dev.en"):
        load()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"target": "fr"}, r"no language 'fr' for target. It has 'de', 'en'"),
        (
            {"source": "de", "target": "de"},
            "two languages. Received: source='de', target='de'",
        ),
        ({"split": "dev2"}, r"no split 'dev2'. It has 'train', 'validation', 'test_2016_flickr'"),
        ({"split": "train[:2"}, r"'train\[:2' is no split of the folder"),
        ({"split": "train[:x%]"}, r"is no split of the folder"),
        (
            {"max_chars": 0},
            "max_chars is a number of characters. Expected 1 or more, and at most 1,048,576. Rec",
        ),
    ],
)
def test_choices_that_cannot_be(load, choices, message):
    with pytest.raises(ValueError, match=message):
        load(**choices)


def test_a_split_without_a_usable_pair(folder, load):
    _write(folder / "train.de", [""] * 7)
    with pytest.raises(ValueError, match=r"train.en and train.de hold no pair .*7 empty"):
        load(split="train")


@pytest.mark.parametrize(
    "content", [b"plain text", gzip.compress(b"cut off " * 99)[:-9]], ids=["plain", "cut off"]
)
def test_a_damaged_gz_file(folder, load, content):
    (folder / "val.de.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"val.de.gz cannot be decompressed"):
        load()


def _files(folder):
    return [InputFile(path) for path in sorted(folder.iterdir())]


def _write(path, lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _texts(pairs):
    return list(string_pairs(pairs))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_f5_a_file_in_utf16_is_an_error_that_says_how_to_convert_it(tmp_path, ending):
    path = tmp_path / f"train.en{ending}"
    with (gzip.open if ending else open)(path, "wb") as file:
        file.write("\ufeffa dog\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"train\.en.* is UTF-16 text.*iconv -f UTF-16 -t UTF-8"):
        list(InputFile(path).lines())


def test_f5_a_line_of_invisible_characters_is_empty(tmp_path):
    checker = LineChecker("train", 100)
    assert checker.check("\u200b\ufeff".encode(), b"b") is None
    assert checker.check(b"a", b"\0 \x07") is None
    assert checker.check("a\u00adb".encode(), b"c") == ("a\u00adb", "c")
    assert checker.report().empty == 2
