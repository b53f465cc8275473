"""Search with a decoder: `decode` in traceable operations, `generate` on arrays of token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.decoding import coverage, length_penalties, strategies
from keras_addnorm.decoding.checks import (
    check_ids,
    check_layer,
    check_source_ids,
    id_array,
    pad_batch,
    padded_length,
    require_layer,
    require_positive,
    require_type,
)
from keras_addnorm.decoding.constraints import (
    Constraint,
    ConstraintLike,
    get_all,
    require_possible,
)
from keras_addnorm.decoding.coverage import get as get_coverage
from keras_addnorm.decoding.decoder import Decoder, DecoderInfo, SpecialIds, require_decoder
from keras_addnorm.decoding.engine import Engine, engine_for
from keras_addnorm.decoding.engine.base import run_compiled
from keras_addnorm.decoding.engine.views import ListedTokens
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike, require_scores
from keras_addnorm.decoding.length_penalties import get as get_length_penalty
from keras_addnorm.decoding.sample import Sample
from keras_addnorm.decoding.score import run_teacher_forced
from keras_addnorm.decoding.search_inputs import Prefix, SearchInputs, SearchResult
from keras_addnorm.decoding.shortlist import Shortlist, require_one
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy, make_step_model
from keras_addnorm.decoding.tensor_ops import take

Tensor = Any


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The settings of a search: it is compiled once for each of them.

    Args:
        strategy: The strategy.
        max_length: Number of tokens to generate at most.
        constraints: Rules about the next token.
        engine: The engine, which does not change the results.
        ids: The special ids; `None` for those of the decoder's `config`, or their defaults.

    Raises:
        ValueError: If float32 cannot tell scores apart that are divided by the length penalty.
    """

    strategy: Strategy
    max_length: int
    constraints: tuple[Constraint, ...] = ()
    engine: Engine = dataclasses.field(default_factory=engine_for)
    ids: SpecialIds | None = None

    def __post_init__(self) -> None:
        penalty = get_length_penalty(self.strategy.length_penalty)
        require_scores(penalty, self.max_length, may_compute=False)


