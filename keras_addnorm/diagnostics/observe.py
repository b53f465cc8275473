"""Hooks that record what passes through each Add & Norm; the layers do not know of them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.sublayers import named_add_norms
from keras_addnorm.schemes import State, StreamState

Tensor = Any


@dataclasses.dataclass(frozen=True)
class SublayerRecord:
    """What one `AddNorm` saw and returned in one call.

    Attributes:
        name: Which sublayer: `"encoder/0/self_attention"`, `"decoder/2/cross_attention"`.
        residual: The stream before the sublayer, x, `(..., D)`.
        branch_input: What the sublayer read, h; `None` if `AddNorm` was used alone, as
            `AddNorm()(x, f)`.
        branch: The sublayer's output after dropout, f.
        merged: The stream after the sublayer, y.
        mask: The padding mask, True at real tokens, `(B, T)`, or `None`.
        state: Where the scheme has several streams or a memory, their state before the sublayer;
            `residual` and `merged` are then collapsed to one stream, as a lone layer does it.
        next_state: The state after the sublayer.
        coefficients: The weights by which the sublayer reads, mixes and writes, by name; empty for
            a scheme that has none.
    """

    name: str
    residual: Tensor
    branch_input: Tensor | None
    branch: Tensor
    merged: Tensor
    mask: Tensor | None
    state: StreamState | None = None
    next_state: StreamState | None = None
    coefficients: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)


class Observation:
    """The records of an `observe` block, in the order in which the sublayers ran.

    Iterating goes over all records. `observation["encoder/0/feed_forward"]` is the latest record
    of that name: a sublayer that runs twice has two.
    """

    def __init__(self) -> None:
        self._records: list[SublayerRecord] = []

    def __iter__(self) -> Iterator[SublayerRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, name: str) -> SublayerRecord:
        for record in reversed(self._records):
            if record.name == name:
                return record
        known = list(dict.fromkeys(record.name for record in self._records))
        raise KeyError(
            f"No such sublayer has run. Expected one of {known}. Received: {name!r}. Call the "
            "model inside the `observe` block."
        )

    def clear(self) -> None:
        """Forget the records so far, for example between two batches."""
        self._records.clear()

    def append(self, record: SublayerRecord) -> None:
        """Add a record."""
        self._records.append(record)


@contextlib.contextmanager
def observe(model: Any, *, offsets: Mapping[str, Tensor] | None = None) -> Iterator[Observation]:
    """Record the residual stream around every sublayer of a model.

    While the block runs, each `AddNorm` works with a decorator of its scheme that hands every call
    on and keeps the tensors. Outputs are the same to the last bit (a compiler such as XLA may fuse
    a function otherwise that returns more tensors, and round otherwise). The block may be nested,
    and everything is put back at its end, also after an error.

    It works eagerly, and inside a function that is being traced (`tf.function`, XLA, `jax.jit`):
    there the records hold symbolic tensors, and the function has to return what you want to see of
    them. A function that was traced before the block began records nothing.

    Args:
        model: A `Seq2SeqTransformer`, a stack, a layer, or a Keras model of your own with such
            layers inside. It has to be built.
        offsets: Tensors that are added to the stream x (to each of several) in front of the
            sublayers named: zeros make it possible to differentiate with respect to x (see
            `loss_gradients`).

    Yields:
        The observation, empty until the model is called.

    Raises:
        ValueError: If there is no `AddNorm` in the model, or an offset names none of them.

    Example:
    ```python
    import keras
    from keras_addnorm.diagnostics import observe
    from keras_addnorm.layers import TransformerEncoder

    x = keras.random.normal((2, 5, 8))
    encoder = TransformerEncoder(num_layers=2, num_heads=2, intermediate_dim=32)
    encoder.build(x.shape)
    with observe(encoder) as observation:
        encoder(x)
    for record in observation:
        print(record.name, keras.ops.std(record.branch) / keras.ops.std(record.residual))
    ```
    """
    add_norms = named_add_norms(model)
    require_places("offsets", offsets, add_norms)
    offsets = dict(offsets or {})
    observation = Observation()
    schemes = {name: add_norm.scheme for name, add_norm in add_norms.items()}
    try:
        for name, add_norm in add_norms.items():
            recording: Any = _Recording(schemes[name], name, observation, offsets.get(name))
            add_norm.scheme = recording
        yield observation
    finally:
        for name, add_norm in add_norms.items():
            add_norm.scheme = schemes[name]


def require_places(what: str, offsets: Any, places: Iterable[str]) -> None:
    """Raise a `ValueError` unless offsets, if any, are by the names of sublayers."""
    places = list(places)
    if not isinstance(offsets, Mapping | None):
        raise ArgumentError(
            f"`{what}` are by the names of sublayers.",
            f"a dict with names among {places}",
            value=offsets,
        )
    if unknown := sorted(map(str, set(offsets or ()) - set(places))):
        raise ArgumentError(
            "There is no such sublayer to add an offset to.",
            f"names among {places}",
            value=unknown,
        )


class _Recording:
    """A decorator of a scheme: the same plan and results, and each call is kept."""

    def __init__(
        self, scheme: Any, name: str, observation: Observation, offset: Tensor | None
    ) -> None:
        self._scheme = scheme
        self._name = name
        self._observation = observation
        self._offset = offset
        self._before: State = None
        self._branch_input: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        # Whatever else a scheme has, now or later, is that of the one inside.
        return getattr(self._scheme, name)

    def prepare(self, state: State, parts: Any) -> State:
        moved = state if self._offset is None else self._scheme.shift(state, self._offset)
        self._before = moved
        return self._scheme.prepare(moved, parts)

    def read(self, state: State, parts: Any) -> Tensor:
        self._branch_input = self._scheme.read(state, parts)
        return self._branch_input

    def write(self, state: State, branch: Tensor, parts: Any) -> State:
        after = self._scheme.write(state, branch, parts)
        branch_input, self._branch_input = self._branch_input, None
        has_state = isinstance(state, StreamState)
        self._observation.append(
            SublayerRecord(
                self._name,
                self._scheme.collapse(self._before),
                branch_input,
                branch,
                self._scheme.collapse(after),
                parts.padding_mask,
                self._before if has_state else None,
                after if has_state else None,
                self._scheme.coefficients(state, parts),
            )
        )
        return after
