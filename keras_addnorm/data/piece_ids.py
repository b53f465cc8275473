"""Which id each piece of a vocabulary has, where a checkpoint says it and not the tokeniser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, UserError
from keras_addnorm.data.added_tokens import AddedToken, require_added
from keras_addnorm.data.strings import describe, several_names

# Rows that no piece has, besides as many as there are pieces: tables are filled up to round sizes.
_MOST_GAPS = 100_000
_MOST_ROWS = 1 << 21
_SPECIAL = ("pad", "start", "end", "unknown")


@dataclass(frozen=True)
class PieceIds:
    """The ids of a vocabulary: the name of the piece at each id, and which ones are special.

    A text is split by a model of its own (SentencePiece's, say); this says what id each of its
    pieces has. A piece of the model that is not named here is the unknown one. A run of characters
    that the model lacks has the id of its name, if there is one here that is no control.

    Args:
        pieces: The name of each id, in the order of the ids; all different.
        pad: The name of padding.
        start: The name of what the decoder reads first; the same as `pad` or `end` in many models.
        end: The name of what ends a sequence.
        unknown: The name of what stands for all that the vocabulary lacks.
        controls: Names that say nothing in a text: languages, masks, rows that fill a table up.
            The special four need not be among them.
        added: Those that are one token wherever they stand in a text.

    Raises:
        TypeError: If a name is not a string, or names are in no list.
        ValueError: If two ids have one name, a special name is missing, padding is the end, or an
            added token is no piece that a text may hold.

    Example:
        ```python
        from keras_addnorm.data import PieceIds

        ids = PieceIds(("</s>", "<unk>", "\u2581a", "b", "<pad>"), start="<pad>")
        assert (ids.id_of("<pad>"), len(ids.filled_up_to(8).pieces)) == (4, 8)
        ```
    """

    pieces: tuple[str, ...]
    pad: str = "<pad>"
    start: str = "<s>"
    end: str = "</s>"
    unknown: str = "<unk>"
    controls: tuple[str, ...] = ()
    added: tuple[AddedToken, ...] = ()

    def __post_init__(self) -> None:
        for field in ("pieces", "controls"):
            object.__setattr__(self, field, several_names(field, getattr(self, field)))
        names = *self.pieces, *self.controls, *(getattr(self, name) for name in _SPECIAL)
        for name in names:
            if not isinstance(name, str):
                raise ArgumentTypeError(
                    expected="the names of pieces as strings", received=describe(name)
                )
        known = set(self.pieces)
        if len(known) < len(self.pieces):
            twice = sorted(name for name, count in Counter(self.pieces).items() if count > 1)
            raise ArgumentError(
                "Each piece has one id.",
                "names that are all different",
                received=f"{twice} several times",
            )
        missing = {
            role: getattr(self, role) for role in _SPECIAL if getattr(self, role) not in known
        }
        if missing or not known.issuperset(self.controls):
            unknown = missing or sorted(set(self.controls) - known)
            raise ArgumentError(
                "Special pieces and controls have ids, too.",
                "names among the pieces",
                "Append them to `pieces`, or name those that the checkpoint has.",
                value=unknown,
            )
        if self.pad == self.end:
            raise ArgumentError(
                "Padding cannot be what ends a sequence.",
                "different names",
                received=f"{self.pad!r} for both",
            )
        silent = *self.controls, self.pad, self.start, self.end, self.unknown
        require_added(self.added, known, silent)

    @classmethod
    def around(
        cls,
        model_pieces: Iterable[str],
        *,
        first: Sequence[str] = (),
        last: Sequence[str] = (),
        **special: Any,
    ) -> PieceIds:
        """The pieces of a model in their own order, with others before and behind them.

        Those that are named in `first` or `last` are left out in between. So `first` moves the
        ids: of NLLB and mBART (`<s>`, `<pad>`, `</s>`, `<unk>`) by one, of Pegasus by 103.

        Args:
            model_pieces: The model's pieces in its own order; see `sentencepiece_pieces`.
            first: The names of the first ids.
            last: The names of the last ids, such as languages.
            **special: `pad`, `start`, `end`, `unknown`, `added`, and further `controls`, besides
                `first` and `last`.

        Returns:
            The ids.

        Example:
            ```python
            from keras_addnorm.data import PieceIds

            ids = PieceIds.around(
                ["<unk>", "<s>", "</s>", "\u2581a", "b"],
                first=("<s>", "<pad>", "</s>", "<unk>"), last=("en_XX", "de_DE"), start="</s>",
            )
            assert [ids.id_of(piece) for piece in ("b", "de_DE", "</s>")] == [5, 7, 2]
            ```
        """
        first, last = several_names("first", first), several_names("last", last)
        model_pieces = several_names("model_pieces", model_pieces)
        own = {*first, *last}
        controls = *special.pop("controls", ()), *first, *last
        between = [piece for piece in model_pieces if piece not in own]
        ids = cls((*first, *between, *last), **special)
        texts = {ids.unknown, *(token.text for token in ids.added)}
        kept = tuple(name for name in dict.fromkeys(controls) if name not in texts)
        return replace(ids, controls=kept)

    @classmethod
    def of_mapping(cls, ids: Mapping[str, int], **special: Any) -> PieceIds:
        """The ids of a file that gives one for each piece, such as `vocab.json`.

        Args:
            ids: The id of each piece. Ids that no piece has become rows that no text has.
            **special: `pad`, `start`, `end`, `unknown`, `controls` and `added`.

        Returns:
            The ids.

        Raises:
            ValueError: If it is no such dict, two pieces have one id, or an id is negative.
        """
        if not isinstance(ids, Mapping) or not all(map(is_whole, ids.values())):
            raise ArgumentError(
                "A vocabulary gives each piece an id.",
                "a dict of ints by names",
                received=describe(ids),
            )
        # First the range: very large numbers can have one hash all together.
        size = max(ids.values(), default=-1) + 1
        if size > 2 * len(ids) + _MOST_GAPS:
            raise ArgumentError(
                "A vocabulary numbers its pieces with few gaps.",
                f"ids below {2 * len(ids) + _MOST_GAPS} of {len(ids)} pieces",
                "Copy or download the file again.",
                received=f"{size - 1} for {max(ids, key=ids.__getitem__)!r}",
            )
        lowest = min(ids.values(), default=0)
        names = {} if lowest < 0 else {index: name for name, index in ids.items()}
        if len(names) < len(ids):
            received = f"{len(ids)} pieces with {len(names)} ids"
            raise ArgumentError(
                "Each piece has an id of its own, from 0.",
                "a vocabulary of that kind",
                received=f"the id {lowest}" if lowest < 0 else received,
            )
        missing = [index for index in range(size) if index not in names]
        fillers = {index: filler(index) for index in missing}
        names |= fillers
        pieces = tuple(names[index] for index in range(size))
        controls = *special.pop("controls", ()), *fillers.values()
        return cls(pieces, controls=controls, **special)

    def filled_up_to(self, size: int) -> PieceIds:
        """The same ids in a vocabulary of `size`, as a model's table may be larger.

        Args:
            size: The number of rows of the table.

        Returns:
            The ids, with rows behind them that no text has.

        Raises:
            ValueError: If there are more pieces than that, or it is more than two million.
        """
        if not is_whole(size, len(self.pieces), max(len(self.pieces), _MOST_ROWS)):
            raise ArgumentError(
                f"The vocabulary has {len(self.pieces)} pieces.",
                f"a table with a row for each, and at most {_MOST_ROWS:,}",
                "Were the files of two models mixed?",
                value=size,
            )
        fillers = tuple(map(filler, range(len(self.pieces), size)))
        return replace(self, pieces=self.pieces + fillers, controls=self.controls + fillers)

    def id_of(self, name: str) -> int:
        """The id of a piece.

        Args:
            name: Its name.

        Returns:
            The id.

        Raises:
            ValueError: If there is no such piece.
        """
        try:
            return self.pieces.index(name)
        except ValueError:
            raise UserError(f"The vocabulary has no piece {name!r}.") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which are the arguments of an equal object."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Only where there are some, so that older versions read the others.
        added = [asdict(token) for token in values.pop("added")]
        return {**values, "added": added} if added else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PieceIds:
        """The object whose `to_dict` was read from a file; a `ValueError` says that it is none."""
        known, needed = {field.name for field in fields(cls)}, {"pieces", "controls"}
        if not isinstance(values, Mapping) or not needed <= values.keys() <= known:
            raise ArgumentError(
                "These are not the ids of pieces.",
                f"a dict of pieces and controls, and of no others than {', '.join(sorted(known))}",
                value=[*values] if isinstance(values, Mapping) else values,
            )
        added = AddedToken.of_list(values.get("added", ()))
        return cls(**{**values, "added": added})


def filler(index: int) -> str:
    """The name of an id without a piece."""
    # With a space, which no piece has.
    return f"<unused {index}>"


def is_filler(name: str) -> bool:
    """Tells whether a name is that of an id without a piece."""
    return name.startswith("<unused ")