def decode(
    model: Decoder,
    source_ids: Tensor,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int,
    strategy: StrategyLike | None = None,
    constraints: Iterable[ConstraintLike] = (),
    target_prefix: Prefix | Tensor | None = None,
    shortlist: Shortlist | None = None,
    pad_id: int | None = None,
    start_id: int | None = None,
    end_id: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode a batch, in Keras operations only, so that it can be traced and exported.

    Args:
        model: A `Seq2SeqTransformer`, or any `Decoder`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        num_beams: The short way to say the strategy: number of hypotheses; 1 is greedy search.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most.
        strategy: A strategy, its name or its dict, instead of the short way.
        constraints: Rules about the next token.
        target_prefix: What the outputs begin with: a `Prefix`, or its tokens, `(B, P)` or `(P,)`,
            which may be tensors.
        shortlist: Chooses the target tokens that are considered; `None` for all.
        pad_id: The padding token; `None` for that of `model.config`, else 0.
        start_id: The start token; `None` for that of `model.config`, else 1.
        end_id: The end token; `None` for that of `model.config`, else 2.

    Returns:
        Token ids `(B, max_length)` and scores `(B,)` of the best hypotheses. The values of tensors
        are not looked at: an id outside the vocabulary, or a logit that is NaN, gives any output.

    Raises:
        TypeError: If the model has not the methods of a `Decoder`.
        ValueError: If an option does not fit.
    """
    require_positive("There is nothing to generate.", max_length=max_length)
    info = DecoderInfo.of(require_decoder(model), pad_id, start_id, end_id)
    settings = SearchSettings(
        strategies.choose(strategy, num_beams, length_penalty),
        max_length,
        get_all(constraints),
        ids=info.ids,
    )
    require_possible(settings.constraints, info.target_vocabulary_size, max_length, info.ids)
    if shortlist is not None:
        require_type("A shortlist", shortlist, Shortlist).check(info)
    found = search(model, source_ids, settings, target_prefix, shortlist=shortlist)
    return found.ids[:, 0], found.scores[:, 0]


def search(
    model: Decoder,
    source_ids: Tensor,
    settings: SearchSettings,
    prefix: Prefix | Tensor | None = None,
    seed: Tensor | None = None,
    shortlist: Shortlist | None = None,
    num_needed: Tensor | None = None,
) -> SearchResult:
    """Encode a batch and search for its outputs; `decode` returns the best of them alone.

    Args:
        model: A `Seq2SeqTransformer`, or any `Decoder`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        settings: How to search.
        prefix: What the outputs begin with: a `Prefix`, or its tokens; none with a shortlist.
        seed: For strategies that draw; see `SearchInputs`.
        shortlist: Chooses the target tokens that are considered; `None` for all.
        num_needed: How many of a beam's hypotheses are looked at; see `SearchInputs`.

    Returns:
        The best hypotheses of each sentence.
    """
    strategy, engine = settings.strategy, settings.engine
    ids = settings.ids or DecoderInfo.of(model).ids
    source_ids = engine.open_sizes(source_ids)
    listed = None
    require_one(shortlist, prefix)
    if shortlist is not None:
        listed = ListedTokens(shortlist.tokens(source_ids, ids), shortlist.vocabulary_size)
    step_model = make_step_model(
        model,
        source_ids,
        settings.max_length,
        strategy.rows_per_sentence,
        strategy.rows_per_beam,
        engine,
        get_coverage(strategy.coverage_penalty),
        listed,
    )
    inputs = SearchInputs(
        source_ids,
        settings.max_length,
        ids if shortlist is None else shortlist.places(ids),
        settings.constraints,
        None if prefix is None else Prefix.of(prefix).rows(ops.shape(source_ids)[0]),
        seed,
        None if listed is None else listed.tokens,
        ids.pad_id,
        num_needed,
    )
    found = strategy.search(step_model, inputs)
    return found if listed is None else found._replace(ids=take(listed.tokens, found.ids))


_PREFIX_MULTIPLE = 8


@dataclasses.dataclass(frozen=True)
class Details:
    """What `generate` is asked to say about its outputs.

    Args:
        layer: The decoder layer whose cross-attention is looked at; -1 is the last.
        with_attention: Whether to return the attention itself, besides its largest entries.

    Raises:
        ValueError: If the layer is no int.
    """

    layer: int = -1
    with_attention: bool = False

    def __post_init__(self) -> None:
        require_layer(self.layer)


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
    model: Decoder,
    source_ids: Any = None,
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
    pad_id: int | None = None,
    start_id: int | None = None,
    end_id: int | None = None,
) -> tuple[np.ndarray, np.ndarray] | Generation:
    """Check, pad, compile and run a search; documented at `Seq2SeqTransformer.generate`.

    Args:
        model: A `Seq2SeqTransformer`, or any `Decoder`.
        source_ids: Integers, `(B, S)`. May be left out where there is a `target_prefix`: for a
            decoder-only model, whose `encode` is given the prefix.
        strategy: A strategy, its name or its dict.
        num_beams: The short way: number of hypotheses.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most; `None` for `model.config.max_length`.
        constraints: Rules about the next token.
        target_prefix: What the outputs begin with: integers, `(B, P)`, padded, or a `Prefix`.
        shortlist: The target tokens that are weighed, instead of all.
        return_details: Whether to return a `Generation`; a `Details` says which.
        jit_compile: Whether TensorFlow compiles with XLA.
        pad_id: The padding token; `None` for that of `model.config`, else 0.
        start_id: The start token; `None` for that of `model.config`, else 1.
        end_id: The end token; `None` for that of `model.config`, else 2.

    Returns:
        Token ids `(B, max_length)` int32 and scores `(B,)` float32; `(B, N, max_length)` and
        `(B, N)` of a strategy that returns N > 1. With `return_details`, a `Generation`.

    Raises:
        TypeError: If the model has not the methods of a `Decoder`.
        ValueError: If the ids or an option do not fit.
        FloatingPointError: If the model computed something that is no number.
    """
    info = DecoderInfo.of(require_decoder(model), pad_id, start_id, end_id)
    settings = SearchSettings(
        strategies.choose(strategy, num_beams, length_penalty),
        _max_length(max_length, info),
        get_all(constraints),
        engine_for(jit_compile),
        info.ids,
    )
    config = getattr(model, "config", None)
    _check_settings(settings, info, config)
    require_one(shortlist, target_prefix)
    if shortlist is not None:
        require_type("A shortlist", shortlist, Shortlist).check(info)
    if source_ids is None and target_prefix is not None:
        source_ids = Prefix.of(target_prefix).tokens
    source_ids = check_source_ids(source_ids, info)
    prefix = _check_prefix(target_prefix, len(source_ids), settings.max_length, info)
    details = _details(return_details)
    if details:
        _check_details(details, model, config)
    ids, scores = _search(model, source_ids, prefix, settings, shortlist, info)
    if details:
        return _describe(model, source_ids, prefix, ids, scores, details, jit_compile)
    return (ids[:, 0], scores[:, 0]) if settings.strategy.num_return == 1 else (ids, scores)


def _search(
    model: Any,
    source_ids: np.ndarray,
    prefix: Prefix,
    settings: SearchSettings,
    shortlist: Shortlist | None,
    info: DecoderInfo,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids `(B, N, T)` and scores `(B, N)`."""
    batch_size, length = source_ids.shape
    if batch_size == 0:
        shape = (0, settings.strategy.num_return)
        return np.zeros((*shape, settings.max_length), "int32"), np.zeros(shape, "float32")
    settings, seed = _without_seed(settings)
    pad_id, tokens, is_free = info.ids.pad_id, prefix.tokens, prefix.is_free

    def search_with(source_ids: Any, tokens: Any, seed: Any) -> SearchResult:
        begins = Prefix(tokens, is_free) if tokens.shape[1] else None
        return search(model, source_ids, settings, begins, seed, shortlist)

    found = run_compiled(
        model,
        ("search", settings, shortlist, is_free),
        search_with,
        (
            pad_batch(source_ids, padded_length(length, info), pad_id),
            pad_batch(tokens, -(-tokens.shape[1] // _PREFIX_MULTIPLE) * _PREFIX_MULTIPLE, pad_id),
            np.array(seed, "int32"),
        ),
        settings.engine,
    )
    if found.bad_step < settings.max_length:
        raise FloatingPointError(
            f"A logit was NaN or infinite at step {found.bad_step} of the search (the first is 0). "
            "Expected finite logits. Look for NaN among the weights, which training may have left "
            "there, and for an overflow if the model computes in float16."
        )
    return found.ids[:batch_size], found.scores[:batch_size]


def _without_seed(settings: SearchSettings) -> tuple[SearchSettings, int]:
    """Return the settings that are compiled, and the seed: another one compiles nothing new."""
    if not isinstance(settings.strategy, Sample):
        return settings, 0
    unseeded = dataclasses.replace(settings.strategy, seed=0)
    return dataclasses.replace(settings, strategy=unseeded), settings.strategy.seed


def _describe(
    model: Any,
    source_ids: np.ndarray,
    prefix: Prefix,
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
    log_p[np.broadcast_to(prefix.costs_nothing(ids.shape, model.config.pad_id), ids.shape)] = 0
    attention *= is_token[..., None]
    looked_at = attention.argmax(-1) if source_ids.shape[1] else np.zeros(ids.shape)
    alignments = np.where(is_token, looked_at, -1).astype("int32")
    return Generation(ids, scores, log_p, alignments, attention if details.with_attention else None)


def _max_length(max_length: int | None, info: DecoderInfo) -> int:
    max_length = info.max_length if max_length is None else max_length
    if max_length is None:
        raise ValueError(
            "Nothing says how long outputs may be. Expected max_length, for a decoder without a "
            "`config.max_length`. Received: None"
        )
    require_positive("There is nothing to generate.", max_length=max_length)
    return max_length


def _check_settings(settings: SearchSettings, info: DecoderInfo, config: Any) -> None:
    max_length = settings.max_length
    if info.num_positions is not None and max_length > info.num_positions:
        raise ValueError(
            "The model has learned positions and cannot generate past them. Expected max_length "
            f"<= {info.num_positions}. Received: {max_length}"
        )
    require_scores(length_penalties.get(settings.strategy.length_penalty), max_length)
    if (penalty := coverage.get(settings.strategy.coverage_penalty)) is not None:
        check_layer(penalty.layer, config)
    require_possible(settings.constraints, info.target_vocabulary_size, max_length, info.ids)


def _details(return_details: Any) -> Details | None:
    """Return what is asked for; `None` for nothing."""
    if isinstance(return_details, bool):
        return Details() if return_details else None
    return require_type("`return_details`", return_details, bool, Details)


def _check_details(details: Details, model: Any, config: Any) -> None:
    if not hasattr(model, "decode_sequence"):
        raise ValueError(
            "Details are read in one pass over the outputs. Expected a model with the method "
            f"`decode_sequence`. Received: a {type(model).__name__}. Leave `return_details` out."
        )
    check_layer(details.layer, config)


def _check_prefix(
    target_prefix: Any, batch_size: int, max_length: int, info: DecoderInfo
) -> Prefix:
    """Return the prefix with tokens `(B, P)`, of P = 0 for none."""
    ids = info.ids
    if target_prefix is None:
        return Prefix(np.zeros((batch_size, 0), "int32"))
    prefix = Prefix.of(target_prefix)
    array = id_array("target prefix", prefix.tokens)
    if array.ndim == 1:
        array = np.broadcast_to(array, (batch_size, len(array)))
    if array.ndim != 2 or len(array) != batch_size:
        raise ValueError(
            "A target prefix needs a row for each sentence, padded to one length, or one for all. "
            f"Expected shape ({batch_size}, length) or (length,). Received: {array.shape}"
        )
    check_ids("target", array, info.target_vocabulary_size)
    if array.shape[1] > max_length:
        raise ValueError(
            "The target prefix is longer than the output may be. Expected at most max_length = "
            f"{max_length} tokens. Received: {array.shape[1]}. Raise max_length, or cut the prefix."
        )
    is_token = array != ids.pad_id
    has_gap = (is_token[:, 1:] & ~is_token[:, :-1]).any()
    if has_gap or np.isin(array[is_token], [ids.start_id, ids.end_id]).any():
        raise ValueError(
            "A target prefix is made of tokens, with padding behind them only. Expected no start "
            f"token ({ids.start_id}), no end token ({ids.end_id}) and no padding "
            f"({ids.pad_id}) in between. Received: {array.tolist()!r:.80}"
        )
    return dataclasses.replace(prefix, tokens=array)
