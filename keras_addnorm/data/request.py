"""What is asked of `load_translation`, in one object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.argument_checks import is_whole, require_bool, to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.readers import Reader
from keras_addnorm.data.readers.input_file import LONGEST_TEXT

ReaderChoice = str | Mapping[str, Any] | Reader | None


@dataclass(frozen=True)
class Request:
    """Which sentence pairs are wanted, and how they are read.

    Attributes:
        data: A name, a path, rows, or a TensorFlow Datasets builder.
        source: The language to translate from; `None` if it is to be found.
        target: The language to translate into; `None` if it is to be found.
        reader: The format: a name in `data.readers`, a dict with the reader's fields, or a reader;
            `None` if the files tell.
        max_chars: The longest side to keep, in characters.
        keep_every_pair: Whether pairs that would be left out are kept.
        data_dir: Where TensorFlow Datasets keeps named sets.
        download: Whether a named set may be downloaded.
        stands_for: What messages call the path, if it stands for something else.

    Raises:
        ValueError: If a field does not fit.
    """

    data: Any
    source: str | None = None
    target: str | None = None
    reader: ReaderChoice = None
    max_chars: int = 1000
    keep_every_pair: bool = False
    data_dir: str | os.PathLike[str] | None = None
    download: bool = True
    stands_for: str = ""

    def __post_init__(self) -> None:
        require_bool(keep_every_pair=self.keep_every_pair, download=self.download)
        if not is_whole(self.max_chars, 1, LONGEST_TEXT // 4):  # A character has up to four bytes.
            raise ArgumentError(
                "`max_chars` is a number of characters.",
                f"1 or more, and at most {LONGEST_TEXT // 4:,}",
                max_chars=self.max_chars,
            )
        for argument, text in {"source": self.source, "target": self.target}.items():
            if not isinstance(text, str | None):
                expected = f"`{argument}` as a string, or None"
                raise ArgumentError(expected=expected, **{argument: text})
        if self.source is not None and self.source == self.target:
            raise ArgumentError(expected="two languages", source=self.source, target=self.target)
        if self.data_dir is not None:
            to_path(self.data_dir)
