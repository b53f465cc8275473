"""Content that is no text, or that would be taken for something else: a path, a name, a code."""

import io
import json
import sys

import pytest

from keras_addnorm.basics.printing import printable
from keras_addnorm.basics.text import is_encoding_of_text, read_text, wide_encoding
from keras_addnorm.data import hold_out, load_translation
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.request import Request


def read(path, content, source="en", target="de"):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(open_translation(Request(path, source, target)).read("train"))


XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="{}"><body><trans-unit>'
    "<source>A dog.</source><target>Ein Hund.</target></trans-unit></body></file></xliff>"
)
TMX = (
    '<tmx><body><tu><tuv xml:lang="en"><seg>A dog.</seg></tuv><tuv xml:lang="{}"><seg>Ein Hund.'
    "</seg></tuv></tu></body></tmx>"
)


@pytest.mark.parametrize(("name", "text"), [("e.xlf", XLIFF), ("e.tmx", TMX)])
@pytest.mark.parametrize("language", ["../../../PWN", "/PWN", "d&#10;e", "a.b", "d&#127;"])
def test_a_language_of_a_file_is_no_path(tmp_path, name, text, language):
    path = tmp_path / name
    path.write_text(text.format(language))
    with pytest.raises(ValueError, match=rf"{name} names the language '.*form of a code") as error:
        load_translation(path, split="train")
    assert str(error.value).isprintable()
    assert [*tmp_path.rglob("*")] == [path]
    assert read(path, text.format("de-AT"), "en", "de-AT") == [("A dog.", "Ein Hund.")]


def test_the_content_of_a_po_file_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other.po"
    other.write_text('msgid "secret"\nmsgstr "geheim"\n')
    for content in (str(other), f"\n{other}", "other.po"):
        with pytest.raises(ValueError, match=r"x.po cannot be read as PO .line \d, "):
            read(tmp_path / "x.po", content)


PO = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n\n'
    'msgid "ö"\nmsgstr "ä\u2028ü"\n'
)


def test_charsets_of_po(tmp_path):
    for charset in ("UTF-8", "gb18030", "CHARSET"):
        content = PO.format(charset).encode("utf-8" if charset == "CHARSET" else charset)
        # U+2028 ends no line.
        assert read(tmp_path / "a.po", content) == [("ö", "ä\u2028ü")]
    for charset in ("unicode_escape", "idna", "rot13", "hex", "undefined", "klingon", "punycode"):
        with pytest.raises(ValueError, match=rf"a.po cannot .*charset '{charset}' is no encoding"):
            read(tmp_path / "a.po", PO.format(charset))
    with pytest.raises(ValueError, match=r"a.po cannot be read as PO .*can't decode"):
        read(tmp_path / "a.po", PO.format("UTF-8").encode("latin-1", "replace"))


@pytest.mark.parametrize("name", ["a.po", "a.xlf", "a.tsv"])
def test_a_file_without_a_pair_is_an_error(tmp_path, name):
    content = {
        "a.po": 'msgid "a"\nmsgstr ""\n',
        "a.xlf": XLIFF.format("de").replace("<target>", '<target state="new">'),
        "a.tsv": "en\tde\n",
    }[name]
    with pytest.raises(ValueError, match=rf"There is no pair of texts in {name}"):
        read(tmp_path / name, content)


DTD = '<?xml version="1.0"{}?>\n<!DOCTYPE tmx SYSTEM "a.dtd">\n'


@pytest.mark.parametrize(("name", "text"), [("a.xlf", XLIFF), ("a.tmx", TMX)])
def test_entities_of_html_are_characters_and_others_are_refused(tmp_path, name, text):
    def document(inside, encoding=""):
        return DTD.format(encoding) + text.format("de").replace("A dog.", inside)

    path = tmp_path / name
    for inside, expected in (
        ("A&nbsp;dog&hellip;", "A\xa0dog…"),
        ("&eacute;&#233;&#xe9;&amp;&lt;&quot;", 'ééé&<"'),
        ("&NotEqualTilde;", "≂̸"),
    ):
        assert read(path, document(inside))[0][0] == expected
    with pytest.raises(
        ValueError, match=rf"{name}, line 4: the entity '&foo;' is declared nowhere"
    ):
        read(path, document("a\n&foo;"))
    # Without a DTD, the parser refuses them itself.
    with pytest.raises(ValueError, match=rf"{name}, line 1: not well-formed XML .undefined entity"):
        read(path, text.format("de").replace("A dog.", "A&nbsp;dog."))


def test_encodings_of_xml(tmp_path):
    def document(encoding):
        return DTD.format(f' encoding="{encoding}"') + TMX.format("de").replace("A dog.", "Ä")

    path = tmp_path / "a.tmx"
    for encoding in ("cp932", "klingon", "utf-7", "rot13", "hex", "unicode_escape", "undefined"):
        with pytest.raises(ValueError, match=r"a.tmx, line 1: XML in an encoding that cannot"):
            read(path, document(encoding))
    assert read(path, document("ISO-8859-1").encode("latin-1"))[0][0] == "Ä"
    assert read(path, document("UTF-16").encode("utf-16"))[0][0] == "Ä"


TEXTS = {
    "ASCII": "A dog\tEin Hund\n" * 3,
    "Latin": "Größe\tá\nß\té\n",
    "Cyrillic": "Привет мир, как дела\tда\n" * 2,
    "Devanagari": "नमस्ते दुनिया यह है\tk\n" * 2,
    "Chinese": "一二三。一天\t一\n",
    "short": "x",
}
ENCODINGS = {
    **{"utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE", "utf-16": "UTF-16"},
    **{"utf-32-le": "UTF-32LE", "utf-32-be": "UTF-32BE", "utf-32": "UTF-32"},
}


