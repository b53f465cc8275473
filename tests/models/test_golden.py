"""The paths and shapes in a `.weights.h5` file are a format: old files have to load for ever.

The golden files in `tests/golden` hold, for a 2 + 2-layer model of each scheme and norm, every path
in the file and its shape. A change here means that users' weights no longer load. If that is truly
meant (say it in the changelog), write the files anew with

    python tests/models/test_golden.py [name ...]

from the project's root, and read the difference before you commit it. Nothing else writes them.
"""

import json
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import pytest
from models_reference import SCHEMES, SOURCE, TARGET, V_TARGET, config

from keras_addnorm import norms, schemes
from keras_addnorm.models import Seq2SeqTransformer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
MODELS = {scheme: {"scheme": scheme} for scheme in SCHEMES}
MODELS["gpas_of_deep_norm"] = {"scheme": {"name": "gpas", "of": "deep_norm"}}
MODELS["hybrid_norm_starred"] = {
    "scheme": {"name": "hybrid_norm", "first_layer_pre_ln": True},
    "norm": "rms_norm",
}
# By default, a model of so few layers has no Post-LN at all.
MODELS["mix_ln"] = {"scheme": {"name": "mix_ln", "share": 0.5}}
# Sandwich-LN, which has norms at most places, with the norms that are not the usual one.
for name in norms.names()[1:]:
    norm = {"encoder": name, "decoder": "layer_norm"} if name == "batch_norm" else name
    MODELS[f"norm_{name}"] = {"scheme": "sandwich_ln", "norm": norm}
MODELS["untied_learned_swiglu_rms"] = {
    "scheme": "pre_ln",
    "norm": "rms_norm",
    "activation": "swiglu",
    "positions": "learned",
    "tie_embeddings": False,
}
MODELS["shaw_multi_query_learned_scale_and_sink"] = {
    "positions": "shaw",
    "attention": {"num_key_value_heads": 1, "scale": "learned", "sink": "learned"},
}
MODELS["t5_query_key_norm"] = {
    "positions": {"name": "t5", "num_buckets": 8, "max_distance": 11},
    "attention": {"query_key_norm": "layer_norm"},
}
STREAM_SCHEMES = [
    name for name in schemes.names() if isinstance(schemes.get(name), schemes.StreamScheme)
]
MODELS |= {name: {"scheme": name} for name in STREAM_SCHEMES}
MODELS["shared"] = {"share_embeddings": True, "source_vocabulary_size": V_TARGET}
MODELS["shared_table_with_sides"] = {
    **MODELS["shared"],
    "positions": "learned",
    "embedding_norm": "layer_norm",
    "logits_bias": True,
}
MODELS["final_norm_head_dim_no_bias"] = {
    "scheme": {"name": "post_ln", "final_norm": True},
    "head_dim": 5,
    "use_bias": False,
}


def shapes_in_file(name, directory):
    """Return `{path: shape}` of the weight file of a model."""
    model = Seq2SeqTransformer(config(**MODELS[name]))
    model({"source": np.minimum(SOURCE, V_TARGET - 1), "target": TARGET})
    path = pathlib.Path(directory) / "m.weights.h5"
    model.save_weights(path)
    shapes = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            shapes[name] = list(item.shape)

    with h5py.File(path) as file:
        file.visititems(visit)
    return dict(sorted(shapes.items()))


@pytest.mark.fast_cases(10)
@pytest.mark.parametrize("name", MODELS)
def test_weight_paths_are_those_of_the_golden_file(name, tmp_path):
    assert shapes_in_file(name, tmp_path) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_every_golden_file_is_tested():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(MODELS)


if __name__ == "__main__":
    for golden_name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            text = json.dumps(shapes_in_file(golden_name, scratch), indent=2) + "\n"
        (GOLDEN / f"{golden_name}.json").write_text(text)
        sys.stdout.write(f"wrote {golden_name}.json\n")
