"""Marian's own files: `model.npz`, or the `.bin` of Bergamot's engine, settings inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.marian_files import (
    read_decoder_settings,
    read_settings,
    read_tokenizers,
    search_of,
)
from keras_addnorm.interop.families.marian_settings import read_config, write_config
from keras_addnorm.interop.families.marian_tensors import in_one_form, weight_table
from keras_addnorm.interop.families.rows import WeightTable
from keras_addnorm.interop.tensor_files import is_marian_bin, read_marian_bin, read_npz
from keras_addnorm.models import Seq2SeqConfig

if TYPE_CHECKING:
    from keras_addnorm.interop.pretrained import Pretrained

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


def is_marian_model(path: Path) -> bool:
    """Return whether a file, by its ending and its first bytes, is a model of Marian's."""
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