@pytest.mark.parametrize("text", TEXTS)
def test_wide_encodings_are_recognised_with_and_without_a_mark(text):
    for encoding, name in ENCODINGS.items():
        content = TEXTS[text].encode(encoding)
        assert wide_encoding(content) == name
        if text != "short":  # The end of what is looked at may cut a character.
            assert wide_encoding(content[:-1]) == name
    for encoding in ("utf-8", "utf-8-sig"):
        assert wide_encoding(TEXTS[text].encode(encoding)) == ""


def test_stray_zero_bytes_are_no_wide_encoding():
    for text in ("A dog runs\0 here and there\n" * 7, "Grüße\0 n\0ow\n", "\0" * 11, ""):
        assert wide_encoding(text.encode()) == ""


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json", "a.po"])
def test_files_in_wide_encodings_are_refused_with_the_command_that_helps(tmp_path, name, encoding):
    text = {
        **{"a.tsv": "a dog\tb\n", "a.csv": "a dog,b\n", "a.jsonl": '{"en": "a", "de": "b"}\n'},
        **{"a.json": '[{"en": "a", "de": "b"}]', "a.po": 'msgid "a"\nmsgstr "b"\n'},
    }[name]
    called = ENCODINGS[encoding]
    with pytest.raises(ValueError, match=f"{name} is {called} text.*iconv -f {called} -t UTF-8"):
        read(tmp_path / name, text.encode(encoding))


def test_parallel_files_and_lists_of_words_in_wide_encodings(tmp_path):
    (tmp_path / "train.en").write_bytes("a dog\n".encode("utf-16-be"))
    (tmp_path / "train.de").write_bytes(b"ein Hund\n")
    with pytest.raises(ValueError, match=r"train.en is UTF-16BE text"):
        open_translation(Request(tmp_path, "en", "de")).read("train")
    with pytest.raises(
        ValueError, match=r"train.en' is no text in UTF-8: it is UTF-16BE.*iconv -f UTF-16BE"
    ):
        read_text(tmp_path / "train.en")
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\rc\n")
    assert read_text(tmp_path / "a.txt") == "a\nb\nc\n"


def test_a_line_with_a_zero_character_is_counted(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a dog\tein Hund\nb\0c\td\ne cat\teine Katze\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"en": "b\0c", "de": "d"}))
    for name, total in (("a.tsv", 3), ("a.jsonl", 1)):
        split = open_translation(Request(tmp_path / name, "en", "de")).splits["train"]
        assert len(list(split.placed())) == total - 1
        assert (split.report.no_text, split.report.total) == (1, total)
        assert "1 with a zero character, which no text has" in str(split.report)


def test_the_standard_input_is_called_so(monkeypatch):
    for encoding, name in (("utf-16", "UTF-16"), ("utf-32-be", "UTF-32BE")):
        content = io.BytesIO("a dog\tein Hund\n".encode(encoding))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
        with pytest.raises(ValueError, match=rf"^the standard input is {name} text") as error:
            load_translation("-", source="en", target="de")
        assert str(error.value).endswith(f": iconv -f {name} -t UTF-8 | keras-addnorm ...")


def test_names_of_files_are_printable_in_what_is_said(tmp_path):
    (tmp_path / "a\x1b[2J.tsv").write_text("a\tb\n\t\n")
    found = open_translation(Request(tmp_path / "a\x1b[2J.tsv", "en", "de"))
    assert [pair.place for pair in found.splits["train"].placed()] == [r"a\x1b[2J.tsv:1"]
    assert r"a\x1b[2J.tsv does not say" in found.notes[0]
    assert printable("a\tb\udc80\n ü") == r"a\tb\udc80\n ü"


def test_encodings_of_text():
    right = ["utf-8", "latin-1", "cp1252", "koi8-r", "cp932", "euc-jp", "gb18030", "big5", "euc-kr"]
    wrong = ["idna", "raw_unicode_escape", "utf-7", "rot13", "base64", "utf-16", "cp037", "a\0b"]
    assert [name for name in right if not is_encoding_of_text(name)] == []
    assert [name for name in wrong if is_encoding_of_text(name)] == []


def test_rows_of_bytes_are_read_as_utf8():
    rows = [{"en": "a dög".encode(), "de": b"Hund"}, {"en": b"\xff", "de": b"x"}]
    choices = {"source": "en", "target": "de", "split": "train"}
    pairs = load_translation(rows, **choices)
    assert list(pairs.as_numpy_iterator()) == [("a dög".encode(), b"Hund")]
    every = load_translation(rows, keep_every_pair=True, **choices)
    assert list(every.as_numpy_iterator())[1] == ("\ufffd".encode(), b"x")


def test_a_part_that_ends_before_it_begins(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n" * 70)
    choices = {"source": "en", "target": "de"}
    for data in (tmp_path / "a.tsv", [{"en": "a", "de": "b"}] * 70):
        with pytest.raises(ValueError, match="part of 'train' begins at pair 50 and ends at 10"):
            load_translation(data, split="train[50:10]", **choices)


def test_pairs_that_can_be_read_once_cannot_be_divided():
    with pytest.raises(TypeError, match=r"more than once.*Received: generator.*Put them in a list"):
        hold_out((f"a {n}", f"b {n}") for n in range(50))
