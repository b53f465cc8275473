"""Binary lexical shortlists, as Marian and Bergamot's engine map them into memory.

A file is a mark, a checksum, and four counts: how many of the first target tokens are always
weighed, how many translations a source token has at most, and the numbers of offsets and of ids.
The offsets follow, one a source token and one more, 8 bytes each; then the ids of the target
tokens, 4 bytes each, ascending within the list of a source token.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import Lexicon, Shortlist
from keras_addnorm.decoding.shortlist import most_bytes
from keras_addnorm.interop.tensor_files import DamagedFileError

_MARK = 0xF11A48D5013417F5
_HEAD = struct.Struct("<6Q")
_MASK = (1 << 64) - 1
_LONGEST_LIST = 1024
# Of a token that is always weighed: more than all that lists can say together.
_ALWAYS = 1e6
_FIRST = 100
_TOKENS_WITH_ROOM = 32


def is_shortlist(path: Path) -> bool:
    """Return whether a file begins as a binary shortlist does."""
    with path.open("rb") as file:
        return file.read(8) == struct.pack("<Q", _MARK)


def read_shortlist(path: Path, source_vocabulary_size: int, target_vocabulary_size: int) -> Lexicon:
    """Return the lexicon of a binary shortlist.

    Args:
        path: The file.
        source_vocabulary_size: Number of source tokens of our model, the last one padding.
        target_vocabulary_size: Number of its target tokens, likewise.

    Returns:
        A lexicon in which each listed translation has the probability 1, since the file has none,
        and in which the first tokens are so frequent that every shortlist has them.

    Raises:
        DamagedFileError: If it is cut off, changed, or no such file.
        ValueError: If it belongs to other vocabularies.
    """
    first, offsets, ids = _read(path)
    sizes = len(offsets) - 1, int(ids.max(initial=0)) + 1
    largest = source_vocabulary_size - 1, target_vocabulary_size - 1
    lengths = np.diff(offsets)
    if sizes[0] > largest[0] or max(sizes[1], first) > largest[1]:
        raise ArgumentError(
            f"The shortlist '{path}' does not belong to the model.",
            f"lists of {largest[0]} source tokens, with ids below {largest[1]}",
            "Take the shortlist that came with the model, or leave it away.",
            received=f"{sizes[0]} lists, ids up to {sizes[1] - 1}, the first {first} always",
        )
    if lengths.max(initial=0) > _LONGEST_LIST:
        raise ArgumentError(
            f"A list of the shortlist '{path}' is very long.",
            f"{_LONGEST_LIST} translations of a token at most",
            "Leave the shortlist away: it saves nothing.",
            value=int(lengths.max()),
        )
    shape = (source_vocabulary_size, max(int(lengths.max(initial=0)), 1))
    size = 8 * shape[0] * shape[1]
    if size > most_bytes(path):
        raise ArgumentError(
            f"The shortlist '{path}' would take far more memory than the file has bytes: its "
            "longest list makes room for as many translations of each token.",
            f"at most {most_bytes(path):,} bytes",
            "Leave the shortlist away.",
            received=f"{size:,} for {shape[0]:,} tokens with {shape[1]}",
        )
    rows = np.repeat(np.arange(sizes[0]), lengths)
    places = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    candidates, probabilities = np.zeros(shape, "int32"), np.zeros(shape, "float32")
    candidates[rows, places] = ids
    probabilities[rows, places] = 1.0
    frequencies = np.zeros(target_vocabulary_size, "float32")
    frequencies[:first] = _ALWAYS
    return Lexicon(candidates, probabilities, frequencies)


def write_shortlist(
    path: Path,
    lexicon: Lexicon | None,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    size: int,
) -> None:
    """Write a binary shortlist.

    Args:
        path: The file, which appears as a whole.
        lexicon: What each source token is translated with; `None` for a shortlist that always
            holds all tokens.
        source_ids: Our id of each source token that Marian's model has, in its order.
        target_ids: Our id of each target token, likewise.
        size: Number of rows of Marian's table, which may be more.
    """
    if lexicon is None:
        _write(path, size, 0, np.zeros(size + 1, "<u8"), np.zeros(0, "<u4"))
        return
    theirs = np.full(len(lexicon.frequencies), -1)
    theirs[list(target_ids)] = np.arange(len(target_ids))
    rows = list(source_ids)
    candidates = theirs[np.asarray(lexicon.candidates)[rows]]
    kept = (np.asarray(lexicon.probabilities)[rows] > 0) & (candidates >= 0)
    lists = [np.unique(row[is_kept]) for row, is_kept in zip(candidates, kept, strict=True)]
    lists += [np.zeros(0, int)] * (size - len(lists))
    is_always = np.asarray(lexicon.frequencies)[list(target_ids)] >= _ALWAYS
    first = int(np.argmin([*is_always, False])) or min(_FIRST, size)
    offsets = np.cumsum([0, *map(len, lists)], dtype="<u8")
    _write(path, first, candidates.shape[1], offsets, np.concatenate(lists).astype("<u4"))


def shortlist_file(folder: Path, name: str | None) -> Path | None:
    """Return the binary shortlist of this name in a folder; for `None` the only one there is."""
    candidates = [folder / Path(name).name] if name is not None else sorted(folder.glob("*.bin"))
    found = [path for path in candidates if has_file(path) and is_shortlist(path)]
    return found[0] if len(found) == 1 else None


def shortlist_of(
    path: Path, source_vocabulary_size: int, target_vocabulary_size: int
) -> Shortlist | None:
    """Return the shortlist in a file, or `None` if it would hold nearly all tokens.

    Args:
        path: The file.
        source_vocabulary_size: As of `read_shortlist`.
        target_vocabulary_size: Likewise.

    Returns:
        The shortlist, with room for the translations of 32 tokens beside those always weighed.
    """
    lexicon = read_shortlist(path, source_vocabulary_size, target_vocabulary_size)
    always = int(np.sum(np.asarray(lexicon.frequencies) >= _ALWAYS))
    size = max(4, always + _TOKENS_WITH_ROOM * lexicon.candidates.shape[1])
    return None if size >= target_vocabulary_size - 1 else Shortlist(lexicon, size)


def _read(path: Path) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of first tokens, the offsets and the ids of a whole file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise _damaged(path, f"at least {_HEAD.size} bytes", f"{size}")
        mark, checksum, first, _, num_offsets, num_ids = _HEAD.unpack(head)
        if mark != _MARK:
            raise _damaged(path, f"a file that begins with {_MARK:#x}", f"{mark:#x}")
        expected = _HEAD.size + 8 * num_offsets + 4 * num_ids
        if size != expected:
            raise _damaged(path, f"{expected} bytes, as its head says", f"{size}")
        body = file.read(size - _HEAD.size)
    if (found := _checksum(head[16:] + body)) != checksum:
        raise _damaged(path, f"the checksum {checksum:#x}", f"{found:#x}")
    offsets = np.frombuffer(body, "<u8", num_offsets).astype(np.int64)
    ids = np.frombuffer(body, "<u4", num_ids, 8 * num_offsets)
    is_sound = len(offsets) and offsets[0] == 0 and offsets[-1] == num_ids
    if not is_sound or np.any(np.diff(offsets) < 0) or first >= 1 << 32:
        raise _damaged(path, f"offsets that ascend from 0 to {num_ids}", "others")
    return int(first), offsets, ids


def _write(path: Path, first: int, best: int, offsets: np.ndarray, ids: np.ndarray) -> None:
    counted = struct.pack("<4Q", first, best, len(offsets), len(ids))
    body = counted + offsets.astype("<u8").tobytes() + ids.astype("<u4").tobytes()
    with atomic_file(path) as temporary:
        temporary.write_bytes(struct.pack("<2Q", _MARK, _checksum(body)) + body)


def _checksum(content: bytes) -> int:
    """Return Marian's hash of the whole words of 8 bytes."""
    value = 0
    words = np.frombuffer(content, "<u8", len(content) // 8)
    for word in itertools.chain.from_iterable(part.tolist() for part in np.array_split(words, 64)):
        value ^= (word + 0x9E3779B9 + (value << 6) + (value >> 2)) & _MASK
    return value


def _damaged(path: Path, expected: str, received: str) -> DamagedFileError:
    return DamagedFileError(
        f"'{path}' is no whole binary shortlist. Expected {expected}. Received: {received}. Copy "
        "or download it again."
    )
