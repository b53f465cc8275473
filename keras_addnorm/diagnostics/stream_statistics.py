"""Numbers of the streams and the memory around a sublayer, and of the weights between them."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics.observe import SublayerRecord
from keras_addnorm.diagnostics.report_data import StreamStatistics

Tensor = Any

_ORDER = tuple(field.name for field in dataclasses.fields(StreamStatistics))


def stream_statistics(record: SublayerRecord) -> StreamStatistics | None:
    """Return the numbers of a record; `None` for a scheme of one stream without memory."""
    numbers = {name: to_numpy(value).tolist() for name, value in stream_numbers(record).items()}
    if not numbers:
        return None
    return StreamStatistics(**{name: _tuples(values) for name, values in numbers.items()})


def stream_numbers(record: SublayerRecord) -> dict[str, Tensor]:
    """Compute the numbers of a record as tensors of the backend, also while it traces.

    Args:
        record: What `observe` kept.

    Returns:
        Float32 tensors by the names of `StreamStatistics`, in their order, those left out that the
        scheme does not have; none at all for a scheme of one stream without memory.
    """
    if record.state is None or record.next_state is None:
        return {}
    streams, memory = ([ops.cast(x, "float32") for x in tensors] for tensors in record.next_state)
    entry = (*streams, *memory)[0][..., 0]
    over = _RealPositions(
        ops.ones_like(entry) if record.mask is None else ops.cast(record.mask, "float32")
    )
    values = {
        "rms": [over.rms(x) for x in streams],
        "memory_rms": [over.rms(x) for x in memory],
        "cosine": [over.mean(_cosines(x, streams), 1) for x in streams],
    }
    found = {name: ops.stack(tensors) for name, tensors in values.items() if tensors}
    weights = {name: ops.cast(x, "float32") for name, x in record.coefficients.items()}
    for name, axes in _WEIGHTS.items():
        if name in weights:
            found[name] = over.mean(weights[name], axes)
    if "mixing" in weights:
        mixing = weights["mixing"]
        found["row_error"] = over.largest(ops.abs(ops.sum(mixing, axis=-1) - 1), 1)
        found["column_error"] = over.largest(ops.abs(ops.sum(mixing, axis=-2) - 1), 1)
        found["smallest_mixing"] = -over.largest(-mixing, 2)
    if "depth" in weights:
        found["depth_entropy"] = over.mean(_entropy(weights["depth"]), 0)
    return {name: found[name] for name in _ORDER if name in found}


_WEIGHTS = {"read": 1, "write": 1, "mixing": 2, "depth": 1}
"""The coefficients of a `StreamScheme`, and how many axes each has besides those of positions."""


class _RealPositions:
    """Takes numbers over the real positions; one that all positions share has no axes of them."""

    def __init__(self, real: Tensor) -> None:
        self._real = real
        self._count = ops.maximum(ops.sum(real), 1.0)

    def rms(self, x: Tensor) -> Tensor:
        return ops.sqrt(self.mean(ops.mean(x * x, axis=-1), 0))

    def mean(self, x: Tensor, axes: int) -> Tensor:
        """Return the mean over positions; `axes` counts the axes behind them."""
        positions = tuple(range(len(self._real.shape)))
        return ops.sum(self._shown(x, axes, 0.0), axis=positions) / self._count

    def largest(self, x: Tensor, axes: int) -> Tensor:
        return ops.max(self._shown(x, axes, -float("inf")))

    def _shown(self, x: Tensor, axes: int, hidden: float) -> Tensor:
        real = ops.reshape(self._real, (*self._real.shape, *(1,) * axes))
        return ops.where(real > 0, x, hidden)


def _cosines(x: Tensor, streams: list[Tensor]) -> Tensor:
    """Return the cosine to each stream, `(..., n)`; 0 where one is zero."""
    cosines = []
    for other in streams:
        lengths = ops.sqrt(ops.sum(x * x, axis=-1) * ops.sum(other * other, axis=-1))
        cosines.append(_quotient(ops.sum(x * other, axis=-1), lengths))
    return ops.stack(cosines, axis=-1)


def _entropy(weights: Tensor) -> Tensor:
    """Return the entropy of `|a| / sum |a|`, which a softmax is itself, in nats."""
    sizes = ops.abs(weights)
    shares = _quotient(sizes, ops.sum(sizes, axis=-1, keepdims=True))
    logs = ops.log(ops.where(shares > 0, shares, 1.0))
    return -ops.sum(shares * logs, axis=-1)


def _quotient(above: Tensor, below: Tensor) -> Tensor:
    is_zero = ops.equal(below, 0)
    return ops.where(is_zero, 0.0, above / ops.where(is_zero, 1.0, below))


def _tuples(values: Any) -> Any:
    return tuple(map(_tuples, values)) if isinstance(values, list) else values
