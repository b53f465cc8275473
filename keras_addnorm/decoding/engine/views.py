"""Views of a decoder: the same weights, other implementations of some of its layers.

An engine computes some layers in its own way. It never changes the user's objects: it makes copies
of those that hold such a layer, down from the decoder, which share everything else.
"""

from __future__ import annotations

import dataclasses
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.projection import Projection
from keras_addnorm.layers.vocabulary_product import project

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Substitute:
    """What replaces a layer in a view: a copy of it, of another class.

    Args:
        kind: A subclass of the layer's class. Its constructor is not run.
        attributes: The attributes of the copy besides the layer's own.
    """

    kind: type
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Replace = Callable[[str, Any], Any]
"""`replace(name, layer)` of a layer and the name of the attribute that holds it.

Returns a `Substitute`, or an object that replaces the layer (the layer itself to keep it), or
`None` to copy the layer only if something inside it is replaced."""


def substitute(decoder: Any, replace: Replace) -> Any:
    """Return a view of a decoder in which some of its layers are replaced.

    Layers are found in the attributes of layers, of the decoder, and of decoders in it; in lists,
    tuples and dicts, too. The variables are those of the original, which stays as it is.

    Args:
        decoder: A layer, or any object with the method `decode_step`.
        replace: Returns what replaces a layer.

    Returns:
        The view; the decoder itself if nothing was replaced.
    """
    views: dict[int, Any] = {}

    def view_of(name: str, value: Any) -> Any:
        if isinstance(value, list | dict) or type(value) is tuple:
            items = value.values() if isinstance(value, dict) else value
            new = []
            for item in items:
                new.append(view_of(name, item))
            if all(map(operator.is_, new, items)):
                return value
            # Keras' tracked lists and dicts become plain ones.
            if isinstance(value, dict):
                return dict(zip(value, new, strict=True))
            return tuple(new) if type(value) is tuple else new
        if value is not decoder and not _has_layers(value):
            return value
        if id(value) in views:
            return views[id(value)]
        views[id(value)] = value  # A layer that refers back to its owner gets the original.
        stand_in = replace(name, value)
        if stand_in is None or isinstance(stand_in, Substitute):
            changed = {}
            for key, part in _attributes(value).items():
                if (other := view_of(key, part)) is not part:
                    changed[key] = other
            kind = type(value)
            if stand_in is not None:
                kind, changed = stand_in.kind, {**changed, **stand_in.attributes}
            stand_in = _copy(value, kind, changed) if changed or kind is not type(value) else value
        views[id(value)] = stand_in
        return stand_in

    return view_of("", decoder) if hasattr(decoder, "__dict__") else decoder


def variables_of(decoder: Any) -> list[keras.Variable]:
    """Return the variables of a decoder, each once; see `layers_and_variables_of`."""
    layers, variables = layers_and_variables_of(decoder)
    all_variables = [*(variable for layer in layers for variable in layer.variables), *variables]
    return list({id(variable): variable for variable in all_variables}.values())


def layers_and_variables_of(
    decoder: Any,
) -> tuple[list[keras.layers.Layer], list[keras.Variable]]:
    """Return the outermost layers of a decoder, and the variables that are in none of them.

    Args:
        decoder: A layer, or any object: then those of its attributes, of the attributes of plain
            objects in it, and of lists, tuples and dicts.

    Returns:
        Layers and variables, each once.
    """
    layers: list[keras.layers.Layer] = []
    variables: list[keras.Variable] = []
    seen: set[int] = set()

    def collect(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, keras.Variable):
            variables.append(value)
        elif isinstance(value, keras.layers.Layer):
            layers.append(value)
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)
        elif isinstance(value, list | tuple | set):
            for item in value:
                collect(item)
        elif hasattr(value, "__dict__") and not isinstance(value, _OPAQUE):
            collect(vars(value))

    collect(decoder)
    return layers, variables


_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType)


