"""Hooks on calls of single layers: attention, feed-forward layers, norms, Add & Norm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_addnorm.layers.attention import MultiHeadAttention
from keras_addnorm.layers.feed_forward import FeedForward
from keras_addnorm.layers.shapes import pack
from keras_addnorm.layers.sublayers import named_add_norms, named_sublayers

Tensor = Any
Call = Callable[..., Any]


@contextlib.contextmanager
def watch_attention(model: Any) -> Iterator[dict[str, Tensor]]:
    """Keep the attention weights of every attention of a model.

    Args:
        model: A built model; see `observe`.

    Yields:
        The latest weights, `(B, H, T, S)`, by sublayer; empty until the model is called.
    """
    weights: dict[str, Tensor] = {}

    def watched(name: str, call: Call) -> Call:
        def with_weights(*args: Any, return_attention_scores: bool = False, **kwargs: Any) -> Any:
            y, weights[name], *cache = call(*args, return_attention_scores=True, **kwargs)
            return pack(y, weights[name] if return_attention_scores else None, *cache)

        return with_weights

    layers = {
        name: sublayer.layer
        for name, sublayer in named_sublayers(model).items()
        if isinstance(sublayer.layer, MultiHeadAttention)
    }
    with _calls_replaced(layers, watched):
        yield weights


@contextlib.contextmanager
def watch_feed_forward(model: Any) -> Iterator[dict[str, Tensor]]:
    """Keep the activations inside every feed-forward sublayer of a model.

    Args:
        model: A built model; see `observe`.

    Yields:
        The latest activations `(B, T, F)`, after the nonlinearity (and the gate), by sublayer;
        empty until the model is called.
    """
    activations: dict[str, Tensor] = {}

    def watched(name: str, call: Call) -> Call:
        def with_input(inputs: Tensor, *args: Any, **kwargs: Any) -> Any:
            activations[name] = inputs
            return call(inputs, *args, **kwargs)

        return with_input

    # The first reader of the activations: the inner norm of Sub-LN, or the projection.
    layers = {
        name: sublayer.layer.inner_norm or sublayer.layer.output_projection
        for name, sublayer in named_sublayers(model).items()
        if isinstance(sublayer.layer, FeedForward)
    }
    with _calls_replaced(layers, watched):
        yield activations


@contextlib.contextmanager
def watch_norms(model: Any) -> Iterator[dict[tuple[str, str], tuple[Tensor, Tensor]]]:
    """Keep what goes into and out of the norms of every Add & Norm of a model.

    Args:
        model: A built model; see `observe`.

    Yields:
        The latest input and output by sublayer and slot, such as
        `("encoder/0/feed_forward", "pre_norm")`; empty until the model is called.
    """
    seen: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def watched(key: tuple[str, str], call: Call) -> Call:
        def with_both(inputs: Tensor, *args: Any, **kwargs: Any) -> Any:
            outputs = call(inputs, *args, **kwargs)
            seen[key] = inputs, outputs
            return outputs

        return with_both

    with _calls_replaced(norms_of(model), watched):
        yield seen


@contextlib.contextmanager
def gate_branches(model: Any, gates: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the outputs of sublayers through, or put zeros in their place where a gate is 0."""

    def gated(name: str, call: Call) -> Call:
        def with_gate(state: Any, branch: Tensor, *args: Any) -> Any:
            # Not a product: an output that is not finite is skipped as well.
            branch = ops.where(gates[name] != 0, branch, ops.zeros_like(branch))
            return call(state, branch, *args)

        return with_gate

    add_norms = named_add_norms(model)
    with _calls_replaced({name: add_norms[name] for name in gates}, gated, "write"):
        yield


def norms_of(model: Any) -> dict[tuple[str, str], keras.layers.Layer]:
    """Return the norm layers of every Add & Norm of a model, by sublayer and slot."""
    slots = ("pre_norm", "branch_norm", "post_norm")
    return {
        (name, slot): norm
        for name, sublayer in named_sublayers(model).items()
        for slot in slots
        if isinstance(norm := getattr(sublayer.add_norm, slot, None), keras.layers.Layer)
    }


@contextlib.contextmanager
def _calls_replaced(
    layers: Mapping[Any, keras.layers.Layer],
    replace: Callable[[Any, Call], Call],
    method: str = "call",
) -> Iterator[None]:
    """Gives each layer a method of its own, which hides that of its class until the block ends."""
    own = {key: vars(layer).get(method) for key, layer in layers.items()}
    try:
        for key, layer in layers.items():
            setattr(layer, method, replace(key, getattr(layer, method)))
        yield
    finally:
        for key, layer in layers.items():
            if own[key] is not None:
                setattr(layer, method, own[key])
            elif method in vars(layer):
                delattr(layer, method)
