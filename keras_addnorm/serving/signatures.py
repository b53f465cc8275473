"""The functions of an exported model: strings in, strings and numbers out.

Strings, look-up tables and ragged tensors stay outside; inside is a numeric core on matrices of
token ids, which may be compiled by XLA.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Lexicon, Shortlist, Strategy
from keras_addnorm.decoding.score import teacher_forced
from keras_addnorm.decoding.search import Request, search
from keras_addnorm.decoding.strategies import serialize
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving.request_batches import Buckets, Function, Outputs, map_in_batches
from keras_addnorm.serving.stored_weights import StoredWeights, TurnedTable
from keras_addnorm.serving.text_encoder import TEXTS, TextEncoder

_IDS = tf.TensorSpec([None, None], tf.int32)
_SIDES = tuple(tf.TensorSpec([None], tf.string, side) for side in ("source", "target"))


def returns_several(name: str, strategy: Strategy) -> bool:
    """Says whether a signature returns a list for each text, with alignments and pieces.

    Args:
        name: Its name. `translate_nbest` does, even if it finds one hypothesis: clients rely on it.
        strategy: Its strategy.

    Returns:
        Whether its outputs have the axis of hypotheses, N.
    """
    return name == "translate_nbest" or strategy.num_return > 1


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How an exported model decodes.

    Args:
        strategies: The strategies by the name of their signature; the first one is the default.
        max_length: Number of tokens at most, T.
        buckets: The shapes of the numeric core.
        shortlist: The target tokens that are weighed for a batch; `None` for all.
    """

    strategies: Mapping[str, Strategy]
    max_length: int
    buckets: Buckets
    shortlist: Shortlist | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for the card."""
        strategies = {name: serialize(strategy) for name, strategy in self.strategies.items()}
        return {
            "strategies": strategies,
            "max_length": self.max_length,
            "batch_buckets": list(self.buckets.batch),
            "length_buckets": list(self.buckets.length),
            "shortlist": None if self.shortlist is None else self.shortlist.size,
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
        self._texts = TextEncoder(tokenizers, model.config.max_length - 1, decoding.max_length - 1)
        self.tables = self._texts.tables
        weights = StoredWeights(model, storage)
        self.weights = weights.stored
        # A projection's kernel lies as searches read it, and each batch has a table of its own of
        # a shortlist's tokens.
        self.turned_table = None
        if model.vocabulary_projection is None and decoding.shortlist is None:
            embeddings = model.decoder_embedding.embeddings
            self.turned_table = weights.turned(embeddings, model.compute_dtype)
        if decoding.shortlist is not None:
            lexicon = {k: tf.Variable(v) for k, v in vars(decoding.shortlist.lexicon).items()}
            self.lexicon = tuple(lexicon.values())
            shortlist = dataclasses.replace(decoding.shortlist, lexicon=Lexicon(**lexicon))
            decoding = dataclasses.replace(decoding, shortlist=shortlist)
        self._decoding = decoding
        self._core = _Core(model, weights, self.turned_table, decoding)

    def signatures(self) -> dict[str, Any]:
        """Traces the functions.

        Returns:
            Concrete functions by name.
        """
        strategies = self._decoding.strategies
        functions = {}
        for name, strategy in strategies.items():
            several = returns_several(name, strategy)
            core = self._core.decode(strategy, several)
            functions[name] = self._translate(strategy, several, core)
            core = self._core.decode(strategy, several, under_xla=True)
            compiled = self._decoding.buckets.compile(core, self._core.pad_id)
            functions[f"{name}_xla"] = self._translate(strategy, several, compiled)
        functions = {name: _concrete(function, TEXTS) for name, function in functions.items()}
        return {
            "serving_default": functions[next(iter(strategies))],
            **functions,
            "score": _concrete(self._score, *_SIDES),
            "tokenize": _concrete(self._tokenize, TEXTS),
            "encode": _concrete(self._encode, TEXTS),
        }

    def _translate(self, strategy: Strategy, several: bool, core: Function) -> Function:
        longest, count = self._decoding.max_length, strategy.num_return
        outputs = {
            "ids": tf.TensorSpec([None, count, longest], tf.int32),
            "scores": tf.TensorSpec([None, count], tf.float32),
        }
        if several:
            outputs["alignments"] = tf.TensorSpec([None, count, longest], tf.int32)

        def translate(texts: tf.Tensor) -> Outputs:
            """Translates texts, (B,)."""
            found = self._in_batches(core, [self._texts.source_ids(texts)], outputs)
            ids = tf.reshape(found.pop("ids"), [-1, longest])
            translations = self._texts.target.detokenize(ids)
            if not several:
                return {"translations": translations, "scores": found["scores"][:, 0]}
            pieces = self._texts.target.pieces(ids)
            return {
                "translations": tf.reshape(translations, [-1, count]),
                "pieces": tf.reshape(pieces, [-1, count, longest]),
                **found,
            }

        return translate

    def _score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Scores given translations of the texts at the same places, each (B,)."""
        sources, targets = self._texts.source_ids(source), self._texts.target_ids(target)
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
        ids = self._texts.source_ids(texts)
        is_token = tf.cast(tf.not_equal(ids, self._core.pad_id), tf.int32)
        return {
            "token_ids": ids,
            "pieces": self._texts.source.pieces(ids),
            "lengths": tf.reduce_sum(is_token, 1),
        }

    def _encode(self, texts: tf.Tensor) -> Outputs:
        """Returns the encoder's output, (B, S, D), zero at padding, and its mean, (B, D)."""
        ids = self._texts.source_ids(texts)
        width = self._core.hidden_dim
        outputs = {"states": tf.TensorSpec([None, None, width], tf.float32)}
        longest = tf.shape(ids)[1]

        def encode(ids: tf.Tensor) -> Outputs:
            states, mask = self._core.encode(ids)
            states = tf.where(mask[..., None], tf.cast(states, tf.float32), 0.0)
            return {"states": _with_columns(states, longest)}  # So that batches fit together.

        states = self._in_batches(encode, [ids], outputs)["states"]
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, self._core.pad_id), tf.float32), 1)
        mean = tf.math.divide_no_nan(tf.reduce_sum(states, 1), lengths[:, None])
        return {"pooled": mean, "states": states}

    def _in_batches(
        self, function: Function, ids: list[tf.Tensor], outputs: Mapping[str, tf.TensorSpec]
    ) -> Outputs:
        size = self._decoding.buckets.batch[-1]
        return map_in_batches(function, ids, outputs, batch_size=size, pad_id=self._core.pad_id)


