"""Trains models whose loss reads the vocabulary whole and in chunks, on any backend.

Run as a program by `test_large_vocabulary.py` for JAX and torch; imported for TensorFlow.
"""

import json
import re
from collections import Counter

import keras
import numpy as np

from keras_addnorm.basics import tensors
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.norms import kernels
from keras_addnorm.training import (
    GuidedAlignment,
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    Perplexity,
)

VOCABULARY, CHUNK = 53, 11  # The last of five chunks overlaps the one before.
CASES = {
    "tied": {"logits_bias": True, "share_embeddings": True},
    "untied": {"tie_embeddings": False},
}


def made(dtype="float32", **fields):
    keras.utils.set_random_seed(3)
    config = {
        "source_vocabulary_size": VOCABULARY,
        "target_vocabulary_size": VOCABULARY,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "hidden_dim": 14,
        "intermediate_dim": 17,
        "num_heads": 2,
        "dropout": 0.1,
    }
    return Seq2SeqTransformer(Seq2SeqConfig(**{**config, **fields}), dtype=dtype)


def compiled(model, chunk_size, **arguments):
    model.compile(
        keras.optimizers.Adam(1e-2),
        MaskedSparseCategoricalCrossentropy(0.1),
        metrics=[MaskedAccuracy()],
        weighted_metrics=[Perplexity()],
        vocabulary_chunk_size=chunk_size,
        **arguments,
    )
    return model


def batch():
    """Inputs with an alignment, labels with padding, and weights of rows."""
    rng = np.random.default_rng(1)
    source, target, labels = rng.integers(3, VOCABULARY, (3, 4, 7)).astype("int32")
    target[:, 0] = 1
    target[2, 5:] = labels[2, 4:] = 0
    alignment = rng.uniform(0, 0.01, (4, 7, 7)).astype("float32")
    inputs = {"source": source, "target": target, "alignment": alignment}
    return inputs, labels, np.array([1, 2, 0.5, 0], "float32")


def run(chunk_size, dtype="float32", jit_compile="auto", **fields):
    """Three steps and an evaluation with weights, and the weights of the model after them."""
    model = compiled(
        made(dtype, **fields),
        chunk_size,
        guided_alignment=GuidedAlignment(0.1),
        jit_compile=jit_compile,
    )
    inputs, labels, weights = batch()
    for _ in range(3):
        trained = model.train_on_batch(inputs, labels, weights, return_dict=True)
    tested = model.test_on_batch(inputs, labels, weights, return_dict=True)
    return {
        "chunked": model.vocabulary_chunk_size > 0,
        "logs": [float(logs[name]) for logs in (trained, tested) for name in sorted(logs)],
        "weights": [keras.ops.convert_to_numpy(v.value).tolist() for v in model.variables],
    }


def lowered_step(model, rows, length):
    """The step of `fit` on JAX, lowered for abstract weights and ids."""
    import jax

    ids = jax.ShapeDtypeStruct((rows, length), "int32")
    data = {"source": ids, "target": ids}, ids
    model._symbolic_build(data_batch=data)
    model.optimizer.build(model.trainable_variables)
    state = tuple(
        [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    return jax.jit(model.train_step, donate_argnums=0).lower(state, data)


def products(chunk_size, **fields):
    """How many products of a step in bfloat16 have which operands and result."""
    step = lowered_step(compiled(made("mixed_bfloat16", **fields), chunk_size), 3, 7)
    found = re.findall(
        r"stablehlo\.dot_general.*: \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\) -> "
        r"tensor<([\dx]*)x(\w+)>",
        step.as_text(),
    )
    of_vocabulary = [(a, b, c) for a, b, shape, c in found if str(VOCABULARY) in shape.split("x")]
    return {
        "operands": Counter(f"{a} {b}" for a, b, _, _ in found),
        "of vocabulary": Counter(map(" ".join, of_vocabulary)),
    }


def temporary_bytes(chunk_size):
    """Memory of a step besides weights and moments, by XLA's plan, with V = 250,000."""
    size = {"source_vocabulary_size": 250_000, "target_vocabulary_size": 250_000}
    model = compiled(made(hidden_dim=16, share_embeddings=True, **size), chunk_size)
    step = lowered_step(model, 8, 64)
    return step.compile().memory_analysis().temp_size_in_bytes


if __name__ == "__main__":
    results = {
        dtype: [run(size, dtype, **CASES[case]) for size in (0, CHUNK)]
        for case, dtype in (("tied", "float32"), ("untied", "mixed_bfloat16"))
    }
    if keras.backend.backend() == "jax":
        # As on an accelerator: norms have no products.
        tensors.sums_are_products = kernels.sums_are_products = lambda: False
        results["products"] = {
            name: [products(size, **fields) for size in (0, CHUNK)]
            for name, fields in CASES.items()
        }
        results["bytes"] = [temporary_bytes(size) for size in (0, None)]
    print(json.dumps(results))
