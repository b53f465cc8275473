"""The base classes of norms."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import require_epsilon
from keras_addnorm.basics.arguments import OtherOrder, by_name
from keras_addnorm.basics.dtypes import require_dtype
from keras_addnorm.basics.errors import ArgumentError

Tensor = Any
Shape = tuple[int | None, ...]


class Norm(keras.layers.Layer, abc.ABC):
    """A normalisation of the last axis, `(..., D)` to `(..., D)`.

    Statistics and weights are float32 (float64 in a float64 layer), whatever the precision of the
    activations. The mask of the input goes on to the output.

    Args:
        epsilon: A small number that keeps the division finite; each norm says where it stands.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.
    """

    mixes_positions: ClassVar[bool] = False
    """Whether what comes out at one position depends on others: not for a decoder."""

    epsilon_power: ClassVar[int | None] = None
    """The p for which, for every a > 0, the norm of `a x` is that of `x` with epsilon / a^p.

    `None` for a norm that a factor on its input changes.
    """

    output_weights: ClassVar[tuple[str, ...]] = ()
    """The weights that the output is a linear function of; a factor on all of them is a factor on
    the output."""

    @by_name(OtherOrder("Keras' LayerNormalization", ()))
    def __init__(self, *, epsilon: float = 1e-6, **kwargs: Any) -> None:
        require_dtype(kwargs.get("dtype"))
        super().__init__(**kwargs)
        require_epsilon(epsilon)
        self.epsilon = epsilon
        self.supports_masking = True

    @abc.abstractmethod
    def call(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Normalise.

        Args:
            x: `(..., D)`.
            padding_mask: `(...)`, True at real positions; `None` for the mask attached to `x`.
            training: Whether to normalise with the statistics of this batch, where a norm has
                others.

        Returns:
            A tensor of the shape and dtype of `x`.
        """

    def again(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return once more what a call has returned: averages do not count `x` a second time.

        Args:
            x: What the norm was called with.
            padding_mask: The same as then.
            training: The same as then.

        Returns:
            The same as then.
        """
        return self(x, padding_mask=padding_mask, training=training)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """Return the shape of `x`."""
        return x_shape

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "epsilon": self.epsilon}

    def absorb_input_gain(self, gain: float) -> None:
        """Change the weights so that `x`, and epsilon / gain^p, give what `gain x` gave before.

        Args:
            gain: The factor, above 0; only for a norm that has an `epsilon_power`.
        """

    @property
    def statistics_dtype(self) -> str:
        """The dtype that the norm computes in."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def _width(self, x_shape: Shape) -> int:
        width = x_shape[-1]
        if width is None:
            raise ArgumentError(
                f"The norm '{self.name}' has weights of the width of its input.",
                "a known last axis",
                "Give the input a fixed width.",
                received=f"shape: {tuple(x_shape)}",
            )
        return width

    def _add_gain(self, name: str, shape: tuple[int, ...], initial_value: float = 1.0) -> Any:
        return self._add_vector(name, shape, keras.initializers.Constant(initial_value))

    def _add_offset(self, name: str, shape: tuple[int, ...]) -> Any:
        return self._add_vector(name, shape, keras.initializers.Zeros())

    def _add_vector(
        self, name: str, shape: tuple[int, ...], initializer: Any, **arguments: Any
    ) -> Any:
        # Not cast to half precision: the products with the statistics are float32.
        return self.add_weight(
            name=name, shape=shape, initializer=initializer, autocast=False, **arguments
        )


class PositionWiseNorm(Norm):
    """A norm that takes each position by itself: masks and training change nothing."""

    def call(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Normalise each position of `(..., D)`; the mask and `training` have no effect."""
        return ops.cast(self.normalize(x), self.compute_dtype)

    @abc.abstractmethod
    def normalize(self, x: Tensor) -> Tensor:
        """Return the norm of `x`, `(..., D)`, computed in the dtype of the statistics."""
