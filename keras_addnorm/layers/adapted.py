"""Layers that Keras adapts (LoRA, low-rank adaptation) or quantises, and how they are chosen.

With LoRA, Keras adds two matrices beside a kernel or a table: the layer computes with
`W + (alpha / rank) A B`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_addnorm.basics.dtypes import require_dtype
from keras_addnorm.basics.errors import ERRORS_OF_CONFIGS, ArgumentError

Tensor = Any

_WEIGHTS = {"_kernel": "kernel", "_embeddings": "embeddings"}
"""Attributes of Keras' layers: the variable that LoRA adapts, and the merged weight."""

CALIBRATED = {"gptq": "is_gptq_calibrated", "awq": "is_awq_calibrated"}
"""Modes of Keras that read data, and the attribute that says whether a layer has done so."""


def lora_layers(model: Any) -> list[keras.layers.Layer]:
    """Return the layers of a model, or of a layer, in which LoRA is switched on."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


def lora_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the two matrices that LoRA has added to a layer, A and B."""
    return [
        variable
        for name, variable in vars(layer).items()
        if name.startswith("lora_") and isinstance(variable, keras.Variable)
    ]


def merged_weight(layer: keras.layers.Layer) -> tuple[str, Tensor]:
    """Return the path of the variable that LoRA adapts, and the weight that the layer has."""
    (name,) = (name for name in _WEIGHTS if hasattr(layer, name))
    return getattr(layer, name).path, getattr(layer, _WEIGHTS[name])


def redraw(matrix: keras.Variable) -> None:
    """Draw LoRA's first matrix anew, as `enable_lora` does."""
    matrix.assign(keras.initializers.HeUniform()(matrix.shape, dtype=matrix.dtype))


def quantized_layers(model: Any) -> dict[str, keras.layers.Layer]:
    """Return the quantised layers of a model, by their names in it."""
    return {
        name: layer
        for name, layer in _by_name(model).items()
        if layer.quantization_mode is not None
    }


def quantized_policies(model: Any) -> dict[str, Any]:
    """Return the serialised dtype policies of the quantised layers of a model, by their names."""
    return {
        name: keras.dtype_policies.serialize(layer.dtype_policy)
        for name, layer in quantized_layers(model).items()
    }


def quantize_layers(model: Any, policies: Mapping[str, Any]) -> None:
    """Quantise the layers of a model as `quantized_policies` described them."""
    if not isinstance(policies, Mapping):
        raise ArgumentError(
            f"The file does not say which layers of '{model.name}' are quantised.",
            "a dict of policies by the names of layers",
            value=policies,
        )
    layers = _by_name(model)
    for name, policy in policies.items():
        if name not in layers:
            raise ArgumentError(
                f"The file says that a layer of '{model.name}' is quantised which is not in it.",
                f"one of {', '.join(layers):.200}",
                "Save the quantised model again, with the code that made it.",
                value=name,
            )
        layer, wanted = layers[name], _quantized_policy(name, policy)
        is_plain = layer.built and layer.quantization_mode is None
        if wanted.quantization_mode in CALIBRATED and is_plain:
            _make_calibrated(layer, wanted)
        else:  # Of a layer that is built, Keras quantises the weights with it.
            layer.dtype_policy = wanted


def _quantized_policy(name: str, policy: Any) -> Any:
    """Return the policy of a quantised layer that a file describes; else a `ValueError`."""
    because = None
    try:
        found = keras.dtype_policies.deserialize(policy)
        if isinstance(found, keras.dtype_policies.QuantizedDTypePolicy):
            return found
    except ERRORS_OF_CONFIGS as error:
        because = error
    raise ArgumentError(
        f"The file does not say how the layer '{name}' is quantised.",
        "a policy of Keras for quantised layers, such as QuantizedDTypePolicy with the mode int8",
        "Save the quantised model again.",
        value=policy,
    ) from because


def _make_calibrated(layer: keras.layers.Layer, policy: Any) -> None:
    """Give a dense layer the weights of one that Keras has calibrated, to be loaded."""
    groups: dict[str, Any] = {"dataset": None, "tokenizer": None, "group_size": policy.group_size}
    if policy.quantization_mode == "gptq":
        config = keras.quantizers.GPTQConfig(weight_bits=policy.weight_bits, **groups)
    else:
        config = keras.quantizers.AWQConfig(**groups)
    layer.quantize(policy.quantization_mode, config=config)
    del layer._kernel
    setattr(layer, CALIBRATED[policy.quantization_mode], True)


def _by_name(model: Any) -> dict[str, keras.layers.Layer]:
    # A layer that was built when it was made, an embedding, has no path. Paths begin where the
    # layer was built first, which may be inside of another model.
    above = f"{model.path}/" if model.path else ""
    return {
        (layer.path or layer.name).removeprefix(above): layer for layer in model._flatten_layers()
    }


class LayerOfLayers(keras.layers.Layer):
    """A layer that holds others; a model's file says which of them are quantised, and how.

    Keras restores a layer from its arguments and the shapes that it was built with, and quantises
    none of those inside.
    """

    def __init__(self, *, dtype: Any = None, **kwargs: Any) -> None:
        require_dtype(dtype)
        super().__init__(dtype=dtype, **kwargs)

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes, and which layers inside are quantised, if any are."""
        config = super().get_build_config()
        quantized = quantized_policies(self)
        return {**config, "quantized": quantized} if config and quantized else config

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Make the layers again, and quantise those that were."""
        super().build_from_config(config)
        self.built = True  # as Keras says afterwards
        quantize_layers(self, config.get("quantized", {}))


def chosen_layers(method: str, filters: Any) -> Callable[[keras.layers.Layer], bool]:
    """Return a function: whether a layer has a method of its own, and fits the filters of Keras."""
    if isinstance(filters, str):
        filters = [filters]
    if filters is not None and not callable(filters):
        filters = _patterns(filters)
    # Every layer has a `quantize`, which says that there is none. Keras would warn of each.
    of_all = getattr(keras.layers.Layer, method, None)

    def is_chosen(layer: keras.layers.Layer) -> bool:
        if getattr(type(layer), method, of_all) is of_all:
            return False
        if filters is None or callable(filters):
            return filters is None or bool(filters(layer))
        return any(pattern.search(layer.name) for pattern in filters)

    return is_chosen


def _patterns(filters: Any) -> list[re.Pattern[str]]:
    """Return the regular expressions of a list of names."""
    try:
        return [re.compile(pattern) for pattern in filters]
    except (TypeError, re.error) as error:
        raise ArgumentError(
            "`filters` choose layers by name.",
            "a regular expression, a list of them, a function of a layer, or None",
            received=f"{filters!r:.80} ({error})",
        ) from error
