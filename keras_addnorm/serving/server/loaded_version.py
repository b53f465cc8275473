"""One version of a model in memory: its signatures as functions of NumPy arrays.

A version is a TensorFlow graph and data, read by `tf.saved_model.load`: nothing in it is unpickled
or evaluated as Python, and neither Keras nor the code that made it is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_addnorm.serving.errors import CODES, ServingError

Arrays = dict[str, np.ndarray]
"""Tensors by name. Strings are arrays of bytes objects."""

DEFAULT_SIGNATURE = "serving_default"
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"

_WHERE = ("Graph execution error", "Detected at", "<stack traces", " ", "\t")
_CODE_NAMES = {number: name for name, (number, _) in CODES.items()}


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a signature says of one tensor.

    Args:
        dtype: Its type.
        shape: Its sizes, `None` where any will do; `None` altogether for any shape.
    """

    dtype: tf.DType
    shape: tuple[int | None, ...] | None

    @classmethod
    def of(cls, info: meta_graph_pb2.TensorInfo) -> Spec:
        """Reads it from a signature's message."""
        shape = tf.TensorShape(info.tensor_shape)
        known = None if shape.rank is None else tuple(shape.as_list())
        return cls(tf.dtypes.as_dtype(info.dtype), known)

    def allows(self, shape: tuple[int, ...]) -> bool:
        """Tells whether a tensor may have a shape."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            size is None or size == found for size, found in zip(self.shape, shape, strict=True)
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A function of a version.

    Args:
        name: Its name.
        version: The number of its version.
        inputs: Its arguments.
        outputs: Its results.
        function: What computes it.
    """

    name: str
    version: int
    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    function: Callable[..., Mapping[str, Any]]

    @property
    def is_row_by_row(self) -> bool:
        """Whether rows of several requests may be computed together.

        Every input has to be one list, and every output one row of a fixed size for each element:
        an output that is padded to the longest row of a request would come out longer.
        """
        return all(spec.shape == (None,) for spec in self.inputs.values()) and all(
            spec.shape is not None and spec.shape[:1] == (None,) and None not in spec.shape[1:]
            for spec in self.outputs.values()
        )

    def check(self, inputs: Arrays) -> None:
        """Holds the inputs of a request against the signature.

        Args:
            inputs: The arrays.

        Raises:
            ServingError: If they do not fit: `INVALID_ARGUMENT`.
        """
        if inputs.keys() != self.inputs.keys():
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Signature '{self.name}' expected the inputs {sorted(self.inputs)}; "
                f"received {sorted(inputs)}.",
            )
        for name, array in inputs.items():
            spec = self.inputs[name]
            received = tf.string if array.dtype == object else tf.dtypes.as_dtype(array.dtype)
            if received != spec.dtype:
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"Input '{name}' of signature '{self.name}' expected the type "
                    f"{spec.dtype.name}; received {received.name}.",
                )
            if not spec.allows(array.shape):
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"Input '{name}' of signature '{self.name}' expected the shape "
                    f"{_shown(spec.shape)}; received {_shown(array.shape)}.",
                )

    def __call__(self, inputs: Arrays) -> Arrays:
        """Computes the function.

        Args:
            inputs: The arrays, checked.

        Returns:
            The results.

        Raises:
            ServingError: If TensorFlow refuses them.
        """
        tensors = {
            name: tf.constant(array, self.inputs[name].dtype) for name, array in inputs.items()
        }
        try:
            return {name: out.numpy() for name, out in self.function(**tensors).items()}
        except tf.errors.OpError as error:
            code = _CODE_NAMES.get(error.error_code, "UNKNOWN")
            raise ServingError(code, _said_by_tensorflow(error)) from error


class LoadedVersion:
    """A version that can answer.

    Args:
        path: Its folder, named by its number.

    Attributes:
        number: Its number.
        signatures: Its functions by name.
        signature_defs: The same as TensorFlow describes them.
        module: What TensorFlow has loaded.
    """

    def __init__(self, path: Path) -> None:
        self.number = int(path.name)
        # Read first: a file that is no model gives a better error here.
        self.signature_defs = _signature_defs(path)
        # The module has to live as long as its functions, which refer to its weights weakly.
        self.module = tf.saved_model.load(str(path))
        self.signatures = {
            name: Signature(
                name,
                self.number,
                {key: Spec.of(info) for key, info in definition.inputs.items()},
                {key: Spec.of(info) for key, info in definition.outputs.items()},
                _Function(self.module, name),
            )
            for name, definition in self.signature_defs.items()
            if name in self.module.signatures
        }

    def warm_up(self, path: Path) -> int:
        """Answers the version's own requests, so that the first user does not wait.

        Args:
            path: The file of requests.

        Returns:
            How many there were.

        Raises:
            ServingError: If one of them fails.
        """
        count = 0
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            signature = self.signatures.get(request.model_spec.signature_name or DEFAULT_SIGNATURE)
            if signature is None:
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"A warm-up request asks for {request.model_spec.signature_name!r}, which the "
                    "version does not have.",
                )
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            signature.check(inputs)
            signature(inputs)
            count += 1
        return count


class _Function:
    """A function of a module, which it keeps alive."""

    def __init__(self, module: Any, name: str) -> None:
        self._module = module
        self._function = module.signatures[name]

    def __call__(self, **tensors: tf.Tensor) -> Mapping[str, tf.Tensor]:
        outputs: Mapping[str, tf.Tensor] = self._function(**tensors)
        return outputs


def _signature_defs(path: Path) -> dict[str, meta_graph_pb2.SignatureDef]:
    message = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for graph in message.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            return dict(graph.signature_def)
    raise ServingError("INVALID_ARGUMENT", "The model has no graph with the tag 'serve'.")


def _said_by_tensorflow(error: tf.errors.OpError) -> str:
    """The line that says what is wrong, among those that say where in the graph."""
    lines = (error.message or "").splitlines()
    telling = [line for line in lines if line.strip() and not line.startswith(_WHERE)]
    return telling[0].partition(" [[")[0] if telling else type(error).__name__


def _shown(shape: tuple[int | None, ...] | None) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape or ())
    return f"[{sizes}]"
