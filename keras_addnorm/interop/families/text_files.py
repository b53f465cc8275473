"""The files of a folder that say how texts become ids: models of pieces, lists, special tokens."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics import text as basic_text
from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.text import decoded
from keras_addnorm.data import PieceIds, Tokenizer, sentencepiece_pieces
from keras_addnorm.data.byte_level_bpe import merges_of
from keras_addnorm.interop.families.tokenizer_settings import TokenizerSettings

# Of settings; Python reads a few ten thousand characters of YAML a second.
_LONGEST_YAML, _DEEPEST = 1 << 17, 50


def only_file(folder: Path, ending: str) -> Path:
    """Return the one file of a folder with an ending, such as ".pt"."""
    found = sorted(folder.glob(f"*{ending}"))
    if len(found) != 1:
        raise FileNotFoundError(
            f"Expected one {ending} file in '{folder}'. Received: "
            f"{', '.join(each.name for each in found) or 'none'}. Pass the file itself."
        )
    return found[0]


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; an empty dict if there is none."""
    return basic_text.read_json(path) if has_file(path) else {}


def read_yaml(path: Path, text: str, purpose: str) -> dict[str, Any]:
    """Return the settings that YAML says; an empty dict if it says nothing.

    Args:
        path: The file that the text stands in.
        text: The text.
        purpose: What needs it, as the beginning of a sentence.

    Returns:
        The settings.

    Raises:
        ImportError: If PyYAML is not installed.
        ValueError: If it is something else.
    """
    (yaml,) = require_extra("pretrained", purpose, "yaml")
    try:
        if len(text) > _LONGEST_YAML:
            raise ValueError(f"it has more than {_LONGEST_YAML:,} characters")
        settings = yaml.load(text, _loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"'{path}' is no YAML: {reason:.300}. Download it again.") from error
    if not isinstance(settings or {}, dict):
        raise ArgumentError(
            f"'{path}' holds no settings.",
            "names with values",
            "Download it again.",
            value=settings,
        )
    return dict(settings or {})


@functools.cache
def _loader(yaml: Any) -> Any:
    """Return what reads settings, and not what has no end."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        def fetch_flow_collection_start(self, token: Any) -> None:
            if self.flow_level >= _DEEPEST:
                raise ValueError("it is nested too deeply")
            super().fetch_flow_collection_start(token)

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            # A list of aliases of lists of aliases has any number of values.
            if node is not None and _count_values(node, {}) > _LONGEST_YAML:
                raise ValueError("its aliases stand for too many values")
            return node

    return Loader


def _count_values(node: Any, known: dict[int, int | None]) -> int:
    """Count the values of a YAML node, those behind its aliases included."""
    key = id(node)
    if key not in known:
        known[key] = None
        parts = node.value if isinstance(node.value, list) else []
        flat = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        known[key] = 1 + sum(_count_values(one, known) for one in flat)
    count = known[key]
    if count is None:
        raise ValueError("a value in it holds itself")
    return count


def require_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return names with values that settings hold; nothing for null.

    Args:
        value: What they hold.
        where: The file and the place in it, as the beginning of a sentence.

    Returns:
        The value.

    Raises:
        ValueError: If it is something else.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError(
            f"{where} is not of the form that its toolkit writes.",
            "names with values",
            "Copy or download it again.",
            value=value,
        )
    return value or {}


def write_json(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as JSON."""
    text = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def read_tokens(path: Path) -> list[str]:
    """Return a list of tokens, one a line; only a line feed ends one."""
    if not has_file(path):
        raise FileNotFoundError(
            f"There is no file '{path}'. Expected the list of tokens that the settings name. Pass "
            "tokenizers=None to load the weights alone."
        )
    basic_text.require_moderate(path)
    lines = decoded(path, path.read_bytes()).split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def require_text_file(folder: Path, *names: str) -> Path:
    """Return the first of some files that a folder has.

    Args:
        folder: The folder.
        *names: Names of files.

    Returns:
        The path.

    Raises:
        FileNotFoundError: If there is none of them.
    """
    for name in names:
        if has_file(folder / name):
            basic_text.require_moderate(folder / name)
            return folder / name
    there = ", ".join(sorted(path.name for path in folder.iterdir()))
    raise FileNotFoundError(
        f"There is no tokenizer in '{folder}' that can be read here. Expected "
        f"{' or '.join(map(repr, names))}, or a tokenizer.json. Received: {there}. "
        "Pass tokenizers=None to load the weights alone."
    )


