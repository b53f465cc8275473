"""How the loop over steps of a search without XLA is told from other loops of a graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras_addnorm.decoding.engine.tf_ops import IN_PLACE_UPDATE


class StepLoop(NamedTuple):
    """A loop over the steps of a search.

    Args:
        cache: Which of the loop's tensors is a cache. Its first axis counts beams.
        rows_per_beam: How many hypotheses of each beam a step writes.
    """

    cache: int
    rows_per_beam: int


def find_step_loop(body: Any) -> StepLoop | None:
    """Return what a loop is if a search of `TFGraphEngine` runs it.

    Its body writes caches in place: a column for each hypothesis of a beam, first of keys. Nothing
    else does that in a loop.

    Args:
        body: The `FunctionDef` of the loop's body.

    Returns:
        The loop, or `None` for another one.
    """
    nodes = {node.name: node for node in body.node_def}
    places = {argument.name: place for place, argument in enumerate(body.signature.input_arg)}

    def reshape(read: str) -> Any:
        node = nodes.get(read.partition(":")[0])
        return node if node is not None and node.op == "Reshape" else None

    for node in body.node_def:
        if node.op == IN_PLACE_UPDATE:
            cache, *_, columns = node.input
            while (source := reshape(cache)) is not None:
                cache = source.input[0]
            made = reshape(columns)
            if cache in places and made is not None:
                (shape,) = made.attr["_output_shapes"].list.shape
                return StepLoop(places[cache], shape.dim[-1].size)
    return None
