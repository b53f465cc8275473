"""Arguments that other libraries have in another order are given by name alone."""

import inspect

import keras
import keras_hub
import numpy as np
import pytest

from keras_addnorm import layers, norms, schemes
from keras_addnorm.models import Seq2SeqConfig


def order_of(cls, count):
    """The first arguments of a class, as Python reports them."""
    return tuple(inspect.signature(cls.__init__).parameters)[1 : count + 1]


BLOCK = r"num_heads=4, intermediate_dim=16"
REFUSED = {
    "encoder layer": (lambda: layers.TransformerEncoderLayer(16, 4), BLOCK),
    "decoder layer": (lambda: layers.TransformerDecoderLayer(16, 4), BLOCK),
    "with dropout": (lambda: layers.TransformerEncoderLayer(16, 4, 0.1), f"{BLOCK}, dropout=0.1"),
    "one of them": (lambda: layers.TransformerEncoderLayer(16, num_heads=4), "intermediate_dim=16"),
    "encoder": (lambda: layers.TransformerEncoder(16, 4), BLOCK),
    "decoder": (lambda: layers.TransformerDecoder(16, 4, 0.1), BLOCK),
    "embedding": (
        lambda: layers.PositionalEmbedding(100, 16, 32),
        "TokenAndPositionEmbedding that is vocabulary_size=100, hidden_dim=32, max_length=16",
    ),
    "attention": (
        lambda: layers.MultiHeadSelfAttention(4, 8, 8),
        r"Keras' MultiHeadAttention .*MultiHeadSelfAttention\(num_heads, head_dim, dropout=\.\.\.",
    ),
    "cross attention": (lambda: layers.MultiHeadCrossAttention(4, 8, None, 0.1), "by name"),
    "layer norm": (lambda: norms.LayerNorm(1), r"Expected LayerNorm\(epsilon=\.\.\.\)"),
    "RMS norm": (lambda: norms.RMSNorm(-1, 1e-5), r"Expected RMSNorm\(epsilon=\.\.\.\)"),
    "batch norm": (lambda: norms.BatchNorm(1), r"Expected BatchNorm\(momentum=\.\.\.\)"),
    "block": (
        lambda: layers.BlockConfig(4, 16),
        r"BlockConfig\(num_heads=\.\.\., intermediate_dim=\.\.\.\). Received: BlockConfig\(4, 16\)",
    ),
    "model": (lambda: Seq2SeqConfig(9, 9, 1, 1, 8, 4), r"hidden_dim, num_heads=\.\.\.\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_order_is_refused_with_the_keywords(case):
    call, message = REFUSED[case]
    with pytest.raises(TypeError, match=message):
        call()


def test_the_others_have_the_order_that_is_named():
    hub = keras_hub.layers
    for layer in (hub.TransformerEncoder, hub.TransformerDecoder):
        assert order_of(layer, 3) == layers.TransformerEncoderLayer.other_order.arguments
    assert order_of(hub.TokenAndPositionEmbedding, 3) == (
        "vocabulary_size",
        "sequence_length",
        "embedding_dim",
    )
    assert order_of(keras.layers.MultiHeadAttention, 3) == ("num_heads", "key_dim", "value_dim")
    for norm in (keras.layers.LayerNormalization, keras.layers.RMSNormalization):
        assert order_of(norm, 2) == ("axis", "epsilon")


def test_what_agrees_stays_without_a_name():
    attention = layers.MultiHeadSelfAttention(4, 8)
    assert (attention.num_heads, attention.head_dim) == (4, 8)
    assert order_of(keras.layers.MultiHeadAttention, 2) == ("num_heads", "key_dim")
    embedding = layers.PositionalEmbedding(100, 16)
    assert (embedding.vocabulary_size, embedding.hidden_dim) == (100, 16)
    assert order_of(keras.layers.Embedding, 2) == ("input_dim", "output_dim")
    stack = layers.TransformerEncoder(3, num_heads=4, intermediate_dim=16)
    assert stack.num_layers == 3
    assert tuple(inspect.signature(layers.TransformerEncoder).parameters)[:3] == (
        "num_layers",
        "num_heads",
        "intermediate_dim",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"normalize_first": True}, r'Write scheme="pre_ln" for normalize_first=True'),
        ({"layer_norm_epsilon": 1e-5}, "Write epsilon instead"),
        ({"key_dim": 8}, "Write head_dim instead"),
        ({"droput": 0.1}, "Did you mean 'dropout'"),
    ],
)
def test_arguments_of_kerashub_are_translated(arguments, message):
    with pytest.raises(TypeError, match=message):
        layers.TransformerEncoderLayer(num_heads=4, intermediate_dim=16, **arguments)


@pytest.mark.parametrize("name", ["PreLN", "pre-ln", "Pre_LN", "prenorm", "pre norm", "PreNorm"])
def test_another_spelling_of_a_scheme_is_understood(name):
    with pytest.raises(ValueError, match=r"Did you mean 'pre_ln'\?"):
        layers.AddNorm(name)


@pytest.mark.parametrize(
    ("norm", "meant"),
    [
        ("LayerNormalization", "layer_norm"),
        (keras.layers.LayerNormalization(), "layer_norm"),
        (keras.layers.BatchNormalization, "batch_norm"),
        (norms.RMSNorm, "rms_norm"),
    ],
)
def test_a_norm_that_is_a_layer_is_named(norm, meant):
    with pytest.raises(ValueError, match=rf"Did you mean '{meant}'\?"):
        layers.AddNorm(norm=norm)


def test_a_scheme_that_is_a_class_is_to_be_called():
    with pytest.raises(ValueError, match=r"That is a class: call it, PreLN\(\)\."):
        layers.AddNorm(schemes.PreLN)


FLAT = np.zeros((2, 8), "float32")
LONG = FLAT[None]


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: layers.TransformerEncoderLayer(num_heads=2, intermediate_dim=3), [LONG]),
        (lambda: layers.TransformerDecoderLayer(num_heads=2, intermediate_dim=3), [LONG, LONG]),
        (lambda: layers.TransformerEncoder(1, num_heads=2, intermediate_dim=3), [LONG]),
        (lambda: layers.MultiHeadSelfAttention(2), [LONG]),
        (lambda: layers.MultiHeadCrossAttention(2), [LONG, LONG]),
    ],
)
def test_an_input_without_positions_is_refused(make, inputs, is_built):
    layer = make()
    if is_built:
        layer(*inputs)
    for place in range(len(inputs)):
        wrong = [FLAT if i == place else x for i, x in enumerate(inputs)]
        with pytest.raises(ValueError, match=r"of shape \(batch, positions, width\).*\(2, 8\)"):
            layer(*wrong)


def test_a_model_of_inputs_without_positions_is_refused():
    encoder = layers.TransformerEncoder(1, num_heads=2, intermediate_dim=3)
    with pytest.raises(ValueError, match=r"\(batch, positions, width\)"):
        encoder(keras.Input((8,)))
