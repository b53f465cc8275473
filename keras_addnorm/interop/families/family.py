"""`Family`: what all models of one kind of checkpoint have in common, for both directions."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.rows import WeightTable
from keras_addnorm.interop.families.text_files import read_json, write_json
from keras_addnorm.interop.tensor_files import StoredTensor, write_safetensors
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What lies on the disk.

    Attributes:
        path: The folder or the file.
        settings: What its config says.
        tensors: Its tensors by name.
    """

    path: Path
    settings: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def folder(self) -> Path:
        """Where the files beside the weights are."""
        return self.path if self.path.is_dir() else self.path.parent


def _names(ignored: Any) -> tuple[str, ...]:
    if not isinstance(ignored, list | tuple) or not all(isinstance(n, str) for n in ignored):
        raise ArgumentError(
            "The ignored settings of a family are names.",
            "a list of texts, such as ['author']",
            ignored=ignored,
        )
    return tuple(ignored)


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """How the checkpoints of one kind are read and written. A subclass is a frozen dataclass.

    Args:
        ignored: Settings of the config, as messages name them, that change nothing in what a model
            computes: those of a fork or a plug-in. Every other one that is not known is refused.
    """

    ignored: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)

    text_files: ClassVar[tuple[str, ...]] = ()
    """The files that its tokenizers are made of, which go back as they came."""

    settings_files: ClassVar[tuple[str, ...]] = ()
    """The files of a folder that say sizes, ids and searches, for errors about what they say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ignored", _names(self.ignored))

    def ignoring(self, names: Sequence[str]) -> Self:
        """Return the family with further settings that change nothing."""
        return dataclasses.replace(self, ignored=(*self.ignored, *_names(names)))

    @abc.abstractmethod
    def open(self, path: Path) -> Checkpoint:
        """Find settings and tensors.

        Args:
            path: A folder or a file.

        Returns:
            The checkpoint.
        """

    @abc.abstractmethod
    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for a checkpoint; raise a `ValueError` for what we do not compute."""

    @abc.abstractmethod
    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors of a model of such a config."""

    def weights_of(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors of one checkpoint; of most families those of its config."""
        return self.weights(config)

    def into(self, language: str) -> Family:
        """Return the family whose targets start with a language; itself where they do not."""
        return self

    @abc.abstractmethod
    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair | None:
        """Return the tokenizers with their text format; `None` for a family that has no files."""

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return how to search: what `generation_config.json` says, else the config.

        Args:
            checkpoint: The checkpoint.
            config: Our config of it.

        Returns:
            The settings.
        """
        said = read_json(checkpoint.folder / "generation_config.json") or checkpoint.settings
        return GenerationSettings.of(
            said, config.max_length, vocabulary_size=config.target_vocabulary_size
        )

    @abc.abstractmethod
    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the `config.json` of a model; `None` for a family that has none.

        Args:
            config: The model's config.
            notes: What the config of the checkpoint said; what changes no number is kept.

        Returns:
            The settings.
        """

    def write(
        self,
        folder: Path,
        model: Seq2SeqTransformer,
        tokenizers: TokenizerPair | None,
        generation: GenerationSettings,
        notes: Mapping[str, Any],
    ) -> None:
        """Write what the toolkit reads, apart from `text_files` and the model card.

        Args:
            folder: The folder, as it is being written.
            model: The model, LoRA merged.
            tokenizers: Its tokenizers, if any.
            generation: How to search with it.
            notes: As of `settings`.

        Raises:
            ValueError: If a model of the family cannot be like this one.
        """
        settings = self.settings(model.config, notes)
        table = self.weights(model.config)
        path = folder / "model.safetensors"
        write_safetensors(path, table.shapes(model), lambda name: table.read(model, name))
        if settings is not None:
            write_json(folder / "config.json", settings)
            write_json(folder / "generation_config.json", generation.to_file(model.config))


class ReadOnlyFamily(Family):
    """A family whose checkpoints are read, and not written.

    Attributes:
        read_only: What is not written, as the subject of a sentence: `"Eole's folders"`.
    """

    read_only: ClassVar[str]

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> None:
        """Refuse."""
        raise ValueError(
            f"{self.read_only} are only read. Expected a family that is written, if the model is "
            "like one, or keras_addnorm.serving.export_saved_model."
        )
