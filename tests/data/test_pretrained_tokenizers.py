"""Tokenizers with the ids of checkpoints, compared with SentencePiece and with transformers."""

import dataclasses
import itertools
import pickle
import random
import re
import warnings

import pretrained_vocabularies as families
import pytest
import sentencepiece
from pretrained_vocabularies import FAMILIES

from keras_addnorm.data import (
    AddedToken,
    ByteLevelBPETokenizer,
    ByteTokenizer,
    PieceIds,
    SubwordSampling,
    TextFormat,
    Tokenizer,
    TokenizerPair,
    load_tokenizer,
    sentencepiece_pieces,
)
from keras_addnorm.data.tokenizer_documents import document

TEXTS = families.fuzz(300, seed=3)
SENTENCEPIECE = ["nllb", "mbart", "t5", "pegasus", "marian", "m2m"]


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in FAMILIES.items()}


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_ids_are_those_of_sentencepiece_in_the_order_of_the_list(tokenizers, name):
    tokenizer = tokenizers[name]
    expected = families.reference(tokenizer, TEXTS)
    assert tokenizer.encode_batch(TEXTS) == expected
    assert [tokenizer.encode(text) for text in TEXTS[:9]] == expected[:9]
    unknown = tokenizer.unknown_id
    # A vocabulary file lacks pieces: then two neighbours are two unknown ones.
    twice = any(
        row.count(unknown) > 1 and (unknown, unknown) in itertools.pairwise(row) for row in expected
    )
    assert twice == (name in ("marian", "m2m"))
    # And it names runs of characters that the model lacks.
    met = {tokenizer.pieces[token].text for row in expected for token in row}
    assert met.isdisjoint(families.UNKNOWN_TO_THE_MODEL) == (name not in ("marian", "m2m"))
    row = tokenizer.encode("the small dog")
    assert tokenizer.decode([*row, tokenizer.end_id, *row]) == tokenizer.decode(row)
    assert tokenizer.decode([tokenizer.pad_id, *row]) == tokenizer.decode(row)