def read_ids(path: Path) -> dict[str, int]:
    """Return the ids of a `vocab.json`; nothing if there is none.

    Args:
        path: The file.

    Returns:
        The id of each piece.

    Raises:
        ValueError: If it is no such list.
    """
    found = read_json(path)
    if not isinstance(found, dict):
        raise ArgumentError(
            f"'{path}' is no list of pieces.",
            "a JSON object with the id of each",
            "Download it again.",
            value=found,
        )
    if wrong := [(name, each) for name, each in found.items() if type(each) is not int]:
        raise ArgumentError(
            f"'{path}' is no list of pieces.",
            "whole numbers as ids",
            "Download it again.",
            received=f"{wrong[0][1]!r:.60} for {wrong[0][0]!r:.60}",
        )
    return found


def read_pieces(model: Path) -> tuple[str, ...]:
    """Return the names of a SentencePiece model's pieces; a `ValueError` names a damaged file."""
    with naming(model):
        return sentencepiece_pieces(model)


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a `merges.txt`, the best first; a `ValueError` names a damaged file."""
    with naming(path):
        return merges_of(path)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file, or the folder, in errors about what it holds."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:  # those of SentencePiece itself, too
        raise ValueError(f"The tokenizer of '{path}' cannot be read. {error}") from error


def by_mapping(
    model: Path,
    mapping: Mapping[str, int],
    size: int,
    settings: TokenizerSettings | None = None,
    /,
    **special: Any,
) -> Tokenizer:
    """Return a tokenizer whose ids stand in a `vocab.json`.

    Args:
        model: The SentencePiece model.
        mapping: The id of each piece.
        size: The number of rows of the model's table.
        settings: What the folder says of added tokens.
        **special: What `PieceIds` takes.

    Returns:
        The tokenizer.
    """
    known = {*read_pieces(model), *special.values()}
    controls = tuple(name for name in mapping if name not in known and _is_control(name))
    with naming(model.parent):
        ids = PieceIds.of_mapping(mapping, controls=controls, **special)
    return _tokenizer(model, ids, size, settings)


def moved(
    model: Path,
    size: int,
    settings: TokenizerSettings | None = None,
    /,
    *,
    first: Sequence[str] = (),
    last: Sequence[str] = (),
    **special: Any,
) -> Tokenizer:
    """Return a tokenizer whose ids are the model's own, moved behind others.

    Args:
        model: The SentencePiece model.
        size: The number of rows of the model's table.
        settings: What the folder says of added tokens.
        first: The names of the first ids.
        last: The names of the ids behind the model's.
        **special: What `PieceIds` takes.

    Returns:
        The tokenizer.
    """
    pieces = read_pieces(model)
    with naming(model):
        ids = PieceIds.around(pieces, first=first, last=last, **special)
    return _tokenizer(model, ids, size, settings)


def tokenizer_of(model: Path, ids: PieceIds) -> Tokenizer:
    """Return the tokenizer of a model with ids; errors name the model's file."""
    with naming(model):
        return Tokenizer.from_sentencepiece(model, ids)


def _tokenizer(
    model: Path, ids: PieceIds, size: int, settings: TokenizerSettings | None
) -> Tokenizer:
    filled = ids.filled_up_to(size) if settings is None else settings.extended(ids, size)
    return tokenizer_of(model, filled)


def _is_control(name: str) -> bool:
    """Return whether a name is that of a language or another mark, which no text contains."""
    marks = (">>", "<<"), ("__", "__"), ("<", ">"), ("[", "]")
    return any(name.startswith(a) and name.endswith(b) and len(name) > len(a + b) for a, b in marks)
