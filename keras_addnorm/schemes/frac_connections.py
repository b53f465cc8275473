"""Frac-connections: hyper-connections between parts of one stream, without copies."""

import dataclasses

from keras import ops

from keras_addnorm.schemes.mixing import identity, mix, precise
from keras_addnorm.schemes.scheme import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.streams import StreamScheme, StreamState, require_state, require_streams


@dataclasses.dataclass(frozen=True)
class FracConnections(StreamScheme):
    """`h = [sum_j Y_ji X_j]_i`, then `X_i = sum_j A_ji X_j + b_i F(LN(h))_i`, with m parts X of x.

    Y and A start as the identity and b at 1: exactly Pre-LN. The static form of the paper, whose
    dynamic one makes the weights depend on the parts besides.

    Args:
        num_streams: m, the number of parts; it divides the width of the stream.

    Raises:
        ValueError: If there is no part, or the width cannot be divided.

    Reference:
        Zhu et al., "Frac-Connections: Fractional Extension of Hyper-Connections", 2025
        (arXiv:2503.14125), equations 6 to 8 and 15.
    """

    num_streams: int = 4
    needs_final_norm = True

    def __post_init__(self) -> None:
        require_streams(self.num_streams, "Frac-connections")

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer and the weights of reading, mixing and writing."""
        m = self.num_streams
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(
                LearnedArray("read_weights", (m, m), identity(m)),
                LearnedArray("mixing_weights", (m, m), identity(m)),
                LearnedArray("write_weights", (m,), 1.0),
            ),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return the parts."""
        return StreamState(self._parts(x))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN` of the parts as they are read, side by side."""
        mixed = mix(ops.transpose(precise(parts.read_weights)), self._streams(state))
        return parts.pre_norm(ops.concatenate(mixed, axis=-1))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return the mixed parts, each with its part of `f`."""
        weights = ops.cast(parts.write_weights, branch.dtype)
        mixed = mix(ops.transpose(precise(parts.mixing_weights)), self._streams(state))
        pairs = zip(mixed, self._parts(branch), strict=True)
        return StreamState(tuple(x + weights[i] * f for i, (x, f) in enumerate(pairs)))

    def collapse(self, state: StreamState) -> Tensor:
        """Return the parts side by side."""
        return ops.concatenate(state.streams, axis=-1)

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the mixing and the weights of writing."""
        return {
            "mixing": ops.transpose(precise(parts.mixing_weights)),
            "write": parts.write_weights,
        }

    def shift(self, state: StreamState, offset: Tensor) -> StreamState:
        """Return the parts, each with its part of the offset."""
        pairs = zip(state.streams, self._parts(offset), strict=True)
        return StreamState(tuple(x + part for x, part in pairs))

    def _streams(self, state: StreamState) -> tuple[Tensor, ...]:
        return require_state(state, self.num_streams, 0, "frac-connections").streams

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        if x.shape[-1] % self.num_streams:
            raise ValueError(
                "Frac-connections cannot cut the stream into equal parts. Expected a num_streams "
                f"that divides its width, {x.shape[-1]}. Received: {self.num_streams}"
            )
        return tuple(ops.split(x, self.num_streams, axis=-1))
