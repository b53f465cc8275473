"""Every signature of an exported model against the model itself."""

import itertools
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from exported import LENGTHS, MAX_LENGTH, ROWS, make_model
from tensorflow.core.protobuf import saved_model_pb2

from keras_addnorm.decoding import Beam, Greedy, Lexicon, NoRepeatNgram, Shortlist, translate
from keras_addnorm.decoding.splitting import join, make_segments
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.serving import export_saved_model, load_translator
from keras_addnorm.serving.optimize_graph import function_definitions
from keras_addnorm.serving.request_batches import Buckets, map_in_batches
from keras_addnorm.serving.signatures import finds_all_of
from keras_addnorm.serving.stored_weights import StoredWeights

T = 7


RULES = [NoRepeatNgram(2)]  # Without it, one token again and again.


@pytest.fixture(scope="module")
def with_shortlist(toy, tmp_path_factory):
    rng = np.random.default_rng(2)
    lexicon = Lexicon(
        rng.integers(3, 89, (101, 5)).astype("int32"),
        rng.random((101, 5)).astype("float32"),
        rng.random(89).astype("float32"),
    )
    shortlist = Shortlist(lexicon, 30)
    path = export_saved_model(
        toy.model,
        toy.tokenizers,
        tmp_path_factory.mktemp("exported") / "with-shortlist",
        batch_buckets=ROWS,
        length_buckets=LENGTHS,
        shortlist=shortlist,
        constraints=RULES,
        **toy.options,
    )
    return path, shortlist


@pytest.fixture(scope="module")
def sources(texts, new_texts):
    # More than the largest batch, of all lengths, blank ones among them: batches are made and
    # sorted, and the order has to come back.
    return [*texts[:8], "", "mon " * 40, " ", "ba", *texts[8:108], *new_texts[:88]]


def call(module, name, **texts):
    outputs = module.signatures[name](**{key: tf.constant(value) for key, value in texts.items()})
    return {key: value.numpy() for key, value in outputs.items()}


def rows(toy, texts, side="source"):
    """The ids of each text with its end, cut as the export cuts; none for a blank source."""
    tokenizer, longest = getattr(toy.tokenizers, side), MAX_LENGTH if side == "source" else T
    encoded = [tokenizer.encode(text)[: longest - 1] for text in texts]
    return [[*ids, 2] if ids or side == "target" else [] for ids in encoded]


def padded(rows, columns):
    return np.array([row + [0] * (columns - len(row)) for row in rows], "int32")


def strings(array):
    return np.vectorize(lambda text: text.decode())(array).tolist()


def pieces(tokenizer, ids):
    """The piece of each id, (B, T); nothing at padding."""
    return [[tokenizer.pieces[i].text if i else "" for i in row] for row in ids]


def segments_of(toy, texts):
    """The rows that the encoder reads, and for each text which of them are its own."""
    config = toy.model.config
    segments = make_segments(texts, toy.tokenizers.source, "sentences", config)
    own = [slice(*pair) for pair in itertools.pairwise(segments.first_rows)]
    return segments, own


def one_behind_the_other(rows, own, columns, padding):
    """The rows of each text in one row."""
    whole = [np.concatenate(rows[one]) for one in own]
    return np.array([[*row, *[padding] * (columns - len(row))] for row in whole])


@pytest.mark.parametrize(
    "name", ["translate_nbest", pytest.param("translate_nbest_xla", marks=pytest.mark.slow)]
)
def test_nbest_with_alignments(toy, module, sources, name):
    assert len(sources) == 200
    found = call(module, name, texts=sources)
    segments, own = segments_of(toy, sources)
    assert max(one.stop - one.start for one in own) > 2
    expected = toy.model.generate(
        padded(segments.rows, MAX_LENGTH),
        Beam(3, 0.6, num_return=3),
        max_length=T,
        return_details=True,
    )
    decoded = [toy.tokenizers.target.decode_batch(best.tolist()) for best in expected.ids]
    lengths = (expected.ids != 0).sum(-1)
    alone = np.array([one.stop - one.start == 1 for one in own])
    assert 50 < alone.sum() < 150
    columns = max(lengths[one].sum(0).max() for one in own)
    assert found["alignments"].shape == (200, 3, columns) and columns > T
    begins = [
        begin
        for one in own
        for begin in np.cumsum([0, *map(len, segments.rows[one])])[: one.stop - one.start]
    ]
    for k in range(3):
        texts = [join([best[k] for best in decoded[one]], segments.joints[one]) for one in own]
        assert strings(found["translations"][:, k]) == texts
        firsts = [one.start for one in own]
        np.testing.assert_allclose(
            found["scores"][alone, k], expected.scores[firsts, k][alone], atol=1e-4
        )
        sums = expected.scores[:, k] * ((5 + lengths[:, k]) / 6) ** 0.6
        totals = [lengths[one, k].sum() for one in own]
        np.testing.assert_allclose(
            found["scores"][~alone, k],
            np.array(
                [sums[one].sum() / ((5 + n) / 6) ** 0.6 for one, n in zip(own, totals, strict=True)]
            )[~alone],
            atol=1e-4,
        )
        real = [slice(length) for length in lengths[:, k]]
        alignments = [
            expected.alignments[i, k, real[i]] + begins[i] for i in range(len(segments.rows))
        ]
        ids = [expected.ids[i, k, real[i]] for i in range(len(segments.rows))]
        np.testing.assert_array_equal(
            found["alignments"][:, k], one_behind_the_other(alignments, own, columns, -1)
        )
        named = pieces(toy.tokenizers.target, one_behind_the_other(ids, own, columns, 0))
        assert strings(found["pieces"][:, k]) == named


