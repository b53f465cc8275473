"""The files of a folder that say how texts become ids: models of pieces, lists, special tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics import json_text
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.text_file import not_utf8
from keras_addnorm.data import PieceIds, Tokenizer, sentencepiece_pieces
from keras_addnorm.data.piece_ids import filler

_SPECIAL = dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"))


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
    return json_text.read_json(path) if path.is_file() else {}


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
        settings = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"'{path}' is no YAML: {reason:.300}. Download it again.") from error
    if not isinstance(settings or {}, dict):
        raise ValueError(
            f"'{path}' holds no settings. Expected names with values; received {settings!r:.80}. "
            "Download it again."
        )
    return dict(settings or {})


def write_json(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as JSON."""
    text = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def read_tokens(path: Path) -> list[str]:
    """Return a list of tokens, one a line; only a line feed ends one."""
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file '{path}'. Expected the list of tokens that the settings name. Pass "
            "tokenizers=None to load the weights alone."
        )
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error
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
        if (folder / name).is_file():
            return folder / name
    there = ", ".join(sorted(path.name for path in folder.iterdir()))
    only_new = "tokenizer.json" in there
    raise FileNotFoundError(
        f"There is no tokenizer in '{folder}' that can be read here. Expected "
        f"{' or '.join(map(repr, names))}. Received: {there}. "
        + (
            "A tokenizer.json is another form of the same: the model of pieces lies in the folder "
            "that it was made of. "
            if only_new
            else ""
        )
        + "Pass tokenizers=None to load the weights alone."
    )


def added_tokens(folder: Path) -> dict[str, int]:
    """Return the tokens behind a model's own pieces that the files give an id to."""
    found = dict(read_json(folder / "added_tokens.json"))
    decoder = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    found |= {token["content"]: int(index) for index, token in decoder.items()}
    whole = read_json(folder / "tokenizer.json")
    found |= {token["content"]: token["id"] for token in whole.get("added_tokens", [])}
    return found


def named_tokens(folder: Path) -> tuple[str, ...]:
    """Return the further special tokens that the files list, in their order."""
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = read_json(folder / name)
        for field in ("additional_special_tokens", "extra_special_tokens"):
            if tokens := settings.get(field):
                return tuple(_content(token) for token in tokens)
    return ()


def by_mapping(model: Path, mapping: Mapping[str, int], size: int, **special: Any) -> Tokenizer:
    """Return a tokenizer whose ids stand in a `vocab.json`.

    Args:
        model: The SentencePiece model.
        mapping: The id of each piece.
        size: The number of rows of the model's table.
        **special: What `PieceIds` takes.

    Returns:
        The tokenizer.
    """
    known = {*sentencepiece_pieces(model), *special.values()}
    controls = tuple(name for name in mapping if name not in known and _is_control(name))
    ids = PieceIds.of_mapping(mapping, controls=controls, **special)
    return Tokenizer.from_sentencepiece(model, ids.filled_up_to(size))


def moved(
    model: Path, size: int, *, first: Sequence[str] = (), last: Sequence[str] = (), **special: Any
) -> Tokenizer:
    """Return a tokenizer whose ids are the model's own, moved behind others.

    Args:
        model: The SentencePiece model.
        size: The number of rows of the model's table.
        first: The names of the first ids.
        last: The names of the ids behind the model's.
        **special: What `PieceIds` takes.

    Returns:
        The tokenizer.
    """
    pieces = sentencepiece_pieces(model)
    ids = PieceIds.around(pieces, first=first, last=last, **special)
    return Tokenizer.from_sentencepiece(model, ids.filled_up_to(size))


def languages_behind(folder: Path, count: int) -> tuple[str, ...]:
    """Return the names of the ids from `count` on, such as languages.

    Args:
        folder: Where the files are.
        count: The number of ids before them.

    Returns:
        The names.
    """
    added = {index: name for name, index in added_tokens(folder).items() if index >= count}
    if added:
        return tuple(added.get(i, filler(i)) for i in range(count, max(added) + 1))
    return tuple(name for name in named_tokens(folder) if name not in _SPECIAL)


def _is_control(name: str) -> bool:
    """Return whether a name is that of a language or another mark, which no text contains."""
    marks = (">>", "<<"), ("__", "__"), ("<", ">"), ("[", "]")
    return any(name.startswith(a) and name.endswith(b) and len(name) > len(a + b) for a, b in marks)


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, Mapping) else str(token)
