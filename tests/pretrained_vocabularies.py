"""Small tokenizers with the files and ids of well-known families of checkpoints."""

import functools
import io
import json
import random

import sentencepiece

from keras_addnorm.data import (
    AddedToken,
    ByteLevelBPETokenizer,
    ByteTokenizer,
    PieceIds,
    Tokenizer,
    byte_alphabet,
    sentencepiece_pieces,
)

CORPUS = [
    "the small dog runs over the green field",
    "a small cat sleeps under the old table",
    "zwei Hunde und drei Katzen spielen im Garten",
    "der alte Mann liest am Tisch eine Zeitung, \u00e9 \u00e0 \u00fc",
] * 3
XLMR = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
MARIAN = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
# A list of ids names pieces of the other side's model, too.
UNKNOWN_TO_THE_MODEL = ("日", "日本", "語", "🙂", "?", "?!", "0", "\u2047", "e日")
_CHARACTERS = [
    *map(chr, range(0x20, 0x7F)),
    *"äöüßéàñ日本語한국어ﬁ½…‚„“”’–—٣अก🙂👩ＡＢ①\u00ad\u200d\u2028\x85\u2581",
    *("  ", "\t", "\n", "\u3000"),
    *("the", "dog", " ", "Katzen ", "e\u0301", "u\u0308", "日日", "</s>", " small"),
]


def fuzz(count, seed):
    """Texts of many scripts, with white space of all kinds, also at their ends."""
    draw = random.Random(seed)
    return ["".join(draw.choices(_CHARACTERS, k=draw.randint(1, 20))) for _ in range(count)]


@functools.cache
def spm(kind, special):
    """A SentencePiece model with the normaliser of most checkpoints."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=file,
        model_type=kind,
        vocab_size=70,
        hard_vocab_limit=kind == "bpe",
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
        **dict(special),
    )
    return file.getvalue()


@functools.cache
def with_sentinels_of_mt5():
    """A model whose sentinels are pieces that begin with the mark of a space."""
    symbols = "\u2581<extra_id_1>,\u2581<extra_id_0>"
    return spm("unigram", (*T5.items(), ("user_defined_symbols", symbols)))


def vocabulary(model, first, left_out, seed):
    """A vocabulary in another order than the model's, without some of its pieces."""
    pieces = [piece for piece in sentencepiece_pieces(model) if piece not in (*first, "<s>")]
    random.Random(seed).shuffle(pieces)
    return {name: index for index, name in enumerate([*first, *pieces[left_out:]])}


def shifted(kind, last):
    """NLLB's and mBART's: the model's ids and one."""
    model = spm(kind, tuple(XLMR.items()))
    ids = PieceIds.around(
        sentencepiece_pieces(model),
        first=("<s>", "<pad>", "</s>", "<unk>"),
        last=last,
        start="</s>",
    )
    return Tokenizer.from_sentencepiece(model, ids)


def t5():
    """The model's own ids, with the sentinels behind them."""
    model = spm("unigram", tuple(T5.items()))
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(100))]
    ids = PieceIds.around(sentencepiece_pieces(model), last=sentinels, start="<pad>")
    return Tokenizer.from_sentencepiece(model, ids)


def pegasus():
    """The model's ids and 103."""
    model = spm("unigram", tuple(T5.items()))
    unknown = [f"<unk_{number}>" for number in range(2, 103)]
    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *unknown]
    ids = PieceIds.around(sentencepiece_pieces(model), first=first, start="<pad>")
    return Tokenizer.from_sentencepiece(model, ids)


def marian():
    """A vocabulary file of its own, whose last id is padding."""
    model = spm("unigram", tuple(MARIAN.items()))
    names = vocabulary(model, ("</s>", "<unk>"), 8, seed=1)
    names |= {name: len(names) + index for index, name in enumerate(UNKNOWN_TO_THE_MODEL)}
    names |= {">>de<<": len(names), "<pad>": len(names) + 1}
    ids = PieceIds.of_mapping(names, start="<pad>", controls=(">>de<<",))
    return Tokenizer.from_sentencepiece(model, ids)


def m2m(languages):
    """A vocabulary file of its own, with languages and made-up words behind it."""
    model = spm("bpe", tuple(XLMR.items()))
    names = vocabulary(model, ("<s>", "<pad>", "</s>", "<unk>"), 5, seed=2)
    names |= {name: len(names) + index for index, name in enumerate(UNKNOWN_TO_THE_MODEL)}
    names |= {name: len(names) + index for index, name in enumerate(languages)}
    ids = PieceIds.of_mapping(names, start="</s>", controls=tuple(languages))
    return Tokenizer.from_sentencepiece(model, ids.filled_up_to(len(names) + 8))


