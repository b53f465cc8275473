"""Files of weights, read tensor by tensor without torch or transformers.

`find_tensors(folder)` returns the tensors of a Hugging Face folder by name: one file or several
with an index, safetensors or PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.interop.tensor_files.computed_tensor import ComputedTensor
from keras_addnorm.interop.tensor_files.marian_bin import (
    EightBitMatrix,
    StoredEightBitMatrix,
    is_marian_bin,
    read_marian_bin,
    write_marian_bin,
)
from keras_addnorm.interop.tensor_files.numpy_zip import read_npz, write_npz
from keras_addnorm.interop.tensor_files.safetensors import read_safetensors, write_safetensors
from keras_addnorm.interop.tensor_files.stored_tensor import DamagedFileError, StoredTensor
from keras_addnorm.interop.tensor_files.tensorflow_checkpoint import read_tensorflow_checkpoint
from keras_addnorm.interop.tensor_files.torch_zip import Options, read_torch, tensors_in

__all__ = [
    "ComputedTensor",
    "DamagedFileError",
    "EightBitMatrix",
    "Options",
    "StoredEightBitMatrix",
    "StoredTensor",
    "find_tensors",
    "is_marian_bin",
    "read_marian_bin",
    "read_npz",
    "read_safetensors",
    "read_tensorflow_checkpoint",
    "read_tensors",
    "read_torch",
    "tensors_in",
    "write_marian_bin",
    "write_npz",
    "write_safetensors",
]

# What is looked for in a folder, in this order: safetensors need no pickle.
_FILES = ("model.safetensors", "pytorch_model.bin")
# Weights of other frameworks, and how they become one of these.
_CONVERT = (
    " Write '{name}' in PyTorch's form once, with transformers 4: "
    "AutoModelForSeq2SeqLM.from_pretrained(folder, {option}=True).save_pretrained(new_folder)."
)
_OTHER_FRAMEWORKS = {
    name: _CONVERT.format(name=name, option=option)
    for name, option in (("tf_model.h5", "from_tf"), ("flax_model.msgpack", "from_flax"))
}
_READERS: dict[str, Callable[[Path], dict[str, StoredTensor]]] = {
    ".safetensors": read_safetensors,
    ".npz": read_npz,
}


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name, by the file's ending.

    Args:
        path: A `.safetensors` or `.npz` file; every other is read as one of PyTorch.

    Returns:
        The tensors.
    """
    if path.suffix in _READERS:
        return _READERS[path.suffix](path)
    return tensors_in(read_torch(path))


def find_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a Hugging Face folder by name.

    Args:
        folder: A folder with `model.safetensors` or `pytorch_model.bin`, or with an index of
            several such files.

    Returns:
        The tensors.

    Raises:
        FileNotFoundError: If there is none of these files, or one of those in the index is missing.
        ValueError: If a file is damaged.
    """
    for name in _FILES:
        index = folder / f"{name}.index.json"
        if has_file(folder / name):
            return read_tensors(folder / name)
        if has_file(index):
            places = _places(index)
            files = sorted(set(places.values()))
            if outside := [file for file in files if Path(file).name != file]:
                raise ArgumentError(
                    f"'{index}' names files outside of its folder.",
                    "names of files beside it",
                    received=", ".join(outside),
                )
            if missing := [file for file in files if not has_file(folder / file)]:
                raise FileNotFoundError(
                    f"Files that '{index}' names are missing: {', '.join(missing)}. Download them."
                )
            found = {file: read_tensors(folder / file) for file in files}
            if lost := [name for name, file in places.items() if name not in found[file]]:
                raise DamagedFileError(
                    f"'{index}' names {len(lost)} tensors that its files lack, '{lost[0]}' among "
                    "them. Expected files of one checkpoint. Download them again."
                )
            tensors = {name: each for file in files for name, each in found[file].items()}
            return tensors | {name: found[file][name] for name, file in places.items()}
    there = sorted(path.name for path in folder.iterdir())
    hints = [hint for name, hint in _OTHER_FRAMEWORKS.items() if name in there]
    raise FileNotFoundError(
        f"There are no weights in '{folder}' that can be read here. Expected one of "
        f"{', '.join(_FILES)}, or an index of several such files. Received: "
        f"{', '.join(there[:20]) or 'an empty folder'}.{''.join(hints)}"
    )


def _places(index: Path) -> dict[str, str]:
    """Return the file of each tensor that an index names."""
    try:
        places = parse_json(index.read_bytes())["weight_map"]
        if all(isinstance(file, str) for file in places.values()):
            return places
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DamagedFileError(
        f"'{index}' is no index of weights. Expected JSON with the file of each tensor as "
        "'weight_map'. Copy or download it again."
    )
