"""Trains one small model on one device and on eight, and prints what came of it as JSON.

Run as a program by `test_eight_devices.py`, on JAX with eight simulated devices.
"""

import contextlib
import json
import sys

import jax
import keras
import numpy as np
from jax import export
from train_state import train_state

from keras_addnorm import distribution
from keras_addnorm.decoding import decode
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

VOCABULARY, ROWS, LENGTH, STEPS = 64, 16, 11, 20


def batches():
    """Ten words; the first half of each batch's rows holds two or three, the second many."""
    rng = np.random.default_rng(5)
    for _ in range(STEPS):
        labels = rng.integers(3, 13, (ROWS, LENGTH)).astype("int32")
        for row in range(ROWS):
            labels[row, 2 + row % 2 if row < ROWS // 2 else LENGTH - row % 3 :] = 0
        target = np.concatenate([np.ones((ROWS, 1), "int32"), labels[:, :-1]], axis=1)
        source = np.zeros_like(labels)  # The words in reverse, padding behind them.
        for row, words in enumerate(labels):
            source[row, : (words != 0).sum()] = words[words != 0][::-1]
        yield {"source": source, "target": target}, labels


def compiled_model():
    keras.utils.set_random_seed(3)
    model = Seq2SeqTransformer(
        Seq2SeqConfig.preset(
            "tiny",
            source_vocabulary_size=VOCABULARY,
            target_vocabulary_size=VOCABULARY,
            num_encoder_layers=1,
            num_decoder_layers=1,
            hidden_dim=16,
            intermediate_dim=24,
            num_heads=8,
            dropout=0.1,
            max_length=LENGTH,
            scheme="pre_ln",
            # The kinds of weights that a run of two processes does not have.
            activation="swiglu",
            tie_embeddings=False,
        )
    )
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=MaskedSparseCategoricalCrossentropy(label_smoothing=0.1),
    )
    return model


def mean_over_all_tokens(model, inputs, labels):
    """The loss by its definition, in NumPy, without dropout."""
    logits = np.asarray(model(inputs, training=False), "float64")
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    one_hot = np.eye(VOCABULARY)[labels]
    smooth = 0.9 * one_hot + 0.1 / VOCABULARY
    values, real = -(smooth * logp).sum(-1), labels != 0
    halves = [values[part][real[part]].mean() for part in (slice(0, 8), slice(8, 16))]
    return values[real].mean(), float(np.mean(halves))


def train(name):
    """Losses of all steps, and where each weight and each moment lies."""
    devices = None if name == "one" else distribution.get(name, 4 if name == "model" else 0)
    with contextlib.nullcontext() if devices is None else devices.scope():
        model = compiled_model()
        inputs, labels = next(batches())
        found = {
            "tested": float(model.test_on_batch(inputs, labels)),
            "token means": mean_over_all_tokens(model, inputs, labels),
            "losses": [
                float(model.train_on_batch(*batch, return_dict=True)["loss"]) for batch in batches()
            ],
        }
    variables = {v.path: v for v in model.trainable_variables}
    # Keras counts optimisers: adam/..., adam_1/...
    variables |= {v.path.split("/", 1)[1]: v for v in model.optimizer.variables}
    found["shapes"] = {
        name: (list(v.shape), sorted({s.data.shape for s in v.value.addressable_shards}))
        for name, v in variables.items()
    }
    found["devices"] = len(model.trainable_variables[0].value.sharding.device_set)
    return found


def lowered_for_tpu():
    """The training step and a search, compiled for TPUs as far as a machine without one can."""
    model = compiled_model()
    state = train_state(model, next(batches()))

    def search(source):
        return decode(model, source, num_beams=2, length_penalty=0.6, max_length=7)

    def program(function, *arguments):
        return str(export.export(jax.jit(function), platforms=["tpu"])(*arguments).mlir_module())

    return {
        "training step": program(lambda s, data: model.train_step(s, data), state, next(batches())),
        "search": program(search, next(batches())[0]["source"]),
        "a callback": refused(lambda: program(lambda x: jax.debug.print("{}", x), 1.0)),
    }


def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return "nothing was refused"


if __name__ == "__main__":
    results = {
        "one": train("one"),
        "data": train("data"),
        "model": train("model"),
        "fsdp": train("fsdp"),
        "tpu": lowered_for_tpu(),
        "too many": refused(lambda: distribution.get("model", 16)),
        "no batch axis": refused(
            lambda: distribution.fully_sharded_layout(
                keras.distribution.DeviceMesh((8,), ("model",))
            )
        ),
        "no axis": refused(
            lambda: distribution.model_parallel_layout(
                keras.distribution.DeviceMesh((8,), ("batch",))
            )
        ),
    }
    json.dump(results, sys.stdout)
