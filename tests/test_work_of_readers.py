"""Files made to harm: a file twice as large takes twice the work, for each reader.

Work is counted as calls, Python's own and those of C. Texts of JSON are of a class that compares in
Python, so that one which is looked for in a list counts, too. All that reads is known by its name:
a format, a family or a function `read_...` that no file here leads to is an error.
"""

import bz2
import contextlib
import dataclasses
import functools
import gzip
import importlib
import inspect
import io
import json
import lzma
import math
import pkgutil
import shutil
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from keras_addnorm.alignment import read_pharaoh
from keras_addnorm.basics import integrity
from keras_addnorm.basics.integrity import Manifest
from keras_addnorm.data import (
    AddedToken,
    ByteLevelBPETokenizer,
    ByteTokenizer,
    PieceIds,
    TextFormat,
    Tokenizer,
    TokenizerPair,
    byte_alphabet,
    byte_level_bpe,
    byte_tokenizer,
    load_tokenizer,
    readers,
    tokenizer_files,
)
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.readers import input_file, xml_stream
from keras_addnorm.data.request import Request
from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.decoding.shortlist import Lexicon
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.diagnostics.report_data import NormStatistics, SublayerReport, Verdict
from keras_addnorm.diagnostics.residual_log import COLUMNS, ResidualLog, StreamLog
from keras_addnorm.interop import (
    families,
    load_pretrained,
    make_random_folder,
    pretrained,
    tensor_files,
)
from keras_addnorm.interop.families import marian_files, text_files
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.toml_files import read_toml
from keras_addnorm.training import curves, held_variables
from keras_addnorm.training.checkpoint_file import read_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import hostile_bytes
import hostile_data
import hostile_folders

sys.path.pop(0)

# Of those who make the folders, such as a name that stands twice in a zip.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SIZE = 200
MOST, ALWAYS = 2.6, 3000
LONGEST_SENTENCE = 2100


class Text(str):
    """A text that is compared in Python."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)

    def __ne__(self, other):
        return str.__ne__(self, other)


def with_texts(value):
    """Values of JSON with texts that are compared in Python."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, list):
        return [with_texts(each) for each in value]
    if isinstance(value, dict):
        return {Text(name): with_texts(each) for name, each in value.items()}
    return value


class Work:
    """Counts the calls in a block, and keeps the functions that were called."""

    def __init__(self):
        self.calls, self.called = 0, set()

    def __enter__(self):
        def count(frame, event, argument):
            if event in ("call", "c_call"):
                self.calls += 1
            if event == "call":
                self.called.add(frame.f_code)

        self._before = sys.getprofile()
        sys.setprofile(count)
        return self

    def __exit__(self, *error):
        sys.setprofile(self._before)


class WasReadError(Exception):
    """All files of a checkpoint were read, and the model would be made."""


@contextlib.contextmanager
def naming(what):
    """Names what was read, where it took too much work."""
    try:
        yield
    except AssertionError as error:
        error.add_note(what)
        raise


def work_of(read):
    """Reads something, or hears in a sentence why not."""
    with warnings.catch_warnings(), Work() as work:
        warnings.simplefilter("ignore")
        try:
            read()
        except WasReadError:
            pass
        except (ValueError, FileNotFoundError) as error:
            assert len(str(error)) <= LONGEST_SENTENCE, str(error)[:300]
    return work


def _work_after(write, read, size):
    write(size)
    return work_of(read).calls


