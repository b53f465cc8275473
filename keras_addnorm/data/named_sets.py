"""Sets of TensorFlow Datasets as sentence pairs: the one file that imports TensorFlow Datasets."""

from __future__ import annotations

import contextlib
import difflib
import io
import logging
import os
import re
import threading
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.printing import listed
from keras_addnorm.data.demo.generate import Pair, demo_splits, fingerprint, target_grammar
from keras_addnorm.data.open_files import choose_direction
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers import InputFile, RawPair
from keras_addnorm.data.request import Request
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.translation_set import TranslationSet

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

_PATIENCE_SECONDS = 5.0


class DownloadUnavailableError(ConnectionError):
    """A data set has to be downloaded, and its server cannot be reached."""


@dataclass(frozen=True)
class NamedSource(PairSource):
    """A split of a prepared set.

    Attributes:
        split: The name of the split.
        builder: The builder of the set.
        feature: The feature that holds the texts; empty if they are the example itself.
        source: The source language.
        target: The target language.
    """

    numbers_every_pair = True

    split: str
    builder: tfds.core.DatasetBuilder
    feature: str
    source: str
    target: str

    @property
    def size(self) -> int | None:
        """As the builder counted them."""
        count: int = self.builder.info.splits[self.split].num_examples
        return count

    @property
    def is_counted(self) -> bool:
        """There may be millions of them, and how many can be used, nobody has counted."""
        return getattr(self.builder, "is_counted", False)

    def fingerprint(self) -> str:
        """Digests of the files that the set was prepared as."""
        files = self.builder.info.splits[self.split].filepaths
        digests = [InputFile(Path(path)).digest() for path in files]
        return f"{self.feature} {self.source} {self.target} {digests}"

    def raw_pairs(self) -> Iterator[RawPair]:
        """In the order on disk."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        # One shard after the other keeps the order of the files.
        config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        examples = self.builder.as_dataset(
            split=self.split, shuffle_files=False, read_config=config
        )

        def pair(example: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
            texts = example[self.feature] if self.feature else example
            return texts[self.source], texts[self.target]

        pairs = string_pairs(examples.map(pair, num_parallel_calls=tf.data.AUTOTUNE))
        for number, (source, target) in enumerate(pairs, 1):
            yield RawPair(source, target, number)


def demo_builder(
    language: str = "de",
    *,
    train_size: int = 30_000,
    validation_size: int = 1_000,
    test_size: int = 1_000,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> tfds.core.GeneratorBasedBuilder:
    """Makes the TensorFlow Datasets builder of a demo set of any size.

    The name of the prepared data contains all arguments and a fingerprint of the sentences, so that
    no stale set is ever read.

    Args:
        language: The language beside English: ``"de"``, ``"fr"`` or ``"es"``.
        train_size: The number of pairs to train on.
        validation_size: The number of pairs to choose checkpoints by.
        test_size: The number of pairs to measure with.
        seed: Seed of the random choices. Held-out sentences stay held out under every seed.
        data_dir: Where prepared data is kept; by default where TensorFlow Datasets keeps it.

    Returns:
        A builder that `load_translation` takes in place of a name.

    Raises:
        ImportError: If TensorFlow Datasets, Babel or num2words is not installed.
        ValueError: If the demo set does not speak the language, or a number does not fit.

    Example:
        >>> import tempfile
        >>> from keras_addnorm.data import demo_builder, load_translation
        >>> builder = demo_builder("fr", train_size=100, test_size=5, data_dir=tempfile.mkdtemp())
        >>> len(load_translation(builder, split="test"))
        5
    """
    tfds = _require_tfds()
    require_extra("demo", "The demo set", "babel", "num2words")
    target_grammar(language)
    require_int("A set has pairs.", train_size=train_size, validation_size=validation_size)
    require_int("A set has pairs.", test_size=test_size)
    require_int("A seed makes the pairs.", least=0, seed=seed)
    sizes = {"train_size": train_size, "validation_size": validation_size, "test_size": test_size}
    languages = ("en", language)

    class Demo(  # type: ignore[call-arg]
        tfds.core.GeneratorBasedBuilder,  # type: ignore[name-defined]
        skip_registration=True,
    ):
        """Generated sentence pairs about people, places, prices, dates and times."""

        VERSION = tfds.core.Version("1.0.0")
        is_counted = True  # It is small.

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self,
                description=self.__doc__,
                features=tfds.features.Translation(languages=languages),
                supervised_keys=languages,
                disable_shuffling=True,  # The order on disk is that of generation.
            )

        def download_and_prepare(self, **choices: Any) -> None:
            # It takes seconds, of which nothing need be said.
            silence = io.StringIO()
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                super().download_and_prepare(**choices)

        def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, Any]]]:
            splits = demo_splits(language, **sizes, seed=seed)
            return {name: self._generate_examples(pairs) for name, pairs in splits.items()}

        def _generate_examples(self, pairs: Iterable[Pair]) -> Iterator[tuple[int, Any]]:
            return enumerate({"en": pair.source, language: pair.target} for pair in pairs)

    mark = "-".join(map(str, (train_size, validation_size, test_size)))
    name = f"en-{language}-{mark}-seed{seed}-{fingerprint(language)}"
    with _quietly():
        return Demo(config=tfds.core.BuilderConfig(name=name), data_dir=data_dir)


def _require_tfds() -> Any:
    # TensorFlow Datasets prepares nothing without importlib_resources, and does not declare it.
    needed = ("tensorflow_datasets", "importlib_resources")
    purpose = "Loading sentence pairs with TensorFlow Datasets"
    return require_extra("tfds", purpose, *needed)[0]


def open_name(request: Request) -> TranslationSet:
    """Opens a set by its name, and prepares it if it is not prepared yet.

    Args:
        request: What is wanted; its `data` is a name with its config.

    Returns:
        The pairs.

    Raises:
        ImportError: If TensorFlow Datasets is not installed.
        ValueError: If there is no such set, or it has no pairs of texts.
        FileNotFoundError: If it is not prepared, and must not be downloaded.
        DownloadUnavailableError: If it cannot be downloaded.
    """
    tfds = _require_tfds()
    name = request.data
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
    with _quietly():
        builder = tfds.builder(name, data_dir=request.data_dir)
    return open_builder(builder, request)


def open_builder(builder: tfds.core.DatasetBuilder, request: Request) -> TranslationSet:
    """Opens the set of a builder, which may be one's own, as `open_name` does."""
    label = f"the data set {builder.info.full_name.rpartition('/')[0]}"
    feature = _translation_feature(builder, label)
    translation = builder.info.features[feature] if feature else builder.info.features
    languages = tuple(translation.languages)
    supervised = builder.info.supervised_keys
    default = supervised if supervised and {*supervised} <= {*languages} else languages[:2]
    direction = choose_direction(
        languages, (default[0], default[1]), request.source, request.target, label
    )
    _prepare(builder, request.download, label)
    splits = builder.info.splits
    sources = [NamedSource(split, builder, feature, *direction) for split in splits]
    return TranslationSet.of(request, sources, direction, label)


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
            f" {listed(features)}. Sets that have one: 'ted_hrlr_translate', 'wmt14_translate', "
            "'wmt16_translate', 'para_crawl', 'opus'."
        )
    return nested[0]


