"""`HuggingFaceFamily`: a folder with `config.json` and weights, as `transformers` writes it."""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.fields import ConfigFile, Settings
from keras_addnorm.interop.tensor_files import StoredTensor, find_tensors
from keras_addnorm.models import Seq2SeqConfig


@dataclasses.dataclass(frozen=True)
class HuggingFaceFamily(Family):
    """A family of `transformers`."""

    model_type: ClassVar[str]
    """What `config.json` calls it."""

    architecture: ClassVar[str]
    """The class of `transformers` that `config.json` names."""

    config_file: ClassVar[ConfigFile]
    """What its `config.json` says."""

    @abc.abstractmethod
    def newest(self, settings: Settings, tensors: Mapping[str, StoredTensor]) -> Settings:
        """Return the settings as the newest files say them.

        Args:
            settings: Those of a file of any age.
            tensors: The tensors beside it.

        Returns:
            The settings.
        """

    def open(self, path: Path) -> Checkpoint:
        """Find `config.json` and the weights."""
        return Checkpoint(path, read_settings(path), find_tensors(path))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings of the folder."""
        return self.config_file.read(self.newest(checkpoint.settings, checkpoint.tensors))

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `config.json` of a model."""
        kept = {name: notes[name] for name in notes if name in self.config_file.ignored}
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
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no '{name}' in '{folder}'. Expected a folder that transformers wrote: "
            "config.json, the weights and the tokenizer's files."
        )
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{path}' is no JSON: {error}. Download it again.") from error
    if not isinstance(settings, dict):
        raise ValueError(f"'{path}' holds no settings. Expected a JSON object.")
    return settings
