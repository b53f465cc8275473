"""`tokenizer.json`: the whole tokenizer in one file, as `transformers` 5 writes most of them.

What it says becomes a SentencePiece model or a list of merges with ids, which the classes of
`keras_addnorm.data` read. What these would read in another way is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import sentencepiece

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.data import (
    BaseTokenizer,
    ByteLevelBPETokenizer,
    PieceIds,
    TextFormat,
    Tokenizer,
)
from keras_addnorm.data.added_tokens import WHITE_SPACE
from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.data.vocabulary import SPACE_MARK
from keras_addnorm.interop.families.text_files import naming
from keras_addnorm.interop.families.tokenizer_settings import (
    WHOLE,
    TokenizerSettings,
    read_object,
)

_TEXT = "$A"
_SPACES, _LINE_BREAK = {"Regex": " {2,}"}, {"Regex": "\n"}
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
# A quarter of a million pieces of words have less than a tenth of it.
_MOST_CUT = 1 << 28
_OF_BYTES, _OF_PIECES = "ByteLevel", "Metaspace"
# Files and what is beside the five parts of a tokenizer: batches, and the tokens that are read
# with the other files.
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_BESIDE = ("version", "truncation", "padding", "added_tokens")


def whole_tokenizer(folder: Path, *older: str) -> WholeTokenizer | None:
    """Return the `tokenizer.json` of a folder that has none of some older files.

    Args:
        folder: The folder.
        *older: The files that say the same, and come first.

    Returns:
        What it says; `None` if there is none, or all older files are there.

    Raises:
        ValueError: If it says what is not followed here: all of it at once.
    """
    path = folder / WHOLE
    if all(has_file(folder / name) for name in older) or not has_file(path):
        return None
    return WholeTokenizer.read(path)


@dataclasses.dataclass(frozen=True)
class WholeTokenizer:
    """What a `tokenizer.json` says.

    Attributes:
        path: The file.
        ids: The id of each piece of its model.
        added: The names of the tokens that are looked for before a text is split.
        scores: What SentencePiece chooses pieces by, in the order of `ids`; empty for bytes.
        merges: The pairs that are merged, the best first; empty for a unigram model.
        kind: SentencePiece's number of the model: 1 is unigram, 2 BPE; 0 for BPE of bytes.
        unknown: The name of the unknown piece, if the model has one.
        charsmap: SentencePiece's table of characters; none if texts are split as they are.
        has_bytes: Whether what the vocabulary lacks is split into bytes.
        template: The tokens around a text, which is `"$A"`; `None` if the file does not say it.
    """

    path: Path
    ids: Mapping[str, int]
    added: frozenset[str]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    kind: int
    unknown: str | None
    charsmap: bytes
    has_bytes: bool
    template: tuple[str, ...] | None

    @classmethod
    def read(cls, path: Path) -> WholeTokenizer:
        """Read a file.

        Args:
            path: The file.

        Returns:
            What it says.

        Raises:
            ValueError: If it says what is not followed here: all of it at once.
        """
        reader = _Reader(read_object(path))
        values = reader.values()
        if reader.problems:
            raise ValueError(
                f"'{path}' says what is not followed here: {'; '.join(reader.problems):.2000}. "
                "Expected a tokenizer as transformers makes it of a SentencePiece model, or of "
                "BART's merges. Pass tokenizers=None to load the weights alone."
            )
        return cls(path, **values)

    def require_around(self, text_format: TextFormat, settings: TokenizerSettings) -> None:
        """Refuse tokens around a text that are not those of the family.

        Args:
            text_format: What the family has there.
            settings: What the folder says of its tokenizer.

        Raises:
            ValueError: If the file says something else.
        """
        if self.template is None:
            return
        end = settings.kind.names["eos_token"]
        prefix, suffix = (
            [end if piece == "{end}" else piece for piece in pieces]
            for pieces in (text_format.source_prefix, text_format.source_suffix)
        )
        expected = [*prefix, _TEXT, *suffix]
        found = [
            "{source}" if settings.kind.is_language(name, True) else name for name in self.template
        ]
        if found != expected:
            raise ValueError(
                f"The post-processor of '{self.path}' puts other tokens around a text than the "
                f"family. Expected {' '.join(expected)}; received {' '.join(self.template)!r:.200}."
            )

    def piece_ids(self, settings: TokenizerSettings, size: int, **special: Any) -> PieceIds:
        """Return the ids of all pieces and tokens.

        Args:
            settings: What the folder says of added tokens.
            size: The number of rows of the model's table.
            **special: `pad`, `start`, `end` and `unknown` of `PieceIds`.

        Returns:
            The ids.
        """
        roles = {"pad": "<pad>", "start": "<s>", "end": "</s>", "unknown": "<unk>", **special}
        # The others have their ids from the list of added tokens.
        silent = self.added - set(roles.values())
        own = {name: index for name, index in self.ids.items() if name not in silent}
        listed = settings.ids
        own |= {name: listed[name] for name in roles.values() if name in listed}
        controls = tuple(name for name in own if settings.kind.is_control(name, False))
        with naming(self.path):
            ids = PieceIds.of_mapping(own, controls=controls, **roles)
        return settings.extended(ids, size)

    def tokenizer(self, ids: PieceIds) -> BaseTokenizer:
        """Return the tokenizer with ids that `piece_ids` gave."""
        with naming(self.path):
            if self.kind == 0:
                return ByteLevelBPETokenizer(ids, self.merges)
            return Tokenizer.from_sentencepiece(self._model(ids), ids)

    def _model(self, ids: PieceIds) -> bytes:
        """Return the SentencePiece model that splits texts in the same way."""
        model = ModelProto()
        silent = {*ids.controls, ids.pad, ids.start, ids.end, *self.added}
        for name, score in zip(self.ids, self.scores, strict=True):
            is_byte = self.has_bytes and len(name) == 6 and name.startswith("<0x")
            kind = _BYTE if is_byte else _CONTROL if name in silent else _NORMAL
            kind = _UNKNOWN if name == ids.unknown else kind
            model.pieces.add(piece=name, score=score, type=kind)
        if ids.unknown not in self.ids:
            model.pieces.add(piece=ids.unknown, score=0.0, type=_UNKNOWN)
        model.trainer_spec.model_type = self.kind
        model.trainer_spec.byte_fallback = self.has_bytes
        model.trainer_spec.vocab_size = len(model.pieces)
        # SentencePiece's name for a table that is none of its own.
        model.normalizer_spec.name = "user_defined"
        model.normalizer_spec.precompiled_charsmap = self.charsmap
        model.normalizer_spec.add_dummy_prefix = True
        model.normalizer_spec.remove_extra_whitespaces = True
        serialized: bytes = model.SerializeToString()
        return serialized


class _Reader:
    """Reads the parts of a file, and notes what is not followed.

    Args:
        file: What the file holds.

    Attributes:
        problems: What is not followed.
    """

    def __init__(self, file: Mapping[str, Any]) -> None:
        self.problems = [
            f"{name} = {file[name]!r:.60} is not known"
            for name in file
            if name not in (*_PARTS, *_BESIDE)
        ]
        self._file = file

    def values(self) -> dict[str, Any]:
        """Return the attributes of a `WholeTokenizer`, of which those of problems mean nothing."""
        of_bytes, joins_spaces = self._pre_tokenizer()
        charsmap = self._normalizer(of_bytes, joins_spaces)
        self._decoder(of_bytes)
        found: dict[str, Any] = {
            "ids": {},
            "scores": (),
            "merges": (),
            "kind": 0,
            "unknown": None,
            "charsmap": charsmap,
            "has_bytes": False,
        }
        added = self._file.get("added_tokens") or []
        names = {each.get("content") for each in added if isinstance(each, Mapping)}
        found["added"] = frozenset(name for name in names if isinstance(name, str))
        found["template"] = self._post_processor()
        model = self._part("model")
        kind = model.get("type")
        if kind == "Unigram" and not of_bytes:
            found |= self._unigram(model)
        elif kind == "BPE":
            found |= self._bpe(model, of_bytes, found["added"])
        else:
            self._refuse("model", model, "BPE" if of_bytes else "Unigram or BPE")
        return found

    def _part(self, name: str) -> Mapping[str, Any]:
        value = self._file.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problems.append(f"{name} = {value!r:.60}; expected an object")
            return {}
        return value

    def _steps(self, name: str, several: str) -> list[Mapping[str, Any]]:
        """Return the steps of a part; those of a sequence one after the other."""
        return list(self._flat(self._part(name), several))

    def _flat(self, step: Any, several: str) -> Iterator[Mapping[str, Any]]:
        steps = [step]  # The next one stands last.
        while steps:
            first = steps.pop()
            inner = first.get(several) if isinstance(first, Mapping) else None
            if isinstance(inner, list) and first.get("type") == "Sequence":
                steps += reversed(inner)
            elif isinstance(first, Mapping):
                if first:
                    yield first
            else:
                self.problems.append(f"{several} = {first!r:.60}; expected objects")

    def _refuse(self, part: str, step: Mapping[str, Any], expected: str) -> None:
        shown = ", ".join(f"{name} = {value!r:.30}" for name, value in list(step.items())[:6])
        self.problems.append(f"{part}: {shown or 'none'} is not followed; expected {expected}")

    def _pre_tokenizer(self) -> tuple[bool, bool]:
        """Return whether words are split into bytes, and whether white space joins nothing."""
        steps = self._steps("pre_tokenizer", "pretokenizers")
        joins_spaces = bool(steps) and steps[0] == {"type": "WhitespaceSplit"}
        rest = steps[joins_spaces:]
        step = rest[0] if len(rest) == 1 else {}
        kind = step.get("type")
        prefixes = step.get("prepend_scheme", "always"), step.get("add_prefix_space", True)
        is_right = {
            _OF_BYTES: not joins_spaces
            and step.get("add_prefix_space") is False
            and step.get("use_regex", True) is True,
            # "first" differs where there are added tokens; transformers 5 reads it as "always".
            _OF_PIECES: step.get("replacement") == SPACE_MARK
            and prefixes in (("always", True), ("first", True))
            and step.get("split", True) is True,
        }
        if not is_right.get(str(kind), False):
            wrong = next((each for each in rest if each.get("type") not in is_right), step)
            self._refuse(
                "pre_tokenizer",
                wrong,
                f"{_OF_PIECES} with {SPACE_MARK!r} before each word, or {_OF_BYTES} without "
                "add_prefix_space",
            )
        return kind == _OF_BYTES, joins_spaces

    def _normalizer(self, of_bytes: bool, joins_spaces: bool) -> bytes:
        """Return SentencePiece's table of characters."""
        steps = self._steps("normalizer", "normalizers")
        table: bytes | None = None
        for place, step in enumerate(steps):
            kind, pattern = step.get("type"), step.get("pattern")
            if kind == "Precompiled" and place == 0 and not of_bytes:
                table = self._decoded(step.get("precompiled_charsmap"))
            elif (
                kind == "Replace"
                and pattern == _SPACES
                and step.get("content") in (*(" ", SPACE_MARK),)
            ):
                joins_spaces = True
            # Without a table, all white space is a space here.
            elif kind != "Strip" and (pattern, step.get("content")) != (_LINE_BREAK, " "):
                expected = "none" if of_bytes else "Precompiled first, Replace of spaces, Strip"
                self._refuse("normalizer", step, expected)
        if of_bytes:
            return b""
        if not joins_spaces:
            self.problems.append(
                "normalizer: several spaces stay; expected a Replace of ' {2,}', or WhitespaceSplit"
            )
        return _table_of_spaces() if table is None else table

    def _decoded(self, text: Any) -> bytes:
        try:
            table = base64.b64decode(text, validate=True)
            spec = ModelProto().normalizer_spec
            spec.precompiled_charsmap = table
            sentencepiece.SentencePieceNormalizer(
                normalizer_spec=spec.SerializeToString()
            ).normalize("a")
        except (TypeError, ValueError, RuntimeError, binascii.Error):
            self.problems.append(
                f"normalizer: precompiled_charsmap = {text!r:.40} is no table of SentencePiece"
            )
            return b""
        return table

    def _decoder(self, of_bytes: bool) -> None:
        step = self._part("decoder")
        expected = _OF_BYTES if of_bytes else _OF_PIECES
        if step.get("type") != expected:
            self._refuse("decoder", step, expected)

    def _post_processor(self) -> tuple[str, ...] | None:
        """Return the tokens around a text."""
        found: tuple[str, ...] | None = None
        for step in self._steps("post_processor", "processors"):
            kind = step.get("type")
            if kind == _OF_BYTES:  # where tokens stand in the text
                continue
            try:
                if kind == "TemplateProcessing" and found is None:
                    found = tuple(map(_name_in_template, step["single"]))
                    continue
                if kind in ("RobertaProcessing", "BertProcessing") and found is None:
                    (first, _), (last, _) = step["cls"], step["sep"]
                    found = str(first), _TEXT, str(last)
                    continue
            except (KeyError, TypeError, ValueError):
                pass  # Of another form: refused as well.
            self._refuse("post_processor", step, "one TemplateProcessing, or RobertaProcessing")
        return found

    def _unigram(self, model: Mapping[str, Any]) -> dict[str, Any]:
        self._options(model, ("unk_id", "vocab"), {"byte_fallback": (False, True)})
        pairs, unknown = model.get("vocab"), model.get("unk_id")
        try:
            names = [name for name, _ in pairs]  # type: ignore[union-attr]
            scores = tuple(float(score) for _, score in pairs)  # type: ignore[union-attr]
            is_right = all(isinstance(name, str) for name in names)
            unknown_name = names[unknown]  # type: ignore[index]
        except (TypeError, ValueError, IndexError):
            is_right = False
        if not is_right or len(set(names)) < len(names):
            self.problems.append(
                f"model: vocab = {pairs!r:.60} with unk_id = {unknown!r:.20}; expected a list of "
                "different pieces with their scores, and the place of the unknown one"
            )
            return {}
        return {
            "ids": {name: index for index, name in enumerate(names)},
            "scores": scores,
            "kind": 1,
            "unknown": unknown_name,
            "has_bytes": model.get("byte_fallback") is True,
        }

    def _bpe(
        self, model: Mapping[str, Any], of_bytes: bool, added: frozenset[str]
    ) -> dict[str, Any]:
        options: dict[str, tuple[Any, ...]] = {
            "dropout": (None, 0.0),
            "continuing_subword_prefix": (None, ""),
            "end_of_word_suffix": (None, ""),
            "ignore_merges": (False,),
            "fuse_unk": (False, True) if of_bytes else (True,),
            "byte_fallback": (False,) if of_bytes else (False, True),
        }
        self._options(model, ("unk_token", "vocab", "merges"), options)
        ids, lines, unknown = (model.get(name) for name in ("vocab", "merges", "unk_token"))
        merges = _pairs(lines)
        is_right = isinstance(ids, Mapping) and all(type(each) is int for each in ids.values())
        if not is_right or merges is None or not isinstance(unknown, str | None):
            self.problems.append(
                "model: expected vocab as an object with the id of each piece, and merges as a "
                f"list of pairs; received {ids!r:.60} and {lines!r:.60}"
            )
            return {}
        assert isinstance(ids, Mapping)
        ids = dict(sorted(ids.items(), key=lambda item: item[1]))
        if of_bytes:
            return {"ids": ids, "merges": merges}
        if _characters_cut(ids.keys() - added) > _MOST_CUT:
            self.problems.append(
                "model: vocab has very many long pieces, each of which may be two others together; "
                "expected pieces of words"
            )
            return {}
        scores = _scores_of_merges(ids, merges, added)
        if scores is None:
            self.problems.append(
                "model: merges that no SentencePiece model has; expected all pairs of pieces that "
                "are another piece, in the order of these"
            )
        return {
            "ids": ids,
            "scores": scores or (),
            "merges": merges,
            "kind": 2,
            "unknown": unknown,
            "has_bytes": model.get("byte_fallback") is True,
        }

    def _options(
        self,
        model: Mapping[str, Any],
        read: Sequence[str],
        options: Mapping[str, tuple[Any, ...]],
    ) -> None:
        for name, value in model.items():
            if name == "type" or name in read:
                continue
            expected = options.get(name)
            if expected is None or value not in expected:
                words = "none" if expected is None else " or ".join(map(repr, expected))
                self.problems.append(
                    f"model: {name} = {value!r:.60} is not followed; expected {words}"
                )
        # What a file leaves out is the toolkit's default.
        if "fuse_unk" in options and "fuse_unk" not in model and False not in options["fuse_unk"]:
            self.problems.append("model: fuse_unk is False; expected True")


