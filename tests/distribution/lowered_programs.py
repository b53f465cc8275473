"""Lowers training steps and searches for TPUs and GPUs, and prints what is in them as JSON.

Run as a program by `test_lowered_programs.py`, on JAX without an accelerator: for a TPU, for a GPU,
or for a GPU on which cuDNN's attention can be used. What JAX asks of a real device, the version of
cuDNN and the generation of the chip, is answered for it; all else is as on a GPU.
"""

import contextlib
import json
import logging
import re
import sys
from collections import Counter

import jax
import keras
import numpy as np
from train_state import train_state

from keras_addnorm.decoding import Beam, DiverseBeam, Sample, decode
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy, Perplexity

VOCABULARY, ROWS, LENGTH = 64, 4, 16
STRATEGIES = {
    "greedy": "greedy",
    "beam": Beam(3, length_penalty=0.6),
    "diverse beam": DiverseBeam(num_beams=4, num_groups=2),
    "sample": Sample(temperature=0.7, top_k=5, top_p=0.9),
}


def pretend(target):
    """Answers what Keras and JAX ask of the device."""
    kind = "tpu" if target == "tpu" else "gpu"
    keras.distribution.list_devices = lambda *_: [f"{kind}:0"]
    if target == "cudnn":
        from jax._src.cudnn import fused_attention_stablehlo as cudnn

        cudnn.check_cudnn_version = lambda: 91100
        cudnn.check_compute_capability = lambda capability: float(capability) <= 9.0


def made(**fields):
    keras.utils.set_random_seed(3)
    return Seq2SeqTransformer(
        Seq2SeqConfig.preset(
            "tiny",
            source_vocabulary_size=VOCABULARY,
            target_vocabulary_size=VOCABULARY,
            num_encoder_layers=1,
            num_decoder_layers=1,
            hidden_dim=16,
            intermediate_dim=24,
            num_heads=2,
            dropout=0.1,
            max_length=LENGTH,
            **fields,
        ),
        dtype="mixed_bfloat16",
    )


def step(chunk_size=0, **fields):
    model = made(**fields)
    model.compile(
        "adam",
        MaskedSparseCategoricalCrossentropy(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
        vocabulary_chunk_size=chunk_size,
    )
    ids = np.ones((ROWS, LENGTH), "int32")
    data = {"source": ids, "target": ids}, ids
    return lambda s, d: model.train_step(s, d), (train_state(model, data), data)


def search(strategy):
    model = made()
    source = np.ones((ROWS, LENGTH), "int32")
    return lambda ids: decode(model, ids, strategy, max_length=7), (source,)


def found(program, platform):
    function, arguments = program
    text = jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
    return {
        "products": text.count("stablehlo.dot_general"),
        "float64": len(re.findall(r"xf64>|tensor<f64>", text)),
        "dynamic": text.count("tensor<?") + text.count("stablehlo.dynamic_reshape"),
        "host": [
            word
            for word in ("callback", "infeed", "outfeed", "stablehlo.send", "stablehlo.recv")
            if word in text
        ],
        "calls": Counter(re.findall(r"custom_call @([\w.$]+)", text)),
        # The scores of attention, whole: what flash attention is there to avoid.
        "scores": len(re.findall(rf"tensor<{ROWS}x2x{LENGTH}x{LENGTH}x(?:f32|bf16)>", text)),
    }


@contextlib.contextmanager
def complaints():
    """The first words of what Keras logs where it cannot use cuDNN."""
    heard = []

    class Handler(logging.Handler):
        def emit(self, record):
            heard.append(record.getMessage().split(" of ")[0])

    handler = Handler()
    logging.getLogger("absl").addHandler(handler)
    try:
        yield heard
    finally:
        logging.getLogger("absl").removeHandler(handler)


if __name__ == "__main__":
    target = sys.argv[1]
    pretend(target)
    platform = "tpu" if target == "tpu" else "cuda"
    programs = {
        "step": step(),
        "step in chunks": step(chunk_size=13),
        **{name: search(strategy) for name, strategy in STRATEGIES.items()},
    }
    if target == "cudnn":
        programs |= {
            "step with attention dropout": step(attention_dropout=0.1),
            "step with relative positions": step(positions="t5"),
            "step with rotary positions": step(positions="rotary"),
            "step of wide groups": step(attention={"num_key_value_heads": 1}),
        }
    with complaints() as heard:
        results = {name: found(program, platform) for name, program in programs.items()}
    results["complaints"] = heard
    if target == "cudnn":
        x = jax.ShapeDtypeStruct((ROWS, LENGTH, 2, 8), "bfloat16")
        mask = jax.ShapeDtypeStruct((ROWS, 1, 1, LENGTH), "bool")
        attend = lambda x, mask: keras.ops.dot_product_attention(x, x, x, mask=mask)  # noqa: E731
        with complaints() as results["a mask that cuDNN refuses"]:
            jax.jit(attend).trace(x, mask)
    json.dump(results, sys.stdout)
