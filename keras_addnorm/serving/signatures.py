"""The functions of an exported model: strings in, strings and numbers out.

Strings, look-up tables and ragged tensors stay outside; inside is a numeric core on matrices of
token ids, which may be compiled by XLA.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Beam, Lexicon, Strategy, length_penalties
from keras_addnorm.decoding.engine import Engine, TFGraphEngine, XLAEngine
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.score import teacher_forced
from keras_addnorm.decoding.search import FittedSearch
from keras_addnorm.decoding.search_inputs import Prefix
from keras_addnorm.decoding.strategies import serialize
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving.errors import NOT_FINITE
from keras_addnorm.serving.graph_segments import concat_rows, join, mean_of_rows, text_of_rows
from keras_addnorm.serving.graph_text_format import LANGUAGE_INPUTS, SIDES, Languages
from keras_addnorm.serving.request_batches import Buckets, Function, Outputs, map_in_batches
from keras_addnorm.serving.stored_weights import StoredWeights
from keras_addnorm.serving.text_encoder import TEXTS, TextEncoder

_IDS = tf.TensorSpec([None, None], tf.int32)
_SIDES = tuple(tf.TensorSpec([None], tf.string, side) for side in SIDES)
_LANGUAGES = {
    side: tf.TensorSpec([None], tf.string, name) for side, name in LANGUAGE_INPUTS.items()
}


def returns_several(name: str, strategy: Strategy) -> bool:
    """Returns whether a signature returns N hypotheses a text, with alignments and pieces."""
    return name == "translate_nbest" or strategy.num_return > 1


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How an exported model decodes.

    Args:
        strategies: The strategies by the name of their signature; the first one is the default.
        search: The search of all of them, but for the strategy; fitted to the model.
        buckets: The shapes of the numeric core.
    """

    strategies: Mapping[str, Strategy]
    search: FittedSearch
    buckets: Buckets

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for the card."""
        search = self.search.to_dict()
        del search["strategy"]
        return {
            "strategies": {name: serialize(one) for name, one in self.strategies.items()},
            **search,
            "batch_buckets": list(self.buckets.batch),
            "length_buckets": list(self.buckets.length),
        }


class TranslationModule(tf.Module):
    """The module that is saved: the lookup tables, the weights, and the functions.

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
        search = decoding.search
        self._texts = TextEncoder(
            tokenizers, model.config.max_length, search.max_length, search.splitting
        )
        self.tables = self._texts.tables
        weights = StoredWeights(model, storage)
        self.weights = weights.stored
        # Not for a separate projection, whose kernel is stored as searches read it, and not with a
        # shortlist, for which each batch has another table.
        self.transposed_table = None
        embeddings = model.decoder_embedding.embeddings
        if model.vocabulary_projection is None and search.shortlist is None:
            self.transposed_table = weights.transposed(embeddings, model.compute_dtype)
        if search.shortlist is not None:
            lexicon = {k: tf.Variable(v) for k, v in vars(search.shortlist.lexicon).items()}
            self.lexicon = tuple(lexicon.values())
            shortlist = dataclasses.replace(search.shortlist, lexicon=Lexicon(**lexicon))
            search = dataclasses.replace(search, shortlist=shortlist)
            decoding = dataclasses.replace(decoding, search=search)
        self._decoding = decoding

        def transposed_table(table: Any) -> tf.Tensor | None:
            if self.transposed_table is None or table is not embeddings:
                return None
            return self.transposed_table.value()

        self._engines = {"": TFGraphEngine(transposed_table), "_xla": XLAEngine(transposed_table)}
        text_format = self._texts.text_format
        # The tokens that all outputs begin with, (P,), behind those of the text format.
        prefix = search.target_prefix
        self._prefix = () if prefix is None else tuple(prefix.tokens)
        self._model = TracedModel(
            model,
            weights,
            decoding,
            text_format.target_length + len(self._prefix),
            text_format.is_prefix_free if prefix is None else prefix.is_free,
            text_format.target_length if text_format.is_prefix_free else 0,
        )

    def signatures(self) -> dict[str, Any]:
        """Traces the functions: concrete functions by name."""
        strategies = self._decoding.strategies
        functions = {}
        for name, strategy in strategies.items():
            several = returns_several(name, strategy)
            find = self._model.search(strategy, several, self._engines[""])
            functions[name] = self._translate(strategy, several, find)
            # XLA wants loops that TensorFlow has not lowered: a search is traced once for it.
            find = self._model.search(strategy, several, self._engines["_xla"])
            compiled = self._decoding.buckets.compile(find, self._model.config.pad_id)
            functions[f"{name}_xla"] = self._translate(strategy, several, compiled)
        text_format = self._texts.text_format
        read = text_format.source_languages
        both = tuple(side for side in _LANGUAGES if side in {*read, *text_format.target_languages})
        functions = {name: _concrete(function, both, TEXTS) for name, function in functions.items()}
        return {
            "serving_default": functions[next(iter(strategies))],
            **functions,
            "score": _concrete(self._score, both, *_SIDES),
            "tokenize": _concrete(self._tokenize, read, TEXTS),
            "encode": _concrete(self._encode, read, TEXTS),
        }

    @property
    def example_languages(self) -> dict[str, str]:
        """A language for each input of a signature that is one."""
        known = self._texts.text_format.example_languages
        return {LANGUAGE_INPUTS[side]: name for side, name in known.items()}

    def _translate(self, strategy: Strategy, several: bool, find: Function) -> Function:
        longest, count = self._decoding.search.max_length, strategy.num_return
        outputs = {
            "ids": tf.TensorSpec([None, count, longest], tf.int32),
            "scores": tf.TensorSpec([None, count], tf.float32),
            "bad_step": tf.TensorSpec([None], tf.int32),
        }
        if several:
            outputs["alignments"] = tf.TensorSpec([None, count, longest], tf.int32)

        penalty = length_penalties.get(strategy.length_penalty)

        def translate(languages: Languages, texts: tf.Tensor) -> Outputs:
            """Translates texts, (B,), whose segments, (R,), are decoded together."""
            segments, source_ids = self._texts.segments(texts, languages)
            prefix = []
            if self._texts.text_format.target_length:
                of_texts = self._texts.target_prefix(languages, tf.size(texts))
                prefix.append(tf.gather(of_texts, text_of_rows(segments.first_rows)))
            if self._prefix:
                own = tf.constant([self._prefix], tf.int32)
                prefix.append(tf.tile(own, [tf.shape(source_ids)[0], 1]))
            if len(prefix) > 1:
                prefix = [tf.concat(prefix, 1)]
            found = self._in_batches(find, [source_ids, *prefix], outputs)
            with tf.control_dependencies([self._require_finite(found["bad_step"])]):
                ids, scores = tf.identity(found["ids"]), tf.identity(found["scores"])
            detokenized = self._texts.target.detokenize(tf.reshape(ids, [-1, longest]))
            lengths = self._lengths(ids)  # (R, N)
            translations, scores = join(
                tf.reshape(detokenized, [-1, count]), scores, lengths, segments, penalty
            )
            if not several:
                return {"translations": translations[:, 0], "scores": scores[:, 0]}
            first_rows, alignments = segments.first_rows, found["alignments"]
            # Where each segment begins in the tokens of its text, (R,).
            begins = tf.cumsum(self._lengths(source_ids), exclusive=True)
            begins -= tf.gather(begins, tf.gather(first_rows, text_of_rows(first_rows)))
            alignments = tf.where(alignments < 0, -1, alignments + begins[:, None, None])
            alignments = self._whole(alignments, lengths, first_rows, -1)
            ids = self._whole(ids, lengths, first_rows, self._model.config.pad_id)
            pieces = self._texts.target.pieces(tf.reshape(ids, [-1, tf.shape(ids)[2]]))
            return {
                "translations": translations,
                "scores": scores,
                "alignments": alignments,
                "pieces": tf.reshape(pieces, tf.shape(ids)),
            }

        return translate

    def _require_finite(self, bad_step: tf.Tensor) -> Any:
        """An operation that fails where a search met a logit that is no number."""
        longest = self._decoding.search.max_length
        first = tf.reduce_min(tf.concat([bad_step, [longest]], 0))
        said = [f"{NOT_FINITE} at step", first, "of the search. Expected finite numbers."]
        return tf.debugging.Assert(first >= longest, said)

    def _lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """The number of tokens, end tokens included, along the last axis."""
        return tf.reduce_sum(tf.cast(tf.not_equal(ids, self._model.config.pad_id), tf.int32), -1)

    def _whole(
        self, values: tf.Tensor, lengths: tf.Tensor, first_rows: tf.Tensor, padding: int
    ) -> tf.Tensor:
        """Puts the segments of a text one behind the other: (R, N, T) -> (B, N, T or longer)."""
        count, num_rows = values.shape[1], tf.shape(first_rows, tf.int64)[0] - 1
        rows = tf.range(count, dtype=tf.int64)[:, None] * first_rows[-1] + first_rows[:-1]
        rows = tf.concat([tf.reshape(rows, [-1]), [count * first_rows[-1]]], 0)
        # (R, N, T) -> (N R, T) -> (N B, T)
        whole = concat_rows(
            tf.reshape(tf.transpose(values, [1, 0, 2]), [-1, values.shape[2]]),
            tf.reshape(tf.transpose(lengths), [-1]),
            rows,
        )
        width = tf.maximum(whole.bounding_shape(1), self._decoding.search.max_length)
        if self._decoding.search.splitting.cuts_off:
            # A server puts requests together where rows have one size.
            width = tf.constant(self._decoding.search.max_length, tf.int64)
        whole = whole.to_tensor(padding, shape=tf.stack([-1, width]))
        whole = tf.transpose(tf.reshape(whole, [count, num_rows, width]), [1, 0, 2])
        return tf.ensure_shape(whole, [None, count, tf.get_static_value(width)])

    def _score(self, languages: Languages, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Scores given translations of the texts at the same places, each (B,)."""
        sources = self._texts.source_ids(source, languages)
        targets = self._texts.target_ids(target, languages)
        equal = tf.debugging.assert_equal(
            tf.shape(sources)[0],
            tf.shape(targets)[0],
            "Expected one target for each source; received other numbers of them.",
        )
        with tf.control_dependencies([equal]):
            targets = tf.identity(targets)
        outputs = {
            "token_log_probabilities": tf.TensorSpec(
                [None, self._decoding.search.max_length], tf.float32
            )
        }
        found = self._in_batches(self._model.score, [sources, targets], outputs)
        tokens = found["token_log_probabilities"]
        said = [f"{NOT_FINITE} while targets were scored. Expected finite numbers."]
        is_number = tf.debugging.Assert(~tf.reduce_any(tf.math.is_nan(tokens)), said)
        with tf.control_dependencies([is_number]):
            tokens = tf.identity(tokens)
        return {"scores": tf.reduce_sum(tokens, 1), "token_log_probabilities": tokens}

    def _tokenize(self, languages: Languages, texts: tf.Tensor) -> Outputs:
        """Returns the texts as they are read, their ids, (B, S), pieces, and number, (B,)."""
        ids, first_rows = self._source_rows(texts, languages)
        whole = concat_rows(ids, self._lengths(ids), first_rows)
        token_ids = whole.to_tensor(self._model.config.pad_id, shape=tf.stack([-1, _width(whole)]))
        return {
            "normalized": self._texts.source.normalize(texts),
            "token_ids": token_ids,
            "pieces": self._texts.source.pieces(token_ids),
            "lengths": tf.cast(whole.row_lengths(), tf.int32),
        }

    def _encode(self, languages: Languages, texts: tf.Tensor) -> Outputs:
        """Returns the encoder's output, (B, S, D), zero at padding, and its mean, (B, D)."""
        ids, first_rows = self._source_rows(texts, languages)
        width = self._model.config.hidden_dim
        outputs = {"states": tf.TensorSpec([None, None, width], tf.float32)}
        longest = tf.shape(ids)[1]

        def encode(ids: tf.Tensor) -> Outputs:
            states, _ = self._model.encode(ids)
            # So that batches fit together.
            return {"states": _with_columns(tf.cast(states, tf.float32), longest, 0.0)}

        states = self._in_batches(encode, [ids], outputs)["states"]
        whole = concat_rows(states, self._lengths(ids), first_rows)
        states = whole.to_tensor(0.0, shape=tf.stack([-1, _width(whole), width]))
        return {"pooled": mean_of_rows(whole), "states": states}

    def _source_rows(self, texts: tf.Tensor, languages: Languages) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of the segments, (R, S), and the first of each text, (B + 1,)."""
        segments, ids = self._texts.segments(texts, languages)
        return ids, segments.first_rows

    def _in_batches(
        self, function: Function, ids: list[tf.Tensor], outputs: Mapping[str, tf.TensorSpec]
    ) -> Outputs:
        size = self._decoding.buckets.batch[-1]
        return map_in_batches(
            function, ids, outputs, batch_size=size, pad_id=self._model.config.pad_id
        )


class TracedModel:
    """A model that computes with the stored weights, in functions that are each traced once.

    A caller's graph contains one operation for each of these functions, instead of a copy: loading
    takes time for every operation in the file. This class is a `Decoder`, but no `tf.Module`: what
    it refers to is not saved on its account.

    Args:
        model: The model.
        weights: Its weights as they are stored.
        decoding: How it decodes.
        prefix_length: Number of tokens that outputs begin with; their ids are an input.
        is_prefix_free: Whether these add nothing to a score of a search.
        num_free_tokens: Number of first tokens that add nothing to the score of a given target.
    """

    def __init__(
        self,
        model: Seq2SeqTransformer,
        weights: StoredWeights,
        decoding: Decoding,
        prefix_length: int = 0,
        is_prefix_free: bool = False,
        num_free_tokens: int = 0,
    ) -> None:
        self.model = model
        self._num_free_tokens = num_free_tokens
        self._prefix_length = prefix_length
        self._is_prefix_free = is_prefix_free
        self.config = model.config
        self._weights = weights
        self._decoding = decoding
        self._functions: dict[Any, Callable[..., Any]] = {}
        self.encode = self._trace("encode", model.encode, _IDS)
        self._decode_sequence = self._trace(
            "decode_sequence",
            functools.partial(model.decode_sequence, return_attention_scores=True),
            tf.TensorSpec([None, decoding.search.max_length], tf.int32),
            tf.TensorSpec([None, None, model.config.hidden_dim], model.compute_dtype),
            tf.TensorSpec([None, None], tf.bool),
        )

    def initial_cache(self, memory: tf.Tensor, batch_size: Any, max_length: Any) -> Any:
        """Returns the caches before the first step."""
        return self.model.initial_cache(memory, batch_size, max_length)

    def decode_step(self, *tensors: Any, **options: Any) -> tuple[Any, ...]:
        """Decodes one position."""
        outputs: tuple[Any, ...] = self.model.decode_step(*tensors, **options)
        return outputs

    def decode_sequence(
        self, *tensors: tf.Tensor, return_attention_scores: bool = False
    ) -> tuple[Any, ...]:
        """Decodes all positions of given targets at once."""
        outputs = self._decode_sequence(*tensors)
        return outputs if return_attention_scores else outputs[:1]

    def search(self, strategy: Strategy, several: bool, engine: Engine) -> Function:
        """Returns the function from source ids, (B, S), to hypotheses: `several` with alignments.

        Args:
            strategy: The strategy. One that finds all that it returns may be traced in its place.
            several: Whether to return alignments too.
            engine: The engine of the search.

        Returns:
            The function.
        """
        strategies = self._decoding.strategies.values()
        widest = max(
            (other for other in strategies if finds_all_of(other, strategy)),
            key=lambda other: other.num_return,
        )
        whole = dataclasses.replace(self._decoding.search, strategy=widest, target_prefix=None)
        count = strategy.num_return

        def find(
            num_needed: tf.Tensor, source_ids: tf.Tensor, *prefix: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            begins = self._prefix(*prefix) if prefix else None
            search = dataclasses.replace(whole, target_prefix=begins)
            found = run_search(self, source_ids, search, engine, num_needed=num_needed)
            # One for each row, so that it is cut and put together as all outputs are.
            bad_step = tf.fill(tf.shape(found.scores)[:1], tf.cast(found.bad_step, tf.int32))
            return found.ids, found.scores, bad_step

        specs = [tf.TensorSpec([], tf.int32), _IDS]
        specs += [_IDS] * bool(self._prefix_length)
        traced = self._trace(("search", widest, engine), find, *specs)

        def decode(source_ids: tf.Tensor, *prefix: tf.Tensor) -> Outputs:
            ids, scores, bad_step = traced(tf.constant(count), source_ids, *prefix)
            outputs = {"ids": ids[:, :count], "scores": scores[:, :count], "bad_step": bad_step}
            if several:
                outputs["alignments"] = self._align(source_ids, outputs["ids"])
            return outputs

        return decode

    def _prefix(self, ids: tf.Tensor) -> Prefix:
        """What outputs begin with, of ids that may have been padded."""
        ids = ids[:, : self._prefix_length]
        ids = _with_columns(ids, self._prefix_length, self.config.pad_id)
        ids = tf.ensure_shape(ids, [None, self._prefix_length])
        return Prefix(ids, self._is_prefix_free)

    def score(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Outputs:
        """Scores targets, (B, T), token by token."""
        target_ids = _with_columns(target_ids, self._decoding.search.max_length, self.config.pad_id)
        target_ids = tf.ensure_shape(target_ids, [None, self._decoding.search.max_length])
        tokens, _ = teacher_forced(self, source_ids, target_ids[:, None], layer=None)
        tokens = tokens[:, 0]
        if self._num_free_tokens:
            is_chosen = tf.range(tf.shape(tokens)[1]) >= self._num_free_tokens
            tokens = tf.where(is_chosen, tokens, 0.0)
        return {"token_log_probabilities": tokens}

    def _align(self, source_ids: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the source position that each token of the hypotheses looks at, (B, N, T)."""
        _, attention = teacher_forced(self, source_ids, ids, layer=-1)
        best = tf.argmax(attention, axis=-1, output_type=tf.int32)
        return tf.where(ids == self.config.pad_id, -1, best)

    def _trace(
        self, key: Any, function: Callable[..., Any], *specs: tf.TensorSpec
    ) -> Callable[..., Any]:
        """Returns the traced function of a key; traces `function` at the first call."""

        def with_weights(*tensors: tf.Tensor) -> Any:
            with self._weights.in_use():
                return function(*tensors)

        if key not in self._functions:
            self._functions[key] = tf.function(with_weights, specs, autograph=False)
        return self._functions[key]


def finds_all_of(strategy: Strategy, other: Strategy) -> bool:
    """Returns whether the first hypotheses of a strategy are all that another one returns."""
    if strategy == other:
        return True
    # The number of returned hypotheses does not change a beam search, but for when it may stop.
    return (
        isinstance(strategy, Beam)
        and isinstance(other, Beam)
        and dataclasses.replace(other, num_return=strategy.num_return) == strategy
        and other.num_return <= strategy.num_return
    )


def _with_columns(x: tf.Tensor, length: tf.Tensor, value: float) -> tf.Tensor:
    missing = length - tf.shape(x)[1]
    padding = [[0, 0], [0, missing], *[[0, 0]] * (x.shape.rank - 2)]
    return tf.pad(x, padding, constant_values=value)


def _width(rows: tf.RaggedTensor) -> tf.Tensor:
    """The length of the longest row, at least 1: signatures return no empty columns."""
    return tf.maximum(rows.bounding_shape(1), 1)


def _concrete(function: Any, languages: Sequence[str], *specs: tf.TensorSpec) -> Any:
    """Traces a function of languages and tensors, as one whose inputs are named by their specs."""
    specs = (*specs, *(_LANGUAGES[side] for side in languages))

    def of_tensors(*tensors: tf.Tensor) -> Outputs:
        count = len(tensors) - len(languages)
        texts = tensors[:count]
        named = {
            side: tf.broadcast_to(tensor, tf.shape(texts[0]))
            for side, tensor in zip(languages, tensors[count:], strict=True)
        }
        outputs: Outputs = function(named, *texts)
        return outputs

    of_tensors.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(spec.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for spec in specs]
    )
    traced = tf.function(of_tensors, input_signature=specs, autograph=False)
    return traced.get_concrete_function()
