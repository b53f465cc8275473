"""Public checkpoints that are known by name: family, licence, and how far each was tried."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from keras_addnorm.basics.resources import read_resource
from keras_addnorm.basics.suggestions import near_names

REFUSED = "refused"
"""The state of a checkpoint that is not loaded."""


@dataclass(frozen=True)
class PublicCheckpoint:
    """A checkpoint at a public hub.

    Attributes:
        name: Its name there.
        family: Its family, as `keras_addnorm.interop.families` names it.
        licence: The licence that its card names; empty where nobody has read the card.
        state: How far it was tried: `"same shape"`, `"never tried"` or `"refused"`.
        why: Why it is refused.
    """

    name: str
    family: str
    licence: str
    state: str
    why: str = ""


@functools.cache
def public_checkpoints() -> Mapping[str, PublicCheckpoint]:
    """Returns the checkpoints by name.

    Returns:
        Those of the registry, in its order.

    Example:
        >>> public_checkpoints()["facebook/bart-base"].family
        'bart'
    """
    registry = tomllib.loads(read_resource(__package__, "public_checkpoints.toml"))
    found = {}
    for state, families in registry.items():
        for family, names in families.items():
            why = names.pop("why", "")
            for name, licence in names.items():
                state_in_words = state.replace("_", " ")
                found[name] = PublicCheckpoint(name, family, licence, state_in_words, why)
    return found


def full_name(name: str) -> str:
    """Returns the name of a checkpoint with its owner, where one alone is known.

    Args:
        name: A name, such as `"opus-mt-en-de"`.

    Returns:
        The whole name, or the name as it is.

    Example:
        >>> full_name("opus-mt-en-de")
        'Helsinki-NLP/opus-mt-en-de'
    """
    owned = [known for known in public_checkpoints() if known.rpartition("/")[2] == name]
    return owned[0] if len(owned) == 1 else name


def nearest(name: str) -> str:
    """Returns `" Did you mean ...?"` for a name that is nearly known, or `""`.

    Args:
        name: A name, with its owner or without.

    Returns:
        The sentence, with a blank before it.

    Example:
        >>> nearest("opus-mt-en-zhh")
        " Did you mean 'Helsinki-NLP/opus-mt-en-zh'?"
    """
    known = public_checkpoints()
    if name in known:
        return ""
    shown = {one if "/" in name else one.rpartition("/")[2]: one for one in known}
    near = near_names(name, shown)[:1]
    return f" Did you mean {shown[near[0]]!r}?" if near else ""
