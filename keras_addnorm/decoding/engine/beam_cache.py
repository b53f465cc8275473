"""Caches of a beam: shared keys and values, which reordering does not copy, and states of rows.

The n hypotheses of a beam have one cache with `S n` slots. Hypothesis j writes position s into slot
`s n + j`, and reads what its ancestors wrote, in whichever slots. A table of ancestors records the
slots and gives the attention mask; reordering hypotheses reorders that table alone. The memory has
one set of keys and values for each sentence, which all of its hypotheses read. A self-attention
that keeps a state of fixed size has one of each hypothesis, which reordering does copy.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding.tensor_ops import take, write_column
from keras_addnorm.layers.attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from keras_addnorm.layers.decoder_layer import TransformerDecoderLayer
from keras_addnorm.layers.kv_cache import KeyValueCache
from keras_addnorm.layers.pruned import PrunedCrossAttention, PrunedSelfAttention
from keras_addnorm.layers.recurrent_attention import RecurrentSelfAttention
from keras_addnorm.layers.shapes import first_size, pad_axis, size_of
from keras_addnorm.layers.stacks import TransformerDecoder

Tensor = Any


class TransposedKV(NamedTuple):
    """Keys and values in the layout that products read: no step of a loop transposes them.

    Args:
        keys: `(..., K, S)`; of a beam of n hypotheses `(..., K, S n)`.
        values: `(..., S, K)`; of a beam `(..., S n, K)`.
    """

    keys: Tensor
    values: Tensor

    def grow(self, num_slots: int | Tensor) -> TransposedKV:
        """Return the keys and values with more slots."""
        last = len(self.keys.shape) - 1
        return TransposedKV(
            pad_axis(self.keys, last, num_slots), pad_axis(self.values, last - 1, num_slots)
        )


@dataclasses.dataclass(frozen=True)
class EmptyCache:
    """The cache of a pruned attention beside those that are read.

    Keras refuses a nested argument that mixes tensors with other objects.

    Args:
        stored: The empty tensor.
    """

    stored: Tensor


class RowStates(NamedTuple):
    """The states of a recurrent self-attention.

    Args:
        stored: A structure of tensors whose first axis counts the hypotheses, N.
    """

    stored: Any


@dataclasses.dataclass(frozen=True)
class BeamStates:
    """A `RecurrentState` that reads the n hypotheses of a beam as n rows.

    Args:
        stored: The state of N rows.
        rows_per_beam: Number of hypotheses, n, which stand where other rows have positions.
    """

    stored: Any
    rows_per_beam: int

    def split_rows(self, x: Tensor) -> Tensor:
        """Return one position of each hypothesis: `(N / n, n, D)` -> `(N, 1, D)`."""
        return ops.reshape(x, (-1, 1, x.shape[-1]))

    def join_rows(self, y: Tensor) -> Tensor:
        """Return the hypotheses of each beam side by side: `(N, 1, D)` -> `(N / n, n, D)`."""
        return ops.reshape(y, (-1, self.rows_per_beam, y.shape[-1]))

    def updated(self, stored: Any) -> BeamStates:
        """Return this with the state after the step."""
        return dataclasses.replace(self, stored=RowStates(stored))


class CacheLayout(Protocol):
    """A class of `KeyValueCache` through which an engine reads and writes `TransposedKV`."""

    @staticmethod
    def empty(shape: tuple[int | Tensor, int | Tensor, int, int], dtype: Any) -> TransposedKV:
        """Return an empty cache for keys `(B, S, G, K)`."""

    @staticmethod
    def transpose(keys: Tensor, values: Tensor, dtype: Any) -> TransposedKV:
        """Return keys and values `(B, S, G, K)` in this layout."""

    @staticmethod
    def write_state(state: Tensor, new: Tensor) -> Tensor:
        """Return what a loop keeps of a recurrent state `(N, D)` after a step."""

    def __call__(
        self,
        stored: TransposedKV,
        num_groups: int,
        slots: Tensor | None = None,
        rows_per_beam: int = 1,
        is_one_beam: bool = False,
    ) -> KeyValueCache:
        """Return a `KeyValueCache` that refers to stored keys and values."""


class BeamCache(NamedTuple):
    """The caches of a `BeamDecoder` for N rows, n a beam, and B sentences.

    Args:
        ancestors: `(N, S)` int32: which hypothesis of its beam, 0 to n - 1, wrote each position
            that a row reads; `()` with n = 1, and where no layer has keys of its own positions.
        hypotheses: `(N,)` int32: the place of each row in its beam; `()` where `ancestors` is.
        own: For each layer, the `TransposedKV` of its self-attention, or the `RowStates` of a
            recurrent one; a pruned self-attention keeps its own empty cache.
        memory: For each layer with cross-attention, a `TransposedKV` of B sentences.
    """

    ancestors: Tensor | tuple[()]
    hypotheses: Tensor | tuple[()]
    own: list[Any]
    memory: list[Any]

    def reorder_rows(self, rows: Tensor) -> BeamCache:
        """Return the cache of the hypotheses that continue `rows`, `(N,)`."""
        own = [
            keras.tree.map_structure(lambda x: take(x, rows), entry)
            if isinstance(entry, RowStates)
            else entry
            for entry in self.own
        ]
        ancestors = self.ancestors
        if ops.is_tensor(ancestors):
            ancestors = take(ancestors, rows)
        return self._replace(ancestors=ancestors, own=own)

    def grow(self, length: int | Tensor, rows_per_beam: int) -> BeamCache:
        """Return the cache grown to more positions."""
        ancestors = self.ancestors
        if ops.is_tensor(ancestors):
            ancestors = pad_axis(ancestors, 1, length)
        own = [
            entry.grow(rows_per_beam * length) if isinstance(entry, TransposedKV) else entry
            for entry in self.own
        ]
        return self._replace(ancestors=ancestors, own=own)


def is_ancestor(ancestors: Tensor) -> Tensor:
    """Return the attention mask of a shared cache: `(B, n, S)` -> booleans `(B, n, S n)`."""
    count, length = ancestors.shape[1], size_of(ancestors, 2)
    is_writer = ops.equal(ops.expand_dims(ancestors, -1), ops.arange(count, dtype="int32"))
    return ops.reshape(is_writer, (first_size(ancestors, length), count, length * count))


def can_share_caches(layer: Any) -> bool:
    """Return whether a layer is a decoder stack whose attentions are all of this package."""
    return type(layer) is TransformerDecoder and all(
        type(block) is TransformerDecoderLayer
        and (
            type(block.self_attention) in (MultiHeadSelfAttention, PrunedSelfAttention)
            or isinstance(block.self_attention, RecurrentSelfAttention)
        )
        and type(block.cross_attention)
        in (MultiHeadCrossAttention, PrunedCrossAttention, type(None))
        for block in layer.layers
    )


def is_shared(cache: Any) -> bool:
    """Return whether a decoder's cache consists of `BeamCache`s alone."""
    found = []

    def leave_out(node: Any) -> Any:
        if isinstance(node, BeamCache):
            found.append(node)
            return ()
        return None

    others = keras.tree.traverse(leave_out, cache)
    return bool(found) and not keras.tree.flatten(others)


