"""Hyper-connections: several streams, mixed, read and written by learned weights."""

import dataclasses

from keras import ops

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.schemes.dynamic_weights import projections, rows, vector
from keras_addnorm.schemes.mixing import basis_vector, identity, mean, mix, weigh
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state, require_streams


@dataclasses.dataclass(frozen=True)
class HyperConnections(StreamScheme):
    """`h = sum_i a_i X_i`, then `X_i = sum_j A_ji X_j + b_i F(LN(h))`, with n streams X.

    All streams start as the embedding; at the top of the stack their mean is normalised. At the
    start `a` takes the stream `l mod n` in sublayer l, `A` is the identity and `b` is ones: then
    each stream is that of Pre-LN, exactly.

    Dynamic weights depend on the streams besides: `a_i = a0_i + s tanh(N(X_i) w)`, with N a layer
    norm without weights, `w` from zeros and `s` from 0.01, and likewise `b` and the rows of `A`.

    The paper closes with the sum of the streams, which the final norm cannot tell from the mean.
    It also changes the initial size of output kernels, in a direction that it does not say, which
    the final norm makes needless.

    Args:
        num_streams: n. One stream is worse than Pre-LN, the paper found.
        dynamic: Whether the weights depend on the streams.

    Raises:
        ValueError: If there is no stream, or on use without a position.

    Reference:
        Zhu et al., "Hyper-Connections", 2024 (arXiv:2409.19606), equations 1 to 14.
    """

    num_streams: int = 4
    dynamic: bool = True
    needs_final_norm = True

    def __post_init__(self) -> None:
        require_streams(self.num_streams, "Hyper-connections")
        require_bool(dynamic=self.dynamic)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer and the weights of reading, mixing and writing."""
        position = require_position(position, "Hyper-connections")
        n = self.num_streams
        arrays = [
            LearnedArray("read_weights", (n,), basis_vector(position.sublayer_index % n, n)),
            LearnedArray("mixing_weights", (n, n), identity(n)),
            LearnedArray("write_weights", (n,), 1.0),
        ]
        if self.dynamic:
            arrays += projections("D", 1, n)
        return ResidualPlan(norm_slots=("pre_norm",), arrays=tuple(arrays))

    def open(self, x: Tensor) -> StreamState:
        """Return n copies."""
        return StreamState((x,) * self.num_streams)

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(sum_i a_i X_i)`."""
        streams = self._streams(state)
        return parts.pre_norm(weigh(self._read_weights(streams, parts), streams))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `X_i = sum_j A_ji X_j + b_i f`."""
        streams = self._streams(state)
        mixing, weights = self._mixing(streams, parts), self._write_weights(streams, parts)
        weights = ops.cast(weights, branch.dtype)
        return StreamState(
            tuple(x + weights[..., i : i + 1] * branch for i, x in enumerate(mix(mixing, streams)))
        )

    def collapse(self, state: StreamState) -> Tensor:
        """Return the mean over streams."""
        return mean(state.streams)

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the weights of reading, mixing and writing."""
        streams = self._streams(state)
        return {
            "read": self._read_weights(streams, parts),
            "mixing": self._mixing(streams, parts),
            "write": self._write_weights(streams, parts),
        }

    def _streams(self, state: StreamState) -> tuple[Tensor, ...]:
        return require_state(state, self.num_streams, 0, "hyper-connections").streams

    def _read_weights(self, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        return vector("read", "read_and_mixing_scale", streams, parts, self.dynamic)

    def _mixing(self, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        """Return the transpose of A: a row for each stream that is made."""
        return rows("mixing", streams, parts, self.dynamic)

    def _write_weights(self, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        return vector("write", "write_scale", streams, parts, self.dynamic)
