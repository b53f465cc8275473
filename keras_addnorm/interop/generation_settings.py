"""How a checkpoint wants its model to be searched: `generation_config.json` and ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_addnorm.decoding import Beam, Greedy, Sample
from keras_addnorm.decoding.constraints import (
    Constraint,
    ForbiddenTokens,
    MinLength,
    NoRepeatNgram,
)
from keras_addnorm.decoding.early_stopping import EarlyStopping
from keras_addnorm.decoding.length_penalties import AveragePenalty, NoPenalty
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.models import Seq2SeqConfig

# When a sentence is done; theirs and ours.
_STOPPING: dict[Any, EarlyStopping] = {False: "current_length", True: True, "never": False}
# Those at which a search of theirs is one of ours; every other value is said not to be followed.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "num_return_sequences": (1,),
    "begin_suppress_tokens": (),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "sequence_bias": (),
    "guidance_scale": (1.0,),
    "penalty_alpha": (),
}


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
    """

    strategy: Strategy
    max_length: int
    constraints: tuple[Constraint, ...] = ()
    early_stopping: EarlyStopping = "current_length"
    forced_first: int | None = None
    not_followed: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any], longest: int) -> GenerationSettings:
        """Make them of a checkpoint's settings.

        Args:
            settings: The fields of `generation_config.json`, or those of an old `config.json`.
            longest: The most tokens that the model is meant to generate.

        Returns:
            The settings.
        """
        values = {name: value for name, value in settings.items() if value is not None}
        # `max_length` counts the start token.
        max_length = values.get("max_new_tokens") or values.get("max_length", longest + 1) - 1
        not_followed = [
            f"{name} = {values[name]!r}"
            for name, neutral in _NEUTRAL.items()
            if name in values and values[name] not in (*neutral, [], {})
        ]
        words = values.get("bad_words_ids", [])
        if longer := [word for word in words if len(word) > 1]:
            not_followed.append(f"bad_words_ids = {longer!r:.60}")
        return cls(
            _strategy(values),
            max(1, min(max_length, longest)),
            _constraints(values),
            _stopping(values),
            values.get("forced_bos_token_id"),
            tuple(not_followed),
        )

    def with_beams(self, num_beams: int) -> Strategy:
        """Return the same search with another number of hypotheses."""
        penalty = getattr(self.strategy, "length_penalty", AveragePenalty(1.0))
        if num_beams == 1:
            return Greedy(penalty)
        return Beam(num_beams, penalty, early_stopping=self.early_stopping)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a `generation_config.json` that `of` makes equal settings of."""
        settings: dict[str, Any] = {
            "max_length": self.max_length + 1,
            "early_stopping": next(
                k for k, ours in _STOPPING.items() if ours == self.early_stopping
            ),
            **_theirs(self.strategy),
        }
        for constraint in self.constraints:
            match constraint:
                case MinLength(length=length):
                    settings["min_length"] = length
                case NoRepeatNgram(size=size):
                    settings["no_repeat_ngram_size"] = size
                case ForbiddenTokens(tokens=tokens):
                    settings["bad_words_ids"] = [[token] for token in tokens]
        if self.forced_first is not None:
            settings["forced_bos_token_id"] = self.forced_first
        return settings


def special_ids(config: Seq2SeqConfig) -> dict[str, int]:
    """Return the fields of a `generation_config.json` that name the special ids of a model."""
    return {
        "pad_token_id": config.pad_id,
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.end_id,
    }


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
    return _STOPPING.get(values.get("early_stopping", False), True)


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
    raise ValueError(
        "A generation_config.json divides scores by n^alpha. Expected NoPenalty or AveragePenalty "
        f"as length penalty of the strategy. Received: {penalty!r}"
    )


def _constraints(values: Mapping[str, Any]) -> tuple[Constraint, ...]:
    found: list[Constraint] = []
    # Theirs counts the start token and not the end; or, of new tokens, neither.
    new = values.get("min_new_tokens")
    if (shortest := values.get("min_length", 0) if new is None else new + 1) > 1:
        found.append(MinLength(shortest))
    if size := values.get("no_repeat_ngram_size", 0):
        found.append(NoRepeatNgram(size))
    words = values.get("bad_words_ids") or []
    forbidden = {word[0] for word in words if len(word) == 1}
    forbidden |= set(values.get("suppress_tokens") or [])
    if forbidden:
        found.append(ForbiddenTokens(tuple(sorted(forbidden))))
    return tuple(found)
