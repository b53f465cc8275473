import itertools

import keras
import layers_reference as reference
import numpy as np
import pytest
from covering import covering
from layers_reference import (
    NORMS,
    SCHEMES,
    B,
    D,
    F,
    H,
    S,
    T,
    array,
    padding,
    position,
    random,
    randomize,
)

from keras_addnorm.layers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.schemes import StackPosition

# Places and masks do not depend on the scheme; the formulas below have all of them.
PLANS = ("post_ln", "sandwich_ln", "mix_ln", "layer_scale")
MEMORY = random(B, S, 17, seed=4)
MASK, MEMORY_MASK = padding([T, 3], T), padding([4, S], S)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize(("scheme", "norm"), covering(SCHEMES, NORMS, strength=1))
def test_encoder_layer_equals_the_formula(scheme, norm):
    layer = TransformerEncoderLayer(
        num_heads=H,
        intermediate_dim=F,
        scheme=scheme,
        norm=norm,
        position=position(),
        dtype="float64",
    )
    x = random(B, T, D)
    layer.build(x.shape)
    randomize(layer)
    expected = reference.encoder_layer(layer, scheme, x, MASK[:, None])
    np.testing.assert_allclose(layer(x, padding_mask=MASK), expected, **CLOSE)


@pytest.mark.parametrize(("scheme", "norm"), covering(SCHEMES, NORMS, strength=1))
def test_decoder_layer_equals_the_formula(scheme, norm):
    layer = TransformerDecoderLayer(
        num_heads=H,
        intermediate_dim=F,
        scheme=scheme,
        norm=norm,
        position=position("decoder"),
        dtype="float64",
    )
    x = random(B, T, D)
    layer.build(x.shape, MEMORY.shape)
    randomize(layer)
    expected = reference.decoder_layer(
        layer, scheme, x, MEMORY, MASK[:, None], MEMORY_MASK[:, None]
    )
    y = layer(x, MEMORY, padding_mask=MASK, memory_padding_mask=MEMORY_MASK)
    np.testing.assert_allclose(y, expected, **CLOSE)


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_stacks_equal_their_layers_and_the_final_norm_of_the_scheme(scheme):
    options = {"scheme": scheme, "norm": "rms_norm", "dtype": "float64"}
    encoder = TransformerEncoder(2, num_heads=H, intermediate_dim=F, num_other_layers=3, **options)
    decoder = TransformerDecoder(3, num_heads=H, intermediate_dim=F, num_other_layers=2, **options)
    x, target = random(B, S, D), random(B, T, D, seed=6)
    encoder.build(x.shape)
    decoder.build(target.shape, x.shape)
    randomize(encoder)
    randomize(decoder, seed=7)

    memory = x
    for layer in encoder.layers:
        memory = reference.encoder_layer(layer, scheme, memory, MEMORY_MASK[:, None])
    memory = reference.final_norm(encoder, memory)
    np.testing.assert_allclose(encoder(x, padding_mask=MEMORY_MASK), memory, **CLOSE)

    y = target
    for layer in decoder.layers:
        y = reference.decoder_layer(layer, scheme, y, memory, True, MEMORY_MASK[:, None])
    y = reference.final_norm(decoder, y)
    found = decoder(target, memory, memory_padding_mask=MEMORY_MASK)
    np.testing.assert_allclose(found, y, **CLOSE)


def test_a_decoder_only_layer_has_no_cross_attention():
    layer = TransformerDecoderLayer(
        num_heads=H, intermediate_dim=F, scheme="pre_ln", dtype="float64"
    )
    x = random(B, T, D)
    layer(x)
    randomize(layer)
    np.testing.assert_allclose(layer(x), reference.decoder_layer(layer, "pre_ln", x, None), **CLOSE)
    assert not any("cross_attention" in w.path for w in layer.weights)


def test_attention_masks_come_besides_padding_and_causality():
    by_query = np.random.default_rng(8).random((T, T)) < 0.7
    x = random(B, T, D)
    encoder = TransformerEncoderLayer(num_heads=H, intermediate_dim=F, dtype="float64")
    decoder = TransformerDecoderLayer(num_heads=H, intermediate_dim=F, dtype="float64")
    encoder.build(x.shape)
    decoder.build(x.shape)
    mask = MASK[:, None] & by_query
    np.testing.assert_allclose(
        encoder(x, padding_mask=MASK, attention_mask=by_query),
        reference.encoder_layer(encoder, "post_ln", x, mask),
        **CLOSE,
    )
    np.testing.assert_allclose(
        decoder(x, padding_mask=MASK, attention_mask=by_query),
        reference.decoder_layer(decoder, "post_ln", x, None, mask),
        **CLOSE,
    )


