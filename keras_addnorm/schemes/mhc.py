"""mHC: hyper-connections whose mixing matrix is made doubly stochastic by Sinkhorn's iterations."""

import dataclasses

from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.manifold import ManifoldScheme
from keras_addnorm.schemes.mixing import identity
from keras_addnorm.schemes.plan import Tensor, Values

_SMALLEST_LOGIT = -40.0
"""Below the largest. Gradients have the square of a sum's reciprocal, which is one of float32 still
where all that is summed is the exponential of this."""


@dataclasses.dataclass(frozen=True)
class MHC(ManifoldScheme):
    """`X = H_res X + H_post F(LN(H_pre X))` with n streams X and a doubly stochastic `H_res`.

    `H_pre = sigmoid(.)`, `H_post = 2 sigmoid(.)` and `H_res = Sinkhorn(.)`, each of
    `s RMS(X) W + b`, with X as one vector of n D numbers, `s` from 0.01 and `W` from zeros.
    Sinkhorn: the exponentials of the logits; then, again and again, columns divided by their sums,
    and rows by theirs. Rows have the sum 1 to rounding, columns the better the milder the logits.
    No product of such matrices grows, which those of hyper-connections may.

    All streams start as the embedding; at the top of the stack their mean is normalised. The paper
    does not say how W and b start. Here, with `start="mean"`, the sublayers read the mean of the
    streams and write with weights of mean 1 that differ by stream: the mean over streams is Pre-LN,
    and yet the streams part. `"one_hot"` is the start of mHC-lite's authors: reads and writes
    favour the stream `l mod n` in sublayer l.

    Args:
        num_streams: n.
        off_diagonal: Where the logits of `H_res` start beside the diagonal, which starts at 0. At
            -8 the mixing hardly has gradients, and stays near the identity in short runs.
        start: `"mean"` or `"one_hot"`.
        iterations: How often columns and rows are divided by their sums. Each is four operations
            on small tensors, which makes the scheme slow to trace, and slow without XLA.

    Raises:
        ValueError: If there is no stream, no iteration or no such start, or on use of `"one_hot"`
            without a position.

    Reference:
        Xie et al., "mHC: Manifold-Constrained Hyper-Connections", 2025 (arXiv:2512.24880),
        equations 7 to 9.
    """

    iterations: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.iterations, 1):
            raise ArgumentError(
                "Sinkhorn's iterations make the mixing doubly stochastic.",
                "an int, `iterations` >= 1",
                iterations=self.iterations,
            )

    @property
    def _title(self) -> str:
        return "mHC"

    @property
    def _num_logits(self) -> int:
        return self.num_streams**2

    def _mixing_bias(self) -> Values:
        rows = identity(self.num_streams, diagonal=0.0, others=self.off_diagonal)
        return tuple(value for row in rows for value in row)

    def _matrix(self, logits: Tensor) -> Tensor:
        n = self.num_streams
        return sinkhorn(_square(logits, n), self.iterations)


def _square(x: Tensor, n: int) -> Tensor:
    """Return `(..., n n)` as rows, `(..., n, n)`."""
    return ops.stack([x[..., i * n : (i + 1) * n] for i in range(n)], axis=-2)


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """Return exponentials whose columns and rows were divided by their sums, rows last.

    Args:
        logits: `(..., n, n)`, in float32 or float64.
        iterations: How often.

    Returns:
        `(..., n, n)`: rows have the sum 1, and columns nearly so.
    """
    # Less the largest, no exponential overflows; with a floor, no row of small ones is all zeros.
    below = logits - ops.max(logits, axis=(-2, -1), keepdims=True)
    matrix = ops.exp(ops.maximum(below, _SMALLEST_LOGIT))
    for _ in range(iterations):
        matrix = matrix / ops.sum(matrix, axis=-2, keepdims=True)
        matrix = matrix / ops.sum(matrix, axis=-1, keepdims=True)
    return matrix
