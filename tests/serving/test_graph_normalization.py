"""The graph normalises and splits as Python does: each rule, other models, symbols, bytes."""

import functools
import io
import re
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf
from covering import covering
from hypothesis import given, settings
from hypothesis import strategies as st
from long_texts import long_texts
from vocabularies import largest_vocabulary

from keras_addnorm.data import Tokenizer
from keras_addnorm.data.normalization import RULES
from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.serving import GraphTokenizer
from keras_addnorm.serving.graph_normalizer import GraphNormalizer
from keras_addnorm.serving.optimize_graph import optimize_graph
from keras_addnorm.serving.single_threaded_loops import SINGLE_THREADED

CORPUS = [
    "Emma was born in Italy, 20 m² or ½ Liter… 5 ™",
    "你好，世界！（是吗？） é ö ấ ﬁ ｄｏｇ",
    "می\u200cخواهم क्ष ක්\u200dර한국어 각 ガ ｶﾞ",
    "EMMA Was Born 👩\u200d💻 ❤\ufe0f",
] * 3

# Marks in every order, Hangul in parts, pairs that join, what is left out, what folds.
CHOSEN = (
    "ae1 \u0301\u0323\u0302\u0307\u0327\u0345\u05b0\u05b4\u093c\u094d\u0338\u3099\u0653"
    "\u1100\u1161\u11a8\uac00\uac01\u0915\u0928\u09c7\u09be\u0cc6\u0cc2\u0cd5\u1e9b\u017f\u212b"
    "\u2126ﬁ½²…™\ufdfa\uff76\uff9e，\u00ad\u200b\u200c\u200d\ufeff\ufe0f\0\x7f\u3000\u2581\u0958"
    "\u0344\u0340\U0001d15e\U0001d165\u2adc\ufb2c\U0010fffd\U0010fffc\uffff\ufffe\u0f73\u0f71"
    "\u2800\ufffc\U0001d159"
)


def tokenized(graph_tokenizer, texts):
    return graph_tokenizer.tokenize(tf.constant(texts, tf.string, shape=[len(texts)])).to_list()


def both(tokenizer):
    return tokenizer, GraphTokenizer(tokenizer)


def assert_equal_in_both(pair, texts):
    tokenizer, graph_tokenizer = pair
    rows = tokenizer.encode_batch(texts)
    assert tokenized(graph_tokenizer, texts) == rows
    decoded = graph_tokenizer.detokenize(tf.ragged.constant(rows, tf.int32).to_tensor())
    assert [text.decode() for text in decoded.numpy()] == tokenizer.decode_batch(rows)


def trained(**options):
    return largest_vocabulary(CORPUS, **options)


@pytest.fixture(scope="module")
def of_each_rule():
    tokenizers = {name: trained(normalization=name) for name in RULES}
    stored = ModelProto.FromString(tokenizers["nfkc"].proto)
    stored.normalizer_spec.name = "identity"
    tokenizers["without a rule"] = Tokenizer(stored.SerializeToString())
    tokenizers["bytes"] = trained(byte_fallback=True)
    # Without most of its characters: they fold, or are left out.
    tokenizers["small"] = largest_vocabulary(["e 1 fi dog, aé"] * 3)
    return {name: both(tokenizer) for name, tokenizer in tokenizers.items()}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(st.sampled_from(CHOSEN), max_size=12), min_size=1, max_size=8))
def test_f4_f5_each_rule_is_the_same_in_a_graph(of_each_rule, texts):
    for pair in of_each_rule.values():
        assert_equal_in_both(pair, texts)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_f4_f5_any_unicode_is_the_same_in_a_graph(of_each_rule, texts):
    for pair in of_each_rule.values():
        assert_equal_in_both(pair, texts)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("text", CORPUS[:4], ids=["Latin", "Chinese", "joiners", "emoji"])
def test_f4_f5_whole_texts(of_each_rule, text):
    for pair in of_each_rule.values():
        assert_equal_in_both(pair, [text, unicodedata.normalize("NFD", text), "", text * 3])


