"""A small model with random weights, and a batch for it: the same on every backend."""

import keras
import numpy as np

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

SOURCE = np.array([[4, 5, 6, 7, 12, 2, 0], [3, 9, 2, 0, 0, 0, 0], [8, 4, 3, 10, 11, 5, 2]])
TARGET = np.array([[1, 4, 5, 6, 0], [1, 7, 0, 0, 0], [1, 8, 9, 10, 3]])
LABELS = np.array([[4, 5, 6, 2, 0], [7, 2, 0, 0, 0], [8, 9, 10, 3, 2]])
SUBLAYERS = (
    "encoder/0/self_attention",
    "encoder/0/feed_forward",
    "encoder/1/self_attention",
    "encoder/1/feed_forward",
    "decoder/0/self_attention",
    "decoder/0/cross_attention",
    "decoder/0/feed_forward",
)


def batch():
    return {"source": SOURCE, "target": TARGET}


def tiny_model(seed=5, dtype=None, **overrides):
    """A model whose weights are all random, drawn by NumPy: the same on every backend."""
    model = Seq2SeqTransformer(
        Seq2SeqConfig(
            **{
                "source_vocabulary_size": 13,
                "target_vocabulary_size": 11,
                "num_encoder_layers": 2,
                "num_decoder_layers": 1,
                "hidden_dim": 6,
                "intermediate_dim": 17,
                "num_heads": 2,
                "max_length": 19,
                "dropout": 0.5,
                **overrides,
            }
        ),
        dtype=dtype,
    )
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        start = array(weight)
        # Initial gains are kept, since they are the same on every backend; initial kernels are not.
        middle = start if np.ptp(start) == 0 else np.zeros_like(start)
        weight.assign(middle + rng.normal(scale=0.3, size=start.shape))
    return model


def array(tensor):
    return np.asarray(keras.ops.convert_to_numpy(tensor))
