"""A run directory's model, tokenizers and shortlist, loaded."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_addnorm.alignment import read_pharaoh
from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError, UserError, unknown_name
from keras_addnorm.basics.integrity import TRAINING_GROUP, digest_of_values, open_weights, sha256
from keras_addnorm.basics.printing import text_of
from keras_addnorm.basics.text import read_text
from keras_addnorm.data import TokenizerPair
from keras_addnorm.data.piece_links import encode_pairs
from keras_addnorm.decoding import Lexicon, Search, Shortlist
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.models.checks import require_finite, require_tokenizers
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import SEARCH_SETTINGS, EvaluationConfig, RunConfig
from keras_addnorm.runs.text_data import digest_of_tokenizers, run_pairs

# The sizes that follow from the tokenizers.
_DERIVED = {"source_vocabulary_size", "target_vocabulary_size"}


def model_config(config: RunConfig, tokenizers: TokenizerPair) -> Seq2SeqConfig:
    """Makes the model's configuration.

    Two defaults follow from the other settings: a joint vocabulary has one embedding table, and
    there is a position for every token of the longest training pair.
    """
    sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
    found = _model_config(config, *sizes, is_joint=tokenizers.is_joint)
    ids = {
        name: getattr(tokenizers.target, name)
        for name in ("pad_id", "start_id", "end_id")
        if name not in config.model.overrides
    }
    return dataclasses.replace(found, **ids)


def require_model_config(config: RunConfig) -> None:
    """Checks all that is chosen of a model, before there are tokenizers."""
    size = config.tokenizer.vocabulary_size
    _model_config(config, size, size, is_joint=config.tokenizer.joint)


def _model_config(config: RunConfig, source: int, target: int, *, is_joint: bool) -> Seq2SeqConfig:
    known = {field.name for field in dataclasses.fields(Seq2SeqConfig)} - _DERIVED
    for name in config.model.overrides:
        if name not in known:
            raise unknown_name("setting", f"model.{name}", {f"model.{key}" for key in known})
    settings = {
        "share_embeddings": is_joint,
        "max_length": max(256, config.training.bucketing.longest),
        **config.model.overrides,
    }
    try:
        with as_user_errors():
            return Seq2SeqConfig.preset(
                config.model.preset,
                source_vocabulary_size=source,
                target_vocabulary_size=target,
                **settings,
            )
    except UserError as error:
        # In a file, a field of the model stands in the table `model`.
        raise error.renamed({name: f"model.{name}" for name in known}) from error


@dataclass(frozen=True)
class TrainedRun:
    """A trained run.

    Attributes:
        directory: Where it is.
        config: Its configuration.
        tokenizers: Its tokenisers.
        model: The model with its best (or averaged) weights.
    """

    directory: RunDirectory
    config: RunConfig
    tokenizers: TokenizerPair
    model: Seq2SeqTransformer

    @functools.cached_property
    def shortlist(self) -> Shortlist | None:
        """The target tokens that its searches choose from; `None` for all.

        The first call estimates the lexicon from the training pairs, and from their alignments if
        the run has any.
        """
        if not self.config.evaluation.shortlist:
            return None
        with as_user_errors():
            directory, path = self.directory, self.directory.lexicon
            if not path.exists():
                lexicon = _lexicon(directory, self.tokenizers, run_pairs(self.config).training)
                with directory.manifest.rewriting(path):
                    lexicon.save(path)
            directory.check(path)
            lexicon = Lexicon.load(path)
            shortlist = Shortlist(lexicon, self.config.evaluation.shortlist)
            shortlist.check(self.model.config)
        return shortlist

    def search(self, num_return: int = 1) -> Search:
        """Returns how it is searched for translations, `num_return` of each text."""
        return self.config.search(num_return, self.shortlist)


def _lexicon(directory: RunDirectory, tokenizers: TokenizerPair, pairs: Any) -> Lexicon:
    """Estimates translations of tokens: from the run's alignments, or by IBM's first model."""
    end = [tokenizers.target.end_id]
    sizes = {
        "source_vocabulary_size": tokenizers.source.vocabulary_size,
        "target_vocabulary_size": tokenizers.target.vocabulary_size,
    }
    encoded = (
        (source + end, target + end)
        for _, (source, target) in encode_pairs(pairs, tokenizers, tokenizers.bound_format)
    )
    if not directory.alignments.exists():
        return Lexicon.estimate(encoded, **sizes)
    directory.check(directory.alignments)
    return Lexicon.from_links(encoded, read_pharaoh(directory.alignments), **sizes)


def digest_of_run(
    directory: RunDirectory, config: RunConfig, search: Sequence[str] = SEARCH_SETTINGS
) -> str:
    """Returns a digest of what a run's translations depend on: its files and search settings.

    A lexicon that the search needs is made, so that processes begun thereafter have the same one.
    """
    parts = [sha256(directory.weights()), sha256(directory.model)]
    parts.append(digest_of_tokenizers(directory.tokenizer))
    # A setting that a later version brings, at its default, makes no other digest.
    chosen = {name: getattr(config.evaluation, name) for name in search}
    usual = EvaluationConfig()
    chosen = {name: value for name, value in chosen.items() if value != getattr(usual, name)}
    if chosen.get("shortlist"):
        if not directory.lexicon.exists():
            _ = dataclasses.replace(load_run(directory), config=config).shortlist  # Makes it.
        parts.append(sha256(directory.lexicon))
    return digest_of_values([parts, chosen])


def load_run_of(
    directory: RunDirectory,
    digest: str,
    search: Mapping[str, Any] | None = None,
    digested: Sequence[str] = SEARCH_SETTINGS,
) -> TrainedRun:
    """Loads a run that has to be as it was when its digest was made, in another process perhaps.

    Args:
        directory: The run directory.
        digest: What `digest_of_run` returned.
        search: Settings of its search in place of its own.
        digested: The search settings that the digest tells.

    Returns:
        The run.

    Raises:
        UserError: If its files are others now.
    """
    run = load_run(directory)
    changes = {f"evaluation.{name}": value for name, value in (search or {}).items()}
    run = dataclasses.replace(run, config=run.config.replace(changes))
    if digest_of_run(directory, run.config, digested) != digest:
        raise UserError(
            f"The run {str(directory.path)!r} has other weights, or another lexicon, than a moment "
            "ago: it is being trained or changed. Wait for the end of that, or use a copy of the "
            "run or an export. The same command begins anew with the files that are there now."
        )
    return run


def load_run(directory: str | Path | RunDirectory) -> TrainedRun:
    """Loads a trained run.

    Args:
        directory: The run directory, or its path.

    Returns:
        Its parts.

    Raises:
        UserError: If it is not a run directory, nothing has been trained in it yet, or a file is
            damaged.
    """
    directory = RunDirectory.of(directory)
    config = directory.read_config()
    weights = directory.weights()
    if not directory.has_tokenizers():
        raise UserError(
            f"There are no tokenizers in {str(directory.tokenizer)!r}. Expected 'tokenizer.model', "
            "or 'source.model' and 'target.model', as a training leaves them. Copy them there, or "
            f"train again in another folder than {str(directory.path)!r}."
        )
    directory.check(directory.tokenizer, directory.model, directory.averaged_weights, weights)
    with as_user_errors():
        tokenizers = TokenizerPair.load(directory.tokenizer)
        chosen = _read_model_config(directory)
        _require_one_vocabulary(chosen, tokenizers, directory)
        _require_sizes(chosen, weights, directory)
        model = Seq2SeqTransformer(chosen, dtype="float32")
    load_weights(model, weights)
    return TrainedRun(directory, config, tokenizers, model)


def load_weights(model: keras.Model, path: str | Path, **options: Any) -> None:
    """Loads weights as `keras.Model.load_weights` does.

    A `UserError` names a file that is damaged, is not of this model alone, or has weights that are
    NaN or infinite.
    """
    try:
        with open_weights(path) as file:  # Its arrays are no larger than it, and in it.
            other = _what_is_not_of(model, file)
        if not other:
            model.load_weights(path, **options)
    # HDF5 has errors of many kinds for a file without sense, and Keras for one of another model.
    except Exception as error:
        raise UserError(
            f"The weights {str(path)!r} cannot be loaded ({type(error).__name__}: "
            f"{text_of(error):.300}). Expected a whole file of the model that 'model.json' "
            "describes. Copy it again from where it is whole."
        ) from error
    if other:
        raise UserError(
            f"The weights {str(path)!r} are not those of the model that 'model.json' describes: "
            f"{other}. Nothing of it would be read, or it would be read as something else. Copy "
            "both again from where they are whole."
        )
    try:
        require_finite(model)
    except ValueError as error:
        raise UserError(f"The weights {str(path)!r} are not to be used. {error}") from error


# What a weight file has beside the layers' own: groups of a checkpoint, and seeds.
_BESIDE = re.compile(rf"(optimizer|metrics|{TRAINING_GROUP})/|.*\bseed_generator")


def _what_is_not_of(model: keras.Model, file: Any) -> str:
    """Says what Keras would pass over in silence, or turn into numbers; empty if there is nothing.

    It asks for the arrays that a model has. A layer more in the file, it does not see.
    """
    arrays: dict[str, Any] = {}

    def look(name: str, item: Any) -> None:
        if hasattr(item, "dtype") and not _BESIDE.match(name):
            arrays[name] = item

    file.visititems(look)
    # bfloat16 is of a kind that HDF5 does not know.
    kinds = "fV" + "".join({np.dtype(w.dtype).kind for w in model.weights if "int" in w.dtype})
    for name, item in arrays.items():
        if item.dtype.kind not in kinds:
            return f"the array {name[-80:]!r} in them is of the type {item.dtype}"
    there = sum(item.size for item in arrays.values())
    # With LoRA a layer saves its sum.
    expected = sum(math.prod(one.shape) for one in model.weights if "lora_" not in one.name)
    if there > expected:
        return f"they hold {there:,} numbers, and that has {expected:,}"
    return ""


def _read_model_config(directory: RunDirectory) -> Seq2SeqConfig:
    """Reads the `model.json` of a run; names it if it is damaged."""
    path = directory.model
    try:
        return Seq2SeqConfig.from_json(read_text(path))
    except FileNotFoundError:
        reason = "there is no such file"
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        reason = str(error)
    raise UserError(
        f"The model's configuration {str(path)!r} cannot be read ({reason.rstrip('.')}). Expected "
        "the file that a training writes. If it names a scheme, a norm or the like of your own, "
        "import the module that registers it, and call keras_addnorm.cli.main([...]) from a "
        "program of yours. If it is damaged, copy it again from where it is whole; train --resume "
        "writes it, too."
    )


# What sizes the weights of a layer, and stands in a dict that chooses it.
_SIZES_OF_KINDS = (
    ("positions", "num_buckets"),
    ("self_attention", "intermediate_dim"),
)


def _require_sizes(config: Seq2SeqConfig, weights: Path, directory: RunDirectory) -> None:
    """Refuses sizes of a model that weights of this size cannot have, before it is made."""
    bytes_there = weights.stat().st_size
    heads = config.num_heads * (config.head_dim or config.hidden_dim // config.num_heads)
    layers = config.num_encoder_layers + config.num_decoder_layers
    # In numbers, of which two have a byte at the least.
    smallest = {"hidden_dim": config.hidden_dim * config.target_vocabulary_size}
    if not config.pruned_sublayers:
        smallest["num_heads"] = config.hidden_dim * heads * layers // 2
        smallest["intermediate_dim"] = config.hidden_dim * config.intermediate_dim * layers
    if config.positions == "learned":
        smallest["max_length"] = config.max_length * config.hidden_dim
    described = config.to_dict()
    for field, name in _SIZES_OF_KINDS:
        if isinstance(kind := described[field], dict) and is_whole(kind.get(name)):
            smallest[name] = kind[name]
    if wrong := [name for name, size in smallest.items() if size > 2 * bytes_there]:
        raise UserError(
            f"The model's configuration {str(directory.model)!r} is not that of the weights "
            f"{str(weights)!r}: they have {bytes_there:,} bytes, fewer than a model with this "
            f"{' and '.join(wrong)}. Copy both again from where they are whole."
        )


def _require_one_vocabulary(
    config: Seq2SeqConfig, tokenizers: TokenizerPair, directory: RunDirectory
) -> None:
    """Refuses tokenizers with which the model's ids mean nothing."""
    try:
        require_tokenizers(config, tokenizers)
    except ValueError as error:
        raise ArgumentError(
            f"The tokenizers in {str(directory.tokenizer)!r} and the model in "
            f"{str(directory.model)!r} do not belong together.",
            remedy="Copy both again from where they are whole.",
            because=error,
        ) from error


def save_model_config(config: Seq2SeqConfig, directory: RunDirectory) -> None:
    """Writes a model's configuration to the `model.json` of a run."""
    with directory.manifest.rewriting(directory.model):
        write_text(directory.model, config.to_json() + "\n")
