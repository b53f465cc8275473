"""Frac-connections: hyper-connections between parts of one stream, without copies."""

import dataclasses

from keras import ops

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.dynamic_weights import projections, rows, vector
from keras_addnorm.schemes.mixing import identity, mix
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state, require_streams


@dataclasses.dataclass(frozen=True)
class FracConnections(StreamScheme):
    """`h = [sum_j Y_ji X_j]_i`, then `X_i = sum_j A_ji X_j + b_i F(LN(h))_i`, with m parts X of x.

    Y and A start as the identity and b at 1: exactly Pre-LN. Dynamic weights depend on the parts
    besides, as those of `hyper_connections` do: `b_i = b0_i + s tanh(N(X_i) w)`, with N a layer
    norm without weights, `w` from zeros and `s` from 0.01, and likewise the rows of Y and A.

    Args:
        num_streams: m, the number of parts; it divides the width of the stream.
        dynamic: Whether the weights depend on the parts.

    Raises:
        ValueError: If there is no part, or the width cannot be divided.

    Reference:
        Zhu et al., "Frac-Connections: Fractional Extension of Hyper-Connections", 2025
        (arXiv:2503.14125), equations 6 to 8 and 15.
    """

    num_streams: int = 2
    dynamic: bool = False
    needs_final_norm = True

    def __post_init__(self) -> None:
        require_streams(self.num_streams, "Frac-connections")
        require_bool(dynamic=self.dynamic)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer and the weights of reading, mixing and writing."""
        m = self.num_streams
        arrays = [
            LearnedArray("read_weights", (m, m), identity(m)),
            LearnedArray("mixing_weights", (m, m), identity(m)),
            LearnedArray("write_weights", (m,), 1.0),
        ]
        if self.dynamic:
            arrays += projections(f"D/{m}", m, m)
        return ResidualPlan(norm_slots=("pre_norm",), arrays=tuple(arrays))

    def open(self, x: Tensor) -> StreamState:
        """Return the parts."""
        return StreamState(self._parts(x))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN` of the parts as they are read, side by side."""
        streams = self._streams(state)
        mixed = mix(self._rows("read", streams, parts), streams)
        return parts.pre_norm(ops.concatenate(mixed, axis=-1))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return the mixed parts, each with its part of `f`."""
        streams = self._streams(state)
        weights = ops.cast(self._write_weights(streams, parts), branch.dtype)
        mixed = mix(self._rows("mixing", streams, parts), streams)
        pairs = zip(mixed, self._parts(branch), strict=True)
        return StreamState(tuple(x + weights[..., i : i + 1] * f for i, (x, f) in enumerate(pairs)))

    def collapse(self, state: StreamState) -> Tensor:
        """Return the parts side by side."""
        return ops.concatenate(state.streams, axis=-1)

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the mixing and the weights of writing."""
        streams = self._streams(state)
        return {
            "mixing": self._rows("mixing", streams, parts),
            "write": self._write_weights(streams, parts),
        }

    def shift(self, state: StreamState, offset: Tensor) -> StreamState:
        """Return the parts, each with its part of the offset."""
        pairs = zip(state.streams, self._parts(offset), strict=True)
        return StreamState(tuple(x + part for x, part in pairs))

    def _streams(self, state: StreamState) -> tuple[Tensor, ...]:
        return require_state(state, self.num_streams, 0, "frac-connections").streams

    def _rows(self, name: str, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        """Return the transpose of Y or A: a row for each part that is made."""
        return rows(name, streams, parts, self.dynamic)

    def _write_weights(self, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        return vector("write", "write_scale", streams, parts, self.dynamic)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        if x.shape[-1] % self.num_streams:
            raise ArgumentError(
                "Frac-connections cannot cut the stream into equal parts.",
                f"a `num_streams` that divides its width, {x.shape[-1]}",
                num_streams=self.num_streams,
            )
        return tuple(ops.split(x, self.num_streams, axis=-1))
