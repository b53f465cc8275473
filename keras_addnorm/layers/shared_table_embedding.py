"""An embedding with the token table of another one, and positions and norm of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from keras_addnorm.layers.embedding_side import EmbeddingSide, SideArguments
from keras_addnorm.layers.positional_embedding import PositionalEmbedding

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SharedTableEmbedding(EmbeddingSide):
    """The source side of a model whose sides share a token table, but not positions or a norm.

    The table is a weight of the other embedding, and is saved with it: this layer belongs into a
    model that has both.

    Args:
        token_embedding: The embedding whose table is read, or its config.
        **arguments: `max_length`, `positions`, `mask_zero`, `pad_id`, `dropout`, `is_first_real`,
            `scale`, `norm` and `epsilon`, as `PositionalEmbedding` takes them, and the arguments of
            a Keras layer.

    Raises:
        ValueError: As `PositionalEmbedding`.

    Weights:
        `position_encoding/embeddings`: `(max_length, D)`, learned positions only.
        `embedding_norm/...`: those of the norm, if there is one.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.layers import PositionalEmbedding
    from keras_addnorm.layers.shared_table_embedding import SharedTableEmbedding

    target = PositionalEmbedding(11, hidden_dim=8, max_length=5, positions="learned")
    source = SharedTableEmbedding(target, max_length=5, positions="learned")
    x = source(np.array([[4, 5, 6, 0]]))  # (1, 4, 8), with positions of its own
    assert source.embeddings is target.embeddings
    ```
    """

    def __init__(
        self, token_embedding: PositionalEmbedding | dict[str, Any], **arguments: Any
    ) -> None:
        names = arguments.keys() & {field.name for field in dataclasses.fields(SideArguments)}
        side = SideArguments(**{name: arguments.pop(name) for name in names})
        super().__init__(**arguments)
        is_config = isinstance(token_embedding, dict)
        deserialize = keras.saving.deserialize_keras_object
        table: Any = deserialize(token_embedding) if is_config else token_embedding
        self.read_table_of(table)
        self._set_side(table.hidden_dim, side)
        self._make_side()

    def read_table_of(self, token_embedding: PositionalEmbedding) -> None:
        """Read the table of this embedding from now on."""
        # Not as an attribute: the table would be saved under the name of this layer.
        self._token_embedding: Callable[[], PositionalEmbedding] = lambda: token_embedding

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens, V."""
        return self._token_embedding().vocabulary_size

    @property
    def embeddings(self) -> Any:
        """The table, `(V, D)`, a weight of the other embedding."""
        return self._token_embedding().embeddings

    def call(
        self, inputs: Tensor, start_index: int | Tensor = 0, training: bool | None = None
    ) -> Tensor:
        """Embed token ids."""
        return self._embed(inputs, start_index, training)

    def compute_output_spec(
        self, inputs: Tensor, start_index: Any = 0, training: Any = None
    ) -> keras.KerasTensor:
        """Return shape and dtype of the output, without tracing."""
        self._check_token_ids(inputs, start_index)
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        table = keras.saving.serialize_keras_object(self._token_embedding())
        return {**super().get_config(), "token_embedding": table, **self._side_config()}

    def _rows(self, token_ids: Tensor) -> Tensor:
        return self._token_embedding()._rows(token_ids)
