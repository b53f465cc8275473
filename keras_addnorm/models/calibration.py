"""How calibration pairs pass through a model while Keras quantises it by GPTQ or AWQ.

Keras cuts a list of ids into windows, hands each to the layers before the blocks, and the result
from block to block. The blocks here are the two stacks, and what is handed on are the pairs that
are whole in the window, each with its own length: padding would count as text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.decoding.checks import check_ids

Tensor = Any
_MOST_ZERO_POINT = 255
_BLOCK = 128  # inputs that Keras' GPTQ takes at a time


class Pairs(NamedTuple):
    """The pairs of a window: ids or memory of the source, and ids of the target, a row each."""

    rows: tuple[tuple[Tensor, Tensor], ...]

    @property
    def shape(self) -> tuple[int]:
        """What Keras asks for, to give windows of two axes a third."""
        return (len(self.rows),)


class Block(NamedTuple):
    """A stack as Keras goes through it: its layers, and what it makes of the pairs."""

    stack: Any
    run: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

    def __call__(self, pairs: Pairs) -> tuple[Pairs]:
        """Run the stack on each pair."""
        return (Pairs(tuple(self.run(*row) for row in pairs.rows)),)

    def _flatten_layers(self) -> Iterator[Any]:
        yield from self.stack._flatten_layers()


def quantization_structure(model: Any) -> dict[str, list[Any]]:
    """Return what `keras.Model.get_quantization_layer_structure` asks for."""
    config = model.config
    if config.start_id == config.end_id:
        raise ArgumentError(
            "Sources and targets cannot be told apart in a list of ids: a target of this model "
            "begins with the token at which texts end.",
            "a model with `start_id` != `end_id`",
            'Quantise with "int8" or "int4".',
            value=config.start_id,
        )

    def encoded(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return model.encode(source)[0], target

    def decoded(memory: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return model.decoder(model.decoder_embedding(target), memory), target

    def pairs(window: Tensor) -> Pairs:
        return Pairs(
            tuple(
                (ops.convert_to_tensor(source[None]), ops.convert_to_tensor(target[None]))
                for source, target in _whole_pairs(ops.convert_to_numpy(window)[0], config)
            )
        )

    blocks = [Block(model.encoder, encoded), Block(model.decoder, decoded)]
    return {"pre_block_layers": [pairs], "sequential_blocks": blocks}


def require_storable(kernels: Iterable[Any], config: Any) -> None:
    """Refuse kernels of which Keras could not store what it computes, before it changes any.

    GPTQ without groups computes scales for each block of 128 inputs, and stores those of one. A
    zero point is `round(-min / scale)` of the weights that share it, kept in eight bits without a
    sign. Where all of them have one sign it lies outside, Keras takes the bits that are left, and
    the weights come back as others.

    Args:
        kernels: The layers that are to be quantised.
        config: The `GPTQConfig` or `AWQConfig`.

    Raises:
        ValueError: If there is such a kernel.
    """
    for layer in kernels:
        kernel = to_numpy(layer.kernel)
        if config.mode == "gptq" and config.group_size == -1 and len(kernel) > _BLOCK:
            raise ArgumentError(
                f"{layer.path!r} has {len(kernel)} inputs, and Keras' GPTQConfig without groups "
                f"takes {_BLOCK} at most.",
                f"a `group_size` such as 32 or {_BLOCK}",
                value=config.group_size,
            )
        size = len(kernel) if config.group_size == -1 else config.group_size
        for start in range(0, len(kernel), size):
            low, high = (find(kernel[start : start + size], axis=0) for find in (np.min, np.max))
            scale = np.maximum(high - low, 1e-30) / (2**config.weight_bits - 1)
            zero = np.where(low == high, 0, np.round(-low / scale))
            if np.any((zero < 0) | (zero > _MOST_ZERO_POINT)):
                raise ArgumentError(
                    f"The weights of one output of {layer.path!r} all have the same sign, which "
                    f"Keras' {type(config).__name__} cannot store.",
                    "weights of both signs in each group",
                    "Choose a larger `group_size` in it, leave the layer out with `filters`, or "
                    'quantise with "int8" or "int4".',
                    received=f"{size} weights a group",
                )


def _whole_pairs(ids: np.ndarray, config: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs in `source, end, start, target, end, source, ...`; parts at the ends go."""
    texts = np.split(ids, np.flatnonzero(ids == config.end_id) + 1)[:-1]
    longest = config.max_length
    found = [
        (source, target[:-1])  # A decoder does not read the end.
        for source, target in itertools.pairwise(texts)
        if target[0] == config.start_id != source[0]
        and len(source) <= longest
        and len(target) - 1 <= longest
    ]
    if not found:
        raise ArgumentError(
            "A window of the calibration data holds no whole pair.",
            "ids of source, end, start, target and end for each pair, one behind another, and a "
            "`sequence_length` of several pairs",
            received=f"{len(ids)} ids, {len(texts)} of them ends",
        )
    # Keras makes int32 of whatever there is; an embedding would take what lies outside for others.
    for side, size, rows in zip(
        ("source", "target"),
        (config.source_vocabulary_size, config.target_vocabulary_size),
        zip(*found, strict=True),
        strict=True,
    ):
        check_ids(side, np.concatenate(rows), size)
    return found
