import json
import math
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_addnorm.data import SubwordSampling, Tokenizer, TokenizerPair

ENGLISH = [
    "the small dog runs over the green field",
    "a small cat sleeps under the old table",
    "two dogs and three cats play in the garden",
    "the old man reads a newspaper at the table",
    "children run through the garden and laugh",
]
GERMAN = [
    "der kleine Hund läuft über das grüne Feld",
    "eine kleine Katze schläft unter dem alten Tisch",
    "zwei Hunde und drei Katzen spielen im Garten",
    "der alte Mann liest am Tisch eine Zeitung",
    "Kinder laufen durch den Garten und lachen",
]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return Tokenizer.train(ENGLISH + GERMAN, vocabulary_size=73, kind=request.param)


def test_special_ids_and_size(tokenizer):
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == (
        0,
        1,
        2,
        3,
    )
    assert tokenizer.vocabulary_size == len(tokenizer.pieces) == 73
    assert [piece.type for piece in tokenizer.pieces[:5]] == ["control"] * 3 + [
        "unknown",
        "normal",
    ]


def test_encode_is_sentencepiece_without_specials(tokenizer):
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    for text in ENGLISH + GERMAN:
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text)
        assert min(ids) > 3
        assert "".join(tokenizer.pieces[i].text for i in ids) == "▁" + text.replace(" ", "▁")
        assert tokenizer.decode(ids) == text


def test_batches_equal_single_texts(tokenizer):
    texts = [*ENGLISH, "", "  ", "läuft"]
    rows = tokenizer.encode_batch(texts)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(rows) == [*ENGLISH, "", "", "läuft"]
    assert tokenizer.encode_batch([]) == tokenizer.decode_batch([]) == []


def test_sampled_pieces_spell_the_text_and_follow_from_the_seed(tokenizer):
    texts = ENGLISH * 40
    first, again, other = (
        tokenizer.sample_batch(texts, SubwordSampling(0.3), seed) for seed in (5, 5, 6)
    )
    assert first == again != other
    assert tokenizer.decode_batch(first) == tokenizer.decode_batch(other) == texts
    # The same sentence is split in several ways, one of them often that of `encode`.
    assert len({tuple(row) for row in first[:: len(ENGLISH)]}) > 5
    assert tokenizer.encode_batch(texts) not in (first, other)


