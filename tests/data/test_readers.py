"""Readers of formats: the same pairs from each, the line that each stands on, and what is wrong."""

import bz2
import gzip
import io
import json
import lzma
import sys
import zipfile
from csv import field_size_limit

import pyarrow
import pyarrow.parquet
import pytest

from keras_addnorm.basics.languages import fold, is_in
from keras_addnorm.data import load_translation, readers
from keras_addnorm.data.open_files import open_path
from keras_addnorm.data.readers import InputFile, RawPair
from keras_addnorm.data.readers.input_file import COMPRESSIONS
from keras_addnorm.data.request import Request

ENGLISH = ["Go on.", 'She said "no, thanks".', "It costs 3 €; really.", "Rain & snow"]
SPANISH = ["Sigue.", "Ella dijo «no, gracias».", "Cuesta 3 €; de verdad.", "Lluvia y nieve"]
PAIRS = list(zip(ENGLISH, SPANISH, strict=True))


def tsv(header=""):
    rows = [f"{a}\t{b}\tCC-BY 2.0 (France) Attribution: tatoeba.org #1" for a, b in PAIRS]
    return "\n".join([header, *rows] if header else rows) + "\n"


def csv(header, mark=","):
    rows = [f'"{a}"{mark}"{b}"'.replace('"no', '""no').replace('ks".', 'ks"".') for a, b in PAIRS]
    return "\n".join([header, *rows] if header else rows) + "\n"


def jsonl(row):
    return "\n".join(json.dumps(row(a, b), ensure_ascii=False) for a, b in PAIRS)


def parquet(nested, kind="parquet"):
    rows = [{"en": a, "es": b} for a, b in PAIRS]
    columns = {"id": list(range(4)), "translation": rows}
    if not nested:
        columns = {"es": SPANISH, "en": ENGLISH, "score": [0.5] * 4}
    table = pyarrow.table(columns)
    out = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, out, row_group_size=3)
    else:
        with pyarrow.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return out.getvalue()


def escaped(text):
    return text.replace("&", "&amp;")


def tmx(doctype="", units=None):
    units = units or "\n".join(
        f'<tu><tuv xml:lang="en-GB"><seg>{escaped(a)}</seg></tuv>'
        f'<tuv xml:lang="es"><seg>{escaped(b)}</seg></tuv></tu>'
        for a, b in PAIRS
    )
    head = '<header srclang="en-GB" datatype="plaintext"/>'
    return (
        f'<?xml version="1.0"?>\n{doctype}<tmx version="1.4">{head}<body>\n{units}\n</body></tmx>'
    )


def xliff(units=None):
    units = units or "\n".join(
        f"<trans-unit id='{i}'><source>{escaped(a)}</source><target>{escaped(b)}</target>"
        "</trans-unit>"
        for i, (a, b) in enumerate(PAIRS)
    )
    head = (
        '<file source-language="en-US" target-language="es-ES" datatype="plaintext" original="x">'
    )
    return f'<xliff version="1.2">\n{head}<body>\n{units}\n</body></file></xliff>'


def xliff2(units=None):
    units = units or "\n".join(
        f"<unit id='{i}'><segment state='final'><source>{escaped(a)}</source>"
        f"<target>{escaped(b)}</target></segment></unit>"
        for i, (a, b) in enumerate(PAIRS)
    )
    head = '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" '
    return f'{head} trgLang="es">\n<file id="f">\n{units}\n</file></xliff>'


def po(units=None):
    quoted = [[text.replace('"', '\\"') for text in pair] for pair in PAIRS]
    units = units or "\n\n".join(f'msgid "{a}"\nmsgstr "{b}"' for a, b in quoted)
    head = '"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: es\\n"'
    return f'msgid ""\nmsgstr ""\n{head}\n\n{units}\n'


