"""`ResidualMonitor`: watches the residual stream while a model trains."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole, to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics.batch_loss import BatchLoss, LossLike, parts_of, require_loss
from keras_addnorm.diagnostics.compiled import compiled
from keras_addnorm.diagnostics.gradients import differentiate
from keras_addnorm.diagnostics.observe import SublayerRecord, observe
from keras_addnorm.diagnostics.residual_log import ResidualLog, ResidualRow, StreamRow
from keras_addnorm.diagnostics.stream_statistics import stream_numbers
from keras_addnorm.layers.sublayers import named_add_norms

Tensor = Any


class ResidualMonitor(keras.callbacks.Callback):
    """Logs, every so many training steps, what each sublayer does to the residual stream.

    A forward and a backward pass over one fixed batch, without dropout, give for each sublayer the
    columns of `ResidualRow`: root mean squares of x, F(x) and y, the residual ratio
    ‖F(x)‖ / ‖x‖, the cosine between x and y, the norm of the loss's gradient at x, and the means of
    x, F(x) and y. They go to a CSV file, to TensorBoard, or both; a `Report`'s page draws the CSV
    step by step. For a scheme of several streams or with a memory, the numbers of
    `StreamStatistics` go to a second CSV file, a row each.

    The pass is compiled once, at the first step that is logged. It reads the weights and changes
    nothing: not the weights, not the optimiser, not the random numbers of dropout. Statistics are
    computed in float32 whatever the precision of the model; under float16 the loss is scaled
    before it is differentiated, and the gradients scaled back.

    A training that goes on (its optimiser has seen batches) appends to the CSV file, with the
    steps going on: a step is a batch. Rows of steps that are about to be trained again are dropped.

    Args:
        batch: Inputs, labels and, if there are any, sample weights, as the training pipeline gives
            them. A batch of the size of the training's costs about as much as one training step, a
            smaller one less.
        every: Log after each so many steps, and before the first.
        csv: The CSV file; `None` for none. That of the streams is beside it:
            `residuals_streams.csv` beside `residuals.csv`.
        tensorboard: Directory of a TensorBoard log, with one scalar for each sublayer and column,
            such as `residual_ratio/encoder/0/feed_forward`; `None` for none.
        loss: `loss(labels, outputs)`, or the name of a loss; `None` for the model's `compute_loss`,
            with all that was compiled or added.

    Attributes:
        rows: The latest rows, one for each sublayer.
        stream_rows: The latest rows of the second file; none for a scheme of one stream.
        traces: How often the pass was traced; 1 with TensorFlow and JAX, whatever the steps.

    Raises:
        ValueError: If `every` is below 1, there is nowhere to log to, or, when training starts,
            the model has no Add & Norm or does not take the batch.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.diagnostics import ResidualMonitor
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
    from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro"))
    model.compile(optimizer="adam", loss=MaskedSparseCategoricalCrossentropy())
    inputs = {"source": np.array([[5, 6, 7, 2]]), "target": np.array([[1, 8, 9]])}
    labels = np.array([[8, 9, 2]])
    monitor = ResidualMonitor((inputs, labels), every=100, csv="residuals.csv")
    # model.fit(dataset, callbacks=[monitor])
    ```
    """

    def __init__(
        self,
        batch: tuple[Any, ...],
        *,
        every: int = 100,
        csv: str | os.PathLike[str] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        loss: LossLike | None = None,
    ) -> None:
        super().__init__()
        if not is_whole(every, 1):
            raise ArgumentError("`every` has to be positive.", "an int >= 1", every=every)
        self.every = int(every)
        if csv is None and tensorboard is None:
            raise ArgumentError(
                "The monitor has nowhere to write to.",
                "`csv`, `tensorboard` or both",
                "Pass `csv='residuals.csv'`.",
                received="neither",
            )
        self.batch = parts_of(batch)
        require_loss(loss)
        self.loss = loss
        self.log = None if csv is None else ResidualLog(csv)
        self.tensorboard = None if tensorboard is None else to_path(tensorboard)
        self.rows: list[ResidualRow] = []
        self.stream_rows: list[StreamRow] = []
        self.traces = 0
        self._probe: Callable[[], tuple[Tensor, ...]] | None = None
        self._names: list[str] = []
        self._stream_keys: list[tuple[str, str, str]] = []
        self._writer: Any = None
        self._step = self._logged = 0
        self._batch_index = -1

    def set_model(self, model: Any) -> None:
        """Take the model that `fit` trains."""
        if model is not self._model:
            self._probe = None
        super().set_model(model)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Find out which step this is, and log it if it is the first."""
        named_add_norms(self.model)
        self._require_fitting_batch()
        self._step = self._logged = self._batches_done()
        if self.log is not None:
            for log in (self.log, self.log.streams):
                log.drop_after(self._step if self._step else -1)
        if self._step == 0:
            self._record()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Start counting batches."""
        self._step, self._batch_index = self._batches_done(), -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the step if it is due; `batch` jumps with `steps_per_execution`."""
        if steps := (self.params or {}).get("steps"):
            # Of an execution that the end of the data has cut short, Keras counts all steps.
            batch = min(batch, steps - 1)
        self._step += batch - self._batch_index
        self._batch_index = batch
        if self._step // self.every > self._logged // self.every:
            self._record()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Close the TensorBoard log."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _batches_done(self) -> int:
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        # `iterations` counts updates, which several batches may share.
        return int(ops.convert_to_numpy(optimizer._iterations))

    def _require_fitting_batch(self) -> None:
        inputs, *_ = self.batch
        try:
            self.model(inputs, training=False)
        except Exception as error:
            shapes = keras.tree.map_structure(np.shape, self.batch)
            raise ArgumentError(
                "The model does not take the monitor's batch.",
                "inputs and labels as the training data have them",
                received=f"shapes: {shapes}",
            ) from error

    def _record(self) -> None:
        self._logged = self._step
        if self._probe is None:
            self._probe = self._make_probe()
        table, *streams = map(to_numpy, self._probe())
        self.rows = [
            ResidualRow(self._step, name, *map(float, line))
            for name, line in zip(self._names, table, strict=True)
        ]
        numbers = streams[0].tolist() if streams else []
        self.stream_rows = [
            StreamRow(self._step, *key, value)
            for key, value in zip(self._stream_keys, numbers, strict=True)
        ]
        if self.log is not None:
            self.log.append(self.rows)
            if self.stream_rows:
                self.log.streams.append(self.stream_rows)
        if self.tensorboard is not None:
            self._write_scalars(self.tensorboard)

    def _make_probe(self) -> Callable[[], tuple[Tensor, ...]]:
        model, batch_loss = self.model, BatchLoss(self.model, self.loss)
        inputs, labels, weights = keras.tree.map_structure(
            lambda part: None if part is None else np.asarray(part), self.batch
        )
        # Gradients of a mean over many tokens would be lost among float16's smallest numbers.
        scale = 4096.0 if "float16" in _compute_dtypes(model) else 1.0

        def probe() -> tuple[Tensor, ...]:
            self.traces += 1
            with observe(model) as observation:
                model(inputs, training=False)
            records = {record.name: record for record in observation}
            self._names = list(records)

            def objective(offsets: dict[str, Tensor]) -> Tensor:
                with observe(model, offsets=offsets):
                    return scale * batch_loss((inputs, labels, weights))

            zeros = {name: ops.zeros_like(record.residual) for name, record in records.items()}
            _, _, gradients = differentiate(objective, [], zeros)
            table = ops.stack(
                [
                    ops.stack([*_statistics(record), _norm(gradient) / scale, *_means(record)])
                    for record, gradient in zip(records.values(), gradients, strict=True)
                ]
            )
            streams = {
                (name, quantity): value
                for name, record in records.items()
                for quantity, value in stream_numbers(record).items()
            }
            self._stream_keys = [
                (*key, ":".join(map(str, place)))
                for key, value in streams.items()
                for place in np.ndindex(*value.shape)
            ]
            if not streams:
                return (table,)
            return table, ops.concatenate([ops.reshape(value, -1) for value in streams.values()])

        return compiled(model, probe)

    def _write_scalars(self, directory: Path) -> None:
        if self._writer is None:
            # Late, as it is slow to import and not needed for the CSV.
            from tensorboard.summary import Writer

            self._writer = Writer(str(directory))
        for row in self.rows:
            for column in _SCALARS:
                tag = f"{column}/{row.sublayer}"
                self._writer.add_scalar(tag, getattr(row, column), step=row.step)
        self._writer.flush()


_SCALARS = tuple(ResidualRow.__dataclass_fields__)[2:]


def _compute_dtypes(model: Any) -> set[str]:
    return {add_norm.compute_dtype for add_norm in named_add_norms(model).values()}


def _statistics(record: SublayerRecord) -> list[Tensor]:
    """The columns of `ResidualRow` from `residual_rms` to `cosine`, each a float32 scalar."""
    (x, f, y), real, count = _streams(record)

    def square(tensor: Tensor) -> Tensor:
        return ops.sum(real * ops.sum(tensor * tensor, axis=-1))

    lengths = ops.sqrt(ops.sum(x * x, axis=-1) * ops.sum(y * y, axis=-1))
    cosines = _divide(ops.sum(x * y, axis=-1), lengths)
    numbers = count * x.shape[-1]
    return [
        *(ops.sqrt(square(tensor) / numbers) for tensor in (x, f, y)),
        _divide(ops.sqrt(square(f)), ops.sqrt(square(x))),
        ops.sum(real * cosines) / count,
    ]


def _means(record: SublayerRecord) -> list[Tensor]:
    """The columns of `ResidualRow` from `residual_mean` to the end."""
    streams, real, count = _streams(record)
    return [ops.sum(real * ops.mean(tensor, axis=-1)) / count for tensor in streams]


def _streams(record: SublayerRecord) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return x, F(x) and y, 1 at real positions and 0 at others, and the number of real ones."""
    streams = [
        ops.cast(tensor, "float32") for tensor in (record.residual, record.branch, record.merged)
    ]
    entry = streams[0][..., 0]
    real = ops.ones_like(entry) if record.mask is None else ops.cast(record.mask, "float32")
    return streams, real, ops.maximum(ops.sum(real), 1.0)


def _divide(above: Tensor, below: Tensor) -> Tensor:
    """Zero where both are, infinite where only `below` is."""
    is_zero = ops.equal(below, 0)
    quotient = above / ops.where(is_zero, 1.0, below)
    unbounded = ops.where(ops.equal(above, 0), ops.zeros_like(above), float("inf"))
    return ops.where(is_zero, unbounded, quotient)


def _norm(gradient: Tensor) -> Tensor:
    gradient = ops.cast(gradient, "float32")
    return ops.sqrt(ops.sum(gradient * gradient))
