"""Multi-head attention: self-attention and cross-attention over one shared core."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import keras
from keras import ops

from keras_addnorm import norms
from keras_addnorm.basics.argument_checks import (
    require_bool,
    require_gain,
    require_share,
    require_size,
)
from keras_addnorm.basics.arguments import KerasArguments, OtherOrder, takes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.attention_config import (
    AttentionConfig,
    Learned,
    LearnedOrFixed,
    divisors_of,
)
from keras_addnorm.layers.dropout import Dropout
from keras_addnorm.layers.initializers import InitializerLike, fresh_initializer, get_initializer
from keras_addnorm.layers.kv_cache import (
    KeyValueCache,
    KeyValues,
    as_key_values,
    require_cache_and_index,
)
from keras_addnorm.layers.masks import (
    combine_masks,
    explicit_or_implicit,
    fused_attention,
    has_fused_attention,
    masked_softmax,
    position_mask,
    say_if_not_fused,
)
from keras_addnorm.layers.positions import PositionsLike, RelativePositions
from keras_addnorm.layers.projection import (
    InnerNorm,
    Projection,
    get_inner_norm,
    require_hidden_dim,
)
from keras_addnorm.layers.shapes import (
    ShapeOfInput,
    leading_sizes,
    pack,
    require_sequences,
    size_of,
)

Tensor = Any
Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class _Heads:
    num_heads: int
    head_dim: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionArguments(_Heads, KerasArguments):
    """What the constructor of an attention takes; `MultiHeadSelfAttention` says what each means."""

    dropout: float = 0.0
    use_bias: bool = True
    query_initializer: InitializerLike = "glorot_uniform"
    key_initializer: InitializerLike = "glorot_uniform"
    value_initializer: InitializerLike = "glorot_uniform"
    output_initializer: InitializerLike = "glorot_uniform"
    bias_initializer: InitializerLike = "zeros"
    init_gain: float = 1.0
    attention: AttentionConfig | dict[str, Any] | None = None
    inner_norm: InnerNorm = None

    def __post_init__(self) -> None:
        require_size(num_heads=self.num_heads)
        if self.head_dim is not None:
            require_size(head_dim=self.head_dim)
        require_share(dropout=self.dropout)
        require_gain(init_gain=self.init_gain)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfAttentionArguments(AttentionArguments):
    """What the constructor of a self-attention takes."""

    positions: PositionsLike = "none"


_INITIALIZERS = tuple(f"{name}_initializer" for name in ("query", "key", "value", "output", "bias"))


class MultiHeadAttention(ShapeOfInput, abc.ABC):
    """The base class of self- and cross-attention: arguments, weights, and the attention itself.

    `softmax(q k^T / sqrt(K)) v` in each head. The constructor's arguments, errors and weights are
    documented in `MultiHeadSelfAttention`.
    """

    other_order = OtherOrder("Keras' MultiHeadAttention", ("num_heads", "head_dim"))

    @takes(AttentionArguments)
    def __init__(self, arguments: AttentionArguments) -> None:
        super().__init__(**arguments.for_keras())
        self.num_heads = arguments.num_heads
        self.head_dim = arguments.head_dim
        self.dropout = arguments.dropout
        self.use_bias = arguments.use_bias
        for name in _INITIALIZERS:
            setattr(self, name, get_initializer(**{name: getattr(arguments, name)}))
        self.init_gain = arguments.init_gain
        self.attention = AttentionConfig.get(arguments.attention)
        self._num_groups = self.attention.key_value_heads(self.num_heads)
        # Not as a default of the class: with torch, layers are modules, and a class' attribute
        # hides a module that is set later.
        self.positions: RelativePositions | None = None
        self.inner_norm = get_inner_norm(arguments.inner_norm)
        self.supports_masking = True

    @property
    def num_key_value_heads(self) -> int:
        """Number of heads of keys and values, G."""
        return self._num_groups

    @property
    def head_width(self) -> int:
        """Width of a head, K; known once the layer is built."""
        return self._head_dim

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        plain = ("num_heads", "head_dim", "dropout", "use_bias", "init_gain")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in plain},
            **{name: keras.initializers.serialize(getattr(self, name)) for name in _INITIALIZERS},
            "attention": self.attention.to_dict(),
            "inner_norm": keras.saving.serialize_keras_object(self.inner_norm),
        }

    @abc.abstractmethod
    def call(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Attend."""

    def _build_projections(self, query_shape: Shape, memory_shape: Shape) -> None:
        hidden_dim = require_hidden_dim(query_shape)
        self._head_dim = self.head_dim or divide_heads(hidden_dim, self.num_heads)
        inner_dim = self.num_heads * self._head_dim
        memory_dim = self._num_groups * self._head_dim
        make, gain = self._make, self.init_gain
        self.query_projection = make(
            "query_projection", inner_dim, self.query_initializer, query_shape
        )
        self.key_projection = make("key_projection", memory_dim, self.key_initializer, memory_shape)
        self.value_projection = make(
            "value_projection", memory_dim, self.value_initializer, memory_shape, gain
        )
        inner_shape = (*query_shape[:-1], inner_dim)
        if self.inner_norm is not None:
            self.inner_norm.build(inner_shape)
        self.output_projection = make(
            "output_projection", hidden_dim, self.output_initializer, inner_shape, gain
        )
        self._weights_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self._build_choices()

    def _build_choices(self) -> None:
        config = self.attention
        self._scale = self._add_number("logit_scale", config.scale, self._head_dim**-0.5)
        self._sink = self._add_number("sink_logits", config.sink, None)
        for name, choice in (
            ("query_norm", config.query_key_norm),
            ("key_norm", config.query_key_norm),
            ("value_norm", config.value_norm),
        ):
            if choice is not None:
                norm = norms.get(choice)(dtype=self.dtype_policy, name=name)
                norm.build((None, None, None, self._head_dim))
                setattr(self, name, norm)

    def _add_number(self, name: str, choice: LearnedOrFixed, default: float | None) -> Any:
        """Return the number, or a weight `(H,)` where it is learned for each head."""
        if not isinstance(choice, Learned):
            return default if choice is None else choice
        start = (default or 0.0) if choice.initial_value is None else choice.initial_value
        return self.add_weight(
            shape=(self.num_heads,), initializer=keras.initializers.Constant(start), name=name
        )

    def _make(
        self, name: str, units: int, initializer: Any, input_shape: Shape, gain: float = 1.0
    ) -> Projection:
        projection = Projection(
            units,
            use_bias=self.use_bias,
            kernel_initializer=fresh_initializer(initializer, gain),
            bias_initializer=fresh_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        projection.build(input_shape)
        return projection

    def _as_queries(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        # (B, T, H K) -> (B, T, H, K)
        queries = self._split_heads(x, self.num_heads)
        if self.attention.query_key_norm is not None:
            queries = self.query_norm(queries)
        # The scale goes on the query: in float16, unscaled logits can overflow.
        return self._rotate(queries, at) * self._by_head(self._scale, (-1, 1), queries.dtype)

    def _as_keys_values(
        self, keys: Tensor, values: Tensor, at: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # (B, S, G K) -> (B, S, G, K), twice
        keys = self._split_heads(keys, self._num_groups)
        if self.attention.query_key_norm is not None:
            keys = self.key_norm(keys)
        values = self._split_heads(values, self._num_groups)
        if self.attention.value_norm is not None:
            values = self.value_norm(values)
        return self._rotate(keys, at), values

    def _rotate(self, x: Tensor, at: Tensor | None) -> Tensor:
        return x if self.positions is None else self.positions.rotate(x, at)

    def _split_heads(self, x: Tensor, heads: int) -> Tensor:
        # (B, T, H*K) -> (B, T, H, K)
        return ops.reshape(x, (*leading_sizes(x, 2), heads, self._head_dim))

    def _by_head(self, number: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a fixed number unchanged; numbers learned per head, in a shape that broadcasts."""
        if number is None or isinstance(number, float):
            return number
        return ops.reshape(ops.cast(number, dtype), shape)

    def _attend(
        self,
        queries: Tensor,
        store: KeyValueCache,
        mask: Tensor | None,
        distances: Tensor | None = None,
        is_causal: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the context `(B, T, H, K)` and the attention weights `(B, H, T, S)`, if asked."""
        if not return_attention_scores and self._may_be_fused(training, ops.dtype(queries)):
            return fused_attention(queries, *store.keys_and_values(), mask), None
        weights = self._weights(self._logits(queries, store, distances, is_causal), mask)
        dropped = self._weights_dropout(weights, training=training)
        context = store.weighted_sum(dropped)
        if self.positions is not None:
            context = _plus(context, self.positions.context(dropped, distances))
        return context, weights

    def _may_be_fused(self, training: bool | None, dtype: str) -> bool:
        """Return whether this is plain `softmax(q k^T) v`, and the backend has a fused one."""
        if not has_fused_attention():
            return False
        reason = self._why_in_steps(training)
        say_if_not_fused(reason, dtype)
        return reason is None

    def _why_in_steps(self, training: bool | None) -> str | None:
        """Say what a fused operation does not compute; `None` for nothing."""
        config, positions = self.attention, self.positions
        if config.soft_cap is not None:
            return "soft_cap limits the logits"
        if config.sink is not None:
            return "a sink takes a share of the weights"
        if positions is not None and not positions.keeps_attention_plain:
            return f"{type(positions).__name__} changes the logits"
        if training and self.dropout > 0:
            return "dropout takes weights away (attention_dropout)"
        if training and config.head_diversity is not None:
            return "head_diversity looks at the weights"
        return None

    def _logits(
        self,
        queries: Tensor,
        store: KeyValueCache,
        distances: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        # (B, T, H, K) x (B, S, G, K) -> (B, H, T, S)
        logits = store.scores(queries)
        if self.positions is not None:
            logits = _plus(logits, self.positions.query_logits(queries, distances))
        logits = ops.cast(logits, keras.backend.result_type(self.compute_dtype, "float32"))
        cap = self.attention.soft_cap
        if cap is not None:
            logits = cap * ops.tanh(logits / cap)
        if self.positions is not None:
            logits = _plus(logits, self.positions.bias(distances, is_causal))
        return logits

    def _weights(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return the softmax over the keys, `(B, H, T, S)`."""
        return masked_softmax(logits, mask, self._sink_logits(logits.dtype), self.compute_dtype)

    def _sink_logits(self, dtype: str) -> Any:
        """Return the logit of the sink, `(H, 1, 1)` where it is learned per head, or `None`."""
        return self._by_head(self._sink, (-1, 1, 1), dtype)

    def _project_output(
        self, context: Tensor, x: Tensor, query_mask: Tensor | None, training: bool | None
    ) -> Tensor:
        """Return the output for the rows and positions of `x`."""
        # (B, T, H, K) -> (B, T, H*K) -> (B, T, D)
        width = self.num_heads * self._head_dim
        context = ops.reshape(context, (*leading_sizes(x, 2), width))
        if self.inner_norm is not None:
            context = self.inner_norm(context, padding_mask=query_mask, training=training)
        return self.output_projection(context)

    def show_heads(
        self,
        values: Tensor,
        weights: Tensor | None,
        context: Tensor,
        key_mask: Tensor | None,
        query_mask: Tensor | None,
        training: bool | None,
    ) -> None:
        """Add the loss on heads that agree, while training; diagnostics watch this call."""
        diversity: Any = self.attention.head_diversity
        if training and diversity is not None:
            loss = diversity.loss(values, weights, context, key_mask, query_mask)
            # Keras adds it to a loss of this type, which TensorFlow does with no other.
            self.add_loss(ops.cast(loss, keras.backend.floatx()))


class _PositionedAttention(MultiHeadAttention, abc.ABC):
    """An attention that may have relative positions."""

    @takes(SelfAttentionArguments)
    def __init__(self, arguments: SelfAttentionArguments) -> None:
        values = dict(vars(arguments))
        positions = values.pop("positions")
        super().__init__(**values)
        self.positions = position_kinds.relative(
            positions, dtype=self.dtype_policy, name="positions"
        )


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MultiHeadSelfAttention(_PositionedAttention):
    """Attention of a sequence to itself: `softmax(q k^T / sqrt(K)) v` in each head.

    A query that has nothing to attend to gets zeros before the output projection, never NaN, in
    every precision. The softmax runs in float32 under mixed precision.

    Args:
        num_heads: Number of heads, H.
        head_dim: Width of a head, K; `None` for `hidden_dim / num_heads`.
        dropout: Share of the attention weights that is dropped.
        use_bias: Whether the four projections have biases.
        query_initializer: Initialiser of the query kernel.
        key_initializer: Initialiser of the key kernel.
        value_initializer: Initialiser of the value kernel.
        output_initializer: Initialiser of the output kernel.
        bias_initializer: Initialiser of the biases.
        init_gain: Factor on the initial value and output kernels (DeepNorm's beta).
        attention: How to attend, an `AttentionConfig` or its fields as a dict.
        positions: Relative positions, in self-attention only: a name, a dict or a layer of
            `keras_addnorm.layers.positions`. Absolute kinds are the embedding's task.
        inner_norm: A norm of what `output_projection` reads (Sub-LN), a layer or its config.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If `num_heads` does not divide the width of the input, if a choice or a mask
            does not fit, or if only one of `cache` and `cache_update_index` is passed.

    Weights:
        `query_projection/{kernel,bias}`: `(D, H*K)`, `(H*K,)`.
        `{key,value}_projection/{kernel,bias}`: `(D, G*K)`, `(G*K,)`, with G key/value heads.
        `output_projection/{kernel,bias}`: `(H*K, D)`, `(D,)`.
        `logit_scale`, `sink_logits`: `(H,)`, where they are learned, in this order.
        `query_norm/...`, `key_norm/...`: of `(K,)`, with `query_key_norm`.
        `value_norm/...`: of `(K,)`, with `value_norm`.
        `positions/...`: the tables of the relative positions.
        `inner_norm/...`: those of the norm, if there is one.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import MultiHeadSelfAttention

    x = keras.random.normal((2, 5, 8))
    y = MultiHeadSelfAttention(num_heads=2)(x, use_causal_mask=True)  # (2, 5, 8)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.
    """

    def build(self, x_shape: Shape) -> None:
        """Make the projections for `(B, T, D)`, and the tables of positions that are not shared."""
        self._build_projections(x_shape, x_shape)
        if self.positions is not None and not self.positions.built:
            self.positions.build((self.num_heads, self._head_dim))

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        cache: Tensor | KeyValueCache | None = None,
        cache_update_index: int | Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        first_values: Tensor | None = None,
        return_values: bool = False,
    ) -> Any:
        """Attend.

        Args:
            x: `(B, T, D)`.
            padding_mask: `(B, T)`, True at real tokens; `None` for the mask attached to `x`. With
                a cache it is a mask of the cache's positions, `(B, S)`.
            attention_mask: `(B, T, S)` or `(T, S)`, True where a query may attend to a key.
            use_causal_mask: Whether to hide later positions. A cache always does.
            cache: Keys and values of earlier positions, `(B, 2, S, G, K)`, from `empty_cache` or
                an earlier call, or a `KeyValueCache`. Keys are stored as they are compared:
                normalised and rotated.
            cache_update_index: Position of `x[:, 0]` in the cache.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.
            first_values: For a `value_residual`, the values of the first layer of the stack at the
                positions of `x`, `(B, T, G, K)`; `None` in the first layer.
            return_values: Whether to return the values at the positions of `x`, too.

        Returns:
            The output `(B, T, D)`; with `return_attention_scores`, also the weights
            `(B, H, T, S)`; with `cache`, the updated cache; with `return_values`, last, the values
            `(B, T, G, K)`.
        """
        require_sequences(self.name, x=x)
        require_bool(
            use_causal_mask=use_causal_mask, return_attention_scores=return_attention_scores
        )
        require_cache_and_index(cache, cache_update_index)
        # A cache hides later positions, and its padding mask is one of the cache's positions.
        is_causal = use_causal_mask or cache is not None
        key_mask = explicit_or_implicit(padding_mask, x) if cache is None else padding_mask
        query_mask = key_mask if cache is None else None

        store = as_key_values(cache)
        at = store.query_positions(size_of(x, 1), cache_update_index)
        queries, keys, values = self._project(x, at)
        values = self._with_first(values, first_values)
        store = store.extend(keys, values, cache_update_index)
        distances = store.key_positions() - ops.expand_dims(at, -1)
        visible = position_mask(distances, is_causal, self.attention.window)
        context, weights = self._attend(
            queries,
            store,
            combine_masks(key_mask, attention_mask, visible, distances.shape[-1]),
            distances=distances,
            is_causal=is_causal,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        if cache is None:
            self.show_heads(values, weights, context, key_mask, query_mask, training)
        y = self._project_output(context, x, query_mask, training)
        return pack(
            y,
            weights if return_attention_scores else None,
            store.cache,
            values if return_values else None,
        )

    def _with_first(self, values: Tensor, first_values: Tensor | None) -> Tensor:
        """Return the values that are read, and cached: the mean with those of the first layer."""
        if first_values is None:
            return values
        if not self.attention.value_residual:
            raise ArgumentError(
                f"The attention '{self.name}' has no use for the values of the first layer.",
                "`attention` with `value_residual=True`, or no `first_values`",
                received="`first_values`",
            )
        return 0.5 * (first_values + values)

    def _project(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries `(B, T, H, K)`, keys and values `(B, T, G, K)`."""
        queries = self._as_queries(self.query_projection(x), at)
        keys, values = self.key_projection(x), self.value_projection(x)
        return queries, *self._as_keys_values(keys, values, at)

    def empty_cache(self, batch_size: int | Tensor, max_length: int) -> Tensor:
        """Return an empty cache of `max_length` positions.

        Args:
            batch_size: Number of sequences, B.
            max_length: Number of positions, S.

        Returns:
            Zeros of shape `(B, 2, S, G, K)`, where G is the number of key/value heads: `2 B S G K`
            times the size of a number in bytes.
        """
        shape = (batch_size, 2, max_length, self._num_groups, self._head_dim)
        return ops.zeros(shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class MultiHeadCrossAttention(MultiHeadAttention):
    """Attention of one sequence to another, the encoder's output ("memory").

    Arguments, errors and weights are those of `MultiHeadSelfAttention`, but for `positions`: those
    of a memory have nothing to do with those of its readers.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import MultiHeadCrossAttention

    x, memory = keras.random.normal((2, 5, 8)), keras.random.normal((2, 7, 8))
    y = MultiHeadCrossAttention(num_heads=2)(x, memory)  # (2, 5, 8)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.3.
    """

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        """Make the projections for `x`, `(B, T, D)`, and a memory, `(B, S, D_memory)`."""
        self._build_projections(x_shape, memory_shape or x_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Tensor | KeyValueCache | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attend to the memory, or to its cached projection.

        Args:
            x: `(B, T, D)`. With a cache it may have `n B` rows, those of one sentence side by
                side (the hypotheses of a beam): they share the sentence's keys and values.
            memory: `(B, S, D_memory)`; not needed with a cache.
            memory_padding_mask: `(B, S)`, True at real tokens; `None` for the mask attached to
                `memory`.
            attention_mask: `(B, T, S)` or `(T, S)`, True where a query may attend to a key.
            cache: The memory's keys and values from `project_memory`, `(B, 2, S, G, K)`, or a
                `KeyValueCache`.
            return_attention_scores: Whether to return the attention weights too.
            training: Whether to apply dropout.

        Returns:
            The output, of the shape of `x`; with `return_attention_scores`, also the weights
            `(B, H, T, S)`, one for each row of `x`.

        Raises:
            ValueError: If there is neither a memory nor a cache.
        """
        require_sequences(self.name, x=x, memory=memory)
        require_bool(return_attention_scores=return_attention_scores)
        if memory is None and cache is None:
            raise ArgumentError(
                "Cross-attention has nothing to attend to.",
                "`memory` or `cache`",
                received="neither",
            )
        queries = self._as_queries(self.query_projection(x))
        store = as_key_values(cache)
        if cache is None:
            memory_padding_mask = explicit_or_implicit(memory_padding_mask, memory)
            store = KeyValues(*self.project_keys_values(memory))
        context, weights = self._attend(
            store.group_rows(queries),
            store,
            combine_masks(
                memory_padding_mask,
                attention_mask,
                num_keys=None if memory is None or cache is not None else memory.shape[1],
            ),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        query_mask = explicit_or_implicit(None, x)
        if cache is None:
            self.show_heads(
                store.keys_and_values()[1],
                weights,
                context,
                memory_padding_mask,
                query_mask,
                training,
            )
        elif return_attention_scores:
            weights = _by_row(weights, size_of(x, 1))
        # With a cache, the mask of x is not that of its rows.
        y = self._project_output(context, x, query_mask if cache is None else None, training)
        return pack(y, weights if return_attention_scores else None)

    def project_keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project the memory `(B, S, D_memory)` to keys and values, `(B, S, G, K)` each."""
        return self._as_keys_values(self.key_projection(memory), self.value_projection(memory))

    def project_memory(self, memory: Tensor) -> Tensor:
        """Project the memory `(B, S, D_memory)` once for all decoding steps: `(B, 2, S, G, K)`."""
        return ops.stack(self.project_keys_values(memory), axis=1)


def divide_heads(hidden_dim: int, num_heads: int) -> int:
    """Return the width of a head, or say which numbers of heads would fit."""
    if hidden_dim % num_heads == 0:
        return hidden_dim // num_heads
    divisors = divisors_of(hidden_dim)
    below = max(n for n in divisors if n < num_heads)
    above = min((n for n in divisors if n > num_heads), default=None)
    nearest = f"{below}" if above is None else f"{below} or {above}"
    raise ArgumentError(
        "The heads cannot share the residual stream evenly.",
        "`hidden_dim` to be a multiple of `num_heads`",
        f"Use `num_heads={nearest}`, or set head_dim.",
        hidden_dim=hidden_dim,
        num_heads=num_heads,
    )


def _plus(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else x + y


def _by_row(weights: Tensor, length: int | Tensor) -> Tensor:
    # (B, H, n T, S) -> (B, H, n, T, S) -> (B, n, H, T, S) -> (n B, H, T, S)
    batch, heads, _, keys = ops.shape(weights)
    by_row = ops.transpose(ops.reshape(weights, (batch, heads, -1, length, keys)), (0, 2, 1, 3, 4))
    return ops.reshape(by_row, (-1, heads, length, keys))
