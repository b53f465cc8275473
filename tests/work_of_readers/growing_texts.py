"""Files of text that are no sentence pairs, in which one thing after another grows."""

from keras_addnorm.alignment import read_pharaoh
from keras_addnorm.data import (
    AddedToken,
    ByteLevelBPETokenizer,
    ByteTokenizer,
    PieceIds,
    Tokenizer,
    byte_alphabet,
    byte_level_bpe,
    byte_tokenizer,
)
from keras_addnorm.diagnostics.residual_log import COLUMNS, ResidualLog, StreamLog
from keras_addnorm.interop.families import marian_files, text_files
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.toml_files import read_toml
from keras_addnorm.training import curves


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


def tokenizer(name):
    if name == byte_tokenizer.NAME:
        return ByteTokenizer(last=("<x>",), added=(AddedToken("<x>"),))
    if name == byte_level_bpe.NAME:
        names = ("<s>", "<pad>", "</s>", "<unk>", *byte_alphabet(), "ab")
        return ByteLevelBPETokenizer(PieceIds(names, controls=("<s>",)), [("a", "b")])
    trained = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
    names = [piece.text for piece in trained.pieces]
    return Tokenizer(trained.proto, PieceIds((*names, "<x>"), added=(AddedToken("<x>"),)))
