"""Makes a run of a pretrained model, so that every command takes it as one trained here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import (
    Beam,
    ForbiddenTokens,
    MaxLength,
    MinLength,
    NoRepeatNgram,
    Sample,
)
from keras_addnorm.decoding.length_penalties import GNMTPenalty, NoPenalty
from keras_addnorm.interop import GenerationSettings, Pretrained, families, load_pretrained
from keras_addnorm.layers.self_attention import MULTI_HEAD_ATTENTION
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import BEAM_STOPPINGS, TOKENIZER_KINDS, RunConfig
from keras_addnorm.runs.text_data import save_tokenizers
from keras_addnorm.runs.trained_run import save_model_config
from keras_addnorm.runs.weight_files import save_loaded_weights

# They follow from the tokenizers.
_SIZES_OF_VOCABULARIES = ("source_vocabulary_size", "target_vocabulary_size")
# What `max_length_factor` adds to its share of the source: room for the end.
_ONE_MORE = 1
# A preset has them, with other values.
_SIZES = (
    *("num_encoder_layers", "num_decoder_layers", "hidden_dim", "intermediate_dim", "num_heads"),
    *("max_length", "share_embeddings"),
)


def import_pretrained(
    name: str,
    path: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    text_prefix: str | None = None,
    **options: Any,
) -> Pretrained:
    """Writes a pretrained model as a run.

    Args:
        name: What `keras_addnorm.interop.load_pretrained` takes.
        path: The run directory to make.
        settings: Settings of the run by dotted key, such as `{"data": "corpus"}`: the sentence
            pairs that it is evaluated and inspected with.
        source_language: The language of sources, where the model has several, as its vocabulary
            names it.
        target_language: The language to translate into, likewise.
        text_prefix: What stands before each source, in place of the checkpoint's words: `""` for
            nothing, where each text says itself what to do.
        **options: Further arguments of `load_pretrained`: `family`, `ignored` and `verify`.

    Returns:
        What was loaded, its tokenizers for these languages.

    Raises:
        UserError: If it cannot be loaded, a language is missing, or the directory exists.
    """
    path = to_path(path)
    if path.exists():
        raise UserError(f"{str(path)!r} exists. Expected the name of a new run directory.")
    with as_user_errors():
        loaded = load_pretrained(
            name,
            dtype="float32",
            target_language=target_language if text_prefix is None else None,
            **options,
        )
        if loaded.tokenizers is None:
            raise UserError(
                f"{name!r} was read without tokenizers, and a run translates texts. Expected both. "
                "OpenNMT's and Eole's files do not name them: pass --family as a table, such as "
                '{name = "eole", source_sentencepiece = "vocab.spm"}. For the weights alone, in '
                "Python: load_pretrained(...).model."
            )
        tokenizers = loaded.tokenizers
        if text_prefix is not None:
            text_format = dataclasses.replace(tokenizers.text_format, text_prefix=text_prefix)
            tokenizers = dataclasses.replace(tokenizers, text_format=text_format)
            if target_language is not None:
                tokenizers = tokenizers.with_languages(target=target_language)
        if source_language is not None:
            tokenizers = tokenizers.with_languages(source_language)
        _ = tokenizers.bound_format  # names a language that is missing
        config = RunConfig.from_dict(
            {
                "licence": loaded.licence or "",
                "tokenizer": _tokenizer_settings(tokenizers),
                "model": _model_settings(loaded.model.config),
                "training": _training_settings(loaded.model.config),
                "evaluation": _evaluation_settings(loaded.generation, loaded.model.config),
            }
        ).replace(settings or {})
        config.require_codes()
        with atomic_folder(path) as folder:
            directory = RunDirectory(folder)
            directory.write_config(config)
            save_model_config(loaded.model.config, directory)
            save_tokenizers(tokenizers, directory)
            save_loaded_weights(loaded.model, directory)
            if loaded.generation.shortlist is not None:
                loaded.generation.shortlist.lexicon.save(directory.lexicon)
    search = loaded.generation
    not_followed = (*search.not_followed, *_lost(search))
    return dataclasses.replace(
        loaded,
        tokenizers=tokenizers,
        generation=dataclasses.replace(search, not_followed=not_followed),
    )


def summary(name: str, loaded: Pretrained, path: str | Path) -> str:
    """Lays out what was imported, in several lines."""
    config = loaded.model.config
    is_said = loaded.generation.has_own_length
    why = "" if is_said else ", as the folder does not say how many: --max-length sets it"
    lines = [
        f"{name}: {families.name_of(loaded.family)}, {loaded.model.count_params():,} weights, "
        f"{config.num_encoder_layers} + {config.num_decoder_layers} layers of width "
        f"{config.hidden_dim}, {config.target_vocabulary_size:,} pieces.",
        f"Licence: {loaded.licence or 'the folder names none; look at where it comes from'}.",
        f"Outputs have {loaded.generation.max_length} tokens at most{why}.",
    ]
    if _is_student(config):
        lines.append(
            "A student: unless told otherwise, a training that starts from it goes without label "
            "smoothing and dropout."
        )
    lines += [f"Not followed in searches: {setting}." for setting in loaded.generation.not_followed]
    return "\n".join([*lines, f"Run: {path}"])


def _lost(search: GenerationSettings) -> Iterator[str]:
    """The settings of a search that a run has no place for."""
    if isinstance(search.strategy, Sample):
        yield "do_sample = True"
    for constraint in search.constraints:
        if isinstance(constraint, MaxLength) and constraint.length != _ONE_MORE:
            yield f"at most {constraint.length} tokens, and {constraint.source_factor} a source's"


def _tokenizer_settings(tokenizers: TokenizerPair) -> dict[str, Any]:
    kind = tokenizers.source.kind
    return {
        "kind": kind if kind in TOKENIZER_KINDS else "bpe",
        "vocabulary_size": tokenizers.source.vocabulary_size,
        "joint": tokenizers.is_joint,
        "normalization": "none",
    }


def _model_settings(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return the fields that are not at their default, and all that a preset has."""
    defaults = {field.name: field.default for field in dataclasses.fields(Seq2SeqConfig)}
    return {
        name: value
        for name, value in config.to_dict().items()
        if name not in _SIZES_OF_VOCABULARIES
        and (name in (*_SIZES, "scheme") or value != defaults[name])
        and (value or not isinstance(value, list))
    }


