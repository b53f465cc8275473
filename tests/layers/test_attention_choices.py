"""Every choice of attention and of relative positions: formulas, caches, shifts, gradients."""

import dataclasses
import json
import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from attention_reference import attention as reference
from layers_reference import array, padding, random, randomize

from keras_addnorm.layers import (
    AttentionConfig,
    HeadDiversity,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    masks,
)
from keras_addnorm.layers import attention as attention_module

B, T, S, D, H, K = 2, 5, 3, 7, 4, 6
PADDING = padding([T, 3], T)

EVERYTHING = {
    "num_key_value_heads": 2,
    "query_key_norm": "layer_norm",
    "value_norm": "layer_norm",
    "scale": "learned",
    "window": 3,
    "soft_cap": 1.5,
    "sink": "learned",
}
CHOICES = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2},
    "multi-query": {"num_key_value_heads": 1},
    "query and key norms": {"query_key_norm": "rms_norm"},
    "value norm": {"value_norm": "rms_norm"},
    "scale": {"scale": 0.3},
    "learned scale": {"scale": {"name": "learned", "initial_value": 0.7}},
    "window": {"window": 2},
    "soft cap": {"soft_cap": 0.8},
    "sink": {"sink": 0.0},
    "learned sink": {"sink": "learned"},
    "everything": EVERYTHING,
}
POSITIONS = {
    "none": {"name": "none"},
    "rotary": {"name": "rotary", "base": 20.0},
    "rotary linear": {"name": "rotary", "scaling": {"name": "linear", "factor": 3.0}},
    "rotary ntk": {"name": "rotary", "base": 90.0, "scaling": {"name": "ntk", "factor": 2.5}},
    "alibi": {"name": "alibi"},
    "t5": {"name": "t5", "num_buckets": 8, "max_distance": 5},
    "shaw": {"name": "shaw", "max_distance": 2},
}
PAIRS = [(choice, "none") for choice in CHOICES]
PAIRS += [
    (choice, kind) for choice in ("plain", "everything") for kind in POSITIONS if kind != "none"
]


def self_attention(choice, kind, dtype="float64", **arguments):
    layer = MultiHeadSelfAttention(
        H,
        head_dim=K,
        attention=CHOICES[choice],
        positions=POSITIONS[kind],
        dtype=dtype,
        **arguments,
    )
    layer.build((B, T, D))
    return randomize(layer)


def cross_attention(choice, dtype="float64"):
    layer = MultiHeadCrossAttention(H, head_dim=K, attention=CHOICES[choice], dtype=dtype)
    layer.build((B, T, D), (B, S, D))
    return randomize(layer)


