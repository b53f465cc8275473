"""The interface of residual schemes with several streams, or with a memory of depth."""

from __future__ import annotations

import abc
from typing import NamedTuple

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.schemes.scheme import (
    ResidualParts,
    ResidualPlan,
    ResidualScheme,
    StackPosition,
    Tensor,
)


class StreamState(NamedTuple):
    """What travels from sublayer to sublayer, through one stack: a tree of tensors.

    Attributes:
        streams: The streams, `(B, T, D)` each (or parts of one, `(B, T, D/m)`).
        memory: What the scheme keeps of sublayers before, oldest first, `(B, T, D)` each.
    """

    streams: tuple[Tensor, ...] = ()
    memory: tuple[Tensor, ...] = ()


class StreamScheme(ResidualScheme):
    """A residual scheme that keeps more than one stream, or what earlier sublayers left.

    The stack opens a state, each of its sublayers reads from it and writes to it, and the stack
    closes it:

    ```python
    state = scheme.open(x)
    for sublayer in stack:
        state = scheme.write(state, sublayer(scheme.read(state, parts)), parts)
    y = scheme.close(state, parts)
    ```

    It acts over depth, never over time: each position by itself, so that cached decoding needs
    nothing more. A layer or an `AddNorm` that is used alone opens a state of its own and collapses
    it to one stream.

    A scheme of your own implements `open`, `read`, `write`, `collapse` and `plan`, and says whether
    a stack ends with a norm. It may say more: see the other methods.
    """

    @abc.abstractmethod
    def open(self, x: Tensor) -> StreamState:
        """Return the state at the bottom of a stack, of the embeddings `(B, T, D)`."""

    @abc.abstractmethod
    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads, `(B, T, D)`."""

    @abc.abstractmethod
    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return the state with the sublayer's output in it."""

    @abc.abstractmethod
    def collapse(self, state: StreamState) -> Tensor:
        """Return one stream `(B, T, D)`, without weights: for a lone layer, and for reports."""

    def close(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return what leaves the stack, `(B, T, D)`: one stream, normalised if need be.

        Args:
            state: The state after the last sublayer.
            parts: The arrays of `end_plan`, and `final_norm` if the scheme needs one.

        Returns:
            The output of the stack.
        """
        x = self.collapse(state)
        return parts.final_norm(x) if self.needs_final_norm else x

    def end_plan(self, position: StackPosition) -> ResidualPlan:
        """Say which arrays `close` needs.

        Args:
            position: That of the stack's last sublayer.

        Returns:
            A plan of arrays only; of none, unless the scheme says otherwise.
        """
        return ResidualPlan()

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the numbers by which a sublayer reads, mixes and writes, for reports.

        Args:
            state: The state before the sublayer.
            parts: The parts of the plan.

        Returns:
            Among others `"read"` and `"write"`, `(..., n)`; `"mixing"`, `(..., n, n)`, with a row
            for each stream that is made; and `"depth"`, `(..., k)`, the weights over k sources.
        """
        return {}

    def shift(self, state: StreamState, offset: Tensor) -> StreamState:
        """Return the state of a stream that has moved by an offset `(B, T, D)`, for reports."""
        return state._replace(streams=tuple(x + offset for x in state.streams))

    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads at the bottom of a stack."""
        return self.read(self.open(x), parts)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return what a stack of this sublayer alone leaves, collapsed."""
        return self.collapse(self.write(self.open(residual), branch, parts))


def require_state(state: StreamState, streams: int, memory: int, scheme: str) -> StreamState:
    """Return a state, or say that it is not of this place.

    Args:
        state: What the sublayer was given.
        streams: The number of streams that belong here.
        memory: The number of memories.
        scheme: The scheme's name.

    Returns:
        The state.

    Raises:
        ValueError: If there are others.
    """
    received = len(state.streams), len(state.memory)
    if received != (streams, memory):
        raise ValueError(
            f"The state is not one of {scheme} at this place of the stack. Expected {streams} "
            f"streams and {memory} memories. Received: {received[0]} and {received[1]}. Layers of "
            "one stack, in their order, hand it over; another scheme or another place has another."
        )
    return state


def require_streams(count: int, scheme: str) -> None:
    """Say that a scheme needs at least one stream."""
    if not is_whole(count, 1):
        raise ValueError(
            f"{scheme} needs streams. Expected an int, num_streams >= 1. Received: {count!r}"
        )
