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


def _set_pieces(folder: Path, pieces: list[str], merges: list[list[str]], added: int = 0) -> None:
    """Sets the pieces behind the special tokens of a `tokenizer.json`, and adds tokens."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    known = [token["content"] for token in content["added_tokens"]]
    ids = {piece: number for number, piece in enumerate([*known, *pieces])}
    for token in content["added_tokens"]:
        token["id"] = ids[token["content"]]
    content["added_tokens"] += [
        {**content["added_tokens"][-1], "id": len(ids) + number, "content": f"<{number}>"}
        for number in range(added)
    ]
    content["model"] |= {"vocab": ids, "merges": merges}
    path.write_text(json.dumps(content))


def _long_pieces(folder: Path) -> None:
    merges = [["ab" * length, "ab"] for length in range(1, 1000)]
    _set_pieces(folder, ["a", "b", "ab", *("".join(pair) for pair in merges)], merges)


def _many_merges(folder: Path) -> None:
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 320)]
    merges = [[left, right] for left in letters for right in letters]
    _set_pieces(folder, [*letters, *("".join(pair) for pair in merges)], merges)


def _many_added_tokens(folder: Path) -> None:
    _set_pieces(folder, ["a", "b"], [], added=20_000)


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
    "a key of tuples of tuples": (
        "marian",
        _torch(b"\x80\x04}(" + b")" + b"\x85" * 1_000_000 + b"K\x01u."),
    ),
    "a key of 2^64 values": ("marian", _torch(b"\x80\x04}(" + b")" + b"2\x86" * 64 + b"K\x01u.")),
    "a token 20,000 times, and with another id": (
        "t5",
        _set(
            "tokenizer.json",
            added_tokens=[{"id": 7, "content": "a"}] * 20_000 + [{"id": 8, "content": "a"}],
        ),
    ),
    "20,000 added tokens": ("tokenizer_json", _many_added_tokens),
    "pieces of thousands of letters": ("tokenizer_json", _long_pieces),
    "100,000 merges": ("tokenizer_json", _many_merges),
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


NAMED: dict[str, Any] = {
    **{family: family for family in ("joey_nmt", "opennmt_py", "eole", "fairseq")},
    "opennmt_tf": {"name": "opennmt_tf", "model": {"num_heads": 2}},
    "torch_transformer": {
        **{"name": "torch_transformer", "source_embedding": "source.weight", "prefix": "body."},
        "model": {"num_heads": 2},
    },
}
"""What `load_pretrained` has to be told of families whose files do not name theirs."""

_STUDENTS = Path(__file__).parents[1] / "tests" / "interop" / "students"
_OURS = ("marian", "t5", "byt5", "m2m_100", "nllb", "mbart", "bart", "pegasus", "marian_npz")
_OTHERS = ("opennmt_py", "eole", "joey_nmt", "opennmt_tf")
FAMILIES = (
    *_OURS,
    *_OTHERS,
    "fairseq",
    "torch_transformer",
    "student",
    "bergamot",
    "tokenizer_json",
)
"""The folders that `write_ordinary` makes."""


def opened(folder: Path, family: str) -> Path:
    """What of a folder is loaded: of some families a file."""
    is_file = family in ("fairseq", "torch_transformer")
    return folder / family / "model.pt" if is_file else folder / family


def write_ordinary(family: str, folder: Path) -> None:
    """Makes the folder of a family with a small model that nobody has changed."""
    from keras_addnorm.interop import make_random_folder

    if family in (*_OURS, *_OTHERS):
        make_random_folder(family, folder, **_SMALL)
    elif family == "tokenizer_json":
        _write_tokenizer_json(make_random_folder("bart", folder, **_SMALL))
    else:
        folder.mkdir()
        {
            "fairseq": _write_fairseq,
            "torch_transformer": _write_torch,
            "student": _write_student,
            "bergamot": _write_bergamot,
        }[family](folder)


def _write_tokenizer_json(folder: Path) -> None:
    """The tokenizer of a BART folder in the one file that newer programs write."""
    vocabulary = json.loads((folder / "vocab.json").read_text())
    merges = (folder / "merges.txt").read_text().splitlines()[1:]
    special = [
        {"id": vocabulary[name], "content": name, "special": True, **_WHOLE_WORDS}
        for name in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", vocabulary["</s>"]],
            "cls": ["<s>", vocabulary["<s>"]],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()


_WHOLE_WORDS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def _write_fairseq(folder: Path) -> None:
    import argparse

    import torch

    width, inner, rows = 8, 13, 11
    state: dict[str, Any] = {"encoder.version": torch.ones(1)}
    for side, attentions in (
        ("encoder", ["self_attn"]),
        ("decoder", ["self_attn", "encoder_attn"]),
    ):
        layer = f"{side}.layers.0"
        state[f"{side}.embed_tokens.weight"] = torch.randn(rows, width)
        linear = {f"{layer}.fc1": (inner, width), f"{layer}.fc2": (width, inner)}
        for attention in attentions:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                linear[f"{layer}.{attention}.{part}"] = (width, width)
        for name, shape in linear.items():
            state |= {f"{name}.weight": torch.randn(shape), f"{name}.bias": torch.randn(shape[0])}
        for name in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
            for part in ("weight", "bias"):
                state[f"{layer}.{name}.{part}"] = torch.ones(width)
    for name in ("encoder.embed_tokens.weight", "decoder.output_projection.weight"):
        state[name] = state["decoder.embed_tokens.weight"]
    sides = {"embed_dim": width, "ffn_embed_dim": inner, "attention_heads": 2, "layers": 1}
    options = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sides.items()}
    options |= {"share_all_embeddings": True, "activation_fn": "relu", "max_source_positions": 40}
    checkpoint = {"model": state, "args": argparse.Namespace(**options)}
    torch.save(checkpoint, folder / "model.pt")


def _write_torch(folder: Path) -> None:
    import torch

    class HomeMade(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source = torch.nn.Embedding(11, 8)
            self.body = torch.nn.Transformer(8, 2, 1, 1, 13)

    torch.save(HomeMade().state_dict(), folder / "model.pt")


def _write_student(folder: Path) -> None:
    for name in ("ssru.npz", "vocab.spm", "lex.bin"):
        (folder / name).write_bytes((_STUDENTS / name).read_bytes())
    (folder / "decoder.yml").write_text(
        "models: [ssru.npz]\nvocabs: [vocab.spm, vocab.spm]\nshortlist: [lex.bin, false]\n"
        "beam-size: 2\nnormalize: 1.0\n"
    )


def _write_bergamot(folder: Path) -> None:
    """The student in a file as the engine has it, some of its matrices in eight bits."""
    from keras_addnorm.interop.families.marian_npz import SETTINGS
    from keras_addnorm.interop.tensor_files import read_npz
    from keras_addnorm.interop.tensor_files.marian_bin import EightBitMatrix, write_marian_bin

    _write_student(folder)
    tensors: dict[str, Any] = {}
    for name, stored in read_npz(folder / "ssru.npz").items():
        array = stored.read()
        is_matrix = array.ndim == 2 and min(array.shape) > 1 and "ff" in name
        tensors[name] = EightBitMatrix.of(array) if is_matrix else array
    tensors[SETTINGS] = tensors[SETTINGS].tobytes()
    (folder / "ssru.npz").unlink()
    write_marian_bin(folder / "model.bin", tensors)


def write(folder: Path, name: str) -> Path:
    """Makes one of the folders in a folder."""
    family, change = FOLDERS[name]
    write_ordinary(family, folder / family)
    change(folder / family)
    return folder / family
