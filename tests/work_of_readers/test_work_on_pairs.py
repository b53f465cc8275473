"""Files of sentence pairs made to harm: one twice as large takes twice the work."""

import bz2
import functools
import gzip
import io
import json
import lzma
import shutil
import sys
from pathlib import Path

import pytest
from counted_work import SIZE, Text, naming, require_linear, write

from keras_addnorm.data import readers
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.readers import input_file, xml_stream
from keras_addnorm.data.request import Request

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_data

sys.path.pop(0)


def test_work_that_grows_with_the_square_is_seen():
    sizes = []

    def read_each_with_each():
        for _ in range(sizes[-1] ** 2 // 2):
            len("")

    def read_in_a_list():
        names = [Text(number) for number in range(sizes[-1])]
        assert all(Text(number) in names for number in range(sizes[-1]))

    def read_each():
        for _ in range(300 * sizes[-1]):
            len("")

    for read in (read_each_with_each, read_in_a_list):
        with pytest.raises(AssertionError):
            require_linear(sizes.append, read)
    require_linear(sizes.append, read_each)


def read_pairs(path):
    found = open_translation(Request(path, "en", "de"))
    found.fingerprint()
    for _ in found.read("train"):
        pass


def xml(body, ending, start=""):
    ends = hostile_data.ordinary(ending).decode()
    at = ends.index("<body>") + len("<body>")
    return f"{start}{ends[:at]}{body}{ends[at:]}"


UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'
TRANS_UNIT = "<trans-unit><source>{}</source><target>b</target></trans-unit>"
OBJECT = '{"en": "a", "de": "b"}'


def of_xml(ending, unit):
    return {
        "units": lambda n: xml(unit.format("a") * n, ending),
        "elements in elements": lambda n: xml("<x>" * n + "</x>" * n, ending),
        "elements that do not end": lambda n: xml("<tu>" * n, ending),
        "codes": lambda n: xml(unit.format("a<ph>x</ph><hi>y</hi>" * n), ending),
        "codes in codes": lambda n: xml(unit.format("<ph>" * n + "a" + "</ph>" * n), ending),
        "characters by their numbers": lambda n: xml(unit.format("&#65;\n" * n), ending),
        "entities of HTML": lambda n: xml(
            unit.format("&nbsp;" * n), ending, f'<!DOCTYPE {ending} SYSTEM "a.dtd">'
        ),
        "attributes": lambda n: xml(
            f"<x{''.join(f' a{i}={chr(34) * 2}' for i in range(n))}/>", ending
        ),
        "a long attribute": lambda n: xml(f'<x a="{"y" * 64 * n}"/>', ending),
        "a long comment": lambda n: xml(f"<!--{'y' * 64 * n}-->", ending),
        "a tag that does not end": lambda n: xml(f"<x {'y' * 64 * n}", ending),
        "names of elements": lambda n: xml("".join(f"<x{i}/>" for i in range(n)), ending),
        "declared attributes": lambda n: xml(
            "<tu/>" * n,
            ending,
            f"<!DOCTYPE x [<!ATTLIST tu{''.join(f' a{i} CDATA #IMPLIED' for i in range(n))}>]>",
        ),
    }


FORMATS = {
    "tsv": {
        "rows": lambda n: "a\tb\n" * n,
        "empty lines": lambda n: "\n" * n,
        "tabs": lambda n: "\t" * n,
        "rows of tabs": lambda n: f"{'x' + chr(9) * n}\n" * 20,
        "names": lambda n: "\t".join(f"x{i}" for i in range(n)) + "\na\tb\n",
        "names of languages": lambda n: "\t".join(["en", "de"] * n) + "\na\tb\n",
        "a long line": lambda n: "x" * 64 * n + "\ty\n",
        "carriage returns": lambda n: "a\tb\r" * n,
        "digits": lambda n: "1" * n + "x\t" + "1" * n + "\n",
    },
    "csv": {
        "rows": lambda n: "a,b\n" * n,
        "quotation marks": lambda n: 'en,de\n"' + '""' * n + '",b\n',
        "a mark that is not closed": lambda n: 'en,de\n"' + "x\n" * n,
        "a row of commas": lambda n: "," * n,
        "rows of marks": lambda n: 'en,de\n"a\nb",c\n' * n,
        "names": lambda n: ",".join(f"x{i}" for i in range(n)) + "\na,b\n",
        "semicolons and commas": lambda n: ";," * n + "\n" + "a;b\n" * n,
    },
    "jsonl": {
        "objects": lambda n: f"{OBJECT}\n" * n,
        "keys": lambda n: json.dumps({f"x{i}": "a" for i in range(n)}),
        "keys of a translation": lambda n: json.dumps(
            {"translation": {f"x{i}": "a" for i in range(n)}}
        ),
        "a list": lambda n: f"[{OBJECT}{f', {OBJECT}' * n}]",
        "a list on lines": lambda n: "[\n" + ",\n".join([OBJECT] * n) + "\n]",
        "lists in lists": lambda n: f"[{OBJECT}, {'[' * n}",
        "a list of small lists": lambda n: "[" + "[]," * n + "[]]",
        "a text that does not end": lambda n: f'[{OBJECT}, {{"en": "' + "x" * 64 * n,
        "blanks": lambda n: f"[{OBJECT}{' ' * 64 * n}, {OBJECT}]",
        "digits": lambda n: f"[{OBJECT}, {'9' * 10 * n}]",
        "escapes": lambda n: '{"en": "' + "\\u0041" * n + '", "de": "b"}',
    },
    "parquet": {
        "rows": lambda n: hostile_data._parquet("a", n),
        "columns": lambda n: table_of_columns(n),
        "groups of rows": lambda n: hostile_data._parquet("a" * 1001, 100 * (1 + n // 100)),
    },
    "tmx": {
        **of_xml("tmx", UNIT),
        "variants": lambda n: xml(f"<tu>{hostile_data._variants(['en', 'de'] * n)}</tu>", "tmx"),
        "languages": lambda n: xml(
            f"<tu>{hostile_data._variants([f'x-a{i}' for i in range(n // 2)])}</tu>", "tmx"
        ),
        "units of other languages": lambda n: xml(
            # Of others for each size, as those that were looked at are kept.
            "".join(f"<tu>{hostile_data._variants([f'x-a{n}a{i}'])}</tu>" for i in range(n)),
            "tmx",
        ),
    },
    "xliff": {
        **of_xml("xlf", TRANS_UNIT),
        "alternatives": lambda n: xml(
            f"<trans-unit>{'<alt-trans><source>a</source></alt-trans>' * n}</trans-unit>", "xlf"
        ),
        "sources": lambda n: xml(f"<trans-unit>{'<source>a</source>' * n}</trans-unit>", "xlf"),
        "segments": lambda n: (
            '<xliff version="2.0" srcLang="en" trgLang="de"><file><unit>'
            + '<segment state="final"><source>a</source><target>b</target></segment>' * n
            + "</unit></file></xliff>"
        ),
    },
    "po": {
        "messages": lambda n: 'msgid "a"\nmsgstr "b"\n\n' * n,
        "messages with contexts": lambda n: 'msgctxt "c"\nmsgid "a"\nmsgstr "b"\n' * n,
        "a message of lines": lambda n: 'msgid ""\n' + '"a"\n' * n + 'msgstr "b"\n' + '"b"\n' * n,
        "plurals": lambda n: (
            'msgid "a"\nmsgid_plural "b"\n' + "".join(f'msgstr[{i}] "a"\n' for i in range(n))
        ),
        "plurals and lines": lambda n: (
            'msgid "a"\nmsgid_plural "b"\n'
            + "".join(f'msgstr[{i}] "a"\n""\n' for i in range(min(n, 999)))
            + '""\n' * n
        ),
        "comments in a message": lambda n: 'msgid "a"\n' + "#, fuzzy\n" * n + 'msgstr "b"\n',
        "flags": lambda n: "#" + ", fuzzy" * n + '\nmsgid "a"\nmsgstr "b"\n',
        "escapes": lambda n: 'msgid "' + "\\n\\\\" * n + '"\nmsgstr "b"\n',
        "blanks": lambda n: "msgid" + " " * n + '"a"\nmsgstr "b"' + " " * n,
        "obsolete messages": lambda n: 'msgid "a"\nmsgstr "b"\n' + '#~ msgid "a"\n' * n,
    },
}
NAMES_OF_FILES = {"xliff": "a.xlf"}


def table_of_columns(size):
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    columns = {f"x{i}": ["a"] for i in range(size)}
    pyarrow.parquet.write_table(pyarrow.table({"en": ["a"], "de": ["b"], **columns}), out)
    return out.getvalue()


@pytest.fixture
def small_portions(monkeypatch):
    """Files are read a few bytes at a time, so that what begins anew with each is seen."""
    monkeypatch.setattr(input_file, "_BYTES_AT_ONCE", 64)
    monkeypatch.setattr(xml_stream, "_BYTES_AT_ONCE", 64)


@pytest.mark.parametrize("name", readers.names())
def test_work_on_sentence_pairs_grows_with_the_file(tmp_path, small_portions, name):
    assert name in FORMATS, f"What harms the reader {name!r} belongs into FORMATS."
    path = tmp_path / NAMES_OF_FILES.get(name, f"a.{name}")
    for what, content in FORMATS[name].items():
        with naming(what):
            require_linear(
                lambda n, made=content: write(path, made(n)), functools.partial(read_pairs, path)
            )


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": hostile_data._zstandard,
}


def write_files(folder, size):
    for number in range(size):
        (folder / f"part{number}.tsv").write_bytes(b"en\tde\na\tb\n")


def write_parallel(folder, size):
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("a b\n" * size)


def _zip_of_many(size):
    return hostile_data._zip({f"part{i}.tsv": b"en\tde\na\tb\n" for i in range(size)})


@pytest.mark.parametrize("ending", input_file.COMPRESSIONS)
def test_work_on_packed_files_grows_with_their_parts(tmp_path, small_portions, ending):
    path, pack = tmp_path / f"a.tsv{ending}", PACKERS[ending]
    require_linear(lambda n: write(path, pack(b"a\tb\n") * n), lambda: read_pairs(path))


def test_work_on_archives_and_folders_grows_with_their_files(tmp_path):
    path = tmp_path / "a.zip"
    # To open a file takes a hundred calls.
    require_linear(lambda n: write(path, _zip_of_many(n)), lambda: read_pairs(path), size=SIZE // 3)
    for name, make in {"files": write_files, "two files": write_parallel}.items():
        folder = tmp_path / name

        def made(size, folder=folder, make=make):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder, size)

        with naming(name):
            require_linear(made, lambda path=folder: read_pairs(path), size=SIZE // 3)