MARKS = [c for c in map(chr, range(0x110000)) if unicodedata.combining(c)]
CLASSES = {unicodedata.combining(mark) for mark in MARKS}
# Texts of many characters that may be joined, and the longest run that has to be looked at.
MANY = {
    "one mark": ("a" + "\u0301" * 3000, 5),
    "marks and no letter": ("\u0301" * 3000, 4),
    "marks after the second text's beginning": ("\u0301\u0323" * 2000, 8),
    "two classes by turns": ("e" + "\u0301\u0323" * 2000 + "e\u0301", 9),
    "what is joined comes late": ("\u03b1" + "\u0308" * 9 + "\u0345" * 2000 + "\u0313", 9),
    "three in one letter": ("\u03c9\u0345\u0342\u0314" * 700 + "\u0345" * 900, 7),
    "all marks": ("o" + "".join(MARKS) * 2, 1 + 4 * len(CLASSES)),
    "vowels of Hangul": ("\u1161" * 3000, 0),
    "syllables of Hangul": ("\u1100\u1161\u11a8" * 900 + "\uac00\u11a8\u11a8" * 30, 3),
    "vowel signs": ("\u09c7" + "\u09be" * 3000, 2),
    "parts of one sign": ("\u0cc6\u0cc2\u0cd5" * 900 + "\u0cd5\u0cc2" * 20, 3),
    "signs with a mark": ("\u0dd9\u0dcf\u0dca" * 900 + "\u0dca" * 900 + "\u0dcf", 6),
    "signs behind a mark": ("\u0cc6\u0301\u0cc2" * 900, 2),
}


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        pytest.param(*row, id=name, marks=pytest.mark.slow if name == "all marks" else ())
        for name, row in MANY.items()
    ],
)
def test_many_characters_that_may_be_joined_are_a_few_steps(of_each_rule, text, longest):
    """Both forms are Python's; and a run takes a step a character, however long the text is."""
    for name in ("nfc", "nfkc"):
        tokenizer, graph_tokenizer = of_each_rule[name]
        composer, seen = graph_tokenizer._normalizer._composer, []
        original = composer._runs

        def runs(*arguments, original=original, seen=seen):
            seen.append(original(*arguments))
            return seen[-1]

        composer._runs = runs
        try:
            texts = tf.constant(["a\u0301", text, "x"])
            found = graph_tokenizer._normalizer(texts, graph_tokenizer.table)
        finally:
            del composer._runs
        expected = [tokenizer.normalizer(one) for one in ("a\u0301", text, "x")]
        assert [one.decode() for one in found.numpy()] == expected
        ((_, sizes),) = seen
        assert max(sizes.numpy()) <= max(longest, 2)  # The first text has a run of two.


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                "ae\u03c9\u0301\u0323\u0345\u0308\u0314\u0338\u1100\u1161\u11a8\u0cc6\u0cc2"
            ),
            st.integers(1, 7),
        ),
        max_size=9,
    )
)
def test_runs_of_equal_marks_are_the_same_in_a_graph(of_each_rule, runs):
    text = "".join(character * count for character, count in runs)
    for name in ("nfc", "nfkc"):
        assert_equal_in_both(of_each_rule[name], [text])


def test_every_character_alone_is_the_same_in_a_graph(of_each_rule):
    """Those that some rule changes, one a text."""
    changed = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.decomposition(character)
        or unicodedata.combining(character)
        or unicodedata.category(character) in ("Cf", "Cc")
    ]
    texts = ["a" + character for character in changed]
    for name in ("nfc", "nfkc", "none"):
        tokenizer, graph_tokenizer = of_each_rule[name]
        assert tokenized(graph_tokenizer, texts) == tokenizer.encode_batch(texts)


def test_plain_text_takes_the_short_way():
    """Of Latin, Chinese, Hindi and Russian text nothing but one pattern is asked."""
    texts = ["Emma wäre im Park – “gut”.", "你好世界", "यह एक छोटा वाक्य है", "Привет"]
    for rule in ("nfc", "nfkc"):
        normalizer = GraphNormalizer(largest_vocabulary(texts, normalization=rule).normalizer)
        pattern = re.sub(
            r"\\x\{(\w+)\}",
            lambda code: re.escape(chr(int(code[1], 16))),
            normalizer._unchanged,
        )
        for text in texts:
            assert re.fullmatch(pattern, text), (rule, text)
        for text in ("e\u0301", "\u00ad", "a\0"):
            assert not re.fullmatch(pattern, text), (rule, text)


