"""Compiled programs of a Keras model on JAX: what they do can be counted before they run.

Needs `KERAS_BACKEND=jax`. Not `fit`, but the same computation: forward, loss, gradients, optimiser.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import keras
import numpy as np
import peers

from keras_addnorm.decoding import decode


@dataclasses.dataclass
class Program:
    """A compiled function and its arguments on the device.

    Attributes:
        lowered: What JAX handed to XLA.
        compiled: What XLA made of it.
        compile_ms: Processor time of tracing and compiling.
    """

    lowered: Any
    compiled: Any
    compile_ms: float
    _state: tuple[Any, ...]
    _inputs: tuple[Any, ...]

    def run(self) -> Any:
        """Calls it and waits; a training step continues with the weights of the last."""
        return jax.block_until_ready(self.start())

    def start(self) -> Any:
        """Calls it without waiting, as a training loop does."""
        result, self._state = self.compiled(self._state, *self._inputs)
        return result

    @property
    def flops(self) -> float:
        """Operations of the program as it was written; the body of a loop counts once."""
        return float(self.lowered.cost_analysis()["flops"])

    @property
    def bytes(self) -> int:
        """Memory that the program needs: arguments, results, and the most in between."""
        memory = self.compiled.memory_analysis()
        return (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        )

    @property
    def text(self) -> str:
        """The optimised program."""
        return str(self.compiled.as_text())


def _program(function: Any, state: tuple[Any, ...], inputs: tuple[Any, ...]) -> Program:
    started = time.process_time()
    # As `fit` does: new weights take the place of the old ones.
    lowered = jax.jit(function, donate_argnums=0).lower(state, *inputs)
    compiled = lowered.compile()
    return Program(lowered, compiled, 1000 * (time.process_time() - started), state, inputs)


def _values(variables: list[Any]) -> list[Any]:
    # Copies: a donated array is gone, and the model may be compiled for other inputs again.
    return [jax.numpy.array(variable.value) for variable in variables]


def training_step(model: keras.Model, batch: peers.Batch) -> Program:
    """A training step; the result is the loss.

    Args:
        model: Compiled with an optimiser and a loss, as by `peers.compiled`.
        batch: Source, target and labels.

    Returns:
        The program.
    """
    optimizer, loss = model.optimizer, model.loss
    optimizer.build(model.trainable_variables)

    def step(state: tuple[Any, ...], source: Any, target: Any, labels: Any) -> Any:
        trainable, fixed, slots = state

        def loss_of(weights: Any) -> Any:
            inputs = {"source": source, "target": target}
            logits, rest = model.stateless_call(weights, fixed, inputs, training=True)
            return loss(labels, logits), rest

        (value, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return value, (trainable, fixed, slots)

    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return _program(step, tuple(map(_values, variables)), tuple(map(jax.numpy.asarray, batch)))


def decoding(model: Any, source_ids: np.ndarray, *, num_beams: int, max_length: int) -> Program:
    """Decoding of a batch; the results are ids and scores.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: `(B, S)`.
        num_beams: 1 for greedy search.
        max_length: Most steps.

    Returns:
        The program.
    """

    def run(state: Any, ids: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, state[0], strict=True))):
            result = decode(model, ids, num_beams=num_beams, max_length=max_length)
        return result, state

    return _program(run, (_values(model.variables),), (jax.numpy.asarray(source_ids),))
