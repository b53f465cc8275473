"""Language tokens, tasks and leading pieces: Python and an export agree."""

from types import SimpleNamespace

import keras
import numpy as np
import pretrained_vocabularies as families
import pytest
import tensorflow as tf

from keras_addnorm.data import PieceIds, TextFormat, Tokenizer, TokenizerPair, sentencepiece_pieces
from keras_addnorm.decoding import Sentences, translate
from keras_addnorm.decoding import splitting as ways_of_splitting
from keras_addnorm.decoding.text_segments import make_segments
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving import load_translator
from keras_addnorm.serving.export import export_saved_model
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


@pytest.mark.fast_cases(2)
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


@pytest.mark.parametrize("name", ["byt5", "bart"])
@pytest.mark.parametrize("splitting", ["sentences", "long_texts"])
def test_texts_of_bytes_are_divided_the_same_in_a_graph(name, splitting):
    """White space at the ends of a sentence is left out; long ones are divided at spaces."""
    own = families.FAMILIES[name]()
    texts = ["The dog.  A cat ", *TEXTS, "the  dog. \n a cat ", "日本語" * 9, "  "]
    encoder = TextEncoder(TokenizerPair.joint(own), 20, 12, ways_of_splitting.get(splitting))
    _, rows = encoder.segments(tf.constant(texts), {})
    found = [[token for token in row if token != own.pad_id] for row in rows.numpy().tolist()]
    around = TokenizerPair.joint(own).bound_format
    expected = make_segments(texts, own, splitting, SimpleNamespace(max_length=20), around).rows
    assert found == expected
    assert max(map(len, found)) == 20
    if splitting == "sentences":
        assert found[:2] == [[*own.encode(text), own.end_id] for text in ("The dog.", "A cat")]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    sizes = {"source_vocabulary_size": 40, "target_vocabulary_size": 40, "max_length": 12}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 8, "num_heads": 1}
    special = {"pad_id": 1, "start_id": 2, "end_id": 2, "intermediate_dim": 8}
    return Seq2SeqTransformer(Seq2SeqConfig.preset("tiny", **sizes, **layers, **special))


@pytest.mark.slow
def test_an_export_takes_languages_as_inputs(model, tmp_path):
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

    with pytest.raises(ValueError, match="with source_language='en', target_language='de_DE'"):
        translator(["a"], "en", "de_DE")
    with pytest.raises(
        ValueError, match=r"Expected \['source_language', 'target_language'\]; received \[\]"
    ):
        translator(["a"])


def test_what_an_export_cannot_do_is_refused_before_it_is_made(model, tmp_path):
    own = tokenizer()
    task = TokenizerPair(own, own, TextFormat(text_prefix="men {target}: "))
    with pytest.raises(ValueError, match=r"looks its piece up.*with_languages\(target=\.\.\.\)"):
        export_saved_model(model, task, tmp_path)
    with pytest.raises(ValueError, match="no place for a source language"):
        export_saved_model(model, task, tmp_path, source_language="en_XX")
    assert not list(tmp_path.iterdir())