def test_sampled_pieces_are_the_same_in_another_process(tokenizer, tmp_path):
    """For runs that go on, and for processes that train together."""
    program = (
        "import json, sys\n"
        "from keras_addnorm.data import SubwordSampling, Tokenizer\n"
        "path, texts = sys.argv[1:]\n"
        "tokenizer = Tokenizer.load(path)\n"
        "print(tokenizer.sample_batch(json.loads(texts), SubwordSampling(0.3), 5))\n"
    )
    texts = ENGLISH * 10
    path = tokenizer.save(tmp_path / "one.model")
    arguments = [sys.executable, "-c", program, path, json.dumps(texts)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == tokenizer.sample_batch(texts, SubwordSampling(0.3), 5)


def test_bpe_dropout_leaves_out_each_merge_with_its_probability():
    """One merge, ▁ + a: split n(1 - α) times out of n, within four standard deviations."""
    tokenizer = Tokenizer.train(["a a a b c"] * 9, vocabulary_size=9, kind="bpe")
    assert len(tokenizer.encode("a")) == 1
    draws, alpha = 20_000, 0.15
    rows = tokenizer.sample_batch(["a"] * draws, SubwordSampling(alpha), 3)
    split = sum(len(row) == 2 for row in rows) / draws
    assert abs(split - alpha) < 4 * (alpha * (1 - alpha) / draws) ** 0.5


def test_unigram_pieces_are_drawn_in_proportion_to_the_power_of_their_probability():
    tokenizer = Tokenizer.train(["ab abc bc c a"] * 9, vocabulary_size=10)
    score = {piece.text: piece.score for piece in tokenizer.pieces}
    pieces = [piece.text for piece in tokenizer.pieces]

    def splits(text):
        if not text:
            yield ()
        for end in range(1, len(text) + 1):
            if text[:end] in score:
                yield from ((text[:end], *rest) for rest in splits(text[end:]))

    draws, alpha = 20_000, 0.4
    weights = {split: math.exp(alpha * sum(map(score.get, split))) for split in splits("\u2581ab")}
    assert len(weights) >= 3
    rows = tokenizer.sample_batch(["ab"] * draws, SubwordSampling(alpha), 3)
    counts = Counter(tuple(pieces[token] for token in row) for row in rows)
    assert counts.keys() <= weights.keys()
    for split, weight in weights.items():
        share = weight / sum(weights.values())
        error = 4 * (share * (1 - share) / draws) ** 0.5
        assert abs(counts[split] / draws - share) < error, (split, share)


@pytest.mark.parametrize("alpha", [0, -0.1, float("inf"), float("nan")])
def test_impossible_samplings_are_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha above 0 and finite. Received"):
        SubwordSampling(alpha)


def test_sample_batch_says_what_it_needs(tokenizer):
    with pytest.raises(TypeError, match=r"several texts. Received: one"):
        tokenizer.sample_batch("a b", SubwordSampling(0.1), 1)
    # Python's generator would take it for 5.
    with pytest.raises(ValueError, match=r"seed of at least 0. Received: -5"):
        tokenizer.sample_batch(["a b"], SubwordSampling(0.1), -5)
    if tokenizer.kind == "bpe":
        with pytest.raises(ValueError, match=r"below 1. Received: SubwordSampling\(alpha=1.0\)"):
            tokenizer.sample_batch(["a b"], SubwordSampling(1.0), 1)


def test_decode_stops_at_the_end_and_leaves_specials_out(tokenizer):
    dog, cat = tokenizer.encode("dog"), tokenizer.encode("cat")
    assert tokenizer.decode([1, *dog, 0, *cat, 2, *dog]) == "dog cat"
    rows = np.array([[1, dog[0], 2], [2, dog[0], 0]])
    assert tokenizer.decode_batch(rows) == [tokenizer.decode([dog[0]]), ""]


def test_unknown_characters_become_one_unknown(tokenizer):
    ids = tokenizer.encode("dog 日本語")
    assert ids[-1] == 3 and ids.count(3) == 1
    assert tokenizer.decode(ids) == "dog ⁇"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("ﬁne ｄｏｇ", "fine dog"),
        ("cafe\u0301", "café"),
        (" \t a\n\nb\u00a0\u2028c\u3000", "a b c"),
        ("▁a▁▁b", "a b"),
        ("a\ud800\0b", "ab"),
        ("\n\t ", ""),
        ("", ""),
    ],
)
def test_normalize(tokenizer, text, normal):
    assert Tokenizer.normalize(text) == normal
    assert tokenizer.encode(text) == tokenizer.encode(normal)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_encoded_and_decoded(text):
    tokenizer = _small_tokenizer()
    ids = tokenizer.encode(text)
    assert all(3 <= i < tokenizer.vocabulary_size for i in ids)
    assert bool(ids) == bool(tokenizer.normalizer(text))
    if 3 not in ids:
        assert tokenizer.decode(ids) == tokenizer.normalizer(text)


def _small_tokenizer(cache=[]):  # noqa: B006
    if not cache:
        cache.append(Tokenizer.train(ENGLISH, vocabulary_size=41))
    return cache[0]


def test_a_long_line(tokenizer):
    line = "the dog " * 1250
    assert tokenizer.encode(line) == tokenizer.encode("the dog") * 1250
    assert len(tokenizer.encode("d" * 10_000)) > 1000


def test_training_is_deterministic_and_reads_datasets(tokenizer):
    again = Tokenizer.train(
        tf.data.Dataset.from_tensor_slices(ENGLISH + GERMAN),
        vocabulary_size=73,
        kind=tokenizer.kind,
    )
    assert again == tokenizer and hash(again) == hash(tokenizer)
    assert again.proto == tokenizer.proto


