"""How to search, as one object: from a command line or from keywords to the loop, and to an export.

An option is a field of `Search`, or of the strategy in it. Functions that search are given the
object whole; `takes_search` makes it of keywords.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.suggestions import did_you_mean
from keras_addnorm.decoding import constraints as rules
from keras_addnorm.decoding import length_penalties, strategies
from keras_addnorm.decoding import splitting as ways
from keras_addnorm.decoding.beam import Beam
from keras_addnorm.decoding.checks import check_layer, id_array, require_type
from keras_addnorm.decoding.constraints import Constraint, ConstraintLike
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.length_penalties import LengthPenalty, LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import Prefix
from keras_addnorm.decoding.shortlist import Shortlist
from keras_addnorm.decoding.splitting import Splitting, SplittingLike
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import MOST_TOKENS, Strategy

R = TypeVar("R")

NUM_BEAMS = 4
"""The width of the beam that exports and runs search with, unless they say another."""
LENGTH_PENALTY = 0.6
"""The exponent of their length penalty, likewise."""


@dataclasses.dataclass(frozen=True)
class Search:
    """How a model is searched for outputs.

    The short way to say the strategy is `num_beams` and `length_penalty`. What else a strategy can
    do, such as to return several outputs, to stop earlier or to penalise what was not translated,
    are fields of the strategy.

    Args:
        strategy: A strategy, its name (`"greedy"`, `"beam"`, ...) or its dict; `None` for the short
            way. With `num_return` N > 1, N outputs of each sentence are returned.
        num_beams: The short way: number of hypotheses; 1, as `None`, is greedy search.
        length_penalty: The short way: the exponent alpha of the GNMT penalty `((5 + n) / 6)^alpha`,
            or an object of `keras_addnorm.decoding.length_penalties`.
        max_length: Number of tokens to generate for a sentence at most, end token included; `None`
            for the `config.max_length` of the model.
        constraints: Rules about the next token: objects of `keras_addnorm.decoding.constraints`,
            their names or dicts. They hold for each sentence.
        target_prefix: Tokens that outputs begin with: integers `(P,)`, the same for all, or
            `(B, P)`, a row for each, padded behind; or a `Prefix` of them, whose log-probabilities
            may count as 0.
        shortlist: The target tokens that are weighed for a batch, instead of all.
        splitting: How texts are split into what is translated at a time: `"sentences"`;
            `"long_texts"` for only those of more than `config.max_length - 1` tokens; `"none"` to
            cut those off; or a `Splitting`, such as `Sentences("de")`, which knows German
            abbreviations. Searches for token ids do not read it.

    Raises:
        ValueError: If the strategy is described twice, an option is none, or there are both a
            prefix and a shortlist.

    Example:
        ```python
        import numpy as np
        from keras_addnorm.decoding import Search
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        search = Search(num_beams=4, length_penalty=0.6, max_length=8)
        model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", max_length=8))
        ids, scores = model.generate(np.array([[5, 6, 2]]), search=search)
        ```
    """

    strategy: StrategyLike | None = None
    num_beams: int | None = None
    length_penalty: LengthPenaltyLike | None = None
    max_length: int | None = None
    constraints: Iterable[ConstraintLike] = ()
    target_prefix: Any = None
    shortlist: Shortlist | None = None
    splitting: SplittingLike = "sentences"

    def __post_init__(self) -> None:
        own = self.chosen
        if self.max_length is not None:
            require_int(
                "A search makes so many tokens.", most=MOST_TOKENS, max_length=self.max_length
            )
        prefix = None if self.target_prefix is None else Prefix.of(self.target_prefix)
        resolved = {
            "strategy": None if self.strategy is None else own,
            "constraints": rules.get_all(self.constraints),
            "target_prefix": prefix,
            "splitting": ways.get(self.splitting),
        }
        for name, value in resolved.items():
            object.__setattr__(self, name, value)
        if self.shortlist is not None:
            require_type("A shortlist", self.shortlist, Shortlist)
            if prefix is not None:
                raise ArgumentError(
                    "A target prefix may hold any token, a shortlist leaves most of them out.",
                    "one of the two",
                    "Leave `shortlist` out where outputs have to begin so.",
                    received="both",
                )

    @property
    def penalty(self) -> LengthPenalty:
        """What scores are divided by."""
        return length_penalties.get(self.chosen.length_penalty)

    @property
    def chosen(self) -> Strategy:
        """The strategy, said in either way."""
        num_beams, length_penalty = self.num_beams, self.length_penalty
        if num_beams is not None:
            require_int("A search needs hypotheses.", num_beams=num_beams)
        if self.strategy is None:
            penalty = 0.0 if length_penalty is None else length_penalty
            width = num_beams or 1
            return Greedy(penalty) if width == 1 else Beam(width, penalty)
        if num_beams is not None or length_penalty is not None:
            raise ArgumentError(
                "The search is described twice.",
                "either `strategy` or the short way with `num_beams` and `length_penalty`",
                "Put them into the strategy, such as Beam(num_beams=4, length_penalty=0.6).",
                strategy=self.strategy,
                num_beams=num_beams,
                length_penalty=length_penalty,
            )
        return strategies.get(self.strategy)

    def fitted(self, model: DecoderInfo, *, may_compute: bool = True) -> FittedSearch:
        """Return the search of a model, each option of which is said and fits.

        Args:
            model: What is known of the model.
            may_compute: Whether numbers may be computed, which is impossible in a traced function:
                there a length penalty of another class is taken as it is.

        Returns:
            The search, with a strategy and a maximum length.

        Raises:
            ValueError: If an option does not fit the model.
        """
        max_length = model.max_length if self.max_length is None else self.max_length
        if max_length is None:
            raise ArgumentError(
                "Nothing says how long outputs may be.",
                "`max_length`, for a decoder without a `config.max_length`",
                value=None,
            )
        if model.num_positions is not None and max_length > model.num_positions:
            raise ArgumentError(
                "The model has learned positions and cannot generate past them.",
                f"`max_length` <= {model.num_positions}",
                max_length=max_length,
            )
        strategy = self.chosen
        length_penalties.require_scores(self.penalty, max_length, may_compute=may_compute)
        if (penalty := length_penalties.get_coverage(strategy.coverage_penalty)) is not None:
            check_layer(penalty.layer, model.config)
        constraints = rules.get_all(self.constraints)
        rules.require_possible(constraints, model.target_vocabulary_size, max_length, model.ids)
        if self.shortlist is not None:
            self.shortlist.check(model)
        return FittedSearch(
            strategy,
            max_length=max_length,
            constraints=constraints,
            target_prefix=self.target_prefix,
            shortlist=self.shortlist,
            splitting=ways.get(self.splitting),
        )

    def for_texts(self, target: Any, begins: Sequence[int] = (), is_free: bool = False) -> Search:
        """Return the search for ids of the texts of a tokenizer.

        Args:
            target: The target's tokenizer. Ids that have no piece, its `unused_ids`, are never
                generated.
            begins: The tokens that the text format begins targets with; outputs begin with them,
                then with the prefix of the search.
            is_free: Whether these count as 0, where the search has no prefix.

        Returns:
            The search.

        Raises:
            ValueError: If the prefix of the search is not the same for all sentences.
        """
        prefix: Prefix | None = self.target_prefix
        if prefix is None:
            prefix = Prefix(begins, is_free) if begins else None
        elif id_array("target prefix", prefix.tokens).ndim != 1:
            raise ArgumentError(
                "A target prefix is the same for all sentences here.",
                "tokens of shape (length,)",
                value=prefix.tokens,
            )
        elif begins:
            prefix = dataclasses.replace(prefix, tokens=[*begins, *prefix.tokens])
        constraints = (*self.constraints, *rules.forbidden_by(target))
        return dataclasses.replace(self, target_prefix=prefix, constraints=constraints)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a card: of a shortlist its size, of the rest all."""
        prefix: Prefix | None = self.target_prefix
        found = {
            "strategy": strategies.serialize(self.chosen),
            "max_length": self.max_length,
            "constraints": [rules.serialize(rule) for rule in rules.get_all(self.constraints)],
            "target_prefix": None if prefix is None else prefix.to_dict(),
            "shortlist": None if self.shortlist is None else self.shortlist.size,
            "splitting": ways.serialize(ways.get(self.splitting)),
        }
        # As JSON has them: lists, and plain numbers where NumPy's were given.
        plain: dict[str, Any] = json.loads(json.dumps(found, default=operator.index))
        return plain


