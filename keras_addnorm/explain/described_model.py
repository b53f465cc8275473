"""A model in plain values, as the page computes it, and the weights that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from keras_addnorm import norms, schemes
from keras_addnorm.explain.steps import require_steps, steps_of
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.attention_config import Learned
from keras_addnorm.layers.feed_forward import get_activation
from keras_addnorm.layers.positions.absolute import Sinusoids
from keras_addnorm.layers.self_attention import MULTI_HEAD_ATTENTION
from keras_addnorm.models import Seq2SeqTransformer

MOST_WEIGHTS = 3_000_000
"""A page of more is too large to be sent, and too slow to type in."""

_NORMS: dict[type[norms.Norm], tuple[str, tuple[str, ...]]] = {
    norms.LayerNorm: ("layer_norm", ("gamma", "beta")),
    norms.RMSNorm: ("rms_norm", ("scale",)),
    norms.ScaleNorm: ("scale_norm", ("scale",)),
    norms.StdLayerNorm: ("std_layer_norm", ("gamma", "beta")),
    norms.DynamicTanh: ("dynamic_tanh", ("alpha", "gamma", "beta")),
    norms.NoNorm: ("none", ()),
}
"""The norms that the page computes, by the names that it knows them by, and their weights."""

_ACTIVATIONS = (
    *("relu", "gelu", "silu", "swish", "tanh", "sigmoid", "linear", "gelu_tanh", "gelu_sigmoid"),
    *("glu", "reglu", "geglu", "geglu_tanh", "swiglu"),
)


@dataclasses.dataclass(frozen=True)
class DescribedModel:
    """A model as the page has it.

    Attributes:
        description: What is computed, in plain values that name arrays.
        arrays: The weights by these names.
    """

    description: dict[str, Any]
    arrays: dict[str, Any]


def describe_model(model: Seq2SeqTransformer) -> DescribedModel:
    """Describe a model for the page.

    Args:
        model: A model whose weights are loaded.

    Returns:
        The description.

    Raises:
        ValueError: If there is something in the model that the page does not compute, by name, or
            the model is too large.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig
        >>> config = Seq2SeqConfig(9, 9, 1, 1, hidden_dim=4, num_heads=2, intermediate_dim=6)
        >>> described = describe_model(Seq2SeqTransformer(config))
        >>> tuple(described.arrays["decoder/table"].shape)
        (9, 4)
    """
    config = model.config
    _require_explainable(model)
    weights = _Arrays()
    tables = {"decoder": weights.keep("decoder/table", model.decoder_embedding.embeddings)}
    tables["encoder"] = tables["decoder"]
    if not config.share_embeddings:
        tables["encoder"] = weights.keep("encoder/table", model.encoder_embedding.embeddings)
    description = {
        "hidden_dim": config.hidden_dim,
        "max_length": config.max_length,
        "num_positions": config.num_positions,
        "start_id": config.start_id,
        "end_id": config.end_id,
        "pad_id": config.pad_id,
        "never_generated": list(config.special_ids.never_generated),
        "scheme": schemes.serialize(model.encoder.scheme)["name"],
        "idea": model.encoder.scheme.idea,
        "norm": model.encoder.norm if isinstance(model.encoder.norm, str) else "",
        "num_weights": int(model.count_params()),
        "encoder": {
            "embedding": _embedding(weights, model.encoder_embedding, tables, "encoder"),
            "stack": _stack(weights, model.encoder, "encoder"),
        },
        "decoder": {
            "embedding": _embedding(weights, model.decoder_embedding, tables, "decoder"),
            "stack": _stack(weights, model.decoder, "decoder"),
        },
        "logits": _logits(weights, model, tables["decoder"]),
    }
    return DescribedModel(description, weights.arrays)


class _Arrays:
    """The weights that a description names."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}

    def keep(self, name: str, array: Any) -> str:
        self.arrays[name] = array
        return name

    def kept_or_none(self, name: str, array: Any) -> str | None:
        return None if array is None else self.keep(name, array)