def require_linear(write, read, size=SIZE):
    """Requires that more of what is written takes about as much more work, not its square."""
    sizes = (size // 2, size, 2 * size)
    half, once, twice = (_work_after(write, read, each) for each in sizes)
    # What is refused early takes less work than before, and so much less each time.
    if twice - once > MOST * abs(once - half) + ALWAYS:
        # The first one may have filled what is kept for the others.
        half, once, twice = (_work_after(write, read, each) for each in sizes)
    assert twice - once <= MOST * abs(once - half) + ALWAYS, (half, once, twice)


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


# Sentence pairs.


def read_pairs(path):
    found = open_translation(Request(path, "en", "de"))
    found.fingerprint()
    for _ in found.read("train"):
        pass


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


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


# Checkpoints of other toolkits: a small folder of each family, in which each thing grows.


def ordinary(family, folder):
    path = folder / family
    if family in ("mt5", "umt5"):
        make_random_folder(family, path, num_encoder_layers=1, num_decoder_layers=1)
    else:
        hostile_folders.write_ordinary(family, path)
    if (path / "generation_config.json").exists():
        for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
            if not (path / name).exists():
                (path / name).write_text("{}")
    return path


def numbered(value, number):
    """A value like another one, and not the same."""
    if isinstance(value, str):
        return f"{value}{number}"
    if isinstance(value, bool) or not isinstance(value, int | list | dict):
        return value
    if isinstance(value, int):
        return 1000 + number
    if isinstance(value, list):
        return [numbered(value[0], number), *value[1:]] if value else value
    changed = ("content", "id")
    return {
        name: numbered(each, number) if name in changed else each for name, each in value.items()
    }


def grown(value, size):
    """What values of JSON, of YAML or of a pickle become that are too large, by a name."""
    if isinstance(value, dict):
        key, last = next(reversed(value.items()), ("x", 1))
        return {
            "more names": {**value, **{f"{key}{i}": numbered(last, i) for i in range(size)}},
            "other names": {**value, **{f"zz{i}": "x" for i in range(size)}},
        }
    if isinstance(value, list | tuple):
        last = value[-1] if value else "x"
        return {
            "more values": [*value, *(numbered(last, i) for i in range(size))],
            "a value again": [*value, *[last] * size],
        }
    if isinstance(value, str):
        return {"a long text": value + "x" * size}
    return {"numbers": list(range(size))}


def places(value, path=()):
    """Places of a value, itself among them: of each object and list some."""
    yield path
    if isinstance(value, dict | list | tuple) and len(path) < 3:
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        containers = [item for item in items if isinstance(item[1], dict | list | tuple)]
        for key, each in {**dict(containers[:2]), **dict(containers[-1:])}.items():
            yield from places(each, (*path, key))


def put(value, path, new):
    if not path:
        return new
    copy = list(value) if isinstance(value, tuple) else value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def at(value, path):
    return functools.reduce(lambda found, key: found[key], path, value)


def changes_of_values(value, write):
    """All ways to let a place of some values grow; each writes those of a size."""
    for path in places(value):
        for what in grown(at(value, path), 1):
            yield (
                f"{what} at {'/'.join(map(str, path)) or 'the top'}",
                lambda n, path=path, what=what: write(
                    put(value, path, grown(at(value, path), n)[what])
                ),
            )


def changes_of_json(path):
    yield from changes_of_values(
        json.loads(path.read_text()), lambda value: path.write_text(json.dumps(value))
    )


def changes_of_lines(path):
    text = path.read_text()
    last = text.rstrip("\n").rpartition("\n")[2]
    yield "a line again", lambda n: path.write_text(text + f"{last}\n" * n)
    yield (
        "numbered lines",
        lambda n: path.write_text(text + "".join(f"z{i}{last}\n" for i in range(n))),
    )
    yield "a long line", lambda n: path.write_text(f"{text}{last * n}\n")


def changes_of_pieces(path):
    content = path.read_bytes()
    names = ModelProto.FromString(content).pieces
    first = names[len(names) - 1].piece

    def write(pieces, kind):
        model = ModelProto.FromString(content)
        for piece in pieces:
            model.pieces.add(piece=piece, score=-1.0, type=kind)
        path.write_bytes(model.SerializeToString())

    for kind, name in ((1, "pieces"), (3, "controls"), (4, "symbols"), (5, "unused pieces")):
        yield f"more {name}", lambda n, kind=kind: write([f"q{i}z" for i in range(n)], kind)
    # As long together as many short ones.
    yield (
        "symbols that begin alike",
        lambda n: write(["a" * i + "c" for i in range(1, math.isqrt(32 * n))], 4),
    )
    yield "a piece again", lambda n: write([first] * n, 1)
    yield "a long piece", lambda n: write(["ab" * n], 1)


def changes_of_safetensors(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name, last = list(header.items())[-1]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    def write(tensors):
        text = json.dumps(header | tensors).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    yield "more tensors", lambda n: write({f"{name}{i}": last for i in range(n)})
    yield "empty tensors", lambda n: write({f"zz{i}": empty for i in range(n)})
    yield "axes", lambda n: write({name: {**last, "shape": [1] * n}})


def changes_of_npz(path):
    with np.load(path) as arrays:
        known = dict(arrays)

    def write(more):
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in {**known, **more}.items():
                out = io.BytesIO()
                np.lib.format.write_array(out, array)
                archive.writestr(f"{name}.npy", out.getvalue())

    yield "more arrays", lambda n: write({f"zz{i}": np.zeros(1) for i in range(n)})


def changes_of_marian_bin(path):
    if not tensor_files.is_marian_bin(path):  # A shortlist.
        head, body = path.read_bytes()[:48], path.read_bytes()[48:]
        numbers = list(struct.unpack("<6Q", head))

        def write(count):
            """Lists of tokens that have none."""
            end = 8 * numbers[4]
            last = body[end - 8 : end]
            new = [*numbers[:4], numbers[4] + count, numbers[5]]
            content = struct.pack("<6Q", *new) + body[:end] + last * count + body[end:]
            path.write_bytes(hostile_bytes.with_checksum(content))

        yield "more lists", write
        return
    tensors = {
        name: np.asarray(each.read()) for name, each in tensor_files.read_marian_bin(path).items()
    }
    settings = tensors.pop("special:model.yml").tobytes()

    def write_tensors(more):
        tensor_files.write_marian_bin(path, {**tensors, **more, "special:model.yml": settings})

    yield "more tensors", lambda n: write_tensors({f"zz{i}": np.zeros(1) for i in range(n)})


def changes_of_torch(path):
    import torch

    tree = torch.load(path, weights_only=False)
    plain = {
        name: vars(each) if type(each).__name__ == "Namespace" else each
        for name, each in tree.items()
    }
    yield from changes_of_values(plain, lambda value: torch.save(value, path))


def changes_of_tensorflow(path):
    import tensorflow as tf

    yield (
        "more variables",
        lambda n: tf.train.Checkpoint(model=[tf.Variable(0.0) for _ in range(n)]).write(
            str(path.with_suffix(""))
        ),
    )


CHANGES = {
    ".json": changes_of_json,
    ".txt": changes_of_lines,
    ".yml": changes_of_lines,
    ".yaml": changes_of_lines,
    ".spm": changes_of_pieces,
    ".model": changes_of_pieces,
    ".safetensors": changes_of_safetensors,
    ".npz": changes_of_npz,
    ".bin": changes_of_marian_bin,
    ".pt": changes_of_torch,
    ".ckpt": changes_of_torch,
    ".index": changes_of_tensorflow,
}
WITHOUT_STRUCTURE = {"checkpoint", "ckpt-1.data-00000-of-00001"}

_PIECES = {"source_sentencepiece": "vocab.spm"}
NAMED = {
    **hostile_folders.NAMED,
    **{name: {"name": name, **_PIECES} for name in ("opennmt_py", "eole")},
    "opennmt_tf": {
        **hostile_folders.NAMED["opennmt_tf"],
        **_PIECES,
        "source_vocabulary": "vocab.txt",
    },
}
"""What is said of families whose files do not name theirs, or their tokenizers."""

OTHERS = {
    "nllb": "m2m_100",
    "byt5": "t5",
    "student": "marian_npz",
    "bergamot": "marian_npz",
    "tokenizer_json": "bart",
}
"""Further folders, and the family of each."""


def load(path, name):
    load_pretrained(path, NAMED.get(name))


def changes(path, left_out):
    """All ways to let a file of a folder grow, each of which leaves the others as they are."""
    left_out = {*WITHOUT_STRUCTURE, *left_out}
    for file in sorted(each for each in path.iterdir() if each.name not in left_out):
        content = file.read_bytes()
        for what, change in CHANGES[file.suffix](file):
            yield f"{file.name}: {what}", change
        file.write_bytes(content)


@pytest.fixture
def no_models(monkeypatch):
    """Checkpoints are read and no model is made; texts of JSON are compared in Python."""

    def stop(*arguments, **options):
        raise WasReadError

    monkeypatch.setattr(pretrained, "Seq2SeqTransformer", stop)
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda *given, **more: with_texts(loads(*given, **more)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An ordinary folder of each kind, made when it is first asked for."""
    made = tmp_path_factory.mktemp("ordinary")

    def folder(name, place):
        if not (made / name).exists():
            ordinary(name, made)
        return shutil.copytree(made / name, place / name)

    return folder


# What several families read by the same functions grows for one of them.
SHARED = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", [*families.names(), *OTHERS])
def test_work_on_checkpoints_grows_with_their_files(tmp_path, folders, no_models, name):
    folder = folders(name, tmp_path)
    read = functools.partial(load, hostile_folders.opened(tmp_path, name), name)
    for what, change in changes(folder, () if name == "marian" else SHARED):
        with naming(what):
            require_linear(change, read)


ONE_OF_EACH = ("marian", "bart", "bergamot", "student", "joey_nmt", "opennmt_tf")
"""Folders that all functions which read are led to by."""


def functions_that_read():
    """All functions `read_...` of what reads files of others."""
    found = {}
    for package in ("interop", "alignment", "diagnostics", "data"):
        parent = importlib.import_module(f"keras_addnorm.{package}")
        for each in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
            module = importlib.import_module(each.name)
            for name, value in vars(module).items():
                if name.startswith("read_") and getattr(value, "__module__", "") == each.name:
                    found[f"{each.name}.{name}"] = inspect.unwrap(value).__code__
    return found


def test_all_that_reads_is_led_to(tmp_path, folders, no_models):
    called = set()
    for name in ONE_OF_EACH:
        folders(name, tmp_path)
        read = functools.partial(load, hostile_folders.opened(tmp_path, name), name)
        called |= work_of(read).called
    for file, contents, read in OF_TEXT.values():
        write(tmp_path / file, next(iter(contents.values()))(3))
        called |= work_of(functools.partial(read, tmp_path / file)).called
    for name in tokenizer_files._TABLE.names():
        saved = tokenizer(name).save(tmp_path / f"{name}.model")
        called |= work_of(lambda path=saved: load_tokenizer(path)).called
    known = functions_that_read()
    assert len(known) > 15
    missing = [name for name, code in known.items() if code not in called]
    assert missing == [], "Let a file of a test above lead to them."


# Tokenizers, logs, settings and what else is read.


def table(header, row):
    """A log with rows that are made of a number; `row` and `header` are texts of CSV."""
    return {
        "rows": lambda n: f"{header}\n" + "".join(row.format(i) + "\n" for i in range(n)),
        "a row again": lambda n: f"{header}\n" + (row.format(1) + "\n") * n,
        "values in a row": lambda n: f"{header}\n{row.format(1)}{',1' * n}\n",
        "columns": lambda n: f"{header}{''.join(f',x{i}' for i in range(n))}\n{row.format(1)}\n",
        "columns and rows": lambda n: f"{header}{',x' * n}\n" + f"{row.format(1)}\n" * 20,
        "a mark that is not closed": lambda n: f'{header}\n"' + f"{row.format(1)}\n" * n,
        "empty lines": lambda n: f"{header}\n" + "\n" * n + row.format(1) + "\n",
        "quotation marks": lambda n: f'{header}\n"{chr(34) * 2 * n}"\n',
    }


_ROW = "{}" + ",encoder/0/feed_forward" + ",0.5" * (len(COLUMNS) - 2)
TOML = {
    "keys": lambda n: "".join(f"x{i} = 1\n" for i in range(n)),
    "a key again": lambda n: "x = 1\n" * n,
    "tables": lambda n: "".join(f"[x{i}]\na = 1\n" for i in range(n)),
    "tables in tables": lambda n: "[" + ".".join("a" * min(n, 30)) + "]\n" + "b = 1\n",
    "tables of one table": lambda n: "".join(f"[a.x{i}]\nb = 1\n" for i in range(n)),
    "arrays of tables": lambda n: "[[a]]\nb = 1\n" * n,
    "tables of arrays": lambda n: "[[a]]\n" + "".join(f"[a.x{i}]\nb = 1\n" for i in range(n)),
    "dotted keys": lambda n: "".join(f"a.b.c.x{i} = 1\n" for i in range(n)),
    "an array": lambda n: f"a = [{'1, ' * n}]\n",
    "arrays in arrays": lambda n: f"a = {'[' * n}{']' * n}\n",
    "an inline table": lambda n: f"a = {{{', '.join(f'x{i} = 1' for i in range(n))}}}\n",
    "comments": lambda n: "# x\n" * n,
    "a long text": lambda n: f'a = "{"x" * 64 * n}"\n',
    "escapes": lambda n: f'a = "{chr(92)}u0041{(chr(92) + "n") * n}"\n',
    "lines of a text": lambda n: 'a = """' + 'x"\n' * n + '"""\n',
    "quotation marks": lambda n: "'" * n,
    "blanks": lambda n: f"a{' ' * n}={' ' * n}1\n",
    "unknown settings": lambda n: "".join(f"[model{i}]\nscheme{i} = 1\n" for i in range(n)),
}
MARIAN_LISTS = {
    "pieces": lambda n: "".join(f"x{i}: {i}\n" for i in range(n)),
    "a piece again": lambda n: "x: 5\n" * n,
    "quoted pieces": lambda n: "".join(f'"x\\u0041{i}": {i}\n' for i in range(n)),
    "escapes": lambda n: '"' + "\\n" * n + '": 0\n',
    "quotation marks": lambda n: "'" + "''" * n + "': 0\n",
    "colons": lambda n: ":" * n + ": 0\n",
    "long keys": lambda n: "".join(f"? x{i}\n: {i}\n" for i in range(n)),
    "blanks": lambda n: "x:" + " " * n + "5" + " " * n + "\n",
}
YAML = {
    "names": lambda n: "".join(f"x{i}: 1\n" for i in range(n)),
    "a list": lambda n: "a:\n" + "- x\n" * n,
    "aliases": lambda n: "a: &a [x]\nb: [" + "*a, " * n + "x]\n",
    "a list in a line": lambda n: "a: [" + "x, " * n + "x]\n",
    "indented names": lambda n: "".join(f"{' ' * min(i, 90)}x:\n" for i in range(n)),
    "lines of a text": lambda n: "a: |\n" + "  x\n" * n,
    "comments": lambda n: "# x\n" * n + "a: 1\n",
    "documents": lambda n: "---\na: 1\n" * n,
    "anchors": lambda n: "".join(f"x{i}: &a{i} 1\n" for i in range(n)),
}
LINKS = {
    "lines": lambda n: "0-0 1-2\n" * n,
    "links": lambda n: " ".join(f"{i}-{i}" for i in range(n)),
    "a link again": lambda n: "0-0 " * n,
    "empty lines": lambda n: "\n" * n,
    "blanks": lambda n: " " * n,
    "digits": lambda n: "1" * n + "-0",
}


def read_settings(path):
    RunConfig.from_dict(read_toml(path))


OF_TEXT = {
    "a list of pieces of Marian": ("vocab.yml", MARIAN_LISTS, marian_files.read_vocabulary),
    "settings of Marian": (
        "decoder.yml",
        YAML,
        lambda path: marian_files.read_settings(path, path.read_text()),
    ),
    "a list of tokens": (
        "vocab.txt",
        {"tokens": lambda n: "".join(f"x{i}\n" for i in range(n)), "lines": lambda n: "\n" * n},
        text_files.read_tokens,
    ),
    "merges": (
        "merges.txt",
        {
            "merges": lambda n: "".join(f"x{i} y\n" for i in range(n)),
            "empty lines": lambda n: "\n" * n,
            "spaces": lambda n: "a b\n" * n + " " * n,
        },
        text_files.read_merges,
    ),
    "word alignments": ("links.txt", LINKS, read_pharaoh),
    "a log of residuals": (
        "residuals.csv",
        table(",".join(COLUMNS), _ROW),
        lambda path: ResidualLog(path).read(),
    ),
    "a log of streams": (
        "streams.csv",
        table("step,sublayer,quantity,index,value", "{},encoder/0/feed_forward,rms,0,1.0"),
        lambda path: StreamLog(path).read(),
    ),
    "the log of a run": (
        "log.csv",
        table("epoch,loss,val_loss", "{},1.0,2.0"),
        lambda path: (RunDirectory(path.parent).read_log(), curves._read(path)),
    ),
    "settings of a run": ("config.toml", TOML, read_settings),
}


@pytest.mark.parametrize("name", OF_TEXT)
def test_work_on_texts_grows_with_them(tmp_path, name):
    file, contents, read = OF_TEXT[name]
    for what, content in contents.items():
        with naming(what):
            require_linear(
                lambda n, made=content: write(tmp_path / file, made(n)),
                functools.partial(read, tmp_path / file),
            )


def tokenizer(name):
    if name == byte_tokenizer.NAME:
        return ByteTokenizer(last=("<x>",), added=(AddedToken("<x>"),))
    if name == byte_level_bpe.NAME:
        names = ("<s>", "<pad>", "</s>", "<unk>", *byte_alphabet(), "ab")
        return ByteLevelBPETokenizer(PieceIds(names, controls=("<s>",)), [("a", "b")])
    trained = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
    names = [piece.text for piece in trained.pieces]
    return Tokenizer(trained.proto, PieceIds((*names, "<x>"), added=(AddedToken("<x>"),)))


@pytest.mark.parametrize("name", tokenizer_files._TABLE.names())
def test_work_on_tokenizers_grows_with_their_files(tmp_path, no_models, name):
    saved = tokenizer(name).save(tmp_path / "tokenizer.model")
    path = saved.rename(tmp_path / "tokenizer.json")
    for what, change in changes_of_json(path):
        with naming(what):
            require_linear(change, lambda: load_tokenizer(path))


def a_report():
    """A report with one of everything."""
    norm = {field.name: 1.0 for field in dataclasses.fields(NormStatistics)} | {"slot": "pre_norm"}
    numbers = {field.name: 1.0 for field in dataclasses.fields(SublayerReport)}
    heads = {"entropy": [1.0], "entropy_share": [1.0], "similarity": [[1.0]]}
    streams = {"rms": [1.0], "cosine": [[1.0]]}
    sublayer = {"name": "encoder/0/self_attention", "norms": [norm], "attention": heads}
    verdict = {field.name: "x" for field in dataclasses.fields(Verdict)} | {"sublayers": ["x"]}
    words = {"name": "x", "queries": ["a"], "keys": ["b"], "weights": [[[1.0]]]}
    return {
        **Report(loss=2.0, sublayers=(), verdicts=()).to_dict(),
        "sublayers": [{**numbers, **sublayer, "streams": streams}],
        "verdicts": [verdict],
        "attention_maps": [words],
    }


def changes_in_memory(value):
    """The ways to let values grow that are read from no file, and what reads them."""
    kept = []
    return kept, changes_of_values(value, lambda changed: kept.__setitem__(slice(None), [changed]))


def test_work_on_values_grows_with_them(tmp_path, no_models):
    def read_report(values):
        with contextlib.suppress(TypeError, KeyError):  # Of values that no report has.
            Report.from_dict(values)

    config = Seq2SeqConfig(source_vocabulary_size=9, target_vocabulary_size=9).to_dict()
    pair = TokenizerPair.of(tokenizer("byte"))
    pair.save(tmp_path / "pair")
    for name, values, read in (
        ("a report", a_report(), read_report),
        ("a config", config, Seq2SeqConfig.from_dict),
        ("a text format", pair.text_format.to_dict(), TextFormat.from_dict),
    ):
        kept, found = changes_in_memory(values)
        for what, change in found:
            with naming(f"{name}, {what}"):
                require_linear(change, lambda kept=kept, read=read: read(kept[0]))


def test_work_on_lists_of_digests_and_scores_grows_with_them(tmp_path):
    def write_digests(count):
        files = {f"x{i}": "0" * 64 for i in range(count)}
        content = {"files": files, "digest": integrity._digest_of_list(files)}
        (tmp_path / "manifest.json").write_text(json.dumps(content))

    def write_scores(count):
        scores = {f"x{i}": {"bleu": 1.0} for i in range(count)}
        (tmp_path / "scores.json").write_text(json.dumps(scores))

    require_linear(write_digests, lambda: Manifest(tmp_path).read())
    (tmp_path / "manifest.json").unlink()
    require_linear(write_scores, lambda: RunDirectory(tmp_path).read_scores())


def test_work_on_a_lexicon_grows_with_its_arrays(tmp_path):
    path = tmp_path / "lexicon.npz"

    def write_rows(count):
        rows = np.zeros((count, 2), "int32")
        Lexicon(rows, rows.astype("float32"), np.zeros(count, "float32")).save(path)

    def write_arrays(count):
        np.savez(path, **{f"x{i}": np.zeros(1) for i in range(count)})

    for made in (write_rows, write_arrays):
        require_linear(made, lambda: Lexicon.load(path))


STATE = {"epoch": 1, "random": [[1]], "metrics": [1.0], "callbacks": {"a": {"b": 1}}}
PLACE = {"path": "a", "shape": [1], "dtype": "float32", "data_set": "a/x", "of_optimizer": False}


def write_weights(path, *, state=STATE, places=(PLACE,), more=lambda file: None):
    with h5py.File(path, "w") as file:
        file["a/x"] = np.zeros(1, "float32")
        for name, values in ((integrity.STATE_NAME, state), (held_variables._TABLE, places)):
            file[name] = np.frombuffer(json.dumps(values).encode(), np.uint8)
        more(file)
        integrity.write_weights_digest(file)


def read_weights(path):
    with contextlib.suppress(TypeError):  # Of values that no state has.
        read_checkpoint(path)
    with integrity.open_weights(path) as file:
        held_variables.read_places(file)


def grows(make):
    """What writes so many of something into a file of HDF5."""

    def more(count):
        def change(file):
            for number in range(count):
                make(file, number)

        return change

    return more


IN_WEIGHTS = {
    "groups": grows(lambda file, number: file.create_group(f"g{number}")),
    "groups in groups": grows(lambda file, number: file.require_group("g/" * min(number + 1, 90))),
    "arrays": grows(lambda file, number: file.create_dataset(f"b/{number}", (1,), "float32")),
    "attributes": grows(lambda file, number: file.attrs.__setitem__(f"x{number}", 1)),
}


def test_work_on_weight_files_grows_with_what_is_in_them(tmp_path, no_models):
    path = tmp_path / "epoch-0001.weights.h5"
    for what, more in IN_WEIGHTS.items():
        with naming(what):
            require_linear(
                lambda n, made=more: write_weights(path, more=made(n)),
                lambda: read_weights(path),
                size=SIZE // 2,
            )
    for name, values in (("state", STATE), ("places", [PLACE])):
        kept, found = changes_in_memory(values)
        for what, change in found:
            with naming(f"{name}, {what}"):
                require_linear(
                    lambda n, change=change, name=name, kept=kept: (
                        change(n),
                        write_weights(path, **{name: kept[0]}),
                    ),
                    lambda: read_weights(path),
                    size=SIZE // 2,
                )