# Name of the file, its contents, and the line of the second pair.
FORMATS = {
    "spa.txt": (tsv(), 2),
    "pairs.tsv": (tsv("English\tSpanish\tLicence"), 3),
    "turned.tsv": ("es\ten\n" + "".join(f"{b}\t{a}\n" for a, b in PAIRS), 3),
    "ids.tsv": ("".join(f"{i}7\t{a}\t{i}8\t{b}\n" for i, (a, b) in enumerate(PAIRS)), 2),
    "bom.tsv": ("\ufeffen\tes\r\n" + "".join(f"{a}\t{b}\r\n" for a, b in PAIRS), 3),
    "pairs.csv": (csv("en,es"), 3),
    "semicolons.csv": (csv("source;target", mark=";"), 3),
    "no_header.csv": (csv(""), 2),
    "flat.jsonl": (jsonl(lambda a, b: {"es": b, "en": a, "n": "1"}), 2),
    "nested.jsonl": (jsonl(lambda a, b: {"translation": {"en": a, "es": b}}), 2),
    "array.json": (json.dumps([{"sentence_en": a, "sentence_es": b} for a, b in PAIRS]), 2),
    "nested.parquet": (parquet(nested=True), 2),
    "flat.parquet": (parquet(nested=False), 2),
    "stream.arrow": (parquet(nested=True, kind="arrow"), 2),
    "memory.tmx": (tmx('<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'), 5),
    "memory.xml": (tmx(), 4),
    "texts.xlf": (xliff(), 4),
    "texts.xliff": (xliff2(), 4),
    "texts.po": (po(), 9),
    "no_ending": (tsv(), 2),
}


@pytest.mark.parametrize("name", FORMATS)
def test_m1_every_format_gives_the_same_pairs_in_both_directions(tmp_path, name):
    content, second_line = FORMATS[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    pairs = raw_pairs(path, "en", "es")
    assert [(pair.source, pair.target) for pair in pairs] == PAIRS
    assert pairs[1].line == second_line
    if name not in (
        "ids.tsv",
        "no_header.csv",
        "semicolons.csv",
    ):  # These do not say which column is which.
        turned = raw_pairs(path, "es", "en")
        assert [(pair.target, pair.source) for pair in turned] == PAIRS


@pytest.mark.parametrize("name", ["pairs.tsv", "nested.parquet", "memory.tmx"])
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_m2_every_compression_is_read(tmp_path, name, ending):
    content = FORMATS[name][0]
    content = content if isinstance(content, bytes) else content.encode()
    compress = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
    }
    path = tmp_path / (name + ending)
    path.write_bytes(compress[ending](content))
    assert [(a, b) for a, b, _ in raw_pairs(path, "en", "es")] == PAIRS
    path.write_bytes(b"plain text, and more of it")
    with pytest.raises(ValueError, match=rf"{name}{ending} cannot be decompressed"):
        raw_pairs(path, "en", "es")


def test_languages_are_found_where_the_file_names_two(tmp_path):
    for name, languages in (
        ("pairs.csv", ("en", "es")),
        ("turned.tsv", ("es", "en")),
        ("nested.parquet", ("en", "es")),
        ("nested.jsonl", ("en", "es")),
        ("memory.tmx", ("en-gb", "es")),
        ("texts.xlf", ("en-US", "es-ES")),
    ):
        content = FORMATS[name][0]
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        found = open_path(Request(tmp_path / name, None, None))
        assert (found.source, found.target) == languages
        assert len(list(found.sources[0].raw_pairs())) == 4
    (tmp_path / "spa.txt").write_text(tsv())
    with pytest.raises(ValueError, match=r"spa.txt does not say which languages .*Say both"):
        open_path(Request(tmp_path / "spa.txt", None, "es"))


def test_a_file_that_does_not_say_is_read_from_left_to_right_and_it_is_said(tmp_path, caplog):
    path = tmp_path / "two.tsv"
    path.write_text("uno\tone\ndos\ttwo\n")
    found = open_path(Request(path, "es", "en"))
    assert found.notes == (
        f"{path} does not say which column is which: column 1 is taken for 'es', column 2 for "
        "'en'.\n  es: uno / en: one",
    )
    assert next(found.sources[0].raw_pairs())[:2] == (b"uno", b"one")
    pairs = load_translation(path, source="es", target="en", split="train")
    assert texts(pairs)[1] == ("dos", "two")
    assert found.notes[0] in caplog.messages


