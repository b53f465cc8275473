"""The interface of residual schemes with several streams, or with a memory of depth."""

from __future__ import annotations

import abc
from collections.abc import Callable

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.plan import ResidualParts, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme, State, StreamState, unchanged

# Each is as large as the one of other schemes; papers have up to eight.
_MOST_STREAMS = 100


class StreamScheme(ResidualScheme):
    """A residual scheme that keeps more than one stream, or what earlier sublayers left.

    It acts over depth, never over time: each position by itself, so that cached decoding needs
    nothing more. A layer or an `AddNorm` that is used alone opens a state of its own and collapses
    it to one stream.

    A scheme of your own implements `open`, `read`, `write`, `collapse` and `plan`, and says whether
    a stack ends with a norm. It may say more: see the other methods of `ResidualScheme`.
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

    def enter(self, x: State) -> tuple[State, Callable[[State], State]]:
        """Return the state of what a layer is given, and what makes the layer's output of one."""
        return (x, unchanged) if isinstance(x, StreamState) else (self.open(x), self.collapse)

    def shift(self, state: StreamState, offset: Tensor) -> StreamState:
        """Return the state of a stream that has moved by an offset `(B, T, D)`, for reports."""
        return state._replace(streams=tuple(x + offset for x in state.streams))

    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads at the bottom of a stack."""
        return self.read(self.prepare(self.open(x), parts), parts)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return what a stack of this sublayer alone leaves, collapsed."""
        state = self.prepare(self.open(residual), parts)
        return self.collapse(self.write(state, branch, parts))


def require_state(state: StreamState, streams: int, memory: int, scheme: str) -> StreamState:
    """Return a state, or raise a `ValueError` that it is not of this place."""
    received = len(state.streams), len(state.memory)
    if received != (streams, memory):
        raise ArgumentError(
            f"The state is not one of {scheme} at this place of the stack.",
            f"{streams} streams and {memory} memories",
            "Layers of one stack, in their order, hand it over; another scheme or another place "
            "has another.",
            received=f"{received[0]} and {received[1]}",
        )
    return state


def require_streams(count: int, scheme: str) -> None:
    """Say that a scheme needs at least one stream, and not so many that they fill the memory."""
    if not is_whole(count, 1, _MOST_STREAMS):
        limit = f" and <= {_MOST_STREAMS}" if is_whole(count, 1) else ""
        raise ArgumentError(
            f"{scheme} needs streams.", f"an int, num_streams >= 1{limit}", value=count
        )
