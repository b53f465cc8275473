"""`HuggingFaceFamily`: a folder with `config.json` and weights, as `transformers` writes it."""

from __future__ import annotations

import abc
import dataclasses
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from keras_addnorm.basics.argument_checks import LARGEST_WHOLE, has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.fields import ConfigFile, Settings
from keras_addnorm.interop.families.generation_settings import FIELDS, GenerationSettings
from keras_addnorm.interop.families.text_files import read_json
from keras_addnorm.interop.families.tokenizer_settings import class_of
from keras_addnorm.interop.tensor_files import StoredTensor, find_tensors
from keras_addnorm.models import Seq2SeqConfig

# `generate` makes as many tokens where nothing says how many.
_DEFAULT_LENGTH = 20
# Of a model without a head, whose names lack the prefix.
_PARTS = ("shared.", "encoder.", "decoder.")
# Names of fields that say who wrote a file, and with what; transformers' own begin with "_".
_ABOUT = r"_\w+|(?:\w+_)?(?:author|authors|comment|date|description|license|url|version)"
_SEARCH_FILE = "generation_config.json"


@dataclasses.dataclass(frozen=True)
class HuggingFaceFamily(Family):
    """A family of `transformers`."""

    model_type: ClassVar[str]
    """What `config.json` calls it."""

    architecture: ClassVar[str]
    """The class of `transformers` that `config.json` names."""

    config_file: ClassVar[ConfigFile]
    """What its `config.json` says."""

    settings_files = ("config.json", "generation_config.json")

    prefix: ClassVar[str] = ""
    """What the names of a file begin with, unless it was saved without a head."""

    starts: ClassVar[Mapping[str, int]] = {}
    """The id that targets start with where no file says it, by the class of the tokenizer."""

    @abc.abstractmethod
    def require_head(self, checkpoint: Checkpoint) -> None:
        """Raise a `ValueError` if a part of what makes the logits is trained, and is not there."""

    @abc.abstractmethod
    def newest(self, settings: Settings, tensors: Mapping[str, StoredTensor]) -> Settings:
        """Return the settings as the newest files say them."""

    def open(self, path: Path) -> Checkpoint:
        """Find `config.json` and the weights, with a head or without."""
        tensors = find_tensors(path)
        if not any(name.startswith(self.prefix) for name in tensors):
            tensors = {
                self.prefix + name if name.startswith(_PARTS) else name: tensor
                for name, tensor in tensors.items()
            }
        checkpoint = Checkpoint(path, read_settings(path), tensors)
        self.require_head(checkpoint)
        return checkpoint

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings of the folder, with the ids that it generates with."""
        settings = self.newest(checkpoint.settings, checkpoint.tensors)
        known = {field.name for field in self.config_file.fields} | self.config_file.ignored
        notes = {
            name: value
            for name, value in settings.items()
            if name not in known and name not in self.ignored and _says_nothing(name, value)
        }
        if notes:
            said = ", ".join(f"{name} = {value!r:.60}" for name, value in notes.items())
            warnings.warn(
                f"The config says what is not known here, and is taken for a note: {said:.600}.",
                stacklevel=2,
            )
        settings = {name: value for name, value in settings.items() if name not in notes}
        return self.config_file.read({**settings, **self._special_ids(checkpoint)}, self.ignored)

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return how to search: what `generation_config.json` says, else the config."""
        said = _said_of_searches(checkpoint)
        found = GenerationSettings.of(
            said,
            config.max_length,
            # Theirs counts the start token among the positions.
            unsaid=min(_DEFAULT_LENGTH, config.max_length - 1),
            end_id=config.end_id,
            vocabulary_size=config.target_vocabulary_size,
        )
        unknown = (
            f"{name} = {value!r:.60}"
            for name, value in sorted(said.items())
            if name not in _KNOWN and value is not None
        )
        assert found.said is not None
        return dataclasses.replace(
            found,
            not_followed=(*found.not_followed, *unknown),
            said=dataclasses.replace(found.said, settings=said),
        )

    def _special_ids(self, checkpoint: Checkpoint) -> dict[str, int]:
        """Return the ids that outputs start and end with: those of searches come first."""
        said, settings = _said_of_searches(checkpoint), checkpoint.settings
        start = _chosen("decoder_start_token_id", said, settings)
        end = _chosen("eos_token_id", said, settings)
        start = self.start_of(checkpoint, start)
        (field,) = (f for f in self.config_file.fields if f.name == "decoder_start_token_id")
        if start is None and field.default is None:
            known = "".join(f", {token} for a {name}" for name, token in self.starts.items())
            raise ArgumentError(
                f"'{checkpoint.folder}' does not say which token a target starts with.",
                f"decoder_start_token_id in generation_config.json or config.json{known}, the id "
                "of the target language where targets start with it",
                "Pass the language as `target_language`, or add the id to config.json.",
                received=f"none, and the tokenizer_class {tokenizer_class(checkpoint)!r}",
            )
        found = {"decoder_start_token_id": start, "eos_token_id": end}
        return {name: token for name, token in found.items() if token is not None}

    def start_of(self, checkpoint: Checkpoint, said: int | None) -> int | None:
        """Return the id that targets start with; `None` if neither the files nor the family say."""
        return self.starts.get(tokenizer_class(checkpoint)) if said is None else said

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `config.json` of a model."""
        fields = {field.name for field in self.config_file.fields}
        known = self.config_file.ignored.union(self.ignored)
        kept = {
            name: value
            for name, value in notes.items()
            if name in known or (name not in fields and _says_nothing(name, value))
        }
        return {
            **kept,
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "dtype": "float32",
            **self.config_file.write(config),
        }


def read_settings(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Read a file of settings.

    Args:
        folder: Where it lies.
        name: Its name.

    Returns:
        The settings.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no JSON.
    """
    path = folder / name
    if not has_file(path):
        raise FileNotFoundError(
            f"There is no '{name}' in '{folder}'. Expected a folder that transformers wrote: "
            "config.json, the weights and the tokenizer's files."
        )
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"'{path}' holds no settings. Expected a JSON object.")
    return settings


