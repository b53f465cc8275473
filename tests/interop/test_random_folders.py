"""Random folders of each family: transformers reads them, and reads in them what we do."""

import dataclasses
import warnings

import ctranslate2
import numpy as np
import pytest
import torch

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Beam
from keras_addnorm.interop import (
    export_ctranslate2,
    load_pretrained,
    make_random_folder,
    random_folder,
    save_pretrained,
)
from keras_addnorm.interop.random_folder.__main__ import main

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
TEXTS = [
    "A small dog sings.",
    "Zwei Vögel schläft im \u2460 Haus, x\u2026",
    "  The  old\tman\n reads ",
    "\u4f60\u597d qqq",
]
# The class of the tokenizer, and the languages as arguments of theirs and ours.
CASES = {
    "marian": ("MarianTokenizer", {}, {}),
    "marian_multilingual": ("MarianTokenizer", {}, {"target_language": "deu"}),
    "t5": ("T5Tokenizer", {}, {"source_language": "English", "target_language": "German"}),
    "byt5": ("ByT5Tokenizer", {}, {}),
    "m2m_100": (
        "M2M100Tokenizer",
        {"src_lang": "en", "tgt_lang": "de"},
        {"source_language": "en", "target_language": "de"},
    ),
    "nllb": (
        "NllbTokenizer",
        {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"},
        {"source_language": "eng_Latn", "target_language": "deu_Latn"},
    ),
    "mbart": (
        "MBart50Tokenizer",
        {"src_lang": "en_XX", "tgt_lang": "de_DE"},
        {"source_language": "en_XX", "target_language": "de_DE"},
    ),
    "bart": ("BartTokenizer", {}, {}),
    "pegasus": ("PegasusTokenizer", {}, {}),
}


def source_ids(tokenizers, texts, languages):
    pair = tokenizers.with_languages(*languages) if any(languages) else tokenizers
    around = pair.bound_format
    rows = []
    for text in texts:
        prefix, text = around.take_leading(text)
        rows.append(around.source_row(pair.source.encode(text), prefix))
    return rows


@pytest.fixture(scope="module", params=CASES)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("random") / request.param
    make_random_folder(request.param, path, **SMALL)
    return request.param, path, load_pretrained(path)


@pytest.mark.fast_cases(4)
def test_transformers_computes_the_same(folder):
    _, path, ours = folder
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    config = ours.model.config
    generator = np.random.default_rng(0)
    source = generator.integers(4, 80, (2, 9))
    target = generator.integers(4, 80, (2, 6))
    source[1, 7:], target[:, 0] = config.pad_id, config.start_id
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != config.pad_id),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    found = to_numpy(ours.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, abs(expected).max()))


@pytest.mark.fast_cases(5)
def test_transformers_splits_texts_alike(folder):
    name, path, ours = folder
    kind, their_languages, our_languages = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(transformers, kind).from_pretrained(path, **their_languages)
    prefix = {"t5": "translate English to German: ", "marian_multilingual": ">>deu<<"}
    languages = [our_languages.get(f"{side}_language") for side in ("source", "target")]
    texts = [text.strip() if name == "bart" else text for text in TEXTS]
    if name in ("pegasus", "nllb", "mbart"):  # Theirs have a token for the space at the end.
        texts = [text.rstrip() for text in texts]
    given = [prefix.get(name, "") + text for text in texts]
    expected = theirs(given).input_ids
    found = source_ids(ours.tokenizers, texts, languages)
    unknown = ours.tokenizers.source.unknown_id
    for text, row, their_row in zip(texts, found, expected, strict=True):
        # A run of characters that the vocabulary lacks is one unknown token there or several.
        assert _without_repeats(row, unknown) == _without_repeats(their_row, unknown), text


def _without_repeats(row, token):
    return [t for i, t in enumerate(row) if t != token or i == 0 or row[i - 1] != token]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marian_multilingual", "nllb"])
