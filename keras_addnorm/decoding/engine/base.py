"""The interface of an engine."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

from keras_addnorm.decoding.cache import Cache
from keras_addnorm.decoding.engine.beam_cache import BeamDecoder, CacheLayout, can_share_caches
from keras_addnorm.decoding.engine.loops import AnyState, LoopOf
from keras_addnorm.decoding.engine.views import Substitute, substitute
from keras_addnorm.decoding.engine.vocabulary import (
    ListedTokens,
    TransposedEmbedding,
    is_listed_projection,
    shortlist_projection,
    transposed_embedding,
)
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.stacks import TransformerEncoder

Tensor = Any
Grow = Callable[[Cache, "int | Tensor"], Cache]
"""`grow(cache, length)`: the cache, grown to more positions."""


@dataclasses.dataclass(frozen=True)
class Engine(abc.ABC):
    """Runs a search fast on one kind of backend, with the same results as any other engine.

    An engine is a hashable value: a compiled search is kept for each.

    Args:
        transposed_table: Returns the transposed table `(D, V)` of embeddings `(V, D)` if it
            exists already, else `None`.
    """

    transposed_table: Callable[[Any], Tensor | None] | None = None

    @property
    @abc.abstractmethod
    def layout(self) -> CacheLayout:
        """The layout of shared caches."""

    @property
    @abc.abstractmethod
    def embedding(self) -> type[TransposedEmbedding]:
        """The view of an embedding."""

    @abc.abstractmethod
    def substitute_for(self, layer: Any) -> Substitute | None:
        """Return what stands for a layer that every engine leaves alone; `None` for itself."""

    def view(
        self,
        decoder: Any,
        rows_per_sentence: int,
        rows_per_beam: int,
        listed: ListedTokens | None = None,
        share_caches: bool = True,
    ) -> Any:
        """Return a view of a decoder for a loop that decodes a token a step.

        Args:
            decoder: A `Decoder`, which does not change.
            rows_per_sentence: Number of rows that are decoded for each sentence.
            rows_per_beam: Number of adjacent rows that may continue each other.
            listed: The tokens of a shortlist: a vocabulary projection that the engine knows
                computes their logits alone. `None` for all.
            share_caches: Whether the hypotheses of a beam share their caches, if they can.

        Returns:
            A `Decoder` with the same variables.
        """

        def replace(name: str, layer: Any) -> Any:
            if isinstance(layer, TransformerEncoder):
                return layer
            if share_caches and can_share_caches(layer):
                return Substitute(
                    BeamDecoder,
                    {
                        "original": layer,
                        "layout": self.layout,
                        "rows_per_beam": rows_per_beam,
                        "rows_per_sentence": rows_per_sentence,
                    },
                )
            if type(layer) is PositionalEmbedding:
                table = self.transposed_table and self.transposed_table(layer.embeddings)
                return transposed_embedding(layer, listed, table, self.embedding)
            if listed is not None and is_listed_projection(name, layer, listed):
                return shortlist_projection(layer, listed)
            return self.substitute_for(layer)

        return substitute(decoder, replace)

    @abc.abstractmethod
    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Return the source ids `(B, S)`, their static sizes hidden if the engine changes them."""

    @abc.abstractmethod
    def first_length(self, longest: int, source_length: int | Tensor) -> int | Tensor:
        """Return the initial length of caches, from the maximum and the length of the sources."""

    @abc.abstractmethod
    def run_with_growing_cache(
        self,
        loop_of: LoopOf[AnyState],
        state: AnyState,
        inputs: SearchInputs,
        num_hypotheses: int,
        grow: Grow,
    ) -> Hypotheses:
        """Run a loop over positions until each sentence has ended, or all positions are decoded.

        Attention reads the whole cache at each step, used or not, and most outputs are far shorter
        than the maximum. So a search begins with a small cache, and grows it when it is full. A
        step also takes the same time for finished sentences. So a search drops finished sentences
        from the batch once they are many.

        Args:
            loop_of: Returns the loop for some inputs: all sentences, or some of them.
            state: The state before the first step, its cache of `first_length`.
            inputs: All sentences.
            num_hypotheses: Number of hypotheses of each sentence in the loop, M.
            grow: Grows the cache to more positions.

        Returns:
            The hypotheses of all sentences.
        """

    @abc.abstractmethod
    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Return `x` `(N, V)` with `value` in those of the columns that it has."""

    @abc.abstractmethod
    def argmax(self, x: Tensor) -> Tensor:
        """Return the place of the largest number of each row, the first of equals: `(N,)` int32."""

    @abc.abstractmethod
    def compile(
        self, function: Callable[..., Any], inputs: Any, decoder: Any
    ) -> Callable[..., Any]:
        """Return a function of tensors, compiled for inputs of one shape.

        Args:
            function: The function.
            inputs: Arrays of the shapes and dtypes that it will be called with.
            decoder: The object whose variables the function reads.

        Returns:
            The compiled function.
        """