def test_unigram_scores_add_without_rounding():
    scores = [piece.score for piece in _small_tokenizer().pieces]
    assert all((256 * score).is_integer() for score in scores)
    assert min(scores) < 0


def test_character_coverage_leaves_rare_characters_out():
    texts = ["abab abab"] * 200 + ["q"]
    assert 3 not in Tokenizer.train(texts, vocabulary_size=9).encode("q")
    assert 3 in Tokenizer.train(texts, vocabulary_size=8, character_coverage=0.99).encode("q")


@pytest.mark.parametrize("name", [b"\xff", b"", b"a\0"])
def test_a_file_with_a_piece_that_is_none_is_named(tokenizer, tmp_path, name):
    """No UTF-8, nothing, with a zero byte."""
    path = tmp_path / "damaged.model"
    # A piece is the first field of the model, its text the first of the piece.
    piece = b"\x0a" + bytes([len(name)]) + name
    path.write_bytes(tokenizer.proto + b"\x0a" + bytes([len(piece)]) + piece)
    with pytest.raises(ValueError, match=r"Cannot load the tokenizer '.*damaged\.model'. These"):
        Tokenizer.load(path)


def test_save_and_load(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path / "new" / "t.model")
    assert Tokenizer.load(path) == tokenizer
    assert [file.name for file in path.parent.iterdir()] == ["t.model"]
    tokenizer.save(path)
    assert Tokenizer.load(path).encode("dog") == tokenizer.encode("dog")
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    assert repr(tokenizer) == f"Tokenizer(kind='{tokenizer.kind}', vocabulary_size=73)"


def test_a_failed_save_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tokenizer.save(tmp_path / "t.model")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        _small_tokenizer().save(path)
    assert Tokenizer.load(path) == tokenizer
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_too_large_says_the_largest_possible(kind):
    with pytest.raises(ValueError, match=r"too large for this text.*at most") as error:
        Tokenizer.train(ENGLISH, vocabulary_size=5000, kind=kind)
    largest = int(str(error.value).split("vocabulary_size=")[2].split()[0])
    assert Tokenizer.train(ENGLISH, vocabulary_size=largest, kind=kind).vocabulary_size == largest


def test_too_small_says_the_smallest_possible():
    with pytest.raises(ValueError, match="too small for this text") as error:
        Tokenizer.train(["abc"] * 9, vocabulary_size=5)
    assert "are 8." in str(error.value)


@pytest.mark.parametrize("texts", [[], [""], ["  ", "\n"], iter(())])
def test_an_empty_corpus_is_an_error(texts):
    with pytest.raises(ValueError, match="the texts are empty"):
        Tokenizer.train(texts, vocabulary_size=30)


def test_bad_arguments(tokenizer):
    with pytest.raises(ValueError, match=r"Expected one of 'unigram', 'bpe'. Received: 'word'"):
        Tokenizer.train(ENGLISH, kind="word")
    with pytest.raises(TypeError, match=r"Received: one str\. Put it in a list"):
        Tokenizer.train("one text")
    with pytest.raises(TypeError, match="int 7 at position 1"):
        Tokenizer.train(["a", 7])
    for wrong in (None, 5, b"dog"):
        with pytest.raises(TypeError, match=r"Expected a text of type str. Received"):
            tokenizer.encode(wrong)
    with pytest.raises(TypeError, match="Put it in a list"):
        tokenizer.encode_batch("dog")
    with pytest.raises(TypeError, match="NoneType None"):
        tokenizer.encode_batch(["dog", None])
    for wrong in (73, -1):
        with pytest.raises(ValueError, match=f"token id {wrong}. Expected ids from 0 to 72"):
            tokenizer.decode([wrong])
    with pytest.raises(TypeError, match="serialised SentencePiece model"):
        Tokenizer("t.model")


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no tokenizer at"):
        Tokenizer.load(tmp_path / "missing.model")
    path = tmp_path / "t.model"
    for content in (b"", b"junk", _small_tokenizer().proto[:-7]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"Cannot load the tokenizer .*t\.model.*empty or dama"
        ):
            Tokenizer.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 33}, "other special ids"),
        ({"vocab_size": 24, "model_type": "char"}, "model_type 4"),
    ],
)
def test_m5_foreign_models_are_refused(tmp_path, options, message):
    prefix = str(tmp_path / "foreign")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_prefix=prefix, minloglevel=2, **options
    )
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(prefix + ".model")


