"""A pruned model is the model with F(x) = 0 in some places, without their weights."""

import dataclasses
from inspect import signature

import keras
import numpy as np
import pytest
import tensorflow as tf
from filled_models import LABELS, SOURCE, SUBLAYERS, array, batch, tiny_model
from tensorflow.core.protobuf import saved_model_pb2

from keras_addnorm import schemes
from keras_addnorm.data import Tokenizer
from keras_addnorm.diagnostics import PruneResult, Validation, inspect, prune
from keras_addnorm.layers import (
    FeedForward,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    TransformerDecoderLayer,
    TransformerEncoder,
)
from keras_addnorm.layers.pruned import PRUNED
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving import export_saved_model, load_translator
from keras_addnorm.serving.optimize_graph import function_definitions

SOME = (
    "encoder/0/self_attention",
    "encoder/1/feed_forward",
    "decoder/0/self_attention",
    "decoder/0/cross_attention",
)
BARE = {
    "pre_ln",
    "layer_scale",
    "rezero",
    "ln_scaling",
    "sub_ln",
    "orthogonal",
    "no_norm",
    "t_fixup",
}


def zeroed(model, names):
    """The independent way: the same model with output projections of zeros, so F(x) = 0."""
    copy = Seq2SeqTransformer(model.config)
    copy.set_weights(model.get_weights())
    for name in names:
        side, index, sublayer = name.split("/")
        projection = getattr(getattr(copy, side).layers[int(index)], sublayer).output_projection
        for weight in projection.weights:
            weight.assign(np.zeros(weight.shape))
    return copy


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("scheme", schemes.names())
def test_outputs_are_those_of_a_model_whose_branches_are_zero(scheme):
    model = tiny_model(scheme=scheme)
    pruned = prune(model, SOME).model
    expected = array(zeroed(model, SOME)(batch()))
    np.testing.assert_allclose(
        array(pruned(batch())), expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max())
    )


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("scheme", schemes.names())
def test_no_weight_of_a_pruned_sublayer_is_left(scheme):
    model = tiny_model(scheme=scheme)
    pruned = prune(model, SOME).model
    paths = {weight.path for weight in pruned.weights}
    assert paths < {weight.path for weight in model.weights}
    places = [name.replace("/", "/layer_", 1) for name in SOME]
    assert not [path for path in paths if path.startswith(tuple(f"{p}/" for p in places))]
    left = [path for path in paths if path.startswith(tuple(f"{p}_add_norm/" for p in places))]
    if scheme == "hybrid_norm":  # whose skip reads the norm in front of a feed-forward
        left = [path for path in left if "feed_forward_add_norm/pre_norm" not in path]
    if not isinstance(schemes.get(scheme), schemes.StreamScheme):  # They keep all that they have.
        assert not [path for path in left if "pre_norm" in path or "branch_scale" in path]
    if scheme in BARE:
        assert left == []


def test_pre_ln_without_a_branch_is_the_identity_and_post_ln_a_norm():
    x = np.random.default_rng(3).normal(size=(2, 5, 6)).astype("float32")
    options = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 7}
    names = ["0/self_attention", "0/feed_forward"]
    pre = TransformerEncoder(**options, scheme="rezero", pruned_sublayers=names)
    np.testing.assert_array_equal(array(pre(x)), x)
    assert pre.weights == []
    post = TransformerEncoder(**options, scheme="post_ln", pruned_sublayers=names)
    once = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(array(post(x)), once, atol=1e-5)


@pytest.mark.slow
def test_the_search_runs_from_a_cache_without_room():
    model = tiny_model(scheme="pre_ln")
    pruned = prune(model, SOME).model
    memory, _ = pruned.encode(SOURCE)
    (cache,) = pruned.initial_cache(memory, 6, 5)
    assert {name: tuple(part.shape) for name, part in cache.items()} == {
        "self_attention": (6, 0),
        "cross_attention": (3, 0),
    }
    reference = zeroed(model, SOME)
    for options in ({"num_beams": 1}, {"num_beams": 3, "jit_compile": False}):
        ids, scores = pruned.generate(SOURCE, max_length=5, **options)
        expected, expected_scores = reference.generate(SOURCE, max_length=5, **options)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_attention_weights_of_a_pruned_attention_are_those_of_no_heads():
    pruned = prune(tiny_model(scheme="pre_ln"), SOME).model
    memory, mask = pruned.encode(SOURCE)
    x = pruned.decoder_embedding(np.array([[1, 4, 5]] * 3))
    _, (scores,) = pruned.decoder(x, memory, memory_padding_mask=mask, return_attention_scores=True)
    assert tuple(scores["self_attention"].shape) == (3, 0, 3, 3)
    assert tuple(scores["cross_attention"].shape) == (3, 0, 3, 7)


