"""Makes the builder of a demo set, without importing TensorFlow Datasets before it is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keras_addnorm.basics.argument_checks import require_whole
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.demo.generate import fingerprint, target_grammar

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


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
    needed = ("tensorflow_datasets", "importlib_resources", "babel", "num2words")
    require_extra("demo", "The demo set", *needed)
    target_grammar(language)
    require_whole("A set has pairs.", train_size=train_size, validation_size=validation_size)
    require_whole("A set has pairs.", test_size=test_size)
    require_whole("A seed makes the pairs.", least=0, seed=seed)
    from keras_addnorm.data.demo.builder import Demo, DemoConfig
    from keras_addnorm.data.tfds_common import quietly

    sizes = f"{train_size}-{validation_size}-{test_size}"
    config = DemoConfig(
        name=f"en-{language}-{sizes}-seed{seed}-{fingerprint(language)}",
        language=language,
        train_size=train_size,
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
    )
    with quietly():
        return Demo(config=config, data_dir=data_dir)
