"""Models built from the layers."""

from keras_addnorm.models.config import Seq2SeqConfig
from keras_addnorm.models.seq2seq import Seq2SeqTransformer

__all__ = ["Seq2SeqConfig", "Seq2SeqTransformer"]
