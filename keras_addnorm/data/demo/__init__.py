"""The built-in demo set: sentence pairs, generated offline and without limit."""

from keras_addnorm.data.demo.demo_set import DemoSet, demo_builder
from keras_addnorm.data.demo.generate import (
    SPLITS,
    TARGETS,
    Pair,
    check_held_out,
    demo_pairs,
    demo_splits,
    split_of,
)

__all__ = [
    "SPLITS",
    "TARGETS",
    "DemoSet",
    "Pair",
    "check_held_out",
    "demo_builder",
    "demo_pairs",
    "demo_splits",
    "split_of",
]
