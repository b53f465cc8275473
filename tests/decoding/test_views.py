"""Views of layers: other implementations, the same weights, and nothing changed."""

import keras
import numpy as np
import pytest
from keras import ops
from models_reference import SOURCE, V_TARGET, array, tiny_model

from keras_addnorm.decoding.engine import TFGraphEngine, XLAEngine, xla
from keras_addnorm.decoding.engine.beam_cache import BeamDecoder
from keras_addnorm.decoding.engine.tf_graph import (
    FusedSelfAttention,
    SeparateSelfAttention,
    fused_self_attention,
)
from keras_addnorm.decoding.engine.views import Substitute, substitute, variables_of
from keras_addnorm.decoding.engine.xla import SplitKProjection
from keras_addnorm.layers import MultiHeadSelfAttention, Projection

RANDOM = np.random.default_rng(0)


class Doubled(Projection):
    """A view that multiplies by `factor`."""

    def call(self, inputs, training=None):
        return self.factor * super().call(inputs, training=training)


def doubled(name, layer):
    return Substitute(Doubled, {"factor": 2.0}) if type(layer) is Projection else None


class Stack(keras.layers.Layer):
    """Layers in an attribute, a list and a dict, one of them twice."""

    def build(self, shape):
        self.first = Projection(5, name="first")
        self.list = [Projection(5, name="second"), self.first]
        self.named = {"third": Projection(5, name="third"), "size": 5}
        for layer in (self.first, self.list[0], self.named["third"]):
            layer.build(shape)
        self.dropout = keras.layers.Dropout(0.5)

    def call(self, x):
        for layer in (self.first, *self.list, self.named["third"]):
            x = layer(x)
        return x


def test_layers_are_replaced_wherever_they_are_held():
    stack = Stack()
    x = RANDOM.normal(size=(3, 5)).astype("float32")
    before = array(stack(x))
    own = dict(vars(stack))
    view = substitute(stack, doubled)
    np.testing.assert_allclose(view(x), 2.0**4 * before, rtol=1e-5)
    assert view.first is view.list[1] and type(view.first) is Doubled
    assert view.dropout is stack.dropout  # What holds nothing of it is shared.
    # The original is as it was: its layers, its attributes and what it computes.
    np.testing.assert_array_equal(stack(x), before)
    assert type(stack.first) is Projection and not hasattr(stack.first, "factor")
    assert vars(stack).keys() == own.keys()
    assert all(vars(stack)[name] is value for name, value in own.items())
    assert [weight.path for weight in stack.weights] == [weight.path for weight in view.weights]


def test_a_view_computes_with_the_weights_of_today():
    stack = Stack()
    x = np.ones((1, 5), "float32")
    stack(x)
    view = substitute(stack, doubled)
    stack.first.kernel.assign(stack.first.kernel * 3.0)
    np.testing.assert_allclose(view(x), 16.0 * array(stack(x)), rtol=1e-5)
    values = [(stack.first._kernel, ops.zeros((5, 5)))]
    with keras.StatelessScope(state_mapping=values):
        np.testing.assert_array_equal(view(x), np.zeros((1, 5)))


def test_nothing_to_replace_is_the_object_itself():
    stack = Stack()
    stack(np.ones((1, 5), "float32"))
    assert substitute(stack, lambda name, layer: None) is stack
    assert substitute(stack, lambda name, layer: layer) is stack


@pytest.mark.parametrize("engine", [XLAEngine(), TFGraphEngine()], ids=str)
def test_an_engine_leaves_the_model_alone(engine):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=2)
    inputs = {"source": SOURCE, "target": np.minimum(SOURCE, V_TARGET - 1)}
    logits = array(model(inputs))
    kinds = [type(layer) for layer in model._flatten_layers()]
    view = engine.view(model, 3, 3)
    assert type(view.decoder) is BeamDecoder and view.encoder is model.encoder
    assert [type(layer) for layer in model._flatten_layers()] == kinds
    np.testing.assert_array_equal(model(inputs), logits)
    assert {id(variable) for variable in view.decoder.variables} == {
        id(variable) for variable in model.decoder.variables
    }


class OwnAttention(MultiHeadSelfAttention):
    """Somebody's own."""


