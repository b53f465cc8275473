"""Tokenizers with the ids of checkpoints split texts in a graph as in Python."""

import gc
import weakref

import pretrained_vocabularies as families
import pytest
import tensorflow as tf
from pretrained_vocabularies import FAMILIES

from keras_addnorm.data import PieceIds, Tokenizer, sentencepiece_pieces
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of

TEXTS = [
    *families.fuzz(300, seed=4),
    "",
    " ",
    "日",
    "abababab aaaa",
    "a\ud800b".replace("\ud800", "\ufffd"),
]


# Graphs with SentencePiece's whole table of characters take seconds to make.
CASES = [
    name if name in ("byt5", "bart") else pytest.param(name, marks=pytest.mark.slow)
    for name in FAMILIES
]


@pytest.mark.parametrize("name", CASES)
def test_ids_and_texts_are_those_of_python(name):
    tokenizer = FAMILIES[name]()
    graph = graph_tokenizer_of(tokenizer)
    rows = tokenizer.encode_batch(TEXTS)
    found = graph.tokenize(tf.constant(TEXTS))
    assert found.to_list() == rows
    if hasattr(tokenizer, "proto"):
        assert rows == families.reference(tokenizer, TEXTS)
    every = [*rows, list(range(tokenizer.vocabulary_size))[::-1]]
    texts = graph.detokenize(tf.ragged.constant(every, dtype=tf.int32).to_tensor(tokenizer.pad_id))
    assert [text.decode() for text in texts.numpy()] == tokenizer.decode_batch(every)


def test_bytes_of_unknown_characters_have_the_ids_of_the_list():
    """A model with byte fallback whose pieces stand in another order."""
    own = Tokenizer.train(
        families.CORPUS, vocabulary_size=320, byte_fallback=True, allow_smaller=True
    )
    names = families.vocabulary(own.proto, ("<pad>", "</s>", "<unk>"), 0, seed=3)
    ids = PieceIds.of_mapping(names, start="<pad>")
    tokenizer = Tokenizer.from_sentencepiece(own.proto, ids)
    graph = graph_tokenizer_of(tokenizer)
    rows = tokenizer.encode_batch(TEXTS)
    assert graph.tokenize(tf.constant(TEXTS)).to_list() == rows
    moved = [[names[own.pieces[token].text] for token in row] for row in own.encode_batch(TEXTS)]
    assert rows == moved and tokenizer.decode_batch(rows) == own.decode_batch(
        own.encode_batch(TEXTS)
    )
    with pytest.raises(ValueError, match=r"256 bytes has an id.*missing are \['<0x00>'"):
        Tokenizer.from_sentencepiece(own.proto, PieceIds(("<pad>", "</s>", "<unk>"), start="<pad>"))


def with_names_of_runs():
    """A small vocabulary, and a list of ids that names more."""
    own = Tokenizer.train(families.CORPUS, vocabulary_size=50)
    names = {name: index for index, name in enumerate(sentencepiece_pieces(own.proto))}
    names |= {name: len(names) + index for index, name in enumerate(families.UNKNOWN_TO_THE_MODEL)}
    return Tokenizer.from_sentencepiece(own.proto, PieceIds.of_mapping(names))


@pytest.mark.slow
def test_runs_that_a_list_names_are_those_of_python():
    """Runs at both ends of texts, next to one another, and none at all."""
    tokenizer = with_names_of_runs()
    texts = [*TEXTS, "日本", "日 日本", "?!?! ?!", "a日本", "the dog", "日本語 語"]
    rows = tokenizer.encode_batch(texts)
    assert graph_tokenizer_of(tokenizer).tokenize(tf.constant(texts)).to_list() == rows
    met = {tokenizer.pieces[token].text for row in rows for token in row}
    assert len(met.intersection(families.UNKNOWN_TO_THE_MODEL)) > 4
    assert tokenizer.unknown_id in {token for row in rows for token in row}


