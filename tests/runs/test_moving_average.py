"""The average that stands in place of the weights while a training validates."""

import keras
import numpy as np
from keras import ops

from keras_addnorm.runs.callbacks import MovingAverage


def test_average_is_in_place_and_goes_again():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5), "mse")
    for _ in range(2):  # At its end, `fit` puts the average in place for good.
        model.train_on_batch(np.ones((5, 3)), np.zeros((5, 2)))
    callback = MovingAverage()
    callback.set_model(model)
    averages = model.optimizer._model_variables_moving_average
    before = [ops.convert_to_numpy(weight).copy() for weight in model.weights]

    callback.on_test_begin()
    for weight, average, own in zip(model.weights, averages, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), ops.convert_to_numpy(average))
        assert np.abs(ops.convert_to_numpy(weight) - own).max() > 0.01
        # JAX gives arrays away to compiled steps: one that two variables hold would be gone.
        assert weight.value is not average.value
    callback.on_epoch_end(0)
    for weight, own in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), own)