class BeamDecoder(TransformerDecoder):
    """A view of a `TransformerDecoder` whose hypotheses share their caches.

    It is made by `substitute`, with these attributes besides the layer's own: the `original`;
    `layout`, a `CacheLayout`; `rows_per_beam`, n; and `rows_per_sentence`, a multiple of it.
    """

    original: TransformerDecoder
    layout: CacheLayout
    rows_per_beam: int
    rows_per_sentence: int

    def initial_cache(
        self, batch_size: int | Tensor, max_length: int | Tensor, memory: Tensor | None = None
    ) -> Any:
        """Return the `BeamCache` before the first step.

        Args:
            batch_size: Number of sentences, B, whatever number of rows each of them has.
            max_length: Number of positions, S.
            memory: `(B, S, D_memory)`; `None` for a decoder-only stack.

        Returns:
            The cache.
        """
        count = self.rows_per_beam
        num_beams = batch_size * (self.rows_per_sentence // count)
        ancestors: Tensor | tuple[()] = ()
        hypotheses: Tensor | tuple[()] = ()
        if count > 1 and any(hasattr(b.self_attention, "head_width") for b in self.layers):
            ancestors = ops.zeros((num_beams * count, max_length), dtype="int32")
            hypotheses = ops.tile(ops.arange(count, dtype="int32"), (num_beams,))
        own = [self._empty(block.self_attention, num_beams, max_length) for block in self.layers]
        memories = [
            self._project(block.cross_attention, memory)
            for block in self.original.layers
            if block.cross_attention is not None
        ]
        return BeamCache(ancestors, hypotheses, own, memories)

    def call(  # type: ignore[override]  # `decode_step` alone calls it
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        cache: Any,
        cache_update_index: int | Tensor,
        padding_mask: None = None,
        attention_mask: None = None,
        **options: Any,
    ) -> Any:
        """Decode one position of each row: `x` is `(N, 1, D)`, `cache` a `BeamCache`.

        `memory` has no effect; masks of the decoder's own positions are refused. Attention weights
        are those of the hypotheses of a beam, `(N / n, H, n, S n)` and `(N / n, H, n, S)`.
        """
        if padding_mask is not None or attention_mask is not None:
            raise ArgumentError(
                "The hypotheses of a beam share the caches of a TransformerDecoder, whose masks "
                "would speak of each by itself.",
                "no `padding_mask` and no `attention_mask` in `decode_step`",
                "Leave it out, or use a subclass of TransformerDecoder: its hypotheses have "
                "caches of their own.",
                received="one",
            )
        count, ancestors, mask, h = self.rows_per_beam, cache.ancestors, None, x
        if ops.is_tensor(ancestors):
            ancestors = write_column(ancestors, cache_update_index, cache.hypotheses)
            mask = is_ancestor(ops.reshape(ancestors, (-1, count, size_of(ancestors, 1))))
        if count > 1:
            # The hypotheses of a beam are the queries of one row: (N, 1, D) -> (N / n, n, D)
            h = ops.reshape(x, (-1, count, x.shape[-1]))
        outputs = super().call(
            h,
            attention_mask=mask,
            cache=self._as_key_values(cache),
            cache_update_index=cache_update_index,
            **options,
        )
        y, *scores, layers = outputs
        if count > 1:
            y = ops.reshape(y, (-1, 1, y.shape[-1]))
        own = [
            self._written(before, layer["self_attention"].stored)
            for before, layer in zip(cache.own, layers, strict=True)
        ]
        return (y, *scores, cache._replace(ancestors=ancestors, own=own))

    def _written(self, before: Any, after: Any) -> Any:
        if isinstance(after, RowStates):
            return keras.tree.map_structure(self.layout.write_state, before, after)
        return after

    def _empty(self, attention: Any, num_beams: int | Tensor, max_length: int | Tensor) -> Any:
        count = self.rows_per_beam
        if isinstance(attention, RecurrentSelfAttention):
            return RowStates(attention.initial_state(num_beams * count))
        if isinstance(attention, PrunedSelfAttention):
            return attention.empty_cache(num_beams, 0)
        groups, width = attention.num_key_value_heads, attention.head_width
        shape = (num_beams, count * max_length, groups, width)
        return self.layout.empty(shape, attention.compute_dtype)

    def _project(self, attention: Any, memory: Tensor) -> Any:
        if isinstance(attention, PrunedCrossAttention):
            return attention.project_memory(memory)
        keys, values = attention.project_keys_values(memory)
        return self.layout.transpose(keys, values, attention.compute_dtype)

    def _as_key_values(self, cache: BeamCache) -> list[dict[str, Any]]:
        """Return the cache of each layer as attention reads it."""
        count = self.rows_per_beam
        # All layers have the same slots: one of them asks for its size.
        stored = next((entry for entry in cache.own if isinstance(entry, TransposedKV)), None)
        slots = None
        if stored is not None:
            slots = ops.arange(size_of(stored.keys, -1), dtype="int32") // count
        memories, layers = iter(cache.memory), []
        is_one_beam = count == self.rows_per_sentence
        for block, own in zip(self.layers, cache.own, strict=True):
            layer: dict[str, Any] = {"self_attention": EmptyCache(own)}
            if isinstance(own, RowStates):
                layer["self_attention"] = BeamStates(own.stored, count)
            elif isinstance(own, TransposedKV):
                groups = block.self_attention.num_key_value_heads
                layer["self_attention"] = self.layout(own, groups, slots, count)
            if block.cross_attention is not None:
                memory = next(memories)
                layer["cross_attention"] = EmptyCache(memory)
                if isinstance(memory, TransposedKV):
                    groups = block.cross_attention.num_key_value_heads
                    layer["cross_attention"] = self.layout(memory, groups, is_one_beam=is_one_beam)
            layers.append(layer)
        return layers