@dataclasses.dataclass(frozen=True)
class FittedSearch(Search):
    """The search of a model: each option is said, and is an object. `Search.fitted` makes it."""

    strategy: Strategy
    max_length: int = 1
    constraints: tuple[Constraint, ...] = ()
    target_prefix: Prefix | None = None
    splitting: Splitting = dataclasses.field(default_factory=ways.NoSplitting)


OPTIONS: Mapping[str, inspect.Parameter] = inspect.signature(Search).parameters
"""The fields of a `Search`, as arguments of a function."""

_OTHER_NAMES = {
    **dict.fromkeys(
        ("temperature", "top_k", "top_p"), "a strategy that has it: Sample({name}=...)"
    ),
    "do_sample": 'the strategy "sample"',
    "num_return_sequences": "a strategy that returns several: Beam(4, num_return=4)",
    "early_stopping": "a strategy that has it: Beam(4, early_stopping=...)",
    "beam_size": "num_beams",
    "max_new_tokens": "max_length",
    "no_repeat_ngram_size": "constraints=[NoRepeatNgram(3)]",
    "repetition_penalty": "constraints=[NoRepeatNgram(3)], which forbids to repeat three tokens: "
    "there is no penalty for repeated ones",
    "prefix": "target_prefix",
    "input_ids": "the ids first, without a name",
}
"""Arguments of other libraries' searches, and what to write here."""


