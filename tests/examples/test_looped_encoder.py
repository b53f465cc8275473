"""The claims' deep stacks: a loop over the layers computes what the layers compute."""

import keras
import numpy as np
import pytest

from keras_addnorm.layers import TransformerEncoder


@pytest.fixture(scope="module", autouse=True)
def example(load_example):
    with load_example("why_add_and_norm") as module:
        yield module


def _encoder(scheme, seed):
    keras.utils.set_random_seed(seed)
    encoder = TransformerEncoder(3, num_heads=2, intermediate_dim=5, scheme=scheme)
    encoder.build((None, None, 6))
    for variable in encoder.trainable_variables:  # gains that are not 1, offsets that are not 0
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    return encoder


@pytest.mark.parametrize("scheme", ["plain", "no_norm", "post_ln", "pre_ln", "deep_norm"])
def test_the_loop_is_the_stack(scheme):
    from claims.looped import LoopedEncoder

    first, second = _encoder(scheme, 1), _encoder(scheme, 2)
    x = np.random.default_rng(1).standard_normal((2, 7, 6)).astype("float32")
    looped = LoopedEncoder(first)
    assert looped.count_params() == first.count_params()
    expected = {each: keras.ops.convert_to_numpy(each(x)) for each in (first, second)}
    np.testing.assert_allclose(looped(x), expected[first], rtol=1e-5, atol=1e-6)
    looped.take(second)
    np.testing.assert_allclose(looped(x), expected[second], rtol=1e-5, atol=1e-6)


def test_the_task_of_a_rotation():
    from claims.lab import final_loss
    from claims.turning import WIDTH, Stack

    words, turned, _ = Stack.task(1)
    for vectors in (words, turned):
        np.testing.assert_allclose(vectors.mean(1), 0, atol=1e-6)
        np.testing.assert_allclose(vectors.std(1), 1, rtol=1e-5)
    map_, *_ = np.linalg.lstsq(words, turned, rcond=None)
    assert map_.shape == (WIDTH, WIDTH)
    errors = [np.mean((each - turned) ** 2) for each in (words @ map_, words)]
    assert errors[0] < 0.01 < 1 < errors[1]
    ends = ([None], [1.0, None], [9.0, *[1.0] * 20])
    assert [final_loss({"losses": each}) for each in ends] == [np.inf, np.inf, 1.0]
