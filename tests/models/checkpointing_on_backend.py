"""Trains one model that keeps its activations and one that computes them again, on any backend.

Run as a program by `test_gradient_checkpointing.py` for JAX and torch; imported for TensorFlow.
"""

import dataclasses
import json

import keras
import numpy as np

from keras_addnorm.layers import AttentionConfig
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

# All that a layer can draw, keep or add while it trains.
CONFIG = Seq2SeqConfig(
    source_vocabulary_size=13,
    target_vocabulary_size=13,
    num_encoder_layers=2,
    num_decoder_layers=1,
    hidden_dim=6,
    intermediate_dim=11,
    num_heads=2,
    dropout=0.3,
    attention_dropout=0.2,
    drop_path=0.2,
    scheme="pre_ln",
    norm={"encoder": "batch_norm", "decoder": "layer_norm"},
    attention=AttentionConfig(
        head_diversity={"subspaces": 0.1, "outputs": 0.2}, value_residual=True
    ),
    positions="t5",
)

# What most models have, in which next to nothing is kept but what layers compute.
PLAIN = {
    "hidden_dim": 256,
    "intermediate_dim": 1024,
    "num_heads": 4,
    "norm": "layer_norm",
    "attention": AttentionConfig(),
    "positions": "sinusoidal",
    "attention_dropout": 0.0,
    "drop_path": 0.0,
}


def batch():
    source, target, labels = np.random.default_rng(1).integers(3, 13, (3, 4, 7)).astype("int32")
    source[1, 5:] = 0
    labels[2, 3:] = 0
    return {"source": source, "target": target}, labels


def run(jit_compile, **fields):
    keras.utils.set_random_seed(5)
    model = Seq2SeqTransformer(dataclasses.replace(CONFIG, **fields))
    model.compile("sgd", MaskedSparseCategoricalCrossentropy(), jit_compile=jit_compile)
    losses = [float(model.train_on_batch(*batch())) for _ in range(3)]
    weights = [keras.ops.convert_to_numpy(v.value).tolist() for v in model.variables]
    return {"losses": losses, "weights": weights}


def kept_on_jax(dtype="float32", **fields):
    """Bytes that are kept from the forward pass for the gradients, each array once.

    Weights, copies of weights in other bits, and what does not depend on the data, such as zeros,
    are not activations.
    """
    import jax

    model = Seq2SeqTransformer(dataclasses.replace(CONFIG, **fields), dtype=dtype)
    states = [v.value for v in model.non_trainable_variables]
    source = np.ones((8, 64), "int32")

    def logits(trainable, states, source):
        inputs = {"source": source, "target": source}
        return model.stateless_call(trainable, states, inputs, training=True)[0]

    def kept(trainable, states, source):
        _, backward = jax.vjp(lambda weights: logits(weights, states, source), trainable)
        return jax.tree.leaves(backward)

    weights = [v.value for v in model.trainable_variables]
    with jax.disable_jit():
        program = jax.make_jaxpr(kept)(weights, states, source).jaxpr
    follows = {id(v) for v in program.invars[len(weights) :]}
    same = {}
    for step in program.eqns:
        if any(id(v) in follows for v in step.invars):
            follows |= {id(v) for v in step.outvars}
        if step.primitive.name == "reshape":
            (read,), (made,) = step.invars, step.outvars
            same[id(made)] = same.get(id(read), id(read))
    arrays = {same.get(id(v), id(v)): v.aval for v in program.outvars if id(v) in follows}
    return sum(array.size * array.dtype.itemsize for array in arrays.values())


if __name__ == "__main__":
    backend = keras.backend.backend()
    found = {
        name: run(jit_compile=backend != "torch", gradient_checkpointing=again)
        for name, again in (("kept", False), ("again", True))
    }
    if backend == "jax":
        found["kept bytes"] = {
            name: kept_on_jax(gradient_checkpointing=again)
            for name, again in (("kept", False), ("again", True))
        }
        found["kept bytes"] |= {
            dtype: kept_on_jax(dtype, **PLAIN) for dtype in ("float32", "mixed_bfloat16")
        }
    print(json.dumps(found))
