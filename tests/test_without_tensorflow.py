"""From text to training to translations where TensorFlow is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest
from new_process import environment_of

pytestmark = pytest.mark.slow

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

# The same start, and the function that the page of training shows.
GOES_ON = r"""
import sys

sys.modules["tensorflow"] = None
sys.modules["tensorflow_datasets"] = None

import pathlib, re, shutil

import keras
import numpy as np

from keras_addnorm import data, models, training
from keras_addnorm.training import resume

page = pathlib.Path("docs/training.md").read_text()
(block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "def train(" in b]
exec(block)

folder = pathlib.Path(sys.argv[1])
words = ["ab", "cd", "be", "da", "ec", "ad", "de"]
tokenizer = data.Tokenizer.train(["abcde"] * 5, vocabulary_size=10)
pairs = list(zip(words, reversed(words)))


def run(folder):
    keras.utils.set_random_seed(1)
    batches = data.make_training_batches(
        pairs, tokenizer, tokens_per_batch=8, bucket_lengths=(4,), shuffle_seed=1
    )
    assert len(batches) == 4
    config = models.Seq2SeqConfig.preset(
        "tiny", source_vocabulary_size=10, target_vocabulary_size=10, num_encoder_layers=1,
        num_decoder_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, max_length=5,
        # torch's dropout draws from torch's own generator, which no checkpoint has.
        dropout=0.0 if keras.backend.backend() == "torch" else 0.3,
    )
    model = models.Seq2SeqTransformer(config)
    model.compile(training.Adam(0.02), training.MaskedSparseCategoricalCrossentropy())
    train(model, batches, folder, epochs=4, every_batches=1)
    assert batches.epoch == 4
    return [keras.ops.convert_to_numpy(v) for v in (*model.variables, *model.optimizer.variables)]


original = resume.Checkpoints.on_train_batch_end


def copying(self, index, logs=None):
    # What a process that is killed now leaves.
    original(self, index, logs)
    if (self.position.epoch, self.position.batch) == (1, 3):
        shutil.copytree(folder / "whole", folder / "killed")


resume.Checkpoints.on_train_batch_end = copying
expected = run(folder / "whole")
resume.Checkpoints.on_train_batch_end = original
found = run(folder / "killed")
for one, other in zip(expected, found, strict=True):
    np.testing.assert_array_equal(one, other)
print("done on", keras.backend.backend())
"""


# The command, killed inside of its second epoch, or of its third stretch of updates.
COMMAND = r"""
import sys

sys.modules["tensorflow"] = None
sys.modules["tensorflow_datasets"] = None

import pathlib

import h5py
import keras
import numpy as np

from keras_addnorm import cli
from keras_addnorm.training import resume

folder = pathlib.Path(sys.argv[1])
corpus = folder / "corpus"
corpus.mkdir()
words = ["red", "green", "blue", "big"]
texts = [f"{a} {b} {c}" for a in words for b in words for c in words]
for split, some in {"train": texts, "val": texts[1::8]}.items():
    (corpus / f"{split}.en").write_text("".join(f"{text}\n" for text in some))
    (corpus / f"{split}.de").write_text("".join(f"{text[::-1]}\n" for text in some))
model = ["num_encoder_layers=1", "num_decoder_layers=1", "hidden_dim=8", "num_heads=2"]
model += ["intermediate_dim=12", "max_length=30"]
# torch's dropout draws from torch's own generator, which no checkpoint has.
model += ["dropout=0.0" if keras.backend.backend() == "torch" else "dropout=0.3"]
common = ["--data", corpus, "--source", "en", "--target", "de", "--vocabulary-size", 40]
common += ["--tokens-per-batch", 240, "--warmup-steps", 3, "--no-jit-compile"]
common += ["--checkpoint-batches", 1, "--early-stopping", 9, "--ema", 0.5]
for one in model:
    common += ["--set", f"model.{one}"]


def train(run, *flags):
    assert cli.main(["train", *map(str, (folder / run, *common, *flags))]) == 0
    last = sorted((folder / run / "checkpoints").iterdir())[-1]
    values = {}
    with h5py.File(last) as file:
        file.visititems(lambda name, item: values.update(
            {name: item[()]} if hasattr(item, "shape") and "training_state" not in name else {}
        ))
    return last.name, values


original = resume.Checkpoints.on_train_batch_end


class Killed(BaseException):
    pass


def dying(place):
    def on_train_batch_end(self, index, logs=None):
        original(self, index, logs)
        if (self.position.epoch, self.position.batch) == place:
            raise Killed

    return on_train_batch_end


for name, place, flags in (
    ("epochs", (1, 3), ["--epochs", 3]),
    ("updates", (2, 2), ["--validate-every", 5, "--max-updates", 20]),
):
    expected = train(f"{name}-whole", *flags)
    resume.Checkpoints.on_train_batch_end = dying(place)
    try:
        train(f"{name}-killed", *flags)
        raise AssertionError("It was not killed.")
    except Killed:
        resume.Checkpoints.on_train_batch_end = original
    found = train(f"{name}-killed", *flags)
    assert expected[0] == found[0] and expected[1].keys() == found[1].keys()
    assert len(expected[1]) > 30
    for key, value in expected[1].items():
        np.testing.assert_array_equal(value, found[1][key], err_msg=key)
print("done on", keras.backend.backend())
"""


def printed(script, backend, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment_of(backend),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_and_decoding_need_no_tensorflow(backend):
    assert printed(SCRIPT, backend).split()[-1:] == [backend]


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.release)])
def test_a_training_that_was_stopped_goes_on_without_tensorflow(backend, tmp_path):
    assert printed(GOES_ON, backend, tmp_path).split()[-1:] == [backend]


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.release), "torch"])
def test_the_command_trains_and_goes_on_without_tensorflow(backend, tmp_path):
    """To the bit, inside of an epoch and inside of a number of updates."""
    assert printed(COMMAND, backend, tmp_path).split()[-1:] == [backend]
