"""Untrained models as OpenNMT-py, Eole, Joey NMT and OpenNMT-tf write them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.basics.optional import require_extra
from keras_addnorm.interop.families.eole import Eole
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.joey_nmt import JoeyNMT
from keras_addnorm.interop.families.opennmt_py import OpenNMTPy
from keras_addnorm.interop.families.opennmt_tf import OpenNMTTF
from keras_addnorm.interop.families.text_files import read_tokens, write_json
from keras_addnorm.interop.tensor_files import write_safetensors
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

Sizes = Mapping[str, Any]
MakeModel = Callable[[Seq2SeqConfig], Seq2SeqTransformer]

VOCABULARY = "vocab.txt"
"""The list of tokens, one a line, that a folder of these has."""


def write_opennmt_py(folder: Path, sizes: Sizes, make_model: MakeModel) -> None:
    """Write `model.pt`, as OpenNMT-py saves a model by default."""
    tokens = read_tokens(folder / VOCABULARY)
    options = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "position_encoding": True,
        "enc_layers": sizes["num_encoder_layers"],
        "dec_layers": sizes["num_decoder_layers"],
        "hidden_size": sizes["hidden_dim"],
        "word_vec_size": sizes["hidden_dim"],
        "transformer_ff": sizes["intermediate_dim"],
        "heads": sizes["num_heads"],
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }
    vocabularies = {"src": tokens, "tgt": tokens, "decoder_start_token": "<s>"}
    family = OpenNMTPy()
    config = family.config(Checkpoint(folder, {**options, "vocab": vocabularies}, {}))
    tensors = _of_torch(_numbers(family, config, make_model))
    table = "embeddings.make_embedding.emb_luts.0.weight"
    tensors[f"decoder.{table}"] = tensors[f"encoder.{table}"]
    bias = tensors.pop("generator.bias")
    generator = {"weight": tensors[f"encoder.{table}"], "bias": bias}
    _save_torch(
        folder / "model.pt",
        {
            "model": tensors,
            "generator": generator,
            "vocab": vocabularies,
            "opt": argparse.Namespace(**options),
        },
    )


def write_eole(folder: Path, sizes: Sizes, make_model: MakeModel) -> None:
    """Write Eole's three files."""
    tokens = read_tokens(folder / VOCABULARY)
    model = {
        "architecture": "transformer",
        "hidden_size": sizes["hidden_dim"],
        "heads": sizes["num_heads"],
        "transformer_ff": sizes["intermediate_dim"],
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "generator_bias": False,
        "embeddings": {
            "position_encoding_type": "SinusoidalInterleaved",
            "word_vec_size": sizes["hidden_dim"],
        },
        "encoder": {"encoder_type": "transformer", "layers": sizes["num_encoder_layers"]},
        "decoder": {"decoder_type": "transformer", "layers": sizes["num_decoder_layers"]},
    }
    vocabularies = {"src": tokens, "tgt": tokens, "decoder_start_token": "<s>"}
    family = Eole()
    config = family.config(Checkpoint(folder, {"model": model, "vocab": vocabularies}, {}))
    numbers = _numbers(family, config, make_model)
    write_safetensors(
        folder / "model.00.safetensors",
        {name: each.shape for name, each in numbers.items()},
        lambda name: numbers[name],
    )
    write_json(folder / "config.json", {"model": model})
    write_json(folder / "vocab.json", vocabularies)


def write_joey_nmt(folder: Path, sizes: Sizes, make_model: MakeModel) -> None:
    """Write `best.ckpt`, `config.yaml` and the lists of tokens of Joey NMT."""
    (yaml,) = require_extra("pretrained", "A model of Joey NMT", "yaml")
    tokens = read_tokens(folder / VOCABULARY)
    side = {
        "type": "transformer",
        "num_heads": sizes["num_heads"],
        "hidden_size": sizes["hidden_dim"],
        "ff_size": sizes["intermediate_dim"],
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": sizes["hidden_dim"], "scale": True},
    }
    text = {
        "level": "bpe",
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": "vocab.spm"},
    }
    settings = {
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**side, "num_layers": sizes["num_encoder_layers"]},
            "decoder": {**side, "num_layers": sizes["num_decoder_layers"]},
        },
        "data": {"src": text, "trg": text},
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "max_output_length": 64},
    }
    family = JoeyNMT()
    table = np.broadcast_to(np.float32(0), (len(tokens), sizes["hidden_dim"]))
    tables: Any = dict.fromkeys(("src_embed.lut.weight", "trg_embed.lut.weight"), table)
    config = family.config(Checkpoint(folder, settings, tables))
    tensors = _of_torch(_numbers(family, config, make_model))
    tensors["src_embed.lut.weight"] = tensors["trg_embed.lut.weight"]
    tensors["decoder.output_layer.weight"] = tensors["trg_embed.lut.weight"]
    _save_torch(folder / "best.ckpt", {"model_state": tensors})
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    text_of_list = (folder / VOCABULARY).read_bytes()
    for name in ("src_vocab.txt", "trg_vocab.txt"):
        (folder / name).write_bytes(text_of_list)


def write_opennmt_tf(folder: Path, sizes: Sizes, make_model: MakeModel) -> None:
    """Write a checkpoint of TensorFlow with the variables of OpenNMT-tf."""
    import tensorflow as tf

    size = len(read_tokens(folder / VOCABULARY)) + 1  # what is in no list has the id behind it
    family = OpenNMTTF({"num_heads": sizes["num_heads"]})
    config = Seq2SeqConfig(
        size,
        size,
        **{name: sizes[name] for name in ("num_encoder_layers", "num_decoder_layers")},
        **{name: sizes[name] for name in ("hidden_dim", "intermediate_dim", "num_heads")},
        scheme="pre_ln",
        share_embeddings=True,
        logits_bias=True,
    )
    root = tf.Module()
    for name, numbers in _numbers(family, config, make_model).items():
        *places, last = name.split("/")
        node = root
        for place in places:
            if not hasattr(node, place):
                setattr(node, place, tf.Module())
            node = getattr(node, place)
        setattr(node, last, tf.Variable(numbers))
    tf.train.Checkpoint(model=root).save(str(folder / "ckpt"))


def _numbers(family: Family, config: Seq2SeqConfig, make_model: MakeModel) -> dict[str, np.ndarray]:
    model, table = make_model(config), family.weights(config)
    return {name: table.read(model, name) for name in table.shapes(model)}


def _of_torch(numbers: Mapping[str, np.ndarray]) -> dict[str, Any]:
    (torch,) = require_extra("test", "A file of PyTorch", "torch")
    return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in numbers.items()}


def _save_torch(path: Path, tree: Mapping[str, Any]) -> None:
    (torch,) = require_extra("test", "A file of PyTorch", "torch")
    torch.save(tree, path)