@pytest.mark.fast_cases(20)
@pytest.mark.parametrize("is_causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize(("choice", "kind"), PAIRS)
def test_self_attention_equals_the_formula(choice, kind, is_causal):
    layer, x = self_attention(choice, kind), random(B, T, D)
    y, weights = layer(
        x, padding_mask=PADDING, use_causal_mask=is_causal, return_attention_scores=True
    )
    expected, expected_weights = reference(
        layer, x, x, PADDING[:, None], CHOICES[choice], POSITIONS[kind], is_causal
    )
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(y, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("choice", CHOICES)
def test_cross_attention_equals_the_formula_and_leaves_the_window_out(choice):
    layer, x, memory = cross_attention(choice), random(B, T, D), random(B, S, D, seed=4)
    mask = padding([2, S], S)
    y, weights = layer(x, memory, memory_padding_mask=mask, return_attention_scores=True)
    choices = {name: value for name, value in CHOICES[choice].items() if name != "window"}
    expected, expected_weights = reference(layer, x, memory, mask[:, None], choices)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-11)
    cached = layer(x, memory_padding_mask=mask, cache=layer.project_memory(memory))
    np.testing.assert_allclose(cached, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.fast_cases(12)
@pytest.mark.parametrize(("choice", "kind"), PAIRS)
def test_cached_equals_uncached_at_every_offset(choice, kind):
    layer, x = self_attention(choice, kind, "float32"), random(B, T, D)
    expected, expected_weights = layer(x, use_causal_mask=True, return_attention_scores=True)
    cache = layer.empty_cache(B, T + 2)
    for t in range(T):
        y, weights, cache = layer(
            x[:, t : t + 1], cache=cache, cache_update_index=t, return_attention_scores=True
        )
        np.testing.assert_allclose(y[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(weights[:, :, 0, :T], expected_weights[:, :, t], atol=1e-5)


@pytest.mark.parametrize("shift", [1, 4, 1000])
@pytest.mark.parametrize("kind", POSITIONS)
def test_relative_positions_do_not_change_when_all_positions_are_shifted(kind, shift):
    """The same tokens later in a cache, with what stands before them hidden."""
    layer, x = self_attention("plain", kind), random(B, T, D)
    expected, expected_weights = layer(x, use_causal_mask=True, return_attention_scores=True)
    visible = np.broadcast_to(np.arange(shift + T) >= shift, (B, shift + T))
    y, weights, _ = layer(
        x,
        padding_mask=visible,
        cache=layer.empty_cache(B, shift + T),
        cache_update_index=shift,
        return_attention_scores=True,
    )
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weights[..., shift:], expected_weights, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["rotary", "alibi", "t5", "shaw"])
def test_relative_positions_tell_orders_apart(kind):
    layer, x = self_attention("plain", kind), random(B, T, D)
    mirrored = array(layer(x[:, ::-1]))[:, ::-1]
    assert (np.abs(mirrored - array(layer(x))).max() > 1e-3) == (kind != "alibi")
    assert np.abs(array(self_attention("plain", "none")(x)) - array(layer(x))).max() > 1e-3


STEP = 1e-5


@pytest.mark.fast_cases(8)
@pytest.mark.parametrize(("choice", "kind"), PAIRS)
def test_directional_derivatives(choice, kind):
    layer, x = self_attention(choice, kind), tf.Variable(random(B, T, D))
    cotangent = random(B, T, D, seed=6)
    variables = [x, *(w.value for w in layer.trainable_variables)]

    @tf.function
    def value():
        y = layer(x.value(), padding_mask=PADDING, use_causal_mask=True)
        return tf.reduce_sum(y * cotangent)

    with tf.GradientTape() as tape:
        result = value()
    for i, (variable, gradient) in enumerate(
        zip(variables, tape.gradient(result, variables), strict=True)
    ):
        direction, start = random(*variable.shape, seed=10 + i), variable.numpy()
        variable.assign(start + STEP * direction)
        above = value().numpy()
        variable.assign(start - STEP * direction)
        difference = (above - value().numpy()) / (2 * STEP)
        variable.assign(start)
        slope = np.sum(tf.convert_to_tensor(gradient) * direction)
        np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7, err_msg=str(i))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("choice", ["plain", "everything", "grouped"])
@pytest.mark.parametrize("is_fused", [False, True], ids=["in steps", "in one"])
def test_nothing_to_attend_to_in_half_precision(dtype, choice, is_fused, monkeypatch):
    monkeypatch.setattr(attention_module, "has_fused_attention", lambda: is_fused)
    layer = MultiHeadSelfAttention(
        H, head_dim=K, use_bias=False, attention=CHOICES[choice], dtype=f"mixed_{dtype}"
    )
    x, mask = tf.cast(50 * random(B, T, D), dtype), np.ones((B, T, T), bool)
    mask[0, 2], mask[1] = False, False
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, attention_mask=mask)
        loss = tf.reduce_sum(tf.cast(y, "float32")) * 1e-3
    assert y.dtype == dtype
    gradient = array(tf.cast(tape.gradient(loss, x), "float32"))
    y, empty = array(tf.cast(y, "float32")), ~mask.any(-1)
    assert np.isfinite(y).all() and np.isfinite(gradient).all()
    np.testing.assert_array_equal(y[empty], 0.0)
    np.testing.assert_array_equal(gradient[1], 0.0)
    assert (np.abs(y[~empty]).max(-1) > 0).all()


# The backend's one operation


@pytest.mark.parametrize("mask", [None, PADDING], ids=["no mask", "padding"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("choice", ["plain", "grouped", "learned scale", "window"])
def test_one_operation_gives_what_the_steps_give(choice, dtype, mask, monkeypatch):
    layer, x = self_attention(choice, "rotary", dtype), random(B, T, D)
    expected = array(tf.cast(layer(x, padding_mask=mask), "float32"))
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return fused(*arguments)

    fused = attention_module.fused_attention
    monkeypatch.setattr(attention_module, "has_fused_attention", lambda: True)
    monkeypatch.setattr(attention_module, "fused_attention", counted)
    found = array(tf.cast(layer(x, padding_mask=mask), "float32"))
    assert len(calls) == 1
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("choice", "kind", "arguments", "call"),
    [
        ("plain", "none", {}, {"return_attention_scores": True}),
        ("plain", "none", {"dropout": 0.1}, {"training": True}),
        ("soft cap", "none", {}, {}),
        ("sink", "none", {}, {}),
        ("plain", "alibi", {}, {}),
        ("plain", "t5", {}, {}),
        ("plain", "shaw", {}, {}),
    ],
)
def test_what_needs_the_steps_gets_them(choice, kind, arguments, call, monkeypatch):
    def refuse(*_):
        raise AssertionError("in one operation")

    layer = self_attention(choice, kind, **arguments)
    monkeypatch.setattr(attention_module, "has_fused_attention", lambda: True)
    monkeypatch.setattr(attention_module, "fused_attention", refuse)
    layer(random(B, T, D), **call)
    if "training" in call:
        with pytest.raises(AssertionError, match="in one operation"):
            layer(random(B, T, D), training=False)


@pytest.mark.parametrize(
    ("choice", "kind", "arguments", "dtype", "reason"),
    [
        ("soft cap", "none", {}, "bfloat16", "soft_cap limits the logits"),
        ("sink", "none", {}, "bfloat16", "a sink takes a share"),
        ("plain", "alibi", {}, "bfloat16", "AlibiPositions changes"),
        ("plain", "none", {"dropout": 0.1}, "bfloat16", "attention_dropout"),
        ("plain", "none", {}, "float32", "for 16 bits, and this is float32"),
        ("plain", "none", {}, "bfloat16", None),
    ],
)
def test_on_a_gpu_attention_says_once_why_it_is_not_fused(
    choice, kind, arguments, dtype, reason, monkeypatch
):
    layer = self_attention(choice, kind, dtype, **arguments)
    # What is asked of the device, answered as JAX does on a GPU.
    monkeypatch.setattr(attention_module, "has_fused_attention", lambda: True)
    monkeypatch.setattr(masks, "keras", types.SimpleNamespace(backend=OnJAX))
    masks.say_if_not_fused.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            layer._may_be_fused(True, dtype)
    masks.say_if_not_fused.cache_clear()
    said = [str(warning.message) for warning in caught]
    if reason is None:
        assert not said
    else:
        (text,) = said
        assert text.startswith("On this GPU an attention is computed in steps") and reason in text


class OnJAX:
    """In the place of `keras.backend`."""

    @staticmethod
    def backend():
        return "jax"


# Arguments


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": 0}, "num_key_value_heads.*positive integer.*Received: 0"),
        ({"num_key_value_heads": 3}, "divide num_heads=4: one of 1, 2, 4. Received: 3"),
        ({"window": 2.5}, "window.*positive integer of 32 bits or None. Received: 2.5"),
        ({"soft_cap": 0.0}, "soft_cap.*has to be positive.*Received: 0.0"),
        ({"query_key_norm": "batch"}, "no such norm"),
        ({"query_key_norm": "batch_norm"}, "query_key_norm.*mix positions.*'batch_norm'"),
        ({"value_norm": {"name": "batch_norm"}}, "value_norm.*mix positions"),
        ({"scale": "big"}, "scale.*Expected None, a number, 'learned'.*Received: 'big'"),
        ({"sink": {"name": "learned", "value": 1}}, "sink.*Received: {'name'"),
        ({"sink": True}, "sink.*Received: True"),
        ({"heads": 2}, "no such field. Expected fields among num_key_value_heads, .*: heads"),
        ({"head_diversity": {}}, "not all of them 0"),
        ({"head_diversity": {"outputs": -1.0}}, "0 or more"),
        (
            {"head_diversity": {"heads": 1.0}},
            "among subspaces, positions, outputs. Received: heads",
        ),
    ],
)
def test_bad_choices_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadSelfAttention(H, attention=fields)


