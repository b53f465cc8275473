"""Reads and writes the JSON of TensorFlow Serving's predict call.

A request has `instances`, a list with one entry for each row ("row format"), or `inputs`, one
value for each tensor ("column format"). The response has `predictions` or `outputs` in the same
format. Bytes are `{"b64": "..."}`. JSON has no numbers that are not finite: they are written as the
strings "NaN", "Infinity" and "-Infinity", as in the JSON of protocol buffers. These are read, and
so are the bare names that TensorFlow Serving writes.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from keras_addnorm.basics.text import encodable_text
from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.limits import TooMuchError
from keras_addnorm.serving.server.loaded_version import (
    DEFAULT_SIGNATURE,
    Signature,
    Spec,
)
from keras_addnorm.serving.server.proto_tensors import Arrays

_BYTES_SUFFIX = "_bytes"
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_AXES = 32
_QUOTE = ord('"')
# Values of an answer that are written at once, which takes a millisecond, and bytes of a piece.
_BLOCK = 16 * 1024
_PIECE = 64 * 1024
# A string, which may go on to the end, or what stands before a value. A string that is cut behind a
# backslash ends there, too: looked for again at each quotation mark in it, it took an hour.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)
# What orjson writes as JSON has it; it has no NaN and no infinity.
_NATIVE = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)


@dataclasses.dataclass(frozen=True)
class PredictBody:
    """The parsed body of a predict call; `tensors` converts its values for a signature.

    Args:
        signature_name: The name of the signature.
        is_row_format: Whether the body has `instances`.
        value: The value of `instances` or `inputs`.
    """

    signature_name: str
    is_row_format: bool
    value: Any

    @classmethod
    def parse(cls, body: bytes | bytearray, max_values: int) -> PredictBody:
        """Parses the body of a request; `INVALID_ARGUMENT` if it is no JSON or too large."""
        if _exceeds(body, max_values):
            raise TooMuchError(
                f"Expected at most {max_values} values in one request; received more. Send several "
                "requests, or start the server with a larger max_request_bytes."
            )
        document = _document(body)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise _invalid("'signature_name' key must be a string value")
        keys = {"instances", "inputs"} & document.keys()
        if len(keys) != 1:
            raise _invalid("Expected exactly one of the keys 'instances' and 'inputs'")
        (key,) = keys
        value = document[key]
        if key == "instances" and (not isinstance(value, list) or not value):
            raise _invalid("Expected 'instances' to be a list with at least one element")
        return cls(name or DEFAULT_SIGNATURE, key == "instances", value)

    def tensors(self, signature: Signature) -> Arrays:
        """Converts the values to the inputs of a signature."""
        columns = self._rows(signature) if self.is_row_format else self._columns(signature)
        return {name: _tensor(columns[name], name, spec) for name, spec in signature.inputs.items()}

    def _rows(self, signature: Signature) -> Mapping[str, Any]:
        names = signature.inputs.keys()
        are_objects = [_is_object(row) for row in self.value]
        if not any(are_objects):
            return {_only(names): self.value}
        for index, row in enumerate(self.value):
            if not are_objects[index] or row.keys() != names:
                raise _invalid(
                    f"Expected element {index} of 'instances' to be an object with the keys "
                    f"{sorted(names)}"
                )
        return {name: [row[name] for row in self.value] for name in names}

    def _columns(self, signature: Signature) -> Mapping[str, Any]:
        names = signature.inputs.keys()
        if not _is_object(self.value):
            return {_only(names): self.value}
        missing = sorted(names - self.value.keys())
        if missing:
            raise _invalid(f"Missing named inputs {missing} in the 'inputs' object")
        columns: Mapping[str, Any] = self.value
        return columns


def answer(outputs: Arrays, *, is_row_format: bool) -> Generator[bytes, None, None]:
    """Makes the JSON of the response to a predict call, in pieces of some ten thousand bytes.

    `INVALID_ARGUMENT` if the request is in row format and outputs differ in their number of rows.
    """
    outputs = dict(sorted(outputs.items()))
    sizes = {array.shape[:1] for array in outputs.values()}
    if is_row_format and (len(sizes) != 1 or () in sizes):
        raise _invalid(
            "The outputs do not have one row for each instance; ask in column format, with "
            "'inputs' in place of 'instances'"
        )
    return _pieces(_answer_parts(outputs, is_row_format))


def _answer_parts(outputs: Arrays, is_row_format: bool) -> Iterator[bytes]:
    yield b'{"predictions":' if is_row_format else b'{"outputs":'
    if len(outputs) == 1:
        for name, array in outputs.items():
            yield from _array_parts(array, name)
    else:
        yield from (_rows_parts if is_row_format else _object_parts)(outputs)
    yield b"}"


def _pieces(parts: Iterable[bytes]) -> Generator[bytes, None, None]:
    """Joins small parts."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _object_parts(arrays: Arrays) -> Iterator[bytes]:
    before = b"{"
    for name, array in arrays.items():
        yield before + orjson.dumps(name) + b":"
        yield from _array_parts(array, name)
        before = b","
    yield b"}"


