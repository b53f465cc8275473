"""Reads the variables of TensorFlow's object checkpoints, where TensorFlow is installed.

Reference: https://www.tensorflow.org/guide/checkpoint
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.interop.tensor_files.stored_tensor import DamagedFileError, StoredTensor

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_OF_OPTIMIZERS = "/.OPTIMIZER_SLOT/"


@dataclasses.dataclass(frozen=True)
class _Variable(StoredTensor):
    """A variable that TensorFlow reads when its numbers are asked for.

    Attributes:
        name: Its whole name in the checkpoint.
        reader: TensorFlow's reader.
    """

    name: str = ""
    reader: Any = None

    is_computed = True

    def read(self) -> np.ndarray:
        """Return the numbers."""
        try:
            return np.asarray(self.reader.get_tensor(self.name))
        except Exception as error:  # TensorFlow's own kinds of errors
            raise _damaged(self.path, error) from error


def read_tensorflow_checkpoint(path: Path) -> dict[str, StoredTensor]:
    """Return the variables of an object checkpoint by their paths of attributes.

    Args:
        path: A folder, of which the newest checkpoint is read, or what the names of a
            checkpoint's files begin with, such as `"run/ckpt-5000"`.

    Returns:
        The variables without those of optimizers: `"model/encoder/layer_norm/gamma"`.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        DamagedFileError: If a file of it is missing or damaged.
        ImportError: If TensorFlow is not installed.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            "A checkpoint of TensorFlow needs 'tensorflow', which is not installed. Install it "
            "with: pip install tensorflow"
        ) from error
    try:
        prefix = _newest(tf, path) if path.is_dir() else str(path)
    except (tf.errors.OpError, ValueError) as error:  # Of a text that is none.
        raise _damaged(path / "checkpoint", error) from error
    if prefix is None or not Path(f"{prefix}.index").is_file():
        raise FileNotFoundError(
            f"There is no checkpoint of TensorFlow at '{path}'. Expected a folder with a file "
            "'checkpoint', or what the names of the files begin with, such as 'run/ckpt-5000' "
            "for 'run/ckpt-5000.index'."
        )
    try:
        reader = tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise _damaged(Path(prefix), error) from error
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    return {
        name.removesuffix(_VALUE): _Variable(
            Path(prefix),
            np.dtype(types[name].as_numpy_dtype),
            tuple(shapes[name]),
            0,
            name=name,
            reader=reader,
        )
        for name in sorted(shapes)
        if name.endswith(_VALUE) and _OF_OPTIMIZERS not in name
    }


def _newest(tf: Any, folder: Path) -> str | None:
    """Return the newest checkpoint, by its name: the file may lead to any other folder."""
    state = tf.train.get_checkpoint_state(str(folder))
    return None if state is None else str(folder / Path(state.model_checkpoint_path).name)


def _damaged(prefix: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"The checkpoint '{prefix}' is damaged: {error}. Copy or download its files again."
    )
