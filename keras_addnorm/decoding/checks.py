"""Checks of arguments, and token ids as users pass them: checked, and padded to few shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding.decoder import DecoderInfo

T = TypeVar("T")

WHERE_TO_LOOK = (
    "Look for NaN among the weights, which training may have left there, and for an overflow if "
    "the model computes in float16: bfloat16 and float32 hold larger numbers."
)
"""What helps where a model has computed something that is no number."""


def require_type(what: str, value: T, *types: type) -> T:
    """Return a value, or raise a `ValueError` if it is of none of some types."""
    if not isinstance(value, types):
        names = " or ".join(each.__name__ for each in types)
        raise ArgumentError(f"{what} is of another type.", f"a {names}", value=value)
    return value


def listed(what: str, values: Any) -> tuple[Any, ...]:
    """Return several values as a tuple, or raise a `ValueError` if they are no list."""
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise ArgumentError(
            f"{what} come in a list.",
            "a list or a tuple, () for none",
            "Put a single one into a list: [...].",
            value=values,
        )
    return tuple(values)


def require_layer(layer: Any) -> None:
    """Raise a `ValueError` unless a decoder layer is named by an int, -1 for the last."""
    if not is_whole(layer):
        raise ArgumentError(
            "A decoder layer is named by its index.", "an int `layer`, -1 for the last", layer=layer
        )


_LENGTH_MULTIPLE = 16
# Searches and scores count in int32, whatever comes in.
_LARGEST_ID = 2**31 - 1


def id_array(side: str, ids: Any) -> np.ndarray:
    """Return ids as an array of any shape, or raise a `ValueError` if rows have several lengths."""
    try:
        return np.asarray(ids)
    except ValueError as error:
        raise ArgumentError(
            f"{side.capitalize()} ids have to be one array.",
            "rows of one length, filled up with padding",
            received=f"rows of several lengths: {ids!r:.80}",
        ) from error


def check_source_ids(source_ids: Any, info: DecoderInfo) -> np.ndarray:
    """Return source ids `(B, S)` as an array, or raise a `ValueError` that says what is wrong."""
    array = id_array("source", source_ids)
    _check_dtype("source", array)  # Texts have a single axis.
    if array.ndim != 2:
        raise ArgumentError(
            "Source ids need two axes.",
            "shape (batch, length)",
            "For one sentence, add a batch axis: ids[None]",
            value=array.shape,
        )
    check_ids("source", array, info.source_vocabulary_size)
    check_padding("source", array, info.pad_id)
    check_length("source", array.shape[1], info.num_positions)
    return array


def check_ids(side: str, array: np.ndarray, vocabulary_size: int | None) -> None:
    """Raise a `ValueError` unless all ids of a side are integers inside its vocabulary.

    Of a vocabulary of unknown size they have to be those of an int32.
    """
    _check_dtype(side, array)
    if array.size == 0:
        return
    limit = _LARGEST_ID + 1 if vocabulary_size is None else vocabulary_size
    if not (array.min() >= 0 and array.max() < limit):
        raise ArgumentError(
            f"A {side} id lies outside the vocabulary.",
            f"0 <= id < {limit}",
            "Is this the model's own tokenizer?",
            received=f"ids from {array.min()} to {array.max()}",
        )


def _check_dtype(side: str, array: np.ndarray) -> None:
    if not np.issubdtype(array.dtype, np.integer):
        raise ArgumentError(
            f"{side.capitalize()} ids have to be integers.",
            "a dtype such as int32",
            "Text goes through keras_addnorm.decoding.translate.",
            received=str(array.dtype),
        )


def check_padding(side: str, array: np.ndarray, pad_id: int, num_real: int = 0) -> None:
    """Raise unless padding stands behind the tokens of each row.

    Positions are counted from the left, and most kinds of them would make another sentence of one
    that begins with padding.

    Args:
        side: "source" or "target".
        array: The ids, `(..., T)`.
        pad_id: The padding.
        num_real: How many first columns are real whatever their ids.

    Raises:
        ValueError: If it does not; says in which row.
    """
    is_token = array[..., num_real:] != pad_id
    goes_on = (is_token[..., 1:] & ~is_token[..., :-1]).any(-1)
    if goes_on.any():
        raise ArgumentError(
            f"Padding stands before or between the tokens of a {side} row.",
            f"padding, {pad_id}, behind the last token only",
            "Move it to the end of the row.",
            value=array[goes_on][0].tolist(),
        )


def check_length(side: str, length: int, num_positions: int | None) -> None:
    """Raise a `ValueError` if rows are longer than the table of learned positions, if any."""
    if num_positions is not None and length > num_positions:
        raise ArgumentError(
            f"The {side} rows are longer than the table of learned positions.",
            f"at most {num_positions} positions",
            "Shorten them, or make the model with a larger `max_length` or another kind of "
            "positions.",
            received=f"{length}, padding included",
        )


def check_layer(layer: int, config: Any) -> None:
    """Raise a `ValueError` unless a decoder layer has a cross-attention to ask."""
    if config is None:  # Of a decoder of one's own.
        return
    depth = config.num_decoder_layers
    if not -depth <= layer < depth:
        raise ArgumentError(
            "There is no such decoder layer.", f"{-depth} <= `layer` < {depth}", layer=layer
        )
    if f"decoder/{layer % depth}/cross_attention" in config.pruned_sublayers:
        raise ArgumentError(
            "This decoder layer does not look at the source: its cross-attention was pruned.",
            "another layer",
            "Name one in decoding.Details(layer=...) or CoveragePenalty(beta, layer=...).",
            value=layer,
        )


def padded_length(length: int, info: DecoderInfo) -> int:
    """Return the length that rows of a length are padded to: a multiple of 16."""
    padded = _LENGTH_MULTIPLE * max(1, -(-length // _LENGTH_MULTIPLE))
    # Padding takes positions too: it must not run out of the table of learned ones.
    if info.num_positions is None:
        return padded
    return max(length, min(padded, info.num_positions))


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int, num_rows: int | None = None) -> np.ndarray:
    """Return rows of ids as an int32 array, padded to the longest, with empty rows up to a number.

    Args:
        rows: The ids of each row, at least one row.
        pad_id: What they are padded with.
        num_rows: Number of rows of the array; `None` for those that there are.

    Returns:
        `(num_rows, length of the longest row, or 1)`.
    """
    array = np.full((num_rows or len(rows), max(1, *map(len, rows))), pad_id, "int32")
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def pad_batch(array: np.ndarray, length: int, pad_id: int) -> np.ndarray:
    """Return ids `(B, ..., T)` with rows of `length` and a power of two of sentences, int32."""
    batch_size = 1 << (len(array) - 1).bit_length()
    padded = np.full((batch_size, *array.shape[1:-1], length), pad_id, dtype="int32")
    padded[: len(array), ..., : array.shape[-1]] = array
    return padded
