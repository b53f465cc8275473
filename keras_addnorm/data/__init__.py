"""From text to training batches: tokenizers and bucketed `tf.data` pipelines."""

from keras_addnorm.data.pipeline import PipelineReport, bucket_by_length, make_training_dataset
from keras_addnorm.data.tokenizer import Piece, Tokenizer, TokenizerPair

__all__ = [
    "Piece",
    "PipelineReport",
    "Tokenizer",
    "TokenizerPair",
    "bucket_by_length",
    "make_training_dataset",
]
