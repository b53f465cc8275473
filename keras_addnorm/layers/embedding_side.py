"""What makes token embeddings the input of a stack: scale, positions, norm, dropout and mask."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm import norms
from keras_addnorm.basics.argument_checks import (
    is_number,
    is_whole,
    require_bool,
    require_epsilon,
    require_share,
    require_size,
)
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import inside_vocabulary, values_of
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.dropout import Dropout
from keras_addnorm.layers.masks import token_mask

Tensor = Any


@dataclasses.dataclass(frozen=True)
class SideArguments:
    """What a side does with the rows of a table; `PositionalEmbedding` documents the fields."""

    max_length: int | None = None
    positions: str | dict[str, Any] = "sinusoidal"
    mask_zero: bool = True
    pad_id: int = 0
    dropout: float = 0.0
    is_first_real: bool = False
    scale: float | None = None
    norm: norms.NormLike | None = None
    epsilon: float = 1e-6
    zero_id: int | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not is_number(self.scale, above=0):
            raise ArgumentError(
                "The scale of an embedding has to be a finite number.",
                "`scale` > 0, or None for the root of `hidden_dim`",
                scale=self.scale,
            )
        if self.max_length is not None:
            require_size(max_length=self.max_length)
        if not is_whole(self.pad_id):
            raise ArgumentError(
                "Padding is named by its id.", "an int `pad_id`", pad_id=self.pad_id
            )
        if self.zero_id is not None and not is_whole(self.zero_id):
            raise ArgumentError(
                "The token whose vector is zeros is named by its id.",
                "an int `zero_id`, or None for none",
                zero_id=self.zero_id,
            )
        require_bool(mask_zero=self.mask_zero, is_first_real=self.is_first_real)
        require_epsilon(self.epsilon)
        require_share(dropout=self.dropout)


class EmbeddingSide(keras.layers.Layer):
    """The base class of layers from token ids to the input of a stack.

    A subclass looks rows of a table up, `_rows`.
    """

    hidden_dim: int
    max_length: int | None
    positions: str | dict[str, Any]
    mask_zero: bool
    pad_id: int
    dropout: float
    is_first_real: bool
    scale: float | None
    norm: norms.NormLike | None
    epsilon: float
    zero_id: int | None

    def _set_side(self, hidden_dim: int, side: SideArguments) -> None:
        """Keep the arguments."""
        self.hidden_dim = hidden_dim
        for name, value in vars(side).items():
            setattr(self, name, value)
        self.supports_masking = True
        # Token ids must not be cast to the compute dtype: float16 cannot count past 2048.
        self.autocast = False

    def _make_side(self) -> None:
        """Make the layers."""
        # What is beside the table is never quantised: `int8_from_float32` -> `float32`
        policy = self.dtype_policy.name.rpartition("_from_")[2]
        # Named after this layer: the paths of weights in a model have to differ.
        make_encoding = position_kinds.absolute(self.positions)
        self.position_encoding = None
        if make_encoding is not None:
            self.position_encoding = make_encoding(
                hidden_dim=self.hidden_dim,
                max_length=self.max_length,
                dtype=policy,
                name=f"{self.name}_positions",
            )
        self.embedding_norm = None
        if self.norm is not None:
            make_norm = norms.get(self.norm)
            self.embedding_norm = make_norm(
                epsilon=self.epsilon, dtype=policy, name=f"{self.name}_norm"
            )
            self.embedding_norm.build((None, None, self.hidden_dim))
        self._dropout = Dropout(self.dropout, dtype=policy)
        self.built = True

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        """Return where token ids are real, `(B, T)`; hidden states keep their mask."""
        if len(inputs.shape) == 3:
            return previous_mask
        return token_mask(inputs, self.pad_id, self.is_first_real) if self.mask_zero else None

    def _side_config(self) -> dict[str, Any]:
        """Return the fields of `SideArguments`."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(SideArguments)}

    def _rows(self, token_ids: Tensor) -> Tensor:
        """Return rows of the table, `(..., D)`."""
        raise NotImplementedError

    def _embed(self, token_ids: Tensor, start_index: int | Tensor, training: bool | None) -> Tensor:
        self._check_token_ids(token_ids, start_index)
        scale = self.hidden_dim**0.5 if self.scale is None else self.scale
        x = self._checked_rows(token_ids, start_index) * scale
        if self.zero_id is not None:
            is_zero = ops.expand_dims(ops.equal(token_ids, self.zero_id), -1)
            x = ops.where(is_zero, ops.zeros_like(x), x)
        if self.position_encoding is not None:
            x = x + self.position_encoding(self._positions(token_ids, start_index))
        if self.embedding_norm is not None:
            mask = self.compute_mask(token_ids)
            x = self.embedding_norm(x, padding_mask=mask, training=training)
        return self._dropout(x, training=training)

    def _positions(self, token_ids: Tensor, start_index: int | Tensor) -> Tensor:
        """Return the positions of tokens, `(T,)`."""
        length = ops.shape(token_ids)[1]
        is_learned = isinstance(self.position_encoding, position_kinds.LearnedPositions)
        if is_learned and token_ids.shape[1] is None and isinstance(start_index, int):
            # Rows whose length is not known before have no more positions than the table: a longer
            # one then fails, where a gather beyond the table gives zeros on a GPU.
            table = ops.arange(self.max_length, dtype="int32")
            return table[start_index : start_index + length]
        return ops.arange(length, dtype="int32") + start_index

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Look at wide ids before Keras makes int32 of them, as on JAX: others would be left."""
        if isinstance(inputs, np.ndarray) and inputs.dtype in ("int64", "uint32", "uint64"):
            self._require_inside(inputs)
            inputs = inputs.astype("int32")
        return super().__call__(inputs, *args, **kwargs)

    def _require_inside(self, ids: np.ndarray) -> None:
        """Raise a `ValueError` if an id has no row."""
        if not ids.size:
            return
        low, high = ids.min(), ids.max()
        if low < 0 or high >= self.vocabulary_size:
            raise ArgumentError(
                "A token id lies outside the vocabulary.",
                f"0 <= id < {self.vocabulary_size}",
                "Is this the model's own tokenizer?",
                received=f"ids from {low} to {high}",
            )

    def _checked_rows(self, token_ids: Tensor, start_index: int | Tensor) -> Tensor:
        """Return rows of the table; of an id without one NaN, as a compiled program cannot raise.

        A search's own tokens, which follow on others, are in the vocabulary and cost nothing.
        """
        if not isinstance(start_index, int) or start_index:
            return self._rows(token_ids)
        values = values_of(token_ids)
        if values is None:
            is_inside = ops.expand_dims(inside_vocabulary(token_ids, self.vocabulary_size), -1)
            return ops.where(is_inside, self._rows(token_ids), float("nan"))
        self._require_inside(values)
        return self._rows(token_ids)

    def _check_token_ids(self, token_ids: Tensor, start_index: int | Tensor) -> None:
        if len(token_ids.shape) != 2:
            raise ArgumentError(
                "Token ids need two axes.",
                "shape (batch, length)",
                "For one sentence, add a batch axis: ids[None]",
                value=tuple(token_ids.shape),
            )
        dtype = keras.backend.standardize_dtype(token_ids.dtype)
        if "int" not in dtype:
            raise ArgumentError(
                "Token ids have to be integers.",
                "a dtype such as int32",
                received=f"{dtype}. (To project hidden states on the vocabulary, pass "
                "reverse=True.)",
            )
        length = token_ids.shape[1]
        if not isinstance(self.position_encoding, position_kinds.LearnedPositions):
            return
        if length is None or not isinstance(start_index, int):
            return
        if start_index + length > self.max_length:
            raise ArgumentError(
                "The sequence is longer than the table of learned positions.",
                f"at most {self.max_length} positions",
                "Raise `max_length`, shorten the sequence, or use another kind of positions: no "
                "other has a limit.",
                value=start_index + length,
            )
