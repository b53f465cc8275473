"""KromHC: hyper-connections whose mixing matrix is a Kronecker product of small stochastic ones."""

import dataclasses

from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.manifold import ManifoldScheme
from keras_addnorm.schemes.mixing import shares
from keras_addnorm.schemes.plan import Tensor, Values


@dataclasses.dataclass(frozen=True)
class KromHC(ManifoldScheme):
    """As `mhc`, with `H_res = U_1 (x) ... (x) U_K` and `n = 2^K`; `U_k = [[p, 1-p], [1-p, p]]`.

    Each p is the first share of a softmax over two logits of `s RMS(X) W + b`, so `H_res` is doubly
    stochastic to rounding whatever the logits. There are 2 K of them, where `mhc` has n^2 and
    `mhc_lite` n!. Streams whose numbers differ in one binary digit, the first for `U_1`, change
    places with the share `1 - p`.

    Args:
        num_streams: n, a power of two.
        off_diagonal: Where the logit of changing places starts; that of staying starts at 0.
        start: `"mean"` or `"one_hot"`; see `mhc`.

    Raises:
        ValueError: If the number of streams is no power of two, if there is no such start, or on
            use of `"one_hot"` without a position.

    Reference:
        "KromHC", 2026 (arXiv:2601.21579); the authors' code.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_streams & (self.num_streams - 1):
            raise ArgumentError(
                "KromHC's mixing is a product of matrices of two streams each.",
                "a `num_streams` of 1, 2, 4, 8 and so on",
                num_streams=self.num_streams,
            )

    @property
    def _title(self) -> str:
        return "KromHC"

    @property
    def _num_factors(self) -> int:
        return self.num_streams.bit_length() - 1

    @property
    def _num_logits(self) -> int:
        return 2 * self._num_factors

    def _mixing_bias(self) -> Values:
        return (0.0, self.off_diagonal) * self._num_factors

    def _matrix(self, logits: Tensor) -> Tensor:
        # One stream has no logits; sizes may be unknown.
        some = logits[..., :1] if self._num_factors else ops.sum(logits, axis=-1, keepdims=True)
        matrix = ops.ones_like(some)[..., None]
        for factor in range(self._num_factors):
            stays, moves = ops.split(shares(logits[..., 2 * factor : 2 * factor + 2]), 2, axis=-1)
            matrix = _with_factor(matrix, stays[..., None], moves[..., None])
        return matrix


def _with_factor(matrix: Tensor, stays: Tensor, moves: Tensor) -> Tensor:
    """Return the Kronecker product of `(..., m, m)` with `[[stays, moves], [moves, stays]]`."""
    size = matrix.shape[-1]
    rows = []
    for i in range(size):
        entries = [matrix[..., i : i + 1, j : j + 1] for j in range(size)]
        for pair in ((stays, moves), (moves, stays)):
            rows.append(ops.concatenate([e * share for e in entries for share in pair], axis=-1))
    return ops.concatenate(rows, axis=-2)
