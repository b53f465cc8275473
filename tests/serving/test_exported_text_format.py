"""Language tokens, tasks and leading pieces: Python and an export agree."""

from types import SimpleNamespace

import keras
import numpy as np
import pretrained_vocabularies as families
import pytest
import tensorflow as tf
from small_models import fetch

from keras_addnorm import cli
from keras_addnorm.data import PieceIds, TextFormat, Tokenizer, TokenizerPair, sentencepiece_pieces
from keras_addnorm.decoding import Sentences, translate
from keras_addnorm.decoding import splitting as ways_of_splitting
from keras_addnorm.decoding.splitting import make_segments
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving import Client, ServingError, load_translator
from keras_addnorm.serving.export import export_saved_model
from keras_addnorm.serving.graph_text_format import GraphTextFormat
from keras_addnorm.serving.server import Settings, running
from keras_addnorm.serving.text_encoder import TextEncoder

TEXTS = [
    "the small dog. a cat runs!",
    "",
    "old men",
    ">>en_XX<< the dog. a cat",
    ">>de_DE<< a dog ",
    ">>xx<<the cat",
    ">>de_DE",
    " >>de_DE<< a",
    "a very small old dog and a very old small cat run and run and run",
]
CORPUS = ["the small dog runs", "a small cat", "two old men run", "and very old dogs run. a!"] * 3


def tokenizer():
    model = Tokenizer.train(CORPUS, vocabulary_size=28).proto
    ids = PieceIds.around(
        sentencepiece_pieces(model),
        first=("<s>", "<pad>", "</s>", "<unk>"),
        last=("en_XX", "de_DE", ">>en_XX<<", ">>de_DE<<"),
        start="</s>",
    )
    return Tokenizer.from_sentencepiece(model, ids.filled_up_to(40))


