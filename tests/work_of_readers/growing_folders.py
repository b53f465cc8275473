"""Small folders of checkpoints in which one thing after another grows."""

import io
import json
import math
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
from growing_values import changes_of_json, changes_of_values

from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.interop import load_pretrained, make_random_folder, tensor_files

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_bytes
import hostile_folders

sys.path.pop(0)


def ordinary(family, folder):
    path = folder / family
    if family in ("mt5", "umt5"):
        make_random_folder(family, path, num_encoder_layers=1, num_decoder_layers=1)
    else:
        hostile_folders.write_ordinary(family, path)
    if (path / "generation_config.json").exists():
        for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
            if not (path / name).exists():
                (path / name).write_text("{}")
    return path


def changes_of_lines(path):
    text = path.read_text()
    last = text.rstrip("\n").rpartition("\n")[2]
    yield "a line again", lambda n: path.write_text(text + f"{last}\n" * n)
    yield (
        "numbered lines",
        lambda n: path.write_text(text + "".join(f"z{i}{last}\n" for i in range(n))),
    )
    yield "a long line", lambda n: path.write_text(f"{text}{last * n}\n")


def changes_of_pieces(path):
    content = path.read_bytes()
    names = ModelProto.FromString(content).pieces
    first = names[len(names) - 1].piece

    def write(pieces, kind):
        model = ModelProto.FromString(content)
        for piece in pieces:
            model.pieces.add(piece=piece, score=-1.0, type=kind)
        path.write_bytes(model.SerializeToString())

    for kind, name in ((1, "pieces"), (3, "controls"), (4, "symbols"), (5, "unused pieces")):
        yield f"more {name}", lambda n, kind=kind: write([f"q{i}z" for i in range(n)], kind)
    # As long together as many short ones.
    yield (
        "symbols that begin alike",
        lambda n: write(["a" * i + "c" for i in range(1, math.isqrt(32 * n))], 4),
    )
    yield "a piece again", lambda n: write([first] * n, 1)
    yield "a long piece", lambda n: write(["ab" * n], 1)


def changes_of_safetensors(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name, last = list(header.items())[-1]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    def write(tensors):
        text = json.dumps(header | tensors).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    yield "more tensors", lambda n: write({f"{name}{i}": last for i in range(n)})
    yield "empty tensors", lambda n: write({f"zz{i}": empty for i in range(n)})
    yield "axes", lambda n: write({name: {**last, "shape": [1] * n}})


def changes_of_npz(path):
    with np.load(path) as arrays:
        known = dict(arrays)

    def write(more):
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in {**known, **more}.items():
                out = io.BytesIO()
                np.lib.format.write_array(out, array)
                archive.writestr(f"{name}.npy", out.getvalue())

    yield "more arrays", lambda n: write({f"zz{i}": np.zeros(1) for i in range(n)})


def changes_of_marian_bin(path):
    if not tensor_files.is_marian_bin(path):  # A shortlist.
        head, body = path.read_bytes()[:48], path.read_bytes()[48:]
        numbers = list(struct.unpack("<6Q", head))

        def write(count):
            """Lists of tokens that have none."""
            end = 8 * numbers[4]
            last = body[end - 8 : end]
            new = [*numbers[:4], numbers[4] + count, numbers[5]]
            content = struct.pack("<6Q", *new) + body[:end] + last * count + body[end:]
            path.write_bytes(hostile_bytes.with_checksum(content))

        yield "more lists", write
        return
    tensors = {
        name: np.asarray(each.read()) for name, each in tensor_files.read_marian_bin(path).items()
    }
    settings = tensors.pop("special:model.yml").tobytes()

    def write_tensors(more):
        tensor_files.write_marian_bin(path, {**tensors, **more, "special:model.yml": settings})

    yield "more tensors", lambda n: write_tensors({f"zz{i}": np.zeros(1) for i in range(n)})


def changes_of_torch(path):
    import torch

    tree = torch.load(path, weights_only=False)
    plain = {
        name: vars(each) if type(each).__name__ == "Namespace" else each
        for name, each in tree.items()
    }
    yield from changes_of_values(plain, lambda value: torch.save(value, path))


def changes_of_tensorflow(path):
    import tensorflow as tf

    yield (
        "more variables",
        lambda n: tf.train.Checkpoint(model=[tf.Variable(0.0) for _ in range(n)]).write(
            str(path.with_suffix(""))
        ),
    )


CHANGES = {
    ".json": changes_of_json,
    ".txt": changes_of_lines,
    ".yml": changes_of_lines,
    ".yaml": changes_of_lines,
    ".spm": changes_of_pieces,
    ".model": changes_of_pieces,
    ".safetensors": changes_of_safetensors,
    ".npz": changes_of_npz,
    ".bin": changes_of_marian_bin,
    ".pt": changes_of_torch,
    ".ckpt": changes_of_torch,
    ".index": changes_of_tensorflow,
}
WITHOUT_STRUCTURE = {"checkpoint", "ckpt-1.data-00000-of-00001"}

_PIECES = {"source_sentencepiece": "vocab.spm"}
NAMED = {
    **hostile_folders.NAMED,
    **{name: {"name": name, **_PIECES} for name in ("opennmt_py", "eole")},
    "opennmt_tf": {
        **hostile_folders.NAMED["opennmt_tf"],
        **_PIECES,
        "source_vocabulary": "vocab.txt",
    },
}
"""What is said of families whose files do not name theirs, or their tokenizers."""

OTHERS = {
    "nllb": "m2m_100",
    "byt5": "t5",
    "student": "marian_npz",
    "bergamot": "marian_npz",
    "tokenizer_json": "bart",
}
"""Further folders, and the family of each."""


def load(path, name):
    load_pretrained(path, NAMED.get(name))


def changes(path, left_out):
    """All ways to let a file of a folder grow, each of which leaves the others as they are."""
    left_out = {*WITHOUT_STRUCTURE, *left_out}
    for file in sorted(each for each in path.iterdir() if each.name not in left_out):
        content = file.read_bytes()
        for what, change in CHANGES[file.suffix](file):
            yield f"{file.name}: {what}", change
        file.write_bytes(content)