def test_drop_path_grows_linearly_with_depth():
    encoder = TransformerEncoder(4, num_heads=H, intermediate_dim=F, drop_path=0.2)
    decoder = TransformerDecoder(2, num_heads=H, intermediate_dim=F, drop_path=0.2)
    encoder.build((B, S, D))
    decoder.build((B, T, D), (B, S, D))
    for stack, rates in ((encoder, [0.05, 0.1, 0.15, 0.2]), (decoder, [0.1, 0.2])):
        for layer, rate in zip(stack.layers, rates, strict=True):
            names = [name for name in vars(layer) if name.endswith("_add_norm")]
            assert len(names) == (2 if stack is encoder else 3)
            for name in names:
                assert getattr(layer, name).drop_path == pytest.approx(rate)


@pytest.mark.parametrize("scheme", PLANS)
def test_layers_know_their_place(scheme):
    encoder = TransformerEncoder(
        2, num_heads=H, intermediate_dim=F, scheme=scheme, num_other_layers=3
    )
    decoder = TransformerDecoder(
        3, num_heads=H, intermediate_dim=F, scheme=scheme, num_other_layers=2
    )
    encoder.build((B, S, D))
    decoder.build((B, T, D), (B, S, D))
    for i, layer in enumerate(encoder.layers):
        assert layer.position == StackPosition(2, 3, "encoder", i)
    for i, layer in enumerate(decoder.layers):
        assert layer.position == StackPosition(2, 3, "decoder", i)
        sublayers = ("self_attention", "cross_attention", "feed_forward")
        for sublayer in sublayers:
            own = getattr(layer, f"{sublayer}_add_norm").position
            assert own == StackPosition(2, 3, "decoder", i, sublayer, sublayers)


# Scores


def test_attention_scores_of_layers_and_stacks():
    x, memory = random(B, T, D), random(B, S, D, seed=4)
    encoder, decoder = (
        TransformerEncoder(2, num_heads=H, intermediate_dim=F),
        TransformerDecoder(2, num_heads=H, intermediate_dim=F),
    )
    y, scores = encoder(x, return_attention_scores=True)
    np.testing.assert_array_equal(y, encoder(x))
    assert [s.shape for s in scores] == 2 * [(B, H, T, T)]
    y, scores = decoder(x, memory, return_attention_scores=True)
    np.testing.assert_array_equal(y, decoder(x, memory))
    assert [list(s) for s in scores] == 2 * [["self_attention", "cross_attention"]]
    for layer in scores:
        own, cross = array(layer["self_attention"]), array(layer["cross_attention"])
        assert (own.shape, cross.shape) == ((B, H, T, T), (B, H, T, S))
        np.testing.assert_array_equal(
            own[..., np.triu_indices(T, 1)[0], np.triu_indices(T, 1)[1]], 0
        )
        np.testing.assert_allclose(cross.sum(-1), 1, rtol=1e-5)


# Initial weights


def glorot(shape, gain=1.0):
    return gain * np.sqrt(2 / sum(shape))


WIDE, INTERMEDIATE = 48, 80


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kernel_starts_at_glorots_scale_times_the_schemes_gain(scheme):
    """A gain stands on value, output and feed-forward kernels, nowhere else but in DS-Init."""
    encoder = TransformerEncoder(
        2, num_heads=4, intermediate_dim=INTERMEDIATE, scheme=scheme, num_other_layers=3
    )
    decoder = TransformerDecoder(
        3, num_heads=4, intermediate_dim=INTERMEDIATE, scheme=scheme, num_other_layers=2
    )
    encoder.build((B, S, WIDE))
    decoder.build((B, T, WIDE), (B, S, WIDE))
    gains = {
        "deep_norm": {"encoder": 0.87 * (2**4 * 3) ** (-1 / 16), "decoder": (12 * 3) ** -0.25},
        "sub_ln": {
            "encoder": np.sqrt(np.log(3 * 3) * np.log(2 * 2) / 3),
            "decoder": np.sqrt(np.log(3 * 3)),
        },
        "t_fixup": {"encoder": 0.67 * 2**-0.25, "decoder": (9 * 3) ** -0.25},
    }.get(scheme, {"encoder": 1.0, "decoder": 1.0})
    kernels = {}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for weight in stack.weights:
            if not weight.path.endswith("kernel"):
                continue
            kernels[f"{side}: {weight.path}"] = array(weight)
            scaled = ("value_projection", "output_projection", "intermediate_projection")
            layer, sublayer, attribute = _owner_of(stack, weight)
            is_scaled = attribute in scaled
            if scheme == "ds_init":
                is_scaled, gains[side] = True, (layer + 1) ** -0.5
            if scheme == "sub_ln" and sublayer == "cross_attention":
                is_scaled = False
            expected = glorot(weight.shape, gains[side] if is_scaled else 1.0)
            # A uniform sample of n has a standard deviation within 4 * 0.45/sqrt(n), here 3.7 %.
            assert array(weight).std() == pytest.approx(expected, rel=0.04), weight.path
            assert abs(array(weight).mean()) < 5 * expected / np.sqrt(array(weight).size)
    assert len(kernels) == 2 * 6 + 3 * 10
    for (one, first), (other, second) in itertools.combinations(kernels.items(), 2):
        assert first.shape != second.shape or not np.allclose(first, second), (one, other)


