"""A model small enough to run everywhere, with random weights in every place."""

import keras
import numpy as np

from keras_addnorm import schemes
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

# Those of one stream, without second names.
SCHEMES = tuple(
    name
    for name in schemes.names()
    if schemes.serialize(schemes.get(name))["name"] == name
    and not isinstance(schemes.get(name), schemes.StreamScheme)
)
V_SOURCE, V_TARGET = 13, 11

SOURCE = np.array([[4, 5, 6, 7, 12, 2, 0], [3, 9, 2, 0, 0, 0, 0], [8, 4, 3, 10, 11, 5, 2]])
TARGET = np.array([[1, 4, 5, 6, 0], [1, 7, 0, 0, 0], [1, 8, 9, 10, 3]])


def config(**overrides):
    return Seq2SeqConfig(
        **{
            "source_vocabulary_size": V_SOURCE,
            "target_vocabulary_size": V_TARGET,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "hidden_dim": 6,
            "intermediate_dim": 17,
            "num_heads": 2,
            "max_length": 19,
            **overrides,
        }
    )


def tiny_model(dtype=None, **overrides):
    return randomize(Seq2SeqTransformer(config(**overrides), dtype=dtype))


def randomize(model, seed=5):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(array(weight) + rng.normal(scale=0.3, size=tuple(weight.shape)))
    return model


def array(weight):
    return keras.ops.convert_to_numpy(weight)


def batch(source=SOURCE, target=TARGET):
    return {"source": source, "target": target}