def test_a_pruned_model_comes_back_from_its_files(tmp_path):
    pruned = prune(tiny_model(scheme="sandwich_ln"), SOME).model
    expected = array(pruned(batch()))
    pruned.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert again.config.pruned_sublayers == SOME
    np.testing.assert_array_equal(array(again(batch())), expected)
    pruned.save_weights(tmp_path / "m.weights.h5")
    fresh = Seq2SeqTransformer(Seq2SeqConfig.from_json(pruned.config.to_json()))
    fresh.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(array(fresh(batch())), expected)


@pytest.mark.parametrize(
    ("pruned", "real"),
    [
        (PRUNED["self_attention"], MultiHeadSelfAttention),
        (PRUNED["cross_attention"], MultiHeadCrossAttention),
        (PRUNED["feed_forward"], FeedForward),
    ],
)
def test_null_objects_are_called_like_what_they_stand_for(pruned, real):
    for method in ("call", "empty_cache", "project_memory"):
        if hasattr(real, method):
            assert _arguments(pruned, method) == _arguments(real, method)


def _arguments(layer, method):
    """Those of a method; those of a value residual go to attentions that are there alone."""
    parameters = signature(getattr(layer, method)).parameters
    return [name for name in parameters if name not in ("first_values", "return_values")]


def test_a_layer_comes_back_from_its_config():
    layer = TransformerDecoderLayer(
        num_heads=2, intermediate_dim=7, pruned_sublayers=["cross_attention"]
    )
    again = TransformerDecoderLayer.from_config(layer.get_config())
    assert again.pruned_sublayers == ("cross_attention",)
    stack = TransformerEncoder(
        2, num_heads=2, intermediate_dim=7, pruned_sublayers=["1/feed_forward"]
    )
    assert TransformerEncoder.from_config(stack.get_config()).pruned_sublayers == (
        "1/feed_forward",
    )


@pytest.mark.slow
def test_the_exported_model_has_neither_weights_nor_operations_of_what_was_pruned(tmp_path):
    texts = [f"{a} {b}." for a in ("ba", "diku", "mon", "lerun") for b in ("tö", "vei", "zzba")]
    tokenizer = Tokenizer.train(texts, vocabulary_size=23)
    sizes = dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), 23)
    model = tiny_model(scheme="pre_ln", **sizes)
    pruned = prune(model, SOME).model
    found = {}
    for name, one in (("whole", model), ("pruned", pruned)):
        path = export_saved_model(one, tokenizer, tmp_path / name, num_beams=1, max_length=4)
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        functions = function_definitions(saved.meta_graphs[0].graph_def)
        nodes = [node for function in functions for node in function.node_def]
        found[name] = {
            "products": sum(n.op in ("MatMul", "BatchMatMulV2", "Einsum") for n in nodes),
            "bytes": sum(file.stat().st_size for file in path.glob("variables/*.data*")),
        }
        translator = load_translator(tmp_path / name)
        expected = one.generate(_ids(tokenizer, texts[:2]), max_length=4)[0]
        got = [text for text, _ in translator(texts[:2])]
        assert got == [tokenizer.decode(row) for row in expected]
    # Four bytes a weight; the names of the weights are in another file.
    saved = 4 * (model.count_params() - pruned.count_params())
    assert found["whole"]["bytes"] - found["pruned"]["bytes"] >= saved
    # Four projections and two products of an attention, two projections of a feed-forward; those
    # of the decoder stand in more than one function of the loop.
    assert found["whole"]["products"] - found["pruned"]["products"] >= 3 * 6 + 2


def _ids(tokenizer, texts):
    rows = [[*tokenizer.encode(text), tokenizer.end_id] for text in texts]
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows])


def dataset():
    return tf.data.Dataset.from_tensors((batch(), LABELS))


@pytest.mark.slow
def test_the_table_prices_each_sublayer_and_all_of_them():
    model = tiny_model(scheme="pre_ln")
    before = model.get_weights()
    result = prune(model, SOME[:2], evaluate=Validation(dataset()))
    assert isinstance(result, PruneResult)
    rows = result.table
    assert [row.sublayers for row in rows] == [(), SOME[:1], SOME[1:2], SOME[:2]]
    for row in rows:
        expected = cross_entropy(zeroed(model, row.sublayers))
        np.testing.assert_allclose(row.scores["loss"], expected, rtol=1e-5)
        np.testing.assert_allclose(row.scores["perplexity"], np.exp(expected), rtol=1e-5)
        np.testing.assert_allclose(row.cost["loss"], expected - cross_entropy(model), atol=1e-5)
    assert rows[0].weights == model.count_params()
    assert rows[-1].weights == result.model.count_params() < rows[1].weights
    assert not model.compiled
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def cross_entropy(model):
    z = array(model(batch())).astype("float64")
    log_p = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
    picked = np.take_along_axis(log_p, LABELS[..., None], axis=-1)[..., 0]
    return -picked[LABELS != 0].mean()


