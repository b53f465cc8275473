"""Which column is which, and rows that do not fit."""

import json
import logging

import pytest

from keras_addnorm.data import line_reports, load_translation
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.request import Request

A, B = ("Bawo ni o.", "Hello to you."), ("Ologbo kan.", "A cat is here.")


def read(path, text, source="yo", target="en", reader=None):
    """The pairs of a file, the notes on it, and how its lines were counted."""
    path.write_text(text)
    found = open_translation(Request(path, source, target, reader))
    split = found.splits["train"]
    return [pair.texts for pair in split.placed()], found.notes, split.report


def table(header, mark="\t", order=(1, 0)):
    rows = [mark.join([pair[place] for place in order]) for pair in (A, B)]
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("header", "source"),
    [
        *(("english\tyoruba", "yo"), ("English\tHausa", "ha"), ("en\tYoruba", "yo")),
        *(("English\tSerbian (Latin)", "sr"), ("English\tSerbian (Latin)", "sr_Latn")),
        *(("English\tGerman", "de_AT"), ("English text\tYoruba text", "yo")),
        ("English\tScottish Gaelic", "gd"),
    ],
)
def test_a_header_that_names_both_languages_is_followed(tmp_path, header, source):
    pairs, notes, _ = read(tmp_path / "h.tsv", table(header), source)
    assert (pairs, notes) == ([A, B], ())
    pairs, notes, _ = read(tmp_path / "h.tsv", table(header), "en", source)
    assert (pairs, notes) == ([A[::-1], B[::-1]], ())


@pytest.mark.parametrize("name", ["English", "en", "target"])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_a_header_that_names_one_language_leaves_the_other_column(tmp_path, name, order):
    header = "\t".join([("Ijebu", name)[place] for place in order])
    pairs, notes, _ = read(tmp_path / "h.tsv", table(header, order=order))
    assert pairs == [A, B]
    assert notes == (
        f"{tmp_path / 'h.tsv'} names {name!r} in its first row, but not 'yo': column "
        f"{order.index(0) + 1}, 'Ijebu', is taken for it.\n  yo: Bawo ni o. / en: Hello to you.",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table("English\tIjebu\tNotes", order=(1, 0, 1)), "names 'English' in its first row, and"),
        (
            table("English\tGerman"),
            "no column is certainly 'yo'. Its first row is .'English', 'Ger",
        ),
        (table("French\tGerman"), "names the languages 'French', 'German' in its first row"),
        (table("en-GB\ten-US"), "names the languages 'en-GB', 'en-US' in its first row"),
    ],
)
def test_a_header_that_names_others_is_not_passed_over(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "h.tsv", text)
    named = {"source_column": "2", "target_column": "1"}
    assert read(tmp_path / "h.tsv", text, reader=named)[0][-1][1] == B[1]


def test_numbers_beside_the_texts_are_no_texts(tmp_path):
    rows = [
        "id\tEnglish\tIjebu\tscore",
        "1\tHello to you.\tBawo ni o.\t0.75",
        "2\tNo.\tRara.\t-1,5",
    ]
    pairs, _, _ = read(tmp_path / "h.tsv", "\n".join(rows))
    assert pairs == [A, ("Rara.", "No.")]


@pytest.mark.parametrize(
    "first", ["no way\ten vei", "So. No\tIt. En", "en\tin", "de\tof", "es\tis", "to\tnach"]
)
@pytest.mark.parametrize(("source", "target"), [("no", "en"), ("es", "en"), ("de", "es")])
def test_words_that_are_codes_are_no_header(tmp_path, first, source, target):
    text = f"{first}\nein\ta\nzwei\ttwo\n"
    pairs, notes, _ = read(tmp_path / "w.tsv", text, source, target)
    assert pairs[0] == tuple(first.split("\t"))
    assert len(pairs) == 3
    assert "does not say which column is which: column 1 is taken for" in notes[0]


def objects(*names):
    return "".join(json.dumps(dict(zip(names, pair[::-1], strict=True))) + "\n" for pair in (A, B))


@pytest.mark.parametrize("names", [("English", "Yoruba"), ("english_text", "yoruba_text")])
def test_names_of_fields_that_name_both(tmp_path, names):
    assert read(tmp_path / "h.jsonl", objects(*names))[:2] == ([A, B], ())


