"""`generate`: from arrays of token ids to arrays of token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_addnorm.decoding import constraints as constraint_table
from keras_addnorm.decoding import coverage, strategies
from keras_addnorm.decoding.checks import require_positive
from keras_addnorm.decoding.compilation import run_compiled
from keras_addnorm.decoding.constraints import ConstraintLike
from keras_addnorm.decoding.inputs import (
    check_ids,
    check_layer,
    check_source_ids,
    pad_batch,
    padded_length,
)
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.sample import Sample
from keras_addnorm.decoding.score import run_teacher_forced
from keras_addnorm.decoding.search import Request, search
from keras_addnorm.decoding.shortlist import Shortlist
from keras_addnorm.decoding.strategies import StrategyLike

_PREFIX_MULTIPLE = 8


@dataclasses.dataclass(frozen=True)
class Details:
    """What `generate` is asked to say about its outputs.

    Args:
        layer: The decoder layer whose cross-attention is looked at; -1 is the last.
        with_attention: Whether to return the attention itself, besides its largest entries.
    """

    layer: int = -1
    with_attention: bool = False


@dataclasses.dataclass(frozen=True)
class Generation:
    """The outputs of a search, the best first, token by token.

    Args:
        ids: `(B, N, T)` int32, as `generate` returns them.
        scores: `(B, N)`, as `generate` returns them. Minus infinity where a search has found
            fewer than N outputs; such a row is padding.
        token_log_probabilities: `(B, N, T)`, of each token given the source and the tokens before
            it; 0 at padding.
        alignments: `(B, N, T)` int32: the position in the source that each token looked at most,
            averaged over heads; -1 at padding.
        attention: `(B, N, T, S)`: how much each token looked at each position of the source,
            averaged over heads, 0 at padding; `None` unless it was asked for.
    """

    ids: np.ndarray
    scores: np.ndarray
    token_log_probabilities: np.ndarray
    alignments: np.ndarray
    attention: np.ndarray | None = None


def generate(
    model: Any,
    source_ids: Any,
    strategy: StrategyLike | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int | None = None,
    constraints: Iterable[ConstraintLike] = (),
    target_prefix: Any = None,
    shortlist: Shortlist | None = None,
    return_details: bool | Details = False,
    jit_compile: bool = True,
) -> tuple[np.ndarray, np.ndarray] | Generation:
    """Check, pad, compile and run a search; documented at `Seq2SeqTransformer.generate`.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: Integers, `(B, S)`.
        strategy: A strategy, its name or its dict.
        num_beams: The short way: number of hypotheses.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most; `None` for `config.max_length`.
        constraints: Rules about the next token.
        target_prefix: Integers, `(B, P)`, padded: what the outputs begin with.
        shortlist: The target tokens that are weighed, instead of all.
        return_details: Whether to return a `Generation`; a `Details` says which.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        Token ids `(B, max_length)` int32 and scores `(B,)` float32; `(B, N, max_length)` and
        `(B, N)` of a strategy that returns N > 1. With `return_details`, a `Generation`.

    Raises:
        ValueError: If the ids or an option do not fit.
        FloatingPointError: If the model computed something that is no number.
    """
    config = model.config
    request = Request(
        strategies.choose(strategy, num_beams, length_penalty),
        config.max_length if max_length is None else max_length,
        tuple(map(constraint_table.get, constraints)),
        under_xla=jit_compile or keras.backend.backend() != "tensorflow",
    )
    _check_request(request, config)
    _check_shortlist(shortlist, target_prefix, config)
    source_ids = check_source_ids(source_ids, config)
    prefix = _check_prefix(target_prefix, len(source_ids), request.max_length, config)
    details = Details() if return_details is True else return_details
    if details:
        check_layer(details.layer, config)
    ids, scores = _search(model, source_ids, prefix, request, shortlist, jit_compile)
    if details:
        return _describe(model, source_ids, ids, scores, details, jit_compile)
    return (ids[:, 0], scores[:, 0]) if request.strategy.num_return == 1 else (ids, scores)


def _search(
    model: Any,
    source_ids: np.ndarray,
    prefix: np.ndarray,
    request: Request,
    shortlist: Shortlist | None,
    jit_compile: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids `(B, N, T)` and scores `(B, N)`."""
    batch_size, length = source_ids.shape
    if batch_size == 0:
        shape = (0, request.strategy.num_return)
        return np.zeros((*shape, request.max_length), "int32"), np.zeros(shape, "float32")
    request, seed = _without_seed(request)
    pad_id = model.config.pad_id
    found = run_compiled(
        model,
        ("search", request, shortlist),
        lambda source_ids, prefix, seed: search(
            model, source_ids, request, prefix if prefix.shape[1] else None, seed, shortlist
        ),
        (
            pad_batch(source_ids, padded_length(length, model.config), pad_id),
            pad_batch(prefix, -(-prefix.shape[1] // _PREFIX_MULTIPLE) * _PREFIX_MULTIPLE, pad_id),
            np.array(seed, "int32"),
        ),
        jit_compile,
    )
    if found.bad_step < request.max_length:
        raise FloatingPointError(
            f"A logit was NaN or infinite at step {found.bad_step} of the search (the first is 0). "
            "Expected finite logits. Look for NaN among the weights, which training may have left "
            "there, and for an overflow if the model computes in float16."
        )
    return found.ids[:batch_size], found.scores[:batch_size]


def _without_seed(request: Request) -> tuple[Request, int]:
    """Return the request that is compiled, and the seed: another one compiles nothing new."""
    if not isinstance(request.strategy, Sample):
        return request, 0
    unseeded = dataclasses.replace(request.strategy, seed=0)
    return dataclasses.replace(request, strategy=unseeded), request.strategy.seed


def _describe(
    model: Any,
    source_ids: np.ndarray,
    ids: np.ndarray,
    scores: np.ndarray,
    details: Details,
    jit_compile: bool,
) -> Generation:
    """Read the outputs once more, in one pass: the search itself keeps nothing for this."""
    is_token = ids != model.config.pad_id
    longest = int(is_token.sum(-1).max(initial=0))
    log_p = np.zeros(ids.shape, "float32")
    attention = np.zeros((*ids.shape, source_ids.shape[1]), "float32")
    if longest:
        log_p[..., :longest], attention[..., :longest, :] = run_teacher_forced(
            model, source_ids, ids[..., :longest], details.layer, jit_compile
        )
    attention *= is_token[..., None]
    looked_at = attention.argmax(-1) if source_ids.shape[1] else np.zeros(ids.shape)
    alignments = np.where(is_token, looked_at, -1).astype("int32")
    return Generation(ids, scores, log_p, alignments, attention if details.with_attention else None)


def _check_request(request: Request, config: Any) -> None:
    max_length = request.max_length
    require_positive("There is nothing to generate.", max_length=max_length)
    if config.positions == "learned" and max_length > config.max_length:
        raise ValueError(
            "The model has learned positions and cannot generate past them. Expected max_length "
            f"<= {config.max_length}. Received: {max_length}"
        )
    if (penalty := coverage.get(request.strategy.coverage_penalty)) is not None:
        check_layer(penalty.layer, config)
    for constraint in request.constraints:
        constraint.check(config.target_vocabulary_size, max_length)


def _check_shortlist(shortlist: Shortlist | None, target_prefix: Any, config: Any) -> None:
    if shortlist is None:
        return
    shortlist.check(config)
    if target_prefix is not None:
        raise ValueError(
            "A target prefix may hold any token, a shortlist leaves most of them out. Expected one "
            "of the two. Received both: leave `shortlist` out where outputs have to begin so."
        )


def _check_prefix(target_prefix: Any, batch_size: int, max_length: int, config: Any) -> np.ndarray:
    """Return the prefix as `(B, P)`, with P = 0 for none."""
    if target_prefix is None:
        return np.zeros((batch_size, 0), "int32")
    array = np.asarray(target_prefix)
    if array.ndim != 2 or len(array) != batch_size:
        raise ValueError(
            "A target prefix needs a row for each sentence, padded to one length. Expected shape "
            f"({batch_size}, length). Received: {array.shape}"
        )
    check_ids("target", array, config.target_vocabulary_size)
    if array.shape[1] > max_length:
        raise ValueError(
            "The target prefix is longer than the output may be. Expected at most max_length = "
            f"{max_length} tokens. Received: {array.shape[1]}. Raise max_length, or cut the prefix."
        )
    is_token = array != config.pad_id
    has_gap = (is_token[:, 1:] & ~is_token[:, :-1]).any()
    if has_gap or np.isin(array, [config.start_id, config.end_id]).any():
        raise ValueError(
            "A target prefix is made of tokens, with padding behind them only. Expected no start "
            f"token ({config.start_id}), no end token ({config.end_id}) and no padding "
            f"({config.pad_id}) in between. Received: {array.tolist()!r:.80}"
        )
    return array