@pytest.mark.slow
@pytest.mark.parametrize("engine", [XLAEngine(), TFGraphEngine()], ids=str)
def test_layers_of_ones_own_are_left_alone(engine):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1, max_length=4)
    expected, _ = model.generate(SOURCE, num_beams=2)
    (layer,) = model.decoder.layers
    own = substitute(
        layer,
        lambda name, part: Substitute(OwnAttention) if name == "self_attention" else None,
    )
    model.decoder.layers[0] = own
    view = engine.view(model, 2, 2)
    assert type(view.decoder) is not BeamDecoder
    assert type(view.decoder.layers[0].self_attention) is OwnAttention
    vars(model).pop("_compiled_decoders")
    ids, _ = model.generate(SOURCE, num_beams=2, jit_compile=isinstance(engine, XLAEngine))
    np.testing.assert_array_equal(ids, expected)


def test_variables_are_found_in_plain_objects():
    class Holder:
        def __init__(self):
            self.layers = {"a": [Projection(2)], "b": None}
            self.layers["a"][0].build((None, 3))
            self.bias = keras.Variable(np.zeros(2))
            self.inner = (self.bias, self)
            self.function = print

    holder = Holder()
    found = variables_of(holder)
    expected = [*holder.layers["a"][0].variables, holder.bias]
    assert [id(variable) for variable in found] == [id(variable) for variable in expected]


# Split-K


@pytest.mark.parametrize(
    "shape", [(1, 512), (3, 512), (0, 512), (1, 1, 512), (2, 3, 512), (1, 510)]
)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"activation": "relu"}])
def test_slices_of_a_kernel_give_the_product(shape, is_known, options):
    import tensorflow as tf

    layer = Projection(256, **options)
    layer.build(shape)
    if layer.bias is not None:
        layer.bias.assign(RANDOM.normal(size=256))
    x = RANDOM.normal(size=shape).astype("float32")
    kernel, *bias = (weight.astype("float64") for weight in layer.get_weights())
    expected = x.astype("float64") @ kernel + sum(bias)
    if "activation" in options:
        expected = np.maximum(expected, 0.0)
    assert xla.can_split(layer) == (shape[-1] == 512)
    if not xla.can_split(layer):
        return
    view = substitute(layer, lambda name, layer: Substitute(SplitKProjection))
    spec = tf.TensorSpec(shape if is_known else [None] * (len(shape) - 1) + [512])
    y = tf.function(view, [spec], autograph=False)(x)
    assert y.shape == expected.shape
    np.testing.assert_allclose(ops.convert_to_numpy(y), expected, rtol=1e-4, atol=1e-5)


# Fused QKV


def made_attention(groups, use_bias=True):
    attention = {"num_key_value_heads": groups}
    layer = MultiHeadSelfAttention(4, use_bias=use_bias, attention=attention)
    layer.build((None, None, 12))
    for weight in layer.weights:
        weight.assign(RANDOM.normal(size=weight.shape))
    return layer


def fused_view(layer):
    return substitute(
        layer, lambda name, part: fused_self_attention(part) if part is layer else None
    )


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("has_lora", [True, False])
def test_fused_projections_are_those_one_by_one(groups, use_bias, has_lora):
    layer = made_attention(groups, use_bias)
    if has_lora:
        layer.key_projection.enable_lora(2)
        layer.key_projection.lora_kernel_b.assign(RANDOM.normal(size=(2, groups * 3)))
    view = fused_view(layer)
    assert type(view) is FusedSelfAttention
    assert view.qkv_kernel.shape == (12, 12 + 6 * groups)
    assert (view.qkv_bias is not None) == use_bias
    x = RANDOM.normal(size=(2, 5, 12)).astype("float32")
    at = ops.arange(5)
    for found, expected in zip(view._project(x, at), layer._project(x, at), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(view(x), layer(x), rtol=1e-5, atol=1e-5)


def test_quantised_projections_stay_apart():
    """Each has its own scale, and a product of whole numbers."""
    layer = made_attention(2)
    layer.value_projection.quantize("int8", type_check=False)
    view = fused_view(layer)
    assert type(view) is SeparateSelfAttention
    x = RANDOM.normal(size=(2, 5, 12)).astype("float32")
    np.testing.assert_allclose(view(x), layer(x), rtol=1e-5, atol=1e-5)
