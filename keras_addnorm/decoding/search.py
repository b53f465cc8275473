"""The traceable core of a search: from token ids to token ids, in Keras operations only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from keras import ops

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.argument_checks import require_positive, require_type
from keras_addnorm.decoding.constraints import (
    Constraint,
    ConstraintLike,
    get_all,
    require_possible,
)
from keras_addnorm.decoding.coverage import get as get_coverage
from keras_addnorm.decoding.decoder import Decoder, DecoderInfo, require_decoder
from keras_addnorm.decoding.engine import Engine, engine_for
from keras_addnorm.decoding.engine.vocabulary import ListedTokens
from keras_addnorm.decoding.indexing import take
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike, require_scores
from keras_addnorm.decoding.length_penalties import get as get_length_penalty
from keras_addnorm.decoding.prefix import Prefix
from keras_addnorm.decoding.search_inputs import SearchInputs, SearchResult
from keras_addnorm.decoding.shortlist import Shortlist, require_one
from keras_addnorm.decoding.special_ids import SpecialIds
from keras_addnorm.decoding.step_model import make_step_model
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy

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
