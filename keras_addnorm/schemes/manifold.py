"""What the manifold-constrained hyper-connections share: streams whose mixing keeps their mean."""

import abc
import dataclasses

from keras import ops

from keras_addnorm.basics.argument_checks import require_finite
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import row_means
from keras_addnorm.schemes.mixing import (
    basis_vector,
    logit,
    mean,
    mix,
    precise,
    spread,
    weigh,
)
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    Values,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state, require_streams

_EPSILON = 1e-6
STARTS = ("mean", "one_hot")


@dataclasses.dataclass(frozen=True)
class ManifoldScheme(StreamScheme):
    """The base class: all but how the mixing matrix is made.

    `X = H_res X + H_post F(LN(H_pre X))`, where `H_pre` is a logistic, `H_post` twice one, and
    `H_res` doubly stochastic: rows and columns have the sum 1. Each is made of
    `s x W + b` with `x = RMS(X)`, all streams taken as one vector of n D numbers.
    """

    num_streams: int = 4
    off_diagonal: float = -8.0
    start: str = "mean"
    needs_final_norm = True

    def __post_init__(self) -> None:
        require_streams(self.num_streams, self._title)
        require_finite(f"{self._title} starts near a mean.", off_diagonal=self.off_diagonal)
        if self.start not in STARTS:
            raise ArgumentError(
                f"{self._title} does not know this start.",
                f"one of {', '.join(STARTS)}",
                value=self.start,
            )

    @property
    @abc.abstractmethod
    def _title(self) -> str:
        """What messages call the scheme."""

    @property
    @abc.abstractmethod
    def _num_logits(self) -> int:
        """How many logits the mixing matrix is made of."""

    @abc.abstractmethod
    def _mixing_bias(self) -> Values:
        """Return where these logits start."""

    @abc.abstractmethod
    def _matrix(self, logits: Tensor) -> Tensor:
        """Return the doubly stochastic matrix, `(..., k)` -> `(..., n, n)`."""

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and what the three coefficients are made of."""
        n, logits = self.num_streams, self._num_logits
        if self.start == "one_hot":
            place = require_position(position, f"{self._title} with start='one_hot'")
            read = write = basis_vector(place.sublayer_index % n, n, others=-1.0)
        else:
            read, write = (logit(1 / n),) * n, spread(n)
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(
                LearnedArray("read_projection", (n, "D", n), 0.0),
                LearnedArray("write_projection", (n, "D", n), 0.0),
                LearnedArray("mixing_projection", (n, "D", logits), 0.0),
                LearnedArray("read_bias", (n,), read),
                LearnedArray("write_bias", (n,), write),
                LearnedArray("mixing_bias", (logits,), self._mixing_bias()),
                LearnedArray("scales", (3,), 0.01),
            ),
        )

    def open(self, x: Tensor) -> StreamState:
        """Return n copies."""
        return StreamState((x,) * self.num_streams)

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(H_pre X)`."""
        streams = self._streams(state)
        return parts.pre_norm(weigh(_read_weights(streams, parts), streams))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return `H_res X + H_post f`."""
        streams = self._streams(state)
        weights = ops.cast(_write_weights(streams, parts), branch.dtype)
        mixed = mix(self._mixing(streams, parts), streams)
        return StreamState(tuple(x + weights[..., i : i + 1] * branch for i, x in enumerate(mixed)))

    def collapse(self, state: StreamState) -> Tensor:
        """Return the mean over streams."""
        return mean(state.streams)

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return `H_pre`, `H_res` and `H_post`."""
        streams = self._streams(state)
        return {
            "read": _read_weights(streams, parts),
            "mixing": self._mixing(streams, parts),
            "write": _write_weights(streams, parts),
        }

    def _streams(self, state: StreamState) -> tuple[Tensor, ...]:
        return require_state(state, self.num_streams, 0, self._title).streams

    def _mixing(self, streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
        projected = _projected(streams, parts.mixing_projection)
        return self._matrix(precise(parts.scales)[2] * projected + precise(parts.mixing_bias))


def _read_weights(streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
    projected = _projected(streams, parts.read_projection)
    return ops.sigmoid(precise(parts.scales)[0] * projected + precise(parts.read_bias))


def _write_weights(streams: tuple[Tensor, ...], parts: ResidualParts) -> Tensor:
    projected = _projected(streams, parts.write_projection)
    return 2 * ops.sigmoid(precise(parts.scales)[1] * projected + precise(parts.write_bias))


def _projected(streams: tuple[Tensor, ...], projection: Tensor) -> Tensor:
    """Return `RMS(X) W` for the streams as one vector: n of `(..., D)` -> `(..., k)`."""
    projection = precise(projection)
    streams = tuple(precise(x) for x in streams)
    products = [ops.matmul(x, projection[i]) for i, x in enumerate(streams)]
    squares = [row_means(ops.square(x)) for x in streams]
    # The division follows the product: k numbers instead of n D.
    return sum(products[1:], products[0]) * ops.rsqrt(mean(squares) + _EPSILON)
