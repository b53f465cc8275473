"""Value residual: later layers attend with the mean of their values and those of the first layer.

The formula in NumPy on whole stacks, caches, models in files, and what is refused.
"""

import keras
import numpy as np
import pytest
from layers_reference import (
    B,
    D,
    F,
    H,
    S,
    T,
    array,
    branch_input,
    feed_forward,
    final_norm,
    masked_softmax,
    merge,
    norm,
    padding,
    project,
    random,
    randomize,
)
from layers_reference import attention as plain_attention

from keras_addnorm.layers import (
    MultiHeadSelfAttention,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, fold
from keras_addnorm.schemes import StackPosition

L = 3
ON = {"value_residual": True}
CHOICES = (ON, {**ON, "num_key_value_heads": 1, "value_norm": "rms_norm"})
MASK, MEMORY_MASK = padding([T, 3], T), padding([4, S], S)


def stack(kind, choice, scheme="pre_ln", **options):
    made = kind(
        L,
        num_heads=H,
        intermediate_dim=F,
        scheme=scheme,
        attention=choice,
        dtype="float64",
        **options,
    )
    made.build((B, T, D), *([(B, S, D)] if kind is TransformerDecoder else []))
    return randomize(made)


def attention(layer, x, mask, first):
    """Return the output, and the values that were attended with, one head and row at a time."""
    width = D // H
    q, k, v = (
        project(p, x)
        for p in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    if hasattr(layer, "value_norm"):
        parts = np.split(v, v.shape[-1] // width, axis=-1)
        v = np.concatenate([norm(layer.value_norm, part) for part in parts], -1)
    if first is not None:
        v = (first + v) / 2
    y = np.zeros((B, T, D))
    for b, h in np.ndindex(B, H):
        own = slice(h * width, (h + 1) * width)
        theirs = own if v.shape[-1] == D else slice(0, width)
        logits = q[b][:, own] @ k[b][:, theirs].T / np.sqrt(width)
        visible = np.broadcast_to(mask[b], (T, T))
        y[b][:, own] = masked_softmax(logits, visible) @ v[b][:, theirs]
    return project(layer.output_projection, y), v


def layers(made, x, mask, memory=None):
    first, name = None, made.config.scheme
    for layer in made.layers:
        a = layer.self_attention_add_norm
        f, values = attention(layer.self_attention, branch_input(a, name, x), mask, first)
        first = values if first is None else first
        x = merge(a, name, x, f)
        if memory is not None:
            a = layer.cross_attention_add_norm
            h = branch_input(a, name, x)
            f, _ = plain_attention(layer.cross_attention, h, memory, MEMORY_MASK[:, None])
            x = merge(a, name, x, f)
        a = layer.feed_forward_add_norm
        x = merge(a, name, x, feed_forward(layer.feed_forward, branch_input(a, name, x)))
    return final_norm(made, x)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("scheme", ["pre_ln", "post_ln"])
def test_an_encoder_equals_the_formula(choice, scheme):
    encoder, x = stack(TransformerEncoder, choice, scheme), random(B, T, D)
    y = array(encoder(x, padding_mask=MASK))
    np.testing.assert_allclose(y, layers(encoder, x, MASK[:, None]), rtol=1e-8, atol=1e-9)
    without = TransformerEncoder.from_config(encoder.get_config() | {"attention": None})
    if choice is ON:  # It has no weights of its own.
        without.build((B, T, D))
        without.set_weights(encoder.get_weights())
        assert np.abs(array(without(x, padding_mask=MASK)) - y).max() > 0.01


def test_a_decoder_equals_the_formula_and_cross_attention_has_its_own_values():
    decoder, x, memory = stack(TransformerDecoder, ON), random(B, T, D), random(B, S, D, seed=4)
    y = decoder(x, memory, memory_padding_mask=MEMORY_MASK)
    visible = np.tile(np.tri(T, dtype=bool), (B, 1, 1))
    np.testing.assert_allclose(y, layers(decoder, x, visible, memory), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3)], ids=str)
def test_a_cache_holds_the_values_that_are_read(chunks):
    """Those of past positions never change: no layer asks for the first one's past."""
    decoder, x, memory = (
        stack(TransformerDecoder, CHOICES[1]),
        random(B, T, D),
        random(B, S, D, seed=4),
    )
    expected = array(decoder(x, memory, memory_padding_mask=MEMORY_MASK))
    cache, at = decoder.initial_cache(B, T, memory), 0
    for count in chunks:
        y, scores, cache = decoder(
            x[:, at : at + count],
            memory_padding_mask=MEMORY_MASK,
            cache=cache,
            cache_update_index=at,
            return_attention_scores=True,
        )
        np.testing.assert_allclose(y, expected[:, at : at + count], rtol=1e-8, atol=1e-9)
        at += count
    assert len(scores) == len(cache) == L and scores[0]["self_attention"].shape == (B, H, count, T)
    assert cache[0]["self_attention"].shape == (B, 2, T, 1, D // H)


def test_layers_one_by_one_in_a_functional_model(tmp_path):
    options = {"num_heads": H, "intermediate_dim": F, "attention": ON}
    x = keras.Input((T, D))
    h, values = TransformerEncoderLayer(**options)(x, return_values=True)
    y = TransformerEncoderLayer(**options)(h, first_values=values)
    model = keras.Model(x, y)
    inputs = random(B, T, D).astype("float32")
    first, second = model.layers[1:]
    _, values = first.self_attention(inputs, return_values=True)
    assert values.shape == (B, T, H, D // H)
    np.testing.assert_allclose(
        model(inputs), second(first(inputs), first_values=values), rtol=1e-5, atol=1e-5
    )
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(inputs), model(inputs))


def test_folding_and_pruning_of_other_layers_leave_the_values():
    config = Seq2SeqConfig.preset("micro", scheme="layer_scale", attention=ON)
    model = randomize(Seq2SeqTransformer(config))
    batch = {"source": np.array([[5, 6, 7, 2]]), "target": np.array([[1, 8, 9]])}
    np.testing.assert_allclose(fold(model)(batch), model(batch), rtol=1e-4, atol=1e-4)
    fewer = config.from_dict({**config.to_dict(), "pruned_sublayers": ["encoder/1/self_attention"]})
    assert Seq2SeqTransformer(fewer)(batch).shape == (1, 3, 100)
    assert Seq2SeqConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("place", ["encoder/0/self_attention", "decoder/0/self_attention"])
def test_the_self_attention_that_all_read_is_not_pruned(place):
    config = Seq2SeqConfig.preset("micro", attention=ON, pruned_sublayers=[place])
    with pytest.raises(
        ValueError, match=r"first self-attention, which cannot be pruned\. Expected"
    ):
        Seq2SeqTransformer(config)


def test_of_a_decoder_without_heads_it_says_nothing():
    config = Seq2SeqConfig.preset(
        "micro",
        attention=ON,
        self_attention="ssru",
        pruned_sublayers=["decoder/0/self_attention"],
    )
    model = Seq2SeqTransformer(config)
    assert model.encoder.layers[1].has_value_residual
    assert not any(layer.has_value_residual for layer in model.decoder.layers)


@pytest.mark.parametrize("layer_class", [TransformerEncoderLayer, TransformerDecoderLayer])
def test_values_that_lack_or_are_of_no_use_are_refused(layer_class):
    sizes, x = {"num_heads": H, "intermediate_dim": F}, random(B, T, D)
    values = random(B, T, H, D // H)
    side = layer_class.side
    second = layer_class(**sizes, attention=ON, position=StackPosition(2, 2, side, 1))
    with pytest.raises(ValueError, match=r"reads the values of the first layer.*Received: none"):
        second(x)
    assert second(x, first_values=values).shape == (B, T, D)
    for given, said in (
        ({"first_values": values}, "first_values"),
        ({"return_values": True}, "return_values=True"),
    ):
        with pytest.raises(ValueError, match=rf"has no value residual.*Received: {said}"):
            layer_class(**sizes)(x, **given)
    with pytest.raises(ValueError, match="no use for the values of the first layer"):
        MultiHeadSelfAttention(H)(x, first_values=values)
    with pytest.raises(ValueError, match=r"value_residual.*Expected True or False.*Received: 1"):
        MultiHeadSelfAttention(H, attention={"value_residual": 1})
