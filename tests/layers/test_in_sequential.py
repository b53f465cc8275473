"""A user's `Sequential` of Keras' layers and ours simply works; warnings are errors here."""

import keras
import numpy as np
import pytest

from keras_addnorm.layers import (
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

IDS = np.array([[4, 5, 6, 0, 0], [7, 3, 2, 1, 0], [1, 0, 0, 0, 0]])
LABELS = np.array([[0.0], [1.0], [1.0]])
V, D, H, F = 11, 8, 2, 7

OURS = {
    "layer": lambda: [TransformerEncoderLayer(num_heads=H, intermediate_dim=F, dropout=0.1)],
    "layers": lambda: [
        TransformerEncoderLayer(num_heads=H, intermediate_dim=F),
        TransformerDecoderLayer(num_heads=H, intermediate_dim=F),
    ],
    "stack": lambda: [
        TransformerEncoder(1, num_heads=H, intermediate_dim=F, scheme="pre_ln", positions="rotary")
    ],
}
POOLING = {
    "mean": keras.layers.GlobalAveragePooling1D,
    "recurrent": lambda: keras.layers.GRU(3),
}


def classifier(ours, pooling):
    return keras.Sequential(
        [
            keras.layers.Embedding(V, D, mask_zero=True),
            *OURS[ours](),
            POOLING[pooling](),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("pooling", POOLING)
@pytest.mark.parametrize("ours", OURS)
def test_the_mask_travels_from_the_embedding_to_the_pooling(ours, pooling):
    model = classifier(ours, pooling)
    shorter = keras.ops.convert_to_numpy(model(IDS))
    longer = model(np.pad(IDS, ((0, 0), (0, 3))))
    np.testing.assert_allclose(longer, shorter, rtol=1e-5, atol=1e-6)
    model.layers[0].mask_zero = False
    assert np.abs(model(IDS) - shorter).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_fits_is_saved_and_goes_on(jit_compile, tmp_path):
    model = classifier("layers", "mean")
    model.compile("adam", "binary_crossentropy", jit_compile=jit_compile)
    model.fit(IDS, LABELS, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.jit_compile == jit_compile
    np.testing.assert_array_equal(loaded(IDS), model(IDS))

    losses = [
        m.fit(IDS, LABELS, epochs=2, shuffle=False, verbose=0).history["loss"]
        for m in (model, loaded)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][1] < losses[0][0]