def test_a_short_text_has_the_shape_that_it_had_without_splitting(module):
    found = call(module, "translate_nbest", texts=["Ba di.", ""])
    assert found["alignments"].shape == found["pieces"].shape == (2, 3, T)


def test_u1_a_served_model_translates_every_sentence(translator, module):
    """And the graph gives what the class that loads it gives."""
    sentences = [f"Ba {word}." for word in ("di", "ku", "ler", "mon")]
    text = "\n\n".join([" ".join(15 * sentences), "Zz ba?"])
    alone = strings(call(module, "serving_default", texts=[*sentences, "Zz ba?"])["translations"])
    assert all(alone)
    expected = "\n\n".join([" ".join(15 * alone[:4]), alone[4]])
    assert strings(call(module, "serving_default", texts=["", text])["translations"])[1] == expected
    assert [each.text for each in translator([text])] == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "_xla"])
def test_the_best_of_nbest_is_the_translation(module, sources, kind):
    best, several = (call(module, f"translate{n}{kind}", texts=sources) for n in ("", "_nbest"))
    assert strings(best["translations"]) == strings(several["translations"][:, 0])
    np.testing.assert_allclose(best["scores"], several["scores"][:, 0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "serving_default",
        "translate_xla",
        "translate_nbest",
        "translate_nbest_xla",
        "score",
        "tokenize",
        "encode",
    ],
)
def test_a_batch_gives_what_its_texts_give_alone(module, sources, name):
    texts = {"source": sources, "target": sources[::-1]} if name == "score" else {"texts": sources}
    together = call(module, name, **texts)
    for index in range(len(sources)):
        alone = call(module, name, **{key: [value[index]] for key, value in texts.items()})
        for key, (value,) in alone.items():
            other = together[key][index]
            if key in ("token_ids", "pieces", "states", "alignments"):
                # As long as the longest text of the request: padding follows.
                axis = 1 if name.startswith("translate") else 0
                length = value.shape[axis]
                other, padding = np.split(other, [length], axis)
                assert (padding == {"alignments": -1, "pieces": b""}.get(key, 0)).all()
            if np.issubdtype(together[key].dtype, np.floating):
                np.testing.assert_allclose(other, value, atol=1e-4)
            else:
                np.testing.assert_array_equal(other, value)


def test_score_is_that_of_the_model(toy, module, sources, texts):
    targets = [*texts[20:31], "", *texts[50:238]]
    assert len(targets) == len(sources) == 200
    found = call(module, "score", source=sources, target=targets)
    expected = toy.model.score(
        padded(rows(toy, sources), MAX_LENGTH), padded(rows(toy, targets, "target"), T)
    )
    kept = np.array([bool(row) for row in rows(toy, sources)])
    tokens = found["token_log_probabilities"]
    np.testing.assert_allclose(tokens[kept], expected.token_log_probabilities[kept], atol=1e-4)
    np.testing.assert_allclose(found["scores"], tokens.sum(1), atol=1e-4)
    assert np.isfinite(tokens).all()


def test_score_needs_a_target_for_each_source(module):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected one target for each source"):
        call(module, "score", source=["ba", "di"], target=["ba"])


def test_tokenize(toy, module, sources):
    found = call(module, "tokenize", texts=sources)
    segments, own = segments_of(toy, sources)
    expected = [[token for row in segments.rows[one] for token in row] for one in own]
    assert strings(found["normalized"]) == list(map(toy.tokenizers.source.normalizer, sources))
    np.testing.assert_array_equal(found["lengths"], [len(row) for row in expected])
    np.testing.assert_array_equal(found["token_ids"], padded(expected, max(map(len, expected))))
    assert strings(found["pieces"]) == pieces(toy.tokenizers.source, found["token_ids"])


