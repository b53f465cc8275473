"""From text to training batches: sentence pairs, tokenizers, bucketed `tf.data` pipelines."""

from keras_addnorm.data.demo import demo_builder, demo_pairs
from keras_addnorm.data.loading import line_reports, load_translation
from keras_addnorm.data.pipeline import PipelineReport, bucket_by_length, make_training_dataset
from keras_addnorm.data.text_files import LineReport
from keras_addnorm.data.tokenizer import Piece, Tokenizer, TokenizerPair

__all__ = [
    "LineReport",
    "Piece",
    "PipelineReport",
    "Tokenizer",
    "TokenizerPair",
    "bucket_by_length",
    "demo_builder",
    "demo_pairs",
    "line_reports",
    "load_translation",
    "make_training_dataset",
]
