"""Pairs in tables of Apache Arrow: Parquet, and the `.arrow` files of Hugging Face `datasets`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.printing import text_of
from keras_addnorm.data.readers.columns import Columns, languages_in
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.rows import columns_of_names

# Few, as one text may stand for all rows of a file, and takes its place in each of a batch.
_ROWS_AT_ONCE = 64
_ALWAYS = 1 << 16  # rows that any file may have; beyond them each takes a byte of it or more
_PARQUET = b"PAR1"
_ARROW_FILE = b"ARROW1"


@dataclass(frozen=True)
class ArrowTable(Reader):
    """Reads Parquet and Arrow files, flat or with a structure `translation` of two languages."""

    endings = (".parquet", ".pq", ".arrow", ".feather")
    starts = (_PARQUET, _ARROW_FILE)

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """The columns whose names are languages."""
        with _opened(file) as (schema, _):
            return languages_in([name.rpartition(".")[2] for name in _flat_names(schema)])

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By the names of the columns."""
        with _opened(file) as (schema, _):
            names = _flat_names(schema)
        return columns_of_names(names, source, target, self.chosen, file.label)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """A row is a pair."""
        row = 0
        names = str(columns.source), str(columns.target)
        with _opened(file) as (_, batches):
            for batch in batches:
                sides = [_texts(batch, name, file) for name in names]
                for source, target in zip(*sides, strict=True):
                    row += 1
                    yield RawPair(source, target, row)


def _flat_names(schema: Any) -> list[str]:
    names: list[str] = []
    for field in schema:
        inner = [one.name for one in field.type] if _is_structure(field.type) else []
        names += [f"{field.name}.{name}" for name in inner] or [field.name]
    return names


def _is_structure(kind: Any) -> bool:
    return str(kind).startswith("struct<")


def _texts(batch: Any, name: str, file: InputFile) -> Iterator[str]:
    """The texts of a column, one at a time; empty where there is none."""
    outer, dot, inner = name.rpartition(".")
    is_nested = dot and name not in batch.schema.names
    for value in batch.column(outer if is_nested else name):
        text = value.as_py()
        if is_nested:
            text = text and text[inner]
        if not isinstance(text, str | None):
            raise ArgumentError(
                f"{file.label}: expected texts in the column {name[:80]!r}.",
                received=f"{type(text).__name__} {str(text)[:60]!r}",
            )
        yield text or ""


def _require_moderate(metadata: Any, file: InputFile) -> None:
    """Refuses a file that unpacks to far more than it is."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    file.require_moderate(sum(group.total_byte_size for group in groups))
    most = max(_ALWAYS, file.path.stat().st_size)
    if metadata.num_rows > most:
        raise ArgumentError(
            f"{file.label} has more rows than texts can take so little room.",
            f"at most {most:,}, one for each byte",
            "Fetch or write the file again.",
            received=f"{metadata.num_rows:,}",
        )


@contextlib.contextmanager
def _opened(file: InputFile) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the batches of a file."""
    arrow, parquet = require_extra("data", "A Parquet or Arrow file", "pyarrow", "pyarrow.parquet")
    start = file.read_start(len(_ARROW_FILE))
    try:
        with contextlib.ExitStack() as stack:
            # These formats begin to read at the end, and lengths in them may be any.
            binary = stack.enter_context(
                arrow.memory_map(os.fspath(file.path))
                if file.is_seekable
                else arrow.BufferReader(b"".join(file.blocks()))
            )
            if start.startswith(_PARQUET):
                table = parquet.ParquetFile(binary)
                _require_moderate(table.metadata, file)
                yield table.schema_arrow, table.iter_batches(batch_size=_ROWS_AT_ONCE)
            elif start.startswith(_ARROW_FILE):
                table = arrow.ipc.open_file(binary)
                batches = range(table.num_record_batches)
                yield table.schema, (table.get_batch(index) for index in batches)
            else:
                stream = arrow.ipc.open_stream(binary)
                yield stream.schema, iter(stream)
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # Of the system; that of a damaged page has no number.
        raise ValueError(
            f"{file.label} cannot be read as Parquet or Arrow ({text_of(error)}). Fetch the file "
            "again."
        ) from error
