"""Loads sentence pairs by TFDS name, from a folder of parallel text, or from the demo set."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.demo import TARGETS, demo_builder
from keras_addnorm.data.text_files import LineChecker, LineReport, find_languages

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

_BLANK = r"[\s\p{Z}]*"
_VALIDATION_NAMES = frozenset({"val", "valid", "dev"})


def load_translation(
    name_or_folder: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    *,
    source: str | None = None,
    target: str | None = None,
    split: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    max_chars: int = 1000,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """Loads pairs of sentences, each a source text and a target text.

    They come from one of three places:

    - **A TensorFlow Datasets name**, with its config: ``"ted_hrlr_translate/pt_to_en"``,
      ``"wmt14_translate/de-en"``, any set with a `Translation` feature. It is downloaded and
      prepared once. Without a network this fails within seconds.
    - **A folder of parallel text**: ``train.en``, ``train.de``, ``val.*`` (or ``valid.*``,
      ``dev.*``), ``test*.*``, plain or ``.gz``. It is prepared once, and again when a file changes.
    - **The built-in demo set**: ``"demo/en-de"``, ``"demo/en-fr"``, ``"demo/en-es"`` (``"demo"`` is
      the first), or with the languages the other way round. It is generated in seconds.

    Pairs with an empty side or with more than `max_chars` characters on one side are left out; from
    a folder, so are lines that are not UTF-8. `line_reports` counts the pairs left out. Folders and
    the demo set keep the order of their files; shuffle for training.

    Args:
        name_or_folder: A name, a folder, or a TensorFlow Datasets builder of your own (such as
            `demo_builder` makes).
        source: The language to translate from. May be left out where the name determines it, or
            where `target` leaves one choice.
        target: The language to translate into.
        split: A split as TensorFlow Datasets writes it: ``"train"``, ``"train[:10%]"``,
            ``"train[100:200]+validation"``. ``"val"``, ``"valid"`` and ``"dev"`` are
            ``"validation"``; ``"test"`` is the one test set of a folder, whatever it is called.
        data_dir: Where prepared data is kept; by default where TensorFlow Datasets keeps it
            (``~/tensorflow_datasets``, or ``TFDS_DATA_DIR``).
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.

    Returns:
        A `tf.data.Dataset` of ``(source, target)`` string scalars, or a dictionary with the one of
        each split if `split` is `None`.

    Raises:
        ImportError: If TensorFlow Datasets is not installed.
        FileNotFoundError: If there is no such folder, no parallel text in it, or a split has one
            side only; or if a named set is not prepared and `download` is false.
        ValueError: For an unknown name, language or split; for files with unequal line counts.
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
    corpus = _open(name_or_folder, source, target, data_dir, download, max_chars)
    if split is not None:
        return corpus.read(corpus.resolve_split(split))
    return {name: corpus.read(name) for name in corpus.splits}


