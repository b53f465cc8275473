"""Large requests in portions, so that one of them does not keep a worker from all others."""

from __future__ import annotations

from collections import deque

import numpy as np

from keras_addnorm.serving.server.limits import row_bytes
from keras_addnorm.serving.server.proto_tensors import Arrays

ROWS = 64
"""The rows of a portion."""
BYTES = 16 * 1024
"""The bytes of a portion that has more than one row."""


class Portions:
    """The parts of a request, of which each row is computed by itself.

    Rows of like length come together, as searches want them.

    Args:
        inputs: Vectors of one length.
        most_rows: The rows of a portion.
    """

    def __init__(self, inputs: Arrays, most_rows: int = ROWS) -> None:
        self._inputs = inputs
        sizes = np.sum([row_bytes(array) for array in inputs.values()], 0)
        order = np.argsort(sizes, kind="stable")
        self._left = deque(_cut(order, sizes, most_rows))
        self._rows: list[np.ndarray] = []
        self._outputs: list[Arrays] = []

    def __len__(self) -> int:
        return len(self._left)

    def next(self) -> Arrays:
        """The inputs of the next portion."""
        rows = self._left.popleft()
        self._rows.append(rows)
        return {name: array[rows] for name, array in self._inputs.items()}

    def put(self, outputs: Arrays) -> None:
        """Keeps the outputs of the portion that came last."""
        if any(array.shape[:1] != self._rows[-1].shape for array in outputs.values()):
            raise ValueError("The signature does not answer row by row.")
        self._outputs.append(outputs)

    def whole(self) -> Arrays:
        """The outputs of all portions, in the order of the request."""
        back = np.argsort(np.concatenate(self._rows))
        return {
            name: np.concatenate([outputs[name] for outputs in self._outputs])[back]
            for name in self._outputs[0]
        }


def _cut(order: np.ndarray, sizes: np.ndarray, most_rows: int) -> list[np.ndarray]:
    """Divides rows, rising by size, so that only a single row exceeds the bytes of a portion."""
    parts, start, total = [], 0, 0
    for place, row in enumerate(order):
        size = int(sizes[row])
        if place > start and (place - start >= most_rows or total + size > BYTES):
            parts.append(order[start:place])
            start, total = place, 0
        total += size
    parts.append(order[start:])
    return parts
