"""Stops a training whose numbers are no longer finite, and reports where that began."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import require_function, to_path
from keras_addnorm.basics.tensors import not_finite
from keras_addnorm.distribution import is_first, process_count, whole_values
from keras_addnorm.training.resume import TrainingPosition, require_position

# Below it, gradients lose their last bits in float16: a scale sinks there if no step is finite.
_SMALLEST_SCALE = 1e-4


class NonFiniteError(ArithmeticError):
    """A loss or a weight is NaN or infinite, and the message says where that began."""


class NonFiniteGuard(keras.callbacks.Callback):
    """Ends a training at the first step whose loss is NaN or infinite.

    The error names the step, the first layer whose output is not finite, the first such weight, and
    the file with the batch. To find the layer, the model computes the batch once more, without
    dropout and with the weights of the last checkpoint if there is one (the present weights have
    had the bad update). With several processes the layer is not searched for: all of them would
    have to compute, and perhaps only one has found the value. With `steps_per_execution` the loss
    is known at the end of an execution only, and all of its batches are searched.

    Place it after `TrainingPosition` and before the callbacks that write files.

    Args:
        position: The first of the callbacks, which knows where the training is.
        batch: Called as `batch(epoch, index)`; returns the inputs and the labels again.
        directory: Where `nonfinite-step-N.npz` goes.
        checkpoint: Called without arguments; returns the newest checkpoint, or None.

    Raises:
        ValueError: If an argument is none of these.
    """

    def __init__(
        self,
        position: TrainingPosition,
        batch: Callable[[int, int], tuple[Any, ...]],
        directory: str | os.PathLike[str],
        checkpoint: Callable[[], Path | None],
    ) -> None:
        super().__init__()
        require_position(position)
        require_function(batch=batch, checkpoint=checkpoint)
        self.position = position
        self.batch = batch
        self.directory = to_path(directory)
        self.checkpoint = checkpoint
        self._seen = 0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from where the epoch starts."""
        self._seen = self.position.batch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Checks the loss; raises `NonFiniteError` if it is not finite."""
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise self._error(f"The loss is {loss}", max(self.position.batch - self._seen, 1))
        self._seen = self.position.batch

    def check_weights(self) -> None:
        """Checks the weights; raises `NonFiniteError` if one is not finite.

        So it does if no step of float16 has been finite for long: each is skipped without a word.
        """
        if bad_weights(self.model):
            raise self._error("A weight is not finite")
        scale = _loss_scale(self.model)
        if scale < _SMALLEST_SCALE:
            raise self._error(
                f"Gradients overflow in float16 at each step, with a loss scale of only {scale:.2g}"
            )

    def _error(self, what: str, batches: int = 1) -> NonFiniteError:
        """Makes the error of the last batch, or of one of so many last ones."""
        epoch, done = self.position.epoch, self.position.batch
        if not done and epoch:  # At the end of an epoch, the position is at the next.
            epoch, done = epoch - 1, self.position.batches_per_epoch
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        weights = bad_weights(self.model)
        checkpoint = self.checkpoint()
        if checkpoint is not None and process_count() == 1:
            self.model.load_weights(checkpoint)
        last = max(done - 1, 0)
        first = max(last + 1 - batches, 0)
        for index in range(first, last + 1):
            batch = self.batch(epoch, index)
            layer = None if process_count() > 1 else _first_bad_layer(self.model, batch[0])
            if layer is not None:
                break
        where = f"batch {index + 1}"
        if layer is None and first < last:
            where = f"one of the batches {first + 1} to {last + 1}"
        path = self.directory / f"nonfinite-step-{step}.npz"
        if is_first():
            _save(batch, path)
        lines = [
            f"{what} after step {step}: {where} of epoch {epoch + 1}. The training ends.",
            f"  first layer with an output that is not finite: {_described(layer, checkpoint)}",
            f"  first weight that is not finite: {weights[0] if weights else 'none'}"
            f" ({len(weights)} of {len(self.model.weights)})",
            f"  the batch: {path}",
            f"  the last good checkpoint: {checkpoint or 'none yet'}",
            "A lower learning rate, a longer warm-up, gradient clipping or more precision help.",
            "Ids and labels outside the vocabulary give NaN, too: look at the batch.",
        ]
        return NonFiniteError("\n".join(lines))


def _loss_scale(model: keras.Model) -> float:
    optimizer = model.optimizer
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer) or not optimizer.built:
        return 1.0
    return float(keras.ops.convert_to_numpy(optimizer.dynamic_scale))


def _first_bad_layer(model: keras.Model, inputs: Any) -> str | None:
    try:
        return first_bad_layer(model, inputs)
    except ValueError as error:  # Ids that the model refuses where it can see them.
        return f"the model refuses the batch: {error}"


def _described(layer: str | None, checkpoint: Path | None) -> str:
    if process_count() > 1:
        return "not looked for with several processes"
    weights = "" if checkpoint is None else f" (with the weights of {checkpoint.name})"
    return f"{layer or 'none'}{weights}"


def bad_weights(model: keras.Model) -> list[str]:
    """Returns the paths of the weights with a value that is NaN or infinite, in model order."""
    with whole_values(model.weights):
        return not_finite(model.weights)


def first_bad_layer(model: keras.Model, inputs: Any) -> str | None:
    """Returns the path of the innermost layer whose output of a batch is not finite, if any."""
    bad: list[str] = []
    with _watched(model, lambda layer: bad.append(layer.path or layer.name)):
        model(inputs, training=False)
    return bad[0] if bad else None


@contextlib.contextmanager
def _watched(model: keras.Model, tell: Callable[[Any], None]) -> Iterator[None]:
    """Reports each layer whose output is not finite, in the order in which the layers finish."""
    layers = list(model._flatten_layers(include_self=False))

    def watch(layer: Any) -> None:
        call = layer.call

        def watched(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            if not all(map(_is_finite, keras.tree.flatten(outputs))):
                tell(layer)
            return outputs

        layer.call = watched

    for layer in layers:
        watch(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.call


def _is_finite(tensor: Any) -> bool:
    if tensor is None or "float" not in keras.backend.standardize_dtype(tensor.dtype):
        return True
    values = keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
    # An attention mask may hold minus infinity at hidden positions.
    return bool(np.isfinite(values[values != -np.inf]).all())


def _save(batch: tuple[Any, ...], path: Path) -> None:
    inputs, labels = batch[:2]
    arrays = {**(inputs if isinstance(inputs, dict) else {"inputs": inputs}), "labels": labels}
    with atomic_file(path) as temporary:
        np.savez(temporary, **arrays)
