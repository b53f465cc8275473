"""Makes a model whose weights begin with given numbers, and draws no others before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import keras
import numpy as np
from keras.src.backend.common import global_state  # What has no values yet, has no public name.

ModelT = TypeVar("ModelT", bound=keras.Model)
Read = Callable[[], np.ndarray]


def built_with(
    make: Callable[[], ModelT], values: Callable[[ModelT], Mapping[int, Read]]
) -> ModelT:
    """Make a model, and give its weights their first values.

    A model that is made as usual draws random numbers, which costs time and several copies of its
    largest weight. Here each weight is allocated when its numbers are there, one after the other.

    Args:
        make: Makes the model.
        values: Given the model, whose weights have shapes but no values yet, returns for the `id`
            of each of its weights a function that returns the numbers.

    Returns:
        The model.

    Raises:
        BaseException: What `make`, `values` or one of its functions raised.
    """
    failures: list[BaseException] = []
    with keras.StatelessScope():  # Keras gives values to what was made in it when it ends.
        try:
            model = make()
            reads = values(model)
        except BaseException:
            # Keras would give values to what was made so far, of sizes that may be without sense.
            global_state.set_global_attribute("uninitialized_variables", [])
            raise
        for weight in model.weights:
            weight._initializer = _FirstValue(reads.get(id(weight)), failures)
    if failures:
        raise failures[0]
    return model


class _FirstValue:
    """The initialiser of one weight."""

    def __init__(self, read: Read | None, failures: list[BaseException]) -> None:
        self._read = read
        self._failures = failures

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """Return the numbers; a zero after a failure.

        A scope that ends in an exception leaves weights behind that no later scope can end with.
        """
        if self._read is not None and not self._failures:
            try:
                numbers = self._read()
                if dtype == "float16":  # A backend would hold a copy in float32 beside it.
                    numbers = numbers.astype(dtype)
                return keras.ops.convert_to_tensor(numbers, dtype=dtype)
            except BaseException as error:
                self._failures.append(error)
        return keras.ops.zeros((), dtype=dtype)
