"""Attention maps: the weights are those the model used, and the picture says so."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_addnorm.diagnostics import attention_maps, head_diversity, plot_attention
from keras_addnorm.diagnostics.label_fonts import fitting_fonts, literal
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return Seq2SeqTransformer(
        Seq2SeqConfig(
            source_vocabulary_size=13,
            target_vocabulary_size=11,
            num_encoder_layers=1,
            num_decoder_layers=2,
            hidden_dim=6,
            intermediate_dim=7,
            num_heads=3,
            dropout=0.5,
            scheme="pre_ln",
        )
    )


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _affine(x, projection):
    kernel, bias = projection.get_weights()
    return x @ kernel + bias


def test_first_layer_equals_the_formula(model):
    """Softmax(q k^T / sqrt(K)) with the layer's own kernels, for the first decoder layer."""
    source, target = [4, 9, 12, 5, 2], [1, 7, 3, 8]
    found = attention_maps(model, source, target).cross
    assert found.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)

    layer = model.decoder.layers[0]
    memory, _ = model.encode(np.array([source]))
    x = model.decoder_embedding(np.array([target]))
    x = layer.self_attention_add_norm(
        x, layer.self_attention(layer.self_attention_add_norm.branch_input(x), use_causal_mask=True)
    )
    h = keras.ops.convert_to_numpy(layer.cross_attention_add_norm.branch_input(x))[0]
    attention = layer.cross_attention
    q = _affine(h, attention.query_projection)
    k = _affine(keras.ops.convert_to_numpy(memory)[0], attention.key_projection)
    heads = [
        _softmax(q[:, 2 * i : 2 * i + 2] @ k[:, 2 * i : 2 * i + 2].T / np.sqrt(2)) for i in range(3)
    ]
    np.testing.assert_allclose(found[0], np.stack(heads), atol=1e-5)


def test_all_maps_have_their_shapes_and_their_rows_sum_to_one(model):
    maps = attention_maps(model, [4, 9, 12, 5, 2], [1, 7, 3, 8])
    assert maps.encoder_self.shape == (1, 3, 5, 5)
    assert maps.decoder_self.shape == (2, 3, 4, 4)
    assert maps.cross.shape == (2, 3, 4, 5)
    for weights in (maps.encoder_self, maps.decoder_self, maps.cross):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_array_equal(maps.decoder_self, np.tril(maps.decoder_self))
    assert np.abs(maps.encoder_self[..., 0, 1:]).min() > 0


def test_the_encoders_map_is_that_of_its_first_layer(model):
    source = np.array([[4, 9, 12, 5, 2]])
    layer = model.encoder.layers[0]
    h = layer.self_attention_add_norm.branch_input(model.encoder_embedding(source))
    _, expected = layer.self_attention(h, return_attention_scores=True)
    found = attention_maps(model, source[0], [1]).encoder_self
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)


def test_a_pruned_attention_looks_at_nothing(model):
    config = dataclasses.replace(model.config, pruned_sublayers=("decoder/1/cross_attention",))
    pruned = Seq2SeqTransformer(config)
    maps = attention_maps(pruned, [4, 9, 2], [1, 7])
    np.testing.assert_array_equal(maps.cross[1], np.zeros((3, 2, 3)))
    np.testing.assert_allclose(maps.cross[0].sum(-1), 1, atol=1e-6)
    names = [entry.name for entry in head_diversity(pruned, [[4, 9, 2]], [[1, 7]])]
    assert "decoder/1/cross_attention" not in names and len(names) == 4


def test_head_diversity_is_one_minus_what_the_loss_sums(model):
    """The regulariser's losses while training, and the measure from outside, see the same heads."""
    source, target = np.array([[4, 9, 12, 5, 2], [8, 2, 0, 0, 0]]), np.array([[1, 7, 3], [1, 9, 0]])
    found = head_diversity(model, source, target)
    assert len(found) == 5
    assert all("show_heads" not in vars(layer.self_attention) for layer in model.encoder.layers)
    for kind in ("subspaces", "positions", "outputs"):
        config = dataclasses.replace(
            model.config, dropout=0.0, attention={"head_diversity": {kind: 1.0}}
        )
        twin = Seq2SeqTransformer(config)
        twin.set_weights(model.get_weights())
        twin({"source": source, "target": target}, training=True)
        differences = [getattr(entry, kind) for entry in found]
        assert all(0 < difference < 1 for difference in differences)
        np.testing.assert_allclose(sum(twin.losses), 5 - sum(differences), rtol=1e-5)


def test_head_diversity_needs_a_batch(model):
    with pytest.raises(ValueError, match=r"on a batch.*Received: \(3,\) and \(2,\)"):
        head_diversity(model, [4, 9, 2], [1, 7])


