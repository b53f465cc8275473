"""`ComputedTensor`: a tensor that is made of others of a file, when it is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_addnorm.interop.tensor_files.stored_tensor import StoredTensor


@dataclasses.dataclass(frozen=True)
class ComputedTensor(StoredTensor):
    """A tensor as another version of a toolkit would have stored it.

    Attributes:
        compute: Returns its numbers.
    """

    compute: Callable[[], np.ndarray] = dataclasses.field(kw_only=True)

    is_computed = True

    def __post_init__(self) -> None:
        """Check nothing: the tensors that it is made of were checked."""

    @classmethod
    def of(
        cls, stored: StoredTensor, shape: tuple[int, ...], compute: Callable[[], np.ndarray]
    ) -> ComputedTensor:
        """Make one of a tensor of a file.

        Args:
            stored: The tensor.
            shape: The shape of the new one.
            compute: Returns its numbers.

        Returns:
            The new one.
        """
        return cls(stored.path, stored.dtype, shape, 0, compute=compute)

    def read(self) -> np.ndarray:
        """Return the numbers."""
        return self.compute()
