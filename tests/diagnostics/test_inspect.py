"""Every number of a report against a loop over the captured tensors, padding left out."""

import math

import keras
import numpy as np
import pytest
from filled_models import LABELS, SOURCE, SUBLAYERS, TARGET, array, batch, tiny_model

from keras_addnorm import layers
from keras_addnorm.diagnostics import Sentence, inspect, loss_gradients, observe
from keras_addnorm.layers.sublayers import named_add_norms


@pytest.fixture(scope="module")
def model():
    return tiny_model(scheme="sandwich_ln")


@pytest.fixture(scope="module")
def report(model):
    return inspect(model, (batch(), LABELS))


@pytest.fixture(scope="module")
def records(model):
    with observe(model) as observation:
        model(batch())
    return {record.name: record for record in observation}


def _real(name, tensor):
    """The vectors at real tokens, one after the other."""
    ids = SOURCE if name.startswith("encoder") else TARGET
    x = array(tensor).astype("float64")
    return [x[b, t] for b in range(3) for t in range(ids.shape[1]) if ids[b, t]]


def _size(rows):
    return math.sqrt(sum(float(row @ row) for row in rows))


@pytest.mark.parametrize("name", SUBLAYERS)
def test_the_stream(model, report, records, name):
    record, found = records[name], report[name]
    x, f, y = (_real(name, part) for part in (record.residual, record.branch, record.merged))
    entries = 6 * len(x)
    assert found.residual_rms == pytest.approx(_size(x) / math.sqrt(entries), rel=1e-5)
    assert found.branch_rms == pytest.approx(_size(f) / math.sqrt(entries), rel=1e-5)
    assert found.merged_rms == pytest.approx(_size(y) / math.sqrt(entries), rel=1e-5)
    assert found.residual_ratio == pytest.approx(_size(f) / _size(x), rel=1e-5)
    for mean, rows in zip(
        (found.residual_mean, found.branch_mean, found.merged_mean), (x, f, y), strict=True
    ):
        assert mean == pytest.approx(sum(map(sum, rows)) / entries, rel=1e-5, abs=1e-7)
    cosines = [a @ b / (_size([a]) * _size([b])) for a, b in zip(x, y, strict=True)]
    assert found.cosine == pytest.approx(sum(cosines) / len(cosines), rel=1e-5)
    # Sandwich-LN of a branch of zeros adds the norm's offset.
    offset = array(named_add_norms(model)[name].branch_norm.beta)
    before = [a + offset for a in x]
    change = _size([b - a for a, b in zip(before, y, strict=True)])
    assert found.effect == pytest.approx(change / _size(before), rel=1e-4)


@pytest.mark.parametrize("name", SUBLAYERS)
def test_before_and_after_the_norms(model, report, records, name):
    record, add_norm = records[name], named_add_norms(model)[name]
    seen = {
        "pre_norm": (record.residual, record.branch_input),
        "branch_norm": (record.branch, record.merged - record.residual),
    }
    assert [norm.slot for norm in report[name].norms] == list(seen)
    for norm in report[name].norms:
        before, after = (_real(name, part) for part in seen[norm.slot])
        assert norm.input_mean == pytest.approx(np.mean(before), abs=1e-6)
        assert norm.input_variance == pytest.approx(np.mean([r.var() for r in before]), rel=1e-5)
        assert norm.output_mean == pytest.approx(np.mean(after), abs=1e-5)
        assert norm.output_variance == pytest.approx(np.mean([r.var() for r in after]), rel=1e-4)
        gain = array(getattr(add_norm, norm.slot).gamma)
        assert norm.gain == pytest.approx(_size([gain]) / math.sqrt(6), rel=1e-5)


def test_gradients(model, report):
    found = loss_gradients(model, batch(), LABELS)
    assert report.loss == pytest.approx(found.loss, rel=1e-6)
    for name in SUBLAYERS:
        gradient = found.residuals[name].ravel()
        assert report[name].gradient_norm == pytest.approx(_size([gradient]), rel=1e-5)
    attention = model.decoder.layers[0].cross_attention
    parts = [found.weights[weight.path].ravel() for weight in attention.trainable_variables]
    assert len(parts) == 8
    assert report["decoder/0/cross_attention"].weight_gradient_norm == pytest.approx(
        _size([np.concatenate(parts)]), rel=1e-5
    )


