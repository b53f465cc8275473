"""Other libraries' layers with our weights give our numbers."""

import importlib
import importlib.util
import pathlib
import re
import sys
import types

import numpy as np
import pytest
import torch
from layers_reference import B, D, F, H, K, S, T, array, padding, random, randomize

from keras_addnorm.layers import TransformerDecoderLayer, TransformerEncoderLayer

MASK, MEMORY_MASK = padding([T, 3], T), padding([4, S], S)
X, MEMORY = random(B, T, D), random(B, S, D, seed=4)
EPSILON = 1e-5
SCHEME = {True: "pre_ln", False: "post_ln"}


def ours(layer_class, norm_first, *shapes, activation="relu"):
    layer = layer_class(
        num_heads=H,
        intermediate_dim=F,
        activation=activation,
        scheme=SCHEME[norm_first],
        epsilon=EPSILON,
        dtype="float64",
    )
    layer.build(*shapes)
    return randomize(layer)


def norm_of(add_norm):
    return getattr(add_norm, "pre_norm", None) or add_norm.post_norm


# torch


def tensor(weight, transposed=False):
    values = array(weight)
    return torch.tensor(values.T if transposed else values)


def copy_linear(linear, projection):
    linear.weight.copy_(tensor(projection.kernel, transposed=True))
    linear.bias.copy_(tensor(projection.bias))


def copy_norm(norm, add_norm):
    norm.weight.copy_(tensor(norm_of(add_norm).gamma))
    norm.bias.copy_(tensor(norm_of(add_norm).beta))


def copy_attention(theirs, own):
    projections = (own.query_projection, own.key_projection, own.value_projection)
    theirs.in_proj_weight.copy_(torch.cat([tensor(p.kernel, transposed=True) for p in projections]))
    theirs.in_proj_bias.copy_(torch.cat([tensor(p.bias) for p in projections]))
    copy_linear(theirs.out_proj, own.output_projection)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training_path", [True, False])
