"""Folders of pretrained models: on the disk, or by the name that the model hub knows them by."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.optional import require_extra

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Seconds until a hub that does not answer counts as out of reach.
_PATIENCE = 5
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_TEXTS = re.compile(r".*\.(json|txt|model|spm|yml|md)")


def find_checkpoint(name: str | os.PathLike[str]) -> Path:
    """Return where a checkpoint lies.

    Args:
        name: A folder or a file; or the name of a model at https://huggingface.co, which is
            fetched, or found among those that were fetched before.

    Returns:
        The path.

    Raises:
        ImportError: If it is such a name, and `huggingface_hub` is not installed.
        FileNotFoundError: If there is nothing of that name, or the hub cannot be reached.
    """
    path = to_path(name)
    if path.exists():
        return path
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FileNotFoundError(
            f"There is no folder '{path}'. Expected the folder of a model, a file of weights, or "
            "the name of a model at huggingface.co, such as 'Helsinki-NLP/opus-mt-en-de'."
        )
    purpose = f"'{name}' is no folder here. Looking it up at huggingface.co"
    (hub,) = require_extra("pretrained", purpose, "huggingface_hub")
    try:
        return _fetch(hub, name)
    except Exception as error:  # Those of several HTTP libraries, by version.
        reason = next(iter(str(error).splitlines()), "no reason")
        raise FileNotFoundError(
            f"There is no folder '{name}', and no model of that name could be fetched from "
            f"huggingface.co ({type(error).__name__}: {reason:.200}). Expected "
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
