"""A model with NaN or an infinity among its weights is not written for others, nor quantised."""

import numpy as np
import pytest
from public_calls import CALLS, config

from keras_addnorm.basics.tensors import not_finite
from keras_addnorm.decoding import Greedy
from keras_addnorm.interop import GenerationSettings, Pretrained, families, save_pretrained
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.training.guard import bad_weights

EXPORTS = ("serving.export_saved_model", *(f"interop.export_{x}" for x in ("onnx", "litert")))


@pytest.fixture(scope="module")
def damaged():
    model = Seq2SeqTransformer(config())
    bias = model.encoder.layers[0].feed_forward.output_projection.bias
    bias.assign(np.where(np.arange(8) == 3, np.nan, 0.0))
    return model, bias


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_the_weights_are_named(damaged, value):
    model, bias = damaged
    bias.assign(np.where(np.arange(8) == 3, value, 0.0))
    assert not_finite(model.weights) == bad_weights(model) == [bias.path]


@pytest.mark.parametrize("name", [*EXPORTS, "interop.export_ctranslate2"])
def test_an_export_is_refused_by_name(name, damaged):
    model, bias = damaged
    call = CALLS[name]
    with (
        call.stopped(),
        pytest.raises(ValueError, match=f"NaN or infinite.* in 1 of .*{bias.path}"),
    ):
        call.function()(**call.arguments() | {"model": model})


def test_a_folder_of_another_toolkit_is_refused(damaged, tmp_path):
    model, bias = damaged
    pretrained = Pretrained(model, None, GenerationSettings(Greedy(), 8), families.get("marian"))
    with pytest.raises(ValueError, match=f"NaN or infinite.*{bias.path}"):
        save_pretrained(pretrained, tmp_path / "folder")
    assert not any(tmp_path.iterdir())


def test_it_is_not_quantised(damaged):
    model, bias = damaged
    with pytest.raises(ValueError, match=f"NaN or infinite.* in 1 of .*{bias.path}"):
        model.quantize("int8")
    assert "quantized" not in model.get_config()
