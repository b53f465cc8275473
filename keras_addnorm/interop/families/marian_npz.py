"""Marian's own files: `model.npz`, or the `.bin` of Bergamot's engine, settings inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.marian_files import (
    decoder_settings,
    read_decoder_settings,
    read_settings,
    read_tokenizers,
    search_of,
)
from keras_addnorm.interop.families.marian_settings import as_yaml, read_config, write_config
from keras_addnorm.interop.families.marian_tensors import BIAS, in_one_form, weight_table
from keras_addnorm.interop.families.marian_vocabulary import (
    MarianVocabulary,
    ids_without_tokenizers,
    write_vocabularies,
)
from keras_addnorm.interop.families.rows import WeightTable
from keras_addnorm.interop.tensor_files import (
    StoredEightBitMatrix,
    StoredTensor,
    is_marian_bin,
    read_marian_bin,
    read_npz,
    write_npz,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

SETTINGS = "special:model.yml"
"""The tensor whose bytes are the settings."""


@dataclasses.dataclass(frozen=True)
class MarianNpz(Family):
    """A model that Marian itself wrote.

    Marian starts a target with a vector of zeros; here that is a token behind the vocabulary, which
    is the padding, too, and whose logit is nothing beside the others. Where the sides have tables
    of different sizes, the smaller one is filled up in the same way. Its positions are not those
    that `transformers` gives the same weights: each is right for its own numbers.

    Reference:
        Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018.
    """

    settings_files = ("decoder.yml",)

    def open(self, path: Path) -> Checkpoint:
        """Find the one model of a folder, and the settings in it."""
        if path.is_dir():
            path = _only_model(path)
        tensors = dict(read_npz(path) if path.suffix == ".npz" else read_marian_bin(path))
        if SETTINGS not in tensors:
            raise ValueError(
                f"'{path}' has no '{SETTINGS}'. Expected a model of Marian 1.0 or newer. Load and "
                "save it once with Marian."
            )
        text = bytes(np.asarray(tensors.pop(SETTINGS).read()).tobytes()).rstrip(b"\0")
        settings = read_settings(path, text.decode("utf-8", "replace"))
        _require_numbers(path, tensors)
        return Checkpoint(path, settings, in_one_form(tensors, settings))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings in the file."""
        return read_config(checkpoint.settings, checkpoint.tensors, self.ignored)

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors. Matrices lie as ours do."""
        sizes = {"encoder": config.source_vocabulary_size, "decoder": config.target_vocabulary_size}
        return weight_table(config, {side: range(size - 1) for side, size in sizes.items()})

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read a model of pieces a side, or one for both; its ids are its own or a list's."""
        return read_tokenizers(checkpoint, config)

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return what `decoder.yml` says, else how Marian searches unless it is told otherwise."""
        return search_of(checkpoint, read_decoder_settings(checkpoint), config)

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what stands inside of a model's file."""
        return write_config(config, (config.source_vocabulary_size, config.target_vocabulary_size))

    def write(
        self,
        folder: Path,
        model: Seq2SeqTransformer,
        tokenizers: TokenizerPair | None,
        generation: GenerationSettings,
        notes: Mapping[str, Any],
    ) -> None:
        """Write `model.npz`, vocabularies and `decoder.yml`, as Marian reads them."""
        vocabularies = None
        if tokenizers is not None:
            vocabularies = [
                MarianVocabulary.of(each) for each in (tokenizers.source, tokenizers.target)
            ]
        tensors = MarianTensors.of(model, vocabularies)
        search = decoder_settings(generation)
        write_npz(folder / "model.npz", tensors.names, tensors.read)
        if vocabularies is not None:
            files = write_vocabularies(folder, vocabularies)
            text = as_yaml({"models": ["model.npz"], "vocabs": files, **search})
            (folder / "decoder.yml").write_text("relative-paths: true\n" + text, encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class MarianTensors:
    """The tensors of a model as Marian's file has them, settings among them.

    Attributes:
        model: Our model, LoRA merged.
        table: Its weights by Marian's names.
        settings: What `special:model.yml` says.
    """

    model: Seq2SeqTransformer
    table: WeightTable
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls, model: Seq2SeqTransformer, vocabularies: Sequence[MarianVocabulary] | None
    ) -> MarianTensors:
        """Look a model through.

        Args:
            model: The model.
            vocabularies: Those of both sides; `None` for a model that came from Marian's file.

        Returns:
            Its tensors.

        Raises:
            ValueError: If Marian cannot have such a model: all reasons at once.
        """
        config = model.config
        if vocabularies is None:
            source, target = ids_without_tokenizers(config)
        else:
            source, target = (each.ids for each in vocabularies)
        settings = write_config(config, (len(source), len(target)))
        table = weight_table(config, {"encoder": source, "decoder": target})
        table.shapes(model)  # It has a place for each weight.
        return cls(model, table, settings)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors."""
        rows = tuple(row.theirs for row in self.table.rows)
        bias = () if self.model.config.has_logits_bias else (BIAS,)
        return (*rows, *bias, SETTINGS)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor."""
        if name == SETTINGS:
            return np.frombuffer(as_yaml(self.settings).encode() + b"\0", np.int8)
        if name == BIAS and not self.model.config.has_logits_bias:
            return np.zeros((1, self.settings["dim-vocabs"][1]), np.float32)
        return self.table.read(self.model, name)


def _require_numbers(path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Raise a `ValueError` for whole numbers of which no multiplier says what they stand for."""
    whole = [
        name
        for name, each in tensors.items()
        if each.dtype.kind in "iu" and not isinstance(each, StoredEightBitMatrix)
    ]
    if whole:
        raise ArgumentError(
            f"'{path}' holds whole numbers, and not what they are multiplied by.",
            "tensors in float32, or matrices of the type intgemm8",
            "Load the float32 model that this one was made of.",
            received=f"{len(whole)} such tensors, {whole[0]} among them",
        )


def is_marian_model(path: Path) -> bool:
    """Return whether a file, by its ending and its first bytes, is a model of Marian's."""
    if not has_file(path):
        return False
    return path.suffix == ".npz" or (path.suffix == ".bin" and is_marian_bin(path))


def _only_model(folder: Path) -> Path:
    """Return the one model of a folder: an `.npz`, or a `.bin` that is no shortlist."""
    found = sorted(folder.glob("*.npz")) or sorted(
        path for path in folder.glob("*.bin") if is_marian_model(path)
    )
    if len(found) != 1:
        raise FileNotFoundError(
            f"Expected one model of Marian in '{folder}', an .npz or a .bin. Received: "
            f"{', '.join(path.name for path in found) or 'none'}. Pass the file itself."
        )
    return found[0]
