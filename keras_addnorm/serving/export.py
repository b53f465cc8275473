"""Exports a model as one SavedModel from strings to strings."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_addnorm import schemes
from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.atomic import remove_leftovers
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.decoding import Beam, Search, Strategy
from keras_addnorm.decoding import strategies as decoding_strategies
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.decoding.generate import check_prefix
from keras_addnorm.decoding.search import LENGTH_PENALTY, NUM_BEAMS, takes_search
from keras_addnorm.models import Seq2SeqTransformer, fold, is_foldable, merge_lora
from keras_addnorm.models.checks import require_finite, require_tokenizers
from keras_addnorm.models.seq2seq import require_model
from keras_addnorm.serving.assets_extra import checked_card, write_extras
from keras_addnorm.serving.optimize_graph import optimize_graph
from keras_addnorm.serving.request_batches import Buckets
from keras_addnorm.serving.signatures import Decoding, TranslationModule, returns_several
from keras_addnorm.serving.stored_weights import require_storage
from keras_addnorm.serving.versions import choose_version, version_number, write_manifest

# A served model needs no gradients; the custom ones of our layers would be a quarter of its graph.
_OPTIONS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


@takes_search(num_beams=NUM_BEAMS, length_penalty=LENGTH_PENALTY)
def export_saved_model(
    model: Seq2SeqTransformer,
    tokenizer: BaseTokenizer | TokenizerPair,
    directory: str | os.PathLike[str],
    version: int | None = None,
    *,
    search: Search,
    strategies: Mapping[str, Any] | None = None,
    batch_buckets: Sequence[int] | None = None,
    length_buckets: Sequence[int] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    storage: str = "float32",
    card: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a model with its tokenizer and its search as one SavedModel.

    The signatures, with B texts, N hypotheses, T target and S source tokens:

    | signature | takes | returns |
    |---|---|---|
    | `serving_default`, `translate` | `texts` (B,) | `translations`, `scores`, (B,) |
    | `translate_nbest` | `texts` (B,) | `translations`, `scores` (B, N), best first; |
    | | | `alignments`, `pieces` (B, N, T) |
    | `translate_xla`, `translate_nbest_xla` | the same | the same, computed under XLA |
    | `score` | `source`, `target` (B,) | `scores` (B,), `token_log_probabilities` (B, T) |
    | `tokenize` | `texts` (B,) | `token_ids`, `pieces` (B, S), `lengths` (B,) |
    | `encode` | `texts` (B,) | `pooled` (B, D), `states` (B, S, D) |

    `serving_default` equals `keras_addnorm.decoding.translate`. It needs neither Keras nor this
    package nor XLA, which TensorFlow Serving switches off. The functions under XLA pad batch and
    length up to buckets: at most `len(batch_buckets) * len(length_buckets)` programs are compiled
    for each of them. Requests of any size and texts of any length are taken: a text is split into
    sentences, and those of a request are decoded `batch_buckets[-1]` at a time. T and S are the
    tokens of the whole text. `score` splits nothing: it cuts a source at `config.max_length - 1`
    tokens and a target at `max_length - 1`.

    Gains of the residual scheme (LayerScale, ReZero, DeepNorm, LN-scaling) and what LoRA has
    learned are merged into the kernels first; see `keras_addnorm.models.fold` and `merge_lora`.

    The version appears whole or not at all. `assets.extra/` in it holds a `README.md`, a card
    `model.json`, settings for TensorFlow Serving (`models.config`, `batching.config`), warm-up
    requests of each bucket, and the digests of the files in `manifest.json`. What a killed export
    has left in the folder is removed.

    Args:
        model: The trained model, on the TensorFlow backend of Keras.
        tokenizer: Its tokenizers, or the one for both languages.
        directory: The folder of the versions, such as `saved_models/<name>`.
        version: Number of the version, or `None` for the highest one and one more.
        search: How it searches: a `keras_addnorm.decoding.Search`, or its fields as keywords:
            `num_beams`, 4 by default, `length_penalty`, 0.6 by default, `max_length` and so on. A
            beam that returns one translation returns all in `translate_nbest`. The lexicon of a
            shortlist becomes part of the export.
        strategies: Instead of the search's own, strategies (or their names or dicts) by the name of
            their signature. The first one is `serving_default`, so it has to return one
            translation a text; others with `num_return` > 1, and `translate_nbest` in any case,
            return what the table says of `translate_nbest`.
        batch_buckets: Batch sizes under XLA; `None` for 1, 4, 16 and 64.
        length_buckets: Source lengths under XLA; `None` for 16, 32, 64, 128 and 256, up to
            `config.max_length`.
        source_language: The language of the texts, where the text format of the tokenizers has a
            place for it. Left out, it is an input `source_language` of the signatures, a string for
            each text or one for all.
        target_language: The language to translate into, likewise.
        storage: How weights are stored: `"float32"`, `"float16"` or `"int8"`. Computation stays in
            the model's own precision.
        card: What else `model.json` is to say: training data, scores, licence.

    Returns:
        The folder of the version.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the tokenizer does not belong to the model, the model is quantised, a weight
            is NaN or infinite, or an option does not fit.
        FileExistsError: If the version exists.
        NotADirectoryError: If `directory` is a file.

    Example:
        ```python
        import tempfile

        from keras_addnorm.data import Tokenizer
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
        from keras_addnorm.serving import export_saved_model, load_translator

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        config = Seq2SeqConfig.preset(
            "micro", source_vocabulary_size=14, target_vocabulary_size=14, max_length=8
        )
        directory = tempfile.mkdtemp()
        export_saved_model(Seq2SeqTransformer(config), tokenizer, directory, num_beams=2)
        translator = load_translator(directory)
        (text, score), (nothing, zero) = translator(["a house", ""])
        assert (nothing, zero, translator.version) == ("", 0.0, 1)
        ```
    """
    _check_backend()
    tokenizers = TokenizerPair.of(tokenizer)
    require_model(model)
    require_tokenizers(model.config, tokenizers)
    if (source_language, target_language) != (None, None):
        tokenizers = tokenizers.with_languages(source_language, target_language)
    chosen = _strategies(strategies, search)
    info = DecoderInfo.of(model)
    fitted = search.for_texts(tokenizers.target).fitted(info)
    for strategy in chosen.values():
        dataclasses.replace(fitted, strategy=strategy).fitted(info)
    if fitted.target_prefix is not None:
        check_prefix(fitted.target_prefix, 1, fitted.max_length, info)
    buckets = Buckets.of(batch_buckets, length_buckets, model.config.max_length)
    decoding = Decoding(chosen, fitted, buckets)
    require_storage(storage)
    card = checked_card(card)
    if fitted.shortlist is not None and tokenizers.text_format.target_prefix:
        raise ArgumentError(
            "A text format may begin targets with any piece, a shortlist leaves most of them out.",
            f"no shortlist with the prefix {tokenizers.text_format.target_prefix}",
            received="both",
        )
    directory = to_path(directory)
    version = choose_version(directory, version)
    require_finite(model)
    # What LoRA has learned is merged, by a copy of the model if nothing is to be folded.
    folded = fold(model) if is_foldable(model) else merge_lora(model)
    module = TranslationModule(folded, tokenizers, decoding, storage)
    signatures = module.signatures()
    settings = {
        "folded_scheme": schemes.serialize(schemes.get(folded.config.scheme)),
        "decoding": decoding.to_dict(),
        "storage": storage,
    }
    # What killed exports of other versions have left.
    remove_leftovers(directory, lambda name: version_number(name) is not None)
    with atomic_folder(directory / str(version)) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures, options=_OPTIONS)
        optimize_graph(folder)
        write_extras(
            folder,
            directory / str(version),
            model,
            tokenizers,
            signatures,
            buckets,
            settings,
            card,
            module.example_languages,
        )
        write_manifest(folder)
    return directory / str(version)


