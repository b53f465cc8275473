import numpy as np
import pytest
from keras import ops

from keras_addnorm.layers import Projection
from keras_addnorm.layers.projection import large_kernels_in_slices

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    "shape", [(1, 512), (3, 512), (0, 512), (1, 1, 512), (2, 3, 512), (1, 510)]
)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"activation": "relu"}])
def test_slices_of_a_kernel_give_the_product(shape, is_known, options):
    layer = Projection(256, **options)
    layer.build(shape)
    if layer.bias is not None:
        layer.bias.assign(RANDOM.normal(size=256))
    x = RANDOM.normal(size=shape).astype("float32")
    num_rows = int(np.prod(shape[:-1]))
    kernel, *bias = (weight.astype("float64") for weight in layer.get_weights())
    expected = x.astype("float64") @ kernel + sum(bias)
    if "activation" in options:
        expected = np.maximum(expected, 0.0)
    with large_kernels_in_slices(num_rows if is_known else ops.convert_to_tensor(num_rows)):
        y = layer(x)
    assert y.shape == expected.shape
    np.testing.assert_allclose(ops.convert_to_numpy(y), expected, rtol=1e-4, atol=1e-5)
