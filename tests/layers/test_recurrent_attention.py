"""SSRU and average attention: the formulas, padding, prefixes, gradients, and what is refused.

`test_on_other_backends` runs this file on JAX and torch.
"""

import keras
import numpy as np
import pytest
from covering import covering
from keras import ops
from layers_reference import array, random, randomize
from recurrent_reference import FORMULAS

from keras_addnorm import norms, schemes
from keras_addnorm.layers import (
    SSRU,
    AverageAttention,
    BlockConfig,
    MultiHeadSelfAttention,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    self_attention,
)
from keras_addnorm.layers.recurrence import linear_recurrence
from keras_addnorm.layers.recurrent_attention import RecurrentSelfAttention
from keras_addnorm.models import Seq2SeqConfig

B, T, D, F, S, H = 3, 11, 5, 7, 13, 1
KINDS = tuple(FORMULAS)
NORMS = tuple(name for name in norms.names() if name != "batch_norm")  # For encoders alone.
SIZES = {"num_heads": H, "intermediate_dim": F}
# Nothing, padding behind, and padding before, between and behind.
MASK = np.arange(T) < np.array([[T], [6], [T]])
MASK[2, [0, 4, 5, 10]] = False


def make(kind, **options):
    layer = SSRU(**options) if kind == "ssru" else AverageAttention(F, **options)
    layer.build((B, T, D))
    return randomize(layer)


def near(found, expected, atol=1e-5):
    np.testing.assert_allclose(array(found), array(expected), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mask", [np.ones_like(MASK), MASK], ids=["full", "padded"])
def test_all_positions_at_once_are_the_recurrence_step_by_step(kind, dtype, mask):
    layer, x = make(kind, dtype=dtype), random(B, T, D)
    found = layer(ops.convert_to_tensor(x, dtype), padding_mask=mask)
    # JAX, and Keras' products on torch, have no float64 unless a process asks for it.
    is_exact = dtype == "float64" and keras.backend.backend() == "tensorflow"
    atol = 1e-13 if is_exact else 1e-5
    np.testing.assert_allclose(array(found), FORMULAS[kind](layer, x, mask), rtol=0, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(1,) * T, (4, 1, 6), (T,)], ids=str)
