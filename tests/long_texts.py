"""Texts with words that are longer than any vocabulary needs."""

import random

from keras_addnorm.data.long_words import LONGEST_WORD


def long_texts(seed=3):
    """Words around the limit and far beyond it, alone and among others, of unknown letters, too."""
    draw = random.Random(seed)

    def word(size, letters="abdikulermonz日語é"):
        return "".join(draw.choices(letters, k=size))

    sizes = (-1, 0, 1, LONGEST_WORD - 1, LONGEST_WORD, LONGEST_WORD + 1, 2500)
    return [
        *(word(LONGEST_WORD + more) for more in sizes),
        f"ba {word(2 * LONGEST_WORD + 1)} di {word(LONGEST_WORD + 1)} ba",
        f"{word(LONGEST_WORD)} {word(LONGEST_WORD)}",
        # Runs of unknown characters over a cut, up to one, and from one on.
        word(2300, "日"),
        "a" * (LONGEST_WORD - 3) + "日日日" + "語" + "a" * LONGEST_WORD,
        "a" * LONGEST_WORD + "日本 日本",
        "a" * 3000,
        "ab" * 1500,
        "ba di " * 700,
    ]
