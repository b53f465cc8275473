"""The interface of a strategy, and what one is written with: a step, the next tokens, the loop."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.constraints import View
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.engine import Engine, engine_for
from keras_addnorm.decoding.engine.base import AnyState, Grow, GrowingLoop, Loop
from keras_addnorm.decoding.engine.beam_cache import is_shared
from keras_addnorm.decoding.engine.views import ListedTokens
from keras_addnorm.decoding.length_penalties import CoverageLike, CoveragePenalty, LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import (
    Cache,
    Hypotheses,
    Prefix,
    SearchInputs,
    SearchResult,
    grow_cache,
    reorder_rows,
)
from keras_addnorm.decoding.tensor_ops import IMPOSSIBLE, take
from keras_addnorm.layers.shapes import size_of

MOST_BEAMS = 1000
"""Hypotheses of a sentence: each has a row of logits at every step."""
MOST_SAMPLES = 10_000
"""Drawn outputs of a sentence, which are not weighed against one another."""
MOST_TOKENS = 1 << 20
"""Tokens of an output: each step reads all before it."""

Tensor = Any
Step = Callable[..., Any]
"""`step(token_ids (N,), index, cache) -> (logits (N, V), cache)`.

The step of `make_step_model` also takes options of `decode_step`, whose outputs come last."""


def _same(cache: Cache, length: int | Tensor) -> Cache:
    return cache


@dataclasses.dataclass(frozen=True)
class StepModel:
    """What a strategy searches with.

    Args:
        step: The decoder. With K rows a sentence, rows `b K` to `b K + K - 1` belong to sentence b.
        cache: The cache before the first step, of the engine's first length. A loop of your own
            grows it to its full length first: `grow(cache, max_length)`.
        grow: Grows the cache to more positions.
        engine: The engine of the search.
        score_bonus: Reads from the cache after a step what is added to the score of each row's
            hypothesis, `(N,)`, never positive; `None` for nothing.
    """

    step: Step
    cache: Cache
    grow: Grow = _same
    engine: Engine = dataclasses.field(default_factory=engine_for)
    score_bonus: Callable[[Cache], Tensor] | None = None


def make_step_model(
    decoder: Any,
    source_ids: Tensor,
    max_length: int,
    rows_per_sentence: int,
    rows_per_beam: int,
    engine: Engine,
    coverage: CoveragePenalty | None = None,
    listed: ListedTokens | None = None,
) -> StepModel:
    """Encode a batch, and return the decoder that is to be searched for it.

    Args:
        decoder: A `Decoder`.
        source_ids: `(B, S)` int32.
        max_length: Number of tokens to generate at most.
        rows_per_sentence: Number of rows that are decoded for each sentence, K.
        rows_per_beam: Number of adjacent rows that may continue each other.
        engine: The engine of the search.
        coverage: The coverage penalty of scores; `None` for none.
        listed: The tokens of a shortlist: the step reads, and speaks of, places in it. `None` for
            all tokens.

    Returns:
        The step, its cache and how it grows.
    """
    memory, mask = decoder.encode(source_ids)
    num_sentences = ops.shape(source_ids)[0]
    # The length of the source, because the memory of a user's model may be shorter.
    length = engine.first_length(max_length, size_of(source_ids, 1))
    # A list of all tokens saves nothing; its columns are taken from the logits.
    is_short = listed is not None and listed.tokens.shape[0] < listed.vocabulary_size
    known = listed if is_short else None
    view = engine.view(decoder, rows_per_sentence, rows_per_beam, known)
    rows_per_mask = rows_per_sentence
    kept = None if view is decoder else view.initial_cache(memory, num_sentences, length)
    if not is_shared(kept):
        # Without shared caches, each hypothesis has its own rows, which are reordered with it.
        view = engine.view(decoder, rows_per_sentence, rows_per_beam, known, share_caches=False)
        memory, mask = _repeat((memory, mask), rows_per_sentence)
        rows_per_mask = 1
        kept = view.initial_cache(memory, num_sentences * rows_per_sentence, max_length)
    cache = Cache({"decoder": kept}, {"memory_mask": () if mask is None else mask})

    def step(token_ids: Tensor, index: Tensor, cache: Cache, **options: Any) -> Any:
        mask = cache.fixed["memory_mask"]
        logits, kept, *scores = view.decode_step(
            token_ids if listed is None else take(listed.tokens, token_ids),
            cache.rows["decoder"],
            index,
            mask if ops.is_tensor(mask) else None,
            **options,
        )
        if listed is not None and logits.shape[-1] == listed.vocabulary_size:
            logits = ops.take(logits, listed.tokens, axis=1)
        return logits, cache._replace(rows={**cache.rows, "decoder": kept}), *scores

    def grow(cache: Cache, length: int | Tensor) -> Cache:
        return grow_cache(cache, length, rows_per_beam)

    if coverage is None:
        return StepModel(step, cache, grow, engine)
    source_mask = _repeat(mask, rows_per_mask)
    return _with_coverage(StepModel(step, cache, grow, engine), coverage, source_mask)


def _with_coverage(
    model: StepModel, coverage: CoveragePenalty, source_mask: Tensor | None
) -> StepModel:
    """Return the model with the attention that each source token has received in its cache."""
    if source_mask is None:
        raise ArgumentError(
            "A coverage penalty needs a source that is attended to.",
            "a decoder whose `encode` returns a memory and its padding mask",
            "Leave `coverage_penalty` out.",
            value=None,
        )
    cache = model.cache
    unread = ops.zeros(ops.shape(source_mask), dtype="float32")
    cache = Cache(
        {**cache.rows, "attention": unread}, {**cache.fixed, "is_source_token": source_mask}
    )

    def step(token_ids: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        logits, new, scores = model.step(token_ids, index, cache, return_attention_scores=True)
        # (M, H, n, S) -> (M, n, S) -> (N, S)
        attention = ops.cast(scores[coverage.layer]["cross_attention"], "float32")
        total = cache.rows["attention"]
        total = total + ops.reshape(ops.mean(attention, axis=1), ops.shape(total))
        return logits, new._replace(rows={**new.rows, "attention": total})

    def score_bonus(cache: Cache) -> Tensor:
        return coverage.term(cache.rows["attention"], cache.fixed["is_source_token"])

    return StepModel(step, cache, model.grow, model.engine, score_bonus)


def _repeat(structure: Any, count: int) -> Any:
    """Return each row of all tensors `count` times, side by side."""
    if count == 1:
        return structure
    return keras.tree.map_structure(
        lambda x: None if x is None else ops.repeat(x, count, axis=0), structure
    )


def log_probabilities(logits: Tensor, ids: SpecialIds, engine: Engine) -> tuple[Tensor, Tensor]:
    """Return float32 log-probabilities in which what is never generated cannot be chosen.

    Args:
        logits: `(N, V)`.
        ids: The special ids.
        engine: Writes over them.

    Returns:
        `(N, V)`, and `(N,)`, True where a logit is NaN or plus infinity. The softmax runs over
        the whole vocabulary, so scores are the model's own.
    """
    logits = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    total = ops.logsumexp(logits, axis=-1, keepdims=True)
    log_p = ops.cast(logits - total, "float32")
    log_p = engine.fill_columns(log_p, ids.never_generated, IMPOSSIBLE)
    return log_p, ops.logical_not(ops.isfinite(total[:, 0]))


@dataclasses.dataclass(frozen=True)
class NextTokens:
    """Log-probabilities of the next token under the rules of some inputs.

    Args:
        inputs: The inputs.
        engine: The engine of the search.
        source_lengths: `(N,)`, the number of tokens of each row's source; `None` without
            constraints.
        prefix: What the output of each row begins with, or `None`.
    """

    inputs: SearchInputs
    engine: Engine
    source_lengths: Tensor | None
    prefix: Prefix | None

    @classmethod
    def of(cls, inputs: SearchInputs, engine: Engine, rows_per_sentence: int) -> NextTokens:
        """Return the reader for B sentences of N / B rows each, side by side."""
        lengths = prefix = None
        if inputs.constraints:
            lengths = ops.sum(ops.cast(inputs.source_mask, "int32"), axis=-1)
            lengths = ops.repeat(lengths, rows_per_sentence, axis=0)
        if inputs.prefix is not None:
            prefix = inputs.prefix.repeated(rows_per_sentence)
        return cls(inputs, engine, lengths, prefix)

    def read(self, logits: Tensor, sequences: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities without what may not come next.

        Args:
            logits: `(N, V)`.
            sequences: `(N, T)`, what has been generated.
            index: The step.

        Returns:
            `(N, V)`, and `(N,)`, True where a logit is no number.
        """
        inputs = self.inputs
        own, is_bad = log_probabilities(logits, inputs.ids, self.engine)
        log_p = own
        if inputs.constraints:
            view = View(
                sequences,
                index,
                self.source_lengths,
                logits.shape[-1],
                inputs.ids,
                inputs.tokens,
            )
            allowed = (constraint.allowed(view) for constraint in inputs.constraints)
            log_p = ops.where(functools.reduce(ops.logical_and, allowed), own, IMPOSSIBLE)
        if self.prefix is not None:
            log_p = self.prefix.force(own, log_p, index, inputs.ids.pad_id)
        return log_p, is_bad


