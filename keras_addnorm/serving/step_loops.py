"""Loops over steps as TensorFlow runs them fastest without XLA.

A step of a search is hundreds of operations of microseconds. TensorFlow takes a loop apart and
hands operations that are ready to other threads, which takes longer than many of them do. A loop
that it keeps as one operation, and whose steps a single thread runs, is faster for a few rows. For
many it is slower: in a loop that is taken apart oneDNN has the products. Merging the pieces of BPE
has none; one thread does it for any number of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

FEW_ROWS = 16
"""Hypotheses of a batch at most whose steps one thread runs."""

IN_ONE_THREAD = "in_one_thread"
"""The name of a `tf.while_loop` whose steps one thread runs in an export, on the CPU."""

_CONDITION_OF = {"StatelessWhile": "StatelessIf", "While": "If"}
_IS_TAKEN_APART = "_lower_using_switch_merge"
_EXECUTOR, _ONE_THREAD = "_executor", b"SINGLE_THREADED_EXECUTOR"
# Searches without XLA write their caches with it, and nothing else is a loop with it.
_WRITE = "TensorStridedSliceUpdate"


def let_one_thread_run_few_rows(definitions: MutableSequence[function_pb2.FunctionDef]) -> None:
    """Gives searches without XLA a second way to run their steps.

    The loop becomes a condition on the number of hypotheses, whose branches are that loop, of the
    same functions. One that calls functions stays as it is: a single thread would wait for itself.

    Args:
        definitions: All functions of a graph; changed in place.
    """
    functions = {function.signature.name: function for function in definitions}
    for function in list(functions.values()):
        nodes = []
        for node in function.node_def:
            if node.op in _CONDITION_OF:
                parts = [functions[node.attr[part].func.name] for part in ("body", "cond")]
                cache = _first_written(parts[0])
                if cache is not None and not any(map(_calls_functions, parts)):
                    branches = [_branch(node, parts[0], are_few) for are_few in (True, False)]
                    definitions.extend(branches)
                    asked, answer = _are_few(node, cache)
                    nodes += asked
                    node = _condition(node, answer, branches)
            nodes.append(node)
        del function.node_def[:]
        function.node_def.extend(nodes)


def let_one_thread_run_named(definitions: Iterable[function_pb2.FunctionDef]) -> None:
    """Lets one thread run the steps of all loops that are named `IN_ONE_THREAD`.

    Args:
        definitions: All functions of a graph; changed in place.
    """
    for function in definitions:
        for node in function.node_def:
            if node.op in _CONDITION_OF and node.name.split("/")[-1].startswith(IN_ONE_THREAD):
                _let_one_thread_run(node)
                # One operation is on one device with all of its steps, which GPUs may not know.
                node.device = "/device:CPU:0"


def _let_one_thread_run(loop: node_def_pb2.NodeDef) -> None:
    """Keeps a loop as one operation, and its steps in the executor of one thread."""
    loop.attr[_IS_TAKEN_APART].b = False
    for part in ("body", "cond"):
        loop.attr[part].func.attr[_EXECUTOR].s = _ONE_THREAD


class _Written(NamedTuple):
    """A cache that a loop carries.

    Args:
        place: Which of the loop's tensors it is. Its first axis counts beams.
        num_columns: How many hypotheses of each beam a step writes.
    """

    place: int
    num_columns: int


def _first_written(body: function_pb2.FunctionDef) -> _Written | None:
    """Returns the cache that a loop's body writes first: keys, a column for each hypothesis."""
    nodes = {node.name: node for node in body.node_def}
    places = {argument.name: place for place, argument in enumerate(body.signature.input_arg)}

    def reshape(read: str) -> node_def_pb2.NodeDef | None:
        node = nodes.get(read.partition(":")[0])
        return node if node is not None and node.op == "Reshape" else None

    for node in body.node_def:
        if node.op == _WRITE:
            cache, *_, columns = node.input
            while (source := reshape(cache)) is not None:
                cache = source.input[0]
            made = reshape(columns)
            if cache in places and made is not None:
                (shape,) = made.attr["_output_shapes"].list.shape
                return _Written(places[cache], shape.dim[-1].size)
    return None


def _calls_functions(function: function_pb2.FunctionDef) -> bool:
    attributes = (value for node in function.node_def for value in node.attr.values())
    return any(value.WhichOneof("value") == "func" for value in attributes)


def _branch(
    loop: node_def_pb2.NodeDef, body: function_pb2.FunctionDef, are_few: bool
) -> function_pb2.FunctionDef:
    """Returns a function that runs the loop."""
    branch = function_pb2.FunctionDef()
    branch.signature.name = f"{body.signature.name}_of_{'few' if are_few else 'many'}_rows"
    branch.signature.is_stateful = body.signature.is_stateful
    inner = branch.node_def.add()
    inner.CopyFrom(loop)
    inner.name = "loop"
    del inner.input[:]
    for place, kind in enumerate(loop.attr["T"].list.type):
        branch.signature.input_arg.add(name=f"input_{place}", type=kind)
        branch.signature.output_arg.add(name=f"output_{place}", type=kind)
        inner.input.append(f"input_{place}")
        branch.ret[f"output_{place}"] = f"loop:output:{place}"
    if are_few:
        _let_one_thread_run(inner)
    return branch


def _are_few(
    loop: node_def_pb2.NodeDef, written: _Written
) -> tuple[list[node_def_pb2.NodeDef], str]:
    """Returns operations that ask whether the rows are few, and the name of the answer."""
    spec = tf.TensorSpec(None, tf.as_dtype(loop.attr["T"].list.type[written.place]), "cache")
    most = FEW_ROWS // written.num_columns
    asks = tf.function(lambda cache: tf.shape(cache)[0] <= most, [spec], autograph=False)
    traced = asks.get_concrete_function()
    definition = traced.function_def
    prefix, cache = f"{loop.name}/are_few/", loop.input[written.place]

    def renamed(read: str) -> str:
        return cache if read == "cache" else prefix + read

    nodes = list(definition.node_def)
    for node in nodes:
        # As other nodes of a saved model have them: what is equal can be merged.
        shapes = (x.shape.as_proto() for x in traced.graph.get_operation_by_name(node.name).outputs)
        node.attr["_output_shapes"].list.shape.extend(shapes)
        node.name = prefix + node.name
        for index, read in enumerate(node.input):
            node.input[index] = renamed(read)
    (answer,) = definition.ret.values()
    return nodes, renamed(answer)


def _condition(
    loop: node_def_pb2.NodeDef, are_few: str, branches: Sequence[function_pb2.FunctionDef]
) -> node_def_pb2.NodeDef:
    """Returns what stands for the loop, under its name, with the same outputs."""
    condition = node_def_pb2.NodeDef(name=loop.name, op=_CONDITION_OF[loop.op])
    condition.input.extend([are_few, *loop.input])
    condition.attr["Tcond"].type = tf.bool.as_datatype_enum
    for attribute in ("Tin", "Tout"):
        condition.attr[attribute].CopyFrom(loop.attr["T"])
    condition.attr["output_shapes"].CopyFrom(loop.attr["output_shapes"])
    for attribute, branch in zip(("then_branch", "else_branch"), branches, strict=True):
        condition.attr[attribute].func.name = branch.signature.name
    condition.attr[_IS_TAKEN_APART].b = True
    return condition
