"""From text to text, in Python."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import require_whole
from keras_addnorm.basics.unicode_text import meaningful_text
from keras_addnorm.decoding import length_penalties, strategies
from keras_addnorm.decoding.checks import id_array, listed
from keras_addnorm.decoding.constraints import ConstraintLike, forbidden_by
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import Prefix
from keras_addnorm.decoding.shortlist import Shortlist
from keras_addnorm.decoding.splitting import EndOnly, SplittingLike, join, make_segments
from keras_addnorm.decoding.strategies import StrategyLike


class Translation(NamedTuple):
    """One translation.

    Args:
        text: The text.
        score: Its sum of log-probabilities, divided by the length penalty. Of a text of several
            segments, the sum over all of them, divided by the penalty of all their tokens.
    """

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Translations:
    """Translated texts and their scores, in the order of the inputs.

    Args:
        texts: The best translation of each input; "" where the search found none.
        scores: Their scores, `(n,)`: sums of log-probabilities, divided by the length penalty.
        n_best: All translations of each input that the strategy returned, the best first. The k-th
            of a text of several segments joins the k-th of each.
    """

    texts: list[str]
    scores: np.ndarray
    n_best: list[list[Translation]]


def translate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    strategy: StrategyLike | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int | None = None,
    constraints: Iterable[ConstraintLike] = (),
    target_prefix: Prefix | Sequence[int] | None = None,
    shortlist: Shortlist | None = None,
    splitting: SplittingLike = "sentences",
    source_language: str | None = None,
    target_language: str | None = None,
    batch_size: int = 64,
    jit_compile: bool = True,
) -> Translations:
    """Translate texts of any length with a model and its tokenizer.

    A text is split into sentences, these are translated together and joined again, with the line
    breaks of the text.

    Args:
        model: A `Seq2SeqTransformer`.
        tokenizer: A `Tokenizer` for both sides, or a pair with `source` and `target`. Where the
            target has `unused_ids`, ids of no piece, they are never generated.
        texts: The texts. An empty one gives an empty translation with the score 0. NULs and halves
            of surrogate pairs mean nothing and are left out.
        strategy: How to search: a strategy, its name or its dict; with `num_return` N > 1, all N
            are in `n_best`.
        num_beams: The short way: number of hypotheses; 1, as `None`, is greedy search.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate for a sentence at most; `None` for
            `config.max_length`.
        constraints: Rules about the next token; they hold for each sentence.
        target_prefix: Tokens that the translation of each sentence begins with, `(P,)`, or a
            `Prefix` of them; its log-probabilities may count as 0. They stand behind what the text
            format puts there.
        shortlist: The target tokens that are weighed for a batch, instead of all.
        splitting: How texts are split: `"sentences"`; `"long_texts"` for only those of more than
            `config.max_length - 1` tokens; `"none"` to cut those off; or a `Splitting`, such as
            `Sentences("de")`, which knows German abbreviations.
        source_language: The language of the texts, where the text format of the tokenizers has a
            place for it.
        target_language: The language to translate into, likewise.
        batch_size: Number of sentences that are decoded together.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        The translations.

    Raises:
        TypeError: If the model or the tokenizer is something else.
        ValueError: If `texts` is not a list of strings, the tokenizer's vocabulary is not the
            model's, a language is missing or unknown, or an option does not fit.
        FloatingPointError: If logits are not finite; see `Seq2SeqTransformer.generate`.
    """
    strategy = strategies.choose(strategy, num_beams, length_penalty)
    is_list = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
    # A generator can be read once only: first make a list of it, then look into it.
    texts = list(texts) if is_list else texts
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "translate works on a list of sentences. Expected a list of str. "
            f"Received: {texts!r:.80}"
        )
    texts = list(map(meaningful_text, texts))
    require_whole("`batch_size` sentences are decoded together.", batch_size=batch_size)
    _require_model_and_tokenizer(model, tokenizer)
    source_tokenizer = getattr(tokenizer, "source", tokenizer)
    target_tokenizer = getattr(tokenizer, "target", tokenizer)
    config = model.config
    _check_vocabulary("source", source_tokenizer.vocabulary_size, config.source_vocabulary_size)
    _check_vocabulary("target", target_tokenizer.vocabulary_size, config.target_vocabulary_size)

    around = _text_format(tokenizer, config, source_language, target_language)
    segments = make_segments(texts, source_tokenizer, splitting, config, around)
    prefix = _with_format(around, target_prefix)
    rows = segments.rows
    constraints = (*listed("Constraints", constraints), *forbidden_by(target_tokenizer))
    found: list[list[_Hypothesis]] = [[] for _ in rows]
    for batch in _batches_by_length(rows, batch_size):
        ids, scores = model.generate(
            _pad([rows[i] for i in batch], config.pad_id, min(batch_size, len(rows))),
            strategy,
            max_length=max_length,
            constraints=constraints,
            target_prefix=prefix,
            shortlist=shortlist,
            jit_compile=jit_compile,
        )
        # (B, N, T), also where there is no axis N
        ids = np.reshape(ids, (len(ids), strategy.num_return, -1))
        scores = np.reshape(scores, (-1, strategy.num_return))
        lengths = (ids != config.pad_id).sum(-1)
        for i, *of_row in zip(batch, ids, scores, lengths, strict=False):
            decoded = target_tokenizer.decode_batch(of_row[0].tolist())
            found[i] = list(map(_Hypothesis, decoded, of_row[1].tolist(), of_row[2].tolist()))
    penalty = length_penalties.get(strategy.length_penalty)
    n_best = []
    for first, end in itertools.pairwise(segments.first_rows):
        joined = _join(found[first:end], rows[first:end], segments.joints[first:end], penalty)
        n_best.append([joined[0], *(each for each in joined[1:] if each.score > -np.inf)])
    return Translations(
        [best[0].text for best in n_best],
        np.array([best[0].score for best in n_best], dtype="float32"),
        n_best,
    )


class _Hypothesis(NamedTuple):
    """A translation of a segment; its length is the number of tokens, the end token included."""

    text: str
    score: float
    length: int


def _join(
    found: list[list[_Hypothesis]],
    rows: list[list[int]],
    joints: list[str],
    penalty: length_penalties.LengthPenalty,
) -> list[Translation]:
    """Join the k-th hypotheses of all segments of a text, for each k."""
    if len(found) == 1:
        return [Translation(text, score) for text, score, _ in found[0]]
    # Segments without tokens say nothing, whatever k is.
    found = [
        hypotheses if row else [_Hypothesis("", 0.0, 0)] * len(hypotheses)
        for hypotheses, row in zip(found, rows, strict=True)
    ]
    joined = []
    for hypotheses in zip(*found, strict=True):
        texts, scores, lengths = zip(*hypotheses, strict=True)
        divisors = ops.convert_to_numpy(penalty.divisor(np.array([*lengths, sum(lengths)])))
        total = float((np.array(scores) * divisors[:-1]).sum() / divisors[-1])
        joined.append(Translation(join(texts, joints), total))
    return joined


def _batches_by_length(rows: list[list[int]], batch_size: int) -> Iterator[list[int]]:
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _pad(rows: list[list[int]], pad_id: int, batch_size: int) -> np.ndarray:
    # A short last batch of many is filled up with empty rows, so that it compiles nothing new.
    padded = np.full((batch_size, max(1, *map(len, rows))), pad_id, dtype="int32")
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


def _text_format(
    tokenizer: Any, config: Any, source_language: str | None, target_language: str | None
) -> Any:
    """Return what stands around the tokens of a text."""
    languages = source_language, target_language
    if not hasattr(tokenizer, "with_languages"):
        if languages != (None, None):
            raise ValueError(
                "The tokenizer says nowhere how a language is named. Expected a TokenizerPair with "
                f"a text format. Received: source_language={source_language!r}, "
                f"target_language={target_language!r} and a {type(tokenizer).__name__}"
            )
        return EndOnly(config.end_id)
    if languages != (None, None):
        tokenizer = tokenizer.with_languages(*languages)
    return tokenizer.bound_format


def _with_format(around: Any, given: Prefix | Sequence[int] | None) -> Prefix | None:
    """Return what outputs begin with: what the text format says, then what is given."""
    if given is None:
        own = around.target_prefix
        return Prefix(own, around.is_prefix_free) if own else None
    given = Prefix.of(given)
    if id_array("target prefix", given.tokens).ndim != 1:
        raise ValueError(
            "A target prefix is the same for all sentences here. Expected tokens of shape "
            f"(length,). Received: {given.tokens!r:.80}"
        )
    if not around.target_prefix:
        return given
    return dataclasses.replace(given, tokens=[*around.target_prefix, *given.tokens])


def _require_model_and_tokenizer(model: Any, tokenizer: Any) -> None:
    if not hasattr(model, "config") or not hasattr(model, "generate"):
        raise TypeError(
            "translate needs a model with a config and a search. Expected a Seq2SeqTransformer. "
            f"Received: {model!r:.80}"
        )
    for side in ("source", "target"):
        if not hasattr(getattr(tokenizer, side, tokenizer), "vocabulary_size"):
            raise TypeError(
                "translate needs the tokenizer of the model. Expected a tokenizer for both sides, "
                f"or a TokenizerPair. Received: {tokenizer!r:.80}"
            )


def _check_vocabulary(side: str, received: int, expected: int) -> None:
    if received != expected:
        raise ValueError(
            f"The tokenizer does not belong to the model. Expected a {side} vocabulary of "
            f"{expected} tokens. Received: {received}. Load the tokenizer that was saved with it."
        )
