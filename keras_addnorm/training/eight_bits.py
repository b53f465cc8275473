"""Training of weights that lie on a grid of eight bits."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.training.optimizers import Adam

_LEVELS = 127
_MATRICES = ("kernel", "embeddings")
"""Names of the variables on the grid: biases, gains and numbers of a scheme stay as they are."""


def on_eight_bit_grid(matrix: Any) -> Any:
    """Rounds a matrix to the grid of eight bits.

    With S the largest absolute value::

        Q(W) = round(127 W / S) · S / 127

    The values are whole numbers from -127 to 127 times one step, as intgemm and Marian store them.
    Rounding twice changes nothing but the last bit of the step. Zeros stay zeros.

    Args:
        matrix: A matrix of any shape.

    Returns:
        A tensor of the same shape and type.

    Example:
        >>> import numpy as np
        >>> from keras_addnorm.training import on_eight_bit_grid
        >>> on_grid = np.array(on_eight_bit_grid(np.array([[127.0, 1.3, -2.6]], "float32")))
        >>> on_grid.tolist()
        [[127.0, 1.0, -3.0]]

    Reference:
        Aji and Heafield, "Compressing Neural Machine Translation Models with 4-bit Precision",
        2020, for the grid and the residue.
    """
    matrix = ops.convert_to_tensor(matrix)
    step = ops.max(ops.abs(matrix)) / _LEVELS
    return ops.round(ops.divide_no_nan(matrix, step)) * step


def is_on_grid(variable: keras.Variable) -> bool:
    """Says whether the training for eight bits rounds a variable: a kernel or a table."""
    return variable.name in _MATRICES and len(variable.shape) >= 2


@keras.saving.register_keras_serializable(package="keras_addnorm")
class EightBitAdam(Adam):
    """`Adam` after each of whose updates kernels and tables lie on the grid of eight bits.

    With Q the rounding of `on_eight_bit_grid`, and r what the updates before have left over::

        V = W - (the update of Adam) + r,  W = Q(V),  r = V - W

    W + r is a copy of the weights in full precision: it is what would be trained if the forward
    pass rounded its weights and the gradient passed through unchanged (straight-through). But the
    model itself has the rounded weights all the time: what is validated, saved and exported is
    what eight bits hold. r is a variable of the optimiser, and stands in checkpoints.

    It is for fine-tuning: begin with trained weights, validate often, and keep the best. The first
    update rounds all kernels and tables.

    Args:
        *args: As of `keras.optimizers.Adam`, also the rest.
        **kwargs: `learning_rate`, `beta_1`, ...; no `use_ema`, whose mean lies off the grid.

    Raises:
        ValueError: As for `Adam`, or if an average of the weights is asked for, too.

    Example:
        >>> import keras, numpy as np
        >>> from keras_addnorm.training import EightBitAdam, on_eight_bit_grid
        >>> model = keras.Sequential([keras.layers.Dense(3)])
        >>> model.compile(EightBitAdam(0.01), "mse")
        >>> history = model.fit(np.ones((2, 5)), np.ones((2, 3)), verbose=0)
        >>> kernel = model.layers[0].kernel
        >>> bool(np.allclose(kernel, on_eight_bit_grid(kernel), rtol=1e-6))
        True

    Reference:
        Aji and Heafield, "Compressing Neural Machine Translation Models with 4-bit Precision",
        2020.
    """

    @functools.wraps(Adam.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.use_ema:
            raise ArgumentError(
                "A moving average of weights does not lie on the grid of eight bits.",
                "`use_ema=False` with EightBitAdam",
                use_ema=True,
            )

    def build(self, variables: list[keras.Variable]) -> None:
        """Make the variables of Adam, and one for what rounding leaves over of each matrix.

        Args:
            variables: What is trained.
        """
        if self.built:
            return
        super().build(variables)
        self._residues = {
            index: self.add_variable_from_reference(variable, "residue")
            for index, variable in enumerate(variables)
            if is_on_grid(variable)
        }

    def _backend_update_step(
        self, grads: list[Any], trainable_variables: list[Any], learning_rate: Any
    ) -> None:
        super()._backend_update_step(grads, trainable_variables, learning_rate)
        for variable in trainable_variables:
            residue = self._residues.get(self._get_variable_index(variable))
            if residue is not None:
                whole = ops.add(variable, residue)
                rounded = on_eight_bit_grid(whole)
                variable.assign(rounded)
                residue.assign(whole - rounded)
