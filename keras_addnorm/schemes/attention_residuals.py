"""Attention residuals: a sublayer reads a softmax-weighted mean of all outputs before it."""

import dataclasses
import math
from typing import NamedTuple

from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import row_means, row_sums
from keras_addnorm.schemes.mixing import precise, shares, total, weigh
from keras_addnorm.schemes.plan import (
    LearnedArray,
    ResidualParts,
    ResidualPlan,
    StackPosition,
    Tensor,
    require_position,
)
from keras_addnorm.schemes.scheme import StreamState
from keras_addnorm.schemes.streams import StreamScheme, require_state

_EPSILON = 1e-6
_BLOCKS = 8
"""As many recover most of what a source for each sublayer does, the paper says."""


class _Place(NamedTuple):
    num_blocks: int
    """How many blocks are finished, the embedding counted."""

    has_partial: bool
    """Whether sublayers before this one have begun a block."""

    ends_block: bool


@dataclasses.dataclass(frozen=True)
class AttentionResiduals(StreamScheme):
    """`h = sum_i a_i v_i` with `a = softmax_i(w . RMS(v_i))`; then `F(LN(h))` is one more v.

    The sources v are the embedding and the sublayers' outputs. Nothing is added: each sublayer
    weighs all that was before by a query w of its own, and so does the top of the stack, before the
    final norm. In blocks, the outputs of `block_size` sublayers are added to one source.

    Queries start at zero, so that `h` is the mean of the sources: Pre-LN's stream but for a factor,
    which the norm that reads it takes out again. With a norm that keeps factors (`dynamic_tanh`,
    `none`) it is another model than Pre-LN. The first sublayer, which has one source, has no query.

    Args:
        block_size: Sublayers in a block; 1 for a source of each, `None` for an eighth of the
            stack's, rounded up.

    Raises:
        ValueError: If a block has no sublayer, or on use without a position.

    Reference:
        Kimi Team, "Attention Residuals", 2026 (arXiv:2603.15031), sections 3 and 5. The gain of the
        paper's norm of the sources is left out: it only multiplies w.
    """

    block_size: int | None = None
    needs_final_norm = True
    needs_scale_invariant_norm = True

    def __post_init__(self) -> None:
        size = self.block_size
        if size is not None and not is_whole(size, 1):
            raise ArgumentError(
                "A block of attention residuals needs sublayers.",
                "an int, `block_size` >= 1, or None",
                value=size,
            )

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm before the sublayer, and a query if there is more than one source."""
        position = require_position(position, "Attention residuals")
        index, size = position.sublayer_index, self._size(position)
        return ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(_QUERY,) if index else (),
            settings=_Place(1 + index // size, index % size > 0, (index + 1) % size == 0),
        )

    def end_plan(self, position: StackPosition) -> ResidualPlan:
        """Ask for the query of the stack's end."""
        return ResidualPlan(arrays=(_QUERY,))

    def open(self, x: Tensor) -> StreamState:
        """Return the embedding as the first source."""
        return StreamState((), (x,))

    def read(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(sum_i a_i v_i)`."""
        sources = self._sources(state, parts)
        if not parts.plan.arrays:
            return parts.pre_norm(sources[0])
        return parts.pre_norm(weigh(_attention(sources, parts.query), sources))

    def write(self, state: StreamState, branch: Tensor, parts: ResidualParts) -> StreamState:
        """Return the sources with `f` among them, or in the block that is begun."""
        self._sources(state, parts)
        block = total([*state.streams, branch])
        if parts.plan.settings.ends_block:
            return StreamState((), (*state.memory, block))
        return StreamState((block,), state.memory)

    def collapse(self, state: StreamState) -> Tensor:
        """Return the sum of all sources: the stream that Pre-LN would have."""
        return total([*state.memory, *state.streams])

    def close(self, state: StreamState, parts: ResidualParts) -> Tensor:
        """Return `LN(sum_i a_i v_i)` over all sources."""
        sources = (*state.memory, *state.streams)
        return parts.final_norm(weigh(_attention(sources, parts.query), sources))

    def coefficients(self, state: StreamState, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the weights over the sources, oldest first."""
        sources = self._sources(state, parts)
        if not parts.plan.arrays:
            return {}
        return {"depth": _attention(sources, parts.query)}

    def shift(self, state: StreamState, offset: Tensor) -> StreamState:
        """Return the state whose newest source, and so their sum, has moved."""
        if state.streams:
            return super().shift(state, offset)
        return state._replace(memory=(*state.memory[:-1], state.memory[-1] + offset))

    def _size(self, position: StackPosition) -> int:
        return self.block_size or math.ceil(position.num_sublayers / _BLOCKS)

    def _sources(self, state: StreamState, parts: ResidualParts) -> tuple[Tensor, ...]:
        """Return finished blocks and the one begun. A lone layer has those since it began."""
        place = parts.plan.settings
        num_blocks = min(place.num_blocks, len(state.memory))
        num_partial = min(int(place.has_partial), len(state.streams))
        require_state(state, num_partial, max(1, num_blocks), "attention residuals")
        return (*state.memory, *state.streams)


_QUERY = LearnedArray("query", ("D",), 0.0)


def _attention(sources: tuple[Tensor, ...], query: Tensor) -> Tensor:
    """Return the weights of the sources, k of `(..., D)` -> `(..., k)`."""
    query = precise(query)
    logits = []
    for source in map(precise, sources):
        scale = ops.rsqrt(row_means(ops.square(source)) + _EPSILON)
        logits.append(row_sums(source, query) * scale)
    return shares(ops.concatenate(logits, axis=-1))
