"""Tables of weights, ours beside theirs, read in both directions."""

from __future__ import annotations

import abc
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.tensor_files import StoredTensor
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.models.first_values import built_with

Shape = tuple[int, ...]


class Form(abc.ABC):
    """How the same numbers lie in a file of a family and in our model."""

    @abc.abstractmethod
    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers as ours lie."""

    @abc.abstractmethod
    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers as theirs lie."""


@dataclasses.dataclass(frozen=True)
class Transposed(Form):
    """Kernels of torch are (out, in), ours (in, out)."""

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Swap the axes."""
        return numbers.T

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Swap the axes."""
        return numbers.T


@dataclasses.dataclass(frozen=True)
class Scaled(Form):
    """Ours are theirs times a factor."""

    factor: float

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Multiply."""
        return numbers * np.float32(self.factor)

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Divide."""
        return numbers / np.float32(self.factor)


@dataclasses.dataclass(frozen=True)
class FirstRowsUnused(Form):
    """Theirs has rows in front that nothing reads."""

    count: int

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Leave them out."""
        return numbers[self.count :]

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Put zeros in front."""
        return np.concatenate([np.zeros_like(numbers[: self.count]), numbers])


@dataclasses.dataclass(frozen=True)
class OneMore(Form):
    """Ours has one more entry at the end.

    Attributes:
        value: Each of its numbers.
    """

    value: float = 0.0

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Append it."""
        return np.concatenate([numbers, np.full_like(numbers[:1], self.value)])

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Leave it out."""
        return numbers[:-1]


@dataclasses.dataclass(frozen=True)
class PlacedRows(Form):
    """Ours has their rows at other places, and more of its own.

    Attributes:
        ids: Where ours has each of theirs.
        size: How many rows ours has.
        value: Each number of a row that only ours has.
    """

    ids: tuple[int, ...]
    size: int
    value: float = 0.0

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Put the rows into their places."""
        found = np.full((self.size, *numbers.shape[1:]), self.value, numbers.dtype)
        found[list(self.ids)] = numbers
        return found

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Take the rows in their order."""
        return numbers[list(self.ids)]


@dataclasses.dataclass(frozen=True)
class OneRow(Form):
    """Theirs is a matrix of one row, ours a vector."""

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Return the row."""
        return numbers.reshape(-1)

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Return a matrix."""
        return numbers.reshape(1, -1)


