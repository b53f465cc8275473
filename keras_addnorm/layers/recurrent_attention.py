"""What stands in the place of a decoder's self-attention and keeps a state of fixed size."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Protocol, Self

from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import as_mask
from keras_addnorm.layers.attention import SelfAttentionArguments
from keras_addnorm.layers.kv_cache import require_cache_and_index, require_place
from keras_addnorm.layers.masks import explicit_or_implicit
from keras_addnorm.layers.shapes import ShapeOfInput, no_heads, pack, require_sequences, size_of

Tensor = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderSelfAttentionArguments(SelfAttentionArguments):
    """What a decoder layer has for its self-attention, of whatever kind.

    Besides the arguments of a `MultiHeadSelfAttention`, the width of the layer's feed-forward, and
    the dropout inside it.
    """

    intermediate_dim: int
    activation_dropout: float = 0.0

    def for_attention(self) -> dict[str, Any]:
        """Return the arguments of a `MultiHeadSelfAttention`."""
        names = (field.name for field in dataclasses.fields(SelfAttentionArguments))
        return {name: getattr(self, name) for name in names}


class RecurrentState(Protocol):
    """What a recurrent layer asks of its state, whoever keeps it.

    A decoding loop may pass an implementation of its own as `cache`, and receives it back as the
    updated cache.
    """

    stored: Any
    """The state, a tensor or a structure of tensors, the first axis of each counting rows."""

    def split_rows(self, x: Tensor) -> Tensor:
        """Return the new positions of each row of the state, `(B, T, D)`."""

    def join_rows(self, y: Tensor) -> Tensor:
        """Return what `split_rows` has split as it was."""

    def updated(self, stored: Any) -> Any:
        """Return the updated cache that a layer returns."""


class PlainState:
    """A state that is its own cache.

    Args:
        stored: The state; `None` before the first position.
    """

    def __init__(self, stored: Any = None) -> None:
        self.stored = stored

    def split_rows(self, x: Tensor) -> Tensor:
        """Return `x`, which has the rows of the state."""
        return x

    def join_rows(self, y: Tensor) -> Tensor:
        """Return `y`."""
        return y

    def updated(self, stored: Any) -> Any:
        """Return the new state."""
        return stored


class RecurrentSelfAttention(ShapeOfInput, abc.ABC):
    """The base class of layers that read a sequence from left to right with a state of fixed size.

    They are called like `MultiHeadSelfAttention`. In the place of keys and values the cache is the
    state after the last position: how it starts says `initial_state`, a call makes a step or
    several, and its first axis counts rows, which a search reorders. A class of your own needs
    `initial_state`, `run` and `in_block`; `keras_addnorm.layers.self_attention.register` gives it a
    name.

    Args:
        **kwargs: The arguments of a Keras layer.

    Example:
    ```python
    from keras import ops
    from keras_addnorm.layers import RecurrentSelfAttention

    class Previous(RecurrentSelfAttention):  # Gives the vector before; padding is read as well.
        def build(self, x_shape):
            self.hidden_dim = x_shape[-1]

        @classmethod
        def in_block(cls, arguments, **choices):
            return cls(**arguments.for_keras())

        def initial_state(self, batch_size):
            return ops.zeros((batch_size, self.hidden_dim), self.compute_dtype)

        def run(self, x, mask, state, training):
            state = ops.zeros_like(x[:, 0]) if state is None else state
            return ops.concatenate([state[:, None], x[:, :-1]], axis=1), x[:, -1]

    layer = Previous()
    layer.build((1, 3, 4))
    y, cache = layer(ops.ones((1, 3, 4)), cache=layer.empty_cache(1, 3), cache_update_index=0)
    ```
    """

    choices: tuple[str, ...] = ()
    """The constructor's arguments that `self_attention={"name": ..., ...}` may give."""

    knows_order: bool = True
    """Whether the output depends on the order of the positions before."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    @classmethod
    @abc.abstractmethod
    def in_block(cls, arguments: DecoderSelfAttentionArguments, **choices: Any) -> Self:
        """Return the layer that stands in a decoder layer.

        Args:
            arguments: What the decoder layer has for it.
            **choices: The arguments that are named in `choices`.

        Returns:
            The layer, unbuilt.
        """

    @abc.abstractmethod
    def initial_state(self, batch_size: int | Tensor) -> Any:
        """Return the state before the first position.

        Args:
            batch_size: Number of sequences, B.

        Returns:
            A tensor, or a structure of tensors, the first axis of each of size B.
        """

    @abc.abstractmethod
    def run(
        self, x: Tensor, mask: Tensor | None, state: Any, training: bool | None
    ) -> tuple[Tensor, Any]:
        """Read positions from left to right.

        Args:
            x: `(B, T, D)`, of one position or more.
            mask: `(B, T)`, True at real positions, which alone change the state; `None` for all.
            state: The state before; `None` for the initial one.
            training: Whether to apply dropout.

        Returns:
            The output `(B, T, D)`, and the state after the last position.
        """

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: None = None,
        use_causal_mask: bool = True,
        cache: Any = None,
        cache_update_index: int | Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Read the sequence from left to right.

        Args:
            x: `(B, T, D)`.
            padding_mask: `(B, T)`, True at real tokens, which alone change the state; `None` for
                the mask attached to `x`. With a cache it is a mask of all positions, `(B, S)`.
            attention_mask: None: there are no keys that a query could be kept from.
            use_causal_mask: Has no effect: later positions are never read.
            cache: The state after the positions before, from `empty_cache` or an earlier call.
            cache_update_index: Position of `x[:, 0]` in the sequence.
            return_attention_scores: Whether to return the weights `(B, 0, T, T)` of no heads, as a
                pruned self-attention does.
            training: Whether to apply dropout.

        Returns:
            The output `(B, T, D)`; with `return_attention_scores`, also the weights of no heads;
            with `cache`, last, the updated cache.

        Raises:
            ValueError: If there is an `attention_mask`, only one of `cache` and
                `cache_update_index`, or a number below 0 or behind the mask as the latter.
        """
        require_sequences(self.name, x=x)
        require_cache_and_index(cache, cache_update_index)
        if attention_mask is not None:
            raise ArgumentError(
                f"The layer '{self.name}' has no keys that an `attention_mask` could hide.",
                "`padding_mask` alone: later positions are never read",
                received="an `attention_mask`",
            )
        state = _as_state(cache)
        mask = explicit_or_implicit(padding_mask, x) if cache is None else padding_mask
        mask = None if mask is None else as_mask(mask)
        if cache is not None:
            size = None if mask is None else mask.shape[1]
            require_place(cache_update_index, x.shape[1], size)
            if mask is not None:
                at = ops.arange(size_of(x, 1), dtype="int32") + cache_update_index
                mask = ops.take(mask, at, axis=1)
        if x.shape[1] == 0:  # No position, no step.
            y, new = state.split_rows(x), state.stored
        else:
            y, new = self.run(state.split_rows(x), mask, state.stored, training)
        scores = no_heads(x, ops.shape(x)[1]) if return_attention_scores else None
        return pack(state.join_rows(y), scores, None if cache is None else state.updated(new))

    def empty_cache(self, batch_size: int | Tensor, max_length: int | Tensor) -> Any:
        """Return the state before the first position, whose size the length does not change."""
        return self.initial_state(batch_size)

    @property
    def recurrence_dtype(self) -> str:
        """The dtype of what is added up over positions: float32 at least.

        Between calls the state has the compute dtype, as keys and values have: Keras casts what
        layers are called with.
        """
        is_half = self.compute_dtype in ("float16", "bfloat16")
        return "float32" if is_half else self.compute_dtype


def _as_state(cache: Any) -> RecurrentState:
    return cache if hasattr(cache, "split_rows") else PlainState(cache)
