"""Changes of files as no program writes them: numbers, texts and structure that nobody expects.

`mutated` changes any file; of JSON, zips and safetensors it changes what is inside, so that the
change is not refused because of a checksum or a length alone. `attacks.py` and the tests use it.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from typing import Any

# Numbers that size lists, are out of range, or are none.
_NUMBERS = [0, 1, -1, 2, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 10**9, 10**18, 2**63 - 1]
_VALUES: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**9, 10**18, 10**400, 1e308, float("nan")),
    *("", "x", "x" * 10**5, "../../x", "/etc/hostname", "\x1b[2J", "\ud800", "a\0b", "%s"),
    *([], [1], ["x"], [[]], [None] * 1000, {}, {"x": 1}, {"x": {"x": -1}}, [["x", 1e400]]),
]
_WORDS = [
    *(b"", b"\0", b"\xff\xfe", b"\n", b"\n\n", b" ", b"\t", b"-1", b"1e999", b"nan", b"999999999"),
    *(b"[" * 300, b"{", b'"', b"'", b": ", b"&a *a", b"!!python/name:os.system", b"\x1b[2J"),
    *(b"../../x", b"/dev/zero", b"\xf0\x9f", b"\xe2\x80\xae", b"a" * 70_000),
]


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Returns a file with a change or some in it."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = _inside(content, chance)
    return content


def with_checksum(content: bytes) -> bytes:
    """Returns a binary shortlist of Marian with the checksum that it should have."""
    from keras_addnorm.interop.families import marian_shortlist

    return content[:8] + struct.pack("<Q", marian_shortlist._checksum(content[16:])) + content[16:]


def _inside(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.8:
        for change in (_in_zip, _in_safetensors, _in_json):
            if (found := change(content, chance)) is not None:
                return found
    return _in_bytes(content, chance)


def _in_zip(content: bytes, chance: random.Random) -> bytes | None:
    if not content.startswith(b"PK\x03\x04"):
        return None
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
            names = old.namelist()
            # Headers, settings and programs are what a reader follows.
            small = [name for name in names if old.getinfo(name).file_size < 5000] or names
            chosen = chance.choice(names + small * 3)
            for name in names:
                inside = old.read(name)
                if name == chosen:
                    kind = chance.randrange(10)
                    if kind == 0:
                        continue
                    if kind == 1:
                        name = chance.choice(("x", "../x", "/x", name * 50, chance.choice(names)))
                    elif kind == 2:
                        new.writestr(name, inside, zipfile.ZIP_DEFLATED)
                        continue
                    else:
                        inside = _inside(inside, chance)
                new.writestr(zipfile.ZipInfo(name), inside)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OSError):
        return None
    return out.getvalue()


def _in_safetensors(content: bytes, chance: random.Random) -> bytes | None:
    if len(content) < 9 or content[8:9] != b"{":
        return None
    (length,) = struct.unpack("<Q", content[:8])
    header = _in_json(content[8 : 8 + length], chance) if length < len(content) else None
    if header is None:
        return None
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def _in_json(content: bytes, chance: random.Random) -> bytes | None:
    if content[:1] not in (b"{", b"[") or len(content) > 2_000_000:
        return None
    try:
        value = json.loads(content)
        return json.dumps(_put(value, chance)).encode()
    except (ValueError, RecursionError):
        return None


def _put(value: Any, chance: random.Random) -> Any:
    """A value in which one place, at any depth, has another value, another key, or none."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(_VALUES)
    copy: Any = value.copy()
    key = chance.choice([*value]) if isinstance(value, dict) else chance.randrange(len(value))
    kind = chance.randrange(12)
    if kind == 0:
        del copy[key]
    elif kind == 1 and isinstance(copy, dict):
        copy[chance.choice(("", "x", "-1", "10" * 9, "\x1b", "../x"))] = copy.pop(key)
    else:
        copy[key] = _put(copy[key], chance)
    return copy


def _in_bytes(content: bytes, chance: random.Random) -> bytes:
    # The beginning and the end say how long things are.
    place = chance.choice(
        (
            chance.randint(0, min(len(content), 64)),
            chance.randint(0, min(len(content), 4096)),
            chance.randint(max(0, len(content) - 256), len(content)),
            chance.randint(0, len(content)),
        )
    )
    kind = chance.randrange(9)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + content[place + chance.randint(1, 64) :]
    if kind == 2:
        return content[:place] + chance.choice(_WORDS) + content[place:]
    if kind == 3:
        part = content[place : place + chance.randint(1, 200)]
        return content[:place] + part * min(5000, 300_000 // (len(part) or 1)) + content[place:]
    if kind in (4, 5):
        numbers = [*re.finditer(rb"\d+", content[:200_000])]
        if numbers and kind == 4:
            found = chance.choice(numbers)
            new = str(chance.choice((*_NUMBERS, 10**400, 1.5, "x"))).encode()
            return content[: found.start()] + new + content[found.end() :]
        return chance.choice(_WORDS) * chance.choice((1, 1, 1000)) + content[place:]
    size = chance.choice((1, 2, 4, 8))
    number = (chance.choice(_NUMBERS) % 2 ** (8 * size)).to_bytes(size, "little")
    if kind == 6:
        place -= place % size
    return content[:place] + number + content[place + size :]
