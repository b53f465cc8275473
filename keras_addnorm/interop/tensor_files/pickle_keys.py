"""Refuses pickles whose keys would take forever to be compared, before any of them is made.

Python computes the hash of a tuple of those of its parts, each time anew, however often one part
stands in it and however deep it is: two hundred bytes with a tuple that holds another one twice,
and so on, take years, and a megabyte of tuples in one another ends the process. Whoever writes a
file chooses the hashes of its large numbers and tuples, which are not random as those of texts are:
if all are the same, each key is compared with all before it.
"""

from __future__ import annotations

import pickletools
from pathlib import Path
from typing import NamedTuple

from keras_addnorm.interop.tensor_files.stored_tensor import DamagedFileError

_LARGEST_KEY = 100  # values of a tuple, those of its parts included
_MOST_CHOSEN_KEYS = 1000  # those that are tuples or large numbers, in a whole file
_BITS_OF_A_VALUE = 60  # of a number whose hash is itself
# Which of the values that an operation takes become keys.
_KEYS = {
    "SETITEM": slice(1, 2),
    "SETITEMS": slice(1, None, 2),
    "DICT": slice(0, None, 2),
    "ADDITEMS": slice(1, None),
    "FROZENSET": slice(0, None),
}


class _Effect(NamedTuple):
    """What an operation does to the stack.

    Attributes:
        takes: How many values it takes, without those behind a mark.
        has_mark: Whether it takes those behind the last mark, too.
        puts: How many values it puts there.
    """

    takes: int
    has_mark: bool
    puts: int

    @classmethod
    def of(cls, operation: pickletools.OpcodeInfo) -> _Effect:
        """Read it from the list of operations of `pickletools`."""
        names = [each.name for each in operation.stack_before]
        if "mark" in names:
            return cls(names.index("mark"), True, len(operation.stack_after))
        return cls(len(names), False, len(operation.stack_after))


_EFFECTS = {operation.name: _Effect.of(operation) for operation in pickletools.opcodes}


def require_small_keys(path: Path, content: bytes) -> None:
    """Refuse a pickle with a key of very many values, or very many keys with chosen hashes.

    Args:
        path: The file, for the message.
        content: The pickle.

    Raises:
        DamagedFileError: If there is such a key.
        IndexError: If an operation takes more than there is.
        KeyError: If one asks for what was not kept.
    """
    stack: list[int] = []  # how many values each one has, up to a little more than a key may have
    marks: list[int] = []
    kept: dict[int, int] = {}
    chosen = 0
    for operation, value, _ in pickletools.genops(content):
        name = operation.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT"):
            kept[int(value or 0)] = stack[-1]
        elif name == "MEMOIZE":
            kept[len(kept)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(kept[int(value or 0)])
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "POP" and marks[-1:] == [len(stack)]:
            marks.pop()
        else:
            takes, has_mark, puts = _EFFECTS[name]
            start = (marks.pop() if has_mark else len(stack)) - takes
            if start < 0:
                raise IndexError("an operation takes more than there is")
            taken = stack[start:]
            del stack[start:]
            if name in _KEYS:
                keys = taken[_KEYS[name]]
                chosen += sum(size > 1 for size in keys)
                if max(keys, default=0) > _LARGEST_KEY or chosen > _MOST_CHOSEN_KEYS:
                    raise DamagedFileError(
                        f"'{path}' is no file of tensors. Expected dicts by texts or numbers. "
                        f"Received: a key of more than {_LARGEST_KEY} values, or more than "
                        f"{_MOST_CHOSEN_KEYS} tuples or large numbers. Do not trust the file."
                    )
            size = 1 + sum(taken)
            if type(value) is int:
                size += value.bit_length() // _BITS_OF_A_VALUE
            stack += [min(size, _LARGEST_KEY + 1)] * puts