def _check_backend() -> None:
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"A SavedModel can only be exported with Keras on TensorFlow; it runs on {backend!r}. "
            "Save the weights with model.save_weights(path), start again with the environment "
            "variable KERAS_BACKEND=tensorflow, load them into a model of the same config and "
            "export that one. Weights are the same on every backend."
        )


def _strategies(strategies: Mapping[str, Any] | None, search: Search) -> dict[str, Strategy]:
    if is_own := strategies is None:
        best = every = search.chosen
        if isinstance(best, Beam):
            several = best.num_return if best.num_return > 1 else best.num_beams
            best = dataclasses.replace(best, num_return=1)
            every = dataclasses.replace(best, num_return=several)
        strategies = {"translate": best, "translate_nbest": every}
    short = (search.num_beams, search.length_penalty)
    is_default = search.strategy is None and short in ((None, None), (NUM_BEAMS, LENGTH_PENALTY))
    if not isinstance(strategies, Mapping) or not strategies or not (is_own or is_default):
        raise ArgumentError(
            expected="either strategies, at least one, or a search with a strategy, such as by "
            "`num_beams` and `length_penalty`; a dict has strategies by the names of "
            "their signatures",
            received=f"strategies={strategies!r:.200} and {search.chosen}",
        )
    if wrong := [name for name in strategies if not _is_signature_name(name)]:
        raise ArgumentError(
            "A strategy has the name of its signature.",
            "a letter, and letters, digits, _, . and - after it",
            value=wrong,
        )
    taken = {"serving_default", "score", "tokenize", "encode"} & strategies.keys()
    if taken or any(name.endswith("_xla") for name in strategies):
        raise ArgumentError(
            "A strategy has a name that an export gives itself: expected others than "
            "serving_default, score, tokenize, encode and *_xla.",
            value=list(strategies),
        )
    found = {name: decoding_strategies.get(strategy) for name, strategy in strategies.items()}
    first = next(iter(found))
    if returns_several(first, found[first]):
        raise ArgumentError(
            "The first strategy is serving_default, which returns one translation a text.",
            "one with num_return=1 whose name is not translate_nbest",
            "Put another one before it, such as 'translate': 'greedy'.",
            received=f"{first!r}: {strategies[first]!r}, which returns a list",
        )
    return found


def _is_signature_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name) is not None
