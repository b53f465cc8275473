"""Graph optimisation of a saved model: dead nodes, common subexpressions, transposes.

Tracing writes a constant wherever a number is needed: the same axis, size or zero, hundreds of
times in a function. Each layer computes the batch size and the mask again; functions read weights
that they do not use, pass tensors through identities, and transpose matrices that a product could
read as stored. Loading takes time for each of these operations. The first call of a function would
also wait for Grappler, TensorFlow's graph optimiser, which makes no search faster: it is disabled.
Loops over steps get a second implementation (`single_threaded_loops`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from keras_addnorm.serving.single_threaded_loops import (
    run_few_rows_in_one_thread,
    run_named_loops_in_one_thread,
)

# Operations without state or side effects. They compute sizes, masks and positions, which several
# layers compute alike.
_PURE = {
    "AddV2",
    "Any",
    "BroadcastTo",
    "Cast",
    "Const",
    "Equal",
    "ExpandDims",
    "FloorDiv",
    "LessEqual",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "Mul",
    "Pack",
    "Range",
    "Reshape",
    "Shape",
    "StridedSlice",
    "Sub",
    "Transpose",
}
_IDENTITIES = {"Identity", "IdentityN"}
# Operations that can be removed if their outputs have no reader.
_REMOVABLE = _PURE | _IDENTITIES | {"ReadVariableOp"}
# The field of a graph that holds its functions.
_FUNCTIONS = "library"
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def optimize_graph(folder: Path) -> None:
    """Rewrites the graph of a saved model, in a folder, that has not been loaded yet."""
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        definitions = function_definitions(meta_graph.graph_def)
        run_few_rows_in_one_thread(definitions)
        run_named_loops_in_one_thread(definitions)
        for function in definitions:
            _remove_identities(function)
            _fold_transposes(function)
            _merge_common_subexpressions(function)
            _remove_dead_nodes(function)
            _disable_grappler_in_calls(function.node_def)
        _disable_grappler_in_calls(meta_graph.graph_def.node)
    file.write_bytes(saved_model.SerializeToString(deterministic=True))
    # The checksum of the file before the changes; loading needs none.
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def function_definitions(
    graph: graph_pb2.GraphDef,
) -> MutableSequence[function_pb2.FunctionDef]:
    """Returns the functions of a graph, which can be changed in place."""
    functions: MutableSequence[function_pb2.FunctionDef] = getattr(graph, _FUNCTIONS).function
    return functions


def _fold_transposes(function: function_pb2.FunctionDef) -> None:
    """Folds transposes into the products that read them (`transpose_b`).

    A loop over tokens would otherwise transpose the whole table of the vocabulary at each step.
    """
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        if node.op == "MatMul":
            transpose = nodes.get(_name(node.input[1]))
            if (
                transpose is not None
                and transpose.op == "Transpose"
                and _is_matrix(transpose, nodes)
            ):
                node.input[1] = transpose.input[0]
                node.attr["transpose_b"].b ^= True


def _is_matrix(transpose: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef]) -> bool:
    order = nodes.get(_name(transpose.input[1]))
    if order is None or order.op != "Const":
        return False
    return tf.make_ndarray(order.attr["value"].tensor).tolist() == [1, 0]


def _remove_identities(function: function_pb2.FunctionDef) -> None:
    """Removes identities, and all but the last of several consecutive reshapes."""
    waited_for = {
        read[1:] for node in function.node_def for read in node.input if read.startswith("^")
    } | set(function.control_ret.values())
    source: dict[str, str] = {}
    shaped: dict[str, str] = {}
    for node in function.node_def:
        for index, read in enumerate(node.input):
            node.input[index] = source.get(read, read)
        if node.op == "Reshape":
            node.input[0] = shaped.get(node.input[0], node.input[0])
            shaped[f"{node.name}:output:0"] = node.input[0]
        waits = any(read.startswith("^") for read in node.input)
        if node.op in _IDENTITIES and not waits and node.name not in waited_for:
            for index, read in enumerate(node.input):
                source[f"{node.name}:output:{index}"] = read
    for result, read in function.ret.items():
        function.ret[result] = source.get(read, read)


def _merge_common_subexpressions(function: function_pb2.FunctionDef) -> None:
    """Replaces equal operations by the first of them (common-subexpression elimination)."""
    first: dict[bytes, str] = {}
    instead: dict[str, str] = {}

    def renamed(read: str) -> str:
        name, mark, output = read.partition(":")
        return instead.get(name, name) + mark + output

    # Nodes come after their inputs, so equal nodes have equal inputs once these are renamed.
    for node in function.node_def:
        for index, read in enumerate(node.input):
            node.input[index] = renamed(read)
        if node.op in _PURE and not any(read.startswith("^") for read in node.input):
            instead[node.name] = first.setdefault(_content(node), node.name)
    for result, read in function.ret.items():
        function.ret[result] = renamed(read)


def _disable_grappler_in_calls(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Disables Grappler for the functions that nodes call.

    A session without the optimiser disables it for its own graph alone: each call of a function has
    its own settings.
    """
    for node in nodes:
        if node.op in _CALLS:
            config = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            node.attr["config_proto"].s = config.SerializeToString(deterministic=True)


def _content(node: node_def_pb2.NodeDef) -> bytes:
    """Returns all of a node but its name."""
    content = node_def_pb2.NodeDef()
    content.CopyFrom(node)
    content.ClearField("name")
    content.ClearField("experimental_debug_info")
    return content.SerializeToString(deterministic=True)


def _remove_dead_nodes(function: function_pb2.FunctionDef) -> None:
    """Removes dead nodes, transitively."""
    readers = Counter(_read_names(function))
    nodes = list(function.node_def)
    kept = []
    # A function lists its nodes in the order of their creation: readers come after their inputs.
    for node in reversed(nodes):
        if node.op in _REMOVABLE and not readers[node.name]:
            readers.subtract(map(_name, node.input))
        else:
            kept.append(node)
    del function.node_def[:]
    function.node_def.extend(reversed(kept))


def _read_names(function: function_pb2.FunctionDef) -> Iterator[str]:
    reads = itertools.chain(
        (read for node in function.node_def for read in node.input),
        function.ret.values(),
        function.control_ret.values(),
    )
    return map(_name, reads)


def _name(read: str) -> str:
    """Returns the node of "node:output:0", "^node" or "node"."""
    return read.removeprefix("^").partition(":")[0]