def test_names_of_fields_that_name_one_or_others(tmp_path):
    pairs, notes, _ = read(tmp_path / "h.jsonl", objects("English", "Ijebu"))
    assert pairs == [A, B]
    assert notes[0].startswith(
        f"{tmp_path / 'h.jsonl'} names 'English', but not 'yo': 'Ijebu' is taken for 'yo', "
        "'English' for 'en'.\n"
    )
    for names in (("English", "German"), ("French", "German"), ("English", "target")):
        with pytest.raises(ValueError, match=r"has no columns for 'yo' and 'en'. It has"):
            read(tmp_path / "h.jsonl", objects(*names))


def test_names_of_a_header_are_languages_by_their_codes(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text(table("English,Serbian (Latin)", mark=","))
    found = open_translation(Request(path))
    assert (found.source, found.target) == ("en", "sr")
    assert open_translation(Request(path, source="sr")).target == "en"


@pytest.mark.parametrize(
    ("name", "text", "kept", "bad"),
    [
        ("a.csv", "yo,en\nA,a\nB, b,b\nC,c\n", "AC", 3),
        ("a.csv", 'yo,en\nA,a\n"B, b",b\nC,c,\n', ["A", "B, b", "C"], None),
        ("a.csv", "yo;en\nA;a\nB; b;b\n", "A", 3),
        ("a.csv", "A,a\nB, b,b\nC,c\n", "AC", 2),
        ("a.csv", "yo,en,\nA,a,\nB, b,b,\nC,c,\n", "AC", 3),
        ("a.csv", "yo,en,\nA,a\nB, b,b\n", "A", 3),
        ("a.tsv", "yo\ten\nA\ta\nB\tb\tb\nC\tc\n", "AC", 3),
        ("a.tsv", "A\ta\nB\tb\tb\nC\tc\t \n", "AC", 2),
        # The shape of the file: a third column in each row, full or not.
        ("a.tsv", "A\ta\tx\nB\tb\ty\nC\tc\tx\ty\n", "AB", 3),
        ("a.tsv", "A\ta\t\nB\tb\ty\nC\tc\t\n", "ABC", None),
        ("a.tsv", "A\ta\tx\nB\tb\nC\tc\tx\nD\td\tx\n", "ABCD", None),
    ],
)
def test_rows_with_more_columns_than_the_others_are_counted(tmp_path, name, text, kept, bad):
    pairs, _, report = read(tmp_path / name, text)
    assert [source for source, _ in pairs] == list(kept)
    assert report.surplus == (bad is not None)
    if bad:
        assert f"1 with more columns than the others (lines {bad})" in str(report)


def test_rows_with_more_columns_are_no_training_pairs_and_stay_in_a_test_set(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("yo,en\nA,a\nB, b,b\nC,c\n")
    choices = {"source": "yo", "target": "en"}
    report = line_reports(path, **choices)["train"]
    assert (report.kept, report.surplus, report.first_bad_lines) == (2, 1, (3,))
    every = load_translation(path, split="train", keep_every_pair=True, **choices)
    assert list(every.as_numpy_iterator()) == [(b"A", b"a"), (b"", b""), (b"C", b"c")]
    path.write_text("yo,en\n" + "A, a,b\n" * 60)
    with pytest.raises(ValueError, match="60 with more columns than the others"):
        load_translation(path, split="train", **choices)


def test_a_wrong_field_of_a_reader_is_named(tmp_path):
    for name in ("a.tsv", "a.unknown"):
        with pytest.raises(ValueError, match=r"no such field.*'source_column'.*Received: .'nam'"):
            read(tmp_path / name, "A\ta\n", reader={"nam": 1})


def test_an_unknown_code_is_noted_and_a_name_is_refused(tmp_path, caplog):
    path = tmp_path / "a.tsv"
    path.write_text("A\ta\n")
    with caplog.at_level(logging.WARNING):
        load_translation(path, source="qac", target="en")
    assert any(said.startswith("'qac' is no code of a language") for said in caplog.messages)
    with pytest.raises(ValueError, match=r"Received: source='yoruba'. Did you mean 'yo'\?"):
        load_translation(path, source="yoruba", target="en")
    with pytest.raises(ValueError, match=r"Received: target='\.\./x'"):
        load_translation(path, source="en", target="../x")
    with pytest.raises(ValueError, match=r"demo set has no language 'german'.*Did you mean 'de'\?"):
        load_translation("demo", target="german")