def _has_layers(value: Any) -> bool:
    is_decoder = hasattr(type(value), "decode_step") and hasattr(value, "__dict__")
    return isinstance(value, keras.layers.Layer) or is_decoder


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes that may hold layers, public names first.

    Keras and TensorFlow list the same layers again in private attributes. Torch keeps the layers of
    a module in a separate dict.
    """
    attributes = vars(value)
    attributes = {**attributes.get("_modules", {}), **attributes}
    names = sorted(attributes, key=lambda name: name.startswith("_"))
    return {name: attributes[name] for name in names if name not in ("_modules", "_tracker")}


def _copy(value: Any, kind: type, attributes: dict[str, Any]) -> Any:
    """Return a copy of an object, without the tracking of Keras and of its backends."""
    copy: Any = object.__new__(kind)
    vars(copy).update(vars(value))
    vars(copy).update(attributes)
    return copy


VOCABULARY_PROJECTION = "vocabulary_projection"
"""The attribute of a decoder whose `Projection` is one on the vocabulary."""


class ListedTokens(NamedTuple):
    """The tokens of a shortlist.

    Args:
        tokens: `(M,)` int32.
        vocabulary_size: Number of all tokens, V.
    """

    tokens: Tensor
    vocabulary_size: int


class TransposedEmbedding(PositionalEmbedding):
    """A view of an embedding whose logits read a table that was transposed before the loop.

    The view has these attributes besides the layer's own: `table`, `(M, D)`, of the tokens whose
    logits are computed, in the compute dtype; `transposed_table`, `(D, M)`; and `logits_bias`,
    `(M,)`, or `None`.
    """

    table: Tensor
    transposed_table: Tensor

    def _product(self, x: Tensor) -> Tensor:
        return project(x, self.transposed_table, vocabulary_axis=1)


class ShortlistProjection(Projection):
    """A view of a projection that computes some units only: those of `columns`, `(D, M)`.

    It has these attributes besides the layer's own: `columns`, and `column_bias`, `(M,)` or 0.
    """

    columns: Tensor
    column_bias: Tensor | float

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project `(N, D)` to `(N, M)`."""
        return ops.matmul(ops.cast(inputs, self.compute_dtype), self.columns) + self.column_bias


def transposed_embedding(
    layer: PositionalEmbedding,
    listed: ListedTokens | None,
    transposed_table: Tensor | None,
    kind: type[TransposedEmbedding] = TransposedEmbedding,
) -> Any:
    """Return the substitute of an embedding, or itself if it is of another vocabulary.

    Its logits are those of the listed tokens, or of all. The transposed table, `(D, V)`, is that of
    all tokens, where it is there already.
    """
    if listed is not None and layer.vocabulary_size != listed.vocabulary_size:
        return layer
    table, bias = layer.table(), layer.logits_bias
    if bias is not None:
        bias = ops.convert_to_tensor(bias)
    if listed is not None:
        table = ops.take(table, listed.tokens, axis=0)
        bias = None if bias is None else ops.take(bias, listed.tokens)
    if listed is not None or transposed_table is None:
        transposed_table = ops.transpose(table)
    prepared = {"table": table, "transposed_table": transposed_table, "logits_bias": bias}
    return Substitute(kind, prepared)


def is_listed_projection(name: str, layer: Any, listed: ListedTokens) -> bool:
    """Return whether a layer is the projection on the vocabulary of a list."""
    return (
        name == VOCABULARY_PROJECTION
        and type(layer) is Projection
        and layer.quantization_mode is None
        and layer.units == listed.vocabulary_size
    )


def shortlist_projection(layer: Projection, listed: ListedTokens) -> Substitute:
    """Return the substitute of a vocabulary projection, for the tokens of a list."""
    dtype, tokens = layer.compute_dtype, listed.tokens
    columns = ops.take(ops.cast(layer.kernel, dtype), tokens, axis=1)
    bias = ops.take(ops.cast(layer.bias, dtype), tokens) if layer.use_bias else 0.0
    return Substitute(ShortlistProjection, {"columns": columns, "column_bias": bias})