def foreign(**options):
    """A model that SentencePiece trained for somebody else."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=out,
        **{
            "vocab_size": 150,
            "normalization_rule_name": "identity",
            "hard_vocab_limit": False,
            "pad_id": 0,
            "bos_id": 1,
            "eos_id": 2,
            "unk_id": 3,
            "minloglevel": 2,
            **options,
        },
    )
    return Tokenizer(out.getvalue())


FOREIGN = {
    "identity": {"normalization_rule_name": "identity"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "nfkc_cf": {"normalization_rule_name": "nfkc_cf"},
    "nmt_nfkc": {"normalization_rule_name": "nmt_nfkc"},
    "nmt_nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "no dummy prefix": {"add_dummy_prefix": False},
    "suffix": {"treat_whitespace_as_suffix": True},
    "suffix, no dummy": {"treat_whitespace_as_suffix": True, "add_dummy_prefix": False},
    "joined words": {"split_by_whitespace": False, "max_sentencepiece_length": 12},
    "joined words, no dummy": {"split_by_whitespace": False, "add_dummy_prefix": False},
    "extra spaces": {"remove_extra_whitespaces": False},
    "digits": {"split_digits": True},
    "bytes": {"byte_fallback": True, "vocab_size": 420},
    "symbols": {"user_defined_symbols": ["<2de>", "Emma", "½"]},
}
FOREIGN_TEXTS = [
    *CORPUS[:4],
    "Emma  was born",
    "EMMA Was Born",
    "Emma was born in Italy, Emma was born in Italy",
    "a\u200bb\u00ad c\u3000d",
    "😀 xyz 日本",
    "<2de>Emma ½ <2de>",
    "  ",
    "",
]


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize(("name", "kind"), covering(list(FOREIGN), ["unigram", "bpe"], strength=1))
def test_f7_other_models_are_read_as_sentencepiece_reads_them(name, kind):
    tokenizer = foreign(model_type=kind, **FOREIGN[name])
    assert_equal_in_both(both(tokenizer), [*FOREIGN_TEXTS, *long_texts()])
    # White space and invisible characters aside, which are treated as in all vocabularies here.
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    for text in FOREIGN_TEXTS:
        if "\u200b" not in text and "  " not in text and text:
            assert tokenizer.encode(text) == theirs.encode(text), text


# U+2581 stands for a space in pieces; in a text it is a letter, and no space is added or taken
# away for it but at the end.
MARKED_TEXTS = [
    *("Emma ▁ was", "▁", "▁ ▁", "▁Emma", "Emma▁", "Emma ▁ ▁", "▁ Emma", "Emma▁was", "Emma▁▁was"),
    *("½▁½", " ▁Italy ▁ m²▁", "日▁本", "▁▁ ▁zz▁ ▁▁é", "x" * 1009 + "▁ ▁"),
]


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize(
    ("table", "kind", "options"),
    covering(
        ["nfkc", "nfkc_cf", "nmt_nfkc", "identity"],
        ["unigram", "bpe"],
        [
            {},
            {"add_dummy_prefix": False},
            {"split_by_whitespace": False, "max_sentencepiece_length": 12},
            {"treat_whitespace_as_suffix": True},
            {"remove_extra_whitespaces": False},
            {"byte_fallback": True, "vocab_size": 420},
        ],
    ),
)
def test_marks_of_spaces_in_texts_are_read_as_sentencepiece_reads_them(table, kind, options):
    tokenizer = foreign(model_type=kind, normalization_rule_name=table, **options)
    texts = MARKED_TEXTS
    if "treat_whitespace_as_suffix" in options:
        # There SentencePiece makes one mark of a text of nothing but marks; here it is empty.
        texts = [text for text in texts if text.strip(" ▁")]
    if "remove_extra_whitespaces" in options:
        # The spaces that it keeps then become one here.
        keeps = table != "nmt_nfkc"  # Its table makes a space of each mark.
        texts = [text for text in texts if keeps and text == text.strip(" ")] or ["Emma"]
    assert_equal_in_both(both(tokenizer), texts)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    for text in texts[:-1]:  # Words as long as the last one's are split in parts here.
        assert tokenizer.encode(text) == theirs.encode(text), text


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.sampled_from(CHOSEN + "EÄ㍿ｱ"), max_size=10), min_size=1, max_size=3))
def test_f7_tables_of_characters_are_the_same_in_a_graph(charsmaps, texts):
    for pair in charsmaps:
        assert_equal_in_both(pair, texts)


@pytest.fixture(scope="module")
def charsmaps():
    return [both(foreign(normalization_rule_name=name)) for name in ("nmt_nfkc", "nfkc_cf")]


def test_f7_what_is_not_supported_is_refused():
    model = ModelProto.FromString(trained().proto)
    model.normalizer_spec.escape_whitespaces = False
    with pytest.raises(ValueError, match="has escape_whitespaces=false, which is not supported"):
        Tokenizer(model.SerializeToString())
    model.normalizer_spec.escape_whitespaces = True
    model.pieces[10].type = model.SentencePiece.UNUSED
    with pytest.raises(ValueError, match="pieces of type unused, which the graph"):
        GraphTokenizer(Tokenizer(model.SerializeToString()))


SYMBOLS = ["<2de>", "{name}", "http://", "\n", "½", "{n"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_m4_symbols_are_the_same_in_a_graph(kind):
    pair = both(trained(kind=kind, user_defined_symbols=SYMBOLS))
    texts = ["<2de> Emma {name}\n½", "{name{n}½½", "<2de", "\U0010fffd<2de>\U0010fffc", "", "a\nb"]
    assert_equal_in_both(pair, texts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 270), max_size=8))
def test_f7_bytes_that_are_no_utf8_are_the_same_in_a_graph(of_each_rule, values):
    tokenizer, graph_tokenizer = of_each_rule["bytes"]
    ids = [4 + value for value in values]
    assert tokenizer.byte_ids == tuple(range(4, 260))
    found = graph_tokenizer.detokenize(tf.constant([ids], tf.int32, [1, len(ids)]))
    assert found.numpy()[0].decode() == tokenizer.decode(ids)


def test_the_loops_of_normalisation_are_not_in_the_way():
    """The way of plain text has the loop of pieces alone."""
    graph_tokenizer = GraphTokenizer(trained())
    # The method itself, not what calls it as one operation.
    method = functools.partial(GraphTokenizer.tokenize.__wrapped__, graph_tokenizer)
    traced = tf.function(method, [tf.TensorSpec([None], tf.string)], autograph=False)
    graph = traced.get_concrete_function().graph
    loops = [op for op in graph.get_operations() if op.type.endswith("While")]
    assert len(loops) == 2 and not any(SINGLE_THREADED in loop.name for loop in loops)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nfc", "nmt_nfkc", "symbols and bytes"])
def test_f7_a_saved_graph_reads_as_python_does(name, tmp_path):
    """With the passes that every export goes through, and in core operations only."""
    tokenizer = {
        "nfc": trained,
        "nmt_nfkc": lambda: foreign(normalization_rule_name="nmt_nfkc"),
        "symbols and bytes": lambda: trained(
            kind="bpe", user_defined_symbols=["<2de>"], byte_fallback=True
        ),
    }[name]()
    module = tf.Module()
    module.graph_tokenizer = GraphTokenizer(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def serve(texts):
        rows = module.graph_tokenizer.tokenize(texts)
        return {
            "ids": rows.to_tensor(),
            "texts": module.graph_tokenizer.detokenize(rows.to_tensor()),
            "normalized": module.graph_tokenizer.normalize(texts),
        }

    tf.saved_model.save(module, str(tmp_path / "1"), signatures=serve)
    optimize_graph(tmp_path / "1")
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    texts = [*CORPUS[:4], "<2de> e\u0301\u00ad 😀\u200b", "", "plain text"]
    for batch in (texts, texts[-2:]):
        out = loaded.signatures["serving_default"](texts=tf.constant(batch))
        rows = tokenizer.encode_batch(batch)
        assert [[int(i) for i in row if i] for row in out["ids"].numpy()] == rows
        assert [text.decode() for text in out["texts"].numpy()] == tokenizer.decode_batch(rows)
        marks = {ord(mark): symbol for symbol, mark in tokenizer.normalizer.marks.items()}
        expected = [tokenizer.normalizer(text).translate(marks) for text in batch]
        assert [text.decode() for text in out["normalized"].numpy()] == expected
