"""One version of a model in memory: its signatures as functions of NumPy arrays.

A version is a TensorFlow graph and its data, loaded into a session as TensorFlow Serving does.
Nothing in it is unpickled or evaluated as Python, and neither Keras nor the code of the model is
needed.

`tf.saved_model.load` is not used: it builds Python objects for every function, and TensorFlow 2.21
leaks 200 MB each time that even a small export is loaded and dropped, as a server does with every
new version. A session frees all its memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.text import parse_json
from keras_addnorm.serving.errors import CODES, NOT_FINITE, ServingError
from keras_addnorm.serving.server.proto_tensors import Arrays, to_arrays

DEFAULT_SIGNATURE = "serving_default"
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"

_MOST_WARM_UP_RECORDS = 1000  # as TensorFlow Serving takes them
_WARM_UP_BYTES = 1 << 26

_LOCATIONS = ("Graph execution error", "Detected at", "<stack traces", " ", "\t")
_LONGEST_MS = 2**31 - 1
_MOST_NAMES = 10  # of inputs that a message shows
# Threads that start operations, by the place in this list: with one pool, the operations of a small
# request would queue behind those of large ones. All versions of a process share them.
_POOLS = ("keras_addnorm_small", "keras_addnorm_large")
_CODE_NAMES = {number: name for name, (number, _) in CODES.items()}


@dataclasses.dataclass(frozen=True)
class Spec:
    """Type and shape of a tensor in a signature.

    Args:
        dtype: The type.
        shape: The sizes, `None` for an axis of any size; `None` as a whole for any shape.
    """

    dtype: tf.DType
    shape: tuple[int | None, ...] | None

    @classmethod
    def of(cls, info: meta_graph_pb2.TensorInfo) -> Spec:
        """Reads the specification from a signature's message."""
        shape = tf.TensorShape(info.tensor_shape)
        known = None if shape.rank is None else tuple(shape.as_list())
        return cls(tf.dtypes.as_dtype(info.dtype), known)

    def allows(self, shape: tuple[int, ...]) -> bool:
        """Whether the tensor may have this shape."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            size is None or size == found for size, found in zip(self.shape, shape, strict=True)
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A function of a version.

    Args:
        name: The name of the signature.
        version: The number of the version.
        inputs: The arguments.
        outputs: The results.
        function: Computes the results.
        function_beside: The same, with threads of its own; `None` if there is no such difference.
    """

    name: str
    version: int
    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    function: Callable[..., Arrays]
    function_beside: Callable[..., Arrays] | None = None

    @property
    def is_row_by_row(self) -> bool:
        """Whether rows of several requests may be computed together.

        Every input has to be a vector, and every output must have a row of fixed size for each
        element. An output that is padded to the longest row would become longer in a larger batch.
        """
        return all(spec.shape == (None,) for spec in self.inputs.values()) and all(
            spec.shape is not None and spec.shape[:1] == (None,) and None not in spec.shape[1:]
            for spec in self.outputs.values()
        )

    def check_names(self, names: Collection[str]) -> None:
        """Raises `INVALID_ARGUMENT` unless inputs, not yet converted, have these names."""
        if len(names) != len(self.inputs) or set(names) != self.inputs.keys():
            shown = sorted(name[:100] for name in itertools.islice(names, _MOST_NAMES))
            more = " and others" if len(names) > _MOST_NAMES else ""
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Signature '{self.name}' expected the inputs {sorted(self.inputs)}; "
                f"received {shown}{more}.",
            )

    def check(self, inputs: Arrays) -> None:
        """Raises `INVALID_ARGUMENT` unless inputs have these names, types and shapes."""
        self.check_names(inputs)
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

    def __call__(self, inputs: Arrays, *, is_large: bool = False) -> Arrays:
        """Computes the function of checked inputs; one that is large is computed beside others."""
        try:
            function = (self.function_beside if is_large else None) or self.function
            return dict(function(**inputs))
        except tf.errors.OpError as error:
            code, said = _CODE_NAMES.get(error.error_code, "UNKNOWN"), _message_of(error)
            # Nothing is wrong with the request.
            raise ServingError("INTERNAL" if NOT_FINITE in said else code, said) from error