def _name_in_template(step: Mapping[str, Any]) -> str:
    ((kind, values),) = step.items()
    if kind == "Sequence":
        return {"A": _TEXT}[values["id"]]
    return str({"SpecialToken": values["id"]}[kind])


def _pairs(lines: Any) -> tuple[tuple[str, str], ...] | None:
    """Return merges, which older files have as texts; `None` if they are none."""
    if not isinstance(lines, list):
        return None
    pairs = [line.split(" ") if isinstance(line, str) else line for line in lines]
    if not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        for pair in pairs
    ):
        return None
    return tuple((first, second) for first, second in pairs)


def _characters_cut(pieces: Set[str]) -> int:
    """Count the characters of all pieces that are cut into two, at each place where others end."""
    lengths = sorted(set(map(len, pieces)))
    return sum(len(name) * bisect.bisect_left(lengths, len(name)) for name in pieces)


def _scores_of_merges(
    ids: Mapping[str, int], merges: Sequence[tuple[str, str]], added: frozenset[str]
) -> tuple[float, ...] | None:
    """Return the scores by which SentencePiece makes the same merges; `None` if it would not."""
    rank: dict[str, int] = {}
    last = ""
    for first, second in merges:
        name = first + second
        if name != last and name in rank:
            return None  # Its pairs have different ranks: SentencePiece knows one of each piece.
        rank.setdefault(name, len(rank))
        last = name
    known = set(merges)
    pieces = ids.keys() - added
    # A name of a million characters has as many places to be cut at, and few that matter.
    lengths = set(map(len, pieces))
    for name in pieces:
        for place in lengths.intersection(range(1, len(name))):
            pair = name[:place], name[place:]
            if pieces.issuperset(pair) and pair not in known:
                return None
    return tuple(-float(rank.get(name, len(rank))) for name in ids)


@functools.cache
def _table_of_spaces() -> bytes:
    """Return SentencePiece's table of characters in which all white space is a space."""
    sentencepiece.set_min_log_level(2)
    spaces = [(character, " ") for character in WHITE_SPACE if character != " "]
    spec = type(ModelProto().normalizer_spec)()
    spec.ParseFromString(
        sentencepiece.SentencePieceNormalizer(norm_map=spaces).serialized_normalizer_spec()
    )
    table: bytes = spec.precompiled_charsmap
    return table
