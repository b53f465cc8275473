"""A decoder-only character model from `TransformerDecoder(memory=None)` in plain functional Keras.

It reads docstrings of Python's standard library, which every Python ships, and writes one of its
own. Its three methods `encode`, `initial_cache` and `decode_step` are all that `generate` asks for:
the prompt is the prefix of the output, and each step reads one character and a KV cache. Its loss
on held-out docstrings is compared with that of a table of character pairs.

python examples/character_model.py            # 64 s of processor time
python examples/character_model.py --smoke    # only tries that it runs

Measured with Python 3.11 on two cores that were busy with other work (64 s of processor time took
7 minutes): 106,432 parameters; the loss of a character is 2.327, of the table of pairs 2.663. So
short a training gives fragments of words: drawn at random "Return the is and the oines thang the
che set is and set ale is feriled.", of the most probable characters "Return the is and the the se
and the the is the is the code the code the"; more epochs make it better.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import string

import keras
import numpy as np

from keras_addnorm.decoding import Greedy, Sample, Strategy, generate
from keras_addnorm.layers import PositionalEmbedding, TransformerDecoder

MODULES = (
    *("argparse", "codecs", "configparser", "difflib", "doctest", "inspect", "ipaddress"),
    *("optparse", "os", "pdb", "random", "shutil", "smtplib", "statistics", "subprocess"),
    *("tarfile", "threading", "turtle", "typing", "zipfile"),
)
# A fixed alphabet: the model's size does not depend on the version of Python.
ALPHABET = "\n " + string.digits + string.ascii_letters + string.punctuation
LENGTH = 128
PROMPT = "Return the "
# The ids of a search's defaults: 0 pads, 1 starts, 2 ends a text. Characters come after them.
START, END, FIRST_CHARACTER = 1, 2, 3
VOCABULARY_SIZE = FIRST_CHARACTER + len(ALPHABET)


def docstrings(module_name: str) -> list[str]:
    """All docstrings of a module, as its source has them."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module_name)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def encode(text: str) -> np.ndarray:
    """The id of each character; those that are not in the alphabet are left out."""
    return np.array([FIRST_CHARACTER + ALPHABET.index(c) for c in text if c in ALPHABET], "int32")


def text_of(ids: np.ndarray) -> str:
    """The characters of ids; special ids are left out."""
    return "".join(ALPHABET[i - FIRST_CHARACTER] for i in ids if i >= FIRST_CHARACTER)


def rows_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """What the model reads, and what comes next, both `(B, LENGTH)`.

    Texts follow one another, an end after each. A row begins with the start token, as a search
    does, wherever in a text it is cut.
    """
    ids = np.concatenate([[*encode(text), END] for text in texts]).astype("int32")
    labels = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
    starts = np.full_like(labels[:, :1], START)
    return np.hstack([starts, labels[:, :-1]]), labels


def pair_loss(
    train_inputs: np.ndarray, train_labels: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> float:
    """Loss of a table of how often each character follows each, every count one higher."""
    counts = np.ones((VOCABULARY_SIZE, VOCABULARY_SIZE))
    np.add.at(counts, (train_inputs, train_labels), 1)
    probabilities = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.log(probabilities[inputs, labels]).mean())


class CharacterModel(keras.Model):
    """A functional model to train, and the three methods that a search asks for."""

    def __init__(self, hidden_dim: int, num_layers: int) -> None:
        # No character of a row is padding, so there is nothing to mask.
        embedding = PositionalEmbedding(VOCABULARY_SIZE, hidden_dim, mask_zero=False)
        decoder = TransformerDecoder(
            num_layers, num_heads=4, intermediate_dim=4 * hidden_dim, scheme="pre_ln"
        )
        ids = keras.Input((None,), dtype="int32")
        super().__init__(ids, embedding(decoder(embedding(ids)), reverse=True))
        self.embedding, self.decoder = embedding, decoder

    def encode(self, source_ids):
        return None, None  # There is no source.

    def initial_cache(self, memory, batch_size, max_length):
        return self.decoder.initial_cache(batch_size, max_length)

    def decode_step(self, token_ids, cache, index, memory_padding_mask=None):
        x = self.embedding(token_ids[:, None], start_index=index)  # (N,) -> (N, 1, D)
        h, cache = self.decoder(x, cache=cache, cache_update_index=index)
        return self.embedding(h, reverse=True)[:, 0], cache  # (N, V)


def write(
    model: CharacterModel, prompt: str, strategy: Strategy, num_characters: int, **options
) -> str:
    """Goes on with a text, up to the end of the docstring or by `num_characters`."""
    prefix = encode(prompt)[None]
    ids, _ = generate(
        model,
        strategy=strategy,
        target_prefix=prefix,
        max_length=prefix.shape[1] + num_characters,
        **options,
    )
    return text_of(ids[0])


@dataclasses.dataclass(frozen=True)
class Result:
    model: CharacterModel
    loss: float
    pair_loss: float
    samples: dict[str, str]


def main(smoke: bool = False) -> Result:
    keras.utils.set_random_seed(1)
    texts = [text for name in (MODULES[3:5] if smoke else MODULES) for text in docstrings(name)]
    inputs, labels = rows_of([text for index, text in enumerate(texts) if index % 10])
    test_inputs, test_labels = rows_of(texts[::10])
    print(f"{inputs.size:,} characters to train on, {test_inputs.size:,} others to test with")

    model = CharacterModel(*((16, 1) if smoke else (64, 2)))
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

    strategies = {"sampled": Sample(temperature=0.5, seed=1), "greedy": Greedy()}
    # Rows of training have no positions after these.
    length = 20 if smoke else LENGTH - len(PROMPT)
    result = Result(
        model,
        model.evaluate(test_inputs, test_labels, batch_size=batch_size, verbose=0),
        pair_loss(inputs, labels, test_inputs, test_labels),
        {
            name: write(model, PROMPT, strategy, length, jit_compile=not smoke)
            for name, strategy in strategies.items()
        },
    )
    print(f"{model.count_params():,} parameters; loss of a character that it has not seen:")
    print(f"character pairs {result.pair_loss:.3f}\ntransformer     {result.loss:.3f}")
    for name, text in result.samples.items():
        print(f"\n{name}: {text}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