@torch.no_grad()
def test_torch_encoder_layer(norm_first, activation, training_path):
    """Both of torch's paths: the fused one of `eval` and the plain one of `train`."""
    layer = ours(TransformerEncoderLayer, norm_first, X.shape, activation=activation)
    theirs = torch.nn.TransformerEncoderLayer(
        D,
        H,
        F,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=EPSILON,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    ).train(training_path)
    copy_attention(theirs.self_attn, layer.self_attention)
    copy_linear(theirs.linear1, layer.feed_forward.intermediate_projection)
    copy_linear(theirs.linear2, layer.feed_forward.output_projection)
    copy_norm(theirs.norm1, layer.self_attention_add_norm)
    copy_norm(theirs.norm2, layer.feed_forward_add_norm)

    x = torch.tensor(X)
    for mask in (None, MASK):
        y = array(layer(X, padding_mask=mask))
        hidden = None if mask is None else torch.tensor(~mask)
        expected = theirs(x, src_key_padding_mask=hidden).numpy()
        real = np.ones((B, T), bool) if mask is None else mask
        np.testing.assert_allclose(y[real], expected[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_torch_decoder_layer(norm_first):
    layer = ours(TransformerDecoderLayer, norm_first, X.shape, MEMORY.shape)
    theirs = torch.nn.TransformerDecoderLayer(
        D,
        H,
        F,
        dropout=0.0,
        layer_norm_eps=EPSILON,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    ).eval()
    copy_attention(theirs.self_attn, layer.self_attention)
    copy_attention(theirs.multihead_attn, layer.cross_attention)
    copy_linear(theirs.linear1, layer.feed_forward.intermediate_projection)
    copy_linear(theirs.linear2, layer.feed_forward.output_projection)
    copy_norm(theirs.norm1, layer.self_attention_add_norm)
    copy_norm(theirs.norm2, layer.cross_attention_add_norm)
    copy_norm(theirs.norm3, layer.feed_forward_add_norm)

    expected = theirs(
        torch.tensor(X),
        torch.tensor(MEMORY),
        tgt_mask=torch.tensor(~np.tri(T, dtype=bool)),
        tgt_key_padding_mask=torch.tensor(~MASK),
        memory_key_padding_mask=torch.tensor(~MEMORY_MASK),
    ).numpy()
    y = array(layer(X, MEMORY, padding_mask=MASK, memory_padding_mask=MEMORY_MASK))
    np.testing.assert_allclose(y[MASK], expected[MASK], rtol=1e-5, atol=1e-5)


# keras-hub


@pytest.fixture(scope="module")
def keras_hub_layers():
    """Import keras-hub's layers alone: the whole package wants tokenizers and tensorflow-text."""
    before = {n for n in sys.modules if n.split(".")[0] == "keras_hub"}
    package = types.ModuleType("keras_hub")
    package.__path__ = list(importlib.util.find_spec("keras_hub").submodule_search_locations)
    sys.modules.setdefault("keras_hub", package)
    root = "keras_hub.src.layers.modeling."
    encoder = importlib.import_module(root + "transformer_encoder").TransformerEncoder
    decoder = importlib.import_module(root + "transformer_decoder").TransformerDecoder
    yield encoder, decoder
    for name in {n for n in sys.modules if n.split(".")[0] == "keras_hub"} - before:
        del sys.modules[name]


def assign_attention(theirs, own):
    for their_dense, projection in (
        (theirs._query_dense, own.query_projection),
        (theirs._key_dense, own.key_projection),
        (theirs._value_dense, own.value_projection),
    ):
        their_dense.kernel.assign(array(projection.kernel).reshape(D, H, K))
        their_dense.bias.assign(array(projection.bias).reshape(H, K))
    theirs._output_dense.kernel.assign(array(own.output_projection.kernel).reshape(H, K, D))
    theirs._output_dense.bias.assign(array(own.output_projection.bias))


def assign_norm(norm, add_norm):
    norm.gamma.assign(norm_of(add_norm).gamma)
    norm.beta.assign(norm_of(add_norm).beta)


def assign_feed_forward(theirs, layer):
    for dense, projection in (
        (theirs._feedforward_intermediate_dense, layer.feed_forward.intermediate_projection),
        (theirs._feedforward_output_dense, layer.feed_forward.output_projection),
    ):
        dense.kernel.assign(projection.kernel)
        dense.bias.assign(projection.bias)


@pytest.mark.parametrize("norm_first", [True, False])
def test_keras_hub_encoder(norm_first, keras_hub_layers):
    encoder_class, _ = keras_hub_layers
    layer = ours(TransformerEncoderLayer, norm_first, X.shape)
    theirs = encoder_class(
        F, H, layer_norm_epsilon=EPSILON, normalize_first=norm_first, dtype="float64"
    )
    theirs.build(X.shape)
    assign_attention(theirs._self_attention_layer, layer.self_attention)
    assign_feed_forward(theirs, layer)
    assign_norm(theirs._self_attention_layer_norm, layer.self_attention_add_norm)
    assign_norm(theirs._feedforward_layer_norm, layer.feed_forward_add_norm)
    y = array(layer(X, padding_mask=MASK))
    expected = array(theirs(X, padding_mask=MASK))
    np.testing.assert_allclose(y[MASK], expected[MASK], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_keras_hub_decoder(norm_first, keras_hub_layers):
    _, decoder_class = keras_hub_layers
    layer = ours(TransformerDecoderLayer, norm_first, X.shape, MEMORY.shape)
    theirs = decoder_class(
        F, H, layer_norm_epsilon=EPSILON, normalize_first=norm_first, dtype="float64"
    )
    theirs.build(X.shape, MEMORY.shape)
    assign_attention(theirs._self_attention_layer, layer.self_attention)
    assign_attention(theirs._cross_attention_layer, layer.cross_attention)
    assign_feed_forward(theirs, layer)
    assign_norm(theirs._self_attention_layer_norm, layer.self_attention_add_norm)
    assign_norm(theirs._cross_attention_layer_norm, layer.cross_attention_add_norm)
    assign_norm(theirs._feedforward_layer_norm, layer.feed_forward_add_norm)
    y = array(layer(X, MEMORY, padding_mask=MASK, memory_padding_mask=MEMORY_MASK))
    expected = array(theirs(X, MEMORY, decoder_padding_mask=MASK, encoder_padding_mask=MEMORY_MASK))
    np.testing.assert_allclose(y[MASK], expected[MASK], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_guide_copies_keras_hub_layers(norm_first, keras_hub_layers):
    """`copy_layer` of docs/how_to/migrate_kerashub.md: the way from their weights to ours."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "how_to" / "migrate_kerashub.md"
    (block,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
        if "def copy_layer" in block
    )
    names = {}
    exec(compile(block, str(page), "exec"), names)
    _, decoder_class = keras_hub_layers
    theirs = decoder_class(
        F, H, layer_norm_epsilon=EPSILON, normalize_first=norm_first, dtype="float64"
    )
    theirs.build(X.shape, MEMORY.shape)
    randomize(theirs)
    layer = ours(TransformerDecoderLayer, norm_first, X.shape, MEMORY.shape)
    names["copy_layer"](theirs, layer)
    y = array(layer(X, MEMORY, padding_mask=MASK, memory_padding_mask=MEMORY_MASK))
    expected = array(theirs(X, MEMORY, decoder_padding_mask=MASK, encoder_padding_mask=MEMORY_MASK))
    np.testing.assert_allclose(y[MASK], expected[MASK], rtol=1e-5, atol=1e-5)