def test_a_joint_pair(tmp_path):
    pair = TokenizerPair.train(PAIRS, vocabulary_size=73)
    assert pair.is_joint and pair.source is pair.target
    assert pair == TokenizerPair.joint(
        Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=73)
    )
    assert TokenizerPair.of(pair) is pair and TokenizerPair.of(pair.source) == pair
    assert TokenizerPair.load(pair.save(tmp_path)) == pair
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.model"]


def test_a_pair_of_two_vocabularies(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices((ENGLISH, GERMAN))
    pair = TokenizerPair.train(dataset, vocabulary_size=53, kind="bpe", joint=False)
    assert not pair.is_joint
    assert pair.source == Tokenizer.train(ENGLISH, vocabulary_size=53, kind="bpe")
    assert pair.target == Tokenizer.train(GERMAN, vocabulary_size=53, kind="bpe")
    TokenizerPair.joint(pair.source).save(tmp_path)
    assert TokenizerPair.load(pair.save(tmp_path)) == pair
    assert sorted(file.name for file in tmp_path.iterdir()) == ["source.model", "target.model"]


def test_bad_pairs(tmp_path):
    with pytest.raises(FileNotFoundError, match="There are no tokenizers in"):
        TokenizerPair.load(tmp_path)
    with pytest.raises(TypeError, match=r"Expected a Tokenizer as target. Received: str 'x'"):
        TokenizerPair(_small_tokenizer(), "x")
    with pytest.raises(TypeError, match="Expected a TokenizerPair, or one Tokenizer"):
        TokenizerPair.of("x")
    with pytest.raises(TypeError, match=r"Expected pairs \(source text, target text\).*position 1"):
        TokenizerPair.train([("a", "b"), "cd"])
    with pytest.raises(TypeError, match="int 7 at position 0"):
        TokenizerPair.train([("a", 7)])


@pytest.mark.parametrize(
    ("guess", "answer"),
    [
        (lambda pair: pair(["a"]), "TokenizerPair cannot be called.*tokenizers.source.encode"),
        (lambda pair: pair.encode("a"), "no 'encode'.*tokenizers.source.encode"),
        (lambda pair: pair.tokenize("a"), "no 'tokenize'.*tokenizers.source.encode"),
        (lambda pair: pair.decode([5]), "no 'decode'.*tokenizers.target.decode"),
        (lambda pair: pair.batch_decode([[5]]), "no 'batch_decode'.*tokenizers.target.decode"),
        (lambda pair: pair.source("a"), "Tokenizer cannot be called.*tokenizer.encode"),
        (lambda pair: pair.source.tokenize("a"), "no 'tokenize'.*tokenizer.encode"),
        (lambda pair: pair.source.batch_encode_plus(["a"]), "tokenizer.encode_batch"),
        (lambda pair: pair.source.batch_decode([[5]]), "no 'batch_decode'.*tokenizer.decode_batch"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(guess, answer):
    pair = TokenizerPair.joint(_small_tokenizer())
    with pytest.raises(AttributeError, match=answer):
        guess(pair)
    assert not hasattr(pair, "encode")


def test_several_texts_are_not_one():
    with pytest.raises(TypeError, match=r"Received: list \['a'\]. tokenizer.encode_batch\(texts\)"):
        _small_tokenizer().encode(["a"])
