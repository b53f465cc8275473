"""Views of the vocabulary projection whose tables are prepared before the loop."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops

from keras_addnorm.decoding.engine.views import Substitute
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.projection import Projection

Tensor = Any

VOCABULARY_PROJECTION = "vocabulary_projection"
"""The attribute of a decoder whose `Projection` is one on the vocabulary."""


class ListedTokens(NamedTuple):
    """The tokens of a shortlist.

    Args:
        tokens: `(M,)` int32.
        vocabulary_size: Number of all tokens, V.
    """

    tokens: Tensor
    vocabulary_size: int


class TransposedEmbedding(PositionalEmbedding):
    """A view of an embedding whose logits read a table that was transposed before the loop.

    The view has these attributes besides the layer's own: `table`, `(M, D)`, of the tokens whose
    logits are computed, in the compute dtype; `transposed_table`, `(D, M)`; and `logits_bias`,
    `(M,)`, or `None`.
    """

    table: Tensor
    transposed_table: Tensor

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
    listed: ListedTokens | None,
    transposed_table: Tensor | None,
    kind: type[TransposedEmbedding] = TransposedEmbedding,
) -> Any:
    """Return the substitute of an embedding.

    Args:
        layer: The embedding.
        listed: The tokens whose logits are asked for; `None` for all.
        transposed_table: The table of all tokens, `(D, V)`, where it is there already.
        kind: The class of the view.

    Returns:
        A `Substitute`; the layer itself if it is of another vocabulary than the list's.
    """
    if listed is not None and layer.vocabulary_size != listed.vocabulary_size:
        return layer
    table, bias = layer.table(), layer.logits_bias
    if bias is not None:
        bias = ops.convert_to_tensor(bias)
    if listed is not None:
        table = ops.take(table, listed.tokens, axis=0)
        bias = None if bias is None else ops.take(bias, listed.tokens)
    if listed is not None or transposed_table is None:
        transposed_table = ops.transpose(table)
    prepared = {"table": table, "transposed_table": transposed_table, "logits_bias": bias}
    return Substitute(kind, prepared)


def is_listed_projection(name: str, layer: Any, listed: ListedTokens) -> bool:
    """Return whether a layer is the projection on the vocabulary of a list."""
    return (
        name == VOCABULARY_PROJECTION
        and type(layer) is Projection
        and layer.quantization_mode is None
        and layer.units == listed.vocabulary_size
    )


def shortlist_projection(layer: Projection, listed: ListedTokens) -> Substitute:
    """Return the substitute of a vocabulary projection, for the tokens of a list."""
    dtype, tokens = layer.compute_dtype, listed.tokens
    columns = ops.take(ops.cast(layer.kernel, dtype), tokens, axis=1)
    bias = ops.take(ops.cast(layer.bias, dtype), tokens) if layer.use_bias else 0.0
    return Substitute(ShortlistProjection, {"columns": columns, "column_bias": bias})
