"""Files of sentence pairs made to harm whoever reads them, each about a megabyte or less.

`attacks.py` reads them and measures; the tests read some.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

MEGABYTE = 1_000_000


def _tmx(body: str, attributes: str = "") -> bytes:
    return f"<tmx{attributes}><body>{body}</body></tmx>".encode()


def _variants(languages: list[str]) -> str:
    return "".join(
        f'<tuv xml:lang="{language}"><seg>{number}</seg></tuv>'
        for number, language in enumerate(languages)
    )


def _repeated(unit: bytes, size: int = MEGABYTE) -> bytes:
    return unit * (size // len(unit))


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def _packed(pack: Callable[[bytes], bytes], unit: bytes, times: int) -> bytes:
    """Many parts, each of which is packed by itself: they stand for the whole one after another."""
    return pack(_repeated(unit, 10 * MEGABYTE)) * times


def _parquet(text: str, rows: int) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    schema = pyarrow.schema([("en", pyarrow.string()), ("de", pyarrow.string())])
    some = min(rows, 100 if len(text) > 1000 else 1_000_000)
    with pyarrow.parquet.ParquetWriter(out, schema, compression="gzip") as writer:
        table = pyarrow.table({"en": [text] * some, "de": [text] * some}, schema)
        for _ in range(rows // some):
            writer.write_table(table)
    return out.getvalue()


def _zstandard(content: bytes) -> bytes:
    import pyarrow

    return pyarrow.compress(content, codec="zstd", asbytes=True)


def _po(unit: str, size: int = MEGABYTE) -> bytes:
    return _repeated(unit.encode(), size)


_DIGITS = "1" * 200_000 + "x"
_BLANKS = "a" + " " * 200_000 + "b"

_ATTRIBUTES = " ".join(f"a{number} CDATA 'x'" for number in range(25_000))

# By what they do. The name of a file says how it is read.
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a line of 8 MB": ("a.tsv", lambda: b"a\tb\n" + b"x" * 8 * MEGABYTE + b"\ty\nc\td\n"),
    "a line of 8 MB that is no JSON": ("a.jsonl", lambda: b'{"en": "' + b"x" * 8 * MEGABYTE),
    "a string of 3 MB that does not end": ("a.json", lambda: b'[{"en": "' + b"x" * 3 * MEGABYTE),
    "lines alone": ("a.tsv", lambda: _repeated(b"\n")),
    "tabs alone": ("a.tsv", lambda: _repeated(b"\t")),
    "a header of 300,000 names": (
        "a.csv",
        lambda: ",".join(map(str, range(150_000))).encode() + b"\na,b\n",
    ),
    "rows of commas": ("a.csv", lambda: _repeated(b"," * 1000 + b"\n")),
    "a mark that is not closed": ("a.csv", lambda: b'en,de\n"' + _repeated(b"x\n", 8 * MEGABYTE)),
    "digits and a letter": ("a.tsv", lambda: f"{_DIGITS}\t{_DIGITS}\n".encode() * 3),
    "blanks between letters": ("a.csv", lambda: f"{_BLANKS},{_BLANKS}\na,b\n".encode()),
    "a control character in each name": ("a.csv", lambda: b"\x1b[2Jen,\x1b[2Jde\x07\na,b\n"),
    "brackets": ("a.json", lambda: b"[" * MEGABYTE),
    "a list of small lists": ("a.json", lambda: b"[" + _repeated(b"[],") + b"[]]"),
    "an object of 100,000 keys": (
        "a.jsonl",
        lambda: json.dumps({str(number): "x" for number in range(100_000)}).encode(),
    ),
    "a number of a million digits": ("a.jsonl", lambda: b'{"en": ' + b"9" * MEGABYTE + b"}"),
    "a text where an object was": (
        "a.jsonl",
        lambda: (
            b'{"translation": {"en": "a", "de": "b"}}\n{"translation": "' + b"x" * MEGABYTE + b'"}'
        ),
    ),
    "2 GB of zeros, .gz": ("a.tsv.gz", lambda: _packed(gzip.compress, b"\0", 200)),
    "2 GB of lines, .gz": ("a.tsv.gz", lambda: _packed(gzip.compress, b"a\tb\n", 200)),
    "2 GB of lines, .xz": ("a.tsv.xz", lambda: _packed(lzma.compress, b"a\tb\n", 200)),
    "2 GB of lines, .bz2": ("a.tsv.bz2", lambda: _packed(bz2.compress, b"a\tb\n", 200)),
    "2 GB of lines, .zst": ("a.tsv.zst", lambda: _packed(_zstandard, b"a\tb\n", 200)),
    "2 GB of objects, .json.gz": ("a.json.gz", lambda: _packed(gzip.compress, b'[{"en":1},', 200)),
    "2 GB of messages, .po.gz": (
        "a.po.gz",
        lambda: _packed(gzip.compress, b'msgid "a"\nmsgstr "b"\n\n', 200),
    ),
    "2 GB of units, .tmx.gz": (
        "a.tmx.gz",
        lambda: (
            gzip.compress(b"<tmx><body>")
            + _packed(gzip.compress, b'<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>', 200)
        ),
    ),
    "a file in a .zip, 1,000 times as large": (
        "a.zip",
        lambda: _zip({"train.en": bytes(300 * MEGABYTE), "train.de": bytes(300 * MEGABYTE)}),
    ),
    "a .gz in a .zip": ("a.zip", lambda: _zip({"a.tsv.gz": _packed(gzip.compress, b"\0", 900)})),
    "names of a .zip that lead out": ("a.zip", lambda: _zip({"../../train.tsv": b"a\tb\n"})),
    "5,000 files in a .zip": (
        "a.zip",
        lambda: _zip({f"{number}.tsv": b"en\tde\na\tb\n" for number in range(5000)}),
    ),
    "a text of 1 MB in 10,000 rows": ("a.parquet", lambda: _parquet("x" * MEGABYTE, 10_000)),
    "ten million rows": ("a.parquet", lambda: _parquet("x", 10_000_000)),
    "messages of one letter": ("a.po", lambda: _po('msgid "a"\nmsgstr "b"\n\n')),
    "a message of a million lines": ("a.po", lambda: b'msgid ""\n' + _po('"a"\n') + b'msgstr "b"'),
    "plurals": ("a.po", lambda: b'msgid "a"\nmsgid_plural "b"\n' + _po('msgstr[1] "a"\n')),
    "2,000 forms of a message": (
        "a.po",
        lambda: (
            b'msgid "a"\nmsgid_plural "b"\n'
            + b"".join(b'msgstr[%d] "a"\n' % number for number in range(2000))
            + _po('""\n')
        ),
    ),
    "a line of a megabyte in a message": (
        "a.po",
        lambda: b'msgid "a"\nmsgstr "' + b"x" * MEGABYTE + b'"\n',
    ),
    "a path for a content": ("a.po", lambda: b"/etc/hostname"),
    "1,000 variants of each language": (
        "a.tmx",
        lambda: _tmx(f"<tu>{_variants(['en', 'de'] * 1000)}</tu>"),
    ),
    "units of 30 and 30 variants": (
        "a.tmx",
        lambda: _tmx(f"<tu>{_variants(['en', 'de'] * 30)}</tu>" * 450),
    ),
    "an attribute of 8 MB": (
        "a.tmx",
        lambda: _tmx("", f' a="{"x" * 8 * MEGABYTE}"'),
    ),
    "a comment of 8 MB": ("a.tmx", lambda: _tmx(f"<!--{'x' * 8 * MEGABYTE}-->")),
    "100,000 attributes": (
        "a.tmx",
        lambda: _tmx("", "".join(f' a{number}=""' for number in range(100_000))),
    ),
    "elements in elements": ("a.tmx", lambda: _repeated(b"<tu>")),
    "a segment of 8 MB": (
        "a.tmx",
        lambda: _tmx(
            f'<tu><tuv xml:lang="en"><seg>{"x" * 8 * MEGABYTE}</seg></tuv>'
            '<tuv xml:lang="de"><seg>b</seg></tuv></tu>'
        ),
    ),
    "50,000 languages": (
        "a.tmx",
        lambda: _tmx("".join(f"<tu>{_variants([f'a{n}'])}</tu>" for n in range(20_000))),
    ),
    "entities in entities": (
        "a.tmx",
        lambda: b'<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + _tmx("&b;"),
    ),
    "a value of each attribute for every element": (
        "a.tmx",
        lambda: (
            f"<!DOCTYPE tmx [<!ATTLIST tu {_ATTRIBUTES}>]>".encode()
            + _tmx("<tu/>" * (MEGABYTE // 10))
        ),
    ),
    "a language that leads out": (
        "a.xlf",
        lambda: (
            b'<xliff version="1.2"><file source-language="en" target-language="../../x">'
            b"<body><trans-unit><source>a</source><target>b</target></trans-unit></body></file>"
            b"</xliff>"
        ),
    ),
    "units without a target": ("a.xlf", lambda: b"<xliff>" + _repeated(b"<unit><source/></unit>")),
    "a charset that is none": (
        "a.po",
        lambda: b'msgid ""\nmsgstr "charset=unicode_escape\\n"\n\nmsgid "a"\nmsgstr "b"\n',
    ),
}


def ordinary(ending: str) -> bytes:
    """A small file that nobody has changed, as a name with such an ending has it."""
    pairs = [(f"A dog, {number}.", f"Ein Hund, {number}.") for number in range(20)]
    rows = [{"en": source, "de": target} for source, target in pairs]
    if ending in ("json", "jsonl"):
        lines = "\n".join(map(json.dumps, rows))
        return (json.dumps(rows) if ending == "json" else lines).encode()
    if ending in ("tsv", "csv"):
        separator = "\t" if ending == "tsv" else ";"
        return "".join(f'{source}{separator}"{target}"\n' for source, target in pairs).encode()
    if ending == "po":
        head = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text; charset=utf-8\\n"\n\n'
        return (head + "".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in pairs)).encode()
    if ending == "zip":
        return _zip({f"train.{one}": ordinary("tsv") for one in ("en", "de")})
    if ending == "parquet":
        return _parquet("A dog.", 20)
    units = {
        "tmx": (
            '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
        ),
        "xlf": "<trans-unit><source>{}</source><target>{}</target></trans-unit>",
    }
    body = "".join(units[ending].format(*pair) for pair in pairs)
    if ending == "tmx":
        return _tmx(body, ' version="1.4"')
    languages = 'source-language="en" target-language="de"'
    return f'<xliff version="1.2"><file {languages}><body>{body}</body></file></xliff>'.encode()


def write(folder: Path, name: str) -> Path:
    """Writes one of the files into a folder."""
    file, content = FILES[name]
    path = folder / file
    path.write_bytes(content())
    return path


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    return path


SPECIAL: dict[str, Callable[[Path], Path]] = {
    "a pipe": lambda folder: _pipe(folder / "pipe.tsv"),
    "a socket": lambda folder: _socket(folder / "socket.tsv"),
    "a device": lambda folder: Path("/dev/zero"),
    "a folder": lambda folder: folder,
    "a name with a zero character": lambda folder: folder / "a\0b.tsv",
}
"""What stands where a file is expected; each makes one in a folder, and returns its path."""
