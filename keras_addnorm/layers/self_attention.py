"""Kinds of self-attention by name: what the first sublayer of a decoder layer computes.

```python
from keras_addnorm.layers import self_attention

self_attention.names()  # ('multi_head_attention', 'ssru', 'average_attention')
```
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from keras_addnorm.basics import Table
from keras_addnorm.layers.attention import MultiHeadSelfAttention
from keras_addnorm.layers.average_attention import AverageAttention
from keras_addnorm.layers.recurrent_attention import (
    DecoderSelfAttentionArguments,
    RecurrentSelfAttention,
)
from keras_addnorm.layers.shapes import ShapeOfInput
from keras_addnorm.layers.ssru import SSRU

SelfAttentionLike: TypeAlias = "str | dict[str, Any]"
"""A name, or a dict of the name and the kind's own fields."""

MULTI_HEAD_ATTENTION = "multi_head_attention"
"""The kind that every encoder has."""


def _own_fields(kind: type[Any]) -> Iterable[str]:
    return kind.choices if issubclass(kind, RecurrentSelfAttention) else ()


_TABLE: Table[Any] = Table(
    "kind of self-attention",
    ShapeOfInput,
    {
        MULTI_HEAD_ATTENTION: MultiHeadSelfAttention,
        "ssru": SSRU,
        "average_attention": AverageAttention,
    },
    fields=_own_fields,
    takes_instances=False,
    module="keras_addnorm.layers.self_attention",
)
names = _TABLE.names
register = _TABLE.register


def kind_of(identifier: SelfAttentionLike) -> type[Any]:
    """Return the class of a kind of self-attention, after a look at its fields.

    Args:
        identifier: A name, or a dict with a name and the kind's own fields.

    Returns:
        The class.

    Raises:
        ValueError: If the name or a field is unknown or does not fit.
    """
    kind, fields = _TABLE.read(identifier)
    if fields:
        make(
            identifier, DecoderSelfAttentionArguments(num_heads=1, intermediate_dim=1)
        )  # checks the values
    return kind


def make(identifier: SelfAttentionLike, arguments: DecoderSelfAttentionArguments) -> Any:
    """Return the self-attention of a decoder layer.

    Args:
        identifier: A name, or a dict with a name and the kind's own fields.
        arguments: What the decoder layer has for it.

    Returns:
        The layer, unbuilt.

    Raises:
        ValueError: If the name or a field is unknown or does not fit.
    """
    kind, fields = _TABLE.read(identifier)
    if not issubclass(kind, RecurrentSelfAttention):
        return kind(**arguments.for_attention())
    return kind.in_block(arguments, **fields)
