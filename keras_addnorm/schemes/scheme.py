"""The interface of residual schemes."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.steps import Step, steps_of_plan


class StreamState(NamedTuple):
    """What travels from sublayer to sublayer, through one stack: a tree of tensors.

    Attributes:
        streams: The streams, `(B, T, D)` each (or parts of one, `(B, T, D/m)`).
        memory: What the scheme keeps of sublayers before, oldest first, `(B, T, D)` each.
    """

    streams: tuple[Tensor, ...] = ()
    memory: tuple[Tensor, ...] = ()


State = Tensor | StreamState
"""What a stack hands from sublayer to sublayer: a stream, or the state of several."""


@dataclasses.dataclass(frozen=True)
class Folding:
    """A scheme without its gains, and into which weights they go; see `models.fold`.

    Args:
        scheme: What computes the same without gains.
        branch_gain: Factor for the kernel and bias of the sublayer's output projection, a number
            or one a channel.
        pre_norm_gain: Factor for the gain and offset of `pre_norm`.
        post_norm_gain: Factor by which the input of `post_norm` has become smaller. The norm has
            to make up for it: most do with a smaller epsilon, that of the plan of `scheme` if it
            has this `post_norm_gain`, else that of all norms of the side.
    """

    scheme: ResidualScheme
    branch_gain: Any = 1.0
    pre_norm_gain: float = 1.0
    post_norm_gain: float = 1.0


class ResidualScheme(abc.ABC):
    """How the output of a sublayer `F` is added to the residual stream `x`.

    `f = F(branch_input(x))`, then `y = merge(x, f)`. A scheme is a frozen dataclass: it holds
    plain numbers, owns no weights, and says in `plan` which parts `AddNorm` has to make for it.

    A scheme of your own implements `plan` and `merge`, says whether a stack ends with a norm
    (`needs_final_norm`) and is registered with `keras_addnorm.schemes.register` so that models
    that use it can be saved. It has a `branch_input` of its own where the sublayer reads something
    else than the plan says.

    Layers run every scheme by one protocol. A stack opens a state, each of its sublayers reads
    from it and writes to it, and the stack closes it:

    ```python
    state = scheme.open(x)
    for sublayer in stack:
        state = scheme.prepare(state, parts)
        state = scheme.write(state, sublayer(scheme.read(state, parts)), parts)
    y = scheme.close(state, parts)
    ```

    One stream is its own state: `read` and `write` are `branch_input` and `merge`, nothing is
    prepared, and only the final norm closes. See `StreamScheme` for several streams.
    """

    @property
    @abc.abstractmethod
    def needs_final_norm(self) -> bool:
        """Whether the stack has to end with a norm, because the stream leaves its last layer raw.

        A class attribute will do where it does not depend on the scheme's fields.
        """

    @property
    def idea(self) -> str:
        """The scheme in one sentence, for the page that computes its `steps`; `""` for none.

        A class attribute will do.
        """
        return ""

    @property
    def needs_embedding_norm(self) -> bool:
        """Whether the stack has to begin with a norm of what it is given (residual scalars)."""
        return False

    @property
    def needs_scale_invariant_norm(self) -> bool:
        """Whether norms have to undo factors on the stream (attention residuals)."""
        return False

    @abc.abstractmethod
    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Say which parts are needed at this place of the stack."""

    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads: the stream, or its `pre_norm`, times the `input_gain`."""
        plan = parts.plan
        h = parts.pre_norm(x) if "pre_norm" in plan.norm_slots else x
        return h if plan.input_gain == 1.0 else plan.input_gain * h

    @abc.abstractmethod
    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return the residual stream with the sublayer's output merged into it."""

    def open(self, x: Tensor) -> State:
        """Return the state at the bottom of a stack, of the embeddings `(B, T, D)`."""
        return x

    def prepare(self, state: State, parts: ResidualParts) -> State:
        """Return the state as `read` and `write` are to find it.

        What both of them need of the state is computed here, once a sublayer; and a scheme whose
        reading changes the state changes it here (SiameseNorm).

        Args:
            state: What the sublayer before has written, or `open` has made.
            parts: The parts of the plan.

        Returns:
            The state itself, unless the scheme says otherwise.
        """
        return state

    def read(self, state: State, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads, `(B, T, D)`."""
        return self.branch_input(state, parts)

    def write(self, state: State, branch: Tensor, parts: ResidualParts) -> State:
        """Return the state with the sublayer's output in it."""
        return self.merge(state, branch, parts)

    def collapse(self, state: State) -> Tensor:
        """Return one stream `(B, T, D)`, without weights: for a lone layer, and for reports."""
        return state

    def close(self, state: State, parts: ResidualParts) -> Tensor:
        """Return what leaves the stack, `(B, T, D)`: one stream, normalised if need be.

        Args:
            state: The state after the last sublayer.
            parts: The arrays and norms of `end_plan`, and `final_norm` if the scheme needs one.

        Returns:
            The output of the stack.
        """
        x = self.collapse(state)
        return parts.final_norm(x) if self.needs_final_norm else x

    def end_plan(self, position: StackPosition) -> ResidualPlan:
        """Say which arrays and norms `close` needs.

        Args:
            position: That of the stack's last sublayer.

        Returns:
            A plan of `arrays` and `extra_norms` only; of none, unless the scheme says otherwise.
        """
        return ResidualPlan()

    def enter(self, x: State) -> tuple[State, Callable[[State], State]]:
        """Return the state of what a layer is given, and what makes the layer's output of a state.

        A stream is opened, and collapsed at the end. A state is handed on to the next layer.

        Args:
            x: A stream `(B, T, D)`, or a state of this scheme.

        Returns:
            The state, and a function of the state after the layer's last sublayer.

        Raises:
            ValueError: If a scheme of one stream is given the state of several.
        """
        if isinstance(x, StreamState):
            raise ArgumentError(
                "An Add & Norm or a layer was given a state of several streams, and its scheme "
                "has one stream.",
                "a tensor",
                "All layers of a stack need the same scheme.",
                received=f"{len(x.streams)} streams and {len(x.memory)} memories, with {self!r}",
            )
        return x, unchanged

    def coefficients(self, state: State, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the numbers by which a sublayer reads, mixes and writes, for reports.

        Args:
            state: The state before the sublayer.
            parts: The parts of the plan.

        Returns:
            Among others `"read"` and `"write"`, `(..., n)`; `"mixing"`, `(..., n, n)`, with a row
            for each stream that is made; and `"depth"`, `(..., k)`, the weights over k sources.
        """
        return {}

    def shift(self, state: State, offset: Tensor) -> State:
        """Return the state of a stream that has moved by an offset `(B, T, D)`, for reports."""
        return state + offset

    def reads_stream(self, plan: ResidualPlan) -> bool:
        """Tell whether the sublayer reads the stream itself, as it does in Post-LN.

        Then `AddNorm` takes its output alone; elsewhere it needs a call of `branch_input` first.
        `read` itself is asked, with something that nothing can be computed with.

        Args:
            plan: The plan at one place.

        Returns:
            Whether `read` hands on what was opened.
        """
        stream, parts = object(), ResidualParts(plan)
        try:
            return self.read(self.prepare(self.open(stream), parts), parts) is stream
        except Exception:
            return False

    def steps(self, plan: ResidualPlan) -> tuple[Step, ...]:
        """Return what the scheme computes around a sublayer, for a scheme with an `idea`.

        Args:
            plan: The plan at one place.

        Returns:
            The steps from the stream `"x"` to the next one, `"y"`; those that the plan says,
            unless the scheme computes something else.
        """
        return steps_of_plan(plan)

    def embedding_gain(self, position: StackPosition) -> float:
        """Return the factor on the initial token embeddings of one side of a model (T-Fixup).

        Args:
            position: A place on that side; with shared embeddings, the encoder's.

        Returns:
            1, unless the scheme wants others.
        """
        return 1.0

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Return the scheme without its gains, and the factors that the weights take over.

        Args:
            plan: The plan at one place. The scheme that remains has to be the same at all places.
            branch_scale: The learned factor at that place, `None` where there is none.

        Returns:
            The scheme itself and no gains, unless it has any.
        """
        return Folding(self)

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return the scheme for a place whose sublayer is pruned, `F(x) = 0`.

        Any scheme that merges zeros as this one does is right; one that asks for fewer parts is
        better.

        Args:
            position: The place.

        Returns:
            The scheme itself, unless it knows a smaller one.
        """
        return self


def unchanged(state: State) -> State:
    """Return the state."""
    return state
