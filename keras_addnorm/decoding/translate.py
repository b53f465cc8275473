"""From text to text, in Python."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import require_bool, require_int
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.text import meaningful_text
from keras_addnorm.basics.translation import Translation
from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.checks import pad_rows
from keras_addnorm.decoding.search import Search, takes_search
from keras_addnorm.decoding.splitting import EndOnly, join, make_segments


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


@takes_search()
def translate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    search: Search,
    source_language: str | None = None,
    target_language: str | None = None,
    batch_size: int = 64,
    jit_compile: bool = True,
    done: Callable[[int], object] | None = None,
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
        search: How to search: a `Search`, or its fields: a strategy, and keywords such as
            `num_beams`, `length_penalty`, `max_length` and `splitting`. A strategy with
            `num_return` N > 1 fills `n_best` with all N. A `target_prefix` is the same for all
            sentences, `(P,)`, and stands behind what the text format puts there.
        source_language: The language of the texts, where the text format of the tokenizers has a
            place for it.
        target_language: The language to translate into, likewise.
        batch_size: Number of sentences that are decoded together.
        jit_compile: Whether TensorFlow compiles with XLA.
        done: Is called after each batch with the number of texts that are translated.

    Returns:
        The translations.

    Raises:
        TypeError: If the model or the tokenizer is something else.
        ValueError: If `texts` is not a list of strings, the tokenizer's vocabulary is not the
            model's, a language is missing or unknown, or an option does not fit.
        FloatingPointError: If logits are not finite; see `Seq2SeqTransformer.generate`.
    """
    is_list = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
    # A generator can be read once only: first make a list of it, then look into it.
    texts = list(texts) if is_list else texts
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise ArgumentError("translate works on a list of sentences.", "a list of str", value=texts)
    texts = list(map(meaningful_text, texts))
    require_bool(jit_compile=jit_compile)
    require_int("`batch_size` sentences are decoded together.", batch_size=batch_size)
    _require_model_and_tokenizer(model, tokenizer)
    source_tokenizer = getattr(tokenizer, "source", tokenizer)
    target_tokenizer = getattr(tokenizer, "target", tokenizer)
    config = model.config
    _check_vocabulary("source", source_tokenizer.vocabulary_size, config.source_vocabulary_size)
    _check_vocabulary("target", target_tokenizer.vocabulary_size, config.target_vocabulary_size)

    text_format = _text_format(tokenizer, config, source_language, target_language)
    segments = make_segments(texts, source_tokenizer, search.splitting, config, text_format)
    search = search.for_texts(
        target_tokenizer, text_format.target_prefix, text_format.is_prefix_free
    )
    rows = segments.rows
    text_of_row = np.repeat(np.arange(len(texts)), np.diff(segments.first_rows))
    waiting = np.diff(segments.first_rows)
    found: list[list[_Hypothesis]] = [[] for _ in rows]
    for batch in _batches_by_length(rows, batch_size):
        ids, scores = model.generate(
            # A short last batch of many is filled up, so that it compiles nothing new.
            pad_rows([rows[i] for i in batch], config.pad_id, min(batch_size, len(rows))),
            search=search,
            jit_compile=jit_compile,
        )
        # (B, N, T), also where there is no axis N
        scores = np.reshape(scores, (len(ids), -1))
        ids = np.reshape(ids, (*scores.shape, -1))
        lengths = (ids != config.pad_id).sum(-1)
        for i, *of_row in zip(batch, ids, scores, lengths, strict=False):
            decoded = target_tokenizer.decode_batch(of_row[0].tolist())
            found[i] = list(map(_Hypothesis, decoded, of_row[1].tolist(), of_row[2].tolist()))
        if done is not None:
            np.subtract.at(waiting, text_of_row[batch], 1)
            done(int((waiting == 0).sum()))
    penalty = search.penalty
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


def _text_format(
    tokenizer: Any, config: Any, source_language: str | None, target_language: str | None
) -> Any:
    """Return what stands around the tokens of a text."""
    languages = source_language, target_language
    if not hasattr(tokenizer, "with_languages"):
        if languages != (None, None):
            raise ArgumentError(
                "The tokenizer says nowhere how a language is named.",
                "a TokenizerPair with a text format",
                received=f"source_language={source_language!r}, "
                f"target_language={target_language!r} and a {type(tokenizer).__name__}",
            )
        return EndOnly(config.end_id)
    if languages != (None, None):
        tokenizer = tokenizer.with_languages(*languages)
    return tokenizer.bound_format


def _require_model_and_tokenizer(model: Any, tokenizer: Any) -> None:
    if not hasattr(model, "config") or not hasattr(model, "generate"):
        raise ArgumentTypeError(
            "translate needs a model with a config and a search.",
            "a Seq2SeqTransformer",
            value=model,
        )
    for side in ("source", "target"):
        if not hasattr(getattr(tokenizer, side, tokenizer), "vocabulary_size"):
            raise ArgumentTypeError(
                "translate needs the tokenizer of the model.",
                "a tokenizer for both sides, or a TokenizerPair",
                value=tokenizer,
            )


def _check_vocabulary(side: str, received: int, expected: int) -> None:
    if received != expected:
        raise ArgumentError(
            "The tokenizer does not belong to the model.",
            f"a {side} vocabulary of {expected} tokens",
            "Load the tokenizer that was saved with it.",
            value=received,
        )
