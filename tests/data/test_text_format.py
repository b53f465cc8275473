"""What stands around the tokens of texts: formats, their files, and the batches made with them."""

import numpy as np
import pretrained_vocabularies as families
import pytest

from keras_addnorm.data import (
    ByteTokenizer,
    TextFormat,
    Tokenizer,
    TokenizerPair,
    make_training_batches,
)
from keras_addnorm.data.batching import Batching
from keras_addnorm.data.epochs import Epochs
from keras_addnorm.data.text_format import pieces_of_languages

PAIRS = [("the small dog", "zwei Hunde"), ("a cat", "der Mann"), ("old table", "eine Zeitung")]
NLLB = TextFormat(source_prefix=("{source}",), target_prefix=("{target}",))


@pytest.fixture(scope="module")
def nllb():
    tokenizer = families.FAMILIES["nllb"]()
    return TokenizerPair(tokenizer, tokenizer, NLLB)


@pytest.fixture(scope="module")
def marian():
    tokenizer = families.FAMILIES["marian"]()
    leading = TextFormat(source_prefix=(">>{target}<<",), leading_piece=(">>", "<<"))
    return TokenizerPair(tokenizer, tokenizer, leading)


def rows_of(pair, pairs=PAIRS):
    """The rows of the only batch, without padding."""
    (batch,) = make_training_batches(pairs, pair, tokens_per_batch=256, bucket_lengths=(32,))
    inputs, labels = batch
    pad = pair.target.pad_id
    assert {array.shape for array in (*inputs.values(), labels)} == {(8, 32)}
    sides = inputs["source"], inputs["target"], labels
    start = pair.target.start_id
    ends = [np.where(side != pad, np.arange(1, 33), 0).max(1) for side in sides]
    # Where the start is padding, it stands first all the same.
    assert (inputs["target"][: len(pairs), 0] == start).all()
    return [
        [side[row, : end[row]].tolist() for row in range(len(pairs))]
        for side, end in zip(sides, ends, strict=True)
    ]


def test_batches_have_the_languages_of_the_format(nllb):
    pair = nllb.with_languages("eng_Latn", "deu_Latn")
    tokenizer = pair.source
    english, german = (tokenizer.ids_of_pieces[name] for name in ("eng_Latn", "deu_Latn"))
    source, target, labels = rows_of(pair)
    for row, (said, meant) in enumerate(PAIRS):
        said, meant = tokenizer.encode(said), tokenizer.encode(meant)
        assert source[row] == [english, *said, 2]
        assert target[row] == [2, german, *meant]
        assert labels[row] == [german, *meant, 2]


def test_batches_with_a_start_that_is_padding(marian):
    """The text's own leading piece stands before it, the format's before the others."""
    pair = marian.with_languages(target="de")
    tokenizer = pair.source
    pairs = [(">>de<< the dog", "zwei"), ("a cat", "Mann"), (">>xx<<old", "Hund"), (">>de<<", "x")]
    code = tokenizer.ids_of_pieces[">>de<<"]
    source, target, labels = rows_of(pair, pairs)
    assert source == [
        [code, *tokenizer.encode("the dog"), 0],
        [code, *tokenizer.encode("a cat"), 0],
        [1, *tokenizer.encode("old"), 0],
        [],  # Nothing stands behind its piece: the pair is left out.
    ]
    assert labels == [*([*tokenizer.encode(meant), 0] for _, meant in pairs[:3]), []]
    assert [row[1:] for row in target] == [row[:-1] for row in labels]


def test_a_task_in_words():
    tokenizer = ByteTokenizer()
    pair = TokenizerPair(
        tokenizer, tokenizer, TextFormat(text_prefix="say {target}: ", source_suffix=())
    )
    pair = pair.with_languages(target="de")
    source, _, _ = rows_of(pair)
    assert source[0] == tokenizer.encode("say de: the small dog")


def test_the_digest_of_a_run_changes_with_the_format_only(nllb):
    own = Tokenizer.train(families.CORPUS, vocabulary_size=40)
    batching = Batching(bucket_lengths=(40,))
    formats = TextFormat(), TextFormat(source_suffix=()), TextFormat(text_prefix="a ")
    plain, *others = (
        Epochs.from_texts(PAIRS, TokenizerPair(own, own, text_format), batching).plan
        for text_format in formats
    )
    assert plain == Epochs.from_texts(PAIRS, own, batching).plan
    assert len({plain, *others}) == 3


