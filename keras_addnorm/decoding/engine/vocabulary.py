"""Views of the projection on the vocabulary, with what they read prepared before the loop."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.decoding.engine.views import Substitute
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.projection import Projection

Tensor = Any

VOCABULARY_PROJECTION = "vocabulary_projection"
"""The attribute of a decoder whose `Projection` is one on the vocabulary."""


class TransposedEmbedding(PositionalEmbedding):
    """A view of an embedding whose logits read a table that was transposed before the loop.

    It has these attributes besides the layer's own: `table`, `(M, D)`, of the tokens whose logits
    are asked for, in the compute dtype; and `transposed_table`, `(D, M)`.
    """

    table: Tensor
    transposed_table: Tensor

    def logits(self, x: Tensor) -> Tensor:
        """Project hidden states `(N, D)` on the vocabulary, `(N, M)`."""
        logits = self._product(ops.cast(x, self.compute_dtype))
        return ops.cast(logits, self._logits_dtype)

    def _product(self, x: Tensor) -> Tensor:
        return ops.matmul(x, self.transposed_table)


class ShortlistProjection(Projection):
    """A view of a projection that computes some units only: those of `columns`, `(D, M)`.

    It has these attributes besides the layer's own: `columns`, and `column_bias`, `(M,)` or 0.
    """

    columns: Tensor
    column_bias: Tensor | float

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project `(N, D)` to `(N, M)`."""
        return ops.matmul(ops.cast(inputs, self.compute_dtype), self.columns) + self.column_bias


def transposed_embedding(
    layer: PositionalEmbedding,
    tokens: Tensor | None,
    transposed_table: Tensor | None,
    kind: type[TransposedEmbedding] = TransposedEmbedding,
) -> Substitute:
    """Return what stands for an embedding.

    Args:
        layer: The embedding.
        tokens: `(M,)`, the tokens whose logits are asked for; `None` for all, M = V.
        transposed_table: The table of all tokens, `(D, V)`, where it is there already.
        kind: The class of the view.

    Returns:
        The substitute.
    """
    table = ops.cast(layer.embeddings, layer.compute_dtype)
    if tokens is not None:
        table = ops.take(table, tokens, axis=0)
    if tokens is not None or transposed_table is None:
        transposed_table = ops.transpose(table)
    return Substitute(kind, {"table": table, "transposed_table": transposed_table})


def shortlist_projection(layer: Projection, tokens: Tensor) -> Substitute:
    """Return what stands for a projection on the vocabulary, for the tokens `(M,)` of a list."""
    dtype = layer.compute_dtype
    columns = ops.take(ops.cast(layer.kernel, dtype), tokens, axis=1)
    bias = ops.take(ops.cast(layer.bias, dtype), tokens) if layer.use_bias else 0.0
    return Substitute(ShortlistProjection, {"columns": columns, "column_bias": bias})
