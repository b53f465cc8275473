"""How a checkpoint wants its model to be searched: `generation_config.json` and ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from keras_addnorm.basics.argument_checks import LARGEST_WHOLE, is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import Beam, Greedy, Sample, Search, Shortlist
from keras_addnorm.decoding.beam import EarlyStopping
from keras_addnorm.decoding.constraints import (
    Constraint,
    ForbiddenTokens,
    MinLength,
    NoRepeatNgram,
)
from keras_addnorm.decoding.length_penalties import AveragePenalty, NoPenalty, require_scores
from keras_addnorm.decoding.strategy import MOST_BEAMS, Strategy
from keras_addnorm.models import Seq2SeqConfig

# When a sentence is done; theirs and ours.
_STOPPING: dict[Any, EarlyStopping] = {False: "current_length", True: True, "never": False}

# The fields of transformers' `GenerationConfig`, each in one of four tables.
_FOLLOWED: dict[str, tuple[type, ...]] = {
    "max_length": (int,),
    "max_new_tokens": (int,),
    "min_length": (int,),
    "min_new_tokens": (int,),
    "early_stopping": (bool, str),
    "do_sample": (bool,),
    "num_beams": (int,),
    "length_penalty": (int, float),
    "temperature": (int, float),
    "top_k": (int,),
    "top_p": (int, float),
    "no_repeat_ngram_size": (int,),
    "bad_words_ids": (list, tuple),
    "suppress_tokens": (list, tuple),
    "forced_bos_token_id": (int,),
}
# The smallest values of those that are numbers of something.
_LEAST: dict[str, int] = {
    "num_beams": 1,
    "max_length": 1,
    **dict.fromkeys(("max_new_tokens", "min_length", "min_new_tokens"), 0),
    **dict.fromkeys(("no_repeat_ngram_size", "top_k", "forced_bos_token_id"), 0),
}
SPECIAL_IDS = frozenset({"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"})
"""The fields that name special ids, which are the model's."""

# They say how outputs are computed and returned, or need a second model to have an effect.
_NAMES = """
use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size
compile_config disable_compile continuous_batching_config remove_invalid_values
output_attentions output_hidden_states output_scores output_logits return_dict_in_generate
use_mtp prompt_lookup_num_tokens max_matching_ngram_size num_assistant_tokens
num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit
assistant_lookbehind target_lookbehind assistant_ensemble_weight speculation_type
transformers_version
"""
_WITHOUT_EFFECT = frozenset(_NAMES.split())


@dataclasses.dataclass(frozen=True)
class _Other:
    """A field without a counterpart here.

    Attributes:
        neutral: The values at which a search of theirs is one of ours.
        strategies: The strategies that it changes something of.
    """

    neutral: tuple[Any, ...] = ()
    strategies: tuple[type[Strategy], ...] = (Greedy, Beam, Sample)


_OTHERS: dict[str, _Other] = {
    "max_time": _Other(),
    "stop_strings": _Other(),
    "min_p": _Other((0.0,), (Sample,)),
    "top_h": _Other((), (Sample,)),
    "typical_p": _Other((1.0,), (Sample,)),
    "epsilon_cutoff": _Other((0.0,), (Sample,)),
    "eta_cutoff": _Other((0.0,), (Sample,)),
    "repetition_penalty": _Other((1.0,)),
    "encoder_repetition_penalty": _Other((1.0,)),
    "encoder_no_repeat_ngram_size": _Other((0,)),
    # The most probable token stays so, and what is drawn has the same probabilities.
    "renormalize_logits": _Other((False,), (Beam,)),
    "forced_eos_token_id": _Other(),
    "exponential_decay_length_penalty": _Other(),
    "begin_suppress_tokens": _Other(),
    "sequence_bias": _Other(),
    "token_healing": _Other((False,)),
    "guidance_scale": _Other((1.0,)),
    "watermarking_config": _Other(),
    "num_return_sequences": _Other((1,)),
    "is_assistant": _Other((False,)),
    "penalty_alpha": _Other((0.0,), (Greedy,)),
    "dola_layers": _Other((), (Greedy, Sample)),
    "diversity_penalty": _Other((0.0,), (Beam,)),
    "num_beam_groups": _Other((1,), (Beam,)),
    "constraints": _Other(),
    "force_words_ids": _Other(),
}
# It divides by what is left after rules have ruled tokens out. Ours are shares of all tokens.
_RENORMALIZES = "renormalize_logits = True"
FIELDS = frozenset({*_FOLLOWED, *_OTHERS}) | SPECIAL_IDS | _WITHOUT_EFFECT
"""All fields that are known here."""