def test_languages_are_asked_for_and_looked_up(nllb, marian):
    both = r"the source and the target language.*'eng_Latn', 'deu_Latn'.*source_lang.*target_lang"
    with pytest.raises(ValueError, match=both):
        _ = nllb.bound_format
    with pytest.raises(ValueError, match="needs the target language"):
        _ = nllb.with_languages("eng_Latn").bound_format
    with pytest.raises(ValueError, match=r"no piece 'deu'.*such as .*'eng_Latn'"):
        _ = nllb.with_languages("eng_Latn", "deu").bound_format
    with pytest.raises(
        ValueError,
        match=r"no place for a source language.*Expected a target language",
    ):
        marian.with_languages("a")
    # A text says it itself.
    assert marian.bound_format.source_prefix == ()
    with pytest.raises(ValueError, match=r"Did you mean 'deu_Latn'\? .*'eng_Latn', 'deu_Latn'\.$"):
        nllb.with_languages("eng_Latn", "deu")
    words = TextFormat(text_prefix="say it in {target}: ")
    with pytest.raises(
        ValueError,
        match=r"its name as it stands in 'say it in \{target\}: ', such as 'English', as",
    ):
        _ = TokenizerPair(nllb.source, nllb.source, words).bound_format


def test_user_defined_symbols_name_languages_and_special_pieces_do_not(nllb):
    own = Tokenizer.train(
        families.CORPUS, vocabulary_size=42, user_defined_symbols=("<2de>", "<2en>")
    )
    pair = TokenizerPair(own, own, TextFormat(source_prefix=("<2{target}>",)))
    assert pair.languages("target") == ["de", "en"] and pair.languages("source") == []
    (prefix,) = pair.with_languages(target="en").bound_format.source_prefix
    assert own.pieces[prefix].text == "<2en>"
    assert nllb.languages("source") == ["eng_Latn", "deu_Latn"]
    for name in ("</s>", "<mask>", "<s>", "the"):
        with pytest.raises(ValueError, match=r"no piece '.*' of a target language"):
            nllb.with_languages(target=name)
    # Rows that fill a table up are no languages either.
    ids = nllb.source.ids.filled_up_to(nllb.source.vocabulary_size + 2)
    larger = Tokenizer.from_sentencepiece(nllb.source.proto, ids)
    brackets = TextFormat(target_prefix=("<{target}>",))
    assert TokenizerPair(larger, larger, brackets).languages("target") == ["s", "mask"]


@pytest.mark.parametrize("name", ["t5", "byt5"])
def test_words_before_a_text_are_those_of_both_together(name):
    tokenizer = families.FAMILIES[name]()
    pair = TokenizerPair(tokenizer, tokenizer, TextFormat(text_prefix="the old man: "))
    words = list(pair.bound_format.text_prefix)
    texts = [text for text in families.fuzz(200, seed=5) if tokenizer.encode(text)]
    if name == "t5":  # What is composed with a character before it is none of the text's own.
        texts = [text for text in texts if text[0] not in "\u0301\u0308"]
    together = tokenizer.encode_batch(f"the old man: {text}" for text in texts)
    assert together == [words + row for row in tokenizer.encode_batch(texts)]


def test_words_that_a_text_changes_are_refused():
    """A space belongs to the word behind it, where a vocabulary is one of bytes in words."""
    tokenizer = families.FAMILIES["bart"]()
    pair = TokenizerPair(tokenizer, tokenizer, TextFormat(text_prefix="say: "))
    with pytest.raises(ValueError, match=r"another way before a text.*Received: 'say: '"):
        _ = pair.bound_format
    pair = TokenizerPair(tokenizer, tokenizer, TextFormat(text_prefix="say:"))
    assert pair.bound_format.text_prefix == tuple(tokenizer.encode("say:"))