def line_reports(
    name_or_folder: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    *,
    source: str | None = None,
    target: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    split: str | None = None,
    download: bool = True,
    max_chars: int = 1000,
) -> dict[str, LineReport]:
    r"""Counts the pairs of each split that `load_translation` keeps and leaves out.

    The lines of a folder are counted when it is prepared, and the counts are stored; other sets are
    read once.

    Args:
        name_or_folder: As for `load_translation`.
        source: The language to translate from.
        target: The language to translate into.
        data_dir: Where prepared data is kept.
        split: Count only the splits named here, each as a whole: ``"train[:10%]"`` is ``"train"``.
        download: Whether a named set may be downloaded.
        max_chars: The longest side to keep, in characters.

    Returns:
        The report of each split.

    Raises:
        ImportError: If TensorFlow Datasets is not installed.
        FileNotFoundError: As for `load_translation`.
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
    corpus = _open(name_or_folder, source, target, data_dir, download, max_chars)
    return corpus.line_reports(corpus.splits if split is None else corpus.named_in(split))


@dataclasses.dataclass(frozen=True)
class _TranslationSet:
    """A prepared builder, read in one direction."""

    builder: tfds.core.DatasetBuilder
    source: str
    target: str
    label: str
    max_chars: int

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.builder.info.splits)

    def resolve_split(self, split: str) -> str:
        """Checks the names in a split expression and replaces aliases such as "val"."""
        return "+".join(self._resolve_part(part.strip()) for part in split.split("+"))

    def named_in(self, split: str) -> tuple[str, ...]:
        """The splits that a split expression reads from."""
        parts = self.resolve_split(split).split("+")
        return tuple(dict.fromkeys(part.partition("[")[0] for part in parts))

    def _resolve_part(self, part: str) -> str:
        name, bracket, slice_ = part.partition("[")
        aliases = {alias: "validation" for alias in _VALIDATION_NAMES}
        tests = [known for known in self.splits if known.startswith("test")]
        if len(tests) == 1:
            aliases["test"] = tests[0]
        resolved = name if name in self.splits else aliases.get(name, name)
        if resolved not in self.splits:
            raise ValueError(
                f"{self.label} has no split {name!r}. It has {_listed(self.splits)}; a part of one "
                f"is written like '{self.splits[0]}[:10%]'."
            )
        return resolved + bracket + slice_

    def read(self, split: str) -> tf.data.Dataset:
        """The usable pairs of a split, in the order on disk."""
        pairs = self._read_all(split)
        # With a filter, the number of pairs would be unknown.
        return pairs if self._is_checked() else pairs.filter(self._is_usable)

    def _is_checked(self) -> bool:
        """Whether one of our own builders has checked every pair when it prepared the set."""
        checked = _checked_length(self.builder)
        return checked is not None and checked <= self.max_chars

    def line_reports(self, splits: Iterable[str]) -> dict[str, LineReport]:
        """The stored reports of a folder, or counts from reading each split once."""
        if hasattr(self.builder, "line_reports"):
            stored: dict[str, LineReport] = self.builder.line_reports()
            return {split: stored[split] for split in splits}
        return {split: self._count(split) for split in splits}

    def _count(self, split: str) -> LineReport:
        if self._is_checked():
            kept = self.builder.info.splits[split].num_examples
            return LineReport(split, kept=kept, max_chars=self.max_chars)
        checker = LineChecker(split, self.max_chars)
        for source, target in self._read_all(split).as_numpy_iterator():
            checker.check(source, target)
        return checker.report()

    def _read_all(self, split: str) -> tf.data.Dataset:
        import tensorflow as tf
        import tensorflow_datasets as tfds

        feature = _translation_feature(self.builder, self.label)
        try:
            examples = self.builder.as_dataset(
                split=split,
                shuffle_files=False,
                # One shard after the other keeps the order of the files. Whether to cache is the
                # pipeline's decision.
                read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
            )
        except (ValueError, AssertionError) as error:
            raise ValueError(
                f"{split!r} is no split of {self.label}: {error}. Splits are {_listed(self.splits)}"
                f"; a part of one is written like '{self.splits[0]}[:10%]' or "
                f"'{self.splits[0]}[100:200]'."
            ) from error

        def pair(example: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
            texts = example[feature] if feature else example
            return tf.strings.strip(texts[self.source]), tf.strings.strip(texts[self.target])

        return examples.map(pair, num_parallel_calls=tf.data.AUTOTUNE)

    def _is_usable(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        sides = tf.stack([source, target])
        blank = tf.strings.regex_full_match(sides, _BLANK)
        too_long = tf.strings.length(sides, unit="UTF8_CHAR") > self.max_chars
        return tf.logical_not(tf.reduce_any(blank | too_long))


def _open(
    name_or_folder: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    download: bool,
    max_chars: int,
) -> _TranslationSet:
    """Finds and prepares a set of pairs of any origin, and decides its direction."""
    if max_chars < 1:
        raise ValueError(f"max_chars is a number of characters, 1 or more; received {max_chars}.")
    is_demo = isinstance(name_or_folder, str) and re.fullmatch(r"demo(/.*)?", name_or_folder)
    _require_tfds("demo" if is_demo else "tfds")
    if not isinstance(name_or_folder, (str, os.PathLike)):
        return _open_builder(name_or_folder, source, target, download, max_chars)
    name = os.fspath(name_or_folder)
    if is_demo:
        return _open_demo(name, source, target, data_dir, max_chars)
    if _looks_like_folder(name_or_folder):
        return _open_folder(Path(name).expanduser(), source, target, data_dir, max_chars)
    return _open_named(name, source, target, data_dir, download, max_chars)


def _require_tfds(extra: str) -> None:
    # TensorFlow Datasets prepares nothing without importlib_resources, and does not declare it.
    needed = ("tensorflow_datasets", "importlib_resources")
    require_extra(extra, "Loading sentence pairs with TensorFlow Datasets", *needed)


def _looks_like_folder(name_or_folder: str | os.PathLike[str]) -> bool:
    name = os.fspath(name_or_folder)
    return (
        not isinstance(name_or_folder, str)
        or name.startswith((".", "/", "~", os.sep))
        or name.count("/") > 1
        or bool(name and Path(name).is_dir())
    )


def _open_demo(
    name: str,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    max_chars: int,
) -> _TranslationSet:
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
    direction = _direction(languages, (languages[0], languages[1]), source, target, label)
    if "en" not in direction:
        raise ValueError(
            f"One side of {label} is English; received source={source!r}, target={target!r}."
        )
    builder = demo_builder(next(filter(TARGETS.get, direction)), data_dir=data_dir)
    prepare_quietly(builder)
    return _TranslationSet(builder, *direction, label, max_chars)


def _open_folder(
    folder: Path,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    max_chars: int,
) -> _TranslationSet:
    from keras_addnorm.data.folder import folder_builder
    from keras_addnorm.data.tfds_common import prepare_quietly

    label = f"the folder {folder}"
    direction = _direction(find_languages(folder), None, source, target, label)
    builder = folder_builder(folder, *direction, max_chars=max_chars, data_dir=data_dir)
    prepare_quietly(builder)
    return _TranslationSet(builder, *direction, label, max_chars)


def _open_named(
    name: str,
    source: str | None,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    download: bool,
    max_chars: int,
) -> _TranslationSet:
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
            "'demo/en-de', './my_folder'."
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
    return _open_builder(builder, source, target, download, max_chars)


def _open_builder(
    builder: tfds.core.DatasetBuilder,
    source: str | None,
    target: str | None,
    download: bool,
    max_chars: int,
) -> _TranslationSet:
    import tensorflow_datasets as tfds

    if not isinstance(builder, tfds.core.DatasetBuilder):
        raise TypeError(
            "Expected the name of a data set, a folder, or a TensorFlow Datasets builder; received "
            f"{type(builder).__name__}."
        )
    label = f"the data set {builder.info.full_name.rpartition('/')[0]}"
    feature = _translation_feature(builder, label)
    translation = builder.info.features[feature] if feature else builder.info.features
    languages = tuple(translation.languages)
    supervised = builder.info.supervised_keys
    default = supervised if supervised and {*supervised} <= {*languages} else languages[:2]
    direction = _direction(languages, (default[0], default[1]), source, target, label)
    _prepare(builder, download, label)
    return _TranslationSet(builder, *direction, label, max_chars)


def _prepare(builder: tfds.core.DatasetBuilder, download: bool, label: str) -> None:
    from keras_addnorm.data.downloads import check_before_downloading
    from keras_addnorm.data.tfds_common import prepare, prepare_quietly, quietly

    if _checked_length(builder) is not None:
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


def _checked_length(builder: tfds.core.DatasetBuilder) -> int | None:
    """The longest text, in characters, that one of our own builders keeps; `None` for others."""
    longest: int | None = getattr(builder.builder_config, "max_chars", None)
    return longest


def _translation_feature(builder: tfds.core.DatasetBuilder, label: str) -> str:
    """The name of the feature that holds the texts; empty if they are the example itself."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    if isinstance(features, tfds.features.Translation):
        return ""
    nested: list[str] = [
        name for name, feature in features.items() if isinstance(feature, tfds.features.Translation)
    ]
    if not nested:
        raise ValueError(
            f"{label} has no `Translation` feature with a fixed pair of languages; its features are"
            f" {_listed(features)}. Sets that have one: 'ted_hrlr_translate', 'wmt14_translate', "
            "'wmt16_translate', 'para_crawl', 'opus'."
        )
    return nested[0]


def _direction(
    languages: Iterable[str],
    default: tuple[str, str] | None,
    source: str | None,
    target: str | None,
    label: str,
) -> tuple[str, str]:
    """Chooses source and target language from the request, the set's languages and the default."""
    languages = tuple(languages)
    for argument, language in (("source", source), ("target", target)):
        if language is not None and language not in languages:
            raise ValueError(
                f"{label} has no language {language!r} for {argument}. It has {_listed(languages)}."
            )
    if source is not None and source == target:
        raise ValueError(
            f"source and target are both {source!r}; choose two of {_listed(languages)}."
        )
    if source is None and target is None and default is not None:
        return default
    candidates = [
        (first, second)
        for first in languages
        for second in languages
        if first != second and source in (None, first) and target in (None, second)
    ]
    if len(candidates) != 1:
        raise ValueError(
            f"{label} has the languages {_listed(languages)}, and the direction is open: received "
            f"source={source!r}, target={target!r}. Say both, for example "
            f"source={languages[0]!r}, target={languages[-1]!r}."
        )
    return candidates[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
