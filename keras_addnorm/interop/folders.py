"""What all exports share: checks of the model, its tokenizers and the folder, and the digests."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.integrity import IN_EXPORTS, Manifest
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.models.checks import require_finite, require_vocabularies
from keras_addnorm.models.seq2seq import require_model


def require_new(directory: str | os.PathLike[str]) -> Path:
    """Return the path of a folder, or raise a `FileExistsError` if it exists."""
    directory = to_path(directory)
    if directory.exists():
        raise FileExistsError(
            f"Cannot export to '{directory}': it exists. Expected a folder to make. Pass another "
            "name, or remove it first."
        )
    return directory


def write_manifest(folder: Path) -> None:
    """Write the digests of all files of an export that a reader needs."""
    # For people, who add to it.
    Manifest(folder, IN_EXPORTS).write({"README.md"})


def write_readme(folder: Path, name: str, runtime: str, about: str, set_up: str) -> None:
    """Write `README.md`, whose greedy search runs as it stands, into an export of graphs.

    Args:
        folder: The folder, as it is being written.
        name: Its name.
        runtime: What the graphs are for.
        about: What is said of them.
        set_up: Code that defines `encoder` and `decoder_step`, functions from named arrays to a
            dict of arrays, and `ids` and `card` from `model.json`. `FOLDER` stands for the name.
    """
    template = string.Template(read_resource(__package__, "templates", "graphs.md"))
    code = set_up.replace("FOLDER", name)
    text = template.substitute(runtime=runtime, about=about, name=name, code=code)
    (folder / "README.md").write_text(text, encoding="utf-8")


def require_intact(path: str | os.PathLike[str]) -> None:
    """Compares the files of an export for another runtime or toolkit with their digests.

    `export_ctranslate2`, `export_litert`, `export_onnx` and `save_pretrained` write
    `keras_addnorm_manifest.json` with the SHA-256 of each file but `README.md`. What other programs
    have written has no digests, and counts as whole.

    Args:
        path: The folder, or one file in it.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If a file is not what was written, or is missing; the message names it.

    Example:
        ```python
        import pathlib, tempfile

        from keras_addnorm.interop import (
            load_pretrained,
            make_random_folder,
            require_intact,
            save_pretrained,
        )

        folder = pathlib.Path(tempfile.mkdtemp())
        t5 = load_pretrained(make_random_folder("t5", folder / "t5"))
        copy = save_pretrained(t5, folder / "copy")
        require_intact(copy)
        (copy / "config.json").write_text("{}")
        try:
            require_intact(copy)
        except ValueError as error:
            assert "config.json' is damaged" in str(error)
        ```
    """
    path = to_path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"There is nothing at '{path}'. Expected the folder of an export, or a file in it."
        )
    folder = path if path.is_dir() else path.parent
    remedy = "Copy the folder again from where it is whole, or export it again."
    Manifest(folder, IN_EXPORTS).check(path, remedy)


def prepare(
    model: Any, tokenizer: BaseTokenizer | TokenizerPair | None, directory: str | os.PathLike[str]
) -> tuple[TokenizerPair | None, Path]:
    """Check what a format that knows token ids only is exported from, and where to.

    Args:
        model: The model.
        tokenizer: The tokenizers to put beside it, if any.
        directory: The folder to make.

    Returns:
        The tokenizers of both sides, if any, and the folder's path.

    Raises:
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the tokenizer does not belong to the model, or a weight is not finite.
        FileExistsError: If the folder exists.
    """
    require_finite(require_model(model))
    tokenizers = None if tokenizer is None else TokenizerPair.of(tokenizer)
    if tokenizers is not None:
        require_vocabularies(model.config, tokenizers)
    return tokenizers, require_new(directory)


def never_generated(config: Seq2SeqConfig, tokenizers: TokenizerPair | None) -> list[int]:
    """Return the ids that no output holds: special ones, and those that have no piece."""
    unused = () if tokenizers is None else getattr(tokenizers.target, "unused_ids", ())
    return sorted({*config.special_ids.never_generated, *unused})
