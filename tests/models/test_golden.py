"""The paths and shapes in a `.weights.h5` file are a format: old files have to load for ever.

The golden files in `tests/golden` hold every path in a file and its shape: of a decoder of two
layers with each scheme, of an encoder with each norm, and of 2 + 2-layer models of each kind that
has other parts. A change here means that users' weights no longer load. If that is truly meant (say
it in the changelog), write the files anew with

    python tests/models/test_golden.py [name ...]

from the project's root, and read the difference before you commit it. Nothing else writes them.
"""

import json
import pathlib
import sys
import tempfile

import h5py
import keras
import numpy as np
import pytest
from models_reference import SOURCE, TARGET, V_TARGET, config

from keras_addnorm import norms, schemes
from keras_addnorm.layers import TransformerDecoder, TransformerEncoder
from keras_addnorm.models import Seq2SeqTransformer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
# By default, a decoder of so few layers has no Post-LN at all.
FIELDS = {"mix_ln": {"name": "mix_ln", "share": 0.5}}
DECODERS = {
    name: {"scheme": FIELDS.get(name, name)}
    for name in schemes.names()
    if schemes.serialize(schemes.get(name))["name"] == name
}
DECODERS["gpas_of_deep_norm"] = {"scheme": {"name": "gpas", "of": "deep_norm"}}
DECODERS["hybrid_norm_starred"] = {
    "scheme": {"name": "hybrid_norm", "first_layer_pre_ln": True},
    "norm": "rms_norm",
}
DECODERS["ssru"] = {"self_attention": "ssru"}
# With the norm that Sub-LN has inside.
DECODERS["average_attention"] = {"self_attention": "average_attention", "scheme": "sub_ln"}
# Sandwich-LN, which has norms at most places, with the norms that are not the usual one.
ENCODERS = {
    f"norm_{name}": {"scheme": "sandwich_ln", "norm": {"encoder": name, "decoder": "layer_norm"}}
    for name in norms.names()[1:]
}
MODELS = {
    "untied_learned_swiglu_rms": {
        "scheme": "pre_ln",
        "norm": "rms_norm",
        "activation": "swiglu",
        "positions": "learned",
        "tie_embeddings": False,
    },
    "shaw_multi_query_learned_scale_and_sink": {
        "positions": "shaw",
        "attention": {"num_key_value_heads": 1, "scale": "learned", "sink": "learned"},
    },
    "t5_query_key_norm": {
        "positions": {"name": "t5", "num_buckets": 8, "max_distance": 11},
        "attention": {"query_key_norm": "layer_norm"},
    },
    "shared": {"share_embeddings": True, "source_vocabulary_size": V_TARGET},
    "shared_table_with_sides": {
        "share_embeddings": True,
        "source_vocabulary_size": V_TARGET,
        "positions": "learned",
        "embedding_norm": "layer_norm",
        "logits_bias": True,
    },
    "final_norm_head_dim_no_bias": {
        "scheme": {"name": "post_ln", "final_norm": True},
        "head_dim": 5,
        "use_bias": False,
    },
}
NAMES = (*DECODERS, *ENCODERS, *MODELS)


def made(name):
    """Return a Keras model: a stack alone, or a whole model."""
    choices = config(**(DECODERS | ENCODERS | MODELS)[name])
    if name in MODELS:
        model = Seq2SeqTransformer(choices)
        model({"source": np.minimum(SOURCE, V_TARGET - 1), "target": TARGET})
        return model
    stack = TransformerDecoder if name in DECODERS else TransformerEncoder
    inputs = [keras.Input((None, choices.hidden_dim)) for _ in range(1 + (name in DECODERS))]
    return keras.Model(inputs, stack(2, **vars(choices.block), num_other_layers=2)(*inputs))


def shapes_in_file(name, directory):
    """Return `{path: shape}` of the weight file of a model."""
    path = pathlib.Path(directory) / "m.weights.h5"
    made(name).save_weights(path)
    shapes = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            shapes[name] = list(item.shape)

    with h5py.File(path) as file:
        file.visititems(visit)
    return dict(sorted(shapes.items()))


@pytest.mark.fast_cases(18)
@pytest.mark.parametrize("name", NAMES)
def test_weight_paths_are_those_of_the_golden_file(name, tmp_path):
    assert shapes_in_file(name, tmp_path) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_every_golden_file_is_tested():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(NAMES)


if __name__ == "__main__":
    for golden_name in sys.argv[1:] or NAMES:
        with tempfile.TemporaryDirectory() as scratch:
            found = shapes_in_file(golden_name, scratch)
        lines = ",\n".join(f"  {json.dumps(path)}: {shape}" for path, shape in found.items())
        (GOLDEN / f"{golden_name}.json").write_text(f"{{\n{lines}\n}}\n")
        sys.stdout.write(f"wrote {golden_name}.json\n")