class _Core:
    """The numeric functions. No `tf.Module`: what it holds is not saved by itself."""

    def __init__(
        self,
        model: Seq2SeqTransformer,
        weights: StoredWeights,
        turned_table: TurnedTable | None,
        decoding: Decoding,
    ) -> None:
        self._traces = _Traces(weights)
        self._model = _SharedModel(model, self._traces, turned_table, decoding.max_length)
        self._max_length = decoding.max_length
        self._shortlist = decoding.shortlist
        self._strategies = decoding.strategies.values()
        self.encode = self._model.encode
        self.pad_id = model.config.pad_id
        self.hidden_dim = model.config.hidden_dim

    def decode(self, strategy: Strategy, several: bool, under_xla: bool = False) -> Function:
        """Returns the function from source ids, (B, S), to hypotheses: `several` with alignments.

        XLA wants loops that TensorFlow has not taken apart, so a search is traced once for it.
        """
        widest = max(
            (other for other in self._strategies if other.finds_all_of(strategy)),
            key=lambda other: other.num_return,
        )
        request = Request(widest, self._max_length, under_xla=under_xla)
        count = strategy.num_return

        def find(source_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            found = search(self._model, source_ids, request, shortlist=self._shortlist)
            return found.ids, found.scores

        traced = self._traces.get(("search", widest, under_xla), find, _IDS)

        def decode(source_ids: tf.Tensor) -> Outputs:
            ids, scores = traced(source_ids)
            outputs = {"ids": ids[:, :count], "scores": scores[:, :count]}
            if several:
                outputs["alignments"] = self._align(source_ids, outputs["ids"])
            return outputs

        return decode

    def score(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Outputs:
        """Scores targets, (B, T), token by token."""
        target_ids = _with_columns(target_ids, self._max_length)
        target_ids = tf.ensure_shape(target_ids, [None, self._max_length])
        tokens, _ = teacher_forced(self._model, source_ids, target_ids[:, None], layer=None)
        return {"token_log_probabilities": tokens[:, 0]}

    def _align(self, source_ids: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the source position that each token of the hypotheses looks at, (B, N, T)."""
        _, attention = teacher_forced(self._model, source_ids, ids, layer=-1)
        best = tf.argmax(attention, axis=-1, output_type=tf.int32)
        return tf.where(ids == self.pad_id, -1, best)


class _Traces:
    """Functions that compute with the stored weights, each traced once wherever it is called.

    A function that calls them holds one operation for each: whoever loads the file takes time for
    every operation in it.
    """

    def __init__(self, weights: StoredWeights) -> None:
        self._weights = weights
        self._functions: dict[Any, Callable[..., Any]] = {}

    def get(
        self, key: Any, function: Callable[..., Any], *specs: tf.TensorSpec
    ) -> Callable[..., Any]:
        """Returns the function of this key, made of `function` the first time."""

        def with_weights(*tensors: tf.Tensor) -> Any:
            with self._weights.in_use():
                return function(*tensors)

        if key not in self._functions:
            self._functions[key] = tf.function(with_weights, specs, autograph=False)
        return self._functions[key]


class _SharedModel:
    """A model whose encoder and whose decoder over whole sequences are traced once."""

    def __init__(
        self,
        model: Seq2SeqTransformer,
        traces: _Traces,
        turned_table: TurnedTable | None,
        max_length: int,
    ) -> None:
        self._model = model
        self._turned_table = turned_table
        width = model.config.hidden_dim
        self.encode = traces.get("encode", model.encode, _IDS)
        self._decode_sequence = traces.get(
            "decode_sequence",
            functools.partial(model.decode_sequence, return_attention_scores=True),
            tf.TensorSpec([None, max_length], tf.int32),
            tf.TensorSpec([None, None, width], model.compute_dtype),
            tf.TensorSpec([None, None], tf.bool),
        )

    def decode_sequence(
        self, *tensors: tf.Tensor, return_attention_scores: bool = False
    ) -> tuple[Any, ...]:
        """Decodes; see `Seq2SeqTransformer`."""
        outputs = self._decode_sequence(*tensors)
        return outputs if return_attention_scores else outputs[:1]

    def to_logits(
        self, turned: Any, tokens: tf.Tensor | None = None
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """Projects on the vocabulary; see `Seq2SeqTransformer`."""
        table = None if self._turned_table is None else self._turned_table.value()
        return self._model.to_logits(turned, tokens, table)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _with_columns(x: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    missing = length - tf.shape(x)[1]
    return tf.pad(x, [[0, 0], [0, missing], *[[0, 0]] * (x.shape.rank - 2)])


def _concrete(function: Function, *specs: tf.TensorSpec) -> Any:
    traced = tf.function(function, input_signature=specs, autograph=False)
    return traced.get_concrete_function()
