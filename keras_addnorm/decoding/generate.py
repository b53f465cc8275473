"""Search with a decoder: `decode` in traceable operations, `generate` on arrays of token ids."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.checks import (
    WHERE_TO_LOOK,
    check_ids,
    check_layer,
    check_source_ids,
    id_array,
    pad_batch,
    padded_length,
    require_layer,
    require_type,
)
from keras_addnorm.decoding.decoder import Decoder, DecoderInfo, SpecialIds, require_decoder
from keras_addnorm.decoding.engine import Engine, engine_for
from keras_addnorm.decoding.engine.base import run_compiled
from keras_addnorm.decoding.engine.views import ListedTokens
from keras_addnorm.decoding.sample import Sample
from keras_addnorm.decoding.score import run_teacher_forced
from keras_addnorm.decoding.search import FittedSearch, Search, takes_search
from keras_addnorm.decoding.search_inputs import Prefix, SearchInputs, SearchResult
from keras_addnorm.decoding.splitting import NoSplitting
from keras_addnorm.decoding.strategy import make_step_model
from keras_addnorm.decoding.tensor_ops import take

Tensor = Any
_PREFIX_MULTIPLE = 8


@takes_search("splitting")
def decode(
    model: Decoder,
    source_ids: Tensor,
    *,
    search: Search,
    pad_id: int | None = None,
    start_id: int | None = None,
    end_id: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode a batch, in Keras operations only, so that it can be traced and exported.

    Args:
        model: A `Seq2SeqTransformer`, or any `Decoder`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        search: How to search: a `Search`, or its fields as keywords, such as `num_beams` and
            `max_length`. The tokens of a prefix may be tensors.
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
    info = DecoderInfo.of(require_decoder(model), pad_id, start_id, end_id)
    fitted = search.fitted(info, may_compute=False)
    found = run_search(model, source_ids, fitted, engine_for(), info.ids)
    return found.ids[:, 0], found.scores[:, 0]


def run_search(
    model: Decoder,
    source_ids: Tensor,
    search: FittedSearch,
    engine: Engine,
    ids: SpecialIds | None = None,
    seed: Tensor | None = None,
    num_needed: Tensor | None = None,
) -> SearchResult:
    """Encode a batch and search for its outputs; `decode` returns the best of them alone.

    Args:
        model: A `Seq2SeqTransformer`, or any `Decoder`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        search: How to search, fitted to the model.
        engine: The engine, which does not change the results.
        ids: The special ids; `None` for those of the decoder's `config`, or their defaults.
        seed: For strategies that draw; see `SearchInputs`.
        num_needed: How many of a beam's hypotheses are looked at; see `SearchInputs`.

    Returns:
        The best hypotheses of each sentence.
    """
    strategy, shortlist, prefix = search.strategy, search.shortlist, search.target_prefix
    ids = ids or DecoderInfo.of(model).ids
    source_ids = engine.open_sizes(source_ids)
    listed = None
    if shortlist is not None:
        listed = ListedTokens(shortlist.tokens(source_ids, ids), shortlist.vocabulary_size)
    step_model = make_step_model(
        model,
        source_ids,
        search.max_length,
        strategy.rows_per_sentence,
        strategy.rows_per_beam,
        engine,
        length_penalties.get_coverage(strategy.coverage_penalty),
        listed,
    )
    inputs = SearchInputs(
        source_ids,
        search.max_length,
        ids if shortlist is None else shortlist.places(ids),
        search.constraints,
        None if prefix is None else prefix.rows(ops.shape(source_ids)[0]),
        seed,
        None if listed is None else listed.tokens,
        ids.pad_id,
        num_needed,
    )
    found = strategy.search(step_model, inputs)
    return found if listed is None else found._replace(ids=take(listed.tokens, found.ids))


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
        require_bool(with_attention=self.with_attention)


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


@takes_search("splitting")
def generate(
    model: Decoder,
    source_ids: Any = None,
    *,
    search: Search,
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
        search: How to search: a `Search`, or its fields: a strategy, and keywords such as
            `num_beams` and `max_length`.
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
    return generate_with(model, source_ids, search, return_details, jit_compile, info)


def generate_with(
    model: Decoder,
    source_ids: Any,
    search: Search,
    return_details: bool | Details,
    jit_compile: bool,
    info: DecoderInfo,
) -> Any:
    """Do what `generate` does, with a decoder of which is known what there is to know."""
    require_bool(jit_compile=jit_compile)
    fitted = search.fitted(info)
    if source_ids is None and fitted.target_prefix is not None:
        source_ids = fitted.target_prefix.tokens
    source_ids = check_source_ids(source_ids, info)
    prefix = check_prefix(fitted.target_prefix, len(source_ids), fitted.max_length, info)
    details = _details(return_details)
    if details:
        _check_details(details, model, info.config)
    # What another call may change without a new compilation: the seed, the prefix, the texts.
    strategy, seed = fitted.strategy, 0
    if isinstance(strategy, Sample):
        strategy, seed = dataclasses.replace(strategy, seed=0), strategy.seed
    kept = dataclasses.replace(
        fitted, strategy=strategy, target_prefix=None, splitting=NoSplitting()
    )
    engine, pad_id, is_free = engine_for(jit_compile), info.ids.pad_id, prefix.is_free

    def search_with(source_ids: Any, tokens: Any, seed: Any) -> SearchResult:
        begins = Prefix(tokens, is_free) if tokens.shape[1] else None
        whole = dataclasses.replace(kept, target_prefix=begins)
        return run_search(model, source_ids, whole, engine, info.ids, seed)

    (batch_size, length), num_forced = source_ids.shape, prefix.tokens.shape[1]
    shape = (batch_size, fitted.strategy.num_return)
    ids, scores = np.zeros((*shape, fitted.max_length), "int32"), np.zeros(shape, "float32")
    if batch_size:
        inputs = (
            pad_batch(source_ids, padded_length(length, info), pad_id),
            pad_batch(prefix.tokens, -(-num_forced // _PREFIX_MULTIPLE) * _PREFIX_MULTIPLE, pad_id),
            np.array(seed, "int32"),
        )
        key = ("search", kept, info.ids, is_free)
        found = run_compiled(model, key, search_with, inputs, engine)
        if found.bad_step < fitted.max_length:
            raise FloatingPointError(
                f"A logit was NaN or infinite at step {found.bad_step} of the search (the first is "
                f"0). Expected finite logits. {WHERE_TO_LOOK}"
            )
        ids, scores = found.ids[:batch_size], found.scores[:batch_size]
    if details:
        return _describe(model, source_ids, prefix, ids, scores, details, jit_compile)
    return (ids[:, 0], scores[:, 0]) if fitted.strategy.num_return == 1 else (ids, scores)


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


def _details(return_details: Any) -> Details | None:
    """Return what is asked for; `None` for nothing."""
    if isinstance(return_details, bool):
        return Details() if return_details else None
    return require_type("`return_details`", return_details, bool, Details)


def _check_details(details: Details, model: Any, config: Any) -> None:
    if not hasattr(model, "decode_sequence"):
        raise ArgumentError(
            "Details are read in one pass over the outputs.",
            "a model with the method `decode_sequence`",
            "Leave `return_details` out.",
            received=f"a {type(model).__name__}",
        )
    check_layer(details.layer, config)


def check_prefix(
    prefix: Prefix | None, batch_size: int, max_length: int, info: DecoderInfo
) -> Prefix:
    """Return a checked prefix with tokens `(B, P)`, of P = 0 for none."""
    ids = info.ids
    if prefix is None:
        return Prefix(np.zeros((batch_size, 0), "int32"))
    array = id_array("target prefix", prefix.tokens)
    if array.ndim == 1:
        array = np.broadcast_to(array, (batch_size, len(array)))
    if array.ndim != 2 or len(array) != batch_size:
        raise ArgumentError(
            "A target prefix needs a row for each sentence, padded to one length, or one for all.",
            f"shape ({batch_size}, length) or (length,)",
            value=array.shape,
        )
    check_ids("target", array, info.target_vocabulary_size)
    if array.shape[1] > max_length:
        raise ArgumentError(
            "The target prefix is longer than the output may be.",
            f"at most `max_length` = {max_length} tokens",
            "Raise `max_length`, or cut the prefix.",
            value=array.shape[1],
        )
    is_token = array != ids.pad_id
    has_gap = (is_token[:, 1:] & ~is_token[:, :-1]).any()
    if has_gap or np.isin(array[is_token], [ids.start_id, ids.end_id]).any():
        raise ArgumentError(
            "A target prefix is made of tokens, with padding behind them only.",
            f"no start token ({ids.start_id}), no end token ({ids.end_id}) and no padding "
            f"({ids.pad_id}) in between",
            value=array.tolist(),
        )
    return dataclasses.replace(prefix, tokens=array)