@dataclasses.dataclass(frozen=True)
class PairsOfChannels(Form):
    """Theirs turns neighbouring channels of a head, `2i` and `2i + 1`; ours `i` and `i + K/2`.

    Attributes:
        head_dim: Width of a head, K. Heads stand one below the other on the first axis.
    """

    head_dim: int

    def to_ours(self, numbers: np.ndarray) -> np.ndarray:
        """Put the first channels of all pairs of a head before the second ones."""
        return self._with_axes_swapped(numbers, (self.head_dim // 2, 2))

    def to_theirs(self, numbers: np.ndarray) -> np.ndarray:
        """Put the channels of a pair beside each other."""
        return self._with_axes_swapped(numbers, (2, self.head_dim // 2))

    @staticmethod
    def _with_axes_swapped(numbers: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
        heads = numbers.reshape(-1, *pair, *numbers.shape[1:])
        return heads.swapaxes(1, 2).reshape(numbers.shape)


TRANSPOSED = Transposed()
ONE_ROW = OneRow()

NEVER = -100.0
"""The logit of an id that theirs does not have: nothing in a softmax. It is no lower, since label
smoothing reads the mean of all logits."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor of a file, and the weights of ours that it holds.

    Attributes:
        ours: Paths of weights in the model, such as `"encoder.layers.0.feed_forward.
            output_projection.kernel"`. Several stand one below the other in the file, in equal
            parts of its first axis.
        theirs: The name in the file.
        forms: What changes between theirs and ours, in this order.
        is_optional: Whether a file may lack it: ours are zeros then, such as biases that a model
            does not have in every projection.
    """

    ours: tuple[str, ...]
    theirs: str
    forms: tuple[Form, ...] = ()
    is_optional: bool = False

    def to_ours(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return what each weight of ours is."""
        parts = np.split(numbers, len(self.ours)) if len(self.ours) > 1 else [numbers]
        for form in self.forms:
            parts = [form.to_ours(part) for part in parts]
        return parts

    def to_theirs(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return what the file holds."""
        parts = list(parts)
        for form in reversed(self.forms):
            parts = [form.to_theirs(part) for part in parts]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


@dataclasses.dataclass(frozen=True)
class Extra:
    """A tensor that files may hold besides, and that no weight of ours is made of.

    Attributes:
        pattern: A regular expression of its whole name.
        same_as: The tensor that it has to be equal to; "" for one that nothing reads.
        value: The numbers that it has to be close to, where they follow from the config.
    """

    pattern: str
    same_as: str = ""
    value: Callable[[Shape], np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class WeightTable:
    """All tensors of a file.

    Attributes:
        rows: Those that weights of ours are made of.
        extras: Those that a file may hold besides.
    """

    rows: tuple[Row, ...]
    extras: tuple[Extra, ...] = ()

    def named(self, tensors: Mapping[str, StoredTensor], family: str) -> dict[str, StoredTensor]:
        """Return the tensors of a file with all names of the rows.

        A file may hold a tensor under one of its names only.

        Args:
            tensors: The tensors of the file.
            family: The name of the family, for messages.

        Returns:
            The tensors.

        Raises:
            ValueError: If tensors are missing, or some are not known: all of them at once.
        """
        known = {row.theirs for row in self.rows}
        found = dict(tensors)
        for extra in self.extras:
            for name in tensors:
                if extra.same_as in known and re.fullmatch(extra.pattern, name):
                    found.setdefault(extra.same_as, tensors[name])
        tensors = found
        missing = [
            row.theirs for row in self.rows if row.theirs not in tensors and not row.is_optional
        ]
        unknown = [
            name
            for name in tensors
            if name not in known
            and not any(re.fullmatch(each.pattern, name) for each in self.extras)
        ]
        problems = [
            f"{what}: {_some(names)}"
            for what, names in (("missing", missing), ("not known", unknown))
            if names
        ]
        if problems:
            raise ArgumentError(
                f"The tensors are not those of a {family} model of this config.",
                str(len(known)),
                received=f"{len(tensors)}; {'; '.join(problems)}",
            )
        return found

    def load(
        self, make: Callable[[], Seq2SeqTransformer], tensors: Mapping[str, StoredTensor]
    ) -> Seq2SeqTransformer:
        """Make a model with the numbers of a file, one tensor after the other."""
        return built_with(make, lambda model: self._reads(model, tensors))

    def _reads(
        self, model: Seq2SeqTransformer, tensors: Mapping[str, StoredTensor]
    ) -> dict[int, Callable[[], np.ndarray]]:
        """Return what reads the numbers of each weight, by its `id`."""
        problems = []
        reads: dict[int, Callable[[], np.ndarray]] = {}
        for row in self.rows:
            weights = [weight_at(model, path) for path in row.ours]
            shapes = [tuple(weight.shape) for weight in weights]
            if row.theirs not in tensors:  # It is optional.
                for weight, shape in zip(weights, shapes, strict=True):
                    reads[id(weight)] = functools.partial(np.zeros, shape, "float32")
                continue
            received = tensors[row.theirs].shape
            if not _fits(row, received, shapes):
                expected = self._shape(row, shapes)
                problems.append(f"{row.theirs} has the shape {received}; expected {expected}")
            for part, weight in enumerate(weights):
                reads[id(weight)] = functools.partial(_part, row, tensors[row.theirs], part)
        if problems:
            raise ValueError(
                f"The tensors have other shapes than the config says: {_some(problems)}."
            )
        if left := [weight.path for weight in model.weights if id(weight) not in reads]:
            raise ValueError(
                f"The model has weights that its file says nothing of: {_some(left)}. "
                "The config is not one of this family."
            )
        for name, tensor in tensors.items():
            self._check_extra(name, tensor, tensors)
        return reads

    def shapes(self, model: Seq2SeqTransformer) -> dict[str, Shape]:
        """Return the shape of each tensor of the file of a model.

        Args:
            model: The model.

        Returns:
            The shapes by the names of the file.

        Raises:
            ValueError: If the model has weights that the file has no place for.
        """
        places = {id(weight_at(model, path)) for row in self.rows for path in row.ours}
        if left := [weight.path for weight in model.weights if id(weight) not in places]:
            raise ArgumentError(
                f"A file of this family has no place for some weights: {_some(left)}.",
                "a model as the family has it",
                "Use keras_addnorm.serving.export_saved_model, which exports every model.",
                received="one of another scheme, norm or attention",
            )
        return {
            row.theirs: self._shape(row, [tuple(weight_at(model, path).shape) for path in row.ours])
            for row in self.rows
        }

    def read(self, model: Seq2SeqTransformer, name: str) -> np.ndarray:
        """Return a tensor for the file of a model."""
        row = self._by_name[name]
        weights = (weight_at(model, path) for path in row.ours)
        return row.to_theirs([np.asarray(ops.convert_to_numpy(each)) for each in weights])

    @functools.cached_property
    def _by_name(self) -> dict[str, Row]:
        return {row.theirs: row for row in self.rows}

    @staticmethod
    def _shape(row: Row, shapes: Iterable[Shape]) -> Shape:
        return row.to_theirs([_without_memory(shape) for shape in shapes]).shape

    def _check_extra(
        self, name: str, tensor: StoredTensor, tensors: Mapping[str, StoredTensor]
    ) -> None:
        for extra in self.extras:
            if not re.fullmatch(extra.pattern, name):
                continue
            if extra.same_as:
                # One table under several names, as torch writes it, need not be read.
                source = tensors[extra.same_as]
                if tensor != source and not np.array_equal(tensor.floats(), source.floats()):
                    raise _no_copy(name, f"those of '{extra.same_as}'")
            elif extra.value is not None and not _are_close(tensor, extra.value(tensor.shape)):
                raise _no_copy(name, "those of its formula")
            return


def weight_at(model: Seq2SeqTransformer, path: str) -> Any:
    """Return the weight at a path of attributes and indices."""
    found: Any = model
    for step in path.split("."):
        found = found[int(step)] if step.isdecimal() else getattr(found, step)
    return found


def _without_memory(shape: Shape) -> np.ndarray:
    """Return an array that repeats one number."""
    return np.broadcast_to(np.float32(0), shape)


def _fits(row: Row, received: Shape, shapes: Sequence[Shape]) -> bool:
    """Return whether a tensor of some shape is what weights of these shapes are made of."""
    try:
        return [part.shape for part in row.to_ours(_without_memory(received))] == list(shapes)
    except (ValueError, IndexError):
        return False


def _part(row: Row, tensor: StoredTensor, part: int) -> np.ndarray:
    """Return what one weight of a row is."""
    return np.ascontiguousarray(row.to_ours(tensor.floats())[part])


def _are_close(tensor: StoredTensor, expected: np.ndarray) -> bool:
    # What a formula gives depends on who computed it.
    return tensor.shape == expected.shape and bool(
        np.allclose(tensor.floats(), expected, rtol=0, atol=1e-3)
    )


def _no_copy(name: str, expected: str) -> ValueError:
    return ValueError(
        f"The tensor '{name}' is no copy. Expected the numbers to be {expected}. A model whose "
        "copies differ has no place in our config."
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - 12
    return ", ".join(names[:12]) + (f" and {more} more" if more > 0 else "")
