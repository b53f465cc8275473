"""Folders whose texts are read by `tokenizer.json` alone, as transformers 5 saves them."""

import functools
import json
import types
import warnings

import pytest
import tensorflow as tf

from keras_addnorm.data import ByteLevelBPETokenizer, Tokenizer, load_tokenizer
from keras_addnorm.interop import families, load_pretrained, make_random_folder, save_pretrained
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.random_folder import _RECIPES
from keras_addnorm.serving import export_saved_model, load_translator
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of
from tests.pretrained_vocabularies import fuzz

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# The random folder, the class that saves it, and the family that reads it.
CASES = {
    "t5": ("t5", "T5Tokenizer", "t5"),
    "nllb": ("nllb", "NllbTokenizer", "m2m_100"),
    "mbart": ("mbart", "MBartTokenizer", "mbart"),
    "mbart50": ("mbart", "MBart50Tokenizer", "mbart"),
    "bart": ("bart", "BartTokenizer", "bart"),
    "pegasus": ("pegasus", "PegasusTokenizer", "pegasus"),
}
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
# Names of special tokens are text here; U+0085 and U+2581 are letters to SentencePiece.
READ_OTHERWISE = ("</s>", "\x85", "\u2581")
HOSTILE = [text.strip() for text in fuzz(500, 5) if not any(map(text.__contains__, READ_OTHERWISE))]
TEXTS = [
    *HOSTILE,
    "A dog runs through the garden.",
    "Zwei Vögel  singen <mask> in einem hohen\tBaum.",
    "A<extra_id_0> child <extra_id_99>sleeps",
    "a {b} ŋow [L] [L][R] x",
]