FORMATS = {
    "nllb": TextFormat(source_prefix=("{source}",), target_prefix=("{target}",)),
    "mbart": TextFormat(source_suffix=("{end}", "{source}")),
    "bart": TextFormat(source_prefix=("<s>",), target_prefix=("<s>", "en_XX")),
    "t5": TextFormat(text_prefix="small men: "),
    "marian": TextFormat(source_prefix=(">>{target}<<",), leading_piece=(">>", "<<")),
    "none": TextFormat(source_suffix=()),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_the_same_in_a_graph(name):
    own = tokenizer()
    pair = TokenizerPair(own, own, FORMATS[name])
    encoder = TextEncoder(pair, 20, 12, Sentences())
    read = {"source": "en_XX", "target": "de_DE"}
    inputs = {side: read[side] for side in encoder.text_format.source_languages}
    languages = {side: tf.constant([name] * len(TEXTS)) for side, name in inputs.items()}
    _, rows = encoder.segments(tf.constant(TEXTS), languages)
    found = [[token for token in row if token != own.pad_id] for row in rows.numpy().tolist()]
    known = {side: read[side] for side in pair.text_format.target_languages} | inputs
    pair = pair.with_languages(**known)
    if inputs:  # Constants of the graph are the same.
        constants = TextEncoder(pair, 20, 12, Sentences())
        assert not constants.text_format.source_languages
        assert (constants.segments(tf.constant(TEXTS), {})[1].numpy() == rows.numpy()).all()
    config = Seq2SeqConfig.preset(
        "tiny", source_vocabulary_size=40, target_vocabulary_size=40, max_length=20
    )
    assert found == make_segments(TEXTS, own, "sentences", config, pair.bound_format).rows
    assert max(map(len, found)) <= 20


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", ["byt5", "bart"])
@pytest.mark.parametrize("splitting", ["sentences", "long_texts", "none"])
def test_texts_of_bytes_are_divided_the_same_in_a_graph(name, splitting):
    """White space at the ends of a sentence is left out; long ones are divided at spaces.

    Where there is no space, they are divided between characters, never inside of one.
    """
    own = families.FAMILIES[name]()
    texts = ["The dog.  A cat ", *TEXTS, "the  dog. \n a cat ", "日本語" * 9, "  "]
    encoder = TextEncoder(TokenizerPair.joint(own), 20, 12, ways_of_splitting.get(splitting))
    _, rows = encoder.segments(tf.constant(texts), {})
    found = [[token for token in row if token != own.pad_id] for row in rows.numpy().tolist()]
    around = TokenizerPair.joint(own).bound_format
    expected = make_segments(texts, own, splitting, SimpleNamespace(max_length=20), around).rows
    assert found == expected
    assert max(map(len, found)) == 20
    assert not any("\ufffd" in text for text in own.decode_batch(found))
    if splitting == "sentences":
        assert found[:2] == [[*own.encode(text), own.end_id] for text in ("The dog.", "A cat")]


@pytest.mark.parametrize("name", ["byt5", "bart"])
def test_texts_to_score_are_cut_at_characters_and_have_no_outer_space(name):
    own = families.FAMILIES[name]()
    encoder = TextEncoder(TokenizerPair.joint(own), 9, 9, Sentences())
    texts = ["dog", " dog\n\n", "zééééé", "日本語", "  ", "🙂🙂🙂"]
    kept = ["dog", "dog", "zééé", "日本", "", "🙂🙂"]
    for ids in (encoder.source_ids(tf.constant(texts), {}), encoder.target_ids(texts, {})):
        rows = [[token for token in row if token != own.pad_id] for row in ids.numpy().tolist()]
        assert own.decode_batch(rows) == kept
        assert rows[1] == rows[0] and max(map(len, rows)) == 9
    # Nothing is left of a character that is longer than the model: better a part of it.
    short = TextEncoder(TokenizerPair.joint(own), 3, 3, Sentences())
    assert short.source_ids(tf.constant(["日"]), {}).numpy().tolist() == [
        [*own.encode("日")[:2], own.end_id]
    ]


def test_the_languages_of_a_graph_are_those_of_python():
    own = Tokenizer.train(CORPUS, vocabulary_size=30, user_defined_symbols=("<2de>", "<2en>"))
    several = tokenizer()
    cases = [
        (TokenizerPair.joint(own), "<2{target}>", ["de", "en"], ["fr", "", "2de"]),
        # A special piece, a piece of words, a leading piece and a row of no piece are no languages.
        (TokenizerPair.joint(several), "{target}", None, ["</s>", "<s>", "the", "<unused 34>"]),
    ]
    for pair, template, known, unknown in cases:
        text_format = TextFormat(source_prefix=(template,), leading_piece=None)
        pair = TokenizerPair(pair.source, pair.source, text_format)
        known = known or pair.languages("target")
        assert pair.languages("target") == known and len(known) > 1
        graph = GraphTextFormat(pair)

        def prefix_of(name, graph=graph):
            languages = {"target": tf.constant([name])}
            return graph.take_leading(tf.constant(["a"]), languages)[0].to_list()

        for name in known:
            expected = pair.with_languages(target=name).bound_format.source_prefix
            assert prefix_of(name) == [list(expected)]
        for name in unknown:
            words = rf"(?s)know a target_language.* such as {known[0]}, .*received.*{name}"
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                prefix_of(name)
            with pytest.raises(ValueError, match="of a target language"):
                pair.with_languages(target=name)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    sizes = {"source_vocabulary_size": 40, "target_vocabulary_size": 40, "max_length": 12}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 8, "num_heads": 1}
    special = {"pad_id": 1, "start_id": 2, "end_id": 2, "intermediate_dim": 8}
    return Seq2SeqTransformer(Seq2SeqConfig.preset("tiny", **sizes, **layers, **special))