@pytest.mark.parametrize("choice", CHOICES)
def test_choices_are_written_down(choice):
    config = AttentionConfig.get(CHOICES[choice])
    assert AttentionConfig.get(json.loads(json.dumps(config.to_dict()))) == config
    assert set(config.to_dict()) == set(CHOICES[choice])
    assert AttentionConfig.get(config) is config


def test_a_choice_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AttentionConfig().window = 3


@pytest.mark.parametrize("kind", POSITIONS)
def test_layers_come_back_from_their_config(kind):
    layer = MultiHeadSelfAttention(H, attention=EVERYTHING, positions=POSITIONS[kind])
    clone = MultiHeadSelfAttention.from_config(json.loads(json.dumps(layer.get_config())))
    assert clone.get_config() == layer.get_config()
    cross = MultiHeadCrossAttention(H, attention=EVERYTHING)
    assert MultiHeadCrossAttention.from_config(cross.get_config()).attention == cross.attention


def test_keys_and_values_of_groups_are_smaller():
    layer = self_attention("grouped", "none")
    assert layer.key_projection.kernel.shape == layer.value_projection.kernel.shape == (D, 2 * K)
    assert layer.query_projection.kernel.shape == (D, H * K)
    assert layer.empty_cache(B, 9).shape == (B, 2, 9, 2, K)