def _require_explainable(model: Seq2SeqTransformer) -> None:
    """Say all that the page cannot do with a model."""
    refused = [reason for check in _CHECKS for reason in check(model)]
    if refused:
        raise ValueError(
            f"The page cannot run this model: {'; '.join(refused)}. Choose a run without, or "
            "look into it with `keras-addnorm inspect`, which knows every model."
        )


def _of_schemes(model: Seq2SeqTransformer) -> Iterable[str]:
    scheme = model.encoder.scheme
    try:
        require_steps(scheme)
    except ValueError as error:
        yield str(error)


def _of_norms(model: Seq2SeqTransformer) -> Iterable[str]:
    known = ", ".join(name for name, _ in _NORMS.values())
    layers = (layer for layer in model._flatten_layers() if isinstance(layer, norms.Norm))
    for kind in dict.fromkeys(type(layer) for layer in layers):
        if kind not in _NORMS:
            yield f"it does not know the norm {_norm_name(kind)!r}, expected one of {known}"


def _norm_name(kind: type[norms.Norm]) -> str:
    found = (name for name in norms.names() if norms.get(name)().__class__ is kind)
    return next(found, kind.__name__)


def _of_choices(model: Seq2SeqTransformer) -> Iterable[str]:
    config = model.config
    if position_kinds.relative(config.positions) is not None:
        name = config.positions if isinstance(config.positions, str) else config.positions["name"]
        yield f"it does not know the positions {name!r}, expected 'sinusoidal', 'learned' or 'none'"
    if config.self_attention != MULTI_HEAD_ATTENTION:
        yield (
            f"it draws where a decoder looks, and self_attention={config.self_attention!r} has no "
            f"weights that say so, expected {MULTI_HEAD_ATTENTION!r}"
        )
    if config.activation not in _ACTIVATIONS:
        yield (
            f"it does not know the activation {config.activation!r}, expected one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    if config.pruned_sublayers:
        yield f"it draws whole layers, and {', '.join(config.pruned_sublayers)} are pruned"


def _of_size(model: Seq2SeqTransformer) -> Iterable[str]:
    count = int(model.count_params())
    if count > MOST_WEIGHTS:
        yield f"it is for small models, of at most {MOST_WEIGHTS:,} weights, and this has {count:,}"


_CHECKS: tuple[Callable[[Seq2SeqTransformer], Iterable[str]], ...] = (
    _of_schemes,
    _of_norms,
    _of_choices,
    _of_size,
)


def _norm(weights: _Arrays, norm: Any, name: str) -> dict[str, Any] | None:
    if norm is None:
        return None
    kind, names = _NORMS[type(norm)]
    return {
        "kind": kind,
        "epsilon": norm.epsilon,
        **{each: weights.keep(f"{name}/{each}", getattr(norm, each)) for each in names},
    }


def _embedding(weights: _Arrays, layer: Any, tables: dict[str, str], side: str) -> dict[str, Any]:
    positions: dict[str, Any] | None = None
    encoding = layer.position_encoding
    if isinstance(encoding, position_kinds.LearnedPositions):
        table = weights.keep(f"{side}/positions", encoding.embeddings)
        positions = {"kind": "learned", "table": table}
    elif encoding is not None:
        sinusoids = Sinusoids(encoding.layout, encoding.timescales, encoding.offset)
        positions = {
            "kind": "sinusoidal",
            "layout": sinusoids.layout,
            "offset": sinusoids.offset,
            "frequencies": sinusoids.frequencies(layer.hidden_dim).tolist(),
        }
    return {
        "table": tables[side],
        "scale": layer.hidden_dim**0.5 if layer.scale is None else float(layer.scale),
        "positions": positions,
        "norm": _norm(weights, layer.embedding_norm, f"{side}/embedding_norm"),
    }


def _logits(weights: _Arrays, model: Seq2SeqTransformer, table: str) -> dict[str, Any]:
    projection = model.vocabulary_projection
    if projection is None:
        bias = weights.kept_or_none("logits/bias", model.decoder_embedding.logits_bias)
        return {"table": table, "bias": bias}
    return {"projection": _projection(weights, projection, "logits")}


def _projection(weights: _Arrays, layer: Any, name: str) -> dict[str, Any]:
    return {
        "kernel": weights.keep(f"{name}/kernel", layer.kernel),
        "bias": weights.kept_or_none(f"{name}/bias", layer.bias),
    }


def _stack(weights: _Arrays, stack: Any, side: str) -> dict[str, Any]:
    sublayers = [
        _sublayer(weights, layer, name, f"{side}/{index}/{name}")
        for index, layer in enumerate(stack.layers)
        for name in layer.built_sublayers
    ]
    return {
        "embedding_norm": _norm(weights, stack.embedding_norm, f"{side}/start_norm"),
        "sublayers": sublayers,
        "final_norm": _norm(weights, stack.final_norm, f"{side}/final_norm"),
    }


def _sublayer(weights: _Arrays, layer: Any, kind: str, name: str) -> dict[str, Any]:
    add_norm, sublayer = getattr(layer, f"{kind}_add_norm"), getattr(layer, kind)
    scheme = add_norm.scheme
    plan = scheme.plan(add_norm.position)
    parts: dict[str, Any] = {
        slot: _norm(weights, getattr(add_norm, slot), f"{name}/{slot}") for slot in plan.norm_slots
    }
    steps = steps_of(scheme, plan)
    for step in steps:
        if step.operation in ("scale", "gate") and step.weight:
            array = getattr(add_norm, step.weight)
            parts[step.weight] = weights.keep(f"{name}/{step.weight}", array)
    describe = _feed_forward if kind == "feed_forward" else _attention
    return {
        "name": name,
        "kind": kind,
        "steps": [step.to_dict() for step in steps],
        "parts": parts,
        "sublayer": describe(weights, sublayer, name),
    }


def _attention(weights: _Arrays, layer: Any, name: str) -> dict[str, Any]:
    config = layer.attention
    projections = {
        part: _projection(weights, getattr(layer, f"{part}_projection"), f"{name}/{part}")
        for part in ("query", "key", "value", "output")
    }
    return {
        "num_heads": layer.num_heads,
        "num_groups": layer.num_key_value_heads,
        "head_dim": layer.head_width,
        "scale": _number(weights, layer, config.scale, layer.head_width**-0.5, "logit_scale", name),
        "sink": _number(weights, layer, config.sink, None, "sink_logits", name),
        "soft_cap": config.soft_cap,
        "window": config.window,
        "value_residual": config.value_residual,
        **projections,
        "query_norm": _norm(weights, getattr(layer, "query_norm", None), f"{name}/query_norm"),
        "key_norm": _norm(weights, getattr(layer, "key_norm", None), f"{name}/key_norm"),
        "value_norm": _norm(weights, getattr(layer, "value_norm", None), f"{name}/value_norm"),
        "inner_norm": _norm(weights, layer.inner_norm, f"{name}/inner_norm"),
    }


def _number(
    weights: _Arrays, layer: Any, choice: Any, default: float | None, weight: str, name: str
) -> float | str | None:
    """Return a fixed number, or the name of the array of learned ones."""
    if not isinstance(choice, Learned):
        return default if choice is None else float(choice)
    (array,) = (each for each in layer.weights if each.name == weight)
    return weights.keep(f"{name}/{weight}", array)


def _feed_forward(weights: _Arrays, layer: Any, name: str) -> dict[str, Any]:
    is_gated = get_activation(layer.activation).is_gated
    return {
        "activation": layer.activation,
        "intermediate": _projection(weights, layer.intermediate_projection, f"{name}/intermediate"),
        "gate": _projection(weights, layer.gate_projection, f"{name}/gate_kernel")
        if is_gated
        else None,
        "output": _projection(weights, layer.output_projection, f"{name}/output"),
        "inner_norm": _norm(weights, layer.inner_norm, f"{name}/inner_norm"),
    }
