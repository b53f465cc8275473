"""What a search is given, keeps and returns: sentences, a prefix, the cache, hypotheses."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.decoding.constraints import Constraint
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.tensor_ops import IMPOSSIBLE, best_first, is_possible, select, take

Tensor = Any


class Cache(NamedTuple):
    """The cache of a search: two nested structures of tensors.

    The first axis of each tensor counts sentences, or equal blocks of entries of each sentence.

    Args:
        rows: The state of hypotheses: the first axis of a tensor counts rows, which are reordered
            with the hypotheses. An object with a method `reorder_rows` (the shared caches of an
            engine) reorders itself.
        fixed: The data of sentences, the same at each step.
    """

    rows: Any
    fixed: Any = ()


def reorder_rows(cache: Cache, rows: Tensor) -> Cache:
    """Return the cache of the hypotheses that continue the given rows, `(N,)` int32."""

    def reordered(node: Any) -> Any:
        if hasattr(node, "reorder_rows"):
            return node.reorder_rows(rows)
        return take(node, rows) if keras.ops.is_tensor(node) else None

    return cache._replace(rows=keras.tree.traverse(reordered, cache.rows))


def grow_cache(cache: Cache, length: int | Tensor, rows_per_beam: int) -> Cache:
    """Return a cache grown to more positions.

    Only objects among its rows that have a method `grow` grow; others have their full length.
    """

    def grown(node: Any) -> Any:
        if hasattr(node, "grow"):
            return node.grow(length, rows_per_beam)
        return node if keras.ops.is_tensor(node) else None

    return cache._replace(rows=keras.tree.traverse(grown, cache.rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix:
    """Tokens that outputs begin with.

    They are part of the output, and of its length. A token that is forced in any case, as the
    target language of a multilingual model is, says nothing about how good an output is, but with
    a length penalty its log-probability changes which one is the best: `is_free` leaves it out.

    Args:
        tokens: Integers, `(B, P)`, padded behind: a row for each sentence; or `(P,)`, the same for
            all. No start, end or padding in between. In traced code a tensor.
        is_free: Whether each token has the log-probability 0, as the `forced_bos_token_id` of
            Hugging Face's `generate`; else the model's own.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.decoding import Prefix
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    config = Seq2SeqConfig.preset("micro", max_length=1)
    model, source = Seq2SeqTransformer(config), np.array([[5, 6, 2], [7, 2, 0]])
    ids, scores = model.generate(source, target_prefix=Prefix([9], is_free=True))
    assert ids.tolist() == [[9], [9]] and scores.tolist() == [0, 0]
    ```
    """

    tokens: Any
    is_free: bool = False

    def __post_init__(self) -> None:
        require_bool(is_free=self.is_free)

    @classmethod
    def of(cls, prefix: Any) -> Prefix:
        """Return a prefix as it is, and of tokens alone one that costs what they cost."""
        return prefix if isinstance(prefix, cls) else cls(prefix)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"tokens": np.asarray(self.tokens).tolist(), "is_free": self.is_free}

    def rows(self, batch_size: int | Tensor) -> Prefix:
        """Return the prefix with int32 tokens `(B, P)`, of `(P,)` the same for each sentence."""
        tokens = ops.cast(self.tokens, "int32")
        if len(tokens.shape) == 1:
            tokens = ops.broadcast_to(tokens, (batch_size, *tokens.shape))
        return dataclasses.replace(self, tokens=tokens)

    def of_sentences(self, sentences: Tensor) -> Prefix:
        """Return the rows of some sentences, by their places in the batch, `(b,)` int32."""
        return dataclasses.replace(self, tokens=take(self.tokens, sentences))

    def repeated(self, count: int) -> Prefix:
        """Return each row `count` times, side by side."""
        return dataclasses.replace(self, tokens=ops.repeat(self.tokens, count, axis=0))

    def force(self, own: Tensor, log_p: Tensor, index: Tensor, pad_id: int) -> Tensor:
        """Return what a search reads at a step: the prefix's token where there is one.

        Args:
            own: The model's log-probabilities, `(N, V)`, for N rows of tokens.
            log_p: Those of what may come where nothing is forced.
            index: The step.
            pad_id: The padding.

        Returns:
            `(N, V)`.
        """
        length = self.tokens.shape[1]
        token = ops.take(self.tokens, ops.minimum(index, ops.cast(length - 1, "int32")), axis=1)
        is_forced = ops.logical_and(index < length, ops.not_equal(token, pad_id))
        is_token = ops.equal(ops.arange(own.shape[-1], dtype="int32"), ops.expand_dims(token, -1))
        cost = ops.zeros_like(own) if self.is_free else own
        forced = ops.where(is_token, cost, IMPOSSIBLE)
        return ops.where(ops.expand_dims(is_forced, -1), forced, log_p)

    def costs_nothing(self, shape: tuple[int, ...], pad_id: int) -> np.ndarray:
        """Return which tokens of outputs are forced and free.

        Args:
            shape: That of the outputs, `(B, N, T)`.
            pad_id: The padding.

        Returns:
            Booleans that broadcast to the shape.
        """
        is_free = np.zeros((shape[0], 1, shape[-1]), bool)
        if self.is_free:
            tokens = np.asarray(self.tokens)[:, : shape[-1]]
            is_free[:, 0, : tokens.shape[1]] = tokens != pad_id
        return is_free


class SearchResult(NamedTuple):
    """The hypotheses that a search returns, the best first.

    Args:
        ids: `(B, N, T)` int32, padded after the end.
        scores: `(B, N)` float32. Where there is no further hypothesis, the row is padding and
            the score minus infinity.
        bad_step: The first step at which a logit was no number, or `max_length`; a scalar.
    """

    ids: Tensor
    scores: Tensor
    bad_step: Tensor


class Hypotheses(NamedTuple):
    """All hypotheses of a search, in any order.

    Args:
        sequences: `(B, M, T)` int32.
        scores: `(B, M)`.
        bad_step: See `SearchResult`.
    """

    sequences: Tensor
    scores: Tensor
    bad_step: Tensor


@dataclasses.dataclass(frozen=True)
class SearchInputs:
    """The sentences of a search, and the rules that hold for their outputs.

    Args:
        source_ids: `(B, S)` int32. A row of padding has nothing to decode: it gives padding and
            the score 0.
        max_length: Number of tokens at most, T.
        ids: The special ids: the columns of the logits that stand for them.
        constraints: Rules about the next token.
        prefix: What the outputs begin with, a row of tokens for each sentence, or `None`. Where
            it forces a token, no other rule holds.
        seed: An int32 scalar for strategies that draw at random, instead of their own; as a
            tensor, another seed needs no new compilation.
        tokens: `(V,)` int32: the token that each column of the logits stands for, where they are a
            `Shortlist`'s; `None` where columns are tokens.
        source_pad_id: The padding of the sources; `None` for that of `ids`.
        num_needed: How many of the N hypotheses of a beam are looked at, an int32 scalar: a
            sentence need not be searched until the others are certain, too. `None` for all N.
    """

    source_ids: Tensor
    max_length: int
    ids: SpecialIds
    constraints: tuple[Constraint, ...] = ()
    prefix: Prefix | None = None
    seed: Tensor | None = None
    tokens: Tensor | None = None
    source_pad_id: int | None = None
    num_needed: Tensor | None = None

    def of(self, sentences: Tensor) -> SearchInputs:
        """Return the inputs of some sentences, by their places in the batch, `(b,)` int32."""
        return dataclasses.replace(
            self,
            source_ids=take(self.source_ids, sentences),
            prefix=None if self.prefix is None else self.prefix.of_sentences(sentences),
        )

    @property
    def batch_size(self) -> int | Tensor:
        """Number of sentences, B."""
        return ops.shape(self.source_ids)[0]

    @property
    def source_mask(self) -> Tensor:
        """`(B, S)`, True at real tokens."""
        pad_id = self.ids.pad_id if self.source_pad_id is None else self.source_pad_id
        return ops.not_equal(self.source_ids, pad_id)

    @property
    def is_empty(self) -> Tensor:
        """`(B,)`, True at sentences with nothing to decode."""
        return ops.logical_not(ops.any(self.source_mask, axis=-1))

    def best(self, hypotheses: Hypotheses, count: int) -> SearchResult:
        """Return the `count` best hypotheses of each sentence."""
        sequences, scores, bad_step = hypotheses
        scores, order = best_first(scores, count)
        is_empty = ops.expand_dims(self.is_empty, -1)
        is_there = ops.logical_and(is_possible(scores), ops.logical_not(is_empty))
        ids = ops.where(ops.expand_dims(is_there, -1), select(sequences, order), self.ids.pad_id)
        # An empty source gives one empty output, with probability 1.
        is_nothing = ops.logical_and(is_empty, ops.equal(ops.arange(count, dtype="int32"), 0))
        missing = ops.where(is_nothing, ops.zeros_like(scores), -float("inf"))
        return SearchResult(ids, ops.where(is_there, scores, missing), bad_step)
