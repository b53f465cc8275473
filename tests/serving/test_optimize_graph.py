"""What whoever loads an export has to read, counted without a clock."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from keras_addnorm.serving.optimize_graph import function_definitions, optimize_graph

ATTENTION = {"Softmax", "LogSoftmax"}  # The latter where a loop without XLA reads a cache.


def functions(folder):
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return function_definitions(saved_model.meta_graphs[0].graph_def)


@pytest.fixture(scope="module")
def exported(toy):
    return functions(toy.path)


@pytest.fixture(scope="module")
def search_bodies(exported):
    """The bodies of the loops that search."""
    kinds = [(function.node_def, {n.op for n in function.node_def}) for function in exported]
    return [nodes for nodes, kind in kinds if "TopKV2" in kind and ATTENTION & kind]


def test_each_search_stands_twice_in_the_file(search_bodies):
    """One for the best and the n best; XLA needs one of its own."""
    assert len(search_bodies) == 2


def test_texts_and_layers_stand_once_in_the_file(exported):
    operations = Counter(node.op for function in exported for node in function.node_def)
    # Two vocabularies decode characters, to normalise texts and to split words.
    assert operations["UnicodeDecode"] == 2 * 2
    # The encoder, the decoder over sequences, the decoder's step twice: one for each attention.
    assert sum(operations[name] for name in ATTENTION) == 1 + 2 + 2 * 2


def test_no_constant_stands_twice_in_a_function(exported):
    for function in exported:
        constants = Counter(
            node.attr["value"].SerializeToString(deterministic=True)
            for node in function.node_def
            if node.op == "Const" and not node.input
        )
        assert set(constants.values()) <= {1}, function.signature.name


def test_every_function_is_called_without_being_optimised(exported):
    calls = [
        node
        for function in exported
        for node in function.node_def
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
    ]
    assert len(calls) > 5
    for node in calls:
        config = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
        assert config.graph_options.rewrite_options.disable_meta_optimizer, node.name


def test_no_table_is_transposed_in_a_loop(exported):
    bodies = [function for function in exported if "while_body" in function.signature.name]
    transposed = [
        node.name
        for function in bodies
        for node in function.node_def
        if node.op == "Transpose" and len(permutation(function, node)) == 2
    ]
    assert transposed == []


def test_no_search_turns_the_table_at_each_step(search_bodies):
    for body in search_bodies:
        assert not any(n.op == "MatMul" and n.attr["transpose_b"].b for n in body)


def permutation(function, transpose):
    name = transpose.input[1].partition(":")[0]
    (order,) = (node for node in function.node_def if node.name == name)
    return tf.make_ndarray(order.attr["value"].tensor)


def test_products_read_transposed_matrices_as_they_lie(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([3, 3], tf.float32)], autograph=False)
        def call(self, x):
            transposed = tf.transpose(x)
            several = tf.transpose(tf.stack([x, x + 1.0]), [0, 2, 1])
            folded = tf.transpose(x + 2.0)
            return {
                "alone": tf.matmul(x, folded),
                "right": tf.matmul(x, transposed),
                "twice": tf.matmul(x, transposed, transpose_b=True),
                "left": tf.matmul(transposed, x),
                "read": transposed + tf.matmul(x, transposed),
                "several": tf.matmul(several, several),
            }

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    optimize_graph(tmp_path)
    x = tf.reshape(tf.range(9.0), [3, 3])
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x)
    for name, expected in module.call(x).items():
        np.testing.assert_array_equal(found[name], expected, name)
    operations = [node.op for function in functions(tmp_path) for node in function.node_def]
    # What others read, and what has three axes.
    assert operations.count("Transpose") == 2


def test_layers_work_out_once_what_they_share(exported):
    """Sizes, masks and positions; nothing is handed on by operations of its own."""
    shared = {"Shape", "StridedSlice", "Pack", "Range", "Any", "Cast", "LessEqual", "ExpandDims"}
    for function in exported:
        seen = Counter(
            (node.op, *node.input, *sorted(map(str, node.attr.items())))
            for node in function.node_def
            if node.op in shared and not any(read.startswith("^") for read in node.input)
        )
        assert set(seen.values()) <= {1}, function.signature.name
        assert "IdentityN" not in {node.op for node in function.node_def}


def test_what_is_handed_on_or_reshaped_twice_is_read_at_its_source(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)], autograph=False)
        def call(self, x):
            first, second = tf.raw_ops.IdentityN(input=[x + 1.0, x * 2.0])
            flat = tf.reshape(tf.reshape(first, [-1, 2, 2]), [-1])
            with tf.control_dependencies([self.count.assign_add(1.0)]):
                after = tf.identity(second)  # Waits, so it stays.
            with tf.control_dependencies([tf.identity(flat, name="waited_for")]):
                count = self.count.read_value()
            sizes = [tf.shape(x)[0] * 3, tf.shape(x)[0] * 3]
            return {"flat": flat, "after": after, "count": count, "sizes": tf.stack(sizes)}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    optimize_graph(tmp_path)
    x = tf.reshape(tf.range(8.0), [2, 4])
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x)
    np.testing.assert_array_equal(found["flat"], np.arange(8.0) + 1.0)
    np.testing.assert_array_equal(found["after"], 2.0 * x)
    assert found["count"] == 1.0
    np.testing.assert_array_equal(found["sizes"], [6, 6])
    nodes = [node for function in functions(tmp_path) for node in function.node_def]
    operations = Counter(node.op for node in nodes)
    assert (operations["Reshape"], operations["Shape"], operations["IdentityN"]) == (1, 1, 0)
    assert "waited_for" in {node.name for node in nodes}


def test_an_optimized_model_does_the_same(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.read, self.unread = tf.Variable(3.0), tf.Variable(4.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
        def call(self, x):
            tf.identity(self.unread)  # Read by nobody.
            self.unread.assign_add(1.0)  # Has an effect.
            total = tf.while_loop(
                lambda i, _: i < tf.constant(3), lambda i, x: (i + 1, x * 2.0 + 2.0), (0, x)
            )[1]
            return {"sum": total + self.read + 2.0, "two": tf.constant(2.0)}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    before = {function.signature.name: len(function.node_def) for function in functions(tmp_path)}
    optimize_graph(tmp_path)
    after = {function.signature.name: len(function.node_def) for function in functions(tmp_path)}
    assert before.keys() == after.keys()
    assert sum(after.values()) < sum(before.values())
    loaded = tf.saved_model.load(str(tmp_path))
    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(
        loaded.signatures["serving_default"](x)["sum"], module.call(x)["sum"]
    )
    assert loaded.unread == 5.0
