"""The verdict on layers used one by one, without the norm that ends a stack of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_addnorm.diagnostics.report_data import Verdict
from keras_addnorm.layers.final_norm import last_without_final_norm
from keras_addnorm.layers.sublayers import Sublayer


def missing_final_norm(model: Any, sublayers: Mapping[str, Sublayer]) -> tuple[Verdict, ...]:
    """Return the verdict that a model lacks a final norm, or none."""
    last = last_without_final_norm(model)
    if last is None:
        return ()
    inside = {id(layer) for layer in (last, *last._flatten_layers())}
    names = [name for name, sublayer in sublayers.items() if id(sublayer.add_norm) in inside]
    return (
        Verdict(
            kind="no_final_norm",
            sublayers=tuple(names[-1:]),
            text=f"No norm follows '{last.name}', and {last.scheme!r} leaves the stream to one at "
            "the end of the stack.",
            threshold="such a layer stands outside a stack, and no norm layer beside it",
            advice="Put keras.layers.LayerNormalization(epsilon=1e-6) behind the last layer, or "
            "use a TransformerEncoder(num_layers=...) or TransformerDecoder, which has it. A norm "
            "inside a layer of your own is not seen: then all is well.",
        ),
    )
