"""The sentences of a trial as arrays, prepared once and kept in a folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from claims.lab import Batch, Sentences
from claims.records import built_in_texts

from keras_addnorm.basics import atomic_file
from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from study.trial import PAIRS, Scale

_HELD_OUT = 500


@dataclasses.dataclass(frozen=True)
class Corpus:
    """English to German.

    Attributes:
        train: The training pairs, those of the first split that fit the length.
        validation: Validation pairs.
        references: The translations of `validation`, as text.
        tokenizers: What made tokens of the texts.
    """

    train: Sentences
    validation: Sentences
    references: list[str]
    tokenizers: TokenizerPair

    @classmethod
    def load(cls, data: str, scale: Scale, folder: Path) -> Corpus:
        """Read and tokenise, or read what was prepared before.

        Args:
            data: What `load_translation` takes.
            scale: Vocabulary size and length.
            folder: Where prepared sentences are kept.

        Returns:
            The corpus.
        """
        wanted = [str(data), scale.vocabulary_size, scale.length, built_in_texts()]
        name = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:12]
        file, vocabulary = folder / f"{name}.npz", folder / f"{name}_vocabulary"
        if not file.exists():
            # In a process of its own: what it takes is no memory of the training that comes next.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                process.submit(_prepare, data, scale, file, vocabulary).result()
        with np.load(file) as arrays:
            sides = [
                Sentences(*(arrays[f"{split}_{part}"] for part in ("source", "target", "labels")))
                for split in ("train", "validation")
            ]
            references = [str(text) for text in arrays["references"]]
        return cls(*sides, references, TokenizerPair.load(vocabulary))

    def batches(self, scale: Scale, pairs: int | None, seed: int) -> list[Batch]:
        """Batches of one training, in an order by chance, over the corpus again and again."""
        rng = np.random.default_rng(seed)
        count = len(self.train.labels) if pairs is None else min(pairs, len(self.train.labels))
        needed = scale.updates * scale.batch_size
        rows = np.concatenate([rng.permutation(count) for _ in range(-(-needed // count))])
        return [
            _batch(self.train, rows[start : start + scale.batch_size])
            for start in range(0, needed, scale.batch_size)
        ]

    def validation_batches(self, scale: Scale) -> list[Batch]:
        """Full batches of the validation pairs."""
        return self.validation.batches(scale.batch_size)


def _batch(sentences: Sentences, rows: Any) -> Batch:
    inputs = {"source": sentences.source[rows], "target": sentences.target[rows]}
    return inputs, sentences.labels[rows]


def _prepare(data: str, scale: Scale, file: Path, vocabulary: Path) -> None:
    train = load_translation(data, split=f"train[:{PAIRS}]", source="en", target="de")
    held_out = load_translation(data, split=f"validation[:{_HELD_OUT}]", source="en", target="de")
    tokenizers = TokenizerPair.train(train, vocabulary_size=scale.vocabulary_size, kind="bpe")
    tokenizers.save(vocabulary)
    shape = {
        "bucket_lengths": (scale.length,),
        "tokens_per_batch": scale.length * scale.batch_size,
    }
    arrays: dict[str, Any] = {}
    for name, pairs in (("train", train), ("validation", held_out)):
        # Without a shuffle seed the order is that of the texts.
        sentences = Sentences.from_dataset(make_training_dataset(pairs, tokenizers, **shape))
        for part in ("source", "target", "labels"):
            arrays[f"{name}_{part}"] = getattr(sentences, part)
    # No column that is padding in every row.
    for side in (("source",), ("target", "labels")):
        names = [f"{split}_{part}" for split in ("train", "validation") for part in side]
        longest = max(int(np.flatnonzero((arrays[name] != 0).any(axis=0))[-1]) for name in names)
        for name in names:
            arrays[name] = arrays[name][:, : longest + 1]
    labels = [
        [int(token) for token in row if token not in (0, 2)] for row in arrays["validation_labels"]
    ]
    arrays["references"] = np.array(tokenizers.target.decode_batch(labels))
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)
