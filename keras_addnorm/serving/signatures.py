"""The functions of an exported model: strings in, strings and numbers out.

Strings, look-up tables and ragged tensors stay outside; inside is a numeric core on matrices of
token ids, which may be compiled by XLA.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Strategy
from keras_addnorm.decoding.score import teacher_forced
from keras_addnorm.decoding.search import Request, search
from keras_addnorm.decoding.strategies import serialize
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving.batching import Buckets, Function, Outputs, map_in_batches
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
from keras_addnorm.serving.stored_weights import StoredWeights

_TEXTS = tf.TensorSpec([None], tf.string, "texts")
_SIDES = tuple(tf.TensorSpec([None], tf.string, side) for side in ("source", "target"))


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How an exported model decodes.

    Args:
        strategies: The strategies by the name of their signature; the first one is the default.
        max_length: Number of tokens at most, T.
        buckets: The shapes of the numeric core.
    """

    strategies: Mapping[str, Strategy]
    max_length: int
    buckets: Buckets

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for the card."""
        strategies = {name: serialize(strategy) for name, strategy in self.strategies.items()}
        return {
            "strategies": strategies,
            "max_length": self.max_length,
            "batch_buckets": list(self.buckets.batch),
            "length_buckets": list(self.buckets.length),
        }


class TranslationModule(tf.Module):
    """What is saved: the look-up tables, the weights, and the functions.

    Args:
        model: The trained model.
        tokenizers: Its tokenizers.
        decoding: How it decodes.
        storage: How its weights are stored; see `StoredWeights`.
    """

    def __init__(
        self,
        model: Seq2SeqTransformer,
        tokenizers: TokenizerPair,
        decoding: Decoding,
        storage: str,
    ) -> None:
        super().__init__(name="translation")
        self.source_tokenizer = GraphTokenizer(tokenizers.source)
        self.target_tokenizer = (
            self.source_tokenizer if tokenizers.is_joint else GraphTokenizer(tokenizers.target)
        )
        weights = StoredWeights(model, storage)
        self.weights = weights.stored
        self._decoding = decoding
        self._core = _Core(model, weights, decoding.max_length)

    def signatures(self) -> dict[str, Any]:
        """Traces the functions.

        Returns:
            Concrete functions by name.
        """
        strategies = self._decoding.strategies
        functions = {}
        for name, strategy in strategies.items():
            core = self._core.search(strategy)
            functions[name] = self._translate(strategy, core)
            compiled = self._decoding.buckets.compile(core, self._core.pad_id)
            functions[f"{name}_xla"] = self._translate(strategy, compiled)
        functions = {name: _concrete(function, _TEXTS) for name, function in functions.items()}
        return {
            "serving_default": functions[next(iter(strategies))],
            **functions,
            "score": _concrete(self._score, *_SIDES),
            "tokenize": _concrete(self._tokenize, _TEXTS),
            "encode": _concrete(self._encode, _TEXTS),
        }

    def _translate(self, strategy: Strategy, core: Function) -> Function:
        longest, count = self._decoding.max_length, strategy.num_return
        outputs = {
            "ids": tf.TensorSpec([None, count, longest], tf.int32),
            "scores": tf.TensorSpec([None, count], tf.float32),
        }
        if count > 1:
            outputs["alignments"] = tf.TensorSpec([None, count, longest], tf.int32)

        def translate(texts: tf.Tensor) -> Outputs:
            """Translates texts, (B,)."""
            found = self._in_batches(core, [self._source_ids(texts)], outputs)
            ids = tf.reshape(found.pop("ids"), [-1, longest])
            translations = self.target_tokenizer.detokenize(ids)
            if count == 1:
                return {"translations": translations, "scores": found["scores"][:, 0]}
            pieces = self.target_tokenizer.pieces(ids)
            return {
                "translations": tf.reshape(translations, [-1, count]),
                "pieces": tf.reshape(pieces, [-1, count, longest]),
                **found,
            }

        return translate

    def _score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Scores given translations of the texts at the same places, each (B,)."""
        sources, targets = self._source_ids(source), self._target_ids(target)
        equal = tf.debugging.assert_equal(
            tf.shape(sources)[0],
            tf.shape(targets)[0],
            "Expected one target for each source; received other numbers of them.",
        )
        with tf.control_dependencies([equal]):
            targets = tf.identity(targets)
        outputs = {
            "token_log_probabilities": tf.TensorSpec([None, self._decoding.max_length], tf.float32)
        }
        found = self._in_batches(self._core.score, [sources, targets], outputs)
        return {"scores": tf.reduce_sum(found["token_log_probabilities"], 1), **found}

    def _tokenize(self, texts: tf.Tensor) -> Outputs:
        """Returns the ids that the encoder reads, (B, S), their pieces, and their number, (B,)."""
        ids = self._source_ids(texts)
        is_token = tf.cast(tf.not_equal(ids, self._core.pad_id), tf.int32)
        return {
            "token_ids": ids,
            "pieces": self.source_tokenizer.pieces(ids),
            "lengths": tf.reduce_sum(is_token, 1),
        }

    def _encode(self, texts: tf.Tensor) -> Outputs:
        """Returns the encoder's output, (B, S, D), zero at padding, and its mean, (B, D)."""
        ids = self._source_ids(texts)
        width = self._core.hidden_dim
        outputs = {"states": tf.TensorSpec([None, None, width], tf.float32)}
        states = self._in_batches(self._core.encode(tf.shape(ids)[1]), [ids], outputs)["states"]
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, self._core.pad_id), tf.float32), 1)
        mean = tf.math.divide_no_nan(tf.reduce_sum(states, 1), lengths[:, None])
        return {"pooled": mean, "states": states}

    def _in_batches(
        self, function: Function, ids: list[tf.Tensor], outputs: Mapping[str, tf.TensorSpec]
    ) -> Outputs:
        size = self._decoding.buckets.batch[-1]
        return map_in_batches(function, ids, outputs, batch_size=size, pad_id=self._core.pad_id)

    def _source_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the rows that the encoder reads, (B, S); those of blank texts are padding."""
        tokens = self.source_tokenizer.tokenize(texts)[:, : self._core.max_source_tokens]
        is_filled = tf.cast(tokens.row_lengths() > 0, tf.int64)
        return self._with_ends(tokens, is_filled)

    def _target_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the rows that the decoder is to predict, (B, T)."""
        tokens = self.target_tokenizer.tokenize(texts)[:, : self._decoding.max_length - 1]
        return self._with_ends(tokens, tf.ones_like(tokens.row_lengths()))

    def _with_ends(self, tokens: tf.RaggedTensor, has_end: tf.Tensor) -> tf.Tensor:
        ends = tf.fill([tf.reduce_sum(has_end)], self._core.end_id)
        ids = tf.concat([tokens, tf.RaggedTensor.from_row_lengths(ends, has_end)], 1)
        rows = ids.to_tensor(self._core.pad_id)
        # The encoder wants a column, even if no text has a token.
        missing = tf.maximum(1 - tf.shape(rows)[1], 0)
        return tf.pad(rows, [[0, 0], [0, missing]], constant_values=self._core.pad_id)