def test_translations_are_those_of_transformers(name, tmp_path):
    path = make_random_folder(name, tmp_path / name)
    ours = load_pretrained(path)
    kind, their_languages, our_languages = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = getattr(transformers, kind).from_pretrained(path, **their_languages)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    config = ours.model.config
    never = sorted({config.pad_id, config.start_id} - {config.end_id})
    prefix = ">>deu<<" if name == "marian_multilingual" else ""
    forced = {}
    if name == "nllb":
        forced = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids("deu_Latn")}
    texts = TEXTS[:2]
    # The unknown piece has another surface there.
    unknown = [ours.tokenizers.target.unknown_id]
    ids = theirs.generate(
        **tokenizer([prefix + text for text in texts], return_tensors="pt", padding=True),
        **{"max_length": 9, "suppress_tokens": [*never, *unknown], "num_beams": 2},
        **{"early_stopping": True, "forced_eos_token_id": None, **forced},
    )
    from keras_addnorm.decoding import AveragePenalty, Beam, ForbiddenTokens

    found = ours.translate(
        texts,
        **our_languages,
        **{"strategy": Beam(2, AveragePenalty(1.0)), "max_length": 8, "splitting": "none"},
        **{"constraints": [ForbiddenTokens((*never, *unknown))], "jit_compile": False},
    )
    expected = ours.tokenizers.target.decode_batch(ids[:, 1:].numpy())
    assert found.texts == expected


def test_missing_and_unknown_languages_are_named(tmp_path):
    nllb = load_pretrained(make_random_folder("nllb", tmp_path / "nllb", **SMALL))
    assert nllb.text_format.languages == ("source", "target")
    with pytest.raises(ValueError, match=r"needs the source and the target language.*'eng_"):
        nllb.translate(["A dog."])
    with pytest.raises(ValueError, match=r"no piece 'klingon'.*'deu_Latn'"):
        nllb.translate(["A dog."], "eng_Latn", "klingon")


@pytest.mark.fast_cases(3)
def test_files_of_texts_go_back_as_they_came(folder, tmp_path):
    _, path, ours = folder
    save_pretrained(ours, tmp_path / "mine")
    for file in path.iterdir():
        if file.name not in ("config.json", "generation_config.json", "model.safetensors"):
            assert (tmp_path / "mine" / file.name).read_bytes() == file.read_bytes()
    again = load_pretrained(tmp_path / "mine")
    assert again.tokenizers == ours.tokenizers and again.text_format == ours.text_format


def test_tokenizers_that_one_has_or_wants_none(tmp_path):
    path = make_random_folder("t5_v1_1", tmp_path / "t5", **SMALL)
    ours = load_pretrained(path)
    assert isinstance(ours.tokenizers, TokenizerPair)
    assert load_pretrained(path, tokenizers=ours.tokenizers).tokenizers == ours.tokenizers
    bare = load_pretrained(path, tokenizers=None)
    assert bare.tokenizers is None and bare.text_format is None
    with pytest.raises(ValueError, match=r"no tokenizers: only weights were loaded"):
        bare.translate(["a"])
    with pytest.raises(ValueError, match=r"Expected tokenizers='folder'.*Received: 'auto'"):
        load_pretrained(path, tokenizers="auto")
    other = load_pretrained(make_random_folder("byt5", tmp_path / "byt5", **SMALL)).tokenizers
    with pytest.raises(ValueError, match="does not belong to the model"):
        load_pretrained(path, tokenizers=other)
    (path / "spiece.model").unlink()
    with pytest.raises(FileNotFoundError, match=r"Expected 'spiece\.model', or a tokenizer\.json"):
        load_pretrained(path)
    (path / "tokenizer.json").touch()
    with pytest.raises(ValueError, match=r"tokenizer\.json' is no JSON.*Download it again"):
        load_pretrained(path)


def test_the_licence_of_a_model_card(tmp_path):
    path = make_random_folder("nllb", tmp_path / "nllb", **SMALL)
    assert load_pretrained(path, tokenizers=None).licence is None
    (path / "README.md").write_text("---\nlanguage: de\nlicense: cc-by-nc-4.0\n---\n# NLLB\n")
    with pytest.warns(UserWarning, match=r"may not be used commercially.*'cc-by-nc-4\.0'"):
        nllb = load_pretrained(path, tokenizers=None)
    assert nllb.licence == "cc-by-nc-4.0"
    (path / "README.md").write_text("---\nlicense:\n- cc-by-nc-4.0\n---\n")
    with pytest.warns(UserWarning, match=r"card says 'cc-by-nc-4\.0'"):
        load_pretrained(path, tokenizers=None)
    # What is made of it is under the same terms.
    mine = save_pretrained(nllb, tmp_path / "mine")
    with pytest.warns(UserWarning, match="may not be used commercially"):
        load_pretrained(mine, tokenizers=None)
    (path / "README.md").write_text("# NLLB\n\nlicense: none of a header\n")
    assert load_pretrained(path, tokenizers=None).licence is None