def test_learned_numbers_start_where_the_fixed_ones_are():
    layer = MultiHeadSelfAttention(H, head_dim=K, attention={"scale": "learned", "sink": "learned"})
    layer.build((B, T, D))
    scale, sink = (array(w) for w in layer._trainable_variables)
    np.testing.assert_allclose(scale, np.full(H, K**-0.5), rtol=1e-6)
    np.testing.assert_array_equal(sink, np.zeros(H))


# Heads that agree


def test_the_loss_on_heads_that_agree_equals_the_papers_double_sum():
    factors = {"subspaces": 0.3, "positions": 0.5, "outputs": 0.7}
    layer = MultiHeadSelfAttention(
        H, head_dim=K, attention={"head_diversity": factors}, dtype="float64"
    )
    layer.build((B, T, D))
    randomize(layer)
    x = random(B, T, D)
    layer(x, padding_mask=PADDING)
    assert layer.losses == []
    layer(x, padding_mask=PADDING, training=True)
    (found,) = layer.losses

    _, weights = layer(x, padding_mask=PADDING, return_attention_scores=True)
    weights = array(weights)
    keys, values = layer.key_projection(x), layer.value_projection(x)
    _, values = (array(v) for v in layer._as_keys_values(keys, values))
    context = np.einsum("bhts,bshk->bthk", weights, values)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    real = np.argwhere(PADDING)
    pairs = [(i, j) for i in range(H) for j in range(H)]
    means = {
        "subspaces": [
            np.mean([cosine(values[b, t, i], values[b, t, j]) for i, j in pairs]) for b, t in real
        ],
        "positions": [
            np.mean([weights[b, i, t] @ weights[b, j, t] for i, j in pairs]) for b, t in real
        ],
        "outputs": [
            np.mean([cosine(context[b, t, i], context[b, t, j]) for i, j in pairs]) for b, t in real
        ],
    }
    expected = sum(factors[name] * np.mean(values) for name, values in means.items())
    # Keras adds losses in floatx, so the layer's float64 ends there.
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_cross_attention_counts_the_queries_that_the_mask_on_them_lets_through():
    layer = MultiHeadCrossAttention(H, head_dim=K, attention={"head_diversity": {"positions": 1.0}})
    x, memory = tf.constant(random(B, T, D), "float32"), random(B, S, D, seed=4)
    keras.src.backend.set_keras_mask(x, tf.constant(PADDING))
    layer(x, memory, training=True)
    (loss,) = layer.losses
    _, weights = layer(x, memory, return_attention_scores=True)
    mean = array(weights).mean(1)
    np.testing.assert_allclose(loss, (mean**2).sum(-1)[PADDING].mean(), rtol=1e-5)


def test_equal_heads_agree_and_the_loss_moves_them_apart():
    layer = MultiHeadSelfAttention(
        2, head_dim=3, attention=AttentionConfig(head_diversity=HeadDiversity(outputs=1.0))
    )
    x = tf.constant(random(B, T, D), "float32")
    layer.build(x.shape)
    for projection in (layer.query_projection, layer.key_projection, layer.value_projection):
        kernel = array(projection.kernel)
        kernel[:, 3:] = kernel[:, :3] + 1e-3 * random(D, 3)
        projection.kernel.assign(kernel)
    losses = []
    optimizer = keras.optimizers.SGD(3.0)
    for _ in range(12):
        with tf.GradientTape() as tape:
            layer(x, training=True)
            losses.append(layer.losses[0])
        layer._clear_losses()
        variables = [w for w in layer.trainable_variables if "output" not in w.path]
        optimizer.apply(tape.gradient(losses[-1], [w.value for w in variables]), variables)
    assert float(losses[0]) == pytest.approx(1.0, abs=1e-4)
    assert float(losses[-1]) < 0.9
