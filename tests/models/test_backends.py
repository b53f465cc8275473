"""The same weights give the same numbers on TensorFlow, JAX and torch, and each of them trains.

Each backend has a process of its own, since Keras chooses its backend when it is imported. All
read one file of weights, written by the first.
"""

import pathlib

import numpy as np
import pytest
from new_process import run_on

pytestmark = pytest.mark.slow

BACKENDS = ("tensorflow", "jax", "torch")
HERE = pathlib.Path(__file__).parent

SCRIPT = """
import sys
import keras
import numpy as np
sys.path.insert(0, sys.argv[1])
from models_reference import SOURCE, TARGET, array, batch, randomize, config
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

assert "tensorflow" not in sys.modules or keras.backend.backend() == "tensorflow"
keras.utils.set_random_seed(3)
weights, results = sys.argv[2:]
found = {}
model = Seq2SeqTransformer(
    config(
        scheme="layer_scale",
        num_encoder_layers=1,
        num_decoder_layers=1,
        dropout=0.0,
        # One token table for both sides, and what is of each side.
        target_vocabulary_size=13,
        share_embeddings=True,
        positions="learned",
        embedding_norm="layer_norm",
        logits_bias=True,
        head_dim=5,
    )
)
if keras.backend.backend() == "tensorflow":
    randomize(model)
    model.save_weights(weights)
else:
    model.load_weights(weights)
found["logits"] = array(model(batch()))
for beams in (1, 3):
    found[f"ids {beams}"], found[f"scores {beams}"] = model.generate(
        SOURCE, num_beams=beams, length_penalty=0.6, max_length=5, jit_compile=False
    )

from keras_addnorm.decoding import decode
from keras_addnorm.decoding.engine import xla
xla._FIRST, xla._MARGIN = 2, -99
xla._LARGE_BATCH, xla._GROUPS = 2, 3
assert xla.stage_lengths(5, 6) == [2, 5]
assert len(SOURCE) == 3  # One after the other from 2 on.
for beams in (1, 3):
    sources = keras.ops.convert_to_tensor(SOURCE)
    ids, scores = decode(model, sources, num_beams=beams, length_penalty=0.6, max_length=5)
    np.testing.assert_array_equal(array(ids), found[f"ids {beams}"])
    np.testing.assert_allclose(array(scores), found[f"scores {beams}"], rtol=1e-5)

class Own:  # A decoder of one's own, no Keras model: what is read, summed, makes the logits.
    def __init__(self):
        table = np.random.default_rng(2).normal(size=(9, 9))
        self.parts = {"table": keras.Variable(table.astype("float32"), name="table")}
    def encode(self, source_ids):
        return keras.ops.cast(source_ids, "float32"), keras.ops.not_equal(source_ids, 0)
    def initial_cache(self, memory, batch_size, max_length):
        return {"read": keras.ops.zeros((batch_size, 9)), "memory": keras.ops.sum(memory, axis=1)}
    def decode_step(self, token_ids, cache, index, memory_padding_mask):
        read = cache["read"] + keras.ops.take(self.parts["table"], token_ids, axis=0)
        return read * keras.ops.sin(cache["memory"])[:, None], {**cache, "read": read}
from keras_addnorm.decoding import generate
own = Own()
for factor in (1.0, -1.0):  # What is compiled reads the weights of today.
    own.parts["table"].assign(own.parts["table"] * factor)
    for beams in (1, 3):
        found[f"ids own {beams} {factor}"], found[f"scores own {beams} {factor}"] = generate(
            own, SOURCE, num_beams=beams, max_length=5, jit_compile=False
        )

from keras_addnorm.decoding import Beam, Lexicon, Shortlist
rng = np.random.default_rng(6)
candidates, probabilities = rng.integers(3, 11, (13, 4)), rng.random((13, 4), "float32")
lexicon = Lexicon(candidates, probabilities, rng.random(13, "float32"))
found["ids listed"], found["scores listed"] = model.generate(
    SOURCE, num_beams=3, max_length=5, shortlist=Shortlist(lexicon, 8), jit_compile=False
)
from keras_addnorm.decoding.search_inputs import Cache
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.search_inputs import SearchInputs
from keras_addnorm.decoding.strategy import StepModel
even = lambda tokens, index, cache: (keras.ops.zeros((tokens.shape[0], 5)), cache)
inputs = SearchInputs(keras.ops.ones((2, 1), "int32"), 4, SpecialIds(0, 1, 4))
found["ties"] = array(Beam(3).search(StepModel(even, Cache(())), inputs).ids[:, 0])

from keras_addnorm.layers import MultiHeadSelfAttention, attention
def attend(choice, kind, dtype, mask):
    layer = MultiHeadSelfAttention(
        4, head_dim=6, attention=choice, positions=kind, use_bias=False, dtype=dtype
    )
    rng = np.random.default_rng(3)
    layer.build((2, 5, 7))
    for weight in layer.weights:
        weight.assign(array(weight) * 0 + rng.normal(scale=0.3, size=weight.shape))
    x = rng.normal(size=(2, 5, 7)).astype("float32")
    y = layer(keras.ops.cast(x, layer.compute_dtype), attention_mask=mask)
    return array(keras.ops.cast(y, "float32"))

CHOICES = [
    ({}, "none"), ({"num_key_value_heads": 2}, "rotary"), ({"num_key_value_heads": 1}, "none"),
    ({"query_key_norm": "rms_norm", "value_norm": "rms_norm", "window": 2}, "rotary"),
    ({"scale": "learned"}, "none"),
    ({"soft_cap": 0.7, "sink": "learned"}, "alibi"), ({"num_key_value_heads": 2}, "t5"),
    ({"window": 3}, {"name": "shaw", "max_distance": 2}),
]
mask = np.ones((2, 5, 5), bool)
mask[0, 2], mask[1] = False, False
fused = keras.backend.backend() != "tensorflow"
if keras.backend.backend() == "jax":
    import jax
    calls, original = [], jax.nn.dot_product_attention
    jax.nn.dot_product_attention = lambda *a, **k: (calls.append(1), original(*a, **k))[1]
for ways in (False, True) if fused else (False,):
    attention.has_fused_attention = lambda: ways
    for i, (choice, kind) in enumerate(CHOICES):
        found[f"attention {i} {ways}"] = attend(choice, kind, "float32", mask)
        found[f"attention {i} {ways} half"] = attend(choice, kind, "mixed_bfloat16", mask)
if keras.backend.backend() == "jax":
    assert len(calls) == 2 * 5, calls  # in one operation where nothing forbids it, and only there

# Strategies and rules on random numbers: each row reads those of its last token.
from keras_addnorm.decoding import DiverseBeam, NoRepeatNgram, Prefix, Sample
table = keras.ops.convert_to_tensor(np.random.default_rng(8).normal(size=(7, 7)).astype("float32"))
step = lambda tokens, index, cache: (keras.ops.take(table, tokens, axis=0), cache)
sources = keras.ops.convert_to_tensor(np.array([[3, 4, 2], [5, 2, 0]], "int32"))
for strategy in (
    Beam(3, 0.6, 2, early_stopping=False),
    DiverseBeam(4, 2, num_return=4),
    Sample(1.5, top_k=4, top_p=0.9, seed=2, num_return=5),
    Sample(num_return=5),
):
    name = type(strategy).__name__ + str(getattr(strategy, "top_k", ""))
    rules = (NoRepeatNgram(2),)
    prefix = Prefix(keras.ops.full((2, 1), 5, "int32"))
    inputs = SearchInputs(sources, 6, SpecialIds(0, 1, 2), rules, prefix)
    searched = strategy.search(StepModel(step, Cache(())), inputs)
    found[f"ids {name}"], found[f"scores {name}"] = array(searched.ids), array(searched.scores)

# JAX without compilation compiles each operation by itself, which takes longer.
compiles = keras.backend.backend() == "jax"
model.compile(
    keras.optimizers.Adam(3e-3), MaskedSparseCategoricalCrossentropy(0.1), jit_compile=compiles
)
labels = np.roll(TARGET, -1, axis=1)
history = model.fit(batch(), labels, epochs=12, verbose=0)
found["losses"] = np.array(history.history["loss"])
np.savez(results, **found)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each backend found: logits, ids, scores, and the loss before and after training."""
    folder = tmp_path_factory.mktemp("backends")
    found = {}
    for backend in BACKENDS:
        path = folder / f"{backend}.npz"
        run_on(backend, "-c", SCRIPT, HERE, folder / "m.weights.h5", path)
        found[backend] = dict(np.load(path))
    return found


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_logits_ids_and_scores_are_those_of_tensorflow(backend, results):
    expected = results["tensorflow"]
    assert results[backend].keys() >= expected.keys()
    for name, value in expected.items():
        if "ids" in name:
            np.testing.assert_array_equal(results[backend][name], value, err_msg=name)
        elif "logits" in name or "scores" in name:
            np.testing.assert_allclose(
                results[backend][name], value, rtol=1e-5, atol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_in_steps_and_in_one_operation_is_that_of_tensorflow(backend, results):
    for name, value in results[backend].items():
        if not name.startswith("attention"):
            continue
        expected = results["tensorflow"][name.replace("True", "False")]
        tolerance = 0.03 if name.endswith("half") else 1e-5
        np.testing.assert_allclose(
            value, expected, rtol=tolerance, atol=tolerance, err_msg=f"{backend} {name}"
        )
        assert not value[1].any() and not value[0, 2].any() and value[0, 0].any(), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_search_reads_the_variables_of_a_plain_object(backend, results):
    before, after = (results[backend][f"scores own 3 {factor}"] for factor in (1.0, -1.0))
    assert (before != after).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_go_to_the_smaller_id(backend, results):
    # Three words and the end are alike; a beam of three sees 2, 3 and the end, which is the best.
    assert results[backend]["ties"].tolist() == 2 * [[4, 0, 0, 0]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_lowers_the_loss_as_on_tensorflow(backend, results):
    losses = results[backend]["losses"]
    assert losses[-1] < losses[0] - 0.05
    # Adam divides by tiny gradients' sizes: what differs in the last digit grows a little.
    np.testing.assert_allclose(losses, results["tensorflow"]["losses"], rtol=1e-3)
    np.testing.assert_allclose(losses[0], results["tensorflow"]["losses"][0], rtol=1e-5)