def _owner_of(stack, weight):
    """The layer, the sublayer and the attribute that hold a weight, found through the objects."""
    for index, layer in enumerate(stack.layers):
        for sublayer in ("self_attention", "cross_attention", "feed_forward"):
            owner = getattr(layer, sublayer, None)
            for name, value in vars(owner).items() if owner is not None else ():
                if name.endswith("_projection") and value.kernel is weight:
                    return index, sublayer, name
    raise AssertionError(weight.path)


def test_biases_start_at_zero():
    decoder = TransformerDecoder(1, num_heads=H, intermediate_dim=F)
    decoder.build((B, T, D), (B, S, D))
    biases = [w for w in decoder.weights if w.path.endswith("bias")]
    assert len(biases) == 10
    for bias in biases:
        np.testing.assert_array_equal(array(bias), 0)


@pytest.mark.parametrize("scheme", ["rezero"])
def test_rezero_starts_as_the_identity(scheme):
    x = random(B, T, D)
    y = TransformerDecoder(3, num_heads=H, intermediate_dim=F, scheme=scheme, dtype="float64")(
        x, MEMORY
    )
    np.testing.assert_array_equal(y, x)


# Sequences see neither the future nor padding nor their neighbours


@pytest.mark.parametrize("scheme", PLANS)
def test_a_decoder_sees_no_future(scheme):
    decoder = TransformerDecoder(
        2, num_heads=H, intermediate_dim=F, scheme=scheme, num_other_layers=2
    )
    x, memory = random(B, T, D), random(B, S, D, seed=4)
    decoder(x, memory)
    randomize(decoder)
    before = array(decoder(x, memory))
    x[:, 3] += random(D, seed=8)
    after = array(decoder(x, memory))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    # In some row only: without a skip connection, an attention may be wholly elsewhere.
    assert (np.abs(after - before)[:, 3:] > 1e-3).any()


@pytest.mark.parametrize("scheme", PLANS)
def test_an_encoder_sees_no_padding_and_no_neighbour(scheme):
    encoder = TransformerEncoder(
        2, num_heads=H, intermediate_dim=F, scheme=scheme, num_other_layers=2
    )
    x = random(B, T, D)
    encoder(x)
    randomize(encoder)
    before = array(encoder(x, padding_mask=MASK))
    x[1, 3:] += random(D, seed=8)  # padding
    x[0] -= random(D, seed=9)  # the neighbour
    after = array(encoder(x, padding_mask=MASK))
    np.testing.assert_array_equal(after[1, :3], before[1, :3])
    assert np.abs(after[0] - before[0]).max() > 1e-3


# Caches


ONE_BY_ONE = (1, 1, 1, 1, 1)


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize(
    ("scheme", "chunks"),
    [*((scheme, ONE_BY_ONE) for scheme in SCHEMES), ("pre_ln", (3, 2)), ("pre_ln", (5,))],
    ids=str,
)
def test_cached_decoding_equals_the_full_pass(scheme, chunks):
    x, memory = random(B, T, D), random(B, S, D, seed=4)
    decoder = TransformerDecoder(
        2, num_heads=H, intermediate_dim=F, scheme=scheme, num_other_layers=2
    )
    decoder(x, memory)
    randomize(decoder)
    expected = array(decoder(x, memory, memory_padding_mask=MEMORY_MASK))
    # Without a norm numbers reach hundreds, and processors round their sums differently.
    atol = 1e-5 * max(1, np.abs(expected).max())
    cache, start = decoder.initial_cache(B, T + 1, memory), 0
    for size in chunks:
        y, cache = decoder(
            x[:, start : start + size],
            memory_padding_mask=MEMORY_MASK,
            cache=cache,
            cache_update_index=start,
        )
        np.testing.assert_allclose(y, expected[:, start : start + size], rtol=1e-5, atol=atol)
        start += size


