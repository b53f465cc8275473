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

__all__ = [
    "SPLITS",
    "TARGETS",
    "Pair",
    "check_held_out",
    "demo_pairs",
    "demo_splits",
    "fingerprint",
    "split_of",
]
