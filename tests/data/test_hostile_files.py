"""Files made to harm: each reader gives pairs, or an error in a sentence, in little memory."""

import gzip
import os
import random
import socket
import sys
import tracemalloc
import zipfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from keras_addnorm.alignment import read_pharaoh
from keras_addnorm.basics.argument_checks import to_file, to_path
from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.basics.text import read_text
from keras_addnorm.data import load_translation
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.readers import gettext_po, input_file
from keras_addnorm.data.readers.json_values import JsonValues, NotJsonError
from keras_addnorm.data.request import Request
from keras_addnorm.decoding.shortlist import Lexicon

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_data

sys.path.pop(0)

LONGEST_SENTENCE = 2100
MEGABYTES = 200
ENDINGS = ["tsv", "csv", "jsonl", "json", "tmx", "xlf", "po", "txt", "parquet", "zip"]


def read(path, limit=None):
    """Reads a file, or says why not; the number of pairs, or the sentence."""
    tracemalloc.start()
    try:
        pairs = open_translation(Request(path, "en", "de")).read("train")
        return sum(1 for _ in pairs)
    except (ValueError, OSError) as error:
        said = str(error)
        assert len(said) <= LONGEST_SENTENCE, said[:300]
        assert printable_lines(said) == said
        assert path.name in said, said
        return said
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most <= MEGABYTES * 10**6


# What formats are made of, and what none of them expects.
WORDS = """
{ } [ ] , : " "" \\ \\u \\n null true 1e999 -0 "en" "de" {"en":"a","de":"b"} "translation"
<tmx> </tmx> <tu> </tu> <tuv <seg> </seg> </tuv> xml:lang="en"> xml:lang="de"> <body> &amp;
&x; <!-- --> <![CDATA[ ]]> <?xml encoding="rot13"?> <xliff <file source-language="en"
target-language="../x"> <trans-unit> <source> </source> <target> </target> </trans-unit>
msgid msgstr msgid_plural msgstr[0] msgstr[999] msgctxt "a" #, fuzzy #~ charset=idna PAR1
PK\x03\x04 \x1b[2J \u202e /etc/hostname ../../../ ; \ufeff
"""
BYTES = [b"\n", b"\n", b"\t", b" ", b"\r", b"\0", b"\xff", b"\xf0\x9f", "\u2028".encode()]
TOKENS = st.one_of(
    st.sampled_from(WORDS.split()).map(str.encode),
    st.sampled_from(BYTES),
    st.binary(max_size=9),
)
CONTENTS = st.lists(TOKENS, max_size=40).map(b"".join)
REPEATED = st.tuples(CONTENTS, st.sampled_from([1, 1, 100, 2000])).map(
    lambda found: found[0] * min(found[1], 300_000 // (len(found[0]) or 1))
)
MIXED = st.lists(REPEATED, min_size=1, max_size=3).map(b"".join)
SETTINGS = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}


@hypothesis.settings(max_examples=60, derandomize=True, **SETTINGS)
@hypothesis.given(content=MIXED, ending=st.sampled_from(ENDINGS))
def test_any_content_is_read_or_refused(tmp_path_factory, content, ending):
    path = tmp_path_factory.getbasetemp() / f"hostile.{ending}"
    path.write_bytes(content)
    read(path)


@pytest.mark.slow
@hypothesis.settings(max_examples=600, **SETTINGS)
@hypothesis.given(
    content=MIXED, ending=st.sampled_from([*ENDINGS, *(f"{one}.gz" for one in ENDINGS)])
)
def test_any_content_of_any_ending_is_read_or_refused(tmp_path_factory, content, ending):
    path = tmp_path_factory.getbasetemp() / f"hostile.{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    read(path)


FAST = [
    *("tabs alone", "rows of commas", "a header of 300,000 names", "digits and a letter"),
    *("blanks between letters", "brackets", "a number of a million digits"),
    *("a text where an object was", "a path for a content", "1,000 variants of each language"),
    *("a language that leads out", "a control character in each name", "plurals"),
]

# Those of gigabytes are for `attacks.py`: looking at the memory takes a multiple of their time.
SLOW = [name for name in hostile_data.FILES if name not in FAST and "GB" not in name]


@pytest.mark.parametrize("name", FAST)
def test_attacks(tmp_path, name):
    read(hostile_data.write(tmp_path, name))


@pytest.mark.release
@pytest.mark.parametrize("name", SLOW)
def test_other_attacks(tmp_path, name):
    read(hostile_data.write(tmp_path, name))


