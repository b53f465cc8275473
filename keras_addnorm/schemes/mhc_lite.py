"""mHC-lite: hyper-connections whose mixing matrix is a mean of permutations, without iterations."""

import dataclasses
import itertools
import math

import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.manifold import ManifoldScheme
from keras_addnorm.schemes.mixing import basis_vector, shares
from keras_addnorm.schemes.plan import Tensor, Values

_LARGEST = 4
"""24 permutations; five streams have 120."""


@dataclasses.dataclass(frozen=True)
class MHCLite(ManifoldScheme):
    """As `mhc`, with `H_res = sum_k a_k P_k`: a weighted mean of all n! permutation matrices.

    The weights are a softmax of `s RMS(X) W + b`, so `H_res` is doubly stochastic to rounding
    whatever the logits. One softmax and one product with a constant take the place of Sinkhorn's
    iterations. With `start="mean"` the mean over streams is Pre-LN at the start.

    The authors normalise each stream and then add; here, as in the papers on hyper-connections,
    the mean is normalised.

    Args:
        num_streams: n, up to 4.
        off_diagonal: Where the logits of all permutations but the identity start, whose own starts
            at 0.
        start: `"mean"` or `"one_hot"`; see `mhc`.

    Raises:
        ValueError: If there is no stream or there are more than 4, if there is no such start, or on
            use of `"one_hot"` without a position.

    Reference:
        "mHC-lite", 2026 (arXiv:2601.05732); the authors' code.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_streams > _LARGEST:
            raise ArgumentError(
                "mHC-lite has a weight for each permutation of its streams, which are too many "
                "here.",
                f"num_streams <= {_LARGEST}",
                "Use 'mhc', which has no such bound.",
                value=self.num_streams,
            )

    @property
    def _title(self) -> str:
        return "mHC-lite"

    @property
    def _num_logits(self) -> int:
        return math.factorial(self.num_streams)

    def _mixing_bias(self) -> Values:
        bias = basis_vector(0, self._num_logits, others=self.off_diagonal)
        return (0.0, *bias[1:])

    def _matrix(self, logits: Tensor) -> Tensor:
        n = self.num_streams
        matrices = ops.convert_to_tensor(_permutations(n), dtype=logits.dtype)
        weights = shares(logits)
        return ops.stack([ops.matmul(weights, matrices[:, i]) for i in range(n)], axis=-2)


def _permutations(n: int) -> np.ndarray:
    """Return all permutation matrices, the identity first: `(n!, n, n)`."""
    return np.eye(n)[list(itertools.permutations(range(n)))]
