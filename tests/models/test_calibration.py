"""Keras' GPTQ and AWQ quantise a model with calibration pairs."""

import keras
import numpy as np
import pytest
from filled_models import array, batch, tiny_model
from keras.src.quantizers.gptq import GPTQ

from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.models.calibration import _whole_pairs

CONFIG = Seq2SeqConfig.preset("micro", max_length=5)


def pieces(pairs):
    return [(source.tolist(), target.tolist()) for source, target in pairs]


def test_pairs_that_are_whole_in_a_window_are_read():
    ids = [7, 2, 1, 8, 2, 5, 6, 2, 1, 9, 4, 2, 4, 4, 4, 4, 4, 2, 1, 5, 2, 3, 2, 1, 2, 6, 2, 1]
    found = pieces(_whole_pairs(np.array(ids), CONFIG))
    # The third source is longer than the model's texts; the last pair is cut off.
    assert found == [([7, 2], [1, 8]), ([5, 6, 2], [1, 9, 4]), ([3, 2], [1])]


@pytest.mark.parametrize("ids", [[7, 8, 9], [7, 2, 1, 8], [1, 8, 2, 5, 2]])
def test_a_window_without_a_whole_pair_is_refused(ids):
    with pytest.raises(ValueError, match=r"no whole pair.*sequence_length of several pairs"):
        _whole_pairs(np.array(ids), CONFIG)


@pytest.mark.parametrize(("place", "side"), [(0, "source"), (4, "target")])
@pytest.mark.parametrize("wrong", [-2147483648, -1, CONFIG.source_vocabulary_size])
def test_ids_outside_of_the_vocabulary_are_refused(place, side, wrong):
    """The smallest number is what Keras' cast makes of NaN."""
    ids = np.array([7, 8, 2, 1, 9, 2])
    ids[place] = wrong
    assert CONFIG.source_vocabulary_size == CONFIG.target_vocabulary_size
    with pytest.raises(ValueError, match=rf"{side} id.*{wrong}"):
        _whole_pairs(ids, CONFIG)


def test_targets_that_begin_with_the_end_are_refused():
    model = tiny_model(num_encoder_layers=1, start_id=2)
    with pytest.raises(ValueError, match=r"cannot be told apart.*Received: 2"):
        model.get_quantization_layer_structure("gptq")
    assert model.get_quantization_layer_structure("int8") is None


def two_signed(model):
    """The model, with weights of both signs in each column of its kernels."""
    for weight in model.weights:
        if weight.name == "kernel":
            values = array(weight).copy()
            values[0], values[1] = np.abs(values[0]), -np.abs(values[1])
            weight.assign(values)
    return model


def calibrated(kind, **options):
    """A model, and the same one quantised with 11 pairs of lengths 4 and 3."""
    before, after = (
        two_signed(tiny_model(num_encoder_layers=1, tie_embeddings=False)) for _ in range(2)
    )
    ids = np.random.default_rng(3).integers(4, before.config.target_vocabulary_size, (11, 5))
    pairs = [np.array([*row[:3], 2, 1, *row[3:], 2]) for row in ids]
    config = kind(
        pairs,
        tokenizer=lambda one: one,
        sequence_length=11 * 8,  # One window of all pairs.
        num_samples=1,
        group_size=-1,
        **options,
    )
    after.quantize(config=config)
    return before, after


@pytest.mark.parametrize(("sign", "kind"), [(1, "GPTQConfig"), (-1, "AWQConfig")])
def test_a_kernel_whose_zero_point_keras_would_lose_is_refused(sign, kind):
    """Keras 3.15.1 gives weights from 0.5 to 1 the zero point -255, which it keeps as 1."""
    model = two_signed(tiny_model(num_encoder_layers=1))
    kernel = model.encoder.layers[0].feed_forward.output_projection.kernel
    values = array(kernel).copy()
    values[:, 3] = sign * np.linspace(2.0, 2.1, len(values))
    kernel.assign(values)
    config = getattr(keras.quantizers, kind)(
        [np.array([5, 2, 1, 6, 2])], tokenizer=lambda one: one, group_size=-1
    )
    with pytest.raises(ValueError, match=r"feed_forward/output_projection.*same sign.*17 weights"):
        model.quantize(config=config)


def test_gptq_without_groups_is_refused_where_keras_would_stop_half_way():
    model = two_signed(tiny_model(num_encoder_layers=1, intermediate_dim=131))
    config = keras.quantizers.GPTQConfig([], tokenizer=lambda one: one, group_size=-1)
    with pytest.raises(ValueError, match=r"output_projection.*131 inputs.*group_size.*-1"):
        model.quantize(config=config)
    assert not any(layer.quantization_mode for layer in kernels_of(model))


def kernels_of(model):
    return [layer for layer in model._flatten_layers() if hasattr(layer, "quantization_mode")]


def test_gptq_reads_each_token_once_and_quantises_the_kernels_of_the_stacks(monkeypatch, tmp_path):
    rows = {}
    original = GPTQ.update_hessian_with_batch

    def counted(self, inputs):
        path = self.original_layer.path
        rows[path] = rows.get(path, 0) + int(inputs.shape[0])
        original(self, inputs)

    monkeypatch.setattr(GPTQ, "update_hessian_with_batch", counted)
    before, after = calibrated(keras.quantizers.GPTQConfig, weight_bits=8)
    kernels = {
        weight.path.rpartition("/")[0]
        for weight in before.weights
        if weight.name == "kernel" and weight.path.startswith(("encoder/", "decoder/"))
    }
    assert rows.keys() == kernels
    for path, count in rows.items():
        reads_the_source = path.startswith("encoder/") or path.endswith(
            ("cross_attention/key_projection", "cross_attention/value_projection")
        )
        assert count == 11 * (4 if reads_the_source else 3), path
    whole = {weight.path.rpartition("/")[0] for weight in after.weights if weight.dtype == "uint8"}
    assert whole == kernels

    exact, found = array(before(batch())), array(after(batch()))
    np.testing.assert_allclose(found, exact, atol=0.05 * np.ptp(exact))
    assert np.abs(found - exact).max() > 1e-5

    after.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(array(again(batch())), found, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [keras.quantizers.GPTQConfig, keras.quantizers.AWQConfig])
def test_a_model_of_four_bits_generates(kind):
    before, after = calibrated(kind)
    exact, found = array(before(batch())), array(after(batch()))
    np.testing.assert_allclose(found, exact, atol=0.5 * np.ptp(exact))
    assert np.abs(found - exact).max() > 1e-3
    ids, _ = after.generate([[5, 6, 7, 2]], max_length=4)
    assert ids.shape[0] == 1
