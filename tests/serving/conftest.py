"""Text and vocabularies that the tests of this room share."""

import numpy as np
import pytest
import tensorflow as tf
from exported import export_toy

from keras_addnorm.data import Tokenizer
from keras_addnorm.serving import load_translator

SYLLABLES = ("ba", "di", "ku", "ler", "mon", "schä", "tö", "un", "vei", "zz", "aa", "ó")


def make_texts(count, seed):
    """Makes sentences of invented words, in a few spellings and with punctuation."""
    generator = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = [
            "".join(generator.choice(SYLLABLES, generator.integers(1, 5)))
            for _ in range(generator.integers(1, 9))
        ]
        words[0] = words[0].capitalize()
        texts.append(" ".join(words) + str(generator.choice([".", "?", " !", "", " 2017"])))
    return texts


@pytest.fixture(scope="session")
def texts():
    return make_texts(300, seed=3)


@pytest.fixture(scope="session")
def new_texts():
    """Texts that the vocabularies were not trained on."""
    return make_texts(300, seed=5)


@pytest.fixture(scope="session")
def toy(texts, tmp_path_factory):
    """A small exported model; making it takes longer than most tests."""
    return export_toy(texts, tmp_path_factory.mktemp("exported") / "toy")


@pytest.fixture(scope="session")
def translator(toy):
    """What is loaded last of the export; the first call of a graph takes seconds."""
    return load_translator(toy.path.parent)


@pytest.fixture(scope="session")
def module(toy):
    """The export as TensorFlow loads it."""
    return tf.saved_model.load(str(toy.path))


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def tokenizer(request, texts):
    return Tokenizer.train(texts, vocabulary_size=211, kind=request.param)