def _training_settings(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return how a student is fine-tuned: as it was trained, where the default is another."""
    return {"label_smoothing": 0.0} if _is_student(config) else {}


def _is_student(config: Seq2SeqConfig) -> bool:
    return config.self_attention != MULTI_HEAD_ATTENTION


def _evaluation_settings(search: GenerationSettings, config: Seq2SeqConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"num_beams": 1, "max_length": search.max_length}
    strategy = search.strategy
    found["beam_stopping"] = next(
        name for name, rule in BEAM_STOPPINGS.items() if rule == search.early_stopping
    )
    if isinstance(strategy, Beam):
        found["num_beams"] = strategy.num_beams
    penalty = getattr(strategy, "length_penalty", NoPenalty())
    found["length_penalty"] = getattr(penalty, "alpha", 0.0)
    found["length_penalty_kind"] = "gnmt" if isinstance(penalty, GNMTPenalty) else "average"
    if search.shortlist is not None:
        found["shortlist"] = search.shortlist.size
    for constraint in search.constraints:
        if isinstance(constraint, MinLength):
            found["min_length"] = min(constraint.length, search.max_length)
        if isinstance(constraint, NoRepeatNgram):
            found["no_repeat_ngram"] = constraint.size
        if isinstance(constraint, MaxLength) and constraint.length == _ONE_MORE:
            found["max_length_factor"] = constraint.source_factor
        if isinstance(constraint, ForbiddenTokens):
            # Those that a search never writes anyway are none that anybody forbade.
            never = config.special_ids.never_generated
            found["forbidden_ids"] = [token for token in constraint.tokens if token not in never]
    return found