@pytest.mark.parametrize("has_memory", [True, False])
def test_cached_decoding_of_one_layer(has_memory):
    x, memory = random(B, T, D), random(B, S, D, seed=4) if has_memory else None
    layer = TransformerDecoderLayer(num_heads=H, intermediate_dim=F, scheme="pre_ln")
    layer(x, memory)
    randomize(layer)
    expected, expected_scores = layer(x, memory, return_attention_scores=True)
    cache = layer.initial_cache(B, T, memory)
    assert set(cache) == {"self_attention"} | ({"cross_attention"} if has_memory else set())
    for t in range(T):
        y, scores, cache = layer(
            x[:, t : t + 1], cache=cache, cache_update_index=t, return_attention_scores=True
        )
        np.testing.assert_allclose(y[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)
        for name, weights in scores.items():
            full = array(expected_scores[name])[:, :, t]
            np.testing.assert_allclose(weights[:, :, 0, : full.shape[-1]], full, atol=1e-5)


def test_beams_share_a_stacks_memory():
    memory, n = random(B, S, D, seed=4), 3
    x = random(B * n, T, D)
    decoder = TransformerDecoder(2, num_heads=H, intermediate_dim=F)
    expected = decoder(x, np.repeat(memory, n, 0), memory_padding_mask=np.repeat(MEMORY_MASK, n, 0))
    cache = decoder.initial_cache(B * n, T, memory)
    for t in range(T):
        y, cache = decoder(
            x[:, t : t + 1],
            memory_padding_mask=MEMORY_MASK,
            cache=cache,
            cache_update_index=t,
        )
        np.testing.assert_allclose(y[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)


# Errors


@pytest.mark.parametrize("layer_class", [TransformerEncoderLayer, TransformerDecoderLayer])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "prenorm"}, "no such residual scheme"),
        ({"norm": "group_norm"}, "no such norm"),
        ({"activation": "swoosh"}, "no such activation"),
        ({"num_heads": 0}, "num_heads has to be a positive integer"),
        ({"num_heads": 5}, "hidden_dim=33, num_heads=5. Use num_heads=3 or 11"),
        ({"intermediate_dim": 0}, "intermediate_dim has to be a positive integer"),
        ({"scheme": "deep_norm"}, "position=StackPosition"),
    ],
)
def test_bad_arguments_of_layers_are_named(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(**{"num_heads": H, "intermediate_dim": F, **arguments})(np.zeros((B, T, D)))


@pytest.mark.parametrize("stack_class", [TransformerEncoder, TransformerDecoder])
@pytest.mark.parametrize("num_layers", [0, -1])
def test_a_stack_needs_layers(stack_class, num_layers):
    with pytest.raises(
        ValueError, match=f"Expected an int num_layers >= 1. Received: {num_layers}"
    ):
        stack_class(num_layers, num_heads=H, intermediate_dim=F)


@pytest.mark.parametrize("built_with", [True, False])
def test_a_memory_comes_always_or_never(built_with):
    x, memory = np.zeros((B, T, D)), np.zeros((B, S, D))
    layer = TransformerDecoderLayer(num_heads=H, intermediate_dim=F, name="d")
    layer(x, memory if built_with else None)
    words = "built with a memory.*Received: none" if built_with else "without a memory.*: one"
    with pytest.raises(ValueError, match=f"'d' was {words}" if built_with else words):
        layer(x, None if built_with else memory)


@pytest.mark.parametrize(
    "layer",
    [
        TransformerEncoderLayer(num_heads=H, intermediate_dim=F),
        TransformerDecoderLayer(num_heads=H, intermediate_dim=F),
        TransformerEncoder(2, num_heads=H, intermediate_dim=F),
        TransformerDecoder(2, num_heads=H, intermediate_dim=F),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_an_unknown_width_is_an_error(layer):
    with pytest.raises(ValueError, match="width of the residual stream has to be known"):
        layer(keras.Input((T, None)))
