"""What the papers' formulas imply for schemes of one stream; tests/layers has the formulas."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm import schemes
from keras_addnorm.layers import AddNorm, TransformerDecoder, TransformerEncoder
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import GPAS, Keel, PostLN, StackPosition, StreamScheme

B, T, D = 2, 3, 5
PLACE = StackPosition(3, 2, "decoder", 1, "feed_forward")


def random(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


X, F = random(B, T, D), random(B, T, D, seed=4)


def make(scheme, position=PLACE, dtype="float64", **arguments):
    add_norm = AddNorm(scheme, position=position, dtype=dtype, **arguments)
    add_norm.build((B, T, D))
    return add_norm


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def giving(f):
    """A sublayer that gives f, whatever it reads."""
    return lambda h: f


# Keel


def test_keel_of_an_endless_gain_is_the_norm_of_the_stream():
    endless = make(Keel(alpha=1e9))
    np.testing.assert_allclose(
        endless(X, giving(F)), make("post_ln")(X, np.zeros_like(X)), atol=1e-5
    )


def test_keel_without_gain_and_inner_norm_is_post_ln():
    place = StackPosition(3, 2, "decoder", 0, "feed_forward")
    np.testing.assert_array_equal(make("keel", place)(X, giving(F)), make("post_ln")(X, F))
    without = make("keel", place, norm="none")
    np.testing.assert_array_equal(without.branch_input(X), X)


def test_keels_first_sublayer_is_pre_lns():
    place = StackPosition(3, 2, "decoder", 0, "self_attention")
    keel, pre_ln = make("keel", place), make("pre_ln")
    np.testing.assert_array_equal(keel.branch_input(X), pre_ln.branch_input(X))
    np.testing.assert_array_equal(keel(X, F), pre_ln(X, F))


def test_keels_gain_keeps_the_papers_share_of_the_gradient():
    """Section 3: a stack of L sublayers keeps (1 + 1/L^2)^(-L/2), here of 12."""
    alpha = Keel().plan(StackPosition(6, 6, "encoder", 1, "feed_forward")).skip_gain
    # A stream and branches of unit variance, independent: the norm divides by their sum's size.
    kept = (alpha / np.sqrt(alpha**2 + 1)) ** 12
    assert kept == pytest.approx((1 + 1 / 12**2) ** -6) == pytest.approx(0.9593, abs=5e-5)


def test_a_folded_keel_needs_a_norm_that_can_make_up_for_the_gain():
    with pytest.raises(ValueError, match=r"'none' cannot make up for the gain.*'layer_norm'"):
        make(Keel(folded=True), norm="none")


# Orthogonal


def test_the_orthogonal_update_has_no_part_along_the_stream():
    y = array(make("orthogonal")(X, giving(F)))
    np.testing.assert_allclose(((y - X) * X).sum(-1), 0, atol=1e-5)
    share = (X * F).sum(-1, keepdims=True) / (X * X).sum(-1, keepdims=True)
    added = np.square(F - share * X).sum(-1)
    np.testing.assert_allclose(np.square(y).sum(-1), np.square(X).sum(-1) + added, rtol=1e-5)


def test_the_orthogonal_residual_of_branches_along_and_across_the_stream():
    scheme = {"name": "orthogonal", "epsilon": 1e-12}
    np.testing.assert_allclose(make(scheme)(X, giving(-0.7 * X)), X, rtol=1e-10)
    across = F - (X * F).sum(-1, keepdims=True) / (X * X).sum(-1, keepdims=True) * X
    np.testing.assert_allclose(make(scheme)(X, giving(across)), X + across, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("policy", "size", "rounding"),
    [("mixed_float16", 300.0, 2**-10), ("mixed_bfloat16", 30.0, 2**-7)],
)
def test_the_orthogonal_factor_is_float32_in_half_precision(policy, size, rounding):
    # Squares of 300 overflow float16: the share, which is near 1, would be lost.
    half = policy.removeprefix("mixed_")
    stream = size * random(B, T, 64)
    x, f = (tf.cast(each, half) for each in (stream, stream + random(B, T, 64, seed=4)))
    add_norm = AddNorm("orthogonal", dtype=policy)
    y = add_norm(x, giving(f))
    assert y.dtype == half
    wide, branch = array(x).astype("float64"), array(f).astype("float64")
    share = (wide * branch).sum(-1, keepdims=True) / (wide**2).sum(-1, keepdims=True)
    exact = wide + branch - share * wide
    assert (np.abs(array(y).astype("float64") - exact) <= 2 * rounding * np.abs(wide) + 1e-2).all()


def test_a_stream_of_zeros_takes_the_whole_branch():
    x, f = tf.zeros((B, T, D)), tf.constant(F, "float32")
    add_norm = AddNorm("orthogonal")
    with tf.GradientTape() as tape:
        tape.watch([x, f])
        y = add_norm(x, giving(f))
    np.testing.assert_array_equal(y, f)
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(y, [x, f]))


# Deep delta


def test_deep_delta_moves_the_part_along_the_branch_and_nothing_else():
    add_norm = make("deep_delta")
    f = F / np.linalg.norm(F, axis=-1, keepdims=True)
    long, short = (array(add_norm(X, giving(size * F))) for size in (1e4, 1e3))
    np.testing.assert_allclose(long, short, rtol=1e-6, atol=1e-6)
    # At the start the step is whole and the value 2: along f there is 2, and elsewhere what was.
    along = (long * f).sum(-1, keepdims=True)
    np.testing.assert_allclose(along, 2, rtol=1e-6)
    old = (X * f).sum(-1, keepdims=True)
    np.testing.assert_allclose(long - along * f, X - old * f, atol=1e-6)
    np.testing.assert_array_equal(array(add_norm(X, giving(0 * F))), X)


@pytest.mark.parametrize("initial_step", [0.5, 1.5])
def test_deep_delta_starts_with_the_step_that_was_asked_for(initial_step):
    add_norm = make({"name": "deep_delta", "initial_step": initial_step})
    f = 1e4 * F / np.linalg.norm(F, axis=-1, keepdims=True)
    moved = ((array(add_norm(X, giving(f))) - X) * f).sum(-1) / 1e4
    np.testing.assert_allclose(moved, initial_step * (2 - (X * f).sum(-1) / 1e4), rtol=1e-6)


# ProRes


@pytest.mark.parametrize("of", ["pre_ln", "post_ln", "sandwich_ln", "deep_norm"])
def test_pro_res_brings_branches_in_and_is_then_the_scheme_inside(of):
    place = dataclasses.replace(PLACE, layer_index=1)
    add_norm, inner = make({"name": "pro_res", "of": of, "warmup_steps": 2}, place), make(of, place)
    for step in range(6):
        found = array(add_norm(X, giving(F), training=True))
        share = min(step / 4, 1)  # in the second layer twice as many steps
        if of == "sandwich_ln":
            expected = X + share * (array(inner(X, giving(F))) - X)
        else:
            expected = array(inner(X, giving(share * F)))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert float(add_norm.step) == 4
    np.testing.assert_array_equal(array(add_norm(X, giving(F))), array(inner(X, giving(F))))


def test_pro_res_goes_on_counting_where_a_training_was_saved(tmp_path):
    def stack():
        return TransformerEncoder(
            2, num_heads=1, intermediate_dim=7, scheme={"name": "pro_res", "warmup_steps": 3}
        )

    def counts(encoder):
        return [float(weight) for weight in encoder.weights if weight.name == "step"]

    x, models = X.astype("float32"), [keras.Sequential([keras.Input((T, D)), stack()])]
    models[0].compile("sgd", "mse")
    models[0].fit(x, x, epochs=4, verbose=0)
    assert counts(models[0]) == [3.0, 3.0, 4.0, 4.0]
    models[0].save_weights(tmp_path / "m.weights.h5")
    models.append(keras.Sequential([keras.Input((T, D)), stack()]))
    models[1].compile("sgd", "mse")
    models[1].load_weights(tmp_path / "m.weights.h5")
    for model in models:
        model.fit(x, x, epochs=1, verbose=0)
        model.evaluate(x, x, verbose=0)  # counts nothing
    assert counts(models[1]) == counts(models[0]) == [3.0, 3.0, 5.0, 5.0]
    np.testing.assert_array_equal(models[1].predict(x), models[0].predict(x))


# T-Fixup and DS-Init: initial weights


def test_t_fixup_starts_embeddings_smaller_and_is_no_norm_with_the_same_weights():
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "hidden_dim": 64, "num_heads": 2}
    sizes |= {"source_vocabulary_size": 300, "target_vocabulary_size": 300, "intermediate_dim": 8}
    inputs = {"source": np.array([[4, 5, 2]]), "target": np.array([[1, 6, 7]])}

    def build(scheme, **options):
        return Seq2SeqTransformer(Seq2SeqConfig(**sizes, scheme=scheme, **options))

    model, shared = build("t_fixup"), build("t_fixup", share_embeddings=True)
    gains = {model.encoder_embedding: 2, model.decoder_embedding: 3, shared.decoder_embedding: 2}
    for embedding, depth in gains.items():
        # A sample of 19,200 has a standard deviation within 4 * 0.7 / sqrt(19,200), 2 %.
        std = (9 * depth) ** -0.25 / np.sqrt(64)
        assert array(embedding.embeddings).std() == pytest.approx(std, rel=0.02)
    same = build("no_norm")
    assert array(same.encoder_embedding.embeddings).std() == pytest.approx(1 / 8, rel=0.02)
    same.set_weights(model.get_weights())
    np.testing.assert_array_equal(same(inputs), model(inputs))


def test_without_branches_t_fixups_encoder_is_the_identity():
    names = ("0/self_attention", "0/feed_forward")
    encoder = TransformerEncoder(
        1, num_heads=1, intermediate_dim=7, scheme="t_fixup", pruned_sublayers=names
    )
    x = X.astype("float32")
    np.testing.assert_array_equal(encoder(x), x)
    assert encoder.weights == []


def test_ds_init_is_post_ln_with_the_same_weights():
    options = {"num_layers": 2, "num_heads": 1, "intermediate_dim": 7}
    ours, post_ln = (TransformerEncoder(**options, scheme=name) for name in ("ds_init", "post_ln"))
    ours.build((B, T, D))
    post_ln.build((B, T, D))
    post_ln.set_weights(ours.get_weights())
    np.testing.assert_array_equal(post_ln(X), ours(X))


# HybridNorm


def hybrid(sublayer, **fields):
    scheme = {"name": "hybrid_norm", **fields}
    place = StackPosition(3, 2, "decoder", 0, sublayer)
    return make(scheme, place, epsilon=1e-12)


def test_hybrid_norms_feed_forward_does_not_see_how_long_the_stream_is():
    add_norm = hybrid("feed_forward")
    np.testing.assert_allclose(
        add_norm(7.0 * X, giving(F)), add_norm(X, giving(F)), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(add_norm(X, giving(0 * F)), add_norm.branch_input(X), rtol=1e-12)


def test_hybrid_norms_first_layer_may_be_pre_lns():
    pre_ln = make("pre_ln", epsilon=1e-12)
    for sublayer in ("self_attention", "feed_forward"):
        add_norm = hybrid(sublayer, first_layer_pre_ln=True)
        np.testing.assert_array_equal(add_norm.branch_input(X), pre_ln.branch_input(X))
        np.testing.assert_array_equal(add_norm(X, F), X + F)
    np.testing.assert_array_equal(hybrid("cross_attention").branch_input(X), X)


def test_one_layer_of_starred_hybrid_norm_is_pre_ln_with_norms_in_the_attention():
    norm = {"name": "layer_norm", "epsilon": 0.2}
    options = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 7, "epsilon": 0.2}
    scheme = {"name": "hybrid_norm", "first_layer_pre_ln": True}
    hybrid_norm = TransformerDecoder(**options, scheme=scheme)
    attention = {"query_key_norm": norm, "value_norm": norm}
    pre_ln = TransformerDecoder(**options, scheme="pre_ln", attention=attention)
    x, memory = random(B, T, 6), random(B, 4, 6, seed=4)
    hybrid_norm.build(x.shape, memory.shape)
    pre_ln.build(x.shape, memory.shape)
    for weight in pre_ln.weights:
        weight.assign(weight + 0.3 * random(*weight.shape))
    hybrid_norm.set_weights(pre_ln.get_weights())
    np.testing.assert_array_equal(hybrid_norm(x, memory), pre_ln(x, memory))


def test_the_config_of_the_attention_goes_before_the_scheme():
    attention = {"value_norm": "rms_norm"}
    encoder = TransformerEncoder(
        1, num_heads=2, intermediate_dim=7, scheme="hybrid_norm", attention=attention
    )
    encoder.build((B, T, 6))
    found = encoder.layers[0].self_attention.attention
    assert found.value_norm == "rms_norm"
    assert found.query_key_norm == {"name": "layer_norm", "epsilon": 1e-6}


def test_a_norm_that_mixes_positions_is_refused_inside_an_attention():
    encoder = TransformerEncoder(
        1, num_heads=2, intermediate_dim=7, scheme="hybrid_norm", norm="batch_norm"
    )
    with pytest.raises(ValueError, match="norms inside the attention, and there norm='batch_norm'"):
        encoder.build((B, T, 6))
    # What the message says.
    attention = {"query_key_norm": "layer_norm", "value_norm": "layer_norm"}
    options = {"scheme": "hybrid_norm", "norm": "batch_norm", "attention": attention}
    TransformerEncoder(1, num_heads=2, intermediate_dim=7, **options).build((B, T, 6))


# GPAS

ONE_STREAM = [
    name
    for name in schemes.names()
    if not isinstance(schemes.get(name), StreamScheme | GPAS) and name != "peri_ln"
]


def forward_and_gradients(add_norm):
    """The output, and the gradients to stream and branch."""
    x, f = tf.constant(X), tf.constant(F)
    with tf.GradientTape() as tape:
        tape.watch([x, f])
        y = add_norm(x, giving(f)) + add_norm.branch_input(x)
        value = tf.reduce_sum(tf.cos(y))
    return [array(y), *(array(gradient) for gradient in tape.gradient(value, [x, f]))]


@pytest.mark.parametrize("name", ONE_STREAM)
def test_gpas_starts_as_the_scheme_inside_to_the_bit(name):
    inner, outer = make(name), make({"name": "gpas", "of": name})
    same = [weight for weight in outer.weights if weight is not outer.gate]
    for weight, other in zip(inner.weights, same, strict=True):
        weight.assign(weight + 0.3 * random(*weight.shape))
        other.assign(weight)
    if name == "no_residual":  # which has no stream to differentiate by
        np.testing.assert_array_equal(outer(X, F), inner(X, F))
        return
    for found, expected in zip(*map(forward_and_gradients, (outer, inner)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_gpas_scales_forwards_and_not_backwards():
    add_norm = make({"name": "gpas", "of": "no_norm"})
    add_norm.gate.assign(1.0)
    x, f, gate = tf.constant(X), tf.constant(F), add_norm.gate.value
    upstream = random(B, T, D, seed=5)
    with tf.GradientTape() as tape:
        tape.watch([x, f])
        y = add_norm(x, f)
    np.testing.assert_allclose(y, 0.2689414 * (X + F), rtol=1e-6)
    dx, df, dgate = tape.gradient(y, [x, f, gate], tf.constant(upstream))
    np.testing.assert_allclose(dx, upstream, rtol=1e-12)
    np.testing.assert_allclose(df, upstream, rtol=1e-12)
    slope = 1 / (1 + np.exp(-1)) * (1 + 1 / (1 + np.exp(1)))
    np.testing.assert_allclose(dgate, -slope * (upstream * (X + F)).sum(), rtol=1e-6)


def test_gpas_scales_the_skip_alone_where_a_norm_follows_the_sum():
    add_norm = make({"name": "gpas", "of": {"name": "deep_norm", "alpha": 3.0, "beta": 1.0}})
    add_norm.gate.assign(1.0)
    post_ln = make("post_ln")
    np.testing.assert_allclose(add_norm(X, F), post_ln(3 * 0.26894142 * X, F), rtol=1e-6)
    np.testing.assert_array_equal(add_norm.branch_input(X), X)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_gpas_gate_is_float32_in_half_precision(policy):
    add_norm = make("gpas", dtype=policy)
    assert add_norm.gate.dtype == "float32"
    half = policy.removeprefix("mixed_")
    add_norm.gate.assign(0.3)
    y = add_norm(tf.cast(X, half), giving(tf.cast(F, half)))
    assert y.dtype == half
    np.testing.assert_allclose(
        array(y).astype("float64"), (1 - 0.3 / (1 + np.exp(-0.3))) * (X + F), atol=0.05
    )


# A norm at the start of a stack


@dataclasses.dataclass(frozen=True)
class NormedStart(PostLN):
    """Post-LN behind a norm of the embeddings."""

    needs_embedding_norm = True


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_a_stack_may_begin_with_a_norm(stack):
    options = {"num_layers": 1, "num_heads": 1, "intermediate_dim": 7, "norm": "rms_norm"}
    normed, post_ln = (stack(**options, scheme=scheme()) for scheme in (NormedStart, PostLN))
    x = X.astype("float32")
    for each in (normed, post_ln):
        each.build(x.shape)
    assert post_ln.embedding_norm is None
    paths = [weight.path for weight in normed.embedding_norm.weights]
    assert paths == [f"{normed.name}/embedding_norm/scale"]
    start = normed.embedding_norm(x)
    np.testing.assert_allclose(np.square(start).mean(-1), 1, rtol=1e-4)
    own = {id(weight) for weight in normed.embedding_norm.weights}
    others = [weight for weight in normed.weights if id(weight) not in own]
    for weight, other in zip(post_ln.weights, others, strict=True):
        weight.assign(other)
    np.testing.assert_allclose(normed(x), post_ln(start), rtol=1e-5, atol=1e-6)
