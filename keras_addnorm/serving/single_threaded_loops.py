"""A pass over an exported graph: single-threaded execution of loops with small steps.

A step of a search is hundreds of operations of microseconds each. TensorFlow lowers a loop to
single operations and hands those that are ready to other threads, which often takes longer than the
operation. A loop that stays one operation, on the single-threaded executor, is faster for a few
rows. For many rows it is slower, because only a lowered loop multiplies with oneDNN. Merging the
pieces of BPE needs no products: it is single-threaded for any number of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from keras_addnorm.decoding.engine.tf_ops import StepLoop, find_step_loop

FEW_ROWS = 16
"""Largest batch, in hypotheses, that runs on the single-threaded executor."""

SINGLE_THREADED = "single_threaded"
"""The name of a `tf.while_loop` whose steps one thread runs in an export, on the CPU."""

_CONDITION_OF = {"StatelessWhile": "StatelessIf", "While": "If"}
_IS_LOWERED = "_lower_using_switch_merge"
_EXECUTOR, _ONE_THREAD = "_executor", b"SINGLE_THREADED_EXECUTOR"


def run_few_rows_in_one_thread(definitions: MutableSequence[function_pb2.FunctionDef]) -> None:
    """Gives searches without XLA, in the functions of a graph, a single-threaded loop for few rows.

    The loop becomes a condition on the number of hypotheses, with that loop in both branches. Loops
    that call functions do not change: a single thread would wait for itself.
    """
    functions = {function.signature.name: function for function in definitions}
    for function in list(functions.values()):
        nodes = []
        for node in function.node_def:
            if node.op in _CONDITION_OF:
                parts = [functions[node.attr[part].func.name] for part in ("body", "cond")]
                step_loop = find_step_loop(parts[0])
                if step_loop is not None and not any(map(_calls_functions, parts)):
                    branches = [_branch(node, parts[0], are_few) for are_few in (True, False)]
                    definitions.extend(branches)
                    asked, answer = _are_few(node, step_loop)
                    nodes += asked
                    node = _condition(node, answer, branches)
            nodes.append(node)
        del function.node_def[:]
        function.node_def.extend(nodes)


def run_named_loops_in_one_thread(definitions: Iterable[function_pb2.FunctionDef]) -> None:
    """Makes all loops of a graph that are named `SINGLE_THREADED` single-threaded, in place."""
    for function in definitions:
        for node in function.node_def:
            if node.op in _CONDITION_OF and node.name.split("/")[-1].startswith(SINGLE_THREADED):
                _set_single_threaded(node)
                # One operation runs all of its steps on one device; GPUs may lack some of them.
                node.device = "/device:CPU:0"


def _set_single_threaded(loop: node_def_pb2.NodeDef) -> None:
    """Keeps a loop as one operation, and runs its steps on the single-threaded executor."""
    loop.attr[_IS_LOWERED].b = False
    for part in ("body", "cond"):
        loop.attr[part].func.attr[_EXECUTOR].s = _ONE_THREAD


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
        _set_single_threaded(inner)
    return branch


def _are_few(
    loop: node_def_pb2.NodeDef, step_loop: StepLoop
) -> tuple[list[node_def_pb2.NodeDef], str]:
    """Returns operations that test whether the rows are few, and the name of their result."""
    spec = tf.TensorSpec(None, tf.as_dtype(loop.attr["T"].list.type[step_loop.cache]), "cache")
    most = FEW_ROWS // step_loop.rows_per_beam
    asks = tf.function(lambda cache: tf.shape(cache)[0] <= most, [spec], autograph=False)
    traced = asks.get_concrete_function()
    definition = traced.function_def
    prefix, cache = f"{loop.name}/are_few/", loop.input[step_loop.cache]

    def renamed(read: str) -> str:
        return cache if read == "cache" else prefix + read

    nodes = list(definition.node_def)
    for node in nodes:
        # Other nodes of a saved model have this attribute, too: equal nodes can be merged.
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
    """Returns the condition that replaces the loop, with the same name and outputs."""
    condition = node_def_pb2.NodeDef(name=loop.name, op=_CONDITION_OF[loop.op])
    condition.input.extend([are_few, *loop.input])
    condition.attr["Tcond"].type = tf.bool.as_datatype_enum
    for attribute in ("Tin", "Tout"):
        condition.attr[attribute].CopyFrom(loop.attr["T"])
    condition.attr["output_shapes"].CopyFrom(loop.attr["output_shapes"])
    for attribute, branch in zip(("then_branch", "else_branch"), branches, strict=True):
        condition.attr[attribute].func.name = branch.signature.name
    condition.attr[_IS_LOWERED].b = True
    return condition