def _prepare(builder: tfds.core.DatasetBuilder, download: bool, label: str) -> None:
    with _quietly():
        if builder.is_prepared():
            return
        if not download:
            raise FileNotFoundError(
                f"There is no prepared data of {label} in {builder.data_dir}, and download=False. "
                "Allow the download, or give the data_dir that holds the prepared data."
            )
        with _check_before_downloading(label):
            try:
                builder.download_and_prepare()
            except OSError:  # Another process may have prepared it meanwhile.
                if not builder.is_prepared():
                    raise
                builder.info.read_from_directory(builder.data_dir)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences warnings about configurations and folders that TensorFlow Datasets does not know."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _check_before_downloading(dataset: str) -> Iterator[None]:
    """Makes the downloader test the connection once before it spends minutes on retries.

    The check sits below `DownloadManager`, so files that are cached or placed by hand need none.
    """
    from tensorflow_datasets.core.download import downloader

    unchecked = downloader._Downloader.download

    def download(self: Any, url: str, *args: Any, **kwargs: Any) -> Any:
        if urllib.parse.urlsplit(url).scheme in ("http", "https"):
            _require_reachable(url, dataset)
        return unchecked(self, url, *args, **kwargs)

    downloader._Downloader.download = download
    try:
        yield
    finally:
        downloader._Downloader.download = unchecked


def _require_reachable(url: str, dataset: str) -> None:
    reason = _unreachable(url)
    if reason:
        raise DownloadUnavailableError(
            f"{dataset[0].upper()}{dataset[1:]} has to be downloaded from {url}, which cannot be "
            f"reached ({reason}). Check the network (behind a proxy, HTTP_PROXY and HTTPS_PROXY "
            "too), or prepare the set on a machine with access and copy its folder into data_dir. "
            "Without a network, a folder of parallel text and the built-in set 'demo/en-de' work."
        )


def _unreachable(url: str) -> str:
    """The reason why a server does not answer; empty if it does."""
    import requests  # A dependency of TensorFlow Datasets.

    answer: list[str] = []

    def ask() -> None:
        try:
            with requests.get(url, stream=True, timeout=_PATIENCE_SECONDS) as response:
                answer.append("" if response.ok else f"the server said {response.status_code}")
        except requests.RequestException as error:
            answer.append(type(error).__name__)

    # A name lookup has no time-out of its own, so the whole request gets one.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(2 * _PATIENCE_SECONDS)
    return answer[0] if answer else f"no answer within {2 * _PATIENCE_SECONDS:g} seconds"
