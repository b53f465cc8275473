"""Writes a folder of parallel text to try the commands with."""

from __future__ import annotations

import itertools
from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.data.demo import SPLITS, TARGETS, Pair, demo_splits
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.outputs import require_new_folder

# Enough to learn the set's sentences from in minutes.
_SIZES = {"train_size": 5000, "validation_size": 200, "test_size": 200}
# Of sentences from templates, less than two thirds differ from all others by more than a word.
_GENERATED_FOR_ONE = 4


def write_example(folder: str | Path, source: str = "en", target: str = "de") -> Path:
    """Writes sentence pairs of the built-in set as a corpus of one's own would be.

    Args:
        folder: The folder to make: `train.en`, `train.de`, `validation.en` and so on.
        source: The language to translate from.
        target: The language to translate to; one of the two is English.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, the set has no such languages, or it cannot be generated.
    """
    folder = to_path(folder)
    require_new_folder(folder)
    language = target if source == "en" else source
    if "en" not in (source, target) or language not in TARGETS:
        raise UserError(
            f"The example is in English and one of {', '.join(TARGETS)}. Received: --source "
            f"{source} --target {target}."
        )
    with as_user_errors():
        splits = _splits(language)
    with atomic_folder(folder) as temporary:
        for split in SPLITS:
            for side, code in (("source", "en"), ("target", language)):
                lines = "".join(f"{getattr(pair, side)}\n" for pair in splits[split])
                (temporary / f"{split}.{code}").write_text(lines, encoding="utf-8")
    return folder


def _splits(language: str) -> dict[str, list[Pair]]:
    """Pairs of each split; those held out differ by two words or more from all to train on."""
    generated = demo_splits(
        language,
        train_size=_SIZES["train_size"],
        validation_size=_GENERATED_FOR_ONE * _SIZES["validation_size"],
        test_size=_GENERATED_FOR_ONE * _SIZES["test_size"],
    )
    splits = {"train": generated["train"]}
    # Nearness has no direction.
    trained = HeldOutTexts((pair.source, pair.target) for pair in generated["train"])
    for split in SPLITS[1:]:
        far = (p for p in generated[split] if not trained.has_near((p.source, p.target)))
        splits[split] = list(itertools.islice(far, _SIZES[f"{split}_size"]))
    return splits


def next_steps(folder: Path, source: str, target: str) -> str:
    """Says what the folder holds, and the commands that go on with it."""
    train = f"keras-addnorm train runs/mine --data {folder} --source {source} --target {target}"
    return "\n".join(
        (
            f"{folder} holds {_SIZES['train_size']:,} pairs to train on, a sentence a line:",
            *(f"  {split}.{source}, {split}.{target}" for split in SPLITS),
            "Put your own text into such files, then:",
            f"  {train}",
            "  keras-addnorm evaluate runs/mine",
        )
    )
