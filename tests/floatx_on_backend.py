"""Searches, scores, fits and saves under another `floatx`, and prints what came out.

Run as a program by `test_floatx.py`: Keras chooses its backend when it is imported.
"""

import json
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from filled_models import LABELS, SOURCE, array, batch, tiny_model

from keras_addnorm.decoding import (
    DiverseBeam,
    ForbiddenTokens,
    Lexicon,
    MaxLength,
    NoRepeatNgram,
    Sample,
    Shortlist,
)
from keras_addnorm.layers import AttentionConfig, positions
from keras_addnorm.training import (
    InverseSquareRootSchedule,
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    Perplexity,
    RDropCrossentropy,
    ScheduleOfUpdates,
)

SMALL = {"scheme": "pre_ln", "num_encoder_layers": 1}
OPTIONS = {"max_length": 5, "jit_compile": False}
RULES = [NoRepeatNgram(2), MaxLength(3, 0.7), ForbiddenTokens((5,))]
STRATEGIES = {
    "diverse beam": DiverseBeam(4, 2, num_return=4),
    "sample": Sample(1.5, top_k=4, top_p=0.9, seed=2, num_return=3),
}
LEXICON = Lexicon.estimate(
    [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])],
    source_vocabulary_size=13,
    target_vocabulary_size=11,
)
EVERYTHING_RANDOM = {
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "drop_path": 0.2,
    "positions": "t5",
    "attention": AttentionConfig(head_diversity={"subspaces": 0.1, "outputs": 0.2}),
}


def searched(model):
    """Token ids and scores, which have to be int32 and float32."""
    found = [
        model.generate(
            SOURCE, strategy, constraints=RULES, target_prefix=[[4], [6], [0]], **OPTIONS
        )
        for strategy in STRATEGIES.values()
    ]
    found.append(
        model.generate(SOURCE, num_beams=2, shortlist=Shortlist(LEXICON, size=9), **OPTIONS)
    )
    for ids, scores in found:
        assert (ids.dtype, scores.dtype) == ("int32", "float32")
    return [[ids.tolist(), scores.tolist()] for ids, scores in found]


def scored(model):
    """The scores of a greedy search, and those of its outputs."""
    ids, scores = model.generate(SOURCE, **OPTIONS)
    again = model.score(SOURCE, ids, jit_compile=False).log_probabilities
    return [scores.tolist(), again.tolist()]


def by_positions(dtype):
    """Logits with each kind of positions."""
    found = {}
    for kind in positions.names():
        model = tiny_model(dtype=dtype, positions=kind, hidden_dim=8, **SMALL)
        found[kind] = array(keras.ops.cast(model(batch()), "float32")).tolist()
    return found


def fitted(dtype):
    """A model and its history of a training in which all is drawn that is drawn anywhere."""
    model = tiny_model(dtype=dtype, **SMALL, **EVERYTHING_RANDOM)
    for number, state in enumerate(model.non_trainable_variables):
        if state.path.endswith("seed_generator_state"):
            state.assign([number, 0])
    rate = ScheduleOfUpdates(InverseSquareRootSchedule(0.25, 2), 2)
    loss, metrics = MaskedSparseCategoricalCrossentropy(0.1), [MaskedAccuracy(), Perplexity()]
    model.compile(keras.optimizers.SGD(rate), loss, metrics=metrics, jit_compile=False)
    history = model.fit(batch(), LABELS, epochs=3, verbose=0, shuffle=False).history
    evaluated = model.evaluate(batch(), LABELS, verbose=0, return_dict=True)
    model.predict(batch(), verbose=0)
    # Under bfloat16 they are tensors on TensorFlow.
    return model, keras.tree.map_structure(float, {"history": history, "evaluated": evaluated})


def saved(model):
    """Whether a model that was saved and loaded computes the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        other = keras.models.load_model(path, compile=False)
    return bool((array(model(batch())) == array(other(batch()))).all())


def run(floatx, dtype):
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)
    model, training = fitted(dtype)
    found = {"training": training, "scored": scored(model)}
    if dtype is None:
        return found | {"saved": saved(model)}
    logits = np.random.default_rng(3).normal(size=(4, 5, 11)).astype("float32")
    r_drop = RDropCrossentropy(3.0)(LABELS[[0, 0, 1, 1]], logits)
    searches = searched(tiny_model(dtype=dtype, positions="t5", **SMALL))
    found |= {"R-Drop": float(r_drop), "searches": searches}
    return found | {"positions": by_positions(dtype)}


if __name__ == "__main__":
    floatx = sys.argv[1]
    results = {"float32": run("float32", "float32"), "set": run(floatx, "float32")}
    print(json.dumps(results | {"own": run(floatx, None)}))
