"""What a search asks of an engine."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from keras_addnorm.decoding.cache import Cache
from keras_addnorm.decoding.engine.loops import AnyState, LoopOf
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs

Tensor = Any
Grow = Callable[[Cache, "int | Tensor"], Cache]
"""`grow(cache, length)`: the cache with room for more positions."""


class Engine(abc.ABC):
    """Makes a search fast on one kind of machine, and changes nothing of what it finds.

    An engine is a plain value: a compiled search is kept for each.
    """

    @abc.abstractmethod
    def view(
        self,
        decoder: Any,
        rows_per_sentence: int,
        rows_per_beam: int,
        tokens: Tensor | None = None,
        share_caches: bool = True,
    ) -> Any:
        """Return a view of a decoder for a loop that decodes a token a step.

        Args:
            decoder: A `Decoder`. It stays as it is.
            rows_per_sentence: Number of rows that are decoded for each sentence.
            rows_per_beam: Number of them, side by side, that may go on from one another.
            tokens: `(M,)`, the tokens of a shortlist: a vocabulary projection that the engine knows
                computes their logits alone. `None` for all.
            share_caches: Whether the hypotheses of a beam share their caches, if they can.

        Returns:
            A `Decoder` with the same variables.
        """

    @abc.abstractmethod
    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Return source ids of the sizes that the engine wants to see in a trace.

        Args:
            source_ids: `(B, S)`.

        Returns:
            The same numbers.
        """

    @abc.abstractmethod
    def first_length(self, longest: int, source_length: int | Tensor) -> int | Tensor:
        """Return the number of positions that caches have room for at first.

        Args:
            longest: Number of positions at most.
            source_length: Number of the sources' positions, padding included.

        Returns:
            The length.
        """

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

        Attention reads all of a cache at each step, whether something has been written there or
        not, and most outputs are far shorter than the longest one allowed. So a search begins with
        a small cache, and goes on with a larger one if it has to. And a step takes as long for
        sentences that have ended as for others. So they are left behind when they are many.

        Args:
            loop_of: Returns the loop for some inputs: all sentences, or some of them.
            state: The state before the first step, its cache of `first_length`.
            inputs: All sentences.
            num_hypotheses: How many hypotheses the loop has of each sentence, M.
            grow: Makes room for more positions.

        Returns:
            What was found for all of them.
        """

    @abc.abstractmethod
    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Return `x` with one value in some columns.

        Args:
            x: `(N, V)`.
            columns: Which ones; those outside of `x` do not count.
            value: The value.

        Returns:
            `(N, V)`.
        """

    @abc.abstractmethod
    def argmax(self, x: Tensor) -> Tensor:
        """Return where the largest number of each row stands, the first of equals.

        Args:
            x: `(N, V)`.

        Returns:
            `(N,)` int32.
        """

    @abc.abstractmethod
    def compile(
        self, function: Callable[..., Any], inputs: Any, decoder: Any
    ) -> Callable[..., Any]:
        """Return a function of tensors, compiled for inputs of one shape.

        Args:
            function: The function.
            inputs: Arrays of the shapes and dtypes that it will be called with.
            decoder: The object whose variables it reads.

        Returns:
            A function of such tensors.
        """
