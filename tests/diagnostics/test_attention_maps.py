"""Attention maps: the weights are those the model used, and the picture says so."""

import keras
import numpy as np
import pytest

from keras_addnorm.diagnostics import cross_attention, plot_attention
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return Seq2SeqTransformer(
        Seq2SeqConfig(
            source_vocabulary_size=13,
            target_vocabulary_size=11,
            num_encoder_layers=1,
            num_decoder_layers=2,
            hidden_dim=6,
            intermediate_dim=7,
            num_heads=3,
            dropout=0.5,
            scheme="pre_ln",
        )
    )


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _affine(x, projection):
    kernel, bias = projection.get_weights()
    return x @ kernel + bias


def test_first_layer_equals_the_formula(model):
    """Softmax(q k^T / sqrt(K)) with the layer's own kernels, for the first decoder layer."""
    source, target = [4, 9, 12, 5, 2], [1, 7, 3, 8]
    found = cross_attention(model, source, target)
    assert found.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)

    layer = model.decoder.layers[0]
    memory, _ = model.encode(np.array([source]))
    x = model.decoder_embedding(np.array([target]))
    x = layer.self_attention_add_norm(
        x, layer.self_attention(layer.self_attention_add_norm.branch_input(x), use_causal_mask=True)
    )
    h = keras.ops.convert_to_numpy(layer.cross_attention_add_norm.branch_input(x))[0]
    attention = layer.cross_attention
    q = _affine(h, attention.query_projection)
    k = _affine(keras.ops.convert_to_numpy(memory)[0], attention.key_projection)
    heads = [
        _softmax(q[:, 2 * i : 2 * i + 2] @ k[:, 2 * i : 2 * i + 2].T / np.sqrt(2)) for i in range(3)
    ]
    np.testing.assert_allclose(found[0], np.stack(heads), atol=1e-5)


def test_padding_of_the_source_gets_no_weight(model):
    padded = cross_attention(model, [4, 9, 2, 0, 0], [1, 7, 3])
    plain = cross_attention(model, [4, 9, 2], [1, 7, 3])
    np.testing.assert_array_equal(padded[..., 3:], 0)
    np.testing.assert_allclose(padded[..., :3], plain, atol=1e-6)


@pytest.mark.parametrize("ids", [[[4, 2]], [], [1.5, 2.0]])
def test_only_one_row_of_ids(model, ids):
    with pytest.raises(ValueError, match="`source_ids` has to be one sentence"):
        cross_attention(model, ids, [1])


@pytest.mark.parametrize("shape", [(3, 5), (2, 7, 3, 5)])
def test_draws_a_png(tmp_path, shape):
    path = plot_attention(np.zeros(shape), list("abcde"), list("xyz"), tmp_path / "new" / "map.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in path.parent.iterdir()] == ["map.png"]


def test_labels_have_to_fit(tmp_path):
    with pytest.raises(ValueError, match=r"T, S = \(3, 2\).*Received: \(2, 3\)"):
        plot_attention(np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"], tmp_path / "map.png")