def test_translations_are_scored_too_and_the_table_can_be_read():
    def translate(model, texts):
        return texts if not model.config.pruned_sublayers else ["nothing at all"] * len(texts)

    text = ["one two three four five", "six seven eight nine ten"]
    result = prune(
        tiny_model(),
        SOME[1:2],
        evaluate=Validation(sources=text, references=text, translate=translate),
    )
    assert [row.scores["bleu"] for row in result.table] == pytest.approx([100.0, 0.0])
    assert result.table[1].cost["bleu"] == pytest.approx(-100.0)
    lines = str(result).splitlines()
    assert lines[0].split() == ["without", "weights", "bleu", "cost"]
    assert lines[2].split()[0] == SOME[1]
    assert lines[2].split()[-1] == "-100.0000"


def test_a_report_names_the_sublayers_that_are_nearly_the_identity():
    """ReZero starts with every branch switched off; one is opened here."""
    model = Seq2SeqTransformer(dataclasses.replace(tiny_model().config, scheme="rezero"))
    model.encoder.layers[0].feed_forward_add_norm.branch_scale.assign(1.0)
    report = inspect(model, (batch(), LABELS))
    pruned = prune(model, report).model
    left = set(SUBLAYERS) - set(pruned.config.pruned_sublayers)
    assert left == {"encoder/0/feed_forward"}
    np.testing.assert_allclose(array(pruned(batch())), array(model(batch())), rtol=1e-6)
    again = inspect(pruned, (batch(), LABELS))
    assert [item.name for item in again.sublayers] == ["encoder/0/feed_forward"]
    np.testing.assert_allclose(again.loss, report.loss, rtol=1e-6)


def test_pruning_goes_on_where_it_was():
    once = prune(tiny_model(), SOME[2:]).model
    twice = prune(once, SOME[:1]).model
    assert twice.config.pruned_sublayers == (SOME[0], *SOME[2:])


def test_every_sublayer_can_be_pruned():
    pruned = prune(tiny_model(scheme="pre_ln"), SUBLAYERS).model
    assert array(pruned(batch())).shape == (3, 5, 11)
    assert pruned.config.sublayer_names == SUBLAYERS


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["encoder/0/self_atention"], "Did you mean 'encoder/0/self_attention'"),
        (["encoder/2/feed_forward"], "Expected names among encoder/0/self_attention, "),
        (["encoder/0/cross_attention"], "There is no sublayer 'encoder/0/cross_attention'"),
        ("decoder", "There is no sublayer 'decoder' to prune"),
    ],
)
def test_an_unknown_sublayer_lists_what_there_is(names, message):
    with pytest.raises(ValueError, match=message):
        prune(tiny_model(), names)


def test_a_validation_needs_something_to_validate_on():
    with pytest.raises(ValueError, match="nothing to validate on"):
        Validation()
    with pytest.raises(ValueError, match="someone to translate"):
        Validation(sources=["a"], references=["b"])


@pytest.mark.parametrize(
    "first, then",
    [
        (None, None),
        (5.0, 5.0),
        ([("loss", 1.0)], None),
        ({}, {}),
        ({"loss": "1.0"}, None),
        ({"loss": [1.0, 2.0]}, None),
        ({1: 2.0}, None),
        ({"loss": 1.0}, {"bleu": 1.0}),
        ({"loss": 1.0}, {"loss": 1.0, "bleu": 1.0}),
    ],
)
def test_what_evaluates_a_model_returns_the_same_scores_each_time(first, then):
    answers = iter([first, then])
    with pytest.raises(ValueError, match=r"evaluate has to return scores\. Expected a dict"):
        prune(tiny_model(), SOME[:1], evaluate=lambda model: next(answers))


def test_another_kind_of_model_is_refused():
    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer. Received: a Sequential"):
        prune(keras.Sequential([keras.layers.Dense(3)]), SOME)


@pytest.mark.slow
def test_the_loss_of_a_validation_does_not_depend_on_its_batches():
    """Rows of 4, 2 and 5 tokens: a mean over batches would be another one for each size."""
    model = tiny_model(scheme="pre_ln")
    whole = tf.data.Dataset.from_tensor_slices((batch(), LABELS))
    found = [Validation(whole.batch(size))(tiny_model(scheme="pre_ln")) for size in (1, 2, 3)]
    for scores in found:
        np.testing.assert_allclose(scores["loss"], cross_entropy(model), rtol=1e-5)
