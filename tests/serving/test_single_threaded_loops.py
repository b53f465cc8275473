"""Searches without XLA run their steps in two ways, which find the same."""

import numpy as np
import pytest
import tensorflow as tf
from exported import MAX_LENGTH, make_model, make_tokenizers
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import kernels, op_def_registry

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import Beam, DiverseBeam, Greedy, Sample
from keras_addnorm.serving import GraphTokenizer, export_saved_model
from keras_addnorm.serving.optimize_graph import function_definitions, optimize_graph
from keras_addnorm.serving.single_threaded_loops import FEW_ROWS, SINGLE_THREADED

BATCH = FEW_ROWS + 1  # More than a few, for greedy search, too.
STRATEGIES = {
    "greedy": Greedy(),
    "beam": Beam(3, 0.6),
    "diverse": DiverseBeam(4, num_groups=2),
    "sample": Sample(top_k=1),
}
OF_A_BEAM = {"greedy": 1, "beam": 3, "diverse": 2, "sample": 1}


@pytest.fixture(scope="module")
def path(texts, tmp_path_factory):
    return export_saved_model(
        make_model(101, 89),
        make_tokenizers(texts),
        tmp_path_factory.mktemp("exported"),
        strategies=STRATEGIES,
        max_length=MAX_LENGTH,
        batch_buckets=[BATCH],
        length_buckets=[MAX_LENGTH],
    )


def functions_of(path):
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    definitions = function_definitions(saved_model.meta_graphs[0].graph_def)
    return {function.signature.name: function for function in definitions}


@pytest.fixture(scope="module")
def functions(path):
    return functions_of(path)


@pytest.fixture(scope="module")
def conditions(functions):
    """Each condition with what it is part of."""
    return [
        (node, function)
        for function in functions.values()
        for node in function.node_def
        if node.op in ("If", "StatelessIf")
        and node.attr["then_branch"].func.name.endswith("_of_few_rows")
    ]


def loops(functions, condition):
    return [
        functions[condition.attr[branch].func.name].node_def[0]
        for branch in ("then_branch", "else_branch")
    ]


def called(loop, part):
    return loop.attr[part].func.name


@pytest.mark.slow
def test_one_thread_runs_the_steps_of_few_rows(functions, conditions):
    assert len(conditions) == len(STRATEGIES)
    for condition, _ in conditions:
        few, many = loops(functions, condition)
        assert_one_thread_runs(few)
        assert many.attr["_lower_using_switch_merge"].b
        for part in ("body", "cond"):
            assert called(few, part) == called(many, part)  # What takes time to load stands once.
            assert not many.attr[part].func.attr


def assert_one_thread_runs(loop):
    assert not loop.attr["_lower_using_switch_merge"].b
    for part in ("body", "cond"):
        assert loop.attr[part].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"


