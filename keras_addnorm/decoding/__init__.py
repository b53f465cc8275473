"""Decoding: greedy and beam search over the cached decoder, with static shapes."""

from keras_addnorm.decoding.beam import Beam
from keras_addnorm.decoding.generate import decode, generate
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.length_penalty import gnmt_penalty
from keras_addnorm.decoding.translate import Translations, translate

__all__ = [
    "Beam",
    "Greedy",
    "Translations",
    "decode",
    "generate",
    "gnmt_penalty",
    "translate",
]