@pytest.mark.parametrize(
    ("kind", "normalized"),
    [
        *(("bytes", False), ("byte_level_bpe", False)),
        pytest.param("unigram", True, marks=pytest.mark.slow),
        *(pytest.param(kind, False, marks=pytest.mark.slow) for kind in ("unigram", "bpe")),
    ],
)
def test_added_tokens_are_those_of_python(kind, normalized):
    tokenizer = families.with_added_tokens(kind, normalized)
    texts = families.texts_with_added_tokens(400, seed=6)
    graph = graph_tokenizer_of(tokenizer)
    rows = tokenizer.encode_batch(texts)
    found = graph.tokenize(tf.constant(texts))
    assert found.to_list() == rows
    written = graph.detokenize(found.to_tensor(tokenizer.pad_id)).numpy()
    assert [text.decode() for text in written] == tokenizer.decode_batch(rows)
    met = {tokenizer.pieces[token].text for row in rows for token in row}
    assert met >= {token.text for token in tokenizer.added}
    assert graph.tokenize(tf.constant([], tf.string)).to_list() == []


@pytest.mark.slow
def test_symbols_with_the_mark_of_a_space_are_those_of_python():
    tokenizer = Tokenizer.from_sentencepiece(families.with_sentinels_of_mt5())
    texts = [
        "<extra_id_0> dog",
        "a <extra_id_0> dog <extra_id_1>",
        "a<extra_id_0>a",
        "a  <extra_id_0>a",
    ]
    rows = tokenizer.encode_batch(texts)
    assert graph_tokenizer_of(tokenizer).tokenize(tf.constant(texts)).to_list() == rows


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "make",
    [
        FAMILIES["byt5"],
        FAMILIES["bart"],
        lambda: Tokenizer.train(["a b", "b a"], vocabulary_size=8),
    ],
    ids=["bytes", "byte-level BPE", "SentencePiece"],
)
def test_an_object_of_one_expression_lives_as_long_as_its_method(make):
    """`tf.function` alone holds the object of a method weakly."""
    tokenizer = make()
    ids = tokenizer.encode("a b")
    texts, rows = tf.constant(["a b"]), tf.constant([ids], tf.int32)
    assert graph_tokenizer_of(tokenizer).tokenize(texts).to_list() == [ids]
    assert graph_tokenizer_of(tokenizer).tokenize_bare(texts).to_list() == [ids]
    found = graph_tokenizer_of(tokenizer).detokenize(ids=rows).numpy()[0].decode()
    assert found == tokenizer.decode(ids)
    pieces = graph_tokenizer_of(tokenizer).pieces(rows).numpy()[0]
    assert [piece.decode() for piece in pieces] == [tokenizer.pieces[i].text for i in ids]
    tokenize = graph_tokenizer_of(tokenizer).tokenize
    normalize = graph_tokenizer_of(tokenizer).normalize
    gc.collect()
    assert tokenize(texts).to_list() == [ids]
    assert normalize(texts).numpy() == [b"a b"]


def test_a_tokenizer_that_was_traced_is_freed():
    graph = graph_tokenizer_of(FAMILIES["byt5"]())
    graph.tokenize(tf.constant(["a"]))
    found = weakref.ref(graph)
    del graph
    gc.collect()
    assert found() is None


@pytest.mark.slow
def test_graphs_are_saved_with_their_tables(tmp_path):
    module = tf.Module()
    tokenizers = [*(FAMILIES[name]() for name in ("byt5", "bart")), with_names_of_runs()]
    tokenizers += [families.with_added_tokens(kind, False) for kind in ("bytes", "byte_level_bpe")]
    module.graphs = list(map(graph_tokenizer_of, tokenizers))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def serve(texts):
        rows = [graph.tokenize(texts) for graph in module.graphs]
        return {str(index): ids.to_tensor(-1) for index, ids in enumerate(rows)}

    tf.saved_model.save(module, str(tmp_path), signatures=serve)
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    found = loaded(texts=tf.constant(TEXTS))
    for index, tokenizer in enumerate(tokenizers):
        rows = [[token for token in row if token >= 0] for row in found[str(index)].numpy()]
        assert rows == tokenizer.encode_batch(TEXTS)