def test_a_long_line_is_counted_with_its_number_and_not_echoed(tmp_path, monkeypatch):
    for module in ("input_file", "tab_separated", "json_lines", "comma_separated", "gettext_po"):
        monkeypatch.setattr(f"keras_addnorm.data.readers.{module}.LONGEST_TEXT", 1000)
    monkeypatch.setattr("keras_addnorm.data.parallel_files.LONGEST_TEXT", 1000)
    long = "x" * 1001
    cases = {
        "a.tsv": f"a\tb\n{long}\tc\nd\te\n",
        "a.jsonl": f'{{"en": "a", "de": "b"}}\n{{"en": "{long}", "de": "c"}}\n'
        '{"en": "d", "de": "e"}',
        "a.po": f'msgid "a"\nmsgstr "b"\nmsgid ""\n"{long[:600]}"\n"{long[:600]}"\nmsgstr "c"\n'
        'msgid "d"\nmsgstr "e"\n',
    }
    for name, content in cases.items():
        (tmp_path / name).write_text(content)
        split = open_translation(Request(tmp_path / name, "en", "de")).splits["train"]
        assert list(split.texts()) == [("a", "b"), ("d", "e")]
        line = 3 if name == "a.po" else 2
        assert (split.report.too_long, split.report.first_bad_lines) == (1, (line,))
    for language, content in {"en": f"a\n{long}\nd\n", "de": "b\nc\ne\n"}.items():
        (tmp_path / f"train.{language}").write_text(content)
    split = open_translation(Request(tmp_path, "en", "de")).splits["train"]
    assert list(split.texts()) == [("a", "b"), ("d", "e")]
    (tmp_path / "a.csv").write_text(f'en,de\na,b\n"c\n{long[:600]}\n{long[:600]}",d\n')
    said = read(tmp_path / "a.csv")
    assert "a.csv, line 3: not CSV (a row of more than 1,000 bytes). Close its quotation" in said


def test_a_list_of_json_is_read_in_portions_as_a_whole():
    values = [{"ü": [1, None, 'a\\"]']}, 12, [], "😀", -1.5e3, True, {}]
    text = '\n [{"ü": [1, null, "a\\\\\\"]"]}\n,12 ,[], "\\ud83d\\ude00", -1.5e3,true , {}]\n '
    content = text.encode()
    for size in (1, 2, 3, 7, 1000):
        blocks = [content[start : start + size] for start in range(0, len(content), size)]
        found = JsonValues(blocks, 100)
        assert list(found) == values
        assert found.line == 4
    for wrong, line, said in (
        ("[1 2]", 1, "Expecting ',' or ']'"),
        ("[1,\n]", 2, "Expecting value"),
        ("[1,\n2", 2, "Expecting ',' or ']'"),
        ('[1,\n\n"a', 3, "Unterminated string"),
        ("[1] x", 1, "Extra data"),
        ("{}", 1, "Expecting '\\['"),
        (f"[{'[' * 10**5}", 1, "nested too deeply"),
        (f"[1,\n{'7' * 5000}]", 2, "limit .4300 digits"),
        (f'["{"x" * 1000}"]', 1, "more than 100 characters"),
    ):
        longest = 100 if len(wrong) < 2000 and "limit" not in said else 10**6
        found = JsonValues([wrong[:3].encode(), wrong[3:].encode()], longest)
        with pytest.raises(NotJsonError, match=said):
            list(found)
        assert found.line == line


# Parts of a message as they are written, and as they are meant.
PARTS = [
    *[("", ""), ("a", "a"), ("ü", "ü"), ('\\"', '"'), ("\\n", "\n"), ("\\t\\\\", "\t\\")],
    *[("%s", "%s"), ("\\x", "\\x"), ("b c", "b c")],
]
COMMENTS = ["", "# x", "#, fuzzy, c-format", "#, c-format", '#| msgid "o"']


def test_messages_of_po_are_those_that_were_written(tmp_path):
    generator = random.Random(5)
    lines = ['msgid ""', 'msgstr ""', '"Language: de\\n"', ""]
    expected = []
    for _ in range(300):
        parts = [zip(*generator.choices(PARTS, k=3), strict=True) for _ in range(4)]
        written, meant = zip(*(map("".join, part) for part in parts), strict=True)
        comment = generator.choice(COMMENTS)
        is_plural = generator.random() < 0.3
        forms = meant[:2] if is_plural else meant[2:3]
        lines += [comment] * bool(comment)
        lines += [f'msgctxt "{written[3]}"'] * (generator.random() < 0.2)
        lines += [f'msgid "m{written[0]}"', f'"{written[1]}"']
        if is_plural:
            lines += ['msgid_plural "p"', *(f'msgstr[{n}] "{written[n]}"' for n in range(2))]
        else:
            lines += [f'msgstr "{written[2]}"']
        lines += [""] * (generator.random() < 0.7)
        lines += ['#~ msgid "o"', '#~ msgstr "o"'] * (generator.random() < 0.1)
        # What is fuzzy or not translated in all its forms is no pair.
        if all(forms) and "fuzzy" not in comment:
            expected += zip([f"m{meant[0]}{meant[1]}", "p"], forms, strict=False)
    path = tmp_path / "a.po"
    path.write_text("\n".join(lines))
    (source,) = open_translation(Request(path, "en", "de")).sources
    assert [tuple(pair[:2]) for pair in source.raw_pairs()] == expected
    assert len(expected) > 100


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('msgstr "a"', "line 1, 'msgstr \"a\"', is not in its place"),
        ('"a"', "has no keyword before it"),
        ('msgid "a"\nmsgid "b"', "line 2, 'msgid \"b\"', is not in its place"),
        ('msgid "a"', "its last message has no translation"),
        ('msgid "a"\nmsgstr[0] "b"\nmsgid_plural "c"', "line 3,"),
    ],
)
def test_messages_of_po_that_are_out_of_order(tmp_path, lines, said):
    (tmp_path / "a.po").write_text(lines)
    assert said in read(tmp_path / "a.po")


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a name with a zero character"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    path = hostile_data.SPECIAL[kind](tmp_path)
    name = kind.removeprefix("a ")
    for opened in (
        lambda: load_translation(path, source="en", target="de"),
        lambda: read_text(path),
        lambda: read_pharaoh(path),
        lambda: Lexicon.load(path),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=name.partition(" with")[0]):
            opened()