def takes_search(*without: str, **defaults: Any) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function with the argument `search` take the fields of a `Search` in its place.

    Users write `generate(ids, num_beams=4)` or `generate(ids, search=Search(num_beams=4))`; a
    strategy may stand behind the arguments by position. The function is given one `Search`.

    Args:
        *without: The fields that the function does not read.
        **defaults: What the short way of the strategy is where it is not said.

    Returns:
        A decorator.
    """
    options = {name: one for name, one in OPTIONS.items() if name not in without}

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        declared = inspect.signature(function)
        by_position = [
            one for one in declared.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD
        ]

        @functools.wraps(function)
        def call(*arguments: Any, search: Search | None = None, **keywords: Any) -> R:
            given = {name: keywords.pop(name) for name in options if name in keywords}
            if unknown := [name for name in keywords if name not in declared.parameters]:
                raise _unknown_argument(function.__name__, unknown[0], call.__signature__)  # type: ignore[attr-defined]
            if len(arguments) == len(by_position) + 1 and "strategy" not in given:
                *arguments, given["strategy"] = arguments  # type: ignore[assignment]
            if search is None:
                if defaults and given.get("strategy") is None:
                    given |= {k: v for k, v in defaults.items() if given.get(k) is None}
                search = Search(**given)
            elif said := [name for name, value in given.items() if _is_said(name, value)]:
                raise ArgumentError(
                    "The search is described twice.",
                    "either `search` or its options",
                    f"Put these into the search: dataclasses.replace(search, {said[0]}=...).",
                    received=f"both: {search!r:.200}, and {', '.join(said)}",
                )
            else:
                require_type("`search`", search, Search)
            return function(*arguments, search=search, **keywords)

        kinds = inspect.Parameter
        strategy = options["strategy"].replace(kind=kinds.POSITIONAL_OR_KEYWORD, default=None)
        own = [
            one
            for one in declared.parameters.values()
            if one.kind is kinds.KEYWORD_ONLY and one.name != "search"
        ]
        short = [
            one.replace(kind=kinds.KEYWORD_ONLY)
            for name, one in options.items()
            if name != "strategy"
        ]
        whole = kinds("search", kinds.KEYWORD_ONLY, default=None, annotation="Search | None")
        call.__signature__ = declared.replace(  # type: ignore[attr-defined]
            parameters=[*by_position, strategy, *short, whole, *own]
        )
        return call

    return decorate


def _is_said(name: str, value: Any) -> bool:
    default = OPTIONS[name].default
    return value is not default and (type(value) is not type(default) or value != default)


def _unknown_argument(function: str, name: str, declared: inspect.Signature) -> TypeError:
    known = [one for one in declared.parameters if one != "self"]
    other = _OTHER_NAMES.get(name, "").format(name=name)
    hint = f" Write {other}." if other else did_you_mean([name], known)
    return TypeError(
        f"{function}() has no argument {name!r}.{hint} Expected arguments among {', '.join(known)}."
    )
