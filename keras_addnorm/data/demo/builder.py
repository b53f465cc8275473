"""A TensorFlow Datasets builder for the demo set. Imports TensorFlow Datasets: import it late."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import tensorflow_datasets as tfds

from keras_addnorm.data.demo.generate import Pair, demo_splits
from keras_addnorm.data.tfds_common import translation_info


@dataclasses.dataclass(eq=False)
class DemoConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Language, sizes and seed of a demo set."""

    language: str = "de"
    train_size: int = 30_000
    validation_size: int = 1_000
    test_size: int = 1_000
    seed: int = 0
    # No generated sentence is longer, so a caller who allows this much need not check the length.
    max_chars: int = 150


class Demo(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder,  # type: ignore[misc]
    skip_registration=True,
):
    """Generates the demo set and asserts that no held-out sentence occurs in training."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return translation_info(
            self,
            ("en", self.builder_config.language),
            "Generated sentence pairs about people, places, prices, dates and times.",
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, str]]]]:
        del dl_manager
        config = self.builder_config
        splits = demo_splits(
            config.language,
            train_size=config.train_size,
            validation_size=config.validation_size,
            test_size=config.test_size,
            seed=config.seed,
        )
        return {name: self._generate_examples(pairs) for name, pairs in splits.items() if pairs}

    def _generate_examples(self, pairs: list[Pair]) -> Iterator[tuple[int, dict[str, str]]]:
        language = self.builder_config.language
        return enumerate({"en": pair.source, language: pair.target} for pair in pairs)
