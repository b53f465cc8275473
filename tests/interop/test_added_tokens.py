"""Tokens that were added to a tokenizer, and special tokens that a text may hold."""

import functools
import json
import random
import types
import warnings

import pytest

from keras_addnorm.data import AddedToken, TextFormat, TokenizerPair
from keras_addnorm.interop import families, load_pretrained, make_random_folder, save_pretrained
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.random_folder import _RECIPES
from keras_addnorm.serving import export_saved_model, load_translator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

# Said by each tokenizer of Marian there.
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses:UserWarning")

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CLASSES = {
    "marian": "MarianTokenizer",
    "t5": "T5Tokenizer",
    "byt5": "ByT5Tokenizer",
    "m2m_100": "M2M100Tokenizer",
    "nllb": "NllbTokenizer",
    "mbart": "MBart50Tokenizer",
    "bart": "BartTokenizer",
    "pegasus": "PegasusTokenizer",
}
# At the ends, next to one another, overlapping, inside words, with all kinds of white space.
BITS = [
    *("{", "<sp>", "<spx>", "[R]", "[L]", "ŋ", "dog", "日", " ", "  ", "\n", "\u3000", "\uff5b"),
    *("the", "a", "s", "<", "x>", "日本", "é", ".", "Baum", "A child", " sleeps in", "<mask>"),
    *("<extra_id_0>", "<extra_id_17>", "<mask_1>", "<mask_2>"),
]
DRAW = random.Random(3)
TEXTS = ["".join(DRAW.choices(BITS, k=DRAW.randint(1, 9))) for _ in range(400)]
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}


@functools.cache
def made(name):
    return _RECIPES[name].text_files()


def text_files(name, folder):
    """Writes the tokenizer's files of a family; returns the number of its ids."""
    files, size = made(name)
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return size


def change(path, without=(), **changes):
    values = json.loads(path.read_text()) if path.is_file() else {}
    kept = {key: value for key, value in values.items() if key not in without}
    path.write_text(json.dumps({**kept, **changes}))


def read(name, folder, size):
    """The tokenizer of the source, without a model."""
    config = types.SimpleNamespace(
        source_vocabulary_size=size, target_vocabulary_size=size, start_id=2, end_id=2
    )
    family = families.get(_RECIPES[name].family)
    return family.tokenizers(Checkpoint(folder, {}, {}), config).source


def add(theirs):
    """Adds tokens of all kinds."""
    flags = transformers.AddedToken
    theirs.add_tokens(["{", "ŋ", flags("dog"), flags("[L]", lstrip=True)])
    theirs.add_tokens([flags("[R]", rstrip=True), flags("日", normalized=False)])
    theirs.add_tokens(["<sp>", flags("<spx>", lstrip=True)], special_tokens=True)
    return theirs