def _array_parts(array: np.ndarray, name: str) -> Iterator[bytes]:
    if array.size <= _BLOCK or not array.ndim:
        yield _json({name: array}, _first)
        return
    step = max(1, _BLOCK * len(array) // array.size)
    before = b"["
    for start in range(0, len(array), step):
        block = array[start : start + step]
        yield before
        if block.size <= _BLOCK:
            yield _json({name: block}, _first)[1:-1]
        else:
            yield from _array_parts(block[0], name)
        before = b","
    yield b"]"


def _rows_parts(outputs: Arrays) -> Iterator[bytes]:
    """One object for each row."""

    def objects(columns: list[Any]) -> list[dict[str, Any]]:
        return [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]

    count = max(map(len, outputs.values()))
    size = sum(array.size for array in outputs.values()) // max(count, 1)
    step = max(1, _BLOCK // max(size, 1))
    yield b"["
    for start in range(0, count, step):
        if start:
            yield b","
        block = {name: array[start : start + step] for name, array in outputs.items()}
        if size <= _BLOCK:
            yield _json(block, objects)[1:-1]
        else:
            yield from _object_parts({name: array[0, ...] for name, array in block.items()})
    yield b"]"


def _first(columns: list[Any]) -> Any:
    return columns[0]


def _json(block: Arrays, arrange: Callable[[list[Any]], Any]) -> bytes:
    """Writes what is made of a few values."""
    if all(map(_is_native, block.values())):
        columns = [_native(array, name) for name, array in block.items()]
        return orjson.dumps(arrange(columns), option=orjson.OPT_SERIALIZE_NUMPY)
    columns = [_plain(array, name) for name, array in block.items()]
    return json.dumps(arrange(columns), ensure_ascii=False, allow_nan=False).encode("utf-8")


def _is_native(array: np.ndarray) -> bool:
    if array.dtype == object:
        return True
    if array.dtype.name not in _NATIVE:
        return False
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _native(array: np.ndarray, name: str) -> Any:
    if array.dtype == object or not array.size:
        return _plain(array, name)
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _exceeds(body: bytes | bytearray, most: int) -> bool:
    """Whether JSON has more values than `most`; what is in strings does not count."""
    if sum(map(body.count, (b",", b"[", b"{"))) <= most:
        return False
    found = 0
    for part in _STRUCTURE.finditer(body):
        found += part.end() - part.start() == 1 and body[part.start()] != _QUOTE
        if found > most:
            return True
    return False


def _document(body: bytes | bytearray) -> dict[str, Any]:
    try:
        # A number such as 1e999 is an error; the names NaN and Infinity are allowed.
        document = json.loads(body.decode("utf-8"), parse_float=_finite)
    except RecursionError:
        raise _invalid("JSON Parse error: nested too deeply") from None
    except ValueError as error:  # not JSON, not UTF-8, or an integer of thousands of digits
        raise _invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise _invalid("Expected the body to be a JSON object")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _only(names: Any) -> str:
    if len(names) != 1:
        raise _invalid(f"Expected an object with the inputs {sorted(names)}; received plain values")
    return next(iter(names))


def _tensor(value: Any, name: str, spec: Spec) -> np.ndarray:
    shape, leaves = _flatten(value, name)
    dtype = spec.dtype.as_numpy_dtype
    convert = _CONVERTERS.get(np.dtype(dtype).kind)
    if convert is None:
        raise ServingError(
            "UNIMPLEMENTED", f"JSON has no values of the type {spec.dtype.name}, input '{name}'."
        )
    try:
        values = [convert(leaf, np.dtype(dtype)) for leaf in leaves]
    except _TypeMismatchError as error:
        reason = str(error) or f"that is not of type {spec.dtype.name}"
        raise _invalid(f"Input '{name}' has a value {reason}") from error
    array = np.empty(len(values), dtype)
    array[:] = values
    return array.reshape(shape)


def _flatten(value: Any, name: str) -> tuple[list[int], list[Any]]:
    """The shape and the values of nested lists, level by level, without recursion."""
    level, shape = [value], []
    while level and isinstance(level[0], list):
        size = len(level[0])
        if any(not isinstance(item, list) or len(item) != size for item in level):
            raise _invalid(f"Input '{name}' has lists of different lengths at one level")
        shape.append(size)
        if len(shape) > _MOST_AXES:
            raise _invalid(f"Input '{name}' is nested too deeply")
        level = [item for items in level for item in items]
    if any(isinstance(item, list) for item in level):
        raise _invalid(f"Input '{name}' has lists and values at one level")
    return shape, level


class _TypeMismatchError(ValueError):
    """A value does not fit; the message, if any, says why."""


def _to_bytes(value: Any, dtype: np.dtype) -> bytes:
    try:
        if isinstance(value, str):
            return encodable_text(value).encode("utf-8")
        if _is_base64(value):
            # As in TensorFlow Serving, white space and missing padding do not matter.
            text = "".join(value["b64"].split())
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise _TypeMismatchError(
            "whose 'b64' is no base64 of the standard alphabet, which ends with + and / and not "
            f"with the - and _ of URLs: {error}"
        ) from error
    raise _TypeMismatchError


def _to_bool(value: Any, dtype: np.dtype) -> bool:
    if not isinstance(value, bool):
        raise _TypeMismatchError
    return value


def _to_integer(value: Any, dtype: np.dtype) -> int:
    limits = np.iinfo(dtype)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _TypeMismatchError
    if not limits.min <= value <= limits.max:
        raise _TypeMismatchError
    return value


def _to_float(value: Any, dtype: np.dtype) -> float:
    limits = np.finfo(dtype)
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _TypeMismatchError
    if abs(value) > float(limits.max) and value not in (math.inf, -math.inf):
        raise _TypeMismatchError
    return float(value)


_CONVERTERS: dict[str, Callable[[Any, np.dtype], Any]] = {
    "O": _to_bytes,
    "b": _to_bool,
    "i": _to_integer,
    "u": _to_integer,
    "f": _to_float,
}


def _plain(array: np.ndarray, name: str) -> Any:
    if array.dtype == object:
        encode = _as_base64 if name.endswith(_BYTES_SUFFIX) else _as_text
        return _each(array.tolist(), encode)
    if array.dtype.kind == "f":
        # The shortest digits that identify the number in its own precision: 0.2, not 0.2000000029.
        numbers = np.array(array.astype(str), object).astype(float)
        return numbers.tolist() if np.isfinite(array).all() else _named(numbers).tolist()
    return array.tolist()


def _named(numbers: np.ndarray) -> np.ndarray:
    """The numbers, with the names of those that are not finite."""
    named = numbers.astype(object)
    for name, number in _NOT_FINITE.items():
        named[np.isnan(numbers) if math.isnan(number) else numbers == number] = name
    return named


def _each(value: Any, function: Callable[[bytes], Any]) -> Any:
    return [_each(item, function) for item in value] if isinstance(value, list) else function(value)


def _as_base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode("ascii")}


def _as_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _invalid(message: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"{message}.")