def bart():
    """Bytes, and merges of some of them."""
    merges = ["t h", "th e", "\u0120 the", "\u0120 s", "m a", "ma ll", "l l", "\u00c3 \u00a4"]
    merges += ["\u0120s mall", "d o", "do g", "\u0120 \u0120", "a b", "b a", "ab a", "a ba"]
    names = ["<s>", "<pad>", "</s>", "<unk>", *byte_alphabet()]
    names += [name for name in (line.replace(" ", "") for line in merges) if name not in names]
    names = list(dict.fromkeys([*names, "<mask>"]))
    ids = {name: index for index, name in enumerate(names)}
    return ByteLevelBPETokenizer.from_vocabulary(ids, merges, start="</s>", controls=("<mask>",))


FAMILIES = {
    "nllb": lambda: shifted("bpe", ("eng_Latn", "deu_Latn", "<mask>")),
    "mbart": lambda: shifted("unigram", ("en_XX", "de_DE", "<mask>")),
    "t5": t5,
    "pegasus": pegasus,
    "marian": marian,
    "m2m": lambda: m2m(("__en__", "__de__")),
    "byt5": ByteTokenizer,
    "bart": bart,
}


def added_tokens(normalized):
    """Tokens that overlap, begin in the same way, and leave white space out on either side."""
    return (
        *(AddedToken(text, normalized=normalized) for text in ("{", "ŋ", "日")),
        AddedToken("dog", lstrip=True, normalized=normalized),
        AddedToken("<x>", lstrip=True),
        *(AddedToken("<xy>"), AddedToken("<x>a"), AddedToken("[R]", rstrip=True)),
        AddedToken("\n"),
    )


def with_added_tokens(kind, normalized=True):
    """A vocabulary with them: "unigram", "bpe", "bytes" or "byte_level_bpe"."""
    tokens = added_tokens(normalized)
    names = tuple(token.text for token in tokens)
    if kind == "bytes":
        return ByteTokenizer(last=names[1:], added=tokens[1:])
    if kind == "byte_level_bpe":
        plain = bart()
        pieces = dict.fromkeys((*plain.ids.pieces, *names))
        ids = PieceIds(tuple(pieces), start="</s>", controls=("<mask>",), added=tokens)
        return ByteLevelBPETokenizer(ids, plain.merges)
    model = spm(kind, tuple(XLMR.items()))
    ids = PieceIds.around(
        sentencepiece_pieces(model),
        first=("<s>", "<pad>", "</s>", "<unk>"),
        last=("en_XX", *names),
        start="</s>",
        added=tokens,
    )
    return Tokenizer.from_sentencepiece(model, ids)


_WITH_TOKENS = [
    *("{", "<x>", "<xy>", "[R]", "ŋ", "dog", "<x>a", "日", " ", "  ", "\n", "\u3000", "the", "a"),
    *("s", "\uff5b", "ﬁ", "<", "x>", "\u00ad", "日本", "e\u0301", "</s>", ".", "Katzen", "\u2581"),
]


def texts_with_added_tokens(count, seed):
    """Texts with them at their ends, next to one another, inside words, with spaces around."""
    draw = random.Random(seed)
    found = ["".join(draw.choices(_WITH_TOKENS, k=draw.randint(1, 9))) for _ in range(count)]
    return [*found, "", " ", "{", " { ", "{{", "\n"]


def reference(tokenizer, texts):
    """What SentencePiece makes of texts, in the tokenizer's ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    ids = {name: index for index, name in enumerate(tokenizer.ids.pieces)}
    return [
        [ids.get(piece, tokenizer.unknown_id) for piece in row]
        for row in processor.encode(texts, out_type=str)
    ]


def write_files(tokenizer, folder, *names):
    """Writes the files that a checkpoint has beside its weights."""
    for name in names:
        if name.endswith(".json"):
            ids = tokenizer.ids_of_pieces
            kept = {name: ids[name] for name in ids if not name.startswith(("__", "<unused"))}
            (folder / name).write_text(json.dumps(kept), encoding="utf-8")
        elif name.endswith(".txt"):
            lines = ["#version: 0.2", *map(" ".join, tokenizer.merges)]
            (folder / name).write_text("\n".join(lines), encoding="utf-8")
        else:
            (folder / name).write_bytes(tokenizer.proto)
    return folder
