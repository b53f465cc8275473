"""The files beside a `.npz` of Marian: vocabularies, and how to search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_text
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.data.piece_ids import filler
from keras_addnorm.decoding import Beam, Greedy
from keras_addnorm.decoding.constraints import Constraint, ForbiddenTokens, MaxLength
from keras_addnorm.decoding.length_penalties import AveragePenalty, NoPenalty
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import number_in
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.marian import text_format
from keras_addnorm.interop.families.marian_shortlist import shortlist_file, shortlist_of
from keras_addnorm.interop.families.text_files import (
    by_mapping,
    moved,
    read_ids,
    read_pieces,
    read_yaml,
    require_text_file,
)
from keras_addnorm.models import Seq2SeqConfig

_UNKNOWN_ID = 1
_PAD = "<pad>"
# Behind the backslash of a quoted key, by YAML 1.2, section 5.7.
_ESCAPES = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED = dict(
    zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True)
)
_ID = re.compile(r"\s*[0-9]{1,18}\s*")
_LISTS = (".yml", ".yaml", ".json")
# Bytes that no text has, of a model of pieces with a fallback to bytes.
_CONTROL_BYTES = frozenset(f"<0x{value:02X}>" for value in range(32))
# What changes an output and has no counterpart here; where it changes nothing.
_NOT_FOLLOWED: dict[str, tuple[Any, ...]] = {
    "word-penalty": (0,),
    "output-sampling": ([],),
    "skip-cost": (False,),
    "weights": ([],),
    "force-decode": (False,),
}


# How Bergamot's engine searches, for whose models there may be no file of settings.
_OF_THE_ENGINE = {"beam-size": 1, "normalize": 1.0, "max-length-factor": 2.0}


def read_settings(path: Path, text: str) -> dict[str, Any]:
    """Return the settings that YAML says; `path` is the file that it stands in."""
    return read_yaml(path, text, "A model of Marian")


def read_decoder_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the `decoder.yml` beside a model says; nothing if there is none."""
    names = ["decoder.yml", f"{checkpoint.path.name}.decoder.yml"]
    if checkpoint.path.suffix == ".bin":
        names += sorted(path.name for path in checkpoint.folder.glob("config*.yml"))
    for name in names:
        path = checkpoint.folder / name
        if has_file(path):
            return read_settings(path, read_text(path))
    return dict(_OF_THE_ENGINE) if checkpoint.path.suffix == ".bin" else {}


def search_of(
    checkpoint: Checkpoint, settings: Mapping[str, Any], config: Seq2SeqConfig
) -> GenerationSettings:
    """Return how Marian searches with such settings.

    Args:
        checkpoint: The model.
        settings: Those of `decoder.yml`. What they leave out is at Marian's default.
        config: Our config.

    Returns:
        The settings. Marian goes on with one hypothesis less for each that has ended, and here all
        places stay taken.
    """
    num_beams = settings.get("beam-size", 12)
    penalty = AveragePenalty(float(number_in(settings, "normalize", 0)))
    never = [] if settings.get("allow-unk", False) else [_UNKNOWN_ID]
    if not settings.get("allow-special", False):
        vocabularies = _vocabularies(checkpoint)
        if vocabularies and vocabularies[1].suffix == ".spm":
            pieces = enumerate(read_pieces(vocabularies[1]))
            never += [token for token, piece in pieces if piece in _CONTROL_BYTES]
    # Marian cuts a sequence off there; with room for the end, ours has the same tokens.
    factor = float(number_in(settings, "max-length-factor", 3))
    constraints: list[Constraint] = [MaxLength(1, source_factor=factor)]
    if never:
        constraints.append(ForbiddenTokens(tuple(never)))
    not_followed = [
        f"{name} = {settings[name]!r:.60}"
        for name, neutral in _NOT_FOLLOWED.items()
        if settings.get(name) is not None and settings[name] not in neutral
        # Of one hypothesis, the cost changes no token.
        if (name, num_beams) != ("skip-cost", 1)
    ]
    named = settings.get("shortlist") or [None]
    sizes = config.source_vocabulary_size, config.target_vocabulary_size
    shortlist, file = None, shortlist_file(checkpoint.folder, named[0])
    if file is not None:
        shortlist = shortlist_of(file, *sizes)
        if shortlist is None:
            not_followed.append(f"the shortlist {file.name}, which would hold nearly all tokens")
    elif named[0] is not None and not has_file(checkpoint.folder / Path(named[0]).name):
        not_followed.append(f"shortlist = {named!r:.60}")
    return GenerationSettings(
        Greedy(penalty) if num_beams == 1 else Beam(num_beams, penalty),
        config.max_length,
        tuple(constraints),
        not_followed=tuple(not_followed),
        shortlist=shortlist,
    )


def decoder_settings(generation: GenerationSettings) -> dict[str, Any]:
    """Return what `decoder.yml` says of a search.

    Args:
        generation: How to search.

    Returns:
        The settings.

    Raises:
        ValueError: If Marian cannot search so.
    """
    strategy = generation.strategy
    penalty = getattr(strategy, "length_penalty", None)
    alpha = penalty.alpha if isinstance(penalty, AveragePenalty) else None
    if isinstance(penalty, NoPenalty) or penalty is None:
        alpha = 0.0
    if not isinstance(strategy, Greedy | Beam) or alpha is None:
        raise ArgumentError(
            "Marian does not search like this.",
            "greedy or with a beam, and a score over the length to a power (AveragePenalty)",
            "Replace `generation` of the Pretrained.",
            received=f"{strategy}",
        )
    found = {
        "beam-size": strategy.num_beams if isinstance(strategy, Beam) else 1,
        "normalize": alpha,
        "word-penalty": 0,
    }
    for constraint in generation.constraints:
        if isinstance(constraint, MaxLength) and constraint.source_factor:
            found["max-length-factor"] = constraint.source_factor
    return found


