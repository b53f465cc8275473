"""Decoding: searches over the cached decoder, with static shapes, on ids and on texts."""

from keras_addnorm.decoding import length_penalties, strategies
from keras_addnorm.decoding.beam import Beam
from keras_addnorm.decoding.generate import generate
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.length_penalties import (
    AveragePenalty,
    GNMTPenalty,
    LengthPenalty,
    NoPenalty,
)
from keras_addnorm.decoding.search import decode
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.translate import Translations, translate

__all__ = [
    "AveragePenalty",
    "Beam",
    "GNMTPenalty",
    "Greedy",
    "LengthPenalty",
    "NoPenalty",
    "Strategy",
    "Translations",
    "decode",
    "generate",
    "length_penalties",
    "strategies",
    "translate",
]