@pytest.mark.slow
def test_an_export_takes_languages_as_inputs(model, tmp_path, capsys):
    own = tokenizer()
    pair = TokenizerPair(own, own, FORMATS["nllb"])
    strategies = {"translate": "greedy"}
    export_saved_model(model, pair, tmp_path, strategies=strategies)
    translator = load_translator(tmp_path)
    assert translator.card["text_format"]["target_prefix"] == ["{target}"]
    languages = {"source_language": "en_XX", "target_language": "de_DE"}
    found = translator(TEXTS, **languages)
    expected = translate(model, pair, TEXTS, strategies["translate"], **languages)
    assert [text for text, _ in found] == expected.texts
    np.testing.assert_allclose([score for _, score in found], expected.scores, rtol=1e-4)

    signatures = translator._module.signatures
    # One for each text: each row is that of its own languages.
    several = {"source_language": ["en_XX", "de_DE"], "target_language": ["de_DE", "en_XX"]}
    several = {name: tf.constant(value) for name, value in several.items()}
    alone_text = translate(model, pair, ["the cat"], "greedy", **languages).texts[0]
    both = signatures["serving_default"](texts=tf.constant(["the cat"] * 2), **several)
    swapped = {"source_language": "de_DE", "target_language": "en_XX"}
    alone = [
        translate(model, pair, ["the cat"], strategies["translate"], **each)
        for each in (languages, swapped)
    ]
    np.testing.assert_allclose(both["scores"], [each.scores[0] for each in alone], rtol=1e-4)
    compiled = signatures["translate_xla"](texts=tf.constant(["the cat"] * 2), **several)
    np.testing.assert_allclose(compiled["scores"], both["scores"], rtol=1e-4)
    tokens = signatures["tokenize"](
        texts=tf.constant(["cat"]), source_language=tf.constant(["en_XX"])
    )
    assert tokens["pieces"].numpy()[0, 0] == b"en_XX"
    scored = signatures["score"](
        source=tf.constant(["cat"] * 2), target=tf.constant(["dog"] * 2), **several
    )
    assert (scored["token_log_probabilities"].numpy()[:, 0] == 0).all()

    # A server of the export, asked in both ways. It computes the warm-up requests first.
    with running(Settings(tmp_path, "nllb", port=0, grpc_port=0)) as server:
        for target in (f"http://127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"):
            with Client(target, model="nllb") as client:
                texts, scores = zip(*client.translate(TEXTS, **languages), strict=True)
                assert list(texts) == expected.texts
                np.testing.assert_allclose(scores, expected.scores, rtol=1e-4)
                with pytest.raises(ServingError, match=r"a source_language.*received\] \[en\]"):
                    client.translate(["a"], "en", "de_DE")
        body = {"instances": [{"texts": "the cat", **languages}, {"texts": "the cat", **swapped}]}
        status, _, answer = fetch(server, "/v1/models/nllb:predict", body)
        rows = answer["predictions"]
        assert status == 200
        np.testing.assert_allclose([row["scores"] for row in rows], both["scores"], rtol=1e-4)

    with pytest.raises(ValueError, match=r"'en' of a source language\. Did you mean 'en_XX'\?"):
        translator(["a"], "en", "de_DE")
    with pytest.raises(
        ValueError, match=r"Expected a source language, such as 'en_XX', .* and a .*Received: none"
    ):
        translator(["a"])
    # The command takes them, too; its own message is that of the library.
    arguments = ["translate", "--model", str(tmp_path), "--target-language", "de_DE", "the cat"]
    assert cli.main(arguments) == 2
    assert "Expected a source language" in capsys.readouterr().err
    assert cli.main([*arguments, "--source-language", "en_XX"]) == 0
    assert capsys.readouterr().out == f"{alone_text}\n"
    readme = (tmp_path / "1" / "assets.extra" / "README.md").read_text("utf-8")
    assert '"source_language": "en_XX", "target_language": "de_DE"' in readme


def test_what_an_export_cannot_do_is_refused_before_it_is_made(model, tmp_path):
    own = tokenizer()
    task = TokenizerPair(own, own, TextFormat(text_prefix="men {target}: "))
    with pytest.raises(ValueError, match=r"looks its piece up.*with_languages\(target=\.\.\.\)"):
        export_saved_model(model, task, tmp_path)
    with pytest.raises(ValueError, match="no place for a source language: it has none"):
        export_saved_model(model, task, tmp_path, source_language="en_XX")
    assert not list(tmp_path.iterdir())
