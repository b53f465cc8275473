"""The layers train and the model translates where TensorFlow is not installed."""

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
import numpy as np

import keras_addnorm
from keras_addnorm import decoding, diagnostics, layers, models, norms, schemes, training

keras.utils.set_random_seed(1)
config = models.Seq2SeqConfig.preset(
    "tiny", source_vocabulary_size=11, target_vocabulary_size=13, num_encoder_layers=1,
    num_decoder_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, max_length=5, dropout=0.0,
)
model = models.Seq2SeqTransformer(config)
model.compile(keras.optimizers.Adam(0.05), training.MaskedSparseCategoricalCrossentropy())
batch = {"source": np.array([[4, 5, 2]]), "target": np.array([[1, 6, 7]])}
losses = model.fit(batch, np.array([[6, 7, 2]]), epochs=30, verbose=0).history["loss"]
ids, scores = model.generate(batch["source"], num_beams=2)
assert losses[-1] < 0.1 * losses[0], losses
assert ids.tolist() == [[6, 7, 2, 0, 0]], ids
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