def test_encode(toy, module, sources):
    found = call(module, "encode", texts=sources)
    segments, own = segments_of(toy, sources)
    encoded = np.asarray(toy.model.encode(padded(segments.rows, MAX_LENGTH))[0])
    encoded = [states[: len(row)] for states, row in zip(encoded, segments.rows, strict=True)]
    for one, states, mean in zip(own, found["states"], found["pooled"], strict=True):
        whole = np.concatenate(encoded[one])
        assert not states[len(whole) :].any()
        np.testing.assert_allclose(states[: len(whole)], whole, atol=1e-4)
        np.testing.assert_allclose(mean, whole.mean(0) if len(whole) else 0, atol=1e-4)


@pytest.mark.slow
def test_requests_of_any_size(module, sources):
    many = call(module, "serving_default", texts=sources * 9)
    few = call(module, "serving_default", texts=sources)
    assert strings(many["translations"]) == strings(few["translations"]) * 9
    for name in module.signatures:
        if name != "score":
            assert all(
                len(out) == 0 for out in call(module, name, texts=np.array([], str)).values()
            )


def test_one_search_serves_narrower_ones():
    wide, narrow = Beam(3, 0.6, num_return=3), Beam(3, 0.6)
    assert finds_all_of(wide, narrow) and finds_all_of(wide, wide)
    for other in (Beam(4, 0.6), Beam(3, 0.7), Greedy()):
        assert not finds_all_of(wide, other)
    assert not finds_all_of(narrow, wide)
    early = Beam(3, 0.6, num_return=3, early_stopping=True)
    assert not finds_all_of(early, narrow)
    assert finds_all_of(early, Beam(3, 0.6, early_stopping=True))


def functions_and_operations(path):
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0]
    functions = {one.signature.name: one for one in function_definitions(graph.graph_def)}
    called = {
        name: next(
            node.attr["f"].func.name
            for node in graph.graph_def.node
            if node.name == definition.outputs["scores"].name.split(":")[0]
        )
        for name, definition in graph.signature_def.items()
        if "scores" in definition.outputs
    }
    return functions, called


def reachable(library, name):
    seen, waiting = set(), [name]
    while waiting:
        function = library[waiting.pop()]
        if function.signature.name in seen:
            continue
        seen.add(function.signature.name)
        for node in function.node_def:
            for attribute in node.attr.values():
                waiting += [n for n in (attribute.func.name,) if n in library]
                waiting += [f.name for f in attribute.list.func if f.name in library]
    return [library[name] for name in seen]


def test_xla_is_where_its_name_says_and_nowhere_else(toy):
    library, called = functions_and_operations(toy.path)
    for name, function in called.items():
        functions = reachable(library, function)
        compiled = any(f.attr["_XlaMustCompile"].b for f in functions)
        assert compiled == name.endswith("_xla"), name
        if not compiled:
            operations = {node.op for f in functions for node in f.node_def}
            assert "While" in operations or "StatelessWhile" in operations
            assert not {op for op in operations if op.startswith("Xla")}


def test_shapes_under_xla_are_those_of_the_buckets(monkeypatch):
    seen = []

    def function(ids):
        # Runs once a trace: under XLA the shape is concrete, so a trace is a compilation.
        seen.append(tuple(ids.shape))
        return {"sum": tf.reduce_sum(ids, 1, keepdims=True)}

    buckets = Buckets.of(ROWS, LENGTHS, MAX_LENGTH)
    compiled = buckets.compile(function, pad_id=0)
    for batch in range(4):
        for length in range(1, MAX_LENGTH + 1):
            ids = tf.ones([batch, length], tf.int32)
            np.testing.assert_array_equal(compiled(ids)["sum"], np.full([batch, 1], length))
    assert sorted(seen) == sorted(buckets.shapes)


def test_map_in_batches_sorts_trims_and_puts_back():
    widths = []

    def function(a, b):
        widths.append((a.shape[0], a.shape[1], b.shape[1]))
        return {"sums": tf.reduce_sum(a, 1) - tf.reduce_sum(b, 1)}

    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 8, 11)
    a = (np.arange(9) < lengths[:, None]) * generator.integers(1, 5, (11, 9))
    b = np.ones((11, 3), int)
    found = map_in_batches(
        function,
        [tf.constant(a, tf.int32), tf.constant(b, tf.int32)],
        {"sums": tf.TensorSpec([None], tf.int32)},
        batch_size=4,
        pad_id=0,
    )
    np.testing.assert_array_equal(found["sums"], a.sum(1) - b.sum(1))
    ordered = np.sort(lengths)
    assert widths == [(4, max(1, ordered[3]), 3), (4, ordered[7], 3), (3, ordered[10], 3)]