class LoadedVersion:
    """A version of a model, loaded into a TensorFlow session.

    Args:
        path: The folder of the version, named by its number.
        timeout: Seconds after which a computation is cancelled; `None` for never.
        intra_op_threads: How many threads share one operation; 0 is one for each core. The threads
            belong to the process, and the first TensorFlow session in it determines their number.

    Attributes:
        number: The number of the version.
        note: What the card says to those who try the model.
        signatures: The signatures by name.
        signature_defs: TensorFlow's messages that describe the signatures.
        session: The TensorFlow session.

    Raises:
        OSError: If there is no model.
        tf.errors.OpError: If the model is damaged.
    """

    def __init__(self, path: Path, timeout: float | None = None, intra_op_threads: int = 0) -> None:
        self.number = int(path.name)
        self.note = _note(path / "assets.extra" / "model.json")
        graph = tf.Graph()
        self.session = tf.compat.v1.Session(graph=graph, config=_session_config(intra_op_threads))
        with graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self.session, ["serve"], str(path))
        self.signature_defs = dict(loaded.signature_def)
        self.signatures = self._signatures(timeout)

    def warm_up(
        self, path: Path, say: Callable[[int, int, str], None], max_bytes: int = _WARM_UP_BYTES
    ) -> None:
        """Computes a file's requests, so that no user waits.

        Args:
            path: The file.
            say: Is told before each request: its number, how many there are, and its signature.
            max_bytes: What the inputs of a request may take, as of one of a client.

        Raises:
            ServingError: If a request is none of this version, or there are more than 1,000.
        """
        # No timeout: a warm-up is for what is slow the first time.
        signatures = self._signatures(timeout=None)
        found = tf.data.TFRecordDataset(str(path)).take(_MOST_WARM_UP_RECORDS + 1)
        records = list(found.as_numpy_iterator())
        if len(records) > _MOST_WARM_UP_RECORDS:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Expected at most {_MOST_WARM_UP_RECORDS:,} warm-up requests; the version has "
                "more. Serve it with --no-warm-up.",
            )
        for number, record in enumerate(records, 1):
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            signature = signatures.get(request.model_spec.signature_name or DEFAULT_SIGNATURE)
            if signature is None:
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"A warm-up request asks for {request.model_spec.signature_name!r}, which the "
                    "version does not have.",
                )
            inputs = to_arrays(request.inputs, max_bytes)
            signature.check(inputs)
            say(number, len(records), signature.name)
            signature(inputs)

    def _signatures(self, timeout: float | None) -> dict[str, Signature]:
        return {
            name: Signature(
                name,
                self.number,
                {key: Spec.of(info) for key, info in definition.inputs.items()},
                {key: Spec.of(info) for key, info in definition.outputs.items()},
                *(
                    _Function(self.session, definition, timeout, pool)
                    for pool in range(len(_POOLS))
                ),
            )
            for name, definition in self.signature_defs.items()
            if definition.method_name
        }


def _note(card: Path) -> str:
    """The note of a card; none where there is no card, or another program's."""
    try:
        found = parse_json(to_file(card).read_bytes())
    except (OSError, ValueError):
        return ""
    note = found.get("note") if isinstance(found, dict) else None
    return note if isinstance(note, str) else ""


def _session_config(intra_op_threads: int) -> tf.compat.v1.ConfigProto:
    # TensorFlow's graph optimiser takes seconds for each signature and makes no request faster: a
    # search spends its time in the kernels.
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra_op_threads)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    for name in _POOLS:
        config.session_inter_op_thread_pool.add(global_name=name)
    return config


class _Function:
    """Computes a signature in a session, and keeps the session alive."""

    def __init__(
        self,
        session: Any,
        definition: meta_graph_pb2.SignatureDef,
        timeout: float | None,
        pool: int,
    ) -> None:
        self._session = session
        self._options = tf.compat.v1.RunOptions(inter_op_thread_pool=pool)
        if timeout is not None:
            milliseconds = max(1, round(min(1000 * timeout, _LONGEST_MS)))
            self._options.timeout_in_ms = milliseconds
        self._inputs = {name: info.name for name, info in definition.inputs.items()}
        self._outputs = {name: info.name for name, info in definition.outputs.items()}

    def __call__(self, **inputs: np.ndarray) -> Arrays:
        feed = {self._inputs[name]: array for name, array in inputs.items()}
        found = self._session.run(self._outputs, feed, self._options)
        # The session returns a scalar as a NumPy scalar or as bytes.
        return {
            name: np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
            for name, value in found.items()
        }


def _message_of(error: tf.errors.OpError) -> str:
    """The line of TensorFlow's message that describes the error, without the graph locations."""
    lines = (error.message or "").splitlines()
    descriptions = [line for line in lines if line.strip() and not line.startswith(_LOCATIONS)]
    return descriptions[0].partition(" [[")[0] if descriptions else type(error).__name__


def _shown(shape: tuple[int | None, ...] | None) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape or ())
    return f"[{sizes}]"