class Algorithm(Protocol[AnyState]):
    """An algorithm for the sentences of some inputs: how hypotheses are chosen and compared."""

    def newest_tokens(self, state: AnyState) -> Tensor:
        """Return the token that each row reads next, `(N,)`."""

    def choose(
        self, state: AnyState, logits: Tensor, cache: Cache
    ) -> tuple[AnyState, Tensor | None]:
        """Choose the hypotheses that are continued."""

    def is_running(self, state: AnyState) -> Tensor:
        """Return which sentences have not ended, `(B,)`."""

    def hypotheses(self, state: AnyState) -> Hypotheses:
        """Return the hypotheses; the entries of unfinished sentences are undefined."""


def search_positions(
    search_of: Callable[[SearchInputs], Algorithm[AnyState]],
    state: AnyState,
    model: StepModel,
    inputs: SearchInputs,
    num_hypotheses: int,
) -> Hypotheses:
    """Decode position after position until each sentence has ended.

    Args:
        search_of: Returns the algorithm for all sentences, or for those that are left.
        state: The state before the first step, with the model's cache.
        model: The decoder.
        inputs: All sentences.
        num_hypotheses: Number of hypotheses that the algorithm keeps of each sentence, M.

    Returns:
        The hypotheses of all sentences.
    """

    def loop_of(inputs: SearchInputs) -> Loop[AnyState]:
        search = search_of(inputs)

        def advance(state: AnyState) -> tuple[AnyState]:
            # Step: the decoder reads the newest token of each hypothesis. (N,) -> (N, V)
            logits, cache = model.step(search.newest_tokens(state), state.index, state.cache)
            # Choose: the hypotheses that continue, and their tokens.
            state, origin = search.choose(state, logits, cache)
            # Reorder: the rows of the cache follow their hypotheses.
            cache = cache if origin is None else reorder_rows(cache, origin)
            return (state._replace(cache=cache),)

        return Loop(search.is_running, advance, search.hypotheses)

    growing = GrowingLoop(loop_of, num_hypotheses, model.grow)
    return model.engine.run_with_growing_cache(growing, state, inputs)


