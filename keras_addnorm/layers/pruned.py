"""Null objects in the place of pruned sublayers: `F(x) = 0`, without weights or caches.

They are called like the sublayers that they replace, so that no layer has to ask whether a sublayer
is there.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.suggestions import near_names
from keras_addnorm.layers.shapes import no_heads, pack

Tensor = Any


class PrunedSublayer(keras.layers.Layer, abc.ABC):
    """The base class of the null objects."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    @abc.abstractmethod
    def call(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return zeros."""


@keras.saving.register_keras_serializable(package="keras_addnorm")
class PrunedFeedForward(PrunedSublayer):
    """Stands for a `FeedForward`: `F(x) = 0`."""

    def call(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return zeros of the shape of `x`."""
        return ops.zeros_like(x)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class PrunedSelfAttention(PrunedSublayer):
    """Stands for a `MultiHeadSelfAttention`: `F(x) = 0`, and no heads."""

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        cache: Tensor | None = None,
        cache_update_index: int | Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Return zeros; if asked, weights `(B, 0, T, T)` of no heads; and the cache, unchanged."""
        length = ops.shape(x)[1]
        scores = no_heads(x, length) if return_attention_scores else None
        return pack(ops.zeros_like(x), scores, cache)

    def empty_cache(self, batch_size: int | Tensor, max_length: int) -> Tensor:
        """Return an empty cache `(B, 0)`, whose rows a search can reorder."""
        return ops.zeros((batch_size, 0), dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_addnorm")
class PrunedCrossAttention(PrunedSublayer):
    """Stands for a `MultiHeadCrossAttention`: `F(x) = 0`, and no heads."""

    def call(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Return zeros; if asked, weights `(B, 0, T, S)` of no heads (S = 0 without a memory)."""
        source_length = 0 if memory is None else ops.shape(memory)[1]
        scores = no_heads(x, source_length) if return_attention_scores else None
        return pack(ops.zeros_like(x), scores)

    def project_memory(self, memory: Tensor) -> Tensor:
        """Return the empty cache of a memory, `(B, 0)`."""
        return ops.zeros((ops.shape(memory)[0], 0), dtype=self.compute_dtype)


PRUNED: dict[str, type[PrunedSublayer]] = {
    "self_attention": PrunedSelfAttention,
    "cross_attention": PrunedCrossAttention,
    "feed_forward": PrunedFeedForward,
}
"""What to put in the place of each sublayer."""


def require_sublayers(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the known sublayers that are named, in the order in which they run."""
    known = tuple(known)
    if isinstance(names, str):
        names = (names,)
    names = tuple(names) if isinstance(names, Iterable) else (names,)
    for name in names:
        if name not in known:
            near = " or ".join(map(repr, near_names(str(name), known)))
            raise ArgumentError(
                f"There is no sublayer {name!r} to prune.",
                f"names among {', '.join(known)}",
                near and f"Did you mean {near}?",
                value=list(names),
            )
    return tuple(name for name in known if name in names)


def within(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Return the names under a place, without it: `("0/self_attention",)` of `"encoder"`."""
    return tuple(name.removeprefix(f"{place}/") for name in names if name.startswith(f"{place}/"))