def test_the_command_and_its_arguments(tmp_path, capsys):
    main(["byt5", str(tmp_path / "byt5"), "--seed", "3"])
    written, step, _ = capsys.readouterr().out.splitlines()
    assert written.startswith(f"Wrote {tmp_path / 'byt5'}: ")
    assert step == f"Next: keras-addnorm import {tmp_path / 'byt5'} runs/byt5"
    weights = (tmp_path / "byt5" / "model.safetensors").read_bytes()
    make_random_folder("byt5", tmp_path / "again", seed=3)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == weights
    with pytest.raises(ValueError, match=r"no such folder to make.*Received: 'gpt'"):
        make_random_folder("gpt", tmp_path / "gpt")
    with pytest.raises(ValueError, match=r"no such size.*Received: width"):
        make_random_folder("byt5", tmp_path / "wide", width=3)
    with pytest.raises(FileExistsError):
        make_random_folder("byt5", tmp_path / "again")
    wide = load_pretrained(
        make_random_folder("byt5", tmp_path / "wide", hidden_dim=24, num_encoder_layers=1)
    ).model.config
    assert (wide.hidden_dim, wide.num_encoder_layers) == (24, 1)
    assert set(CASES) <= set(random_folder.names)


def test_another_number_of_beams(tmp_path):
    ours = load_pretrained(make_random_folder("marian", tmp_path / "marian", **SMALL))
    seen = []
    fake = dataclasses.replace(ours, model=_Recorder(ours.model, seen))
    fake.translate(["A dog."], num_beams=2)
    fake.translate(["A dog."], num_beams=1, max_length=5)
    fake.translate(["A dog."], strategy="greedy", max_length=5)
    strategies = [call["strategy"] for call in seen]
    assert strategies[0] == dataclasses.replace(ours.generation.strategy, num_beams=2)
    assert [type(each).__name__ for each in strategies] == ["Beam", "Greedy", "Greedy"]
    assert [call["max_length"] for call in seen] == [63, 5, 5]


class _Recorder:
    """A model that writes down how it is asked, and answers with ends."""

    def __init__(self, model, seen):
        self.config, self.seen = model.config, seen

    def generate(self, ids, *, search, **options):
        self.seen.append({**vars(search), **options})
        return np.full((len(ids), search.max_length), self.config.end_id), np.zeros(len(ids))


@pytest.mark.slow
def test_ctranslate2_searches_an_imported_model_alike(tmp_path):
    folder = make_random_folder("marian", tmp_path / "marian", **SMALL)
    opus = load_pretrained(folder)
    bias = np.zeros(opus.model.config.target_vocabulary_size, "float32")
    bias[opus.model.config.pad_id] = -30.0  # they are shares of all but padding there
    opus.model.decoder_embedding.logits_bias.assign(bias)
    directory = export_ctranslate2(opus.model, opus.tokenizers, tmp_path / "ct2")
    translator = ctranslate2.Translator(str(directory), compute_type="float32")
    rows = opus.tokenizers.source.encode_batch(TEXTS[:3])
    pieces = opus.tokenizers.source.pieces
    found = translator.translate_batch(
        [[pieces[token].text for token in row] for row in rows],
        beam_size=4,
        length_penalty=0,
        min_decoding_length=0,
        max_decoding_length=9,
    )
    ids = opus.tokenizers.target.ids_of_pieces
    texts = [opus.tokenizers.target.decode([ids[p] for p in one.hypotheses[0]]) for one in found]
    options = {"strategy": Beam(4, 0.0), "constraints": (), "splitting": "none"}
    ours = opus.translate(TEXTS[:3], max_length=9, **options)
    assert ours.texts == texts and any(texts)


@pytest.mark.parametrize("name", ["t5_v1_1", "mt5", "umt5"])
def test_a_folder_of_a_newer_t5_has_a_head_of_its_own(name, tmp_path):
    loaded = load_pretrained(make_random_folder(name, tmp_path / name, **SMALL))
    assert not loaded.model.config.tie_embeddings
