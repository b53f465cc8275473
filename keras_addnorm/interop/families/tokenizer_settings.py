"""What a folder of `transformers` says about its tokenizer besides the pieces, file by file.

A setting is understood, changes no id of a text, or is refused: all that are refused at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import LARGEST_WHOLE, has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_json
from keras_addnorm.data import AddedToken, PieceIds
from keras_addnorm.data.piece_ids import filler, is_filler
from keras_addnorm.interop.families.fields import names
from keras_addnorm.interop.families.tokenizer_kinds import CONTROLS, KINDS

CONFIG, MAP, ADDED, WHOLE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json"),
)
FILES = (CONFIG, MAP, ADDED, WHOLE)
"""The files that are read whatever the class of the tokenizer is."""

_ROLES = names("bos_token eos_token unk_token sep_token pad_token cls_token mask_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")
# Where files lay, who wrote them, and with what.
_ABOUT = names(
    """
    tokenizer_class name_or_path special_tokens_map_file tokenizer_file vocab_file merges_file
    source_spm target_spm vocab target_vocab_file backend is_local local_files_only use_fast
    processor_class transformers_version
    """
)
# How batches are made of texts, and chats of messages.
_OF_BATCHES = names(
    """
    model_max_length max_len max_length padding padding_side pad_to_multiple_of pad_token_type_id
    truncation truncation_side truncation_strategy stride return_tensors return_token_type_ids
    return_attention_mask model_input_names trim_offsets chat_template
    """
)
# `legacy` and `unk_id` change nothing in transformers 5. Languages are named for each text. The
# next one takes spaces out before punctuation when texts are written: pieces say where spaces are.
_WITHOUT_EFFECT = names(
    """
    legacy unk_id src_lang tgt_lang source_lang target_lang num_madeup_words
    clean_up_tokenization_spaces
    """
)
# What SentencePiece's processor may be told; without sampling the last ones mean nothing.
_OF_SENTENCEPIECE: Mapping[str, tuple[Any, ...] | None] = {
    **dict.fromkeys(
        ("enable_sampling", "add_bos", "add_eos", "reverse", "emit_unk_piece"), (False,)
    ),
    **dict.fromkeys(("nbest_size", "alpha", "num_threads")),
}
# Classes that read any tokenizer.json, and say nothing of what is in it.
_OF_NO_FAMILY = ("PreTrainedTokenizer", "TokenizersBackend")


@dataclasses.dataclass
class _Entry:
    """What files say of one token.

    Attributes:
        text: Its name.
        index: Its id.
        flags: What is said of it.
        origins: The files that say its id.
    """

    text: str
    index: int | None = None
    flags: dict[str, bool] = dataclasses.field(default_factory=dict)
    origins: tuple[str, ...] = ()


class TokenizerSettings:
    """The settings of a folder's tokenizer.

    Args:
        folder: Where the files are.
        tokenizer_class: The class of `transformers`, without "Fast".
        pad: The name of padding, where it is another than the class has.

    Attributes:
        kind: How it reads texts.
        config: What `tokenizer_config.json` says.
        named: The further special tokens that are listed, in their order.

    Raises:
        ValueError: If a file has another form, says something that is not followed here, or what
            another one denies.
    """

    def __init__(self, folder: Path, tokenizer_class: str, pad: str | None = None) -> None:
        self.kind = KINDS[tokenizer_class]
        if pad is not None:
            own = {**self.kind.names, "pad_token": pad}
            self.kind = dataclasses.replace(self.kind, names=own)
        self.config = read_object(folder / CONFIG)
        self._folder = folder
        self._problems: list[str] = []
        self._entries: dict[str, _Entry] = {}
        self._by_id: dict[int, str] = {}
        special = read_object(folder / MAP)
        self._check_settings(CONFIG, self.config, _ABOUT | _OF_BATCHES | _WITHOUT_EFFECT)
        self._check_settings(MAP, special, frozenset())
        listed = [
            *(self._named(MAP, special, field) for field in _LISTS),
            *(self._named(CONFIG, self.config, field) for field in _LISTS),
        ]
        self.named = dict.fromkeys(name for found in listed for name in found)
        self._roles = dict.fromkeys(
            text
            for file, settings in ((MAP, special), (CONFIG, self.config))
            for role in _ROLES
            if (text := self._role(file, role, settings.get(role))) is not None
        )
        self._read_ids(folder)
        self._raise()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that are listed without ids, in their order."""
        return tuple(name for name in self.named if self.kind.is_language(name, True))

    @property
    def gives_languages(self) -> bool:
        """Whether the files say the ids of languages."""
        return any(
            entry.index is not None and self.kind.is_language(entry.text, self._is_special(entry))
            for entry in self._entries.values()
        )

    @property
    def ids(self) -> dict[str, int]:
        """The ids of tokens that the files say, besides those of the pieces."""
        entries = self._entries.values()
        return {each.text: each.index for each in entries if each.index is not None}

    def extended(self, ids: PieceIds, size: int) -> PieceIds:
        """Return ids with the added tokens among them, as many as a table has rows.

        Args:
            ids: The ids of the family's own tokens and pieces.
            size: The number of rows of the model's table.

        Returns:
            The ids.

        Raises:
            ValueError: If an added token has the id of another piece, or none of the table.
        """
        place = {name: index for index, name in enumerate(ids.pieces)}
        pieces = list(ids.pieces)
        new = {}
        for entry in self._entries.values():
            if entry.index is not None and place.get(entry.text) != entry.index:
                new[entry.index] = entry.text
        for index, text in sorted(new.items()):
            where = f"{' and '.join(self._entries[text].origins)}: {text!r} has the id {index}"
            if text in place:
                self._problems.append(f"{where}, and {place[text]} in the vocabulary")
            elif not 0 <= index < size:
                self._problems.append(f"{where}, and the model's table has {size} rows")
            elif index < len(pieces) and not is_filler(pieces[index]):
                self._problems.append(f"{where}, which {pieces[index]!r} has in the vocabulary")
            else:
                pieces += map(filler, range(len(pieces), index + 1))
                pieces[index] = text
        added = self._added(pieces)
        self._raise()
        no_controls = {ids.pad, ids.start, ids.end, ids.unknown, *(token.text for token in added)}
        known_controls = frozenset(ids.controls)
        controls = [
            name
            for name in pieces
            if name not in no_controls
            and (name in known_controls or is_filler(name) or (name not in place))
        ]
        changed = dataclasses.replace(
            ids, pieces=tuple(pieces), controls=tuple(controls), added=added
        )
        return changed.filled_up_to(size)

    def of_bytes(self, first: int, sentinels: Sequence[str], size: int) -> dict[str, Any]:
        """Return what `ByteTokenizer` takes for the tokens behind the bytes.

        Args:
            first: The id behind the bytes.
            sentinels: The names of the family's own tokens there.
            size: The number of rows of the model's table.

        Returns:
            `last` and `added`.

        Raises:
            ValueError: If a token has no id of its own there.
        """
        pieces = ("<pad>", "</s>", "<unk>", *map(filler, range(3, first)), *sentinels)
        # A character of ASCII is its byte, whether it was added or not.
        for text, entry in list(self._entries.items()):
            if len(text) == 1 and text.isascii() and entry.index == ord(text) + 3:
                del self._entries[text]
        taken = [
            f"{' and '.join(entry.origins)}: {entry.text!r} has the id {entry.index} of a byte"
            for entry in self._entries.values()
            if entry.index is not None and 3 <= entry.index < first
        ]
        self._problems += taken
        self._raise()
        ids = self.extended(PieceIds(pieces, start="<pad>"), size)
        return {"last": ids.pieces[first:], "added": ids.added}

    def _added(self, pieces: Sequence[str]) -> tuple[AddedToken, ...]:
        """Return the tokens that a text may hold, in the order of their ids."""
        own = dict.fromkeys(name for name in pieces if re.fullmatch(self.kind.texts, name))
        place = {name: index for index, name in enumerate(pieces)}
        found = dict.fromkeys((*own, *self._entries, *self.named, *self._roles))
        added = []
        for name in found:
            entry = self._entries.get(name) or _Entry(name)
            is_special = self._is_special(entry)
            if self.kind.is_control(name, is_special):
                continue
            if name not in place:
                if entry.index is None:
                    self._problems.append(f"{name!r} is named as a special token, and has no id")
                continue
            flags = entry.flags if "lstrip" in entry.flags or entry.origins else {}
            if name in own and not flags:
                flags = dict(self.kind.default)
            if flags.get("single_word", False):
                self._problems.append(
                    f"{name!r} has single_word = True, which is not followed; expected False"
                )
            normalized = self.kind.normalizes and flags.get("normalized", not is_special)
            lstrip = flags.get("lstrip", False) or not self.kind.keeps_space
            added.append(AddedToken(name, lstrip, flags.get("rstrip", False), normalized))
        return tuple(sorted(added, key=lambda token: place[token.text]))

    def _is_special(self, entry: _Entry) -> bool:
        is_own = bool(re.fullmatch(self.kind.texts, entry.text))
        is_listed = entry.text in self.named or entry.text in self._roles
        return entry.flags.get("special", is_listed or is_own)

    def _check_settings(self, file: str, settings: Mapping[str, Any], ignored: frozenset) -> None:
        """Note settings that are not known, and values that are not followed."""
        read = {*_ROLES, *_LISTS, *(("added_tokens_decoder",) if file == CONFIG else ())}
        values: dict[str, tuple[Any, ...] | None] = {
            **dict.fromkeys(("do_lower_case", "split_special_tokens"), (False,)),
            "init_inputs": ([],),
            "sp_model_kwargs": None,
            **self.kind.values,
        }
        for name, value in settings.items():
            if value is None or name in ignored or name in read:
                continue
            if file == MAP or name not in values:
                self._problems.append(f"{file}: {name} = {value!r:.60} is not known")
                continue
            expected = values[name]
            if name == "sp_model_kwargs":
                self._check_sentencepiece(value)
            elif expected is not None and not _is_one_of(value, expected):
                self._not_followed(f"{file}: {name}", value, expected)

    def _check_sentencepiece(self, options: Any) -> None:
        where = f"{CONFIG}: sp_model_kwargs"
        if not isinstance(options, Mapping):
            self._problems.append(f"{where} = {options!r:.60}; expected an object")
            return
        for name, value in options.items():
            expected = _OF_SENTENCEPIECE.get(name, ())
            if value is not None and expected is not None and not _is_one_of(value, expected):
                self._not_followed(f"{where}.{name}", value, expected)

    def _not_followed(self, where: str, value: Any, expected: Sequence[Any]) -> None:
        words = " or ".join(map(repr, expected)) or "none"
        self._problems.append(f"{where} = {value!r:.60} is not followed; expected {words}")

    def _named(self, file: str, settings: Mapping[str, Any], field: str) -> list[str]:
        """Return the names that a list of special tokens has."""
        value = settings.get(field)
        if isinstance(value, Mapping):  # by their roles, as some versions write them
            value = list(value.values())
        if value is None:
            return []
        if not isinstance(value, list):
            self._problems.append(f"{file}: {field} = {value!r:.60}; expected a list")
            return []
        found = (self._token(file, field, each) for each in value)
        return [text for text in found if text is not None]

    def _role(self, file: str, role: str, value: Any) -> str | None:
        if value is None:
            return None
        text = self._token(file, role, value)
        expected = self.kind.names.get(role)
        if text is not None and expected is not None and text != expected:
            self._not_followed(f"{file}: {role}", text, (expected,))
        return text

    def _token(self, file: str, field: str, value: Any) -> str | None:
        """Return the name of a token, and note its flags."""
        if isinstance(value, str) and value:
            return value
        text = value.get("content") if isinstance(value, Mapping) else None
        if not isinstance(text, str) or not text:
            self._problems.append(
                f"{file}: {field} = {value!r:.60}; expected the name of a token, or an object "
                "with it as content"
            )
            return None
        self._note_flags(file, text, value)
        return text

    def _note_flags(self, file: str, text: str, values: Mapping[str, Any]) -> _Entry:
        entry = self._entries.setdefault(text, _Entry(text))
        for name, value in values.items():
            if name in ("content", "id", "__type"):
                continue
            if name not in _FLAGS or not isinstance(value, bool):
                known = "True or False" if name in _FLAGS else f"some of {', '.join(_FLAGS)}"
                self._problems.append(
                    f"{file}: {name} of {text!r} = {value!r:.60}; expected {known}"
                )
            # Of old, each file had its own idea of what is normalised.
            elif name == "normalized":
                entry.flags.setdefault(name, value)
            elif entry.flags.setdefault(name, value) != value:
                self._problems.append(
                    f"{file}: {name} of {text!r} = {value}, which another file denies"
                )
        return entry

    def _read_ids(self, folder: Path) -> None:
        """Read the ids of added tokens from the files that say them."""
        decoder = self.config.get("added_tokens_decoder") or {}
        whole = read_object(folder / WHOLE).get("added_tokens") or []
        found: dict[str, set[str]] = {}
        if isinstance(decoder, Mapping):
            found[CONFIG] = {self._note_id(CONFIG, index, each) for index, each in decoder.items()}
        else:
            self._problems.append(
                f"{CONFIG}: added_tokens_decoder = {decoder!r:.60}; expected an object"
            )
        if isinstance(whole, list):
            found[WHOLE] = {
                self._note_id(WHOLE, each.get("id") if isinstance(each, Mapping) else None, each)
                for each in whole
            }
        else:
            self._problems.append(f"{WHOLE}: added_tokens = {whole!r:.60}; expected a list")
        for text, index in read_object(folder / ADDED).items():
            self._note_id(ADDED, index, {"content": text})
        self._compare(found)

    def _note_id(self, file: str, index: Any, values: Any) -> str:
        # Names of JSON are texts.
        if file == CONFIG and isinstance(index, str) and re.fullmatch("[0-9]{1,18}", index):
            index = int(index)
        text = values.get("content") if isinstance(values, Mapping) else None
        is_id = type(index) is int and 0 <= index <= LARGEST_WHOLE
        if not is_id or not isinstance(text, str) or not text:
            self._problems.append(
                f"{file}: an added token is {values!r:.60} with the id {index!r:.30}; expected an "
                f"object with its name as content, and a whole number from 0 to {LARGEST_WHOLE}"
            )
            return ""
        entry = self._note_flags(file, text, values)
        if entry.index not in (None, index):
            self._problems.append(
                f"{file}: {text!r} has the id {index}, and {entry.index} in "
                f"{' and '.join(entry.origins)}"
            )
            return text
        other = self._by_id.setdefault(index, text)
        if other != text:
            self._problems.append(f"{file}: {text!r} has the id {index}, which {other!r} has")
        entry.index = index
        entry.origins = tuple(dict.fromkeys((*entry.origins, file)))
        return text

    def _compare(self, found: Mapping[str, set[str]]) -> None:
        """Note tokens that a file lacks which lists all of them."""
        for entry in self._entries.values():
            if entry.index is None or entry.text in CONTROLS:
                continue
            self._problems += [
                f"{' and '.join(entry.origins)}: {entry.text!r} is not among those of {file}"
                for file, known in found.items()
                if known and entry.text not in known
            ]

    def _raise(self) -> None:
        if self._problems:
            problems = "; ".join(dict.fromkeys(self._problems))
            raise ValueError(
                f"The tokenizer's files in '{self._folder}' say what is not followed here, or "
                f"contradict one another: {problems:.3000}. Save the tokenizer with transformers "
                "without that, or pass tokenizers=None to load the weights alone."
            )


