"""Readers of formats: each gives the pairs of a file, with the line that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.table import Table
from keras_addnorm.data.readers.arrow_table import ArrowTable
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.comma_separated import CommaSeparated
from keras_addnorm.data.readers.gettext_po import GettextPo
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.json_lines import JsonLines
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.tab_separated import TabSeparated
from keras_addnorm.data.readers.tmx import Tmx
from keras_addnorm.data.readers.xliff import Xliff

__all__ = [
    "READERS",
    "ArrowTable",
    "Columns",
    "CommaSeparated",
    "GettextPo",
    "InputFile",
    "JsonLines",
    "RawPair",
    "Reader",
    "TabSeparated",
    "Tmx",
    "Xliff",
    "get",
    "has_data_ending",
    "names",
    "reader_by_name",
    "reader_of",
    "register",
]

# The ONE table of formats.
READERS: Table[Reader] = Table(
    "format of sentence pairs",
    Reader,  # type: ignore[type-abstract]
    {
        "tsv": TabSeparated,
        "csv": CommaSeparated,
        "jsonl": JsonLines,
        "parquet": ArrowTable,
        "tmx": Tmx,
        "xliff": Xliff,
        "po": GettextPo,
    },
    module="keras_addnorm.data.readers",
)
names = READERS.names
get = READERS.get
register = READERS.register


def reader_by_name(file: InputFile, fields: Mapping[str, Any] | None = None) -> Reader | None:
    """The reader whose ending a file's name has; `None` if no reader has it.

    Args:
        file: The file.
        fields: Fields of the reader.

    Returns:
        The reader.
    """
    for name in names():
        entry, _ = READERS.read(name)
        if file.plain_name.lower().endswith(entry.endings):
            return READERS.get({**(fields or {}), "name": name})
    return None


def reader_of(file: InputFile, fields: Mapping[str, Any] | None = None) -> Reader:
    """The reader of a file: by its ending, else by its first bytes, else columns with tabs.

    Args:
        file: The file.
        fields: Fields of the reader.

    Returns:
        The reader.
    """
    fields = fields or {}
    named = reader_by_name(file, fields)
    # `.txt` is any text, and `.xml` none of ours.
    if named is not None and not file.plain_name.lower().endswith(".txt"):
        return named
    start = file.read_start().lstrip()
    if b"<xliff" in start:
        return READERS.get({**fields, "name": "xliff"})
    if b"\t" not in start.split(b"\n")[0]:
        for name in names():
            entry, _ = READERS.read(name)
            if start.startswith(entry.starts):
                return READERS.get({**fields, "name": name})
    return READERS.get({**fields, "name": "tsv"})


def has_data_ending(name: str) -> bool:
    """Whether a name ends like a file that can be read, or like a zip archive."""
    return name.lower().endswith(".zip") or reader_by_name(InputFile(Path(name))) is not None