def all_done(is_done: Tensor, count: int) -> Tensor:
    """Return which sentences have all of their `count` parts done: `(B count,)` -> `(B,)`."""
    return is_done if count == 1 else ops.all(ops.reshape(is_done, (-1, count)), axis=1)


class Strategy(abc.ABC):
    """Searches for outputs, one token a step. A subclass is a frozen dataclass.

    Strategies are plain values: they are compared and hashed, and a compiled decoder is kept for
    each. All tensors come through the arguments of `search`.

    Attributes:
        length_penalty: What sums of log-probabilities are divided by.
        coverage_penalty: The coverage penalty of scores; `None` for none.
        num_return: Number of hypotheses that are returned for each sentence, N.
    """

    length_penalty: LengthPenaltyLike = 0.0
    coverage_penalty: CoverageLike = None
    num_return: int = 1

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows that are decoded for each sentence."""
        return self.num_return

    @property
    def rows_per_beam(self) -> int:
        """Number of adjacent rows that may continue each other."""
        return 1

    def resolve_penalties(self) -> None:
        """Replace what stands for a penalty by the penalty, in `__post_init__`."""
        object.__setattr__(self, "length_penalty", length_penalties.get(self.length_penalty))
        coverage = length_penalties.get_coverage(self.coverage_penalty)
        object.__setattr__(self, "coverage_penalty", coverage)

    @abc.abstractmethod
    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every sentence is done.

        Args:
            model: The decoder, and its cache of `B K` rows before the first step.
            inputs: What to decode.

        Returns:
            The best hypotheses.
        """
