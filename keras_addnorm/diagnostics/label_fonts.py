"""Fonts of this machine that have the characters of a picture's labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from keras_addnorm.basics.printing import printable

_LOGGER = logging.getLogger(__name__)

# What is drawn where no font has a character; matplotlib's own fonts have it.
_BOX = "\u25a1"
_LONGEST = 100


def fitting_fonts(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Finds fonts that have all characters of some labels.

    Args:
        labels: The labels.

    Returns:
        The names of the fonts, the usual one first, and the labels, with a box for each character
        that no font has and the rest as `literal` writes it; these are logged once for the picture.
    """
    from matplotlib import font_manager

    labels = [literal(label) for label in labels]
    usual = font_manager.FontProperties()
    missing = set("".join(labels)) - _characters(font_manager.findfont(usual))
    fonts = [usual.get_name()]
    for entry in font_manager.fontManager.ttflist:
        if not missing:
            break
        found = missing & _characters(entry.fname)
        if found:
            fonts.append(entry.name)
            missing -= found
    if missing:
        _LOGGER.warning(
            "No font of this machine has the characters %s: boxes are drawn in their place. "
            "Install one that has them, such as Noto Sans (fonts-noto-cjk), and delete "
            "matplotlib's font cache.",
            " ".join(sorted(missing)[:10]),
        )
    boxes = {ord(character): _BOX for character in missing}
    return fonts, [label.translate(boxes) for label in labels]


def literal(text: str) -> str:
    """Writes the beginning of a text so that a picture has it as it is, controls escaped."""
    # Each character is drawn, to be seen or not.
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    # Matplotlib reads a pair of dollar signs as mathematics.
    return printable(text).replace("$", r"\$")


def _characters(path: str) -> set[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return set(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):  # A font that cannot be read has none.
        return set()
