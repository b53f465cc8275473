"""Seeing what goes through each Add & Norm, from outside: no layer knows that it is watched."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras.src.backend import get_keras_mask  # Keras offers no public way to read a tensor's mask.

from keras_addnorm.layers import AddNorm

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
        mask: The Keras mask of x, True at real tokens, `(B, T)`, or `None`.
    """

    name: str
    residual: Tensor
    branch_input: Tensor | None
    branch: Tensor
    merged: Tensor
    mask: Tensor | None


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
        """Add a record.

        Args:
            record: The latest record.
        """
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
        offsets: Tensors that are added to the stream x in front of the sublayers named: zeros make
            it possible to differentiate with respect to x (see `loss_gradients`).

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
    offsets = dict(offsets or {})
    if unknown := sorted(offsets.keys() - add_norms.keys()):
        raise ValueError(
            "There is no such sublayer to add an offset to. Expected names among "
            f"{list(add_norms)}. Received: {unknown}"
        )
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


def named_add_norms(model: Any) -> dict[str, AddNorm]:
    """Find every `AddNorm` of a model, under the names that `observe` uses.

    Inside a stack the name says side, layer and sublayer: `"encoder/0/self_attention"`. A layer
    without a position goes by its own name: `"transformer_encoder_layer/self_attention"`. Where
    that is not unique (a model with two encoders), the names of the layers above are used too.

    Args:
        model: A built Keras layer or model.

    Returns:
        The layers by name, in the model's order.

    Raises:
        ValueError: If there is none.

    Example:
        >>> from keras_addnorm.layers import TransformerEncoder
        >>> encoder = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=32)
        >>> encoder.build((2, 5, 8))
        >>> list(named_add_norms(encoder))
        ['encoder/0/self_attention', 'encoder/0/feed_forward']
    """
    return {name: place.add_norm for name, place in named_sublayers(model).items()}


@dataclasses.dataclass(frozen=True)
class Sublayer:
    """A sublayer and the Add & Norm around it.

    Attributes:
        add_norm: The Add & Norm.
        layer: The attention or feed-forward layer that the same Transformer layer holds for it;
            `None` where that is not known, as for an `AddNorm` in a model of your own.
    """

    add_norm: AddNorm
    layer: keras.layers.Layer | None


def named_sublayers(model: Any) -> dict[str, Sublayer]:
    """Find every sublayer of a model, under the names that `observe` uses.

    Args:
        model: A built Keras layer or model.

    Returns:
        The sublayers by name, in the model's order.

    Raises:
        ValueError: If there is none.
    """
    found = list(_walk(model, ()))
    if not found:
        raise ValueError(
            "There is nothing to observe. Expected a built model with an AddNorm layer inside. "
            f"Received: {model!r}. If it is not built yet, call it once on a batch first."
        )
    short = Counter(_short_name(path) for path in found)
    named: dict[str, Sublayer] = {}
    for path in found:
        name = _short_name(path)
        if short[name] > 1:
            name = "/".join([*(layer.name for layer in path[1:-1]), _sublayer(path[-1])])
        unique, count = name, 1
        while unique in named:
            unique, count = f"{name}_{count}", count + 1
        named[unique] = Sublayer(path[-1], _neighbour(path))
    return named


Path = tuple[keras.layers.Layer, ...]


def _walk(layer: Any, above: Path, seen: set[int] | None = None) -> Iterator[Path]:
    """The way from the model to each `AddNorm`, once for each `AddNorm`."""
    seen = set() if seen is None else seen
    if id(layer) in seen:
        return
    seen.add(id(layer))
    path = (*above, layer)
    if isinstance(layer, AddNorm):
        yield path
        return
    for child in getattr(layer, "_layers", ()):
        yield from _walk(child, path, seen)


def _short_name(path: Path) -> str:
    add_norm = path[-1]
    position = add_norm.position
    if position is not None:
        return f"{position.side}/{position.layer_index}/{_sublayer(add_norm)}"
    is_in_layer = len(path) > 1 and add_norm.name != _sublayer(add_norm)
    return f"{path[-2].name}/{_sublayer(add_norm)}" if is_in_layer else add_norm.name


def _sublayer(add_norm: AddNorm) -> str:
    """`"self_attention"` for the layer called `"self_attention_add_norm"`."""
    position = add_norm.position
    if position is not None and position.sublayer is not None:
        return position.sublayer
    return add_norm.name.removesuffix("_add_norm")


def _neighbour(path: Path) -> keras.layers.Layer | None:
    if len(path) < 2 or not path[-1].name.endswith("_add_norm"):
        return None
    layer = getattr(path[-2], path[-1].name.removesuffix("_add_norm"), None)
    return layer if isinstance(layer, keras.layers.Layer) else None


class _Recording:
    """A decorator of a scheme: the same plan and results, and each call is kept."""

    def __init__(
        self, scheme: Any, name: str, observation: Observation, offset: Tensor | None
    ) -> None:
        self._scheme = scheme
        self._name = name
        self._observation = observation
        self._offset = offset
        self._branch_input: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        # Whatever else a scheme has, now or later, is that of the one inside.
        return getattr(self._scheme, name)

    def branch_input(self, x: Tensor, parts: Any) -> Tensor:
        self._branch_input = self._scheme.branch_input(self._moved(x), parts)
        return self._branch_input

    def merge(self, residual: Tensor, branch: Tensor, parts: Any) -> Tensor:
        mask = get_keras_mask(residual)
        residual = self._moved(residual)
        merged = self._scheme.merge(residual, branch, parts)
        branch_input, self._branch_input = self._branch_input, None
        self._observation.append(
            SublayerRecord(self._name, residual, branch_input, branch, merged, mask)
        )
        return merged

    def _moved(self, x: Tensor) -> Tensor:
        return x if self._offset is None else x + self._offset