@pytest.mark.parametrize("wrong", [(), (3, 2), (2, 2), (0, 4)])
def test_bad_buckets(wrong):
    with pytest.raises(ValueError, match="Expected rising positive sizes as batch buckets"):
        Buckets(wrong, (4,))


@pytest.mark.slow
def test_smaller_storage(texts, toy, tmp_path):
    model = make_model(101, 89, hidden_dim=64, intermediate_dim=256)
    model.set_weights([w / 3 for w in model.get_weights()])
    paths = {
        kind: export_saved_model(
            *(model, toy.tokenizers, tmp_path / kind),
            **{"strategies": {"translate": Greedy()}, "max_length": 5, "storage": kind},
            **{"batch_buckets": (8,), "length_buckets": (11,)},
        )
        for kind in ("float32", "float16", "int8")
    }
    sizes = {
        kind: sum(file.stat().st_size for file in (path / "variables").iterdir())
        for kind, path in paths.items()
    }
    bytes_of_weights = sum(weight.nbytes for weight in model.get_weights())
    assert bytes_of_weights <= sizes["float32"] <= 1.1 * bytes_of_weights
    exact = load_translator(paths["float32"])(texts[:20])
    for kind, share, atol in (("float16", 0.5, 2e-2), ("int8", 0.3, 0.5)):
        assert sizes[kind] <= (share + 0.1) * sizes["float32"], kind
        stored = load_translator(paths[kind])
        assert stored.card["storage"] == kind
        pairs = list(zip(exact, stored(texts[:20]), strict=True))
        scores = [[answer.score for answer in pair] for pair in pairs]
        np.testing.assert_allclose(*np.transpose(scores), atol=atol, err_msg=kind)
        assert sum(a.text == b.text for a, b in pairs) >= 16, kind


def test_float16_names_the_weight_that_does_not_fit(texts, toy, tmp_path):
    model = make_model(101, 89, intermediate_dim=128)
    weights = model.get_weights()
    weights[0][0, 0] = 1e5
    model.set_weights(weights)
    with pytest.raises(ValueError, match=r"embeddings does not fit in float16.*1000"):
        export_saved_model(model, toy.tokenizers, tmp_path / "toy", storage="float16")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="Expected one of float32, float16, int8 as storage"):
        export_saved_model(model, toy.tokenizers, tmp_path / "toy", storage="int4")


def shapes_stored(path):
    """The shapes of a saved model's variables."""
    variables = tf.train.list_variables(str(path / "variables" / "variables"))
    return [shape for name, shape in variables if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]


def numbers_stored(path):
    return sum(np.prod(shape) for shape in shapes_stored(path))


def test_all_vectors_are_one_variable(toy):
    """A call hands variables over one by one."""
    vectors = [weight for weight in toy.model.weights if weight.ndim == 1]
    matrices = [weight for weight in toy.model.weights if weight.ndim > 1]
    assert len(vectors) > len(matrices)
    expected = [tuple(weight.shape) for weight in matrices]
    expected.append((sum(weight.shape[0] for weight in vectors),))
    assert sorted(map(tuple, shapes_stored(toy.path))) == sorted(expected)


def test_stored_weights_are_the_models():
    """Matrices, vectors and, with ReZero, scalars."""
    model = make_model(101, 89, scheme="rezero")
    model.set_weights([np.random.default_rng(3).normal(size=w.shape) for w in model.weights])
    assert {weight.ndim for weight in model.weights} == {0, 1, 2}
    expected = model.get_weights()
    with StoredWeights(model).in_use():
        found = [keras.ops.convert_to_numpy(weight.value) for weight in model.weights]
    assert [value.shape for value in found] == [value.shape for value in expected]
    for value, weight in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, weight)


@pytest.mark.slow
def test_gains_are_folded(texts, toy, tmp_path):
    model = make_model(101, 89, scheme="layer_scale", num_encoder_layers=2)
    options = {"strategies": {"translate": Greedy()}, "max_length": 5}
    path = export_saved_model(model, toy.tokenizers, tmp_path / "toy", **options)
    translator = load_translator(path)
    assert translator.card["folded_scheme"] == {"name": "pre_ln"}
    assert Seq2SeqConfig.from_dict(translator.card["config"]) == model.config
    gains = [weight.path for weight in model.weights if weight.path.endswith("branch_scale")]
    assert len(gains) == 2 * 2 + 3  # for each sublayer
    kept = [weight for weight in model.weights if weight.path not in gains]
    assert numbers_stored(path) == sum(np.prod(weight.shape) for weight in kept)
    expected = translate(model, toy.tokenizers, texts[:50], max_length=5)
    found = translator(texts[:50])
    assert [text for text, _ in found] == expected.texts
    np.testing.assert_allclose([score for _, score in found], expected.scores, atol=1e-3)


