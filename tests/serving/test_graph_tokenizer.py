import functools
import math

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_addnorm.data import Tokenizer
from keras_addnorm.serving import GraphTokenizer
from keras_addnorm.serving.optimize_graph import function_definitions

HOSTILE = [
    "",
    "   ",
    "\n\t ",
    "😀 a😀😀b 日本 語",
    "שלום עולם",
    "ba\ndi\tku\r\nler",
    "▁▁ba ▁",
    "ba\u2028di\u3000ku\u00a0ler\x1cmon",
    "aaaaaaaaaaaaaaaaaa zzzz zzz",
    "\0ba\0",
    "?????!!!!! ....",
    "\ufffd\ufffd",
    "<s> </s> <pad> <unk>",
    "mon" * 333,
    "Schävei un " * 900,
    "a" * 10_000,
    "ö" * 10_000,
    "日" * 10_000,
]


@pytest.fixture(scope="module")
def graph_tokenizer(tokenizer):
    return GraphTokenizer(tokenizer)


def tokenized(graph_tokenizer, texts):
    return graph_tokenizer.tokenize(tf.constant(texts, tf.string, shape=[len(texts)])).to_list()


def test_equals_the_tokenizer_on_whole_batches(tokenizer, graph_tokenizer, texts, new_texts):
    for batch in (texts, new_texts):
        assert tokenized(graph_tokenizer, batch) == tokenizer.encode_batch(batch)


@pytest.mark.fast_cases(8)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_equals_the_tokenizer_on_hostile_text(tokenizer, graph_tokenizer, text):
    assert tokenized(graph_tokenizer, ["ba", text, "di"]) == tokenizer.encode_batch(
        ["ba", text, "di"]
    )


@pytest.mark.parametrize("raw", [b"\xff\xfe ba\xc3", b"ba\xe2\x82 di", b"\xf0\x9f\x98"])
def test_invalid_utf8_reads_as_the_replacement_character(tokenizer, graph_tokenizer, raw):
    assert tokenized(graph_tokenizer, [raw]) == [tokenizer.encode(raw.decode("utf-8", "replace"))]


def test_a_word_of_100_000_characters_fits_into_memory(tokenizer, graph_tokenizer):
    word = "".join(np.random.default_rng(1).choice(list("abdikulermonz日"), 100_000))
    (ids,) = tokenized(graph_tokenizer, [word])
    assert tokenizer.decode(ids) == "".join(
        "⁇" if c == "日" else c for i, c in enumerate(word) if c != "日" or word[i - 1] != "日"
    )


def test_an_empty_batch(graph_tokenizer):
    ids = graph_tokenizer.tokenize(tf.zeros([0], tf.string))
    assert ids.to_list() == [] and ids.dtype == tf.int32
    assert graph_tokenizer.detokenize(tf.zeros([0, 3], tf.int32)).shape == (0,)
    assert graph_tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b"", b""]


def test_detokenize_equals_decode(tokenizer, graph_tokenizer):
    ids = np.random.default_rng(1).integers(0, tokenizer.vocabulary_size, (101, 13), np.int32)
    ids[:31, 5:9] = 2
    texts = graph_tokenizer.detokenize(ids).numpy()
    assert [text.decode() for text in texts] == tokenizer.decode_batch(ids)


def test_detokenize_stops_at_the_end(tokenizer, graph_tokenizer):
    ba, di = tokenizer.encode("ba"), tokenizer.encode("di")
    row = [1, *ba, 0, *di, 2, *ba]
    assert graph_tokenizer.detokenize(tf.constant([row])).numpy()[0] == b"ba di"


CHARACTERS = "aabbc ▁d\t\u00e9日"
_CORPUS = ["aab abba ab a", "caab bbb aaaa", "d aabb cc abc", "abab baba é aé"] * 3


def _graph_tokenizers():
    """Tiny vocabularies with many ties and overlaps, some without any multi-letter piece."""
    out = []
    for kind, sizes in (("unigram", (14,)), ("bpe", (13, 31))):
        for size in sizes:
            tokenizer = Tokenizer.train(_CORPUS, vocabulary_size=size, kind=kind)
            out.append((tokenizer, GraphTokenizer(tokenizer)))
    return out


