"""A loss and its gradient on TensorFlow: eager, as a graph, and compiled."""

import tensorflow as tf


def value_and_gradient(loss, labels, logits, sample_weight=None):
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(labels, logits, sample_weight)
    return value, tape.gradient(value, logits)


MODES = {
    "eager": value_and_gradient,
    "graph": tf.function(value_and_gradient),
    "xla": tf.function(value_and_gradient, jit_compile=True),
}