def add(theirs):
    flags = transformers.AddedToken
    theirs.add_tokens(["{", "ŋ", flags("[L]", lstrip=True), flags("[R]", rstrip=True)])
    return theirs


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Makes, once, a folder as transformers saves it, and its tokenizer as it reads it."""

    @functools.cache
    def make(name):
        recipe, kind, _ = CASES[name]
        folder = tmp_path_factory.mktemp(name)
        for file, content in _RECIPES[recipe].text_files()[0].items():
            (folder / file).write_bytes(content)
        theirs = add(getattr(transformers, kind).from_pretrained(folder))
        new = tmp_path_factory.mktemp(f"{name}_saved")
        theirs.save_pretrained(new)
        assert {file.name for file in new.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
        return new, transformers.AutoTokenizer.from_pretrained(new)

    return make


def read(name, folder, size=300):
    config = types.SimpleNamespace(
        source_vocabulary_size=size, target_vocabulary_size=size, start_id=2, end_id=2
    )
    return families.get(CASES[name][2]).tokenizers(Checkpoint(folder, {}, {}), config)


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_transformers(name, saved):
    folder, theirs = saved(name)
    pair = read(name, folder)
    ours = pair.source
    assert isinstance(ours, ByteLevelBPETokenizer if name == "bart" else Tokenizer)
    rows = [theirs(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert ours.encode_batch(TEXTS) == rows
    met = {ours.pieces[token].text for row in rows for token in row}
    assert met > {"{", "ŋ", "[L]", "[R]"}
    known = [row for row in rows if ours.unknown_id not in row]
    assert len(known) > 3
    assert ours.decode_batch(known) == [theirs.decode(row).strip(" ") for row in known]
    # With what stands around a text.
    languages = {
        side: language
        for side in pair.text_format.languages
        for language in [{"nllb": "eng_Latn"}.get(name, "en_XX")]
    }
    bound = pair.with_languages(**languages).bound_format if languages else pair.bound_format
    text = "A dog runs"
    assert bound.source_row(ours.encode(text)) == theirs(text)["input_ids"]


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("name", ["mbart", "nllb", "t5", "bart", "pegasus", "mbart50"])
def test_ids_in_the_graph_are_those_in_python(name, saved, tmp_path):
    ours = read(name, saved(name)[0]).source
    graph = graph_tokenizer_of(ours)
    assert graph.tokenize(tf.constant(TEXTS)).to_list() == ours.encode_batch(TEXTS)
    # As a run keeps it.
    assert load_tokenizer(ours.save(tmp_path / "kept")) == ours


@pytest.mark.parametrize("name", ["nllb", "t5"])
def test_a_model_that_was_fine_tuned_there_and_back(name, tmp_path):
    """What a `Trainer` saves, its arguments included."""
    base = make_random_folder(name, tmp_path / "base", **SMALL)
    theirs = add(getattr(transformers, CASES[name][1]).from_pretrained(base))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(base)
    model.resize_token_embeddings(max(len(theirs), model.config.vocab_size), mean_resizing=False)
    model.save_pretrained(tmp_path / "trained")
    theirs.padding_side = "left"
    theirs("A dog", padding="max_length", max_length=4, truncation=True)
    theirs.save_pretrained(tmp_path / "trained")
    (tmp_path / "trained" / "training_args.bin").write_bytes(b"no tensors")
    ours = load_pretrained(tmp_path / "trained")
    again = save_pretrained(ours, tmp_path / "again")
    reread = transformers.AutoTokenizer.from_pretrained(again)
    for text in TEXTS[-4:]:
        ids = ours.tokenizers.source.encode(text)
        assert reread(text, add_special_tokens=False)["input_ids"] == ids
    assert load_pretrained(again).tokenizers == ours.tokenizers


@pytest.mark.slow
def test_it_is_exported(saved, tmp_path):
    base = make_random_folder("t5", tmp_path / "base", vocabulary_size=300, **SMALL)
    (base / "spiece.model").unlink()
    for file in saved("t5")[0].iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    t5 = load_pretrained(base)
    pair = t5.tokenizers.with_languages("English", "German")
    options = {"strategies": {"translate": "greedy"}, "max_length": 4}
    export_saved_model(t5.model, pair, tmp_path / "export", **options)
    texts = ["A {dog} runs.", "ŋ"]
    expected = t5.translate(texts, "English", "German", strategy="greedy", max_length=4).texts
    found = load_translator(tmp_path / "export")(texts)
    assert [each.text for each in found] == expected


def test_nllb_with_the_language_behind_a_source(saved, tmp_path):
    folder, _ = saved("nllb")
    theirs = transformers.NllbTokenizer.from_pretrained(folder, legacy_behaviour=True)
    theirs.save_pretrained(tmp_path)
    pair = read("nllb", tmp_path)
    assert pair.text_format.source_suffix == ("{end}", "{source}")
    bound = pair.with_languages(source="eng_Latn", target="deu_Latn").bound_format
    assert bound.source_row(pair.source.encode("A dog")) == theirs("A dog")["input_ids"]


def test_forms_of_older_versions(saved, tmp_path):
    """Merges as texts, a mark by `add_prefix_space`, white space at the end stripped first."""
    folder, _ = saved("nllb")
    expected = read("nllb", folder)
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]
    mark = {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}
    values |= {"pre_tokenizer": mark, "decoder": mark, "post_processor": None}
    table = values["normalizer"]["normalizers"][0]
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    values["normalizer"]["normalizers"] = [table, strip, spaces]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # says nothing of a family
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read("nllb", tmp_path) == expected


def changed(values, path, value):
    *outer, last = path
    for key in outer:
        values = values[key]
    values[last] = value


WORDS = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {}}
TEMPLATE = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}]}


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("t5", ["model"], WORDS, "model: type = 'WordPiece'.*expected Unigram or BPE"),
        ("bart", ["model"], WORDS, "model: type = 'WordPiece'.*expected BPE"),
        ("t5", ["normalizer"], {"type": "Lowercase"}, "normalizer: type = 'Lowercase' is not foll"),
        ("bart", ["normalizer"], {"type": "NFC"}, "normalizer: type = 'NFC'.*expected none"),
        ("nllb", ["normalizer"], None, "several spaces stay"),
        ("t5", ["normalizer", "precompiled_charsmap"], "AAAA", "'AAAA' is no table"),
        ("t5", ["normalizer", "precompiled_charsmap"], 7, "= 7 is no table"),
        ("t5", ["pre_tokenizer"], {"type": "Digits"}, "pre_tokenizer: type = 'Digits'"),
        ("t5", ["pre_tokenizer"], None, "pre_tokenizer: none is not followed"),
        ("bart", ["pre_tokenizer", "add_prefix_space"], True, "ByteLevel without add_prefix_space"),
        ("nllb", ["pre_tokenizer", "prepend_scheme"], "never", "prepend_scheme = 'never'"),
        ("t5", ["post_processor"], {"type": "Odd"}, "post_processor: type = 'Odd'"),
        ("t5", ["post_processor"], TEMPLATE, r"Expected \$A </s>; received '\$A'"),
        ("t5", ["decoder"], {"type": "WordPiece"}, "decoder: type = 'WordPiece'"),
        ("nllb", ["model", "fuse_unk"], False, "fuse_unk = False is not followed; expected True"),
        ("nllb", ["model", "dropout"], 0.1, r"dropout = 0\.1 is not followed"),
        ("nllb", ["model", "ignore_merges"], True, "ignore_merges = True is not followed"),
        ("nllb", ["model", "merges"], [], "merges that no SentencePiece model has"),
        ("nllb", ["model", "merges"], [["a"]], "merges as a list of pairs"),
        ("nllb", ["model", "vocab"], {"a": "1"}, "vocab as an object with the id"),
        ("t5", ["model", "vocab"], {"a": 1}, "expected a list of different pieces"),
        ("t5", ["model", "vocab"], [["a", "b"]], "expected a list of different pieces"),
        ("t5", ["model", "unk_id"], None, "and the place of the unknown one"),
        ("t5", ["model"], [], r"model = \[\]; expected an object"),
        ("t5", ["odd"], 1, "odd = 1 is not known"),
    ],
)
def test_what_is_not_followed_is_named(name, path, value, message, saved, tmp_path):
    folder, _ = saved(name)
    values = json.loads((folder / "tokenizer.json").read_text())
    changed(values, path, value)
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text((folder / "tokenizer_config.json").read_text())
    with pytest.raises(ValueError, match=message) as error:
        read(name, tmp_path)
    assert "tokenizer.json" in str(error.value)


def test_merges_of_another_order_than_their_pieces(saved, tmp_path):
    folder, _ = saved("nllb")
    values = json.loads((folder / "tokenizer.json").read_text())
    merges = values["model"]["merges"]
    twice = next(
        place
        for place, pair in enumerate(merges[1:], 1)
        if "".join(pair) == "".join(merges[place - 1])
    )
    merges.append(merges.pop(twice))
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="merges that no SentencePiece model has"):
        read("nllb", tmp_path)
