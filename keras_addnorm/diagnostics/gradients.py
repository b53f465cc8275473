"""The loss of a batch and its gradients, on every backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics.batch_loss import Batch, BatchLoss, LossLike
from keras_addnorm.diagnostics.observe import observe, require_places
from keras_addnorm.layers.sublayers import named_sublayers

Tensor = Any


@dataclasses.dataclass(frozen=True)
class LossGradients:
    """A batch's loss, and its gradients as NumPy arrays.

    Attributes:
        loss: The loss, L.
        residuals: By sublayer, the gradient at the stream in front of it, dL/dx, of x's shape.
        weights: By `variable.path`, the gradient of each trainable weight.
    """

    loss: float
    residuals: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def loss_gradients(
    model: Any,
    inputs: Any,
    labels: Any,
    loss: LossLike | None = None,
    *,
    training: bool = False,
    probes: dict[str, Tensor] | None = None,
) -> LossGradients:
    """Compute the loss of a batch, and its gradients at the stream and at the weights.

    The gradient at the stream, dL/dx, is the whole one: through the skip connection and through
    the sublayer. A sublayer that runs several times gets the sum over its runs.

    Args:
        model: A built model; see `observe`.
        inputs: What the model is called with, as one argument.
        labels: What the loss compares the output with.
        loss: `loss(labels, outputs)`, or the name of a loss, reduced as Keras does; `None` for what
            `evaluate` gives: the model's `compute_loss`, with all that was compiled or added. For a
            `Seq2SeqTransformer` that is not compiled, `MaskedSparseCategoricalCrossentropy`.
        training: Whether dropout works.
        probes: Zeros of the shape and dtype of x, by sublayer; `None` to find them with one more
            forward pass.

    Returns:
        Loss and gradients.

    Raises:
        ValueError: If there is no loss, or it is no scalar, or takes probabilities where the model
            gives logits.

    Example:
    ```python
    import keras
    import numpy as np
    from keras_addnorm.diagnostics import loss_gradients
    from keras_addnorm.layers import TransformerEncoder

    x = keras.random.normal((2, 5, 8))
    encoder = TransformerEncoder(num_layers=3, num_heads=2, intermediate_dim=32, scheme="pre_ln")
    encoder.build(x.shape)
    found = loss_gradients(encoder, x, 0.0, lambda y_true, y: keras.ops.mean(y**3))
    for name, gradient in found.residuals.items():
        print(name, np.linalg.norm(gradient))
    ```
    """
    require_bool(training=training)
    sublayers = named_sublayers(model)  # says what is no model
    require_places("probes", probes, sublayers)
    batch_loss = BatchLoss(model, loss)
    if probes is None:
        with observe(model) as observation:
            model(inputs, training=training)
        probes = {record.name: ops.zeros_like(record.residual) for record in observation}
    return gradients_of(batch_loss, (inputs, labels, None), probes, training=training)


def gradients_of(
    batch_loss: BatchLoss, batch: Batch, probes: dict[str, Tensor], *, training: bool = False
) -> LossGradients:
    """Return a loss, and its gradients at the stream and the weights; see `loss_gradients`."""
    model = batch_loss.model
    variables = list(model.trainable_variables)

    def objective(offsets: dict[str, Tensor]) -> Tensor:
        with observe(model, offsets=offsets):
            return batch_loss(batch, training=training)

    value, by_variable, by_probe = differentiate(objective, variables, probes)
    return LossGradients(
        loss=float(to_numpy(value)),
        residuals=dict(zip(probes, map(to_numpy, by_probe), strict=True)),
        weights={
            variable.path: to_numpy(gradient)
            for variable, gradient in zip(variables, by_variable, strict=True)
        },
    )


Found = tuple[Tensor, list[Tensor], list[Tensor]]


def differentiate(
    objective: Callable[[dict[str, Tensor]], Tensor],
    variables: list[Any],
    probes: dict[str, Tensor],
) -> Found:
    """Differentiate a scalar with respect to variables and offsets; works in a function too."""
    return _BACKENDS[keras.backend.backend()](objective, variables, probes)


def _tensorflow(objective: Any, variables: list[Any], probes: dict[str, Tensor]) -> Found:
    import tensorflow as tf

    values = [variable.value for variable in variables]
    sources = [*values, *probes.values()]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for source in sources:
            tape.watch(source)
        loss = objective(probes)
    gradients = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return loss, dense[: len(values)], dense[len(values) :]


def _jax(objective: Any, variables: list[Any], probes: dict[str, Tensor]) -> Found:
    import jax

    def of_values(values: list[Tensor], offsets: dict[str, Tensor]) -> Tensor:
        if not variables:  # A scope of our own would hide one that is open already.
            return objective(offsets)
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return objective(offsets)

    values = [variable.value for variable in variables]
    loss, (by_variable, by_probe) = jax.value_and_grad(of_values, argnums=(0, 1))(values, probes)
    return loss, by_variable, [by_probe[name] for name in probes]


def _torch(objective: Any, variables: list[Any], probes: dict[str, Tensor]) -> Found:
    import torch

    values = [variable.value for variable in variables]
    probes = {name: probe.detach().requires_grad_() for name, probe in probes.items()}
    sources = [*values, *probes.values()]
    with torch.enable_grad():
        loss = objective(probes)
        gradients = torch.autograd.grad(loss, sources, materialize_grads=True)
    return loss.detach(), list(gradients[: len(values)]), list(gradients[len(values) :])


_BACKENDS: dict[str, Callable[..., Found]] = {
    "tensorflow": _tensorflow,
    "jax": _jax,
    "torch": _torch,
}
