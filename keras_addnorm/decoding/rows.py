"""The loop of the strategies in which each row goes its own way: greedy search and sampling."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.compilation import select
from keras_addnorm.decoding.stages import Loop, Outcome, all_of_each, run_in_stages
from keras_addnorm.decoding.steps import (
    Cache,
    Found,
    Step,
    first_bad_step,
    is_possible,
    write_column,
)
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.task import Task

Tensor = Any
Choose = Callable[[Tensor, Tensor], Tensor]
"""`choose(log_p (N, V), index) -> tokens (N,)`, int32."""


class _State(NamedTuple):
    """What the loop carries. N rows."""

    index: Tensor
    tokens: Tensor  # (N,), read at the next step
    sequences: Tensor  # (N, T)
    sums: Tensor  # (N,), log-probabilities
    bonus: Tensor  # (N,), what is added to scores; () if nothing is
    is_done: Tensor  # (N,)
    bad_step: Tensor
    cache: Cache


def search_rows(
    strategy: Strategy, choose_of: Callable[[Task], Choose], step: Step, cache: Cache, task: Task
) -> Found:
    """Decode every row until it ends, whatever the others do.

    A row that may choose nothing is given up.

    Args:
        strategy: Says how many rows a sentence has and how they are scored.
        choose_of: Returns what chooses the next tokens of a task's rows.
        step: The model.
        cache: Its state before the first step.
        task: What to decode.

    Returns:
        All rows, the best of each sentence first.
    """
    ids, count = task.ids, strategy.rows_per_sentence
    num_rows = task.batch_size * count
    state = _State(
        index=ops.convert_to_tensor(0, dtype="int32"),
        tokens=ops.full((num_rows,), ids.start_id, dtype="int32"),
        sequences=ops.full((num_rows, task.max_length), ids.pad_id, dtype="int32"),
        sums=ops.zeros((num_rows,), dtype="float32"),
        bonus=ops.zeros((num_rows,), dtype="float32") if task.bonus else (),
        is_done=ops.repeat(task.is_empty, count, axis=0),
        bad_step=ops.convert_to_tensor(task.max_length, dtype="int32"),
        cache=cache,
    )

    loop_of = functools.partial(_loop, strategy, choose_of, step)
    return task.result(strategy.num_return, *run_in_stages(loop_of, state, task, count))


def _loop(
    strategy: Strategy, choose_of: Callable[[Task], Choose], step: Step, task: Task
) -> Loop[_State]:
    ids, count = task.ids, strategy.rows_per_sentence
    read, choose = task.reader(count), choose_of(task)

    def is_running(state: _State) -> Tensor:
        return ops.logical_not(all_of_each(state.is_done, count))

    def advance(state: _State) -> _State:
        logits, cache = step(state.tokens, state.index, state.cache)
        log_p, is_bad = read(logits, state.sequences, state.index)
        chosen = choose(log_p, state.index)
        gain = select(log_p, ops.expand_dims(chosen, -1))[:, 0]
        tokens = ops.where(state.is_done, ids.pad_id, chosen)
        sums = ops.where(state.is_done, state.sums, state.sums + gain)
        has_ended = ops.logical_or(
            ops.equal(tokens, ids.end_id), ops.logical_not(is_possible(sums))
        )
        return _State(
            index=state.index + 1,
            tokens=tokens,
            sequences=write_column(state.sequences, state.index, tokens),
            sums=sums,
            bonus=ops.where(state.is_done, state.bonus, task.bonus(cache)) if task.bonus else (),
            is_done=ops.logical_or(state.is_done, has_ended),
            bad_step=first_bad_step(
                state.bad_step,
                ops.logical_and(is_bad, ops.logical_not(state.is_done)),
                state.index,
            ),
            cache=cache,
        )

    def outcome(state: _State) -> Outcome:
        lengths = ops.sum(ops.cast(ops.not_equal(state.sequences, ids.pad_id), "int32"), axis=-1)
        scores = state.sums / length_penalties.get(strategy.length_penalty).divisor(lengths)
        if task.bonus:
            scores = scores + state.bonus
        return Outcome(
            ops.reshape(state.sequences, (-1, count, task.max_length)),
            ops.reshape(scores, (-1, count)),
            state.bad_step,
        )

    return Loop(is_running, advance, outcome)