@pytest.mark.parametrize(
    ("name", "text", "choice", "expected"),
    [
        ("a.tsv", "x\ty\tz\n", {"source_column": "3", "target_column": "1"}, ("z", "x")),
        ("a.csv", "q,a\nx,y\n", {"source_column": "a", "target_column": "q"}, ("y", "x")),
        ("a.csv", "en,a,es\nx,y,z\n", {"source_column": "a", "target_column": "es"}, ("y", "z")),
        ("a.dat", "en;es\nx;y\n", "csv", ("x", "y")),
        ("a.csv", "x\ty\n", {"name": "tsv"}, ("x", "y")),
        ("a.jsonl", '{"q": {"t": "x"}, "a": "y"}', {"source_column": "q.t", "target_column": "a"},
         ("x", "y")),
    ],
)  # fmt: skip
def test_columns_and_formats_that_are_named(tmp_path, name, text, choice, expected):
    path = tmp_path / name
    path.write_text(text)
    pairs = [tuple(map(as_text, pair[:2])) for pair in raw_pairs(path, "en", "es", choice)]
    assert pairs[-1] == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", r"a.txt is empty"),
        ("a.csv", "", r"a.csv is empty"),
        ("a.txt", "no tab here\n", r"a.txt, line 1: expected two columns .*'no tab here'.*folder"),
        ("a.csv", 'en,es\n"x,y\n', r"a.csv, line 2: not CSV .*quotation marks"),
        ("a.jsonl", '{"en": "x", "es": "y"}\n{"en": \n', r"a.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"en": "x", "es": "y"}\n3\n', r"a.jsonl, line 2: expected an object"),
        ("a.jsonl", '{"en": "x", "es": "y"}\n{"en": 3, "es": "y"}', r"line 2: .*Received: int '3'"),
        ("a.jsonl", '{"q": "x", "a": "y", "n": "z"}', r"no columns for 'en' and 'es'. It has 'q'"),
        ("a.tmx", "<tmx><body><tu>\n</body></tmx>", r"a.tmx, line 2: not well-formed XML"),
        ("a.tmx", tmx().replace('"es"', '"fr"'), r"no unit in both 'en' and 'es'.*'en-gb', 'fr'"),
        ("a.xlf", xliff().replace("es-ES", "fr"), r"a.xlf is from 'en-US' to 'fr'. Received: 'en'"),
        ("a.po", 'msgid "x"\nmsgstr "y" z\n', r"a.po cannot be read as PO .*line 2"),
        ("a.parquet", "PAR1 and no more", r"a.parquet cannot be read as Parquet or Arrow"),
        ("a.parquet", f"PAR1{50 * chr(0)}PAR1", r"a.parquet cannot be read as Parquet or Arrow"),
        ("a.tsv", "\xff\xfee\x00n\x00", r"a.tsv is UTF-16 text, as its byte order mark says"),
        ("a.jsonl", '{"t": {"en": "x", "es": "y"}}\n{"t": "z"}',
         r"a.jsonl, line 2: expected an object with 'en' in 't'. Received: str 'z'"),
        ("a.csv", f"en,es\n{'x' * (1 << 24)}x,y\n", r"line 2: .*quotation mark, or take out"),
        ("a.po", 'msgid "a\n"b"\nmsgstr "c"\n', r"a.po cannot be read as PO .line 1, 'msgid \"a'"),
        ("a.po", "msgid\n", r"a.po cannot be read as PO .line 1, 'msgid', is no keyword"),
        ("a.po", "", r"a.po cannot be read as PO .it has no message"),
        ("a.zip", "PK no zip", r"expected two columns"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_the_file_and_the_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1") if "\xff" in text else text.encode())
    with pytest.raises(ValueError, match=message):
        raw_pairs(path, "en", "es")


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_huge_cell_of_csv_is_left_out_and_stops_nothing(tmp_path, quote):
    path, limit = tmp_path / "a.csv", field_size_limit()
    path.write_text(f"en,es\na,b\n{quote}{'x' * 140_000}{quote},y\nc,d\n")
    split = open_path(Request(path, "en", "es")).splits["train"]
    assert list(split.texts()) == [("a", "b"), ("c", "d")]
    report = split.counted()
    assert (report.kept, report.too_long, report.first_bad_lines) == (2, 1, (3,))
    assert field_size_limit() == limit


def test_lines_of_json_that_are_nested_too_deeply_are_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"en": "x", "es": "y"}\n{"en": ' + "[" * 100_000)
    with pytest.raises(ValueError, match=r"a.jsonl, line 2: not JSON .it is nested too deeply"):
        raw_pairs(path, "en", "es")


@pytest.mark.parametrize("name", ["a.tmx", "a.xlf"])
@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">',
        '<!ENTITY b SYSTEM "file:///etc/hostname">',
        '<!ENTITY % b SYSTEM "http://localhost/x.dtd"> %b;',
    ],
)
def test_m1_entities_are_refused(tmp_path, name, declared):
    text = (
        f"<!DOCTYPE tmx [{declared}]>\n<tmx><body><tu><tuv><seg>&b;</seg></tuv></tu></body></tmx>"
    )
    (tmp_path / name).write_text(text)
    with pytest.raises(
        ValueError, match=rf"{name}, line 1: declares an entity or refers to another"
    ):
        raw_pairs(tmp_path / name, "en", "es")