class _Core:
    """The numeric functions. No `tf.Module`: what it holds is not saved by itself."""

    def __init__(self, model: Seq2SeqTransformer, weights: StoredWeights, max_length: int) -> None:
        self._model = model
        self._weights = weights
        self._max_length = max_length
        self.pad_id = model.config.pad_id
        self.end_id = model.config.end_id
        self.hidden_dim = model.config.hidden_dim
        self.max_source_tokens = model.config.max_length - 1

    def search(self, strategy: Strategy) -> Function:
        request = Request(strategy, self._max_length)

        def decode(source_ids: tf.Tensor) -> Outputs:
            with self._weights.in_use():
                found = search(self._model, source_ids, request)
                outputs = {"ids": found.ids, "scores": found.scores}
                if strategy.num_return > 1:
                    _, attention = teacher_forced(self._model, source_ids, found.ids, layer=-1)
                    best = tf.argmax(attention, axis=-1, output_type=tf.int32)
                    outputs["alignments"] = tf.where(found.ids == self.pad_id, -1, best)
            return outputs

        return decode

    def score(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Outputs:
        """Scores targets, (B, T), token by token."""
        target_ids = _with_columns(target_ids, self._max_length)
        target_ids = tf.ensure_shape(target_ids, [None, self._max_length])
        with self._weights.in_use():
            tokens, _ = teacher_forced(self._model, source_ids, target_ids[:, None], layer=None)
        return {"token_log_probabilities": tokens[:, 0]}

    def encode(self, length: tf.Tensor) -> Function:
        """Encodes to a fixed number of columns, so that batches fit together."""

        def encode(source_ids: tf.Tensor) -> Outputs:
            with self._weights.in_use():
                states, mask = self._model.encode(source_ids)
            states = tf.where(mask[..., None], tf.cast(states, tf.float32), 0.0)
            return {"states": _with_columns(states, length)}

        return encode


def _with_columns(x: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    missing = length - tf.shape(x)[1]
    return tf.pad(x, [[0, 0], [0, missing], *[[0, 0]] * (x.shape.rank - 2)])


def _concrete(function: Function, *specs: tf.TensorSpec) -> Any:
    traced = tf.function(function, input_signature=specs, autograph=False)
    return traced.get_concrete_function()
