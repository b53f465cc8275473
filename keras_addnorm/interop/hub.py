"""Folders of pretrained models: on the disk, or by the name that the model hub knows them by."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.public_checkpoints import (
    REFUSED,
    full_name,
    nearest,
    public_checkpoints,
)

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Seconds until a hub that does not answer counts as out of reach.
_PATIENCE = 5
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_TEXTS = re.compile(r".*\.(json|txt|model|spm|yml|md)")


def find_checkpoint(name: str | os.PathLike[str]) -> Path:
    """Return where a checkpoint lies.

    Args:
        name: A folder or a file; or the name of a model at https://huggingface.co, which is
            fetched, or found among those that were fetched before. A checkpoint that is known
            (`keras-addnorm zoo list --public`) may be named without its owner.

    Returns:
        The path.

    Raises:
        ImportError: If it is such a name, and `huggingface_hub` is not installed.
        FileNotFoundError: If there is nothing of that name, or the hub cannot be reached; a name
            that is nearly that of a known checkpoint is told.
        ValueError: If it is a checkpoint that is known not to load.
    """
    path = to_path(name)
    if path.exists():
        return path
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FileNotFoundError(
            f"There is no folder '{path}'. Expected the folder of a model, a file of weights, or "
            "the name of a model at huggingface.co, such as 'Helsinki-NLP/opus-mt-en-de'."
        )
    name = full_name(name)
    hint = nearest(name)
    known = public_checkpoints().get(name)
    if known is not None and known.state == REFUSED:
        raise ArgumentError(
            f"{name!r} is not loaded: {known.why}.",
            remedy="`keras-addnorm zoo list --public` lists others.",
        )
    purpose = f"'{name}' is no folder here.{hint} Looking it up at huggingface.co"
    (hub,) = require_extra("pretrained", purpose, "huggingface_hub")
    try:
        return _fetch(hub, name)
    except Exception as error:  # Those of several HTTP libraries, by version.
        reason = next(iter(str(error).splitlines()), "no reason")
        raise FileNotFoundError(
            f"There is no folder '{name}', and no model of that name could be fetched from "
            f"huggingface.co ({type(error).__name__}: {reason:.200}).{hint} Expected "
            "a folder, or a name such as 'Helsinki-NLP/opus-mt-en-de' and a network. Without one, "
            f"run `hf download {name} --local-dir FOLDER` on a machine that has it, copy the "
            "folder here, and pass its path."
        ) from error


def _fetch(hub: Any, name: str) -> Path:
    try:
        found = hub.HfApi().model_info(name, timeout=_PATIENCE)
    except Exception:
        # What was fetched before is enough.
        try:
            return Path(hub.snapshot_download(name, local_files_only=True))
        except Exception:
            pass
        raise
    files = [file.rfilename for file in found.siblings or ()]
    wanted = [file for file in files if "/" not in file and _TEXTS.fullmatch(file)]
    for weights in _WEIGHTS:
        stem, ending = weights.split(".")
        parts = re.compile(rf"{stem}(-\d+-of-\d+)?\.{ending}")
        if found_parts := [file for file in files if parts.fullmatch(file)]:
            wanted += found_parts
            break
    return Path(hub.snapshot_download(name, allow_patterns=wanted, etag_timeout=_PATIENCE))