def test_m1_variants_and_inline_tags_of_tmx(tmp_path):
    def unit(*variants):
        return "<tu>" + "".join(
            f'<tuv {attribute}><seg>{text}</seg></tuv>' for attribute, text in variants
        ) + "</tu>"  # fmt: skip

    units = unit(
        ('xml:lang="en-GB"', "colour"), ('xml:lang="EN-us"', "color"), ('xml:lang="es"', "color es")
    ) + unit(
        ('lang="EN"', 'a <bpt i="1">&lt;b></bpt>bold<ept i="1">&lt;/b></ept> <hi>word</hi><ph/>'),
        ('lang="ES-MX"', "una palabra <ut>{}</ut>en negrita"),
    ) + unit(('xml:lang="en"', "alone"), ('xml:lang="fr"', "seul"))  # fmt: skip
    path = tmp_path / "a.tmx"
    path.write_text(tmx(units=units))
    assert [pair[:2] for pair in raw_pairs(path, "en", "es")] == [
        ("colour", "color es"),
        ("color", "color es"),
        ("a bold word", "una palabra en negrita"),
    ]
    assert [pair[:2] for pair in raw_pairs(path, "en-US", "es")] == [("color", "color es")]


def test_m1_only_finished_units_of_xliff(tmp_path):
    def unit(attributes, state, text):
        return (
            f"<trans-unit {attributes}><source>{text}</source><target {state}>t {text}</target>"
            "<alt-trans><source>old</source><target>older</target></alt-trans></trans-unit>"
        )

    units = [
        unit("", "", "plain"),
        unit("approved='yes'", "state='needs-review-translation'", "approved"),
        unit("approved='no'", "state='translated'", "refused"),
        unit("", "state='needs-translation'", "unfinished"),
        unit("", "state='new'", "new"),
        unit("", "state='final'", "a <g id='1'>g</g> <x id='2'/><bpt id='3'>[b]</bpt>tag"),
        unit("translate='no'", "", "code"),
        "<trans-unit><source>no target</source></trans-unit>",
    ]
    path = tmp_path / "a.xlf"
    path.write_text(xliff("".join(units)))
    sources = [pair.source for pair in raw_pairs(path, "en", "es")]
    assert sources == ["plain", "approved", "a g tag"]

    units = [
        f"<unit id='u'><segment {state}><source>{text}</source><target>t</target></segment></unit>"
        for text, state in (("one <pc id='1'>tag</pc>", "state='reviewed'"), ("raw", ""))
    ]
    path.write_text(xliff2("".join(units)))
    assert [pair.source for pair in raw_pairs(path, "en", "es")] == ["one tag"]


