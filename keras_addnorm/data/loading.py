"""Loads sentence pairs from files of many formats, from rows, by name, or the demo set."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.errors import ArgumentTypeError
from keras_addnorm.data.demo.demo_set import open_demo
from keras_addnorm.data.line_report import LineReport
from keras_addnorm.data.named_sets import open_builder, open_name
from keras_addnorm.data.open_files import looks_like_path, open_path
from keras_addnorm.data.request import ReaderChoice, Request
from keras_addnorm.data.row_sets import Rows, are_rows, open_rows
from keras_addnorm.data.translation_set import TranslationSet

if TYPE_CHECKING:
    import tensorflow as tf

_LOGGER = logging.getLogger(__name__)


def load_translation(
    name_or_folder: str | os.PathLike[str] | Rows | Any,
    *,
    source: str | None = None,
    target: str | None = None,
    split: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    max_chars: int = 1000,
    reader: ReaderChoice = None,
    keep_every_pair: bool = False,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """Loads pairs of sentences, each a source text and a target text.

    They come from one of these places:

    - **A file with both texts**: columns divided by tabs (``spa.txt``, ``.tsv``), ``.csv``,
      ``.jsonl``, ``.parquet``, ``.tmx``, ``.xlf``, ``.po``, each plain or with ``.gz``, ``.bz2``,
      ``.xz`` or ``.zst``; or ``"-"``, the standard input. It is the split ``train``.
    - **A folder of parallel text**: ``train.en``, ``train.de``, ``val.*`` (or ``valid.*``,
      ``dev.*``), ``test*.*``, or other names that OPUS, WMT and OpenNMT use; a folder of files with
      both texts; or a zip archive of either.
    - **Rows** of Hugging Face ``datasets``, or any collection of dictionaries, such as
      ``{"translation": {"en": "...", "de": "..."}}``; also a dictionary of such splits.
    - **A TensorFlow Datasets name**, with its config: ``"ted_hrlr_translate/pt_to_en"``,
      ``"wmt14_translate/de-en"``, any set with a `Translation` feature. It is downloaded and
      prepared once. Without a network this fails within seconds.
    - **The built-in demo set**: ``"demo/en-de"``, ``"demo/en-fr"``, ``"demo/en-es"`` (``"demo"`` is
      the first), or with the languages the other way round. It is generated in seconds.

    The pairs are read in their own order, anew in each iteration; those of files and of the demo
    set are counted once before. Shuffle for training. Those with an empty side or with more than
    `max_chars` characters on one side are left out, and so are lines that are not UTF-8.
    `line_reports` counts what is left out.

    Args:
        name_or_folder: A name, a path, rows, or a TensorFlow Datasets builder of your own (such as
            `demo_builder` makes).
        source: The language to translate from. May be left out where the name or the file
            determines it, or where `target` leaves one choice.
        target: The language to translate into.
        split: A split as TensorFlow Datasets writes it: ``"train"``, ``"train[:10%]"``,
            ``"train[100:200]+validation"``. ``"val"``, ``"valid"`` and ``"dev"`` are
            ``"validation"``; ``"test"`` is the one test set of a folder, whatever it is called.
        data_dir: Where TensorFlow Datasets keeps named sets; by default where it always does, or
            ``TFDS_DATA_DIR``.
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.
        reader: The format of a file whose name does not tell, or whose columns are to be named: a
            name in `data.readers`, a dict such as ``{"name": "csv", "source_column": "question",
            "target_column": "3"}`` (without a name for the format that the file has), or a reader.
        keep_every_pair: Whether pairs that would be left out are kept, so that a test set has as
            many pairs as its file has lines.

    Returns:
        A `tf.data.Dataset` of ``(source, target)`` string scalars, or a dictionary with the one of
        each split if `split` is `None`.

    Raises:
        ImportError: If the package that reads the format is not installed; for named sets,
            TensorFlow Datasets.
        FileNotFoundError: If there is no such file or folder, no parallel text in it, or a split
            has one side only; or if a named set is not prepared and `download` is false.
        TypeError: For something that is none of these.
        ValueError: For an unknown name, language, column or split; for files with unequal line
            counts, and damaged ones.
        ConnectionError: If a download is needed and the server cannot be reached.

    Example:
        >>> from keras_addnorm.data import load_translation
        >>> test = load_translation("demo/en-de", split="test")
        >>> len(test)
        1000
        >>> source, target = next(iter(test))
        >>> source.dtype.name, source.shape.rank
        ('string', 0)
    """
    corpus = open_translation(
        Request(
            name_or_folder,
            source,
            target,
            reader=reader,
            max_chars=max_chars,
            keep_every_pair=keep_every_pair,
            data_dir=data_dir,
            download=download,
        )
    )
    corpus = dataclasses.replace(corpus, logs_reports=True)
    for note in corpus.notes:
        _LOGGER.warning("%s", note)
    if split is not None:
        return corpus.read(split).as_dataset()
    return {name: corpus.read(name).as_dataset() for name in corpus.splits}


def line_reports(
    name_or_folder: str | os.PathLike[str] | Rows | Any,
    *,
    source: str | None = None,
    target: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    split: str | None = None,
    download: bool = True,
    max_chars: int = 1000,
    reader: ReaderChoice = None,
) -> dict[str, LineReport]:
    r"""Counts the pairs of each split that `load_translation` keeps and leaves out.

    Each split is read once.

    Args:
        name_or_folder: As for `load_translation`.
        source: The language to translate from.
        target: The language to translate into.
        data_dir: As for `load_translation`.
        split: Count only the splits named here, each as a whole: ``"train[:10%]"`` is ``"train"``.
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.
        reader: As for `load_translation`.

    Returns:
        The report of each split.

    Raises:
        ImportError: As for `load_translation`.
        FileNotFoundError: As for `load_translation`.
        TypeError: As for `load_translation`.
        ValueError: As for `load_translation`.
        ConnectionError: As for `load_translation`.

    Example:
        >>> import pathlib, tempfile
        >>> from keras_addnorm.data import line_reports
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "train.en").write_text("one\n\nthree\n")
        >>> _ = (folder / "train.fr").write_text("un\ndeux\ntrois\n")
        >>> print(line_reports(folder, source="en", target="fr")["train"])
        train: 2 of 3 pairs kept; left out: 1 empty (lines 2)
    """
    request = Request(
        name_or_folder,
        source,
        target,
        reader=reader,
        max_chars=max_chars,
        data_dir=data_dir,
        download=download,
    )
    corpus = open_translation(request)
    return corpus.line_reports(corpus.splits if split is None else corpus.named_in(split))


def open_translation(request: Request) -> TranslationSet:
    """Finds a set of pairs of any origin, and decides its direction.

    Args:
        request: What is wanted.

    Returns:
        The set, of which nothing but the beginning has been read.

    Raises:
        TypeError: For something that is neither name, path, rows nor builder.
    """
    data = request.data
    if are_rows(data):
        return open_rows(request)
    if is_built_in(data):
        return open_demo(request)
    if isinstance(data, str | os.PathLike):
        return open_path(request) if looks_like_path(data) else open_name(request)
    if hasattr(data, "builder_config"):
        return open_builder(data, request)
    raise ArgumentTypeError(
        expected="the name of a data set, a path, rows such as {'translation': {'en': ..., "
        "'de': ...}}, or a TensorFlow Datasets builder",
        received=type(data).__name__,
    )


def is_built_in(data: object) -> bool:
    """Whether a name is one of the built-in demo set, whose sentences are made from templates."""
    return isinstance(data, str) and re.fullmatch(r"demo(/.*)?", data) is not None
