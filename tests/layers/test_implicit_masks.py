"""A mask that Keras carries along has to do what the same mask does as an argument."""

import keras
import numpy as np
import pytest
from layers_reference import B, F, array

from keras_addnorm.layers import (
    AddNorm,
    FeedForward,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    PositionalEmbedding,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

V, D, H = 11, 6, 2
IDS = np.array([[4, 5, 6, 0, 0], [7, 3, 2, 1, 0]])
SOURCE = np.array([[4, 5, 6, 9, 8, 2, 0], [7, 3, 0, 0, 0, 0, 0]])

EMBEDDINGS = {
    "keras": lambda: keras.layers.Embedding(V, D, mask_zero=True),
    "positional": lambda: PositionalEmbedding(V, D),
}
SELF = {
    "attention": lambda: MultiHeadSelfAttention(H),
    "layer": lambda: TransformerEncoderLayer(num_heads=H, intermediate_dim=F),
    "stack": lambda: TransformerEncoder(
        2, num_heads=H, intermediate_dim=F, scheme="pre_ln", norm="rms_norm"
    ),
    "decoder layer": lambda: TransformerDecoderLayer(num_heads=H, intermediate_dim=F),
}
CROSS = {
    "attention": lambda: MultiHeadCrossAttention(H),
    "layer": lambda: TransformerDecoderLayer(num_heads=H, intermediate_dim=F),
    "stack": lambda: TransformerDecoder(
        2, num_heads=H, intermediate_dim=F, scheme="sandwich_ln", norm="rms_norm"
    ),
}


def mask_of(x):
    return keras.src.backend.get_keras_mask(x)


def without_mask(x):
    return keras.ops.convert_to_tensor(array(x).astype("float32"))


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("layer", SELF)
def test_self_attention_reads_the_implicit_mask_everywhere(layer, embedding):
    embed, layer = EMBEDDINGS[embedding](), SELF[layer]()
    x = embed(IDS)
    expected = array(layer(without_mask(x), padding_mask=IDS != 0))
    assert np.abs(array(layer(without_mask(x))) - expected).max() > 1e-4

    direct = layer(x)
    ids = keras.Input((None,), dtype="int32")
    outputs = {
        "direct": direct,
        "sequential": keras.Sequential([keras.Input((None,), dtype="int32"), embed, layer])(IDS),
        "functional": keras.Model(ids, layer(embed(ids)))(IDS),
    }
    for use, y in outputs.items():
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6, err_msg=use)
    np.testing.assert_array_equal(mask_of(direct), IDS != 0)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("layer", CROSS)
def test_cross_attention_reads_the_mask_of_the_memory(layer, embedding):
    embed, layer = EMBEDDINGS[embedding](), CROSS[layer]()
    x, memory = embed(IDS), embed(SOURCE)
    own = {} if isinstance(layer, MultiHeadCrossAttention) else {"padding_mask": IDS != 0}
    plain = without_mask(x), without_mask(memory)
    expected = array(layer(*plain, memory_padding_mask=SOURCE != 0, **own))
    assert np.abs(array(layer(*plain, **own)) - expected).max() > 1e-4

    direct = layer(x, memory)
    ids, source = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    model = keras.Model([ids, source], layer(embed(ids), embed(source)))
    for y in (direct, model([IDS, SOURCE])):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mask_of(direct), IDS != 0)


@pytest.mark.parametrize("make", [lambda: AddNorm().branch_input, lambda: FeedForward(F)])
def test_layers_that_need_no_mask_hand_it_on(make):
    x = EMBEDDINGS["keras"]()(IDS)
    np.testing.assert_array_equal(mask_of(make()(x)), IDS != 0)


def test_an_encoder_hands_its_mask_to_the_decoder():
    embed = PositionalEmbedding(V, D)
    encoder, decoder = (
        TransformerEncoder(2, num_heads=H, intermediate_dim=F),
        TransformerDecoder(2, num_heads=H, intermediate_dim=F),
    )
    memory = encoder(embed(SOURCE))
    np.testing.assert_array_equal(mask_of(memory), SOURCE != 0)
    y = decoder(embed(IDS), memory)
    longer = np.pad(SOURCE, ((0, 0), (0, 3)))
    np.testing.assert_allclose(decoder(embed(IDS), encoder(embed(longer))), y, rtol=1e-5, atol=1e-6)


def test_the_explicit_mask_wins():
    x, layer = EMBEDDINGS["keras"]()(IDS), TransformerEncoderLayer(num_heads=H, intermediate_dim=F)
    everything = np.ones(IDS.shape, bool)
    np.testing.assert_array_equal(layer(x, padding_mask=everything), layer(without_mask(x)))


@pytest.mark.slow
def test_layers_train_in_a_sequential_model_with_masks():
    model = keras.Sequential(
        [
            keras.layers.Embedding(V, D, mask_zero=True),
            TransformerEncoderLayer(num_heads=H, intermediate_dim=F, dropout=0.1),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    history = model.fit(IDS, np.ones((B, 1)), epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