@pytest.mark.slow
def test_named_strategies(texts, toy, tmp_path):
    path = export_saved_model(
        *(toy.model, toy.tokenizers, tmp_path / "toy"),
        strategies={"quick": "greedy", "wide": {"name": "beam", "num_beams": 2, "num_return": 2}},
        max_length=T,
        card={"licence": "CC-BY-4.0", "scores": {"BLEU": 38.2}},
    )
    module = tf.saved_model.load(str(path))
    assert set(module.signatures) == {
        *("serving_default", "quick", "quick_xla", "wide", "wide_xla"),
        *("score", "tokenize", "encode"),
    }
    quick = call(module, "serving_default", texts=texts[:3])
    expected = translate(toy.model, toy.tokenizers, texts[:3], max_length=T)
    np.testing.assert_allclose(quick["scores"], expected.scores, atol=1e-4)
    card = load_translator(path).card
    assert card["decoding"]["strategies"]["wide"]["num_beams"] == 2
    assert card["licence"] == "CC-BY-4.0" and card["scores"] == {"BLEU": 38.2}


def test_bad_strategies(toy, tmp_path):
    def export(**options):
        return export_saved_model(toy.model, toy.tokenizers, tmp_path / "toy", **options)

    for strategies in ({"score": "greedy"}, {"mine_xla": "greedy"}):
        with pytest.raises(ValueError, match="a name that an export gives itself"):
            export(strategies=strategies)
    for options in ({"strategies": {}}, {"strategies": {"a": "greedy"}, "num_beams": 2}):
        with pytest.raises(ValueError, match="Expected either strategies, at least one, or"):
            export(**options)
    with pytest.raises(ValueError, match="no such decoding strategy"):
        export(strategies={"a": "gready"})
    for strategies in (
        {"wide": Beam(4, num_return=4), "a": "greedy"},
        {"translate_nbest": Beam(1)},
    ):
        with pytest.raises(
            ValueError, match=r"Expected one with num_return=1.*Received: '\w+': Beam"
        ):
            export(strategies=strategies)
    assert not (tmp_path / "toy").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translate", "translate_nbest", "translate_nbest_xla"])
def test_with_a_shortlist_and_a_rule(toy, with_shortlist, name):
    """A list is chosen for each batch, of which one request of three texts is one."""
    path, shortlist = with_shortlist
    module = tf.saved_model.load(str(path))
    texts = ["ba di ku", "", "Mon ler schätö ?"]
    found = call(module, name, texts=texts)
    ids, scores = toy.model.generate(
        padded(rows(toy, texts), MAX_LENGTH),
        Beam(3, 0.6, num_return=3),
        max_length=T,
        shortlist=shortlist,
        constraints=RULES,
    )
    assert len(set(ids[0, 0].tolist())) > 2
    expected = [toy.tokenizers.target.decode_batch(best.tolist()) for best in np.asarray(ids)]
    if name == "translate":
        expected, scores = [best[0] for best in expected], scores[:, 0]
    assert strings(found["translations"]) == expected
    np.testing.assert_allclose(found["scores"], scores, atol=1e-4)


@pytest.mark.slow
def test_an_export_says_that_it_has_a_shortlist(toy, translator, with_shortlist):
    path, shortlist = with_shortlist
    assert load_translator(path).card["decoding"]["shortlist"] == shortlist.size
    rules = [{"name": "no_repeat_ngram", "size": 2}]
    assert load_translator(path).card["decoding"]["constraints"] == rules
    assert translator.card["decoding"]["shortlist"] is None
    readmes = [
        (each / "assets.extra" / "README.md").read_text("utf-8") for each in (path, toy.path)
    ]
    assert ["considers only the 30 target pieces" in readme for readme in readmes] == [True, False]


def test_a_shortlist_of_another_model_is_refused(toy, tmp_path):
    lexicon = Lexicon.estimate([([3], [4])], source_vocabulary_size=9, target_vocabulary_size=89)
    with pytest.raises(ValueError, match="does not belong to the model"):
        export_saved_model(
            toy.model, toy.tokenizers, tmp_path / "model", shortlist=Shortlist(lexicon, 20)
        )
    assert not (tmp_path / "model").exists()
