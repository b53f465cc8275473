"""Loads sentence pairs by TFDS name, from files of many formats, from rows, or the demo set."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.paths import to_path
from keras_addnorm.data.demo import TARGETS, demo_builder
from keras_addnorm.data.open_files import (
    STANDARD_INPUT,
    THE_STANDARD_INPUT,
    FoundPairs,
    ReaderChoice,
    choose_direction,
    find_pairs,
    standard_input,
)
from keras_addnorm.data.readers import has_data_ending
from keras_addnorm.data.splits import names_in, resolve_split
from keras_addnorm.data.text_files import LineReport
from keras_addnorm.data.translation_set import (
    PreparedSet,
    RowSet,
    TranslationSet,
    are_rows,
    checked_length,
    translation_feature,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

_LOGGER = logging.getLogger(__name__)

Rows = Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Mapping[str, Any]]]


def load_translation(
    name_or_folder: str | os.PathLike[str] | tfds.core.DatasetBuilder | Rows,
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

    Files are prepared once, and again when one changes. Pairs with an empty side or with more than
    `max_chars` characters on one side are left out; from files, so are lines that are not UTF-8.
    `line_reports` counts the pairs left out. Files and the demo set keep their order; shuffle for
    training.

    Args:
        name_or_folder: A name, a path, rows, or a TensorFlow Datasets builder of your own (such as
            `demo_builder` makes).
        source: The language to translate from. May be left out where the name or the file
            determines it, or where `target` leaves one choice.
        target: The language to translate into.
        split: A split as TensorFlow Datasets writes it: ``"train"``, ``"train[:10%]"``,
            ``"train[100:200]+validation"``. ``"val"``, ``"valid"`` and ``"dev"`` are
            ``"validation"``; ``"test"`` is the one test set of a folder, whatever it is called.
        data_dir: Where prepared data is kept; by default where TensorFlow Datasets keeps it
            (``~/tensorflow_datasets``, or ``TFDS_DATA_DIR``).
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
        ImportError: If TensorFlow Datasets, or the package that reads the format, is not installed.
        FileNotFoundError: If there is no such file or folder, no parallel text in it, or a split
            has one side only; or if a named set is not prepared and `download` is false.
        TypeError: For something that is none of these.
        ValueError: For an unknown name, language, column or split; for files with unequal line
            counts, and damaged ones.
        ConnectionError: If a download is needed and the server cannot be reached.

    Example:
        >>> import tempfile
        >>> from keras_addnorm.data import load_translation
        >>> test = load_translation("demo/en-de", split="test", data_dir=tempfile.mkdtemp())
        >>> len(test)
        1000
        >>> source, target = next(iter(test))
        >>> source.dtype.name, source.shape.rank
        ('string', 0)
    """
    corpus = open_translation(
        name_or_folder,
        source=source,
        target=target,
        split=split,
        data_dir=data_dir,
        download=download,
        max_chars=max_chars,
        reader=reader,
        keep_every_pair=keep_every_pair,
    )
    for note in corpus.notes:
        _LOGGER.warning("%s", note)
    if split is not None:
        return corpus.read(corpus.resolve_split(split))
    return {name: corpus.read(name) for name in corpus.splits}


