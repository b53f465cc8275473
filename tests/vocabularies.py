"""Vocabularies for tests of few sentences."""

import re

from keras_addnorm.data import Tokenizer


def largest_vocabulary(texts, **options):
    """The largest vocabulary that the texts allow."""
    try:
        return Tokenizer.train(texts, vocabulary_size=9999, **options)
    except ValueError as error:
        size = re.search(r"at most (\d+) pieces", str(error))
        if size is None:
            raise
        return Tokenizer.train(texts, vocabulary_size=int(size[1]), **options)