SPECIAL = {
    "nllb": (1, 2, 2, 3),
    "mbart": (1, 2, 2, 3),
    "t5": (0, 0, 1, 2),
    "pegasus": (0, 0, 1, 105),
    "m2m": (1, 2, 2, 3),
    "byt5": (0, 0, 1, 2),
    "bart": (1, 2, 2, 3),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_ids(tokenizers, name):
    found = tokenizers[name]
    assert (found.pad_id, found.start_id, found.end_id, found.unknown_id) == SPECIAL[name]


def test_marian_has_padding_behind_the_others(tokenizers):
    found = tokenizers["marian"]
    last = found.vocabulary_size - 1
    assert (found.pad_id, found.start_id, found.end_id, found.unknown_id) == (last, last, 0, 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_and_loaded(tokenizers, name, tmp_path):
    tokenizer = tokenizers[name]
    loaded = load_tokenizer(tokenizer.save(tmp_path / "t.model"))
    assert loaded == tokenizer == pickle.loads(pickle.dumps(tokenizer))
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    pair = TokenizerPair.joint(tokenizer)
    assert TokenizerPair.load(pair.save(tmp_path / "pair")) == pair
    assert hash(loaded) == hash(tokenizer) and loaded != tokenizers["t5" if name != "t5" else "m2m"]


def test_bytes():
    tokenizer = ByteTokenizer()
    assert tokenizer.vocabulary_size == 3 + 256 + 125
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == [value + 3 for value in text.encode("utf-8")]
        assert tokenizer.decode([*ids, 1, 50]) == text.strip(" ")
    assert tokenizer.decode([3 + 0xC3, 3 + 65]) == "\ufffdA"
    with pytest.raises(ValueError, match="one way to write a text in bytes"):
        tokenizer.sample_batch(["a"], SubwordSampling(0.1), 1)
    with pytest.raises(ValueError, match="Expected different names"):
        ByteTokenizer(first=("<pad>", "<pad>", "</s>", "<unk>"))


def test_byte_level_bpe_spells_every_text(tokenizers):
    tokenizer = tokenizers["bart"]
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text.strip(" ")
    # The best rank first, the leftmost of equal ones; no merge over the limits of words.
    pieces = [tokenizer.pieces[token].text for token in tokenizer.encode("aba abab the  dog")]
    assert pieces == ["aba", "Ġ", "ab", "ab", "Ġthe", "Ġ", "Ġ", "dog"]
    assert tokenizer.encode("a" * 3000) == tokenizer.encode("a") * 3000


def test_transformers_has_the_same_ids(tokenizers, tmp_path):
    import transformers

    warnings.simplefilter("ignore")
    # U+2581 and names of special pieces are read there, and what U+200D joins is not normalised.
    odd = ("</s>", "\u2581", "\u200d")
    texts = [text for text in TEXTS if not any(mark in text for mark in odd)]
    # White space at the end, which SentencePiece leaves out, is a piece there, but for one kind.
    keep_space_at_the_end = ("nllb", "mbart", "pegasus")
    spaces = " \t\n\u2028\u3000"
    assert sum(text != text.rstrip(spaces) for text in texts) > 9
    files = {
        "nllb": ("NllbTokenizer", "sentencepiece.bpe.model"),
        "mbart": ("MBart50Tokenizer", "sentencepiece.bpe.model"),
        "t5": ("T5Tokenizer", "spiece.model"),
        "pegasus": ("PegasusTokenizer", "spiece.model"),
        "marian": ("MarianTokenizer", "source.spm", "target.spm", "vocab.json"),
        "m2m": ("M2M100Tokenizer", "sentencepiece.bpe.model", "vocab.json"),
        "bart": ("BartTokenizer", "vocab.json", "merges.txt"),
    }
    found = {"byt5": transformers.ByT5Tokenizer()}
    for name, (kind, *names) in files.items():
        folder = tmp_path / name
        folder.mkdir()
        families.write_files(tokenizers[name], folder, *names)
        found[name] = getattr(transformers, kind).from_pretrained(folder)
    for name, theirs in found.items():
        # A line break of old, which SentencePiece reads as text, is white space there.
        own = [text for text in texts if name != "t5" or "\x85" not in text]
        bare = [text.rstrip(spaces) for text in own] if name in keep_space_at_the_end else own
        expected = [theirs(text, add_special_tokens=False)["input_ids"] for text in bare]
        assert tokenizers[name].encode_batch(own) == expected, name
    # A task in words is a prefix of ids.
    for name, task in (("t5", "the old man: "), ("byt5", "the old man: ")):
        tokenizer = tokenizers[name]
        pair = TokenizerPair(tokenizer, tokenizer, TextFormat(text_prefix=task))
        row = pair.bound_format.source_row(tokenizer.encode("a small dog"))
        assert row == found[name](f"{task}a small dog")["input_ids"]
    names = found["t5"].get_vocab()
    assert tokenizers["t5"].ids.pieces == tuple(sorted(names, key=names.get))
    names = found["pegasus"].get_vocab()
    assert tokenizers["pegasus"].ids.pieces == tuple(sorted(names, key=names.get))


@pytest.mark.parametrize("name", ["nllb", "mbart", "marian"])
def test_sampled_pieces_have_the_ids_of_the_list(tokenizers, name):
    """BPE-dropout and subword regularisation, in the ids of a checkpoint."""
    tokenizer, texts = tokenizers[name], ["the small dog", "a cat", "zwei Katzen"] * 9
    rows = tokenizer.sample_batch(texts, SubwordSampling(0.4), 5)
    assert tokenizer.decode_batch(rows) == tokenizer.decode_batch(tokenizer.encode_batch(texts))
    assert rows != tokenizer.encode_batch(texts)
    assert rows == tokenizer.sample_batch(texts, SubwordSampling(0.4), 5)


def test_a_model_with_ids_of_its_own():
    own = Tokenizer(families.spm("unigram", tuple(families.T5.items())))
    assert (own.pad_id, own.start_id, own.end_id, own.unknown_id) == (0, 0, 1, 2)
    listed = families.t5()
    assert own.encode_batch(TEXTS) == listed.encode_batch(TEXTS)
    assert own != listed
    with pytest.raises(ValueError, match=r"other special ids.*PieceIds"):
        Tokenizer(families.spm("unigram", tuple(families.MARIAN.items())))


def test_symbols_with_the_mark_of_a_space():
    """mT5's sentinels: at the beginning of a text, behind any space, never inside a word."""
    model = families.with_sentinels_of_mt5()
    tokenizer = Tokenizer.from_sentencepiece(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = ["<extra_id_0>", "a <extra_id_1>", "a\t<extra_id_0>a  <extra_id_0>", "a<extra_id_0>"]
    assert tokenizer.encode_batch(texts) == processor.encode(texts)
    names = [tokenizer.pieces[token].text for token in tokenizer.encode(texts[2])]
    assert names.count("\u2581<extra_id_0>") == 2
    assert tokenizer.decode(tokenizer.encode(texts[1])) == texts[1]


def test_added_tokens():
    """Of two that begin at one place the longest, of those that overlap the first."""
    model = families.spm("unigram", tuple(families.T5.items()))
    names = ("{", "{{a", "a<", "<b>", "x\n", "\uff5b")
    added = (*map(AddedToken, names[:-1]), AddedToken("\uff5b", lstrip=True))
    ids = PieceIds.around(sentencepiece_pieces(model), last=names, start="<pad>", added=added)
    tokenizer = Tokenizer.from_sentencepiece(model, ids)

    def pieces(text):
        return [tokenizer.pieces[token].text for token in tokenizer.encode(text)]

    assert pieces("{{{a") == ["{", "{{a"] and pieces("{{b")[:2] == ["{", "{"]
    assert pieces("a<b>") == ["a<", *pieces("b>")] and pieces("x\n") == ["x\n"]
    # Each part is a text of its own, and white space before a token is kept or not.
    assert pieces("s {s") == [*pieces("s"), "\u2581", "{", *pieces("s")]
    assert pieces(" s \uff5bs") == [*pieces("s"), "\uff5b", *pieces("s")]
    assert pieces(" { {") == ["{", "\u2581", "{"]
    assert tokenizer.decode(tokenizer.encode("s {{as")) == "s {{a s"
    # No other pieces are sampled in their place, and none of a word holds one.
    rows = tokenizer.sample_batch(["the { dog"] * 40, SubwordSampling(0.3), 1)
    mark = tokenizer.ids_of_pieces["{"]
    assert all(row.count(mark) == 1 for row in rows) and len(set(map(tuple, rows))) > 2
    later = dataclasses.replace(ids, added=(AddedToken("{", normalized=True),))
    normalized = Tokenizer.from_sentencepiece(model, later)
    assert normalized.encode("a\uff5ba") == normalized.encode("a{a")
    changed = dataclasses.replace(ids, added=(AddedToken("\uff5b", normalized=True),))
    with pytest.raises(ValueError, match=r"normalised '{', which other texts become.*=False"):
        Tokenizer.from_sentencepiece(model, changed)
    for wrong, message in (((AddedToken("?!"),), r"\['\?!'\]"), ((AddedToken("</s>"),), "'</s>'")):
        with pytest.raises(ValueError, match=rf"names of pieces that a text may hold.*{message}"):
            dataclasses.replace(ids, added=wrong)
    with pytest.raises(TypeError, match="Expected a tuple of AddedToken"):
        dataclasses.replace(ids, added=("{",))


@pytest.mark.parametrize("kind", ["unigram", "bytes", "byte_level_bpe"])
def test_added_tokens_are_saved(kind, tmp_path):
    tokenizer = families.with_added_tokens(kind, False)
    assert load_tokenizer(tokenizer.save(tmp_path / "t.model")) == tokenizer
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    assert tokenizer != FAMILIES["byt5" if kind == "bytes" else "bart"]()
    texts = families.texts_with_added_tokens(50, seed=7)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    if kind != "unigram":
        kept = [
            text
            for text in texts
            if not {"<x>", "dog", "[R]"} & {*re.findall("<x>|dog|\\[R]", text)}
        ]
        assert tokenizer.decode_batch(tokenizer.encode_batch(kept)) == [t.strip(" ") for t in kept]


def test_thousands_of_added_tokens_are_looked_for_at_once():
    draw = random.Random(5)
    names = sorted({"".join(draw.choices("abcdef", k=7)) for _ in range(2000)})
    tokenizer = ByteTokenizer(last=names, added=tuple(map(AddedToken, names)))
    texts = ["-".join(draw.choices(names, k=9)) for _ in range(50)]
    expected = [
        [id_ for name in text.split("-") for id_ in (tokenizer.ids_of_pieces[name], 48)][:-1]
        for text in texts
    ]
    assert tokenizer.encode_batch(texts) == expected
    many = tuple("a" * size for size in range(1, 1000))
    with pytest.raises(ValueError, match="too many of them begin in the same way"):
        ByteTokenizer(last=many, added=tuple(map(AddedToken, many))).encode("a")


def test_a_table_may_be_larger_than_the_vocabulary():
    names = ("<pad>", "</s>", "<unk>", "a")
    ids = PieceIds(names, start="<pad>").filled_up_to(6)
    model = families.spm("unigram", tuple(families.T5.items()))
    tokenizer = Tokenizer.from_sentencepiece(model, ids)
    assert tokenizer.vocabulary_size == 6 and tokenizer.unused_ids == (4, 5)
    assert tokenizer.decode([3, 4, 5, 3]) == "aa"
    # What stands in the list without being a piece of the model is written.
    foreign = Tokenizer.from_sentencepiece(model, PieceIds((*names, "b!"), start="<pad>"))
    assert foreign.decode([3, 4]) == "ab!" and foreign.unused_ids == ()
    with pytest.raises(ValueError, match=r"has 4 pieces.*Received: 3"):
        PieceIds(names, start="<pad>").filled_up_to(3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pieces": ("a", "a")}, r"Received: \['a'\] several times"),
        ({"pieces": ("a", 5)}, r"a tuple of names. Received: tuple \('a', 5\)"),
        ({"pieces": ("<pad>", "<s>", "<unk>")}, r"Received: \{'end': '</s>'\}"),
        ({"pieces": ("<pad>", "<s>", "<unk>"), "end": "<pad>"}, "cannot be what ends"),
        ({"pieces": ("<pad>", "<s>", "<unk>", "</s>"), "controls": ("x",)}, r"Received: \['x'\]"),
    ],
    ids=range(5),
)
def test_impossible_ids_are_refused(values, message):
    with pytest.raises((TypeError, ValueError), match=message):
        PieceIds(**values)


def test_a_run_that_the_list_names():
    """Whole runs alone, as transformers looks them up; and never a control."""
    model = families.spm("unigram", tuple(families.T5.items()))
    names = ("<pad>", "</s>", "<unk>", "\u2581", "\u2581a", "日本", "語", "@", "a?")
    ids = PieceIds(names, start="<pad>", controls=("@",))
    tokenizer = Tokenizer.from_sentencepiece(model, ids)
    assert tokenizer.ids_of_runs == {"日本": 5, "語": 6}
    texts = ["日本", "日本語", "a日本 a語", "@", "a?"]
    rows = [[3, 5], [3, 2], [4, 5, 4, 6], [3, 2], [4, 2]]
    assert tokenizer.encode_batch(texts) == rows
    assert tokenizer.decode(rows[2]) == "a日本 a語"


def test_a_mapping_with_gaps():
    ids = PieceIds.of_mapping({"<pad>": 0, "</s>": 3, "<unk>": 2, "<s>": 5})
    assert [ids.id_of(name) for name in ("</s>", "<s>")] == [3, 5] and len(ids.pieces) == 6
    with pytest.raises(ValueError, match="an id of its own"):
        PieceIds.of_mapping({"a": 0, "b": 0})


def test_two_vocabularies_need_one_padding_and_one_end(tokenizers):
    with pytest.raises(ValueError, match=r"one id for padding.*\(1, 2\) and \(0, 1\)"):
        TokenizerPair(tokenizers["nllb"], tokenizers["t5"])


def test_damaged_files_are_refused(tokenizers, tmp_path):
    path = tokenizers["nllb"].save(tmp_path / "t.model")
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    with pytest.raises(ValueError, match=r"Cannot load the tokenizer .*t\.model.*damaged"):
        load_tokenizer(path)
    path.write_bytes(content.replace(b'"sentencepiece"', b'"words"'))
    with pytest.raises(
        ValueError, match=r"no such tokenizer.*sentencepiece, bytes, byte_level_bpe"
    ):
        load_tokenizer(path)
    ByteTokenizer().save(path)
    path.write_bytes(document("bytes", {"first": ["<pad>"]}))
    with pytest.raises(ValueError, match=r"has no field 'last', which BaseTokenizer\.save writes"):
        load_tokenizer(path)
    fields = {"first": ["<pad>", "</s>", "<unk>"], "last": "x"}
    path.write_bytes(document("bytes", fields))  # The letters of a text are no names.
    with pytest.raises(ValueError, match=r"Expected last as a tuple of names"):
        load_tokenizer(path)
    ByteTokenizer().save(path)
    with pytest.raises(ValueError, match=r"another kind.*Received: 'bytes'.*load_tokenizer"):
        Tokenizer.load(path)


def test_bad_byte_level_files():
    ids = {name: index for index, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", "a"])}
    with pytest.raises(ValueError, match=r"missing are .* 255 in all"):
        ByteLevelBPETokenizer.from_vocabulary(ids, [])
    with pytest.raises(ValueError, match=r"Expected lines of two.*Received: 'a b c'"):
        ByteLevelBPETokenizer.from_vocabulary(ids, ["a b c"])


def test_names_of_pieces():
    model = families.spm("unigram", tuple(families.T5.items()))
    assert sentencepiece_pieces(model)[:3] == ("<pad>", "</s>", "<unk>")
    with pytest.raises(FileNotFoundError, match="There is no tokenizer at"):
        sentencepiece_pieces("nowhere.model")


def test_ids_of_pieces_from_lists_and_files():
    pieces = ["</s>", "<unk>", "a", "<pad>", "<s>"]
    ids = PieceIds(pieces)
    assert ids == PieceIds(tuple(pieces)) and len(ids.filled_up_to(7).pieces) == 7
    for size in (4, "7", 7.0, None, 10**9):
        with pytest.raises(ValueError, match="at most 2,097,152"):
            ids.filled_up_to(size)
    for values in (None, [], {}, {**ids.to_dict(), "x": 1}):
        with pytest.raises(ValueError, match="not the ids of pieces"):
            PieceIds.from_dict(values)
    with pytest.raises(ValueError, match="has no piece") as error:
        ids.id_of("x" * 10**6)
    assert len(str(error.value)) < 2000
    for first in ("</s>", None, 5):
        with pytest.raises(TypeError, match="first as a tuple of names"):
            PieceIds.around(pieces, first=first)
