"""From text to training batches: sentence pairs, tokenizers, bucketed pipelines.

`make_training_dataset` gives a `tf.data.Dataset`. TensorFlow is imported only when it is needed;
`make_training_batches` and the tokenizers work without it.

Each name is imported when it is first used: a server of exported models needs no Keras, and
`keras-addnorm --help` reads the tables of formats and faults without NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_addnorm.data import readers

if TYPE_CHECKING:
    from keras_addnorm.data.buckets import fit_bucket_lengths
    from keras_addnorm.data.demo import demo_builder, demo_pairs
    from keras_addnorm.data.held_out import hold_out
    from keras_addnorm.data.loading import line_reports, load_translation
    from keras_addnorm.data.pipeline import make_training_dataset
    from keras_addnorm.data.pipeline_report import PipelineReport
    from keras_addnorm.data.py_datasets import (
        BatchesOfManySizes,
        TrainingBatches,
        make_training_batches,
    )
    from keras_addnorm.data.streams import bucket_by_length
    from keras_addnorm.data.subword_sampling import SubwordSampling
    from keras_addnorm.data.text_files import LineReport
    from keras_addnorm.data.tokenizer import Tokenizer
    from keras_addnorm.data.tokenizer_pair import TokenizerPair
    from keras_addnorm.data.vocabulary import Piece

__all__ = [
    "BatchesOfManySizes",
    "LineReport",
    "Piece",
    "PipelineReport",
    "SubwordSampling",
    "Tokenizer",
    "TokenizerPair",
    "TrainingBatches",
    "bucket_by_length",
    "demo_builder",
    "demo_pairs",
    "fit_bucket_lengths",
    "hold_out",
    "line_reports",
    "load_translation",
    "make_training_batches",
    "make_training_dataset",
    "readers",
]

_HOMES = {
    "BatchesOfManySizes": "py_datasets",
    "LineReport": "text_files",
    "Piece": "vocabulary",
    "PipelineReport": "pipeline_report",
    "SubwordSampling": "subword_sampling",
    "Tokenizer": "tokenizer",
    "TokenizerPair": "tokenizer_pair",
    "TrainingBatches": "py_datasets",
    "bucket_by_length": "streams",
    "demo_builder": "demo",
    "demo_pairs": "demo",
    "fit_bucket_lengths": "buckets",
    "hold_out": "held_out",
    "line_reports": "loading",
    "load_translation": "loading",
    "make_training_batches": "py_datasets",
    "make_training_dataset": "pipeline",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