def test_padding_of_the_source_gets_no_weight(model):
    padded = attention_maps(model, [4, 9, 2, 0, 0], [1, 7, 3]).cross
    plain = attention_maps(model, [4, 9, 2], [1, 7, 3]).cross
    np.testing.assert_array_equal(padded[..., 3:], 0)
    np.testing.assert_allclose(padded[..., :3], plain, atol=1e-6)


@pytest.mark.parametrize("ids", [[[4, 2]], [], [1.5, 2.0]])
def test_only_one_row_of_ids(model, ids):
    with pytest.raises(ValueError, match="source_ids has to be one sentence"):
        attention_maps(model, ids, [1])


@pytest.mark.parametrize("source, target", [([2**32 + 4, 2], [1]), ([4, 2], [1, 2**32 + 7])])
def test_an_id_beyond_int32_does_not_become_another_one(model, source, target):
    with pytest.raises(ValueError, match=r"id lies outside the vocabulary.*42949673"):
        attention_maps(model, source, target)


@pytest.mark.parametrize("count, share", [(100, 1.0), (300, 0.37)])
def test_a_large_picture_has_fewer_dots_an_inch(count, share, tmp_path, monkeypatch):
    drawn = []

    def save(figure, file, dpi, format):
        drawn.append((dpi, np.prod(figure.get_size_inches()) * dpi**2))
        file.write_bytes(b"")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)
    labels = ["a"] * count
    plot_attention(np.eye(count), labels, labels, tmp_path / "a.png")
    ((dpi, pixels),) = drawn
    assert dpi == pytest.approx(130 * share, rel=0.05) and pixels < 1.01 * 2**24


def test_of_a_long_label_the_beginning_is_drawn():
    assert len(literal("a" * 100_000)) == 103  # Each character took as long as one that is seen.


@pytest.mark.parametrize("shape", [(3, 5), (7, 3, 5), (2, 7, 3, 5)])
def test_draws_a_png(tmp_path, shape):
    path = plot_attention(np.zeros(shape), list("abcde"), list("xyz"), tmp_path / "new" / "map.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in path.parent.iterdir()] == ["map.png"]


def test_labels_have_to_fit(tmp_path):
    with pytest.raises(ValueError, match=r"T, S = \(3, 2\).*Received: \(2, 3\)"):
        plot_attention(np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"], tmp_path / "map.png")


def test_u7_labels_without_a_font_are_boxes_and_said_once(tmp_path, monkeypatch, caplog):
    """Warnings are errors here: matplotlib's own, one a character, would fail the test."""
    from matplotlib import font_manager

    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    path = plot_attention(np.eye(2), ["我", "a"], ["天", "b"], tmp_path / "map.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(caplog.records) == 1 and "characters 天 我: boxes are drawn" in caplog.text


def test_u7_another_font_of_the_machine_is_found(monkeypatch, caplog):
    from types import SimpleNamespace

    from matplotlib import font_manager

    from keras_addnorm.diagnostics import label_fonts

    others = [SimpleNamespace(name=name, fname=name) for name in ("Greek", "Chinese")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", others)
    has = {"Greek": {"α"}, "Chinese": {"我", "天"}}
    monkeypatch.setattr(label_fonts, "_characters", lambda path: has.get(path, set("abc ")))
    fonts, labels = label_fonts.fitting_fonts(["我 a", "天"])
    assert (fonts[1:], labels) == (["Chinese"], ["我 a", "天"])
    assert not caplog.records


@pytest.mark.parametrize(
    ("label", "drawn"),
    [
        ("$$", r"\$\$"),
        (r"$\frac$", r"\$\frac\$"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\ud800", r"\ud800"),
    ],
)
def test_a_label_is_no_mathematics_and_no_control_character(label, drawn, tmp_path, caplog):
    path = plot_attention(np.eye(2), [label, "a"], ["b", label], tmp_path / "map.png")
    assert path.stat().st_size > 1000 and not caplog.records
    assert fitting_fonts([label])[1] == [drawn]


@pytest.mark.parametrize(("shape", "size"), [((0, 2, 2), 2), ((0, 0), 0)])
def test_a_map_without_weights_is_refused(shape, size, tmp_path):
    with pytest.raises(ValueError, match="none of them 0"):
        plot_attention(np.zeros(shape), ["a"] * size, ["b"] * size, tmp_path / "map.png")


@pytest.mark.parametrize("shape", [(1, 1_000), (330, 330), (30, 5, 30)])
def test_a_picture_that_nobody_can_open_is_refused_before_it_is_drawn(shape, tmp_path):
    queries, keys = (["a"] * size for size in shape[-2:])
    with pytest.raises(ValueError, match=r"too large\. Expected at most 32,767 pixels a side"):
        plot_attention(np.zeros(shape), keys, queries, tmp_path / "map.png")
    assert not list(tmp_path.iterdir())