def test_special_files_inside_folders_are_passed_over(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    os.mkfifo(tmp_path / "train.csv")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "test.tsv"))
    assert read(tmp_path) == 1


def test_paths_of_files():
    assert to_file("nowhere/a") == Path("nowhere/a")
    with pytest.raises(ValueError, match=r"A path has a zero character.*Received: 'a\\x00b'"):
        to_path("a\0b")


def test_packed_files_may_hold_what_texts_do(tmp_path, monkeypatch):
    monkeypatch.setattr(
        input_file, "_LIMITS", {"bytes": (3, 1000), "lines": (2, 50), "elements": (0, 9)}
    )
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" * 50))
    assert read(path) == 50
    path.write_bytes(gzip.compress(b"a\tb\n" * 101))
    assert "Expected at most 58 lines, 2 for each byte" in read(path)
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(b"<tmx>" + b"<tu></tu>" * 9))
    assert "at most 9 elements" in read(tmp_path / "a.tmx.gz")
    path.write_bytes(gzip.compress(b"a\tb\n" + b"x" * 1000))
    assert "at most 1,000 bytes, 3 for each byte" in read(path)


def test_rows_that_are_no_rows():
    rows = [{"en": "a", "de": "b"}, "x"]
    with pytest.raises(TypeError, match=r"Row 1 of 'train' is no row\. Expected a dictionary"):
        list(open_translation(Request(rows, "en", "de")).read("train"))
    with pytest.raises(ValueError, match=r"ha(ve|s) no split 'x{80}'") as error:
        load_translation(rows, source="en", target="de", split="x" * 10**6)
    assert len(str(error.value)) < LONGEST_SENTENCE


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("a CDATA 'x'", "a value for all elements"),
        (" ".join(f"a{n} CDATA #IMPLIED" for n in range(1001)), "more than 1,000 attributes"),
    ],
)
@pytest.mark.parametrize("ending", ["tmx", "xlf"])
def test_attributes_that_each_element_would_get_are_refused(tmp_path, ending, declared, said):
    """A half megabyte of them, and as much of elements, took minutes."""
    content = hostile_data.ordinary(ending).decode()
    at = content.index("<tmx" if ending == "tmx" else "<xliff")
    path = tmp_path / f"a.{ending}"
    path.write_text(f"{content[:at]}<!DOCTYPE x [<!ATTLIST tu {declared}>]>{content[at:]}")
    assert said in read(path)
    path.write_text(f"{content[:at]}<!DOCTYPE x [<!ATTLIST tu a CDATA #IMPLIED>]>{content[at:]}")
    assert read(path) >= 1


def test_a_long_line_of_po_takes_little_memory(tmp_path):
    """The stack of the pattern would have 160 bytes for each character."""
    (tmp_path / "a.po").write_text(f'msgid "a"\nmsgstr "{"b" * 2_000_000}"\n')
    assert "1 longer than 1,000 characters" in read(tmp_path / "a.po")  # and in how much memory


def test_the_forms_of_a_message_are_not_looked_through_at_each_line(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(
        gettext_po._Message,
        "translations",
        property(lambda message: counted.append(1) or list(message.texts.values())[1:]),
    )
    forms = "".join(f'msgstr[{n}] "a"\n' for n in range(9))
    (tmp_path / "a.po").write_text(f'msgid "a"\nmsgid_plural "b"\n{forms}' + '""\n' * 500)
    assert read(tmp_path / "a.po") == 2
    assert len(counted) < 50


def test_the_directory_of_an_archive_is_read_once(tmp_path, monkeypatch):
    """For each file in it, it would take the square of their number."""
    counted = []
    original = zipfile.ZipFile._RealGetContents
    monkeypatch.setattr(
        zipfile.ZipFile, "_RealGetContents", lambda archive: counted.append(1) or original(archive)
    )
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(30):
            archive.writestr(f"part{number}.tsv", f"en\tde\na{number}\tb\n")
    found = open_translation(Request(path, "en", "de"))
    assert len(list(found.read("train"))) == 30
    before = found.fingerprint()
    assert len(counted) < 5
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("part0.tsv", "en\tde\nother\tb\n")
    again = open_translation(Request(path, "en", "de"))
    assert list(again.read("train")) == [("other", "b")]
    assert again.fingerprint() != before