def tokenizer_class(checkpoint: Checkpoint, known: Sequence[str] | None = None) -> str:
    """Return the name of the tokenizer's class that a folder names; "" if it names none."""
    return class_of(checkpoint.folder, checkpoint.settings, known)


# What else stands in the file: whether it was made of a config.
_KNOWN = FIELDS | {"_from_model_config", "_commit_hash"}


def _says_nothing(name: str, value: Any) -> bool:
    """Return whether a field that no class reads is switched off, or says where a file is from."""
    is_off = value is None or value is False or value in ("", [], {})
    return is_off or re.fullmatch(_ABOUT, name) is not None


def _said_of_searches(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what `generation_config.json` says; without one, what the config does."""
    if has_file(checkpoint.folder / _SEARCH_FILE):
        return read_settings(checkpoint.folder, _SEARCH_FILE)
    settings = checkpoint.settings
    said = {name: value for name, value in settings.items() if name in FIELDS}
    if settings.get("force_bos_token_to_be_generated", False):  # the first BART's
        said["forced_bos_token_id"] = settings.get("bos_token_id")
    return said


def _chosen(name: str, said: Mapping[str, Any], settings: Settings) -> int | None:
    """Return a special id: that of searches, if the config has another; `None` if none has one."""
    of_search, of_config = (_ids(name, each.get(name)) for each in (said, settings))
    known = frozenset(of_config)
    both = [token for token in of_search if token in known]
    found = both if len(both) == 1 else of_search or of_config
    if len(found) > 1:
        raise ArgumentError(
            "A model starts and ends its outputs with one token here.",
            f"one {name} in generation_config.json, or in config.json one of those",
            value=found,
        )
    if of_config and found and found[0] not in known:
        warnings.warn(
            f"generation_config.json and config.json differ: {name} is {of_search} and "
            f"{of_config}. The first is taken, as transformers does to generate.",
            stacklevel=2,
        )
    return found[0] if found else None


def _ids(name: str, value: Any) -> list[int]:
    found = value if isinstance(value, list) else [] if value is None else [value]
    if wrong := [each for each in found if type(each) is not int or abs(each) > LARGEST_WHOLE]:
        raise ArgumentError(
            f"A special id is a whole number of at most {LARGEST_WHOLE}.",
            received=f"{name} = {wrong[0]!r:.200}",
        )
    return found