@pytest.fixture(scope="module")
def tiny_tokenizers():
    return _graph_tokenizers()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(CHARACTERS, max_size=40), max_size=5))
@example(["aaaaaaaa", "abababab", "aabaabaab"])
def test_property_equals_the_tokenizer(tiny_tokenizers, texts):
    for tokenizer, graph_tokenizer in tiny_tokenizers:
        assert tokenized(graph_tokenizer, texts) == tokenizer.encode_batch(texts)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_property_any_unicode(tiny_tokenizers, text):
    for tokenizer, graph_tokenizer in tiny_tokenizers[::2]:
        assert tokenized(graph_tokenizer, [text]) == [tokenizer.encode(text)]


_LONG_WORDS = [letter * 4 + "abcdefghijklmnopqrs"[:n] for letter in "uvw" for n in (1, 4, 18)]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    ("longest", "kind"),
    [(1, "bpe"), (2, "unigram"), (4, "unigram"), (5, "bpe"), (8, "bpe"), (23, "unigram")],
)
def test_pieces_of_any_length(kind, longest, tmp_path):
    tokenizer = _trained(
        [f"{word} " * 9 for word in _LONG_WORDS],
        tmp_path,
        model_type=kind,
        vocab_size=27 + 20 * longest,
        hard_vocab_limit=False,
        max_sentencepiece_length=longest,
    )
    assert max(len(piece.text) for piece in tokenizer.pieces if piece.type == "normal") == longest
    texts = [" ".join(_LONG_WORDS), "".join(_LONG_WORDS), *(word[3:] for word in _LONG_WORDS), "x"]
    assert tokenized(GraphTokenizer(tokenizer), texts) == tokenizer.encode_batch(texts)


def _trained(texts, folder, **settings):
    """A vocabulary that `Tokenizer.train` does not make."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(folder / "mine"),
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
        **settings,
    )
    return Tokenizer.load(folder / "mine.model")


@pytest.mark.parametrize("kind, loops", [("unigram", 2), ("bpe", 1)])
def test_few_operations(texts, kind, loops):
    """A look-up for each doubling of the longest piece, and few operations for each character."""
    tokenizer = Tokenizer.train(texts, vocabulary_size=300, kind=kind)
    graph_tokenizer = GraphTokenizer(tokenizer)
    # The method itself, not what calls it as one operation.
    method = functools.partial(GraphTokenizer.tokenize.__wrapped__, graph_tokenizer)
    traced = tf.function(method, [tf.TensorSpec([None], tf.string)], autograph=False)
    graph = traced.get_concrete_function().graph
    operations = [operation.type for operation in graph.get_operations()]
    longest = max(len(piece.text) for piece in tokenizer.pieces if piece.type == "normal")
    assert operations.count("LookupTableFindV2") == 1 + math.ceil(math.log2(longest))
    assert sum(name.endswith("While") for name in operations) == loops
    bodies = [
        [node for node in function.node_def if node.op not in ("Const", "Identity")]
        for function in function_definitions(graph.as_graph_def())
        if "body" in function.signature.name and "compose" not in function.signature.name
    ]
    assert max(map(len, bodies)) <= {"unigram": 10, "bpe": 64}[kind]


def test_full_width_letters_are_read(tokenizer, graph_tokenizer):
    assert tokenizer.encode("ｂａ") == tokenizer.encode("ba")
    assert tokenized(graph_tokenizer, ["ｂａ"]) == [tokenizer.encode("ba")]


def test_it_is_saved_with_its_tables_and_core_operations_only(
    tokenizer, graph_tokenizer, tmp_path, texts
):
    module = tf.Module()
    module.graph_tokenizer = graph_tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def serve(texts):
        ids = graph_tokenizer.tokenize(texts).to_tensor()
        return {"ids": ids, "texts": graph_tokenizer.detokenize(ids)}

    tf.saved_model.save(module, str(tmp_path), signatures=serve)
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    out = loaded(texts=tf.constant(texts))
    assert [[int(i) for i in row if i] for row in out["ids"].numpy()] == tokenizer.encode_batch(
        texts
    )
    assert [text.decode() for text in out["texts"].numpy()] == texts