def _weights(model):
    memory, mask = model.encode(SOURCE)
    _, encoder = model.encoder(
        model.encoder_embedding(SOURCE), padding_mask=mask, return_attention_scores=True
    )
    _, decoder = model.decoder(
        model.decoder_embedding(TARGET),
        memory,
        memory_padding_mask=mask,
        return_attention_scores=True,
    )
    return {
        "encoder/1/self_attention": array(encoder[1]),
        "decoder/0/self_attention": array(decoder[0]["self_attention"]),
        "decoder/0/cross_attention": array(decoder[0]["cross_attention"]),
    }


def test_attention(model, report):
    for name, weights in _weights(model).items():
        ids = SOURCE if name.startswith("encoder") else TARGET
        nats, shares, deviations, firsts = [], [], [], []
        for b, t in zip(*np.nonzero(ids), strict=True):
            is_causal = name == "decoder/0/self_attention"
            keys = t + 1 if is_causal else np.count_nonzero(SOURCE[b])
            p = weights[b, :, t, :keys].astype("float64")
            np.testing.assert_allclose(p.sum(-1), 1, atol=1e-5)
            entropy = [-sum(v * math.log(v) for v in head if v > 0) for head in p]
            nats.append(entropy)
            if keys > 1:
                shares.append(np.array(entropy) / math.log(keys))
            deviations.append(p - 1 / keys)
            firsts.append(p[:, 0])
        found = report[name].attention
        np.testing.assert_allclose(found.entropy, np.mean(nats, axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.entropy_share, np.mean(shares, axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.patterns["first"], np.mean(firsts, axis=0), rtol=1e-5)
        a, b = (np.concatenate([d[head] for d in deviations]) for head in (0, 1))
        expected = a @ b / (_size([a]) * _size([b]))
        np.testing.assert_allclose(found.similarity, [[1, expected], [expected, 1]], rtol=1e-5)


def test_dead_units(model, report, records):
    name = "encoder/0/feed_forward"
    kernel, bias = model.encoder.layers[0].feed_forward.intermediate_projection.get_weights()
    rows = [row @ kernel + bias for row in _real(name, records[name].branch_input)]
    dead = sum(all(row[unit] <= 0 for row in rows) for unit in range(17))
    assert 0 < dead < 17
    assert report[name].dead_units == pytest.approx(dead / 17)
    assert report["encoder/0/self_attention"].dead_units is None


def test_it_changes_nothing(model):
    expected = array(model(batch()))
    before = [array(weight) for weight in model.weights]
    inspect(model, (batch(), LABELS))
    np.testing.assert_array_equal(array(model(batch())), expected)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), value)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


def _unit_layer(activation, bias, scheme="post_ln"):
    """A feed-forward sublayer whose last three of seven units say what `bias` says."""
    encoder = layers.TransformerEncoder(
        1, num_heads=1, intermediate_dim=7, activation=activation, scheme=scheme
    )
    encoder.build((2, 3, 5))
    projection = encoder.layers[0].feed_forward.intermediate_projection
    kernel, _ = projection.get_weights()
    kernel[:, 4:] = 0
    projection.set_weights([kernel, np.array([9, 9, 9, 9, *bias], "float32")])
    return encoder


@pytest.mark.parametrize(
    ("activation", "bias"),
    [("relu", (-1, -2, 0)), ("gelu", (-1, -9, 0)), ("swiglu", (0, 0, 0)), ("geglu", (0, 0, 0))],
)
def test_dead_units_of_every_kind(activation, bias):
    encoder = _unit_layer(activation, bias)
    report = inspect(encoder, (keras.random.normal((2, 3, 5)), 0.0), _mean_square)
    assert report["encoder/0/feed_forward"].dead_units == pytest.approx(3 / 7)


