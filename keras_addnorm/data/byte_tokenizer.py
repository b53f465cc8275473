"""Bytes as tokens: no vocabulary has to be trained, and nothing is unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.added_tokens import AddedToken, require_added
from keras_addnorm.data.base_tokenizer import BaseTokenizer, SpecialPieces
from keras_addnorm.data.strings import several_names
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling
from keras_addnorm.data.tokenizer_documents import document
from keras_addnorm.data.vocabulary import SPACE_MARK, Piece

NAME = "bytes"
_NUM_BYTES = 256
_EXTRA = tuple(f"<extra_id_{number}>" for number in range(125))


class ByteTokenizer(BaseTokenizer):
    """The bytes of a text's UTF-8, as ByT5 reads them.

    The names in `first` have the first ids, those in `last` the ids behind the bytes. The defaults
    are those of ByT5: `encode` is the bytes plus 3, and 384 ids in all. Texts are not normalised.

    Args:
        first: The names of the ids before the bytes, the special ones among them.
        last: The names of the ids behind the bytes; ByT5 has 125.
        pad: The name of padding.
        start: The name of what the decoder reads first.
        end: The name of what ends a sequence.
        unknown: The name of an unknown piece; no text has one.
        added: The names that are one token wherever they stand in a text.

    Raises:
        TypeError: If names are in no list, or are no strings.
        ValueError: If a special name is missing, padding is the end, or an added token is no name
            that a text may hold.

    Example:
        ```python
        from keras_addnorm.data import ByteTokenizer

        tokenizer = ByteTokenizer()
        assert tokenizer.encode("a\u00e4") == [100, 198, 167]
        assert tokenizer.decode([100, 198, 167, 1, 100]) == "a\u00e4"
        ```

    Reference:
        Xue et al. 2022, "ByT5: Towards a Token-Free Future with Pre-trained Byte-to-Byte Models",
        arXiv:2105.13626.
    """

    def __init__(
        self,
        first: tuple[str, ...] = ("<pad>", "</s>", "<unk>"),
        last: tuple[str, ...] = _EXTRA,
        pad: str = "<pad>",
        start: str = "<pad>",
        end: str = "</s>",
        unknown: str = "<unk>",
        added: Sequence[AddedToken] = (),
    ) -> None:
        names = *several_names("first", first), *several_names("last", last)
        roles = {"pad": pad, "start": start, "end": end, "unknown": unknown}
        missing = {role: name for role, name in roles.items() if name not in names}
        if missing or pad == end or len(set(names)) < len(names):
            raise ArgumentError(
                expected="different names, the special ones among them, and padding that is not "
                "the end",
                received=f"{list(names)!r:.80} and {roles}",
            )
        require_added(added, names, roles.values())
        self.first, self.last = tuple(first), tuple(last)
        self._names = pad, start, end, unknown
        self.offset = len(first)
        of_texts = {token.text: "user_defined" for token in added}
        types = {**of_texts, unknown: "unknown"}
        silent = [Piece(name, 0.0, types.get(name, "control")) for name in names]
        values = [Piece(_name(value), 0.0, "byte") for value in range(_NUM_BYTES)]
        place = {
            name: index + _NUM_BYTES * (index >= self.offset) for index, name in enumerate(names)
        }
        pieces = [*silent[: self.offset], *values, *silent[self.offset :]]
        surfaces = [
            chr(token - self.offset)
            if 0 <= token - self.offset < 128
            else piece.text * (piece.type == "user_defined")
            for token, piece in enumerate(pieces)
        ]
        surface_bytes = [surface.encode("utf-8") for surface in surfaces]
        of_bytes = [bytes([value]) for value in range(_NUM_BYTES)]
        surface_bytes[self.offset : self.offset + _NUM_BYTES] = of_bytes
        super().__init__(
            "bytes",
            pieces,
            surfaces,
            SpecialPieces(*(place[name] for name in self._names)),
            surface_bytes,
            added,
        )

    @property
    def normalization(self) -> str:
        """Nothing is done to the characters."""
        return "none"

    @property
    def keeps_outer_space(self) -> bool:
        """Yes: a space is a byte."""
        return True

    def _split(self, texts: list[str]) -> list[list[int]]:
        offset = self.offset
        return [[value + offset for value in text.encode("utf-8")] for text in texts]

    def _sampler(self, sampling: SubwordSampling) -> Sampler:
        raise ArgumentError(
            "There is one way to write a text in bytes.", "no sampling", value=sampling
        )

    @property
    def _state(self) -> tuple[Any, ...]:
        return (self.first, self.last, *self._names, self.added)

    def to_bytes(self) -> bytes:
        """The names as JSON."""
        pad, start, end, unknown = self._names
        fields: dict[str, Any] = {
            "first": self.first,
            "last": self.last,
            "pad": pad,
            "start": start,
            "end": end,
            "unknown": unknown,
        }
        if self.added:
            fields["added"] = list(map(dataclasses.asdict, self.added))
        return document(NAME, fields)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> ByteTokenizer:
        """The tokenizer whose document has these values."""
        lists: dict[str, Any] = {key: several_names(key, fields[key]) for key in ("first", "last")}
        added = AddedToken.of_list(fields.get("added", ()))
        return cls(**{**fields, **lists, "added": added})


def _name(value: int) -> str:
    """The name of a byte: its character where it has one in ASCII, with the mark of a space."""
    character = chr(value)
    if character == " ":
        return SPACE_MARK
    return character if character.isascii() and character.isprintable() else f"<0x{value:02X}>"
