"""Graph optimisation of a saved model: dead nodes, common subexpressions, transposes.

Tracing writes a constant wherever a number is needed: the same axis, the same size, the same zero,
hundreds of times in a function; each layer asks anew for the size of the batch and works out the
same mask; it reads weights that the function does not need, hands tensors on by operations that do
nothing, and transposes what a product could read as it lies. Whoever loads the model takes time for
each of these operations. And whoever first calls one of its functions waits for TensorFlow's
optimiser of graphs (Grappler), which then makes no search faster. Loops over steps get another way
to run (`single_threaded_loops`).
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

# The same inputs give the same outputs, and nobody else notices: about sizes, masks and positions,
# which several layers work out alike.
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
_HANDED_ON = {"Identity", "IdentityN"}
# Nobody notices whether these are done, but who reads what they return.
_SILENT = _PURE | _HANDED_ON | {"ReadVariableOp"}
# The field of a graph that holds its functions.
_FUNCTIONS = "library"
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def optimize_graph(folder: Path) -> None:
    """Rewrites the graph of a saved model that nobody reads yet.

    Args:
        folder: The folder with `saved_model.pb`.
    """
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
    # The checksum of the file as it was; loading asks for none.
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def function_definitions(
    graph: graph_pb2.GraphDef,
) -> MutableSequence[function_pb2.FunctionDef]:
    """Returns all functions that a graph's nodes call, and those that these call.

    Args:
        graph: The graph; its functions can be changed in place.

    Returns:
        The functions.
    """
    functions: MutableSequence[function_pb2.FunctionDef] = getattr(graph, _FUNCTIONS).function
    return functions


def _fold_transposes(function: function_pb2.FunctionDef) -> None:
    """Lets products read matrices as they lie, where they read them transposed.

    In a loop over tokens the whole table of the vocabulary would be transposed at each step.
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
    """Removes identities, and of several reshapes in a row all but the last."""
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
        if node.op in _HANDED_ON and not waits and node.name not in waited_for:
            for index, read in enumerate(node.input):
                source[f"{node.name}:output:{index}"] = read
    for result, read in function.ret.items():
        function.ret[result] = source.get(read, read)


def _merge_common_subexpressions(function: function_pb2.FunctionDef) -> None:
    """Lets all who read one of several equal operations read the first one (CSE)."""
    first: dict[bytes, str] = {}
    instead: dict[str, str] = {}

    def renamed(read: str) -> str:
        name, mark, output = read.partition(":")
        return instead.get(name, name) + mark + output

    # Inputs stand before who reads them, so what is equal shows by its inputs' new names.
    for node in function.node_def:
        for index, read in enumerate(node.input):
            node.input[index] = renamed(read)
        if node.op in _PURE and not any(read.startswith("^") for read in node.input):
            instead[node.name] = first.setdefault(_content(node), node.name)
    for result, read in function.ret.items():
        function.ret[result] = renamed(read)


def _disable_grappler_in_calls(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Lets functions be called without being optimised by Grappler first.

    A session that leaves the optimiser out does so for its own graph alone: each call of a function
    has its own settings.
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
    # A function's nodes stand in the order in which they were made: readers come later.
    for node in reversed(nodes):
        if node.op in _SILENT and not readers[node.name]:
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