def test_m1_only_finished_messages_of_po(tmp_path):
    path = tmp_path / "a.po"
    path.write_text(
        po(
            '#, fuzzy\nmsgid "unsure"\nmsgstr "inseguro"\n\n'
            'msgid "empty"\nmsgstr ""\n\n'
            '#~ msgid "old"\n#~ msgstr "viejo"\n\n'
            'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d archivo"\n'
            'msgstr[1] "%d archivos"\n'
        )
    )
    assert [pair[:2] for pair in raw_pairs(path, "en", "es")] == [
        ("%d file", "%d archivo"),
        ("%d files", "%d archivos"),
    ]


def test_rows_with_too_few_columns_and_bytes_that_are_not_utf8_are_counted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"one\tuno\ntwo\nthree\ttr\xffs\n\nfour\tcuatro\n")
    pairs = load_translation(path, source="en", target="es", split="train")
    assert texts(pairs) == [("one", "uno"), ("four", "cuatro")]
    every = load_translation(path, source="en", target="es", split="train", keep_every_pair=True)
    assert texts(every) == [
        ("one", "uno"),
        ("two", ""),
        ("three", "tr\ufffds"),
        ("", ""),
        ("four", "cuatro"),
    ]


def test_m1_a_file_is_the_split_train_and_is_prepared_again_when_it_changes(tmp_path):
    path = tmp_path / "spa.txt"
    path.write_text(tsv())

    def load(split, **choices):
        return texts(load_translation(path, split=split, **choices))

    assert load("train", source="en", target="es") == PAIRS
    assert load("train[1:2]", source="es", target="en") == [PAIRS[1][::-1]]
    path.write_text(tsv().replace("Sigue", "Continúa"))
    assert load("train[:1]", source="en", target="es") == [("Go on.", "Continúa.")]
    with pytest.raises(ValueError, match=r"the file .*spa.txt has no split 'test'"):
        load("test", source="en", target="es")
    with pytest.raises(FileNotFoundError, match=r"no file .*deu.txt"):
        load_translation(tmp_path / "deu.txt", source="en", target="de")


def test_m1_the_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(tsv().encode())))
    choices = {"source": "en", "target": "es", "split": "train"}
    assert texts(load_translation("-", **choices)) == PAIRS
    with pytest.raises(ValueError, match="The standard input is empty"):
        load_translation("-", **choices)


@pytest.mark.parametrize("inside", ["moses", "tmx", "anki"])
def test_m1_a_zip_archive(tmp_path, inside):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "about\tthis")
        archive.writestr("_about.txt", "about\tthis")
        if inside == "moses":
            archive.writestr("Tatoeba.en-es.en", "\n".join(ENGLISH))
            archive.writestr("Tatoeba.en-es.es", "\n".join(SPANISH))
            archive.writestr("Tatoeba.en-es.ids", "1\t2\n")
        elif inside == "tmx":
            archive.writestr("en-es.tmx", tmx())
        else:
            archive.writestr("spa.txt", tsv())
    pairs = raw_pairs(path, "en", "es")
    assert [(as_text(a), as_text(b)) for a, b, _ in pairs] == PAIRS


