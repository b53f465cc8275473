"""Models built from the layers, and changes to whole models."""

from keras_addnorm.models.config import Seq2SeqConfig
from keras_addnorm.models.fold import fold, is_foldable
from keras_addnorm.models.lora import enable_lora, merge_lora
from keras_addnorm.models.rebuild import rebuild
from keras_addnorm.models.seq2seq import Seq2SeqTransformer

__all__ = [
    "Seq2SeqConfig",
    "Seq2SeqTransformer",
    "enable_lora",
    "fold",
    "is_foldable",
    "merge_lora",
    "rebuild",
]