def test_dead_units_are_counted_in_front_of_an_inner_norm():
    encoder = _unit_layer("relu", (-1, -2, 0), scheme="sub_ln")
    report = inspect(encoder, (keras.random.normal((2, 3, 5)), 0.0), _mean_square)
    assert report["encoder/0/feed_forward"].dead_units == pytest.approx(3 / 7)


def _mean_square(labels, outputs):
    return keras.ops.mean(outputs**2 - labels)


def test_even_attention_has_the_entropy_of_log_n_and_no_copies():
    encoder = layers.TransformerEncoder(1, num_heads=3, intermediate_dim=7)
    encoder.build((2, 5, 6))
    attention = encoder.layers[0].self_attention
    for projection in (attention.query_projection, attention.key_projection):
        projection.set_weights([np.zeros((6, 6)), np.zeros(6)])
    x = keras.random.normal((2, 5, 6))
    found = inspect(encoder, (x, 0.0), _mean_square)["encoder/0/self_attention"].attention
    np.testing.assert_allclose(found.entropy, 3 * [math.log(5)], rtol=1e-6)
    np.testing.assert_allclose(found.entropy_share, 3 * [1], rtol=1e-6)
    np.testing.assert_allclose(found.similarity, np.eye(3), atol=1e-6)


def test_a_plain_keras_model():
    model = keras.Sequential(
        [
            keras.Input((5, 6)),
            layers.TransformerEncoderLayer(num_heads=2, intermediate_dim=7, name="mine"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = keras.random.normal((4, 5, 6)), np.array([0, 2, 1, 1])
    report = inspect(model, (x, y))
    assert [item.name for item in report.sublayers] == ["mine/self_attention", "mine/feed_forward"]
    assert report.loss == pytest.approx(float(model.evaluate(x, y, verbose=0)), rel=1e-5)


def test_a_single_add_norm():
    x = keras.Input((6,))
    model = keras.Model(x, layers.AddNorm(name="join")(x, keras.layers.Dense(6)(x)))
    report = inspect(model, (keras.random.normal((4, 6)), 0.0), _mean_square)
    (item,) = report.sublayers
    assert (item.name, item.stack, item.layer, item.kind) == ("join", "", "", "join")
    assert item.weight_gradient_norm is None
    assert "join" in str(report)
    assert "No dL/dw: the sublayer has no weights to train, or AddNorm is called" in str(report)


def test_attention_maps_of_a_sentence(model):
    inputs = {"source": SOURCE[:1, :6], "target": TARGET[:1, :4]}
    sentence = Sentence(inputs, source=list("abcdef"), target=list("wxyz"))
    maps = {
        item.name: item
        for item in inspect(model, (batch(), LABELS), sentence=sentence).attention_maps
    }
    assert list(maps) == [name for name in SUBLAYERS if name.endswith("attention")]
    cross = maps["decoder/0/cross_attention"]
    assert (cross.queries, cross.keys) == (tuple("wxyz"), tuple("abcdef"))
    assert maps["decoder/0/self_attention"].keys == tuple("wxyz")
    assert maps["encoder/0/self_attention"].queries == tuple("abcdef")
    expected = _weights(model)["decoder/0/cross_attention"][0, :, :4, :6]
    np.testing.assert_allclose(np.array(cross.weights), expected, atol=1e-5)


def test_tokens_have_to_fit(model):
    sentence = Sentence({"source": SOURCE[:1], "target": TARGET[:1]}, source=["a"], target=["b"])
    with pytest.raises(ValueError, match="one token for each id, 7 of them"):
        inspect(model, (batch(), LABELS), sentence=sentence)


def test_nothing_ran():
    x = keras.Input((6,))
    model = keras.Model(x, layers.AddNorm(name="join", scheme="pre_ln").branch_input(x))
    with pytest.raises(ValueError, match=r"No sublayer ran.*\['join'\]"):
        inspect(model, (np.zeros((2, 6)), 0.0), _mean_square)
