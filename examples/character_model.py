"""A decoder-only character model from `TransformerDecoder(memory=None)` in plain functional Keras.

It reads docstrings of Python's standard library, which every Python ships, and writes one of its
own: from a KV cache, one character a step, so that a step costs the same for any length of text.
Its loss on held-out docstrings is compared with that of a table of character pairs.

python examples/character_model.py            # 71 s of processor time
python examples/character_model.py --smoke    # only tries that it runs

Measured with Python 3.11 on two cores that were busy with other work (71 s of processor time took
5 minutes): 106,240 parameters; the loss of a character is 2.217, of the table of pairs 2.650. So
short a training gives fragments of words, such as "Return the prate the / trer in able ute cor
argument the the arguments the"; more epochs make it better.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import string

import keras
import numpy as np

from keras_addnorm.layers import PositionalEmbedding, TransformerDecoder

MODULES = (
    *("argparse", "codecs", "configparser", "difflib", "doctest", "inspect", "ipaddress"),
    *("optparse", "os", "pdb", "random", "shutil", "smtplib", "statistics", "subprocess"),
    *("tarfile", "threading", "turtle", "typing", "zipfile"),
)
# A fixed alphabet: the model's size does not depend on the version of Python.
ALPHABET = "\n " + string.digits + string.ascii_letters + string.punctuation
LENGTH = 128


def docstrings(module_name: str) -> list[str]:
    """All docstrings of a module, as its source has them."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module_name)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def encode(text: str) -> np.ndarray:
    """Positions in the alphabet; other characters are left out."""
    return np.array([ALPHABET.index(c) for c in text if c in ALPHABET], "int32")


def rows_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of characters, and for each character the one after it, both `(B, LENGTH)`."""
    ids = encode("\n\n".join(texts))
    num_rows = (len(ids) - 1) // LENGTH
    inputs, labels = ids[: num_rows * LENGTH], ids[1 : num_rows * LENGTH + 1]
    return inputs.reshape(-1, LENGTH), labels.reshape(-1, LENGTH)


def pair_loss(train: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
    """Loss of a table of how often each character follows each, every count one higher."""
    counts = np.ones((len(ALPHABET), len(ALPHABET)))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    probabilities = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.log(probabilities[inputs, labels]).mean())


@dataclasses.dataclass(frozen=True)
class CharacterModel:
    """The layers, the model to train that is made of them, and the way to write with them."""

    embedding: PositionalEmbedding
    decoder: TransformerDecoder
    model: keras.Model

    @classmethod
    def make(cls, hidden_dim: int, num_layers: int) -> "CharacterModel":
        # No character is padding, so there is nothing to mask.
        embedding = PositionalEmbedding(len(ALPHABET), hidden_dim, mask_zero=False)
        decoder = TransformerDecoder(
            num_layers, num_heads=4, intermediate_dim=4 * hidden_dim, scheme="pre_ln"
        )
        ids = keras.Input((None,), dtype="int32")
        logits = embedding(decoder(embedding(ids)), reverse=True)
        return cls(embedding, decoder, keras.Model(ids, logits))

    def step(self, ids, cache, index):
        """Logits after each of `ids` `(B, T)`, which stand at `index`, and the cache with them."""
        x = self.embedding(ids, start_index=index)
        h, cache = self.decoder(x, cache=cache, cache_update_index=index)
        return self.embedding(h, reverse=True), cache

    def write(self, prompt: str, num_characters: int, temperature: float = 0.5) -> str:
        """Goes on with a text, each character drawn by its probability."""
        rng = np.random.default_rng(1)
        ids = encode(prompt)[None]
        cache = self.decoder.initial_cache(1, max_length=ids.shape[1] + num_characters)
        logits, cache = self.step(ids, cache, 0)
        text = prompt
        for index in range(ids.shape[1], ids.shape[1] + num_characters):
            last = keras.ops.convert_to_numpy(logits[0, -1]).astype("float64") / temperature
            weights = np.exp(last - last.max())
            drawn = rng.choice(len(ALPHABET), p=weights / weights.sum())
            text += ALPHABET[drawn]
            logits, cache = self.step(np.array([[drawn]], "int32"), cache, index)
        return text


@dataclasses.dataclass(frozen=True)
class Result:
    character_model: CharacterModel
    loss: float
    pair_loss: float
    sample: str


def main(smoke: bool = False) -> Result:
    keras.utils.set_random_seed(1)
    texts = [text for name in (MODULES[3:5] if smoke else MODULES) for text in docstrings(name)]
    held_out = texts[::10]
    train = [text for index, text in enumerate(texts) if index % 10]
    inputs, labels = rows_of(train)
    test_inputs, test_labels = rows_of(held_out)
    print(f"{inputs.size:,} characters to train on, {test_inputs.size:,} others to test with")

    character_model = CharacterModel.make(*((16, 1) if smoke else (64, 2)))
    model = character_model.model
    epochs, batch_size = 2 if smoke else 4, 16
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, epochs * len(inputs) // batch_size, warmup_target=0.005, warmup_steps=20
    )
    model.compile(
        keras.optimizers.Adam(rate, beta_2=0.98),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=not smoke,
    )
    model.fit(inputs, labels, batch_size=batch_size, epochs=epochs, verbose=2)

    result = Result(
        character_model,
        model.evaluate(test_inputs, test_labels, batch_size=batch_size, verbose=0),
        pair_loss(encode("\n\n".join(train)), test_inputs, test_labels),
        character_model.write("Return the ", 20 if smoke else 300),
    )
    print(f"{model.count_params():,} parameters; loss of a character that it has not seen:")
    print(f"character pairs {result.pair_loss:.3f}\ntransformer     {result.loss:.3f}\n")
    print(result.sample)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
