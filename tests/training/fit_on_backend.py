"""Trains one small model from fixed weights and prints what came out, on whatever backend is set.

Run as a program by `test_training_fit.py`, once for each backend; imported there for TensorFlow.
"""

import json
import sys

import keras
import numpy as np

from keras_addnorm.training import (
    InverseSquareRootSchedule,
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    MinimumRisk,
    Perplexity,
    RDropCrossentropy,
)

VOCABULARY_SIZE, WIDTH = 11, 5


def compiled_model(jit_compile, mask_zero=True, policy="float32"):
    """Embedding and projection with weights that no random generator has seen."""
    model = keras.Sequential(
        [
            keras.layers.Embedding(VOCABULARY_SIZE, WIDTH, mask_zero=mask_zero, dtype=policy),
            keras.layers.Dense(VOCABULARY_SIZE, dtype=policy),
        ]
    )
    model.build((None, None))
    model.set_weights([np.sin(np.arange(w.size)).reshape(w.shape) for w in model.get_weights()])
    model.compile(
        optimizer=keras.optimizers.SGD(InverseSquareRootSchedule(2.0, warmup_steps=3)),
        loss=MaskedSparseCategoricalCrossentropy(label_smoothing=0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
        jit_compile=jit_compile,
    )
    return model


def pairs():
    rng = np.random.default_rng(3)
    source = rng.integers(1, VOCABULARY_SIZE, (6, 7)).astype("int32")
    labels = (source * 3 % VOCABULARY_SIZE).astype("int32")
    for row in range(6):
        # Not where the source ends: the mask that Embedding attaches must not decide.
        source[row, 4 + row % 3 :] = 0
        labels[row, 3 + row % 4 :] = 0
    return source, labels


def weights_after_a_step(jit_compile, loss, sample_weight=None):
    model = compiled_model(jit_compile)
    model.compile(keras.optimizers.SGD(2.0), loss, jit_compile=jit_compile)
    model.train_on_batch(*pairs(), sample_weight=sample_weight)
    return [np.array(w).tolist() for w in model.get_weights()]


def run(jit_compile=True):
    model = compiled_model(jit_compile)
    source, labels = pairs()
    history = model.fit(source, labels, batch_size=2, epochs=3, shuffle=False, verbose=0).history
    weighted = model.evaluate(
        source, labels, sample_weight=np.arange(6, dtype="float32"), batch_size=6, verbose=0
    )
    before = [np.array(w) for w in model.get_weights()]
    nothing = model.fit(source, labels * 0, epochs=1, verbose=0).history
    return {
        "history": history,
        "weighted": weighted,
        "weights": [w.tolist() for w in before],
        # Neighbours count as one row seen twice: they differ without dropout.
        "r_drop": weights_after_a_step(jit_compile, RDropCrossentropy(3.0)),
        # Two references, and two candidates of each.
        "minimum risk": weights_after_a_step(jit_compile, MinimumRisk(3), np.arange(6) / 6),
        "padding only": [nothing["loss"], nothing["accuracy"], nothing["perplexity"]],
        "moved by padding": max(
            float(np.abs(a - b).max()) for a, b in zip(before, model.get_weights(), strict=True)
        ),
        "tensorflow": "tensorflow" in sys.modules,
    }


if __name__ == "__main__":
    # torch.compile wants a C++ compiler and minutes: its eager mode is what people train with.
    print(json.dumps(run(jit_compile=keras.backend.backend() != "torch")))
