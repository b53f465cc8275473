"""The table that is transposed where a file is loaded."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from exported import make_model

from keras_addnorm.decoding import Greedy, Lexicon, Shortlist
from keras_addnorm.serving import export_saved_model
from keras_addnorm.serving.stored_weights import StoredWeights

V, D = 89, 16


class Reading(tf.Module):
    def __init__(self, storage, dtype):
        super().__init__()
        model = make_model(101, V)
        weights = StoredWeights(model, storage)
        embeddings = model.decoder_embedding.embeddings
        self.weights = weights.stored
        self.table = weights.transposed(embeddings, dtype)
        with weights.in_use():
            self.expected = np.asarray(tf.transpose(embeddings.value), dtype)

    @tf.function(input_signature=[], autograph=False)
    def plain(self):
        return self.table.value()

    @tf.function(input_signature=[], autograph=False, jit_compile=True)
    def under_xla(self):
        return self.table.value()


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_it_is_made_of_what_is_stored_and_not_stored_itself(storage, dtype, tmp_path):
    module = Reading(storage, dtype)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for read in (module.plain, loaded.plain, loaded.under_xla):
        np.testing.assert_array_equal(read(), module.expected)
        assert read().dtype == dtype and read().shape == (D, V)
    shapes = [shape for _, shape in tf.train.list_variables(str(tmp_path / "variables/variables"))]
    assert [V, D] in shapes and [D, V] not in shapes


def test_each_file_has_its_own(tmp_path):
    """Several versions of a model are in one process while one takes the other's place."""
    loaded, expected = [], []
    for name in ("one", "other"):
        module = Reading("float32", "float32")
        table = module.table
        stored = table._stored.variable
        stored.assign(stored + len(loaded))
        expected.append(tf.transpose(stored).numpy())
        tf.saved_model.save(module, str(tmp_path / name))
        loaded.append(tf.saved_model.load(str(tmp_path / name)))
    again = tf.saved_model.load(str(tmp_path / "one"))
    for module, table in zip(loaded, expected, strict=True):
        np.testing.assert_array_equal(module.plain(), table)
    del again
    gc.collect()
    np.testing.assert_array_equal(loaded[0].plain(), expected[0])


def test_a_session_makes_it_too(tmp_path):
    """As TensorFlow Serving does: variables first, then what is made of them."""
    module = Reading("int8", "float32")
    tf.saved_model.save(module, str(tmp_path), signatures={"table": signature_of(module)})
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path))
        (output,) = meta.signature_def["table"].outputs.values()
        np.testing.assert_array_equal(session.run(output.name), module.expected)


def signature_of(module):
    @tf.function(input_signature=[], autograph=False)
    def read():
        return {"table": module.table.value()}

    return read.get_concrete_function()


SEARCHES = ("translate", "translate_xla")


def test_searches_read_the_one_of_the_file(toy):
    """Both loops: no operation in front of them turns the table."""
    loaded = tf.saved_model.load(str(toy.path))
    embeddings = toy.model.decoder_embedding.embeddings.value
    handle = loaded.transposed_table.resource_handle
    table = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    np.testing.assert_array_equal(table, tf.transpose(embeddings))
    before = [loaded.signatures[name](texts=tf.constant(["ba"])) for name in SEARCHES]
    # Who changes it changes what is found.
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.reverse(table, [1]))
    after = [loaded.signatures[name](texts=tf.constant(["ba"])) for name in SEARCHES]
    for old, new in zip(before, after, strict=True):
        assert abs(old["scores"] - new["scores"]).numpy().max() > 1e-3


@pytest.mark.parametrize("settings", [{"tie_embeddings": False}, {}])
def test_who_does_not_read_it_has_none(toy, tmp_path, settings):
    """A projection of its own, and searches among a shortlist."""
    model = make_model(101, V, **settings)
    rng = np.random.default_rng(1)
    candidates = rng.integers(3, V, (101, 4), "int32")
    chances = rng.random((101, 4), "float32")
    lexicon = Lexicon(candidates, chances, rng.random(V, "float32"))
    shortlist = None if settings else Shortlist(lexicon, 20)
    path = export_saved_model(
        model, toy.tokenizers, tmp_path, strategies={"translate": Greedy()}, shortlist=shortlist
    )
    loaded = tf.saved_model.load(str(path))
    assert hasattr(loaded, "tables") and not hasattr(loaded, "transposed_table")