# What one setting of ours may be written as.
_SPELLINGS = {
    "max_length": ("max_length", "max_new_tokens"),
    "min_length": ("min_length", "min_new_tokens"),
    "bad_words_ids": ("bad_words_ids", "suppress_tokens"),
}


@dataclasses.dataclass(frozen=True)
class Said:
    """What a checkpoint says of searches, for the way back.

    Attributes:
        settings: Its fields.
        followed: Those that are followed, as they are written here.
    """

    settings: Mapping[str, Any]
    followed: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """How the makers of a model search with it.

    Attributes:
        strategy: The search.
        max_length: Number of tokens at most, the end token included and the start token not.
        constraints: Rules about the next token.
        early_stopping: When a beam search is done, also where the strategy is none.
        forced_first: The token that every output begins with, at no cost; `None` for none.
        not_followed: Settings of the checkpoint that have no counterpart here, as
            `"name = value"`.
        said: What the checkpoint says, for the way back; `None` for settings of your own.
        shortlist: The target tokens that are weighed; `None` for all.
    """

    strategy: Strategy
    max_length: int
    constraints: tuple[Constraint, ...] = ()
    early_stopping: EarlyStopping = False
    forced_first: int | None = None
    not_followed: tuple[str, ...] = ()
    said: Said | None = dataclasses.field(default=None, compare=False, repr=False)
    shortlist: Shortlist | None = dataclasses.field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Any],
        longest: int,
        *,
        unsaid: int | None = None,
        end_id: int | None = None,
        vocabulary_size: int | None = None,
    ) -> GenerationSettings:
        """Make them of a checkpoint's settings.

        Args:
            settings: The fields of `generation_config.json`, or those of an old `config.json`.
            longest: The most tokens that the model is meant to generate.
            unsaid: The most tokens where the settings do not say it; `None` for `longest`.
            end_id: The end token, which `bad_words_ids` cannot forbid.
            vocabulary_size: Number of target tokens; `None` if it is not known.

        Returns:
            The settings.

        Raises:
            ValueError: If settings that are followed are of another type or out of range: all of
                them at once.
        """
        values = {name: value for name, value in settings.items() if value is not None}
        _require_types(values, vocabulary_size)
        strategy = _strategy(values)
        asked = _asked_length(values, longest if unsaid is None else unsaid)
        max_length = max(1, min(asked, longest))
        require_scores(getattr(strategy, "length_penalty", NoPenalty()), max_length)
        constraints = _constraints(values, end_id)
        for rule in constraints:
            if isinstance(rule, ForbiddenTokens) and vocabulary_size is not None:
                rule.check(vocabulary_size, max_length)
        not_followed = list(_not_followed(values, strategy))
        if not constraints and not_followed == [_RENORMALIZES]:
            # Where no token is ruled out, the probabilities of all add up to one already.
            not_followed = []
        if asked > longest:
            not_followed.append(_name_of("max_length", values))
        if impossible := [rule for rule in constraints if _min_length(rule) > max_length]:
            not_followed.append(_name_of("min_length", values))
            constraints = tuple(rule for rule in constraints if rule not in impossible)
        found = cls(
            strategy,
            max_length,
            constraints,
            _stopping(values),
            values.get("forced_bos_token_id"),
            tuple(not_followed),
        )
        # A config says much else.
        kept = {name: value for name, value in settings.items() if name in FIELDS}
        return dataclasses.replace(found, said=Said(kept, found._followed(values)))

    @property
    def has_own_length(self) -> bool:
        """Whether the checkpoint says how long outputs are, in place of a toolkit's default."""
        said: Mapping[str, Any] = {} if self.said is None else self.said.settings
        own = any(said.get(name) is not None for name in _SPELLINGS["max_length"])
        return own or self.said is None

    @property
    def search(self) -> Search:
        """The search, as all of `keras_addnorm` takes it."""
        return Search(
            self.strategy,
            max_length=self.max_length,
            constraints=self.constraints,
            shortlist=self.shortlist,
        )

    def with_beams(self, num_beams: int) -> Strategy:
        """Return the same search with another number of hypotheses."""
        penalty = getattr(self.strategy, "length_penalty", AveragePenalty(1.0))
        if num_beams == 1:
            return Greedy(penalty)
        return Beam(num_beams, penalty, early_stopping=self.early_stopping)

    def require_length(self, max_length: int) -> None:
        """Raise a `ValueError` if outputs cannot be as long as the constraints ask for."""
        shortest = max(map(_min_length, self.constraints), default=0)
        if shortest > max_length:
            raise ArgumentError(
                f"The checkpoint asks for outputs of {shortest} tokens at least.",
                f"`max_length` >= {shortest}, or other rules than the checkpoint's, such as "
                "`constraints=()`",
                max_length=max_length,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a `generation_config.json` that `of` makes equal settings of.

        What the checkpoint said stays, but for what has changed since.

        Returns:
            The fields.

        Raises:
            ValueError: If a rule or the length penalty has no counterpart there.
        """
        if self.said is None:
            return self._followed({})
        said, before = self.said.settings, self.said.followed
        now = self._followed(said)
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        stale = {
            spelling
            for name in {*changed, *(before.keys() - now.keys())}
            for spelling in _SPELLINGS.get(name, (name,))
        }
        return {name: each for name, each in said.items() if name not in stale} | changed

    def to_file(self, config: Seq2SeqConfig) -> dict[str, Any]:
        """Return the `generation_config.json` of a model: the settings, and its special ids."""
        settings, ids = self.to_dict(), special_ids(config)
        ends = settings.get("eos_token_id")
        if isinstance(ends, list) and config.end_id in ends:
            ids["eos_token_id"] = ends
        return {**settings, **ids}

    def _followed(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is followed as theirs, with what else stands in its fields."""
        settings: dict[str, Any] = {
            "max_length": self.max_length + 1,
            "early_stopping": next(
                k for k, ours in _STOPPING.items() if ours == self.early_stopping
            ),
            **_theirs(self.strategy),
        }
        words = _long_words(said)
        for constraint in self.constraints:
            match constraint:
                case MinLength(length=length, source_factor=0.0):
                    settings["min_length"] = length
                case NoRepeatNgram(size=size):
                    settings["no_repeat_ngram_size"] = size
                case ForbiddenTokens(tokens=tokens):
                    words = [*([token] for token in tokens), *words]
                case _:
                    raise ArgumentError(
                        "A generation_config.json has no such rule about the next token.",
                        "MinLength without source_factor, NoRepeatNgram or ForbiddenTokens",
                        "Leave it out with dataclasses.replace: "
                        "generation=dataclasses.replace(generation, constraints=(...)).",
                        value=constraint,
                    )
        if words:
            settings["bad_words_ids"] = words
        if self.forced_first is not None:
            settings["forced_bos_token_id"] = self.forced_first
        return settings


def special_ids(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return the fields of a `generation_config.json` that name the special ids of a model."""
    return {
        "pad_token_id": config.pad_id,
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.end_id,
    }


def _require_types(values: Mapping[str, Any], vocabulary_size: int | None) -> None:
    """Refuse followed settings of another type, or out of range."""
    problems = []
    for name, types in _FOLLOWED.items():
        value = values.get(name)
        is_other_bool = bool not in types and isinstance(value, bool)
        if value is not None and (is_other_bool or not isinstance(value, types)):
            expected = " or ".join(kind.__name__ for kind in types)
            problems.append(f"{name} = {value!r:.60}; expected {expected}")
        elif value is not None and values[name] < _LEAST.get(name, values[name]):
            problems.append(f"{name} = {value!r:.60}; expected {_LEAST[name]} or more")
    num_beams = values.get("num_beams")
    # There are as many first tokens to begin with as the vocabulary has.
    most_beams = min(vocabulary_size or MOST_BEAMS, MOST_BEAMS)
    if isinstance(num_beams, int) and num_beams > most_beams:
        problems.append(f"num_beams = {num_beams}; expected at most {most_beams}")
    stopping = values.get("early_stopping")
    if isinstance(stopping, str) and stopping not in _STOPPING:
        problems.append(f"early_stopping = {stopping!r}; expected bool or 'never'")
    for name, lists in (
        ("bad_words_ids", values.get("bad_words_ids")),
        ("suppress_tokens", [values.get("suppress_tokens")]),
    ):
        is_list = isinstance(lists, list | tuple) and name in values
        if is_list and not all(_is_list_of_ids(each) for each in lists or ()):
            problems.append(f"{name} = {values[name]!r:.60}; expected token ids")
    if problems:
        raise ValueError(
            f"Settings of searches are not what they should be: {'; '.join(problems)}. Mend "
            "generation_config.json, or config.json where there is none."
        )


def _is_list_of_ids(value: Any) -> bool:
    is_list = isinstance(value, list | tuple)
    return is_list and all(is_whole(each, 0, LARGEST_WHOLE) for each in value)


def _not_followed(values: Mapping[str, Any], strategy: Strategy) -> Iterator[str]:
    for name, other in _OTHERS.items():
        is_neutral = values.get(name) in (None, *other.neutral, [], {})
        if not is_neutral and isinstance(strategy, other.strategies):
            yield f"{name} = {values[name]!r:.60}"
    if isinstance(strategy, Beam) and values.get("do_sample", False):
        yield "do_sample = True"
    if words := _long_words(values):
        yield f"bad_words_ids = {words!r:.60}"
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        yield f"eos_token_id = {ends!r:.60}"


def _name_of(name: str, values: Mapping[str, Any]) -> str:
    """Return a setting as its checkpoint spells it."""
    spelled = next(each for each in reversed(_SPELLINGS[name]) if each in values)
    return f"{spelled} = {values[spelled]!r}"


def _asked_length(values: Mapping[str, Any], unsaid: int) -> int:
    """Return the number of tokens at most, without the start token."""
    if new := values.get("max_new_tokens"):
        return new
    return values["max_length"] - 1 if "max_length" in values else unsaid


def _strategy(values: Mapping[str, Any]) -> Strategy:
    penalty = AveragePenalty(float(values.get("length_penalty", 1.0)))
    num_beams = values.get("num_beams", 1)
    if num_beams > 1:
        return Beam(num_beams, penalty, early_stopping=_stopping(values))
    if values.get("do_sample", False):
        return Sample(
            float(values.get("temperature", 1.0)),
            values.get("top_k", 50) or None,
            float(values.get("top_p", 1.0)),
        )
    return Greedy(penalty)


def _stopping(values: Mapping[str, Any]) -> EarlyStopping:
    # What a checkpoint does not say is at our default, not at theirs: a search that stops sooner
    # can return less than the best that it would have seen.
    return _STOPPING[values["early_stopping"]] if "early_stopping" in values else False


def _theirs(strategy: Strategy) -> dict[str, Any]:
    match strategy:
        case Beam(num_beams=num_beams, length_penalty=penalty):
            return {"num_beams": num_beams, "length_penalty": _exponent(penalty)}
        case Greedy(length_penalty=penalty):
            return {"num_beams": 1, "do_sample": False, "length_penalty": _exponent(penalty)}
        case Sample(temperature=temperature, top_k=top_k, top_p=top_p):
            return {
                "do_sample": True,
                "temperature": temperature,
                "top_k": top_k or 0,
                "top_p": 1.0 if top_p is None else top_p,
            }
    return {"num_beams": 1, "do_sample": False}


def _exponent(penalty: Any) -> float:
    if isinstance(penalty, NoPenalty):
        return 0.0
    if isinstance(penalty, AveragePenalty):
        return penalty.alpha
    raise ArgumentError(
        "A generation_config.json divides scores by n^alpha.",
        "NoPenalty or AveragePenalty as length penalty of the strategy",
        value=penalty,
    )


def _long_words(values: Mapping[str, Any]) -> list[list[int]]:
    """Return the forbidden words of several tokens."""
    return [list(word) for word in values.get("bad_words_ids") or () if len(word) > 1]


def _min_length(constraint: Constraint) -> int:
    return constraint.length if isinstance(constraint, MinLength) else 0


def _constraints(values: Mapping[str, Any], end_id: int | None) -> tuple[Constraint, ...]:
    found: list[Constraint] = []
    # Theirs counts the start token and not the end; or, of new tokens, neither.
    new = values.get("min_new_tokens")
    if (shortest := values.get("min_length", 0) if new is None else new + 1) > 1:
        found.append(MinLength(shortest))
    if size := values.get("no_repeat_ngram_size", 0):
        found.append(NoRepeatNgram(size))
    words = values.get("bad_words_ids") or []
    # Theirs leaves the end out of these words, and not out of the tokens.
    forbidden = {word[0] for word in words if len(word) == 1} - {end_id}
    forbidden |= set(values.get("suppress_tokens") or [])
    if forbidden:
        found.append(ForbiddenTokens(tuple(sorted(forbidden))))
    return tuple(found)
