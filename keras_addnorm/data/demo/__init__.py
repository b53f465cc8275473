"""The built-in demo set: sentence pairs, generated offline and without limit."""

from keras_addnorm.data.demo.generate import (
    SPLITS,
    TARGETS,
    Pair,
    check_held_out,
    demo_pairs,
    demo_splits,
    fingerprint,
    split_of,
)

ABOUT = (
    "The built-in set has sixteen kinds of sentences, about ages, births, prices, distances, "
    "journeys, visits, opening hours and the like, with some dozens of names and nouns. A model of "
    "it turns any other sentence into one of these."
)
"""What a model that was trained on the set knows, for those who try it."""

__all__ = [
    "ABOUT",
    "SPLITS",
    "TARGETS",
    "Pair",
    "check_held_out",
    "demo_pairs",
    "demo_splits",
    "fingerprint",
    "split_of",
]
