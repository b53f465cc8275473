"""Decoding: searches over the cached decoder, with static shapes, on ids and on texts."""

from keras_addnorm.basics.translation import Translation
from keras_addnorm.decoding import constraints, length_penalties, splitting, strategies
from keras_addnorm.decoding.beam import Beam, DiverseBeam
from keras_addnorm.decoding.constraints import (
    Constraint,
    ForbiddenTokens,
    MaxLength,
    MinLength,
    NoRepeatNgram,
)
from keras_addnorm.decoding.decoder import Decoder, SpecialIds
from keras_addnorm.decoding.generate import Details, Generation, decode, generate
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.length_penalties import (
    AveragePenalty,
    CoveragePenalty,
    GNMTPenalty,
    LengthPenalty,
    NoPenalty,
)
from keras_addnorm.decoding.sample import Sample
from keras_addnorm.decoding.score import Scores, score
from keras_addnorm.decoding.search import Search
from keras_addnorm.decoding.search_inputs import Prefix
from keras_addnorm.decoding.shortlist import Lexicon, Shortlist
from keras_addnorm.decoding.splitting import LongTexts, NoSplitting, Sentences, Splitting
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.translate import Translations, translate

__all__ = [
    "AveragePenalty",
    "Beam",
    "Constraint",
    "CoveragePenalty",
    "Decoder",
    "Details",
    "DiverseBeam",
    "ForbiddenTokens",
    "GNMTPenalty",
    "Generation",
    "Greedy",
    "LengthPenalty",
    "Lexicon",
    "LongTexts",
    "MaxLength",
    "MinLength",
    "NoPenalty",
    "NoRepeatNgram",
    "NoSplitting",
    "Prefix",
    "Sample",
    "Scores",
    "Search",
    "Sentences",
    "Shortlist",
    "SpecialIds",
    "Splitting",
    "Strategy",
    "Translation",
    "Translations",
    "constraints",
    "decode",
    "generate",
    "length_penalties",
    "score",
    "splitting",
    "strategies",
    "translate",
]
