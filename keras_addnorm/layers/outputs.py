"""The return values of layers: the output, then attention weights and cache where asked for."""

from __future__ import annotations

from typing import Any

Tensor = Any


def pack(y: Tensor, scores: Any = None, cache: Any = None) -> Any:
    """Return `y` alone, or a tuple of `y` and whatever else is not `None`, in this order."""
    outputs = tuple(item for item in (y, scores, cache) if item is not None)
    return y if len(outputs) == 1 else outputs


def unpack(outputs: Any, has_scores: bool, has_cache: bool) -> tuple[Tensor, Any, Any]:
    """Return output, scores and cache, `None` for what was not asked for."""
    if not (has_scores or has_cache):
        return outputs, None, None
    y, *rest = outputs
    scores = rest.pop(0) if has_scores else None
    return y, scores, rest.pop() if has_cache else None
