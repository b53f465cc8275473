"""Token embedding, positions and the tied output projection in one layer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.adaptable import AdaptableLayer
from keras_addnorm.layers.dropout import Dropout
from keras_addnorm.layers.initializers import InitializerLike, fresh_initializer
from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class PositionalEmbedding(AdaptableLayer, keras.layers.ReversibleEmbedding):
    """`E[id] * sqrt(D) + P[position]`; with `reverse=True`, the tied projection to the vocabulary.

    The mask (True at real tokens) is attached to the output and travels on to every layer that
    follows, as from `keras.layers.Embedding(mask_zero=True)`.

    The table is that of a `keras.layers.ReversibleEmbedding`: `enable_lora(rank)` adds two small
    matrices to it, for both directions, and `quantize("int8")` or `"int4"` makes it whole numbers.
    (`keras.Model.quantize` leaves out every layer that holds others, this one among them: call its
    own method, or `Seq2SeqTransformer.quantize`.)

    Args:
        vocabulary_size: Number of tokens, V.
        hidden_dim: Width of the residual stream, D.
        max_length: Number of positions; needed by learned positions, no limit for sinusoidal ones.
        positions: `"sinusoidal"` or `"learned"`, a name or a dict. With another kind of
            `keras_addnorm.layers.positions` nothing is added: it is the attention's task.
        mask_zero: Whether tokens equal to `pad_id` are masked.
        pad_id: The id of the padding token.
        dropout: Share of the sum that is dropped.
        embeddings_initializer: `None` for a normal distribution of standard deviation `1/sqrt(D)`,
            so that the scaled embedding and the tied logits both start at a variance near one.
        **kwargs: The arguments of a Keras layer, and `lora_rank` and `lora_alpha`.

    Raises:
        ValueError: If a size is not positive, if the input is not a rank-2 tensor of integers, or
            if it is longer than a learned table. An id outside the vocabulary cannot be seen in a
            compiled graph: TensorFlow on CPU raises, other devices clip or give NaN; a negative
            one counts from the end of the table.

    Weights:
        `embeddings`: `(V, D)`.
        `position_encoding/embeddings`: `(max_length, D)`, learned positions only.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.layers import PositionalEmbedding

    embedding = PositionalEmbedding(vocabulary_size=11, hidden_dim=8)
    x = embedding(np.array([[4, 5, 6, 0]]))  # (1, 4, 8), the last position masked
    logits = embedding(x, reverse=True)      # (1, 4, 11), float32
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, sections 3.4 and 3.5; Press and Wolf,
        "Using the Output Embedding to Improve Language Models", 2017 (the tied projection).
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        max_length: int | None = None,
        positions: str | dict[str, Any] = "sinusoidal",
        mask_zero: bool = True,
        pad_id: int = 0,
        dropout: float = 0.0,
        embeddings_initializer: InitializerLike | None = None,
        **kwargs: Any,
    ) -> None:
        for name, size in (("vocabulary_size", vocabulary_size), ("hidden_dim", hidden_dim)):
            if size < 1:
                raise ValueError(f"`{name}` has to be positive. Expected >= 1. Received: {size}")
        # The table has an initialiser of its own. Another default of Keras would draw a seed.
        super().__init__(vocabulary_size, hidden_dim, embeddings_initializer="zeros", **kwargs)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.positions = positions
        self.mask_zero = mask_zero
        self.pad_id = pad_id
        self.dropout = dropout
        self.embeddings_initializer = (
            None
            if embeddings_initializer is None
            else keras.initializers.get(embeddings_initializer)
        )
        self.supports_masking = True
        # Token ids must not be cast to the compute dtype: float16 cannot count past 2048.
        self.autocast = False

        self._add_table()
        # What is beside the table is never quantised: `int8_from_float32` -> `float32`
        policy = self.dtype_policy.name.rpartition("_from_")[2]
        make_encoding = position_kinds.absolute(positions)
        self.position_encoding = None
        if make_encoding is not None:
            self.position_encoding = make_encoding(
                hidden_dim=hidden_dim,
                max_length=max_length,
                dtype=policy,
                name="positions",
            )
        self._dropout = Dropout(dropout, dtype=policy)
        self.built = True
        if self.lora_rank:
            self.enable_lora(self.lora_rank, self.lora_alpha)

    def call(
        self,
        inputs: Tensor,
        start_index: int | Tensor = 0,
        reverse: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Embed token ids, or project hidden states on the vocabulary.

        Args:
            inputs: Token ids, `(B, T)`; with `reverse=True` hidden states, `(B, T, D)`.
            start_index: Position of the first token, for cached decoding.
            reverse: Whether to project on the vocabulary with the transposed embedding table.
            training: Whether to apply dropout.

        Returns:
            `(B, T, D)`; with `reverse=True` logits `(B, T, V)` in float32 (or float64).
        """
        if reverse:
            return self._project(inputs)
        return self._embed(inputs, start_index, training)

    def quantized_call(self, *args: Any, **kwargs: Any) -> Tensor:
        """Do the same with a quantised table: `call` asks for its rows and products."""
        return self.call(*args, **kwargs)

    def logits(self, x: Tensor) -> Tensor:
        """Project hidden states `(N, D)` to logits `(N, V)` in float32 (or float64)."""
        logits = ops.einsum("nd,vd->nv", ops.cast(x, self.compute_dtype), self.table())
        return ops.cast(logits, self._logits_dtype)

    def table(self) -> Tensor:
        """Return the table `(V, D)` that the layer computes with, LoRA and quantisation included.

        Keras' own reverse projection of a quantised table rounds the hidden states, too, and lets
        no gradient through.
        """
        if self.quantization_mode is not None:
            return self._rows(ops.arange(self.vocabulary_size, dtype="int32"))
        return ops.cast(self.embeddings, self.compute_dtype)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        """Return where token ids are real, `(B, T)`; hidden states keep their mask."""
        if len(inputs.shape) == 3:
            return previous_mask
        return ops.not_equal(inputs, self.pad_id) if self.mask_zero else None

    def compute_output_spec(
        self,
        inputs: Tensor,
        start_index: Any = 0,
        reverse: bool = False,
        training: Any = None,
    ) -> keras.KerasTensor:
        """Return shape and dtype of the output, without tracing."""
        if reverse:
            self._check_hidden_states(inputs)
            shape = (*inputs.shape[:-1], self.vocabulary_size)
            return keras.KerasTensor(shape, dtype=self._logits_dtype)
        self._check_token_ids(inputs, start_index)
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        initializer = self.embeddings_initializer
        # Not that of `ReversibleEmbedding`, whose arguments are others.
        own = keras.layers.Layer.get_config(self)
        if self.lora_rank:
            own |= {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        return {
            **own,
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "max_length": self.max_length,
            "positions": self.positions,
            "mask_zero": self.mask_zero,
            "pad_id": self.pad_id,
            "dropout": self.dropout,
            "embeddings_initializer": (
                None if initializer is None else keras.initializers.serialize(initializer)
            ),
        }

    @property
    def _logits_dtype(self) -> str:
        return keras.backend.result_type(self.compute_dtype, "float32")

    def _embed(self, token_ids: Tensor, start_index: int | Tensor, training: bool | None) -> Tensor:
        self._check_token_ids(token_ids, start_index)
        x = self._rows(token_ids) * self.hidden_dim**0.5
        if self.position_encoding is not None:
            positions = ops.arange(ops.shape(token_ids)[1], dtype="int32") + start_index
            x = x + self.position_encoding(positions)
        return self._dropout(x, training=training)

    def _rows(self, token_ids: Tensor) -> Tensor:
        """Return rows of the table, `(..., D)`."""
        if self.quantization_mode is not None:
            return super().quantized_call(token_ids)
        rows = ops.take(ops.cast(self._embeddings, self.compute_dtype), token_ids, axis=0)
        if self.lora_enabled:
            change = ops.matmul(
                ops.take(self.lora_embeddings_a, token_ids, axis=0), self.lora_embeddings_b
            )
            rows = rows + ops.cast(self.lora_alpha / self.lora_rank * change, rows.dtype)
        return rows

    def _add_table(self) -> None:
        shape = (self.vocabulary_size, self.hidden_dim)
        if self.quantization_mode is not None:
            self.quantized_build(shape, self.quantization_mode, self.quantization_config)
            return
        self._embeddings = self.add_weight(
            shape=shape,
            initializer=(
                keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5)
                if self.embeddings_initializer is None
                else fresh_initializer(self.embeddings_initializer)
            ),
            name="embeddings",
        )

    def _project(self, x: Tensor) -> Tensor:
        self._check_hidden_states(x)
        leading = leading_sizes(x, len(x.shape) - 1)
        # (B, T, D) -> (N, D) -> (N, V) -> (B, T, V): one flat product, as in Projection
        logits = self.logits(ops.reshape(x, (-1, self.hidden_dim)))
        return ops.reshape(logits, (*leading, self.vocabulary_size))

    def _check_token_ids(self, token_ids: Tensor, start_index: int | Tensor) -> None:
        if len(token_ids.shape) != 2:
            raise ValueError(
                "Token ids need two axes. Expected shape (batch, length). "
                f"Received: {tuple(token_ids.shape)}. For one sentence, add a batch axis: ids[None]"
            )
        dtype = keras.backend.standardize_dtype(token_ids.dtype)
        if "int" not in dtype:
            raise ValueError(
                "Token ids have to be integers. Expected a dtype such as int32. "
                f"Received: {dtype}. (To project hidden states on the vocabulary, pass "
                "reverse=True.)"
            )
        length = token_ids.shape[1]
        if not isinstance(self.position_encoding, position_kinds.LearnedPositions):
            return
        if length is None or not isinstance(start_index, int):
            return
        if start_index + length > self.max_length:
            raise ValueError(
                "The sequence is longer than the table of learned positions. Expected at most "
                f"{self.max_length} positions. Received: {start_index + length}. Raise max_length, "
                "shorten the sequence, or use another kind of positions: no other has a limit."
            )

    def _check_hidden_states(self, x: Tensor) -> None:
        if len(x.shape) != 3 or x.shape[-1] != self.hidden_dim:
            raise ValueError(
                "reverse=True projects hidden states on the vocabulary. Expected shape "
                f"(batch, length, {self.hidden_dim}). Received: {tuple(x.shape)}"
            )
