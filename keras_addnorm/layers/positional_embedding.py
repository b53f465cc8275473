"""Token embedding, positions and the tied output projection in one layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm import norms
from keras_addnorm.basics.argument_checks import require_bool, require_gain, require_size
from keras_addnorm.basics.arguments import OtherOrder, by_name
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.layers.embedding_side import EmbeddingSide, SideArguments
from keras_addnorm.layers.initializers import (
    InitializerLike,
    fresh_initializer,
    get_initializer,
    scaled,
)
from keras_addnorm.layers.projection import AdaptableLayer
from keras_addnorm.layers.shapes import leading_sizes
from keras_addnorm.layers.vocabulary_product import label_logits, project

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class PositionalEmbedding(AdaptableLayer, EmbeddingSide, keras.layers.ReversibleEmbedding):
    """`E[id] * sqrt(D) + P[position]`; with `reverse=True`, the tied projection to the vocabulary.

    A `norm` normalises the sum, and dropout follows.

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
        is_first_real: Whether the first position is never masked: for targets whose start token is
            padding.
        scale: Factor on the rows of the table; `None` for the square root of D.
        norm: A norm of the sum, a name of `keras_addnorm.norms` or its dict; `None` for none.
        epsilon: The norm's epsilon.
        zero_id: The id of a token whose vector is zeros, whatever its row; `None` for none.
        use_logits_bias: Whether the tied projection adds a learned bias to the logits.
        init_gain: Factor on the initial table (T-Fixup's).
        **kwargs: The arguments of a Keras layer, and `lora_rank` and `lora_alpha`.

    Raises:
        ValueError: If a size or the scale is not positive, if a choice is unknown, if the input is
            not a rank-2 tensor of integers, if it is longer than a learned table, or if an id lies
            outside the vocabulary whose value is there: in arrays and eager tensors (not of torch).
            A compiled program cannot refuse it, and gives NaN for its row, unless the backend
            raises, as TensorFlow on CPU without XLA does, and torch.

    Weights:
        `embeddings`: `(V, D)`.
        `logits_bias`: `(V,)`, if it is used.
        `position_encoding/embeddings`: `(max_length, D)`, learned positions only.
        `embedding_norm/...`: those of the norm, if there is one.

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

    @by_name(
        OtherOrder(
            "KerasHub's TokenAndPositionEmbedding", ("vocabulary_size", "max_length", "hidden_dim")
        )
    )
    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        *,
        max_length: int | None = None,
        positions: str | dict[str, Any] = "sinusoidal",
        mask_zero: bool = True,
        pad_id: int = 0,
        dropout: float = 0.0,
        embeddings_initializer: InitializerLike | None = None,
        is_first_real: bool = False,
        scale: float | None = None,
        norm: norms.NormLike | None = None,
        epsilon: float = 1e-6,
        zero_id: int | None = None,
        use_logits_bias: bool = False,
        init_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        require_size(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        require_gain(init_gain=init_gain)
        require_bool(use_logits_bias=use_logits_bias)
        # The table has an initialiser of its own. Another default of Keras would draw a seed.
        super().__init__(vocabulary_size, hidden_dim, embeddings_initializer="zeros", **kwargs)
        self._set_side(
            hidden_dim,
            SideArguments(
                max_length=max_length,
                positions=positions,
                mask_zero=mask_zero,
                pad_id=pad_id,
                dropout=dropout,
                is_first_real=is_first_real,
                scale=scale,
                norm=norm,
                epsilon=epsilon,
                zero_id=zero_id,
            ),
        )
        self.vocabulary_size = vocabulary_size
        self.use_logits_bias = use_logits_bias
        self.init_gain = init_gain
        self.embeddings_initializer = (
            None
            if embeddings_initializer is None
            else get_initializer(embeddings_initializer=embeddings_initializer)
        )

        self._add_table()
        self.logits_bias = None
        if use_logits_bias:
            self.logits_bias = self.add_weight(
                shape=(vocabulary_size,), initializer="zeros", autocast=False, name="logits_bias"
            )
        self._make_side()
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
        logits = ops.cast(self._product(ops.cast(x, self.compute_dtype)), self._logits_dtype)
        return logits if self.logits_bias is None else self._add_bias(logits)

    def label_logits(self, x: Tensor, labels: Tensor, chunk_size: int) -> LabelLogits:
        """Return what losses need of the logits of `(B, T, D)`, without ever having them whole."""
        return label_logits(
            ops.cast(x, self.compute_dtype),
            self.table(),
            self.logits_bias,
            labels,
            vocabulary_axis=0,
            chunk_size=chunk_size,
        )

    def table(self) -> Tensor:
        """Return the table `(V, D)` that the layer computes with, LoRA and quantisation included.

        Keras' own reverse projection of a quantised table rounds the hidden states, too, and lets
        no gradient through.
        """
        if self.quantization_mode is not None:
            return self._rows(ops.arange(self.vocabulary_size, dtype="int32"))
        return ops.cast(self.embeddings, self.compute_dtype)

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        """Return the names of the weights, in their order in a file, for each quantisation."""
        spec = super().variable_serialization_spec
        if self.logits_bias is None:
            return spec
        return {mode: [*names, "logits_bias"] for mode, names in spec.items()}

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
            **self._side_config(),
            "use_logits_bias": self.use_logits_bias,
            "init_gain": self.init_gain,
            "embeddings_initializer": (
                None if initializer is None else keras.initializers.serialize(initializer)
            ),
        }

    @property
    def _logits_dtype(self) -> str:
        return keras.backend.result_type(self.compute_dtype, "float32")

    def _product(self, x: Tensor) -> Tensor:
        """Multiply `(N, D)` by the transposed table, to `(N, V)`."""
        return project(x, self.table(), vocabulary_axis=0)

    def _add_bias(self, logits: Tensor) -> Tensor:
        """Add the bias to `(N, V)`."""
        return ops.add(logits, self.logits_bias)

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
                scaled(
                    keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5), self.init_gain
                )
                if self.embeddings_initializer is None
                else fresh_initializer(self.embeddings_initializer, self.init_gain)
            ),
            name="embeddings",
        )

    def _project(self, x: Tensor) -> Tensor:
        self._check_hidden_states(x)
        leading = leading_sizes(x, len(x.shape) - 1)
        # (B, T, D) -> (N, D) -> (N, V) -> (B, T, V): one flat product, as in Projection
        logits = self.logits(ops.reshape(x, (-1, self.hidden_dim)))
        return ops.reshape(logits, (*leading, self.vocabulary_size))

    def _check_hidden_states(self, x: Tensor) -> None:
        if len(x.shape) != 3 or x.shape[-1] != self.hidden_dim:
            raise ArgumentError(
                "reverse=True projects hidden states on the vocabulary.",
                f"shape (batch, length, {self.hidden_dim})",
                value=tuple(x.shape),
            )


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SharedTableEmbedding(EmbeddingSide):
    """The source side of a model whose sides share a token table, but not positions or a norm.

    The table is a weight of the other embedding, and is saved with it: this layer belongs into a
    model that has both.

    Args:
        token_embedding: The embedding whose table is read, or its config.
        **arguments: `max_length`, `positions`, `mask_zero`, `pad_id`, `dropout`, `is_first_real`,
            `scale`, `norm`, `epsilon` and `zero_id`, as `PositionalEmbedding` takes them, and the
            arguments of a Keras layer.

    Raises:
        ValueError: As `PositionalEmbedding`.

    Weights:
        `position_encoding/embeddings`: `(max_length, D)`, learned positions only.
        `embedding_norm/...`: those of the norm, if there is one.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.layers import PositionalEmbedding
    from keras_addnorm.layers.positional_embedding import SharedTableEmbedding

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
