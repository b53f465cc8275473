"""Models that Bergamot's engine can have, where the engine is, and what it computes of them."""

import os
from pathlib import Path

import marian_formula
import pytest

from keras_addnorm.interop import load_pretrained
from keras_addnorm.interop.tensor_files import StoredEightBitMatrix, read_marian_bin
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

PACKAGE = Path("@browsermt", "bergamot-translator")


def engine_folder():
    """The npm package, in the `node_modules` here or in those that `NODE_PATH` names."""
    places = [Path("node_modules"), *map(Path, os.environ.get("NODE_PATH", "").split(os.pathsep))]
    found = [place / PACKAGE for place in places if (place / PACKAGE / "worker").is_dir()]
    if not found:
        pytest.skip("@browsermt/bergamot-translator 0.4.9 is not in NODE_PATH")
    return found[0]


def our_model(tokenizer, **fields):
    """A model of two layers each, 64 wide, with SSRU unless `fields` say otherwise."""
    size = tokenizer.vocabulary_size
    config = Seq2SeqConfig(
        size,
        size,
        hidden_dim=64,
        intermediate_dim=128,
        num_heads=4,
        max_length=96,
        **{
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "scheme": "post_ln",
            "self_attention": "ssru",
            "dropout": 0.0,
            "activation": "relu",
            "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
            "share_embeddings": True,
            "logits_bias": True,
            "start_embedding": "zeros",
            **fields,
        },
    )
    return Seq2SeqTransformer(config)


def simulated(folder, lines, longest):
    """The outputs of products of whole numbers, as the engine has them; heads are four."""
    stored = read_marian_bin(folder / "model.bin")
    numbers = {name: each.floats() for name, each in stored.items() if "yml" not in name}
    matrices = {
        name: each.matrix()
        for name, each in stored.items()
        if isinstance(each, StoredEightBitMatrix)
    }
    integers = {name: (each.integers, each.multiplier) for name, each in matrices.items()}
    formula = marian_formula.Formula(numbers, 4, integers, dtype="float32")
    tokenizer = load_pretrained(folder).tokenizers.source
    sources = [tokenizer.encode(line) for line in lines]
    limits = [min(2 * len(source) + 2, longest) for source in sources]
    found = []
    for start in range(0, len(lines), 200):
        part = slice(start, start + 200)
        found += formula.greedy(sources[part], limits[part])
    return [tokenizer.decode(tokens).strip() for tokens in found]
