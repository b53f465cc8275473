"""Exports a model as one SavedModel from strings to strings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_addnorm import schemes
from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.atomic import remove_leftovers
from keras_addnorm.basics.paths import to_path
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.decoding import Beam, Shortlist, Strategy
from keras_addnorm.decoding import splitting as ways_of_splitting
from keras_addnorm.decoding import strategies as decoding_strategies
from keras_addnorm.decoding.checks import require_positive, require_type
from keras_addnorm.decoding.constraints import (
    ConstraintLike,
    forbidden_by,
    get_all,
    require_possible,
)
from keras_addnorm.decoding.splitting import SplittingLike
from keras_addnorm.models import Seq2SeqTransformer, fold, is_foldable, merge_lora
from keras_addnorm.models.checks import require_finite, require_model, require_tokenizers
from keras_addnorm.serving.assets_extra import checked_card, write_extras
from keras_addnorm.serving.optimize_graph import optimize_graph
from keras_addnorm.serving.recommended_search import LENGTH_PENALTY, NUM_BEAMS
from keras_addnorm.serving.request_batches import Buckets
from keras_addnorm.serving.signatures import Decoding, TranslationModule, returns_several
from keras_addnorm.serving.stored_weights import require_storage
from keras_addnorm.serving.versions import choose_version, version_number, write_manifest

# A served model needs no gradients; the custom ones of our layers would be a quarter of its graph.
_OPTIONS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


def export_saved_model(
    model: Seq2SeqTransformer,
    tokenizer: BaseTokenizer | TokenizerPair,
    directory: str | os.PathLike[str],
    version: int | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    strategies: Mapping[str, Any] | None = None,
    max_length: int | None = None,
    batch_buckets: Sequence[int] | None = None,
    length_buckets: Sequence[int] | None = None,
    shortlist: Shortlist | None = None,
    splitting: SplittingLike = "sentences",
    constraints: Iterable[ConstraintLike] = (),
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
        num_beams: Number of hypotheses, 4 by default; 1 is greedy search.
        length_penalty: The exponent of the GNMT penalty that scores are divided by, 0.6 by default.
        strategies: Instead of these two, strategies (or their names or dicts) by the name of
            their signature. The first one is `serving_default`, so it has to return one
            translation a text; others with `num_return` > 1, and `translate_nbest` in any case,
            return what the table says of `translate_nbest`.
        max_length: Number of tokens to generate for a sentence at most; `None` for
            `model.config.max_length`.
        batch_buckets: Batch sizes under XLA; `None` for 1, 4, 16 and 64.
        length_buckets: Source lengths under XLA; `None` for 16, 32, 64, 128 and 256, up to
            `config.max_length`.
        shortlist: The target tokens that a search weighs for a batch, instead of all: faster, but
            not exact. Its lexicon becomes part of the export.
        splitting: How texts are split, as in `keras_addnorm.decoding.translate`: `"sentences"`,
            `"long_texts"`, `"none"`, or a `Splitting` such as `Sentences("de")`.
        constraints: Rules about the next token; they hold for each sentence, in every strategy.
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
    decoding = Decoding(
        _strategies(strategies, num_beams, length_penalty),
        _max_length(model, max_length),
        Buckets.of(batch_buckets, length_buckets, model.config.max_length),
        shortlist,
        ways_of_splitting.get(splitting),
        (*get_all(constraints), *forbidden_by(tokenizers.target)),
    )
    require_possible(
        decoding.constraints,
        model.config.target_vocabulary_size,
        decoding.max_length,
        model.config.special_ids,
    )
    require_storage(storage)
    card = checked_card(card)
    if shortlist is not None:
        require_type("A shortlist", shortlist, Shortlist).check(model.config)
        if tokenizers.text_format.target_prefix:
            raise ValueError(
                "A text format may begin targets with any piece, a shortlist leaves most of them "
                "out. Expected no shortlist with the prefix "
                f"{tokenizers.text_format.target_prefix}; received both."
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
            decoding.buckets,
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


def _strategies(
    strategies: Mapping[str, Any] | None, num_beams: int | None, length_penalty: float | None
) -> dict[str, Strategy]:
    if strategies is None:
        num_beams = NUM_BEAMS if num_beams is None else num_beams
        require_positive("A beam needs hypotheses.", num_beams=num_beams)
        penalty = LENGTH_PENALTY if length_penalty is None else length_penalty
        best = decoding_strategies.choose(None, num_beams, penalty)
        every = Beam(num_beams, penalty, num_return=num_beams) if num_beams > 1 else best
        return {"translate": best, "translate_nbest": every}
    given = {"num_beams": num_beams, "length_penalty": length_penalty}
    is_given = any(value is not None for value in given.values())
    if not isinstance(strategies, Mapping) or not strategies or is_given:
        raise ValueError(
            "Expected either strategies, at least one, or num_beams and length_penalty; a dict has "
            "strategies by the names of their signatures. Received: "
            f"strategies={strategies!r} and {given}."
        )
    if wrong := [name for name in strategies if not _is_signature_name(name)]:
        raise ValueError(
            "A strategy has the name of its signature. Expected a letter, and letters, digits, _, "
            f". and - after it; received {wrong!r:.80}."
        )
    taken = {"serving_default", "score", "tokenize", "encode"} & strategies.keys()
    if taken or any(name.endswith("_xla") for name in strategies):
        raise ValueError(
            "A strategy has a name that an export gives itself: expected others than "
            f"serving_default, score, tokenize, encode and *_xla; received {list(strategies)}."
        )
    found = {name: decoding_strategies.get(strategy) for name, strategy in strategies.items()}
    first = next(iter(found))
    if returns_several(first, found[first]):
        raise ValueError(
            "The first strategy is serving_default, which returns one translation a text. Expected "
            "one with num_return=1 whose name is not translate_nbest; received "
            f"{first!r}: {strategies[first]!r}, which returns a list. Put another one before it, "
            "such as 'translate': 'greedy'."
        )
    return found


def _is_signature_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name) is not None


def _max_length(model: Seq2SeqTransformer, max_length: int | None) -> int:
    longest = model.config.max_length
    max_length = longest if max_length is None else max_length
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ValueError(f"Expected a positive int as max_length; received {max_length!r}.")
    num_positions = model.config.num_positions
    if num_positions is not None and max_length > num_positions:
        raise ValueError(
            f"The model has learned {num_positions} positions and cannot generate past them. "
            f"Expected max_length <= {num_positions}; received {max_length}."
        )
    return max_length