def test_m8_rows_of_hugging_face(tmp_path):
    rows = [{"id": "1", "translation": {"en": a, "es": b}} for a, b in PAIRS]
    choices = {"source": "es", "target": "en"}
    assert texts(load_translation(rows, split="train", **choices)) == [p[::-1] for p in PAIRS]
    splits = {"train": rows[:3], "validation": [{"en": "x", "es": "y"}, {"en": "", "es": "z"}]}
    loaded = load_translation(splits, **choices)
    assert {name: texts(pairs) for name, pairs in loaded.items()} == {
        "train": [p[::-1] for p in PAIRS[:3]],
        "validation": [("y", "x")],
    }
    assert texts(load_translation(splits, split="train[1:2]+dev", **choices)) == [
        PAIRS[1][::-1],
        ("y", "x"),
    ]
    assert len(texts(load_translation(splits, split="dev", keep_every_pair=True, **choices))) == 2
    with pytest.raises(ValueError, match=r"Rows need source and target"):
        load_translation(rows)
    with pytest.raises(ValueError, match=r"no columns for 'de' and 'fr'. It has 'id', 'transl"):
        load_translation(rows, source="de", target="fr")


@pytest.mark.parametrize(
    ("name", "module"),
    [("a.parquet", "pyarrow"), ("a.tsv.zst", "pyarrow"), ("a.tmx", "defusedxml.expatreader"),
     ("a.xlf", "defusedxml.expatreader")],
)  # fmt: skip
def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"<xliff/>")
    with pytest.raises(ImportError, match=r"needs '.*', which is not installed.*\[data\]"):
        raw_pairs(tmp_path / name, "en", "es")


def test_names_of_languages():
    assert [
        fold(name) for name in ("en-GB", "EN", "eng", "English", "ger", "zh_Hant_TW", "tlh")
    ] == [
        *["en"] * 4,
        "de",
        "zh",
        "tlh",
    ]
    assert is_in("pt-BR", "pt") and is_in("pt_BR", "pt-br") and not is_in("pt-PT", "pt-BR")


def test_a_name_above_numbers_is_a_header(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("id,question,answer\n1,Who?,¿Quién?\n2,Where?,¿Dónde?\n")
    pairs = [RawPair("Who?", "¿Quién?", 2), RawPair("Where?", "¿Dónde?", 3)]
    assert raw_pairs(path, "en", "es") == pairs
    by_number = {"source_column": "2", "target_column": "3"}
    assert raw_pairs(path, "en", "es", by_number) == pairs
    # Too little to tell: one of two columns would be a number.
    path.write_text("One,Uno\n2,2\n")
    assert len(raw_pairs(path, "en", "es")) == 2


def test_a_reader_of_ones_own_is_found_by_its_name_and_ending(tmp_path):
    import dataclasses

    from keras_addnorm.data.readers import Columns, Reader

    @dataclasses.dataclass(frozen=True)
    class Alternating(Reader):
        endings = (".two_lines",)

        def languages(self, file):
            return ()

        def columns(self, file, source, target):
            return Columns(0, 1)

        def pairs(self, file, columns):
            lines = list(file.lines())
            for number in range(0, len(lines), 2):
                yield RawPair(lines[number], lines[number + 1], number + 1)

    before = dict(readers.READERS._classes)
    try:
        readers.register("two_lines", Alternating)
        path = tmp_path / "a.two_lines"
        path.write_text("one\nuno\ntwo\ndos\n")
        assert raw_pairs(path, "en", "es")[1] == (b"two", b"dos", 3)
        assert readers.get("two_lines") == Alternating()
    finally:
        readers.READERS._classes = before


def raw_pairs(path, source, target, reader=None):
    """The pairs of a path, as text where they are UTF-8."""
    found = open_path(Request(path, source, target, reader))
    return [
        RawPair(as_text(one), as_text(other), line)
        if "two_lines" not in path.name
        else RawPair(one, other, line)
        for files in found.sources
        for one, other, line in files.raw_pairs()
    ]


def as_text(text):
    return text.decode() if isinstance(text, bytes) else text


def texts(pairs):
    return [(source.decode(), target.decode()) for source, target in pairs.as_numpy_iterator()]


def test_an_input_file_knows_its_names(tmp_path):
    file = InputFile(tmp_path / "set.zip", "deep/train.tsv.gz")
    assert (file.name, file.plain_name, file.compression) == ("train.tsv.gz", "train.tsv", ".gz")
    assert file.label == f"{tmp_path / 'set.zip'}:deep/train.tsv.gz"
