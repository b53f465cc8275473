"""From text to training to translations where TensorFlow is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys

sys.modules["tensorflow"] = None  # Importing it now fails as if it were not there.
sys.modules["tensorflow_datasets"] = None

import keras

import keras_addnorm
from keras_addnorm import data, decoding, diagnostics, layers, models, norms, schemes, training

keras.utils.set_random_seed(1)
tokenizer = data.Tokenizer.train([" ".join("abcde")] * 5, vocabulary_size=10)
batches = data.make_training_batches(
    [("ab", "cd"), ("be", "da")], tokenizer, tokens_per_batch=4, bucket_lengths=(4,), shuffle_seed=1
)
config = models.Seq2SeqConfig.preset(
    "tiny", source_vocabulary_size=10, target_vocabulary_size=10, num_encoder_layers=1,
    num_decoder_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, max_length=5, dropout=0.0,
    scheme="pre_ln",
)
model = models.Seq2SeqTransformer(config)
model.compile(training.Adam(0.02), training.MaskedSparseCategoricalCrossentropy())
losses = model.fit(batches, epochs=40, verbose=0, shuffle=False).history["loss"]
assert batches.epoch == 40
assert losses[-1] < 0.1 * losses[0], losses
assert decoding.translate(model, tokenizer, ["ab", "be"], num_beams=2).texts == ["cd", "da"]
print("done on", keras.backend.backend())
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_and_decoding_need_no_tensorflow(backend):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "KERAS_BACKEND": backend},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split()[-1:] == [backend], done.stderr