@pytest.mark.slow
def test_rows_are_the_hypotheses_of_all_beams(conditions):
    most = []
    for condition, function in conditions:
        nodes = {node.name: node for node in function.node_def}
        comparison = nodes[condition.input[0].partition(":")[0]]
        assert comparison.op == "LessEqual"
        limit = nodes[comparison.input[1].partition(":")[0]]
        most.append(int(tf.make_ndarray(limit.attr["value"].tensor)))
    assert sorted(most) == sorted(FEW_ROWS // count for count in OF_A_BEAM.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_both_ways_find_the_same(path, new_texts, name):
    search = tf.saved_model.load(str(path)).signatures[name]
    texts = new_texts[:BATCH]
    together = search(texts=tf.constant(texts))
    alone = [search(texts=tf.constant([text])) for text in texts]
    translations = np.concatenate([found["translations"] for found in alone])
    np.testing.assert_array_equal(together["translations"], translations)
    assert len(set(translations.tolist())) > 3
    scores = np.concatenate([found["scores"] for found in alone])
    np.testing.assert_allclose(together["scores"], scores, atol=1e-4)


@pytest.mark.slow
def test_each_operation_of_a_step_has_a_kernel_on_gpus(functions, conditions):
    """One operation is on one device, with all that it runs."""
    if not kernels_of("MatMul", "GPU"):
        pytest.skip("This TensorFlow was built without GPUs.")
    for condition, _ in conditions:
        few, _ = loops(functions, condition)
        for part in ("body", "cond"):
            for node in functions[called(few, part)].node_def:
                assert any(fits(kernel, node) for kernel in kernels_of(node.op, "GPU")), node


def kernels_of(op, device):
    found = kernels.get_registered_kernels_for_op(op).kernel
    return [kernel for kernel in found if kernel.device_type in (device, "DEFAULT")]


def fits(kernel, node):
    defaults = {attr.name: attr.default_value for attr in op_def_registry.get(node.op).attr}
    return all(
        (node.attr[c.name] if c.name in node.attr else defaults[c.name]).type
        in c.allowed_values.list.type
        for c in kernel.constraint
    )


def cache_written_in_a_loop(step):
    """A loop over four positions that writes a cache of unknown batch, in rows of two columns."""

    def body(index, cache):
        rows = tf.reshape(cache, [-1, 8])
        new = tf.reshape(step(tf.cast(index, tf.float32) + cache[:, 0, :2]), [-1, 2])
        begin, end = tf.stack([0, 2 * index]), tf.stack([0, 2 * index + 2])
        rows = tf.raw_ops.TensorStridedSliceUpdate(
            input=rows, begin=begin, end=end, strides=[1, 1], value=new, begin_mask=1, end_mask=1
        )
        return index + 1, tf.reshape(rows, [-1, 1, 8])

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 1, 8], tf.float32)], autograph=False)
        def call(self, cache):
            return {"cache": tf.while_loop(lambda i, _: i < 4, body, (0, cache))[1]}

    return Module()


@tf.function(autograph=False)
def doubled(x):
    return 2.0 * x


@pytest.mark.parametrize("calls", [False, True])
def test_a_loop_that_calls_functions_stays_as_it_is(tmp_path, calls):
    module = cache_written_in_a_loop(doubled if calls else (lambda x: 2.0 * x))
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    optimize_graph(tmp_path)
    operations = {n.op for f in functions_of(tmp_path).values() for n in f.node_def}
    assert ("StatelessIf" in operations) != calls
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    for count in (1, FEW_ROWS // 2, FEW_ROWS // 2 + 1):
        cache = tf.random.normal([count, 1, 8])
        np.testing.assert_array_equal(found(cache)["cache"], module.call(cache)["cache"])


def loops_of(functions):
    return [
        n for f in functions.values() for n in f.node_def if n.op in ("While", "StatelessWhile")
    ]


def test_one_thread_merges_the_pieces_of_bpe(tmp_path, texts):
    class Module(tf.Module):
        def __init__(self):
            tokenizer = Tokenizer.train(texts, vocabulary_size=101, kind="bpe")
            self.tokenizer = GraphTokenizer(tokenizer)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def call(self, texts):
            return {"ids": self.tokenizer.tokenize(texts).to_tensor()}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    optimize_graph(tmp_path)
    (loop,) = [n for n in loops_of(functions_of(tmp_path)) if SINGLE_THREADED in n.name]
    assert_one_thread_runs(loop)
    assert loop.device == "/device:CPU:0"
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](tf.constant(texts))
    np.testing.assert_array_equal(found["ids"], module.call(tf.constant(texts))["ids"])


@pytest.mark.parametrize("name", ["while", SINGLE_THREADED])
def test_loops_of_other_names_stay_as_they_are(tmp_path, name):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
        def call(self, x):
            return {"y": tf.while_loop(lambda y: y < 100, lambda y: 2 * y, [x], name=name)[0]}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    optimize_graph(tmp_path)
    (loop,) = loops_of(functions_of(tmp_path))
    assert loop.attr["_lower_using_switch_merge"].b == (name != SINGLE_THREADED)
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert int(found(tf.constant(3))["y"]) == 192