def read_tokenizers(checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
    """Return the tokenizers that the files beside a model describe.

    Args:
        checkpoint: The model.
        config: Our config.

    Returns:
        Tokenizers whose last id is padding.

    Raises:
        FileNotFoundError: If there are no vocabularies, or no models of pieces beside lists.
        ValueError: If they have other sizes than the tables.
    """
    vocabularies = _vocabularies(checkpoint)
    if vocabularies is None:
        there = ", ".join(sorted(path.name for path in checkpoint.folder.iterdir()))
        raise FileNotFoundError(
            f"There are no vocabularies in '{checkpoint.folder}' that can be read here. Expected "
            "one or two .spm files; or source.spm and target.spm, and one or two lists of their "
            f"pieces, vocab.yml. Received: {there}. Pass tokenizers=None to load the weights alone."
        )
    size = config.target_vocabulary_size
    source, target = (
        _tokenizer(checkpoint.folder, side, vocabulary, size)
        for side, vocabulary in zip(("source", "target"), vocabularies, strict=True)
    )
    _check_sizes(checkpoint, (source, target))
    return TokenizerPair(source, target, text_format(source))


def read_vocabulary(path: Path) -> dict[str, int]:
    """Return the ids of a list, a `vocab.yml` or a `.json`.

    It is read line by line: what looks like a number or like `yes` is a piece, too.

    Args:
        path: The file.

    Returns:
        The id of each piece.

    Raises:
        ValueError: If it is no such list.
    """
    if path.suffix == ".json":
        return read_ids(path)
    text = read_text(path)
    ids = {}
    key = ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if line.startswith("? "):  # a long key, whose id stands on the next line
            key = line[2:]
            continue
        if not key:
            key, _, value = line.rpartition(":")
        else:
            value = line.removeprefix(":")
        if not line:
            continue
        name = _unquoted(key)
        if not re.fullmatch(_ID, value) or not key or name is None:
            raise ArgumentError(
                f"'{path}' is no list of pieces.",
                "lines such as 'piece: 5'",
                received=f"in line {number}: {line[:60]!r}",
            )
        ids[name] = int(value)
        key = ""
    return ids


def _unquoted(key: str) -> str | None:
    """Return a key of YAML as it is meant; `None` if it is none.

    A reader of YAML takes a fifth of a millisecond for each, and a list has any number of them.
    """
    mark = key[:1]
    if mark not in ('"', "'") or len(key) < 2 or not key.endswith(mark):
        return key
    inner = key[1:-1]
    if mark == "'":
        return None if "'" in inner.replace("''", "") else inner.replace("''", "'")
    parts = _ESCAPES.split(inner)
    found = [_ESCAPED.get(code) or _character(code) for code in parts[1::2]]
    if None in found or any(mark in part or "\\" in part for part in parts[::2]):
        return None
    parts[1::2] = map(str, found)
    return "".join(parts)


def _character(code: str) -> str | None:
    """Return the character that YAML writes as `xE9`, `u00E9` or `U000000E9`."""
    number = int(code[1:], 16) if len(code) > 1 else -1
    is_character = 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if is_character else None


def _vocabularies(checkpoint: Checkpoint) -> tuple[Path, Path] | None:
    """Return the file that says the ids of each side, if there is one."""
    folder = checkpoint.folder
    listed = [Path(name).name for name in read_decoder_settings(checkpoint).get("vocabs") or []]
    found = [folder / name for name in listed if has_file(folder / name)]
    if len(found) != len(listed) or not found:
        lists = [path for suffix in _LISTS for path in folder.glob(f"*vocab*{suffix}")]
        found = sorted(lists) or sorted(folder.glob("*.spm"))
    return (found[0], found[-1]) if len(found) in (1, 2) else None


def _tokenizer(folder: Path, side: str, vocabulary: Path, size: int) -> Tokenizer:
    special = {"pad": _PAD, "start": _PAD}
    if vocabulary.suffix in _LISTS:
        models = list(folder.glob("*.spm"))
        model = models[0] if len(models) == 1 else require_text_file(folder, f"{side}.spm")
        ids = read_vocabulary(vocabulary)
        return by_mapping(model, {**ids, _PAD: size - 1}, size, **special)
    count = len(read_pieces(vocabulary))
    last = (*map(filler, range(count, size - 1)), _PAD)
    return moved(vocabulary, size, last=last, **special)


def _check_sizes(checkpoint: Checkpoint, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Refuse vocabularies that are not those of the tables."""
    size = tokenizers[0].vocabulary_size - 1
    received = [size - _num_filled(tokenizer) for tokenizer in tokenizers]
    dims = checkpoint.settings.get("dim-vocabs") or []
    # Of tables with different sizes, the settings know the smaller one.
    expected = list(dims) if len(dims) == 2 and max(dims) == size else [size, size]
    if max(received) != size or (expected == dims and received != expected):
        raise ArgumentError(
            "The vocabularies beside the model are not those of its tables.",
            f"{expected[0]} and {expected[1]} pieces",
            "Were the files of two models mixed?",
            received=f"{received[0]} and {received[1]}",
        )


def _num_filled(tokenizer: Tokenizer) -> int:
    """Return how many ids have no piece in any file."""
    own = {piece.text for piece in tokenizer.model_pieces}
    return sum(tokenizer.pieces[token].text not in own for token in tokenizer.unused_ids)
