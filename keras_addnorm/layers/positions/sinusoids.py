"""The variants of sinusoidal positions: order of channels, frequencies, first position."""

from __future__ import annotations

import dataclasses

import numpy as np

from keras_addnorm.basics.errors import ArgumentError

_LAYOUTS = ("interleaved", "halves")
_TIMESCALES = ("half", "half_minus_one")


@dataclasses.dataclass(frozen=True)
class Sinusoids:
    """Which sines and cosines stand in which channels; see `SinusoidalPositions`.

    Args:
        layout: `"interleaved"` or `"halves"`.
        timescales: `"half"` or `"half_minus_one"`.
        offset: What is added to each position.

    Raises:
        ValueError: If a field does not fit.
    """

    layout: str = "interleaved"
    timescales: str = "half"
    offset: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("layout", _LAYOUTS), ("timescales", _TIMESCALES)):
            value = getattr(self, name)
            if value not in choices:
                raise ArgumentError(
                    f"`{name}` of sinusoidal positions: expected one of {', '.join(choices)}.",
                    value=value,
                )
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or self.offset < 0:
            raise ArgumentError(
                "`offset` of sinusoidal positions: expected an integer >= 0.", offset=self.offset
            )

    def frequencies(self, hidden_dim: int) -> np.ndarray:
        """Return radians a position, one for each pair of a sine and a cosine.

        Args:
            hidden_dim: Number of channels, D.

        Returns:
            `(D/2,)`, float64; of the paper's own variant, an odd D is rounded up.

        Raises:
            ValueError: If the variant has no such width.
        """
        self.check_width(hidden_dim)
        half = hidden_dim / 2
        pairs = np.arange((hidden_dim + 1) // 2)
        return 10000.0 ** (-pairs / (half if self.timescales == "half" else half - 1))

    def check_width(self, hidden_dim: int) -> None:
        """Checks that the variant has a width, without making anything of that size.

        Args:
            hidden_dim: Number of channels, D.

        Raises:
            ValueError: If it has not.
        """
        is_own = self.layout == "interleaved" and self.timescales == "half"
        least = 4 if self.timescales == "half_minus_one" else 2
        if not is_own and (hidden_dim % 2 or hidden_dim < least):
            raise ArgumentError(
                "These sinusoidal positions need pairs of channels.",
                f"an even `hidden_dim` >= {least}",
                received=f"hidden_dim={hidden_dim}, {self}",
            )
