"""The largest of many numbers, as a stable sort finds them."""

import numpy as np
import pytest
from keras import ops

from keras_addnorm.decoding.tensor_ops import _block_size, best_first, select


@pytest.mark.parametrize("shape", [(7,), (1024,), (4099,), (6144,), (3, 50), (2, 3000), (2, 4099)])
@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("values", [2, 5, 10**6])
def test_as_a_stable_sort(shape, count, values):
    """Few values make many equals, within the blocks that are looked at as one and across them."""
    numbers = np.random.default_rng(sum(shape) + count).integers(0, values, (11, *shape))
    numbers = numbers.reshape(11, -1)
    scores = (-numbers).astype("float32")
    expected = np.argsort(numbers, axis=1, kind="stable")[:, :count]
    best = best_first(ops.convert_to_tensor(scores), count, line=shape[-1])
    found, order = map(ops.convert_to_numpy, best)
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, expected, axis=1))


@pytest.mark.parametrize(
    ("width", "expected"), [(8000, 64), (6000, 60), (10000, 50), (33 * 127, 33), (4099, 64)]
)
def test_blocks_end_where_lines_end(width, expected):
    assert _block_size(width) == expected


def test_what_cannot_happen_comes_last_and_in_its_place():
    """What is behind a line's end is never taken, even if only minus infinities are left."""
    scores = np.full((3, 4 * 2003), -np.inf, "float32")
    scores[:, 2001] = 1.0
    found, order = best_first(ops.convert_to_tensor(scores), 5, line=2003)
    np.testing.assert_array_equal(ops.convert_to_numpy(order), [[2001, 0, 1, 2, 3]] * 3)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), [[1.0] + 4 * [-np.inf]] * 3)


@pytest.mark.parametrize("further", [(), (4,), (4, 2)])
def test_select_takes_entries_of_each_row(further):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(5, 7, *further)).astype("float32")
    order = rng.integers(0, 7, (5, 3)).astype("int32")
    expected = np.stack([row[own] for row, own in zip(rows, order, strict=True)])
    found = select(ops.convert_to_tensor(rows), ops.convert_to_tensor(order))
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