def test_a_leading_piece_has_a_beginning_and_an_end(marian):
    same = TextFormat(leading_piece=("__", "__"))
    found = TokenizerPair(marian.source, marian.source, same).bound_format
    assert found.take_leading("__de__ a") == ((1,), " a")
    assert found.take_leading("__de a") == ((), "__de a")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source_prefix": "en"}, "tuple of the names of pieces. Received: str 'en'"),
        ({"source_prefix": ("{language}",)}, r"no others. Received: '\{language\}'"),
        ({"text_prefix": "say {: "}, "no others. Received"),
        ({"target_prefix": ("{end}",)}, "in source_suffix only"),
        ({"text_prefix": None}, "Expected text_prefix as a string. Received: NoneType None"),
        ({"leading_piece": ">>"}, "how a piece begins and how it ends.*Received: str '>>'"),
        ({"leading_piece": (">>", "")}, "how a piece begins and how it ends"),
        ({"leading_piece": (">>",)}, "how a piece begins and how it ends"),
    ],
    ids=range(8),
)
def test_impossible_formats_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        TextFormat(**values)


def test_saved_with_the_tokenizers(nllb, marian, tmp_path):
    for pair in (nllb, marian, nllb.with_languages("eng_Latn", "deu_Latn")):
        loaded = TokenizerPair.load(pair.save(tmp_path))
        assert loaded == pair and loaded.text_format == pair.text_format
    TokenizerPair.joint(nllb.source).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.model"]
    (tmp_path / "text_format.json").write_text('{"prefix": []}')
    with pytest.raises(ValueError, match=r"text_format\.json'.*no such field.*\['prefix'\]"):
        TokenizerPair.load(tmp_path)


def test_a_format_has_to_leave_room(nllb):
    bound = nllb.with_languages("eng_Latn", "deu_Latn").bound_format
    assert bound.longest_source(9) == 7
    with pytest.raises(ValueError, match=r"puts 2 tokens around a source.*max_length=2"):
        bound.longest_source(2)


def test_a_piece_of_any_length_is_not_repeated(nllb):
    long = "x" * 10**6
    with pytest.raises(ValueError, match="has no piece") as error:
        _ = TokenizerPair(nllb.source, nllb.source, TextFormat(source_prefix=(long,))).bound_format
    assert len(str(error.value)) < 2100
    with pytest.raises(ValueError, match="has no piece") as error:
        nllb.with_languages(target=long)
    assert len(str(error.value)) < 2100


def test_pieces_of_two_languages_have_not_any_number_of_names():
    names = {side: [f"{side}{number}" for number in range(3)] for side in ("source", "target")}
    assert len(list(pieces_of_languages(["{source}-{target}", "{source}"], names))) == 12
    names = dict.fromkeys(names, ["x"] * 1000)
    with pytest.raises(ValueError, match=r"'\{source\}\{target\}' of the text format.*1,000,000"):
        list(pieces_of_languages(["{source}{target}"], names))


def test_a_name_of_a_piece_is_not_made_any_number_of_times_as_long():
    """Of 150 KB, names of 600 MB."""
    names = {"source": [f"{number:060d}" for number in range(1000)]}
    with pytest.raises(ValueError, match=r"too many names.*1,000 names of 6\d\d,\d+,\d+ bytes"):
        next(pieces_of_languages(["{source}" * 10_000], names))


@pytest.mark.parametrize("name", [5, "{target}", "{end}", "{"])
def test_a_language_is_a_name_without_a_placeholder(name):
    """The other language or the end stood in its place, and nobody was told."""
    some = TextFormat(source_suffix=("{source}",), target_prefix=("{target}",))
    with pytest.raises(ValueError, match="names no language"):
        some.with_languages(source=name, target="x")


def test_pieces_of_a_format_may_come_one_by_one():
    pieces = ("{source}", "x")
    assert TextFormat(source_prefix=iter(pieces)).source_prefix == pieces


@pytest.mark.parametrize("piece", ["{source!r}", "{source:>9}"])
def test_a_placeholder_that_nothing_fills_in(piece):
    with pytest.raises(ValueError, match="knows the placeholders"):
        TextFormat(source_prefix=(piece,))


@pytest.mark.parametrize("values", [None, [], {1: 2, "b": 1}])
def test_what_describes_no_format(values):
    with pytest.raises(ValueError, match=r"text format"):
        TextFormat.from_dict(values)
