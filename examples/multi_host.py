"""One training on several hosts, or on all accelerators of one: start this file on each of them.

On every host, with another number in the last line (0, 1, ...; process 0 is at 10.0.0.1):

    export KERAS_BACKEND=jax
    export KERAS_DISTRIBUTION_JOB_ADDRESSES=10.0.0.1:1234
    export KERAS_DISTRIBUTION_NUM_PROCESSES=2
    export KERAS_DISTRIBUTION_PROCESS_ID=0
    python examples/multi_host.py --distribution model

On a TPU pod, with Slurm and with Open MPI the first two lines are enough, and `auto` in place of
the address. On one host, leave out all but the first. See docs/scaling.md.

    python examples/multi_host.py --smoke    # two processes on this machine, half a minute of a CPU
"""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")

import keras

from keras_addnorm import distribution
from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy


def train(kind: str, pairs: int, epochs: int, weights: Path | None) -> float:
    # 1. Join the others, before anything is computed. From here on every process does the same.
    devices = distribution.get(kind)
    keras.utils.set_random_seed(1)

    # 2. All processes see the same batches in the same order, and each reads its rows of them.
    texts = load_translation("demo/en-de", split=f"train[:{pairs}]")
    tokenizers = TokenizerPair.train(texts, vocabulary_size=304, kind="bpe")
    batches = make_training_dataset(
        texts,
        tokenizers,
        shuffle_seed=1,
        bucket_lengths=(48,),
        tokens_per_batch=1536,
        rows_multiple_of=devices.replicas,
        row_share=devices.row_share,
    )

    # 3. The model is made, compiled and trained where its weights find their devices.
    with devices.scope():
        model = Seq2SeqTransformer(
            Seq2SeqConfig.preset(
                "tiny",
                source_vocabulary_size=304,
                target_vocabulary_size=304,
                share_embeddings=True,
                num_encoder_layers=1,
                num_decoder_layers=1,
                hidden_dim=32,
                num_heads=8,
                scheme="pre_ln",
                max_length=48,
            )
        )
        model.compile(
            optimizer=keras.optimizers.Adam(0.003),
            loss=MaskedSparseCategoricalCrossentropy(label_smoothing=0.1),
            metrics=[MaskedAccuracy()],
        )
        first = distribution.is_first()
        history = model.fit(batches, epochs=epochs, shuffle=False, verbose=2 if first else 0)

    # 4. One process writes.
    if weights and first:
        with distribution.whole_values(model.variables):
            model.save_weights(weights)
    loss = float(history.history["loss"][-1])
    kernel = model.encoder.layers[0].feed_forward.intermediate_projection.kernel
    here = kernel.value.addressable_shards[0].data.shape
    print(f"{devices}: loss {loss:.6f}, a kernel of {tuple(kernel.shape)} lies here as {here}")
    return loss


def smoke() -> list[str]:
    """Two processes with two devices each, on this machine; returns what they said last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, __file__, "--distribution", "model", "--pairs", "96"]
    started = [
        subprocess.Popen(
            [*command, "--epochs", "1"],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "KERAS_BACKEND": "jax",
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "2",
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
                "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
                "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            },
        )
        for index in range(2)
    ]
    outputs = [process.communicate()[0] for process in started]
    for process, output in zip(started, outputs, strict=True):
        print(output, end="")
        if process.returncode:
            raise SystemExit("A process failed.")
    return [output.splitlines()[-1] for output in outputs]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--distribution", default="data", help="data or model")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--weights", type=Path, help="where process 0 writes the weights")
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    options = parser.parse_args()
    if options.smoke:
        smoke()
    else:
        train(options.distribution, options.pairs, options.epochs, options.weights)
