"""The classes of tokenizers in `transformers`, and how each reads texts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

CONTROLS = frozenset(("<s>", "<pad>", "</s>", "<unk>"))
"""Special tokens of most families that a text cannot hold."""

_NOTHING = "(?!)"
_WORD = r"[A-Za-z][\w-]+"
_NAMES = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a class of `transformers` reads texts.

    Attributes:
        names: The names that special tokens have to have, by their role.
        values: The values that further settings may have; `None` for any.
        languages: What the names of languages are like. They are tokens that no text holds.
        own_languages: What the names of special tokens are like that are languages, too, if
            somebody has added them.
        controls: What the names of further such tokens are like.
        texts: What the names of the family's own tokens are like that a text may hold.
        default: What is done around these where no file says it.
        keeps_space: Whether white space before an added token is kept.
        normalizes: Whether tokens that are `normalized` are looked for in normalised texts.
    """

    names: Mapping[str, str] = dataclasses.field(default_factory=lambda: _NAMES)
    values: Mapping[str, tuple[Any, ...] | None] = dataclasses.field(default_factory=dict)
    languages: str = _NOTHING
    own_languages: str = _NOTHING
    controls: str = _NOTHING
    texts: str = _NOTHING
    default: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    keeps_space: bool = False
    normalizes: bool = False

    def is_control(self, text: str, is_special: bool) -> bool:
        """Return whether a token is one that no text holds."""
        is_own = text in CONTROLS or re.fullmatch(self.controls, text) is not None
        return is_own or self.is_language(text, is_special)

    def is_language(self, text: str, is_special: bool) -> bool:
        """Return whether a token names a language."""
        if re.fullmatch(self.languages, text):
            return True
        return is_special and re.fullmatch(self.own_languages, text) is not None


_T5 = Kind(
    values={"extra_ids": None, "add_prefix_space": (True,)},
    texts=r"<extra_id_\d+>",
    normalizes=True,
)
_MASK = {**_NAMES, "mask_token": "<mask>"}
_MBART = Kind(
    names=_MASK,
    languages="[a-z]{2}_[A-Z]{2}",
    own_languages=_WORD,
    texts="<mask>",
    default={"lstrip": True},
)
KINDS: Mapping[str, Kind] = {
    "MarianTokenizer": Kind(values={"separate_vocabs": (False, True)}, languages=">>.+<<"),
    "T5Tokenizer": _T5,
    "MT5Tokenizer": _T5,
    "ByT5Tokenizer": Kind(values={"extra_ids": None}, texts=r"<extra_id_\d+>", keeps_space=True),
    "M2M100Tokenizer": Kind(values={"language_codes": ("m2m100", "wmt21")}, languages="__.+__"),
    "NllbTokenizer": Kind(
        names=_MASK,
        values={"legacy_behaviour": (False, True)},
        languages="[a-z]{3}_[A-Z][a-z]{3}",
        own_languages=_WORD,
        texts="<mask>",
        default={"lstrip": True, "normalized": True},
        keeps_space=True,
        normalizes=True,
    ),
    "MBartTokenizer": _MBART,
    "MBart50Tokenizer": dataclasses.replace(_MBART, keeps_space=True, normalizes=True),
    "BartTokenizer": Kind(
        names={**_MASK, "bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>"},
        values={"add_prefix_space": (False,), "errors": ("replace",)},
        texts="<mask>",
        keeps_space=True,
    ),
    "PegasusTokenizer": Kind(
        names={**_NAMES, "mask_token": "<mask_2>"},
        values={"offset": (103,), "mask_token_sent": ("<mask_1>",)},
        controls=r"<unk_\d+>",
        texts="<mask_[12]>",
        keeps_space=True,
        normalizes=True,
    ),
}
KINDS = {**KINDS, "RobertaTokenizer": KINDS["BartTokenizer"]}  # as version 5 calls it
