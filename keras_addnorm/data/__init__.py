"""From text to training batches: sentence pairs, tokenizers, bucketed pipelines.

`make_training_dataset` gives a `tf.data.Dataset`. TensorFlow is imported only when it is needed;
`make_training_batches` and the tokenizers work without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_addnorm.data.added_tokens import AddedToken
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.buckets import fit_bucket_lengths
from keras_addnorm.data.byte_level_bpe import ByteLevelBPETokenizer, byte_alphabet
from keras_addnorm.data.byte_tokenizer import ByteTokenizer
from keras_addnorm.data.demo import demo_pairs
from keras_addnorm.data.held_out import hold_out
from keras_addnorm.data.line_report import LineReport
from keras_addnorm.data.loading import line_reports, load_translation
from keras_addnorm.data.named_sets import demo_builder
from keras_addnorm.data.piece_ids import PieceIds
from keras_addnorm.data.piece_links import align_pieces, piece_links
from keras_addnorm.data.pipeline import make_training_dataset
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.data.sentencepiece_model import sentencepiece_pieces
from keras_addnorm.data.streams import bucket_by_length
from keras_addnorm.data.subword_sampling import SubwordSampling
from keras_addnorm.data.text_format import TextFormat
from keras_addnorm.data.tokenizer import Tokenizer
from keras_addnorm.data.tokenizer_files import load_tokenizer
from keras_addnorm.data.tokenizer_pair import TokenizerPair
from keras_addnorm.data.vocabulary import Piece

if TYPE_CHECKING:
    from keras_addnorm.data.py_datasets import (
        BatchesOfManySizes,
        TrainingBatches,
        make_training_batches,
    )

__all__ = [
    "AddedToken",
    "BaseTokenizer",
    "BatchesOfManySizes",
    "ByteLevelBPETokenizer",
    "ByteTokenizer",
    "LineReport",
    "Piece",
    "PieceIds",
    "PipelineReport",
    "SubwordSampling",
    "TextFormat",
    "Tokenizer",
    "TokenizerPair",
    "TrainingBatches",
    "align_pieces",
    "bucket_by_length",
    "byte_alphabet",
    "demo_builder",
    "demo_pairs",
    "fit_bucket_lengths",
    "hold_out",
    "line_reports",
    "load_tokenizer",
    "load_translation",
    "make_training_batches",
    "make_training_dataset",
    "piece_links",
    "sentencepiece_pieces",
]


def __getattr__(name: str) -> Any:
    # These need Keras, which a server of exported models does without.
    if name in ("BatchesOfManySizes", "TrainingBatches", "make_training_batches"):
        from keras_addnorm.data import py_datasets

        return getattr(py_datasets, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