def read_object(path: Path) -> dict[str, Any]:
    """Return what a JSON file says; an empty dict if there is none.

    Args:
        path: The file.

    Returns:
        Values by their names.

    Raises:
        ValueError: If it holds something else.
    """
    found = read_json(path) if has_file(path) else {}
    if not isinstance(found, dict):
        raise ArgumentError(
            f"'{path}' is not of the form that transformers writes.",
            "a JSON object",
            "Download it again.",
            value=found,
        )
    return found


def class_of(folder: Path, settings: Mapping[str, Any], known: Sequence[str] | None) -> str:
    """Return the class of the tokenizer that a folder names, without "Fast".

    Args:
        folder: Where `tokenizer_config.json` is.
        settings: What `config.json` says.
        known: The classes that the family has; `None` for any.

    Returns:
        The class; "" if the folder names none.

    Raises:
        ValueError: If it names another one.
    """
    for file, values in ((CONFIG, read_object(folder / CONFIG)), ("config.json", settings)):
        name = values.get("tokenizer_class")
        if not name:
            continue
        found = str(name).removesuffix("Fast")
        if found in _OF_NO_FAMILY and has_file(folder / WHOLE):
            return ""
        if known is not None and found not in known:
            raise ArgumentError(
                f"The tokenizer of '{folder}' is of another kind than the family's.",
                f"the tokenizer_class {' or '.join(known)} in {file}",
                "Pass tokenizers=None to load the weights alone.",
                value=name,
            )
        return found
    return ""


def _is_one_of(value: Any, expected: Iterable[Any]) -> bool:
    return any(type(value) is type(each) and value == each for each in expected)
