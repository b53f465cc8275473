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
    digests = {
        Epochs.from_texts(PAIRS, TokenizerPair(own, own, text_format), batching).plan
        for text_format in (TextFormat(), TextFormat(source_suffix=()), TextFormat(text_prefix="a"))
    }
    assert len(digests) == 3
    # As it was before there were formats.
    (plain,) = {Epochs.from_texts(PAIRS, own, batching).plan} & digests
    assert plain


def test_languages_are_asked_for_and_looked_up(nllb, marian):
    with pytest.raises(ValueError, match=r"needs the source language.*'eng_Latn', 'deu_Latn'"):
        _ = nllb.bound_format
    with pytest.raises(ValueError, match="needs the target language"):
        _ = nllb.with_languages("eng_Latn").bound_format
    with pytest.raises(ValueError, match=r"no piece 'deu'.*such as .*'eng_Latn'"):
        _ = nllb.with_languages("eng_Latn", "deu").bound_format
    with pytest.raises(
        ValueError, match=r"no place for a source language.*received source_language='a'"
    ):
        marian.with_languages("a")
    # A text says it itself.
    assert marian.bound_format.source_prefix == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source_prefix": "en"}, "tuple of the names of pieces; received str 'en'"),
        ({"source_prefix": ("{language}",)}, r"no others; received '\{language\}'"),
        ({"text_prefix": "say {: "}, "no others; received"),
        ({"target_prefix": ("{end}",)}, "in source_suffix only"),
    ],
    ids=range(4),
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