def test_prefixes_of_unequal_length_and_steps_give_the_whole_pass(kind, lengths):
    layer, x = make(kind), ops.convert_to_tensor(random(B, T, D), "float32")
    expected = layer(x, padding_mask=MASK)
    cache, start, outputs = layer.empty_cache(B, T), 0, []
    sizes = [tuple(each.shape) for each in keras.tree.flatten(cache)]
    for length in lengths:
        y, cache = layer(
            x[:, start : start + length],
            padding_mask=MASK,
            cache=cache,
            cache_update_index=start,
        )
        outputs.append(y)
        start += length
        assert [tuple(each.shape) for each in keras.tree.flatten(cache)] == sizes
    near(ops.concatenate(outputs, axis=1), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_of_no_position_comes_none_and_the_state_stays(kind):
    layer, x = make(kind), ops.zeros((B, 0, D))
    found, scores = layer(x, padding_mask=np.ones((B, 0), bool), return_attention_scores=True)
    assert (found.shape, scores.shape) == ((B, 0, D), (B, 0, 0, 0))
    _, before = layer(
        ops.convert_to_tensor(random(B, 2, D)),
        cache=layer.empty_cache(B, T),
        cache_update_index=0,
    )
    found, after = layer(x, cache=before, cache_update_index=2)
    assert found.shape == (B, 0, D)
    keras.tree.map_structure(near, after, before)


@pytest.mark.parametrize("length", [1, 2, T])
def test_the_gradient_of_the_recurrence(length):
    """With respect to both factors, against the loop backwards in NumPy."""
    f, b, g = (random(B, length, D, seed=seed) for seed in (3, 4, 5))
    states, of_f, of_b, carried = [], np.zeros_like(f), np.zeros_like(b), np.zeros((B, D))
    for t in range(length):
        states.append(b[:, t] + (f[:, t] * states[-1] if states else 0))
    for t in reversed(range(length)):
        of_b[:, t] = carried = g[:, t] + carried
        of_f[:, t] = carried * (states[t - 1] if t else 0)
        carried = carried * f[:, t]
    found, gradients = with_gradients(linear_recurrence, f, b, g)
    np.testing.assert_allclose(found, np.stack(states, 1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients[1], of_b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients[0], of_f, rtol=1e-12, atol=1e-12)


def with_gradients(function, x, y, upstream):
    """The value, and the gradients of both arguments, on the backend of this process."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        x, y = tf.constant(x), tf.constant(y)
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            z = function(x, y)
        gradients = tape.gradient(z, [x, y], upstream, unconnected_gradients="zero")
    elif backend == "jax":
        import jax

        with jax.enable_x64(True):
            z, pull = jax.vjp(function, jax.numpy.asarray(x), jax.numpy.asarray(y))
            gradients = pull(jax.numpy.asarray(upstream))
    else:
        import torch

        x, y = (torch.tensor(each, requires_grad=True) for each in (x, y))
        z = function(x, y)
        z.backward(torch.tensor(upstream))
        gradients = [ops.zeros_like(each) if each.grad is None else each.grad for each in (x, y)]
    return array(z), [array(each) for each in gradients]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(kind, policy):
    layer, x = make(kind, dtype=policy), random(B, T, D)
    y, cache = layer(ops.convert_to_tensor(x), cache=layer.empty_cache(B, T), cache_update_index=0)
    kinds = {keras.backend.standardize_dtype(each.dtype) for each in keras.tree.flatten((y, cache))}
    counts = {"int32"} if kind == "average_attention" else set()
    assert kinds == {policy.removeprefix("mixed_"), *counts}
    expected = FORMULAS[kind](layer, x, np.ones((B, T), bool))
    np.testing.assert_allclose(array(ops.cast(y, "float32")), expected, atol=0.1)


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize(
    ("scheme", "norm", "kind"), covering(schemes.names(), NORMS, KINDS, strength=1), ids=str
)
@pytest.mark.filterwarnings("ignore:.*lets the size of the stream go")
def test_a_decoder_with_every_scheme_decodes_as_it_trains(scheme, norm, kind):
    decoder = TransformerDecoder(2, **SIZES, scheme=scheme, norm=norm, self_attention=kind)
    width = 2 * D  # some schemes part it in two
    x, memory = random(B, 3, width).astype("float32"), random(B, S, D, seed=4).astype("float32")
    decoder.build(x.shape, memory.shape)
    randomize(decoder)
    expected, cache = decoder(x, memory), decoder.initial_cache(B, 3, ops.convert_to_tensor(memory))
    for t in range(3):
        y, cache = decoder(x[:, t : t + 1], cache=cache, cache_update_index=t)
        near(y[:, 0], expected[:, t], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_reads_as_the_figure_with_another_first_sublayer(kind):
    layer = TransformerDecoderLayer(**SIZES, self_attention=kind)
    x = random(B, T, D).astype("float32")
    layer.build(x.shape)
    randomize(layer)
    mask = np.ones((B, T), bool)
    h = x + FORMULAS[kind](layer.self_attention, x.astype("float64"), mask)
    h = layer.self_attention_add_norm.post_norm(ops.convert_to_tensor(h, "float32"))
    expected = layer.feed_forward_add_norm.post_norm(h + layer.feed_forward(h))
    y, scores = layer(x, return_attention_scores=True)
    near(y, expected)
    assert tuple(scores["self_attention"].shape) == (B, 0, T, T)


def test_the_gain_of_a_scheme_is_on_the_values():
    """DeepNorm's beta on W of the cell, and on both kernels of the feed-forward network."""
    position = schemes.StackPosition(8, 8, "decoder", 3)
    for kind, scaled in (("ssru", ["cell"]), ("average_attention", ["intermediate", "output"])):
        peaks = {}
        for scheme in ("post_ln", "deep_norm"):
            keras.utils.set_random_seed(3)
            layer = TransformerDecoderLayer(
                **SIZES, scheme=scheme, self_attention=kind, position=position
            )
            layer.build((B, T, 64))
            weights = layer.self_attention.weights
            peaks[scheme] = {w.path: np.abs(array(w)).max() for w in weights if "kernel" in w.path}
        gain = layer.self_attention_add_norm.init_gain
        assert gain < 0.7
        for path, peak in peaks["deep_norm"].items():
            expected = gain if any(f"{name}_projection" in path for name in scaled) else 1
            peak_before = next(v for k, v in peaks["post_ln"].items() if tail(k) == tail(path))
            assert peak / peak_before == pytest.approx(expected, rel=0.05), path


def tail(path):
    return path.split("self_attention/")[1]


def test_sub_ln_has_its_norm_where_there_is_an_output_projection():
    for kind, count in (("ssru", 0), ("average_attention", 2)):
        decoder = TransformerDecoder(1, **SIZES, scheme="sub_ln", self_attention=kind)
        decoder.build((B, T, D))
        names = [weight.path for weight in decoder.layers[0].self_attention.weights]
        assert sum("inner_norm" in name for name in names) == count


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_makes_the_layer_again(kind):
    layer = make(kind, use_bias=False, kernel_initializer="he_normal", init_gain=0.5)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again.build((B, T, D))
    again.set_weights(layer.get_weights())
    x = ops.convert_to_tensor(random(B, T, D), "float32")
    near(again(x), layer(x))


def test_choices_are_read_from_a_name_or_a_dict():
    own = {"name": "average_attention", "intermediate_dim": 3, "activation": "relu"}
    layer = TransformerDecoderLayer(**SIZES, self_attention=own)
    layer.build((B, T, D))
    network = layer.self_attention.feed_forward
    assert (network.intermediate_dim, network.activation) == (3, "relu")
    assert BlockConfig(**SIZES, self_attention={"name": "ssru"}).self_attention == "ssru"
    assert BlockConfig(**SIZES, self_attention=own).to_dict()["self_attention"] == own
    layer = TransformerDecoderLayer(**SIZES, self_attention="average_attention")
    layer.build((B, T, D))
    assert layer.self_attention.feed_forward.intermediate_dim == F
    layer = TransformerDecoderLayer(**SIZES)
    layer.build((B, T, D))
    assert type(layer.self_attention) is MultiHeadSelfAttention


class Last(RecurrentSelfAttention):
    """Outputs what was read before."""

    @classmethod
    def in_block(cls, arguments, **choices):
        return cls(**arguments.for_keras(), **choices)

    def build(self, x_shape):
        self.width = x_shape[-1]

    def initial_state(self, batch_size):
        return ops.zeros((batch_size, self.width))

    def run(self, x, mask, state, training):
        state = ops.zeros_like(x[:, 0]) if state is None else state
        return ops.concatenate([state[:, None], x[:, :-1]], axis=1), x[:, -1]


def test_a_kind_of_your_own(monkeypatch):
    monkeypatch.setattr(self_attention._TABLE, "_classes", dict(self_attention._TABLE._classes))
    self_attention.register("last", Last)
    decoder = TransformerDecoder(1, **SIZES, self_attention="last")
    x = random(B, T, D).astype("float32")
    decoder.build(x.shape)
    randomize(decoder)
    y, cache = decoder(x[:, :4], cache=decoder.initial_cache(B, T), cache_update_index=0)
    near(y, decoder(x)[:, :4])
    near(cache[0]["self_attention"], x[:, 3])


SEQ2SEQ = {
    "source_vocabulary_size": 17,
    "target_vocabulary_size": 19,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "hidden_dim": 6,
    **SIZES,
    "num_heads": 2,
}


def at_index(index, **options):
    layer = make("ssru")
    return layer(
        random(B, 2, D), cache=layer.empty_cache(B, T), cache_update_index=index, **options
    )


REFUSED = {
    "no such kind": (
        lambda: BlockConfig(**SIZES, self_attention="gru"),
        "no such kind of self-attention. Expected one of multi_head_attention, ssru, average",
    ),
    "no such field": (
        lambda: BlockConfig(**SIZES, self_attention={"name": "ssru", "intermediate_dim": 3}),
        "'ssru' has no such field",
    ),
    "a size of 0": (
        lambda: BlockConfig(
            **SIZES, self_attention={"name": "average_attention", "intermediate_dim": 0}
        ),
        "intermediate_dim",
    ),
    "an encoder": (
        lambda: TransformerEncoder(1, **SIZES, self_attention="ssru"),
        "An encoder attends to both sides of a position",
    ),
    "relative positions": (
        lambda: TransformerDecoder(1, **SIZES, self_attention="ssru", positions="rotary"),
        "Relative positions are those of attention",
    ),
    "no order": (
        lambda: Seq2SeqConfig(**SEQ2SEQ, self_attention="average_attention", positions="t5"),
        "does not know the order of tokens",
    ),
    "an attention mask": (
        lambda: make("ssru")(random(B, T, D), attention_mask=np.ones((T, T), bool)),
        "no keys that an attention_mask could hide",
    ),
    "a cache without its index": (
        lambda: make("ssru")(random(B, T, D), cache=make("ssru").empty_cache(B, T)),
        "A cache needs the index",
    ),
    "a place before the first": (lambda: at_index(-1), "cache_update_index >= 0. Received: .*-1"),
    "a place behind the mask": (
        lambda: at_index(T - 1, padding_mask=MASK),
        f"There are {T} positions. Expected 0 <= cache_update_index <= {T - 2}. Received",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refused(call):
    function, message = REFUSED[call]
    with pytest.raises(ValueError, match=message):
        function()


def test_a_model_may_have_relative_positions_in_its_encoder():
    config = Seq2SeqConfig(**SEQ2SEQ, self_attention="ssru", positions="rotary")
    assert config.for_side("encoder").positions == "rotary"
    assert config.for_side("decoder").positions == "none"
