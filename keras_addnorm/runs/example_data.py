"""Writes a folder of parallel text to try the commands with."""

from __future__ import annotations

from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.data.demo import SPLITS, TARGETS, demo_splits
from keras_addnorm.runs.errors import as_user_errors

# Enough to learn the set's sentences from in minutes.
_SIZES = {"train_size": 5000, "validation_size": 200, "test_size": 200}


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
    if folder.exists():
        raise UserError(f"{str(folder)!r} exists. Expected the name of a new folder.")
    language = target if source == "en" else source
    if "en" not in (source, target) or language not in TARGETS:
        raise UserError(
            f"The example is in English and one of {', '.join(TARGETS)}. Received: --source "
            f"{source} --target {target}."
        )
    with as_user_errors():
        splits = demo_splits(language, **_SIZES)
    with atomic_folder(folder) as temporary:
        for split in SPLITS:
            for side, code in (("source", "en"), ("target", language)):
                lines = "".join(f"{getattr(pair, side)}\n" for pair in splits[split])
                (temporary / f"{split}.{code}").write_text(lines, encoding="utf-8")
    return folder


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
