"""Folders of checkpoints made to harm whoever imports them: each a random one, and a change."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def _set(name: str, **values: Any) -> Callable[[Path], object]:
    """Sets names of a JSON file."""

    def change(folder: Path) -> None:
        path = folder / name
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **values}))

    return change


def _write(name: str, content: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content())


def _pipe(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def _safetensors(shape: list[int], end: int) -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}})
    return struct.pack("<Q", len(header)) + header.encode()


def _npz_of_zeros(folder: Path) -> None:
    with (
        zipfile.ZipFile(folder / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array(file, np.zeros(250_000_000, np.float32))


def _torch(content: bytes) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
            archive.writestr("a/data.pkl", content)

    return change


def _layers_of_lists() -> bytes:
    tree: Any = ["x"]
    for _ in range(40):
        tree = [tree] * 10
    return pickle.dumps({"a": tree}, protocol=2)


# By what they do: the family, and what changes its folder.
FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an added token of a billion": ("nllb", _set("added_tokens.json", xxx_Latn=10**9)),
    "a decoder's token of a billion": (
        "nllb",
        _set("tokenizer_config.json", added_tokens_decoder={str(10**9): {"content": "x"}}),
    ),
    "a list in place of added tokens": ("nllb", _write("added_tokens.json", lambda: b"[1]")),
    "an id of a billion": ("marian", _set("vocab.json", x=10**9)),
    "null in place of ids": ("marian", _write("vocab.json", lambda: b"null")),
    "brackets in place of ids": ("marian", _write("vocab.json", lambda: b"[" * 1_000_000)),
    "a width of a billion": ("marian", _set("config.json", d_model=10**9)),
    "a billion layers": ("marian", _set("config.json", encoder_layers=10**9)),
    "a billion positions": ("t5", _set("config.json", n_positions=10**9)),
    "a million beams": ("marian", _set("generation_config.json", num_beams=10**6)),
    "10^12 tokens": ("marian", _set("generation_config.json", max_length=10**12)),
    "10^12 tokens of a t5": ("t5", _set("generation_config.json", max_length=10**12)),
    "a text of a megabyte as a setting": (
        "marian",
        _set("config.json", activation_function="x" * 1_000_000),
    ),
    "control characters as a setting": ("marian", _set("config.json", model_type="\x1b[2J")),
    "100,000 unknown settings": (
        "bart",
        _set("config.json", **{f"a{number}": 1 for number in range(100_000)}),
    ),
    "a tensor of 10^12 numbers": (
        "marian",
        _write("model.safetensors", lambda: _safetensors([10**6, 10**6], 4 * 10**12)),
    ),
    "a header of 10^18 bytes": (
        "marian",
        _write("model.safetensors", lambda: struct.pack("<Q", 10**18)),
    ),
    "an .npz of a gigabyte of zeros": ("marian_npz", _npz_of_zeros),
    "lists of lists of lists in a pickle": ("marian", _torch(_layers_of_lists())),
    "a pickle that runs a command": ("marian", _torch(b"cos\nsystem\n(S'touch PWN'\ntR.")),
    "an index that leads out": (
        "marian",
        lambda folder: (
            (folder / "model.safetensors").unlink(),
            _set("model.safetensors.index.json", weight_map={"a": "../x"})(folder),
        ),
    ),
    "a piece model of zeros": ("marian", _write("source.spm", lambda: bytes(1_000_000))),
    "a pipe as the config": ("marian", _pipe("config.json")),
    "a pipe as the digests": ("marian", _pipe("keras_addnorm_manifest.json")),
    "aliases of aliases in YAML": (
        "joey_nmt",
        _write(
            "config.yaml",
            lambda: (
                b"a0: &a0 [x]\n"
                + b"".join(
                    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9))
                    for n in range(1, 12)
                )
            ),
        ),
    ),
    "brackets in YAML": ("joey_nmt", _write("config.yaml", lambda: b"a: " + b"[" * 100_000)),
    "a megabyte of YAML": ("joey_nmt", _write("config.yaml", lambda: b"a: 1\n" * 200_000)),
}


def write(folder: Path, name: str) -> Path:
    """Makes one of the folders in a folder."""
    from keras_addnorm.interop import make_random_folder

    family, change = FOLDERS[name]
    path = make_random_folder(family, folder / family, **_SMALL)
    change(path)
    return path
