"""Every public layer comes back from its config, from `.keras` and from `.weights.h5`."""

import itertools

import keras
import numpy as np
import pytest
from layers_reference import NORMS, SCHEMES, B, F, array, random, randomize

from keras_addnorm.layers import (
    AddNorm,
    FeedForward,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    PositionalEmbedding,
    Projection,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.schemes import StackPosition

T, S, D, H = 5, 7, 6, 2
X, MEMORY = random(B, T, D).astype("float32"), random(B, S, D, seed=4).astype("float32")
IDS = np.array([[4, 5, 6, 0, 0], [7, 3, 2, 1, 0]])
PLACE = {
    "encoder": StackPosition(2, 3, "encoder", 1),
    "decoder": StackPosition(2, 3, "decoder", 2),
}
# One norm behind, norms inside of the sublayers, by the place in the stack, with a trained skip.
PLANS = ("post_ln", "sub_ln", "mix_ln", "admin")

LAYERS = {
    "self": (lambda: MultiHeadSelfAttention(H, head_dim=4), [X]),
    "cross": (lambda: MultiHeadCrossAttention(H, use_bias=False), [X, MEMORY]),
    "feed_forward": (lambda: FeedForward(F, "swiglu"), [X]),
    "projection": (lambda: Projection(5), [X]),
    "sinusoidal": (lambda: PositionalEmbedding(11, D), [IDS]),
    "learned": (lambda: PositionalEmbedding(11, D, positions="learned", max_length=7), [IDS]),
    "decoder only": (
        lambda: TransformerDecoder(2, num_heads=H, intermediate_dim=F, scheme="pre_ln"),
        [X],
    ),
}
for _scheme, _norm in zip(SCHEMES, itertools.cycle(NORMS), strict=False):
    _options = {"scheme": _scheme, "norm": _norm, "dropout": 0.1}
    LAYERS[f"add_norm {_scheme}"] = (
        lambda o=_options: AddNorm(position=PLACE["encoder"], **o),
        [X, X],
    )
    if _scheme not in PLANS:  # saving does not see what the other schemes compute
        continue
    LAYERS |= {
        f"encoder layer {_scheme}": (
            lambda o=_options: TransformerEncoderLayer(
                num_heads=H, intermediate_dim=F, position=PLACE["encoder"], **o
            ),
            [X],
        ),
        f"decoder layer {_scheme}": (
            lambda o=_options: TransformerDecoderLayer(
                num_heads=H, intermediate_dim=F, position=PLACE["decoder"], **o
            ),
            [X, MEMORY],
        ),
        f"encoder {_scheme}": (
            lambda o=_options: TransformerEncoder(
                2, num_heads=H, intermediate_dim=F, num_other_layers=1, **o
            ),
            [X],
        ),
        f"decoder {_scheme}": (
            lambda o=_options: TransformerDecoder(
                2, num_heads=H, intermediate_dim=F, num_other_layers=1, **o
            ),
            [X, MEMORY],
        ),
    }


def functional(layer, arrays):
    inputs = [keras.Input(a.shape[1:], dtype=a.dtype.name) for a in arrays]
    if isinstance(layer, AddNorm):
        x, other = inputs
        return keras.Model(inputs, layer(x, lambda h: keras.layers.add([h, other])))
    return keras.Model(inputs, layer(*inputs))


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("name", LAYERS)
def test_round_trips(name, tmp_path):
    make, arrays = LAYERS[name]
    layer = make()
    clone = type(layer).from_config(layer.get_config())
    assert clone.get_config() == layer.get_config()

    model = functional(layer, arrays)
    randomize(model)
    expected = array(model(arrays))
    assert np.isfinite(expected).all()

    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(reloaded(arrays), expected)
    assert [w.path for w in reloaded.weights] == [w.path for w in model.weights]

    model.save_weights(tmp_path / "m.weights.h5")
    other = functional(clone, arrays)
    weights = list(zip(other.weights, model.weights, strict=True))
    assert not any(np.array_equal(array(a), array(b)) for a, b in weights)
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other(arrays), expected)
