"""A small exported model that several files of this room look at."""

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving import export_saved_model

MAX_LENGTH = 11
ROWS = (1, 3)
LENGTHS = (5, MAX_LENGTH)
OPTIONS = {"num_beams": 3, "length_penalty": 0.6, "max_length": 7}


@dataclasses.dataclass(frozen=True)
class Toy:
    model: Any
    tokenizers: TokenizerPair
    path: Path
    options: dict[str, Any]


def make_model(source_size, target_size, **overrides):
    config = Seq2SeqConfig.preset(
        "tiny",
        **{
            "source_vocabulary_size": source_size,
            "target_vocabulary_size": target_size,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "hidden_dim": 16,
            "intermediate_dim": 29,
            "num_heads": 2,
            "max_length": MAX_LENGTH,
            **overrides,
        },
    )
    keras.utils.set_random_seed(5)
    model = Seq2SeqTransformer(config)
    # Fresh weights say the same whatever they read: larger ones make translations differ.
    generator = np.random.default_rng(7)
    model.set_weights([w + 0.7 * generator.normal(size=w.shape) for w in model.get_weights()])
    return model


def make_tokenizers(texts):
    return TokenizerPair(
        Tokenizer.train(texts, vocabulary_size=101),
        Tokenizer.train(texts[:150], vocabulary_size=89, kind="bpe"),
    )


def export_toy(texts, directory):
    model, tokenizers = make_model(101, 89), make_tokenizers(texts)
    path = export_saved_model(
        model, tokenizers, directory, batch_buckets=ROWS, length_buckets=LENGTHS, **OPTIONS
    )
    return Toy(model, tokenizers, path, OPTIONS)
