"""The gradient of every weight and input against central differences, in float64."""

import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from layers_reference import (
    NORMS,
    SCHEMES,
    B,
    D,
    F,
    H,
    S,
    T,
    padding,
    position,
    random,
    randomize,
    shut_gates,
)

from keras_addnorm.layers import TransformerDecoderLayer

STEP = 1e-5


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize(("scheme", "norm"), covering(SCHEMES, NORMS, strength=1))
def test_directional_derivatives(scheme, norm):
    """Of a decoder layer, which has every sublayer that there is."""
    layer = TransformerDecoderLayer(
        num_heads=H,
        intermediate_dim=F,
        activation="silu",  # smooth: the kinks of relu would spoil the differences
        scheme=scheme,
        norm=norm,
        position=position("decoder"),
        dtype="float64",
    )
    masks = {
        "padding_mask": padding([T, 3], T),
        "memory_padding_mask": padding([4, S], S),
    }
    x, memory = tf.Variable(random(B, T, D)), tf.Variable(random(B, S, D, seed=4))
    layer.build(x.shape, memory.shape)
    shut_gates(randomize(layer))
    cotangent = random(B, T, D, seed=6) * masks["padding_mask"][..., None]
    variables = [x, memory, *(w.value for w in layer.trainable_variables)]

    @tf.function
    def value():
        return tf.reduce_sum(layer(x.value(), memory.value(), **masks) * cotangent)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            result = value()
        return tape.gradient(result, variables)

    # One direction a variable: no variable's error can hide behind another's size.
    for i, (variable, gradient) in enumerate(zip(variables, gradients(), strict=True)):
        direction = random(*variable.shape, seed=10 + i)
        start = variable.numpy()
        variable.assign(start + STEP * direction)
        above = value().numpy()
        variable.assign(start - STEP * direction)
        difference = (above - value().numpy()) / (2 * STEP)
        variable.assign(start)
        slope = np.sum(gradient * direction)
        np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7, err_msg=str(i))