def line_reports(
    name_or_folder: str | os.PathLike[str] | tfds.core.DatasetBuilder | Rows,
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

    The lines of files are counted when they are prepared, and the counts are stored; other sets are
    read once.

    Args:
        name_or_folder: As for `load_translation`.
        source: The language to translate from.
        target: The language to translate into.
        data_dir: Where prepared data is kept.
        split: Count only the splits named here, each as a whole: ``"train[:10%]"`` is ``"train"``.
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.
        reader: As for `load_translation`.

    Returns:
        The report of each split.

    Raises:
        ImportError: If TensorFlow Datasets is not installed.
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
        >>> print(line_reports(folder, source="en", target="fr", data_dir=folder)["train"])
        train: 2 of 3 pairs kept; left out: 1 empty (lines 2)
    """
    corpus = open_translation(
        name_or_folder,
        source=source,
        target=target,
        split=split,
        data_dir=data_dir,
        download=download,
        max_chars=max_chars,
        reader=reader,
    )
    return corpus.line_reports(corpus.splits if split is None else corpus.named_in(split))


def open_translation(
    name_or_folder: Any,
    *,
    source: str | None = None,
    target: str | None = None,
    split: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    max_chars: int = 1000,
    reader: ReaderChoice = None,
    keep_every_pair: bool = False,
) -> TranslationSet:
    """Finds and prepares a set of pairs of any origin, and decides its direction.

    Args:
        name_or_folder: As for `load_translation`.
        source: The language to translate from.
        target: The language to translate into.
        split: With `keep_every_pair`, the splits that are prepared; `None` for all.
        data_dir: Where prepared data is kept.
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.
        reader: As for `load_translation`.
        keep_every_pair: As for `load_translation`.

    Returns:
        The set.

    Raises:
        TypeError: For something that is neither name, path, rows nor builder.
        ValueError: As for `load_translation`, and if `max_chars` is below 1.
    """
    if not is_whole(max_chars, 1):
        raise ValueError(f"max_chars is a number of characters, 1 or more; received {max_chars!r}.")
    for argument, text in {"source": source, "target": target, "split": split}.items():
        if not isinstance(text, str | None):
            raise ValueError(f"Expected {argument} as a string, or None; received {text!r:.80}.")
    if source is not None and source == target:
        raise ValueError(f"Expected two languages; received source=target={source!r}.")
    data_dir = None if data_dir is None else to_path(data_dir)
    if are_rows(name_or_folder):
        if reader is not None:
            raise ValueError(f"Rows have no format: expected no reader; received {reader!r:.80}.")
        return RowSet.of(name_or_folder, source, target, max_chars, keep_every_pair)
    is_demo = is_built_in(name_or_folder)
    _require_tfds("demo" if is_demo else "tfds")
    if not isinstance(name_or_folder, (str, os.PathLike)):
        return _open_builder(name_or_folder, source, target, download, max_chars, keep_every_pair)
    name = os.fspath(name_or_folder)
    if is_demo:
        return _open_demo(name, source, target, data_dir, max_chars, keep_every_pair)
    if not looks_like_path(name_or_folder):
        return _open_named(name, source, target, data_dir, download, max_chars, keep_every_pair)
    with contextlib.ExitStack() as stack:
        is_stream = name == STANDARD_INPUT
        path = stack.enter_context(standard_input()) if is_stream else Path(name)
        found = find_pairs(path, source, target, reader, THE_STANDARD_INPUT if is_stream else "")
        return _open_found(
            found,
            path.expanduser(),
            split if keep_every_pair else None,
            data_dir,
            max_chars,
            keep_every_pair,
        )


def _require_tfds(extra: str) -> None:
    # TensorFlow Datasets prepares nothing without importlib_resources, and does not declare it.
    needed = ("tensorflow_datasets", "importlib_resources")
    require_extra(extra, "Loading sentence pairs with TensorFlow Datasets", *needed)


def is_built_in(data: object) -> bool:
    """Whether a name is one of the built-in demo set, whose sentences are made from templates."""
    return isinstance(data, str) and re.fullmatch(r"demo(/.*)?", data) is not None


def looks_like_path(name_or_folder: str | os.PathLike[str]) -> bool:
    """Whether a name is one of a file or folder, whether there or not."""
    name = os.fspath(name_or_folder)
    return (
        not isinstance(name_or_folder, str)
        or name.startswith((".", "/", "~", os.sep))
        or name == STANDARD_INPUT
        or name.count("/") > 1
        or has_data_ending(name)
        or bool(name and Path(name).exists())
    )


def _open_found(
    found: FoundPairs,
    path: Path,
    split: str | None,
    data_dir: str | os.PathLike[str] | None,
    max_chars: int,
    keep_every_pair: bool,
) -> TranslationSet:
    """Prepares the pairs of files; of a split that is named, only what it needs."""
    from keras_addnorm.data.folder import pairs_builder
    from keras_addnorm.data.tfds_common import prepare_quietly

    sources = found.sources
    if split is not None:
        wanted = names_in(resolve_split(split, found.splits, found.label))
        sources = tuple(one for one in sources if one.split in wanted)
    languages = found.source, found.target
    if found.source > found.target:  # Both directions share the data.
        languages = found.target, found.source
        sources = tuple(one.turned() for one in sources)
    builder = pairs_builder(
        path.resolve().name,
        sources,
        languages,
        max_chars=max_chars,
        keep_every_pair=keep_every_pair,
        data_dir=data_dir,
    )
    prepare_quietly(builder)
    return PreparedSet(
        builder, found.source, found.target, found.label, max_chars, keep_every_pair, found.notes
    )


def _open_demo(
    name: str,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    max_chars: int,
    keep_every_pair: bool,
) -> TranslationSet:
    from keras_addnorm.data.tfds_common import prepare_quietly

    pair = tuple(name.split("/", 1)[1].split("-")) if "/" in name else ()
    if pair and (len(pair) != 2 or "en" not in pair or not {*pair} < {"en", *TARGETS}):
        known = ", ".join(f"'demo/en-{language}'" for language in TARGETS)
        raise ValueError(
            f"There is no demo set {name!r}. There are {known}, and each the other way round "
            "('demo/de-en')."
        )
    if not pair:
        source = source or ("de" if target == "en" else "en")
        target = target or ("de" if source == "en" else "en")
    label = "the demo set"
    languages = pair or ("en", *TARGETS)
    direction = choose_direction(languages, (languages[0], languages[1]), source, target, label)
    if "en" not in direction:
        raise ValueError(
            f"One side of {label} is English; received source={source!r}, target={target!r}."
        )
    builder = demo_builder(next(filter(TARGETS.get, direction)), data_dir=data_dir)
    prepare_quietly(builder)
    return PreparedSet(builder, *direction, label, max_chars, keep_every_pair)


def _open_named(
    name: str,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    download: bool,
    max_chars: int,
    keep_every_pair: bool,
) -> TranslationSet:
    import tensorflow_datasets as tfds

    from keras_addnorm.data.tfds_common import quietly

    dataset, _, config = re.sub(r":[^/]*", "", name).partition("/")
    known = tfds.list_builders(with_community_datasets=False)
    if dataset not in known:
        near = difflib.get_close_matches(dataset, known, n=3, cutoff=0.5)
        suggestion = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"{name!r} is neither a folder that exists nor a data set that TensorFlow Datasets "
            f"knows.{suggestion} Examples: 'ted_hrlr_translate/pt_to_en', 'wmt14_translate/de-en', "
            "'demo/en-de', './my_folder', 'pairs.tsv'."
        )
    configs = list(tfds.builder_cls(dataset).builder_configs)
    if configs and config not in configs:
        near = difflib.get_close_matches(config, configs, n=3, cutoff=0.5) or configs[:8]
        received = f"has no config {config!r}" if config else "needs a config"
        raise ValueError(
            f"The data set {dataset!r} {received}. Near ones: "
            f"{', '.join(repr(f'{dataset}/{each}') for each in near)}."
        )
    with quietly():
        builder = tfds.builder(name, data_dir=data_dir)
    return _open_builder(builder, source, target, download, max_chars, keep_every_pair)


def _open_builder(
    builder: tfds.core.DatasetBuilder,
    source: str | None,
    target: str | None,
    download: bool,
    max_chars: int,
    keep_every_pair: bool,
) -> TranslationSet:
    import tensorflow_datasets as tfds

    if not isinstance(builder, tfds.core.DatasetBuilder):
        raise TypeError(
            "Expected the name of a data set, a path, rows such as {'translation': {'en': ..., "
            "'de': ...}}, or a TensorFlow Datasets builder; received "
            f"{type(builder).__name__}."
        )
    label = f"the data set {builder.info.full_name.rpartition('/')[0]}"
    feature = translation_feature(builder, label)
    translation = builder.info.features[feature] if feature else builder.info.features
    languages = tuple(translation.languages)
    supervised = builder.info.supervised_keys
    default = supervised if supervised and {*supervised} <= {*languages} else languages[:2]
    direction = choose_direction(languages, (default[0], default[1]), source, target, label)
    _prepare(builder, download, label)
    return PreparedSet(builder, *direction, label, max_chars, keep_every_pair)


def _prepare(builder: tfds.core.DatasetBuilder, download: bool, label: str) -> None:
    from keras_addnorm.data.downloads import check_before_downloading
    from keras_addnorm.data.tfds_common import prepare, prepare_quietly, quietly

    if checked_length(builder) is not None:
        prepare_quietly(builder)
        return
    with quietly():
        if builder.is_prepared():
            return
        if not download:
            raise FileNotFoundError(
                f"There is no prepared data of {label} in {builder.data_dir}, and download=False. "
                "Allow the download, or give the data_dir that holds the prepared data."
            )
        with check_before_downloading(label):
            prepare(builder)
