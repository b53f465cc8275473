import numpy as np
import pytest
from keras import ops

from keras_addnorm.layers import MultiHeadSelfAttention, Projection
from keras_addnorm.layers.projection import large_kernels_in_slices, project_jointly

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


def made_attention(groups, use_bias=True):
    attention = {"num_key_value_heads": groups}
    layer = MultiHeadSelfAttention(4, use_bias=use_bias, attention=attention)
    layer.build((None, None, 12))
    for weight in layer.weights:
        weight.assign(RANDOM.normal(size=weight.shape))
    return layer


def projections_of(layer):
    return [layer.query_projection, layer.key_projection, layer.value_projection]


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("has_lora", [True, False])
def test_projections_at_once_are_those_one_by_one(groups, use_bias, has_lora):
    layer = made_attention(groups, use_bias)
    projections = projections_of(layer)
    if has_lora:
        layer.key_projection.enable_lora(2)
        layer.key_projection.lora_kernel_b.assign(RANDOM.normal(size=(2, groups * 3)))
    weights = layer.joined_weights()
    assert [weight.shape for weight in weights] == [(12, 12 + 6 * groups), (12 + 6 * groups,)][
        : 1 + use_bias
    ]
    x = RANDOM.normal(size=(2, 5, 12)).astype("float32")
    found = project_jointly(ops.convert_to_tensor(x), projections, weights)
    for part, projection in zip(found, projections, strict=True):
        np.testing.assert_allclose(part, projection(x), rtol=1e-5, atol=1e-5)


def test_quantised_projections_stay_apart():
    """Each has its own scale, and a product of whole numbers."""
    layer = made_attention(2)
    layer.value_projection.quantize("int8", type_check=False)
    assert layer.joined_weights() == ()