def with_added(name, folder):
    """Files with added tokens, as transformers writes them beside the others."""
    text_files(name, folder)
    theirs = add(getattr(transformers, CLASSES[name]).from_pretrained(folder))
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", ["bart", "t5", "marian", "nllb", "m2m_100", "mbart", "pegasus"])
def test_ids_and_texts_are_those_of_transformers(name, tmp_path):
    theirs = with_added(name, tmp_path / name)
    size = max(theirs.get_vocab().values()) + 3
    ours = read(name, tmp_path / name, size)
    # White space at the end of a text is a piece there.
    bare = name in ("nllb", "mbart", "pegasus")
    texts = [text.strip(" \n\u3000") if bare else text for text in TEXTS]
    rows = [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert ours.encode_batch(texts) == rows
    assert [ours.encode(text) for text in texts[:50]] == rows[:50]
    met = {ours.pieces[token].text for row in rows for token in row}
    assert met >= {"{", "<sp>", "<spx>", "[R]", "[L]", "ŋ", "dog", "日"}
    # What stands around special tokens is written in another way by the slow ones.
    if name not in ("marian", "m2m_100"):
        known = [row for row in rows if ours.unknown_id not in row]
        assert len(known) > 40
        assert ours.decode_batch(known) == [theirs.decode(row).strip(" ") for row in known]
    # The files of both generations say the same.
    settings = {
        str(index): {
            flag: getattr(token, flag)
            for flag in ("content", "lstrip", "rstrip", "normalized", "single_word", "special")
        }
        for index, token in theirs.added_tokens_decoder.items()
    }
    for file in ("tokenizer.json", "special_tokens_map.json", "added_tokens.json"):
        (tmp_path / name / file).unlink(missing_ok=True)
    change(tmp_path / name / "tokenizer_config.json", added_tokens_decoder=settings)
    assert read(name, tmp_path / name, size) == ours


def test_ids_of_bytes_are_those_of_transformers(tmp_path):
    theirs = with_added("byt5", tmp_path / "byt5")
    ours = read("byt5", tmp_path / "byt5", 400)
    rows = [theirs(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert ours.encode_batch(TEXTS) == rows
    assert ours.decode_batch(rows) == [theirs.decode(row).strip(" ") for row in rows]
    assert ours.encode("<extra_id_1>ŋ") == [260, 384] and ours.vocabulary_size == 400
    assert ours.unused_ids == tuple(range(len(theirs), 400))
    theirs.add_tokens(["é"])  # a character that is no byte, with the id of one
    theirs.save_pretrained(tmp_path / "byt5")
    with pytest.raises(ValueError, match=r"'é' has the id 236 of a byte"):
        read("byt5", tmp_path / "byt5", 400)


def test_special_tokens_that_a_text_may_hold(tmp_path):
    """Sentinels and masks; never the end, padding or a language."""
    sizes = {name: text_files(name, tmp_path / name) for name in CLASSES}
    found = {name: read(name, tmp_path / name, size) for name, size in sizes.items()}
    held = {name: [token.text for token in each.added] for name, each in found.items()}
    sentinels = [f"<extra_id_{number}>" for number in range(125)]
    assert held["t5"] == sentinels[99::-1] and held["byt5"] == sentinels
    assert held["pegasus"] == ["<mask_1>", "<mask_2>"] and held["marian"] == held["m2m_100"] == []
    assert held["nllb"] == held["mbart"] == held["bart"] == ["<mask>"]
    t5 = found["t5"]
    ids = t5.encode("A dog <extra_id_0> in the <extra_id_1>.")
    names = [t5.pieces[token].text for token in ids]
    assert names.count("<extra_id_0>") == names.count("<extra_id_1>") == 1
    # As between any two tokens: a word begins behind each of them.
    assert t5.decode(ids) == "A dog<extra_id_0> in the<extra_id_1> ."
    for name, text in (("nllb", "deu_Latn </s>"), ("m2m_100", "__de__"), ("marian", "a</s>b<pad>")):
        row = found[name].encode(text)
        silent = {piece.text for piece in found[name].pieces if piece.type == "control"}
        assert silent.isdisjoint(found[name].pieces[token].text for token in row)


def test_a_mask_is_filled_in(tmp_path):
    """The example of BART's model card."""
    folder = make_random_folder("bart", tmp_path / "bart", **SMALL)
    bart = load_pretrained(folder)
    text = "There is no <mask> in the garden"
    ids = bart.tokenizers.bound_format.source_row(bart.tokenizers.source.encode(text))
    theirs = transformers.BartTokenizer.from_pretrained(folder)
    assert ids == theirs(text)["input_ids"] and theirs.mask_token_id in ids
    assert len(bart.translate([text], max_length=4, splitting="none").texts) == 1


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_there_and_back(name, tmp_path):
    folder = make_random_folder(name, tmp_path / "base", **SMALL)
    theirs = getattr(transformers, CLASSES[name]).from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    theirs.add_tokens(["{", "ŋ"])
    model.resize_token_embeddings(max(len(theirs), model.config.vocab_size), mean_resizing=False)
    model.save_pretrained(folder)
    theirs.save_pretrained(folder)
    (folder / "keras_addnorm_manifest.json").unlink(missing_ok=True)
    ours = load_pretrained(folder)
    text = "A dog {runs} ŋow."
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.tokenizers.source.encode(text) == ids and {
        *theirs.convert_tokens_to_ids(["{", "ŋ"])
    } < {*ids}
    again = load_pretrained(save_pretrained(ours, tmp_path / "again"))
    assert again.tokenizers == ours.tokenizers
    reread = type(theirs).from_pretrained(tmp_path / "again")
    assert reread(text, add_special_tokens=False)["input_ids"] == ids
    # As a run keeps them.
    kept = TokenizerPair.load(ours.tokenizers.save(tmp_path / "kept"))
    assert kept == ours.tokenizers and kept.target.encode(text) == ours.tokenizers.target.encode(
        text
    )
    assert kept.source.added[-2:] == ours.tokenizers.source.added[-2:]


def test_tokens_that_older_versions_list_by_name(tmp_path):
    """The ids in added_tokens.json, the flags and what is special elsewhere."""
    for name in ("t5", "mbart", "m2m_100"):
        size = text_files(name, tmp_path / name)
        first = {"t5": size - 28, "mbart": size, "m2m_100": size - 8}[name]
        change(tmp_path / name / "added_tokens.json", **{"{": first, "<sp>": first + 1})
        file = tmp_path / name / "special_tokens_map.json"
        known = json.loads(file.read_text())["additional_special_tokens"] if file.is_file() else []
        change(file, additional_special_tokens=[*known, "<sp>"])
        config = tmp_path / name / "tokenizer_config.json"
        if config.is_file():  # of a time when the ids of languages stood nowhere
            change(config, without=["added_tokens_decoder"])
        tokenizer = read(name, tmp_path / name, size + 3)
        found = [tokenizer.pieces[token].text for token in tokenizer.encode("A{ dog<sp>s")]
        assert "{" in found and "<sp>" in found, name
        assert tokenizer.ids_of_pieces["{"] == first
        assert tokenizer.ids_of_pieces["<sp>"] == first + 1
        if name != "t5":
            language = {"mbart": "de_DE", "m2m_100": "__de__"}[name]
            assert tokenizer.pieces[tokenizer.ids_of_pieces[language]].type == "control"


def test_a_language_may_be_added(tmp_path):
    size = text_files("nllb", tmp_path)
    config = tmp_path / "tokenizer_config.json"
    tokens = json.loads(config.read_text())["added_tokens_decoder"]
    tokens |= {
        str(size): {"content": "tyv_Cyrl", "special": False},
        str(size + 1): {"content": "{", "special": False},
        str(size + 3): {"content": "sango", "special": True},
    }
    change(config, added_tokens_decoder=tokens)
    tokenizer = read("nllb", tmp_path, size + 5)
    text_format = TextFormat(("{source}",), target_prefix=("{target}",))
    pair = TokenizerPair(tokenizer, tokenizer, text_format)
    assert pair.languages("target") == ["deu_Latn", "eng_Latn", "fra_Latn", "tyv_Cyrl", "sango"]
    assert tokenizer.unused_ids == (size + 2, size + 4)
    assert [token.text for token in tokenizer.added] == ["<mask>", "{"]


# What the public checkpoints of each family say, as far as it is known.
PUBLIC = {
    "marian": {
        **{"source_lang": "eng", "target_lang": "deu", "unk_token": "<unk>", "eos_token": "</s>"},
        **{"pad_token": "<pad>", "model_max_length": 512, "sp_model_kwargs": {}},
        **{"separate_vocabs": False, "special_tokens_map_file": None, "tokenizer_file": None},
        **{"name_or_path": "marian-models/opus", "tokenizer_class": "MarianTokenizer"},
    },
    "t5": {
        **{"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "extra_ids": 100},
        **{"additional_special_tokens": [f"<extra_id_{number}>" for number in range(100)]},
        **{"model_max_length": 512, "name_or_path": "t5-small", "sp_model_kwargs": {}},
        **{"tokenizer_class": "T5TokenizerFast", "clean_up_tokenization_spaces": True},
        **{"legacy": False, "special_tokens_map_file": "/x/special_tokens_map.json"},
    },
    "m2m_100": {
        **{"src_lang": None, "tgt_lang": None, "bos_token": "<s>", "eos_token": "</s>"},
        **{"sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "num_madeup_words": 8},
        **{"language_codes": "m2m100", "tokenizer_class": "M2M100Tokenizer"},
    },
    "nllb": {
        **{"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"},
        **{"unk_token": "<unk>", "pad_token": "<pad>", "src_lang": "eng_Latn", "tgt_lang": None},
        "mask_token": {
            **{"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": True},
            **{"rstrip": False, "single_word": False},
        },
        **{"sp_model_kwargs": {}, "legacy_behaviour": False, "tokenizer_class": "NllbTokenizer"},
    },
    "mbart": {
        **{"language_codes": None, "src_lang": "en_XX", "tgt_lang": None, "cls_token": "<s>"},
        "mask_token": {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False},
        **{"sep_token": "</s>", "tokenizer_class": "MBart50TokenizerFast"},
    },
    "bart": {
        **{"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "errors": "replace"},
        **{
            "add_prefix_space": False,
            "sep_token": "</s>",
            "cls_token": "<s>",
            "pad_token": "<pad>",
        },
        **{"mask_token": "<mask>", "model_max_length": 1024, "trim_offsets": True},
        "tokenizer_class": "BartTokenizer",
    },
    "pegasus": {
        **{"model_max_length": 512, "pad_token": "<pad>", "eos_token": "</s>", "offset": 103},
        **{"unk_token": "<unk>", "mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"},
        **{"additional_special_tokens": ["<mask_1>", "<unk_2>", "<unk_102>"]},
        **{"full_tokenizer_file": None, "tokenizer_class": "PegasusTokenizer"},
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_settings_of_public_folders_are_known(name, tmp_path):
    size = text_files(name, tmp_path)
    before = read(name, tmp_path, size)
    change(tmp_path / "tokenizer_config.json", without=["added_tokens_decoder"], **PUBLIC[name])
    found = read(name, tmp_path, size)
    assert found.ids.pieces == before.ids.pieces
    assert [token.text for token in found.added] == [token.text for token in before.added]


@pytest.mark.parametrize(
    ("name", "changes", "messages"),
    [
        ("t5", {"do_lower_case": True}, [r"do_lower_case = True is not followed; expected False"]),
        (
            "t5",
            {"sp_model_kwargs": {"enable_sampling": True, "alpha": 0.1, "odd": 1}, "odd": [1]},
            [
                r"sp_model_kwargs\.enable_sampling = True",
                r"kwargs\.odd = 1",
                r"odd = \[1\] is not k",
            ],
        ),
        ("t5", {"eos_token": "<end>"}, [r"eos_token = '<end>' is not followed; expected '</s>'"]),
        ("t5", {"pad_token": {"content": "[PAD]"}}, [r"pad_token = '\[PAD\]' is not followed"]),
        ("t5", {"extra_ids": 999}, [r"extra_ids of tokenizer_config\.json from 0 to 128.*999"]),
        ("t5", {"additional_special_tokens": ["<new>"]}, [r"'<new>' is named.*has no id"]),
        ("t5", {"additional_special_tokens": "<new>"}, [r"= '<new>'; expected a list"]),
        ("t5", {"tokenizer_class": "LlamaTokenizer"}, [r"T5Tokenizer or .*'LlamaTokenizer'"]),
        ("bart", {"add_prefix_space": True}, [r"add_prefix_space = True is not followed"]),
        ("bart", {"cls_token": "</s>"}, [r"cls_token = '</s>' is not followed; expected '<s>'"]),
        ("pegasus", {"offset": 0}, [r"offset = 0 is not followed; expected 103"]),
        ("nllb", {"legacy_behaviour": "yes"}, [r"legacy_behaviour = 'yes' is not followed"]),
        ("nllb", {"tokenizer_class": "M2M100Tokenizer"}, [r"M2M100Tokenizer, and there is no voc"]),
        ("m2m_100", {"tokenizer_class": "SMALL100Tokenizer"}, [r"Received: 'SMALL100Tokenizer'"]),
        ("marian", {"separate_vocabs": True}, [r"one list of ids, which separate_vocabs"]),
        ("marian", {"split_special_tokens": True}, [r"split_special_tokens = True is not foll"]),
        ("mbart", {"auto_map": {"AutoTokenizer": "x.Y"}}, [r"auto_map = .* is not known"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_is_not_followed_is_named(name, changes, messages, tmp_path):
    size = text_files(name, tmp_path)
    change(tmp_path / "tokenizer_config.json", **changes)
    for message in messages:
        with pytest.raises(ValueError, match=message):
            read(name, tmp_path, size)


CONFIG, ADDED = "tokenizer_config.json", "added_tokens.json"


def token(content, **flags):
    return {"content": content, **flags}


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "tokenizer_config.json",
            {"218": token("{", single_word=True)},
            "'{' has single_word = Tr",
        ),
        (
            "tokenizer_config.json",
            {"218": token("{", odd=True)},
            "odd of '{' = True; expected some",
        ),
        (CONFIG, {"218": token("{", lstrip="x")}, "'x'; expected True or False"),
        (
            "tokenizer_config.json",
            {"900": token("{")},
            "id 900, and the model's table has 220 rows",
        ),
        (CONFIG, {"5": token("{")}, "'{' has the id 5, which '.*' has"),
        (CONFIG, {"5": token("</s>")}, "'</s>' has the id 5, and 1 in the vocab"),
        (CONFIG, {"-1": token("{")}, "with the id '-1'; expected an object"),
        (CONFIG, {"218": token("\n", normalized=True)}, r"'\\n', normalised ' '"),
        (CONFIG, {"218": token("ﬁ", normalized=True)}, "normalised 'fi', which"),
        (CONFIG, {"x": token("{")}, "with the id 'x'; expected an object"),
        (
            "tokenizer_config.json",
            {"218": {"special": True}},
            "'special': True.*expected an object",
        ),
        (CONFIG, {"218": "{"}, "is '{' with the id 218; expected an object"),
        (ADDED, {"{": "218"}, "with the id '218'; expected an object"),
        (ADDED, {"{": None}, "with the id None; expected an object"),
        (ADDED, {"{": 10**12}, "'{' has the id 1000000000000, and the model's table"),
    ],
    ids=range(15),
)
def test_impossible_added_tokens_are_named(file, values, message, tmp_path):
    text_files("t5", tmp_path)
    is_config = file == CONFIG
    change(tmp_path / file, **({"added_tokens_decoder": values} if is_config else values))
    with pytest.raises(ValueError, match=message):
        read("t5", tmp_path, 220)


def test_files_that_contradict_one_another(tmp_path):
    text_files("t5", tmp_path)
    change(
        tmp_path / "tokenizer_config.json", added_tokens_decoder={"218": token("{", lstrip=True)}
    )
    change(tmp_path / "added_tokens.json", **{"{": 219, "}": 217})
    whole = [{"id": 218, "content": "{", "lstrip": False}, {"id": 216, "content": "["}]
    change(tmp_path / "tokenizer.json", added_tokens=whole)
    with pytest.raises(ValueError) as error:
        read("t5", tmp_path, 220)
    text = str(error.value)
    assert "lstrip of '{' = False, which another file denies" in text
    assert "added_tokens.json: '{' has the id 219, and 218 in" in text
    assert "added_tokens.json: '}' is not among those of tokenizer_config.json" in text
    assert "tokenizer.json: '[' is not among those of tokenizer_config.json" in text


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *(("mbart", f"{each}.json") for each in ("tokenizer_config", "special_tokens_map")),
        *(("mbart", f"{each}.json") for each in ("added_tokens", "tokenizer")),
        *(("m2m_100", "vocab.json"), ("bart", "vocab.json"), ("marian", "vocab.json")),
    ],
)
def test_files_of_another_form_are_named(name, file, tmp_path):
    size = text_files(name, tmp_path)
    for content in ("[1, 2]", "null", '"x"', "3", "{", '{"a": }', "[" * 9999):
        (tmp_path / file).write_text(content)
        with pytest.raises(ValueError, match=rf"{file}' (is no|is not of|cannot be)"):
            read(name, tmp_path, size)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("t5", "spiece.model", b"no model"),
        ("t5", "spiece.model", b""),
        ("bart", "merges.txt", b"a b c\n"),
        ("bart", "merges.txt", b"\xff\xfe"),
        ("bart", "vocab.json", b'{"a": "1"}'),
        ("bart", "vocab.json", b'{"a": 0, "b": 0}'),
        ("bart", "vocab.json", b'{"<pad>": 0, "</s>": 1, "<unk>": 2}'),
        ("marian", "source.spm", b"\x0a\x05abcde"),
        ("marian", "vocab.json", b'{"<pad>": true}'),
    ],
    ids=range(9),
)
def test_damaged_vocabularies_are_named(name, file, content, tmp_path):
    size = text_files(name, tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=file):
        read(name, tmp_path, size)


def test_two_generations_of_sentinels(tmp_path):
    """Those of mT5 are pieces of its model; of a small table, the first ones have the last ids."""
    size = text_files("t5", tmp_path)
    change(tmp_path / "tokenizer_config.json", extra_ids=0)
    assert read("t5", tmp_path, size).added == ()
    change(tmp_path / "tokenizer_config.json", without=["extra_ids"])
    first = size - 128
    cut = read("t5", tmp_path, first + 2)
    assert [token.text for token in cut.added] == ["<extra_id_99>", "<extra_id_98>"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "t5_v1_1"])
def test_an_export_reads_and_writes_them(name, tmp_path):
    """One graph from text to text, with tokens at the ends, inside words and beside spaces."""
    size = made(name)[1]
    folder = make_random_folder(name, tmp_path / "base", **SMALL, vocabulary_size=size + 3)
    change(folder / CONFIG, added_tokens_decoder={str(size + 1): token("ŋ", lstrip=True)})
    ours = load_pretrained(folder)
    texts = ["<mask> A dog<extra_id_0> ŋ { é", "ŋŋ", "éa <extra_id_0>", "a  <mask>b", "ŋow", " ŋ "]
    options = {"max_length": 6, "splitting": "none"}
    expected = ours.translate(texts, strategy="greedy", **options).texts
    path = export_saved_model(
        ours.model,
        ours.tokenizers,
        tmp_path / "export",
        strategies={"translate": "greedy"},
        **options,
    )
    assert [found.text for found in load_translator(path)(texts)] == expected
    tokens = ours.tokenizers.source.encode_batch(texts)
    assert {token.text for token in ours.tokenizers.source.added} & {
        ours.tokenizers.source.pieces[each].text for row in tokens for each in row
    }


def test_added_tokens_have_to_be_possible():
    for wrong in ("", "a" * 1001, "a\0"):
        with pytest.raises(ValueError, match="a text of 1 to 1000 characters"):
            AddedToken(wrong)
    with pytest.raises(TypeError, match=r"lstrip of the added token 'a' as True or False"):
        AddedToken("a", lstrip=1)
