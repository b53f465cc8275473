"""Gradient checkpointing (rematerialisation): activations are computed again instead of kept."""

from typing import Any

import keras

Tensor = Any


def checkpointed(
    layer: keras.layers.Layer, *inputs: Any, first_values: Tensor | None = None, **options: Any
) -> Any:
    """Call a layer so that the backward pass computes its activations again.

    Only the inputs and the output are kept. Everything that the layer reads is handed over as a
    value, the states of its random generators too, so both passes give the same, dropout included;
    what it writes (those states, averages of a norm, losses) is written once.

    Args:
        layer: A built layer.
        *inputs: The tensors, and trees of tensors, that gradients flow to; `None` where a layer
            takes none.
        first_values: One more such tensor, which the layer takes by this name; `None` for none.
        **options: Other arguments: masks and plain values.

    Returns:
        A tensor or a tree of tensors, as the layer returns it.

    Reference:
        Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
    """
    read, written = layer.trainable_variables, layer.non_trainable_variables

    def run(
        values: list[Tensor], named: dict[str, Tensor], *inputs: Any
    ) -> tuple[Any, list[Tensor], list[Tensor]]:
        mapping = zip([*read, *written], values, strict=True)
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            output = layer(*inputs, **named, **options)
        return output, [scope.get_current_value(variable) for variable in written], scope.losses

    # Copies: torch writes into the tensor that a variable has.
    values = [*(v.value for v in read), *(keras.ops.copy(v.value) for v in written)]
    named = {} if first_values is None else {"first_values": first_values}
    output, states, losses = keras.remat(run)(values, named, *inputs)
    for variable, state in zip(written, states, strict=True):
        variable.assign(state)
    for loss in losses:
        layer.add_loss(loss)
    return output
