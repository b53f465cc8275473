"""Folders of transformers: without a head, with ids in two files, with a forced first token."""

import json
import shutil
import warnings

import numpy as np
import pytest
import sentencepiece
import torch

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import TextFormat
from keras_addnorm.decoding import AveragePenalty, Greedy, Prefix
from keras_addnorm.interop import (
    GenerationSettings,
    families,
    load_pretrained,
    make_random_folder,
    save_pretrained,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BART = {
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 12 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{"vocab_size": 24, "d_model": 8, "max_position_embeddings": 20},
}
T5 = {
    **{"vocab_size": 24, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2},
    **{"decoder_start_token_id": 0},
}
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
# Without a head, with one, and the settings.
CASES = {
    "bart": ("BartModel", "BartForConditionalGeneration", BART),
    "mbart": (
        "MBartModel",
        "MBartForConditionalGeneration",
        {**BART, "decoder_start_token_id": 2},
    ),
    "pegasus": ("PegasusModel", "PegasusForConditionalGeneration", BART),
    "m2m_100": ("M2M100Model", "M2M100ForConditionalGeneration", BART),
    "t5": ("T5Model", "T5ForConditionalGeneration", T5),
}


def base_folder(base, settings, folder):
    kind = getattr(transformers, base)
    torch.manual_seed(0)
    kind(kind.config_class(**settings)).save_pretrained(folder)
    return folder


def change(folder, name="config.json", without=(), **changes):
    path = folder / name
    settings = json.loads(path.read_text()) if path.is_file() else {}
    kept = {key: value for key, value in settings.items() if key not in without}
    path.write_text(json.dumps({**kept, **changes}))
    return folder


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("name", CASES)
def test_a_folder_without_a_head(name, tmp_path):
    base, whole, settings = CASES[name]
    folder = base_folder(base, settings, tmp_path / "base")
    ours = load_pretrained(folder, tokenizers=None)
    theirs = getattr(transformers, whole).from_pretrained(folder).eval()
    config = ours.model.config
    source, target = np.array([[5, 6, 7, 8]]), np.array([[config.start_id, 9, 10]])
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)
        ).logits.numpy()
    found = to_numpy(ours.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
    # It goes back whole.
    save_pretrained(ours, tmp_path / "whole")
    _, info = getattr(transformers, whole).from_pretrained(
        tmp_path / "whole", output_loading_info=True
    )
    assert not info["missing_keys"] - {f"model.{s}.embed_positions.weight" for s in SIDES}
    assert not info["unexpected_keys"]


SIDES = ("encoder", "decoder")


@pytest.mark.parametrize(
    ("base", "settings", "changes", "reason"),
    [
        (
            "MarianModel",
            {**BART, "pad_token_id": 23, "decoder_start_token_id": 23, "eos_token_id": 0},
            {},
            r"such as a MarianModel: the bias of the logits.*Save the whole model, a MarianMTModel",
        ),
        (
            "T5Model",
            {**T5, "tie_word_embeddings": False},
            {},
            r"holds T5Model without its head.*'lm_head\.weight'.*a T5ForConditionalGeneration",
        ),
        # As older versions wrote version 1.1.
        ("T5Model", T5, {"tie_word_embeddings": False, "architectures": None}, "holds a model wit"),
        ("MT5Model", T5, {}, "holds MT5Model without its head.*a MT5ForConditionalGeneration"),
        ("T5EncoderModel", T5, {}, r"is_encoder_decoder = False; expected True"),
    ],
    ids=["marian", "t5 1.1", "older t5 1.1", "mt5", "encoder"],
)
def test_what_a_folder_without_a_head_leaves_open(base, settings, changes, reason, tmp_path):
    folder = change(base_folder(base, settings, tmp_path), **changes)
    with pytest.raises(ValueError, match=reason):
        load_pretrained(folder, tokenizers=None)


@pytest.fixture(scope="module")
def mbart_folder(tmp_path_factory):
    """Weights alone, with nothing that says where a target starts."""
    folder = base_folder("MBartModel", BART, tmp_path_factory.mktemp("mbart"))
    return change(folder, without=("decoder_start_token_id",))


def copy_of(folder, path):
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def read(folder):
    """The config and the search of a folder, without its model."""
    family = families.get("mbart")
    checkpoint = family.open(folder)
    config = family.config(checkpoint)
    return config, family.generation(checkpoint, config)


def test_where_a_target_starts(mbart_folder, tmp_path):
    folder = copy_of(mbart_folder, tmp_path)
    message = (
        r"does not say which token a target starts with.*config\.json, 2 for a MBart50Tokenizer"
    )
    with pytest.raises(ValueError, match=message):
        read(folder)
    change(folder, "tokenizer_config.json", tokenizer_class="MBartTokenizer")
    with pytest.raises(ValueError, match=message + r".*'MBartTokenizer'"):
        read(folder)
    change(folder, "tokenizer_config.json", tokenizer_class="MBart50TokenizerFast")
    assert read(folder)[0].start_id == 2
    # Both files, then both at odds.
    change(folder, "generation_config.json", decoder_start_token_id=21, eos_token_id=2)
    assert read(folder)[0].start_id == 21
    change(folder, decoder_start_token_id=20)
    with pytest.warns(UserWarning, match=r"differ: decoder_start_token_id is \[21\] and \[20\]"):
        assert read(folder)[0].start_id == 21


def test_where_a_target_ends(mbart_folder, tmp_path):
    folder = change(copy_of(mbart_folder, tmp_path), decoder_start_token_id=20, eos_token_id=[2])
    assert read(folder)[0].end_id == 2
    change(folder, eos_token_id=[2, 5])
    with pytest.raises(ValueError, match=r"with one token here.*one eos_token_id.*\[2, 5\]"):
        read(folder)
    change(folder, "generation_config.json", eos_token_id=5, decoder_start_token_id=20)
    assert read(folder)[0].end_id == 5
    # Several ends of searches, one of which is the model's.
    change(folder, eos_token_id=2)
    change(folder, "generation_config.json", eos_token_id=[5, 2])
    config, search = read(folder)
    assert config.end_id == 2 and search.not_followed == ("eos_token_id = [5, 2]",)
    assert search.to_file(config)["eos_token_id"] == [5, 2]
    change(folder, eos_token_id="2")
    with pytest.raises(ValueError, match=r"special id is a whole number.*'2'"):
        read(folder)


def test_values_of_another_type_are_named_at_once(mbart_folder, tmp_path):
    folder = change(
        copy_of(mbart_folder, tmp_path),
        **{"decoder_start_token_id": 2, "d_model": [8], "encoder_layers": True, "dropout": "0.1"},
    )
    with pytest.raises(ValueError) as error:
        read(folder)
    text = str(error.value)
    assert "d_model = [8]; expected a whole number" in text
    assert "encoder_layers = True; expected a whole number" in text
    assert "dropout = '0.1'; expected a number" in text


def test_searches_of_folders_of_all_ages(mbart_folder, tmp_path):
    folder = change(
        copy_of(mbart_folder, tmp_path),
        **{"decoder_start_token_id": 2, "bos_token_id": 0, "num_beams": 3, "length_penalty": 0.5},
        **{"force_bos_token_to_be_generated": True, "renormalize_logits": True},
    )
    found = read(folder)[1]
    kept = {"num_beams": 3, "length_penalty": 0.5, "renormalize_logits": True}
    assert found.forced_first == 0 and found.strategy.num_beams == 3
    assert found.max_length == 19  # 20 positions, of which one is the start's
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(folder).generation_config
    assert theirs.forced_bos_token_id == 0 and theirs.num_beams == 3
    assert found.to_dict() == {
        **kept,
        **{"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        **{"forced_bos_token_id": 0, "forced_eos_token_id": 2, "use_cache": True},
        "transformers_version": transformers.__version__,
    }
    # A file of searches is all that counts then, and an empty one says nothing.
    change(folder, "generation_config.json", **{"max_length": 6, "new_field": 7, "old_field": None})
    found = read(folder)[1]
    assert found.forced_first is None and found.strategy.num_return == 1 and found.max_length == 5
    assert found.not_followed == ("new_field = 7",)
    assert found.to_dict() == {"max_length": 6, "new_field": 7, "old_field": None}
    (folder / "generation_config.json").write_text("{}")
    assert read(folder)[1] == GenerationSettings(Greedy(AveragePenalty(1.0)), 19)


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory):
    return make_random_folder("marian", tmp_path_factory.mktemp("marian") / "folder", **SMALL)


def test_a_way_back_keeps_the_file_of_searches(marian_folder, tmp_path):
    folder = copy_of(marian_folder, tmp_path)
    change(folder, "generation_config.json", renormalize_logits=True, forced_eos_token_id=0)
    ours = load_pretrained(folder, tokenizers=None)
    save_pretrained(ours, tmp_path / "mine")
    theirs, mine = (
        json.loads((each / "generation_config.json").read_text())
        for each in (folder, tmp_path / "mine")
    )
    assert theirs == mine
    not_followed = ("renormalize_logits = True", "forced_eos_token_id = 0")
    assert ours.generation.not_followed == not_followed


def test_a_forced_token_in_any_family(marian_folder, tmp_path):
    folder = change(
        copy_of(marian_folder, tmp_path),
        "generation_config.json",
        **{"forced_bos_token_id": 9, "min_length": 4, "num_beams": 1},
    )
    ours = load_pretrained(folder)
    piece = ours.tokenizers.target.pieces[9].text
    assert ours.text_format == TextFormat(target_prefix=(piece,))
    assert ours.tokenizers.bound_format.target_prefix == (9,)
    with pytest.raises(ValueError, match=r"4 tokens at least.*max_length >= 4.*Received: 3"):
        ours.translate(["A dog."], max_length=3)
    # Tokenizers of one's own get it, too; those that have a first piece keep it.
    given = load_pretrained(folder, tokenizers=load_pretrained(marian_folder).tokenizers)
    assert given.text_format == ours.text_format
    change(folder, "generation_config.json", forced_bos_token_id=len(ours.tokenizers.target.pieces))
    with pytest.raises(ValueError, match=r"forced_bos_token_id.*is no piece of its vocabulary"):
        load_pretrained(folder)


def language_id(ours, name):
    return ours.tokenizers.target.ids_of_pieces[name]


@pytest.mark.slow
def test_the_first_mbart_starts_with_a_language(tmp_path):
    """Ids of a source and tokens of a search are those of transformers."""
    folder = make_random_folder("mbart", tmp_path / "mbart", **SMALL)
    german = language_id(load_pretrained(folder), "de_DE")
    change(folder, "tokenizer_config.json", tokenizer_class="MBartTokenizer")
    change(folder, decoder_start_token_id=2)
    change(folder, "generation_config.json", decoder_start_token_id=german, max_length=9)
    with pytest.warns(UserWarning, match="decoder_start_token_id is .* The first is taken"):
        ours = load_pretrained(folder)
    config = ours.model.config
    assert config.start_id == german
    assert ours.text_format == TextFormat(source_suffix=("{end}", "{source}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.MBartTokenizer.from_pretrained(folder, src_lang="en_XX")
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(folder).eval()
    text = "A small dog sings."
    inputs = tokenizer([text], return_tensors="pt")
    english = ours.tokenizers.with_languages("en_XX").bound_format
    row = english.source_row(ours.tokenizers.source.encode(text))
    assert [row] == inputs.input_ids.tolist()
    never = sorted({config.pad_id, config.start_id})
    expected = theirs.generate(**inputs, suppress_tokens=never, forced_eos_token_id=None)
    found, _ = ours.model.generate(
        [row], ours.generation.strategy, max_length=ours.generation.max_length, jit_compile=False
    )
    np.testing.assert_array_equal(found[:, : expected.shape[1] - 1], expected[:, 1:])
    assert expected[0, 0] == german and ours.generation.max_length == 8
    translated = ours.translate([text], "en_XX", splitting="none", jit_compile=False).texts
    assert translated == [ours.tokenizers.target.decode(found[0].tolist())]
    change(folder, decoder_start_token_id=20)
    change(folder, "generation_config.json", decoder_start_token_id=20)
    with pytest.raises(ValueError, match=r"no token that starts a target.*Received: 20"):
        load_pretrained(folder)


@pytest.mark.slow
def test_a_forced_language_is_that_of_translations(tmp_path):
    folder = make_random_folder("nllb", tmp_path / "nllb", **SMALL)
    free = load_pretrained(folder)
    with pytest.raises(ValueError, match="needs the target language"):
        free.translate(["A dog."], "eng_Latn", max_length=4)
    german = language_id(free, "deu_Latn")
    change(folder, "generation_config.json", forced_bos_token_id=german)
    forced = load_pretrained(folder)
    assert forced.text_format == free.text_format
    options = {"max_length": 6, "splitting": "none", "jit_compile": False}
    languages = [None, "deu_Latn", "fra_Latn"]
    default, german_texts, french = (
        forced.translate(["A dog runs."], "eng_Latn", language, **options).texts
        for language in languages
    )
    assert default == german_texts != french


@pytest.mark.slow
def test_a_forced_token_as_in_generate(marian_folder, tmp_path):
    folder = change(
        copy_of(marian_folder, tmp_path),
        "generation_config.json",
        **{"forced_bos_token_id": 9, "min_new_tokens": 4, "max_new_tokens": 7, "num_beams": 2},
    )
    ours = load_pretrained(folder)
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    pad, text = ours.model.config.pad_id, "A dog runs."
    source = np.array([[*ours.tokenizers.source.encode(text), ours.model.config.end_id]])
    expected = theirs.generate(torch.tensor(source), suppress_tokens=[pad]).numpy()[:, 1:]
    search = ours.generation
    found, _ = ours.model.generate(
        source,
        search.strategy,
        max_length=search.max_length,
        constraints=search.constraints,
        target_prefix=Prefix([9], is_free=True),
        jit_compile=False,
    )
    assert expected[0, 0] == 9 and search.max_length == 7
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
    translated = ours.translate([text], splitting="none", jit_compile=False).texts
    assert translated == [ours.tokenizers.target.decode(found[0].tolist())]


@pytest.fixture(scope="module")
def cc25(tmp_path_factory):
    """As the first mBART was published: no start of targets, no tokenizer_config.json."""
    folder = make_random_folder("mbart", tmp_path_factory.mktemp("cc25") / "mbart", **SMALL)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()
    change(folder, without=("decoder_start_token_id",))
    return change(folder, "generation_config.json", without=("decoder_start_token_id",))


def test_the_first_mbart_is_told_its_target_language(cc25, tmp_path):
    with pytest.raises(ValueError, match=r"which token a target starts with.*target_language"):
        load_pretrained(cc25)
    ours = load_pretrained(cc25, target_language="ro_RO")
    pair = ours.tokenizers.with_languages(source="en_XX")
    start = pair.target.ids_of_pieces["ro_RO"]
    assert ours.model.config.start_id == start and ours.text_format.target_languages == ()
    row = pair.bound_format.source_row(pair.source.encode("A dog"))
    assert [pair.source.pieces[token].text for token in row[-2:]] == ["</s>", "en_XX"]
    with pytest.raises(ValueError, match=r"no piece 'german' of a target language"):
        load_pretrained(cc25, target_language="german")
    # It goes back with its start, which another direction may replace.
    save_pretrained(ours, tmp_path / "ro")
    again = load_pretrained(tmp_path / "ro")
    assert again.model.config.start_id == start
    other = load_pretrained(tmp_path / "ro", target_language="de_DE")
    assert other.model.config.start_id == pair.target.ids_of_pieces["de_DE"]


def test_a_target_language_of_models_that_start_otherwise(tmp_path):
    """It is that of the text format; a family without languages has none."""
    folder = make_random_folder("mbart", tmp_path / "fifty", **SMALL)
    fifty = load_pretrained(folder, target_language="de_DE")
    assert fifty.text_format.target_prefix == ("de_DE",) and fifty.model.config.start_id == 2
    folder = make_random_folder("bart", tmp_path / "bart", **SMALL)
    with pytest.raises(ValueError, match="no place for a target language"):
        load_pretrained(folder, target_language="de_DE")


def test_instructions_have_no_languages(tmp_path):
    """Flan-T5 keeps T5's list of tasks, and is told in each text what to do."""
    folder = make_random_folder("t5_v1_1", tmp_path / "flan", **SMALL)
    change(folder, task_specific_params={"translation_en_to_de": {}})
    flan = load_pretrained(folder)
    assert flan.text_format == TextFormat()
    assert len(flan.translate(["Please answer: what is 2 + 2?"], max_length=3).texts) == 1


@pytest.mark.parametrize("name", ["marian", "mbart"])
def test_a_head_that_is_the_table_though_it_is_not_tied(name, tmp_path):
    """As trimmed models are saved."""
    base = make_random_folder(name, tmp_path / "base", **SMALL)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(base)
    model.config.tie_word_embeddings = False
    table = model.get_input_embeddings().weight
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors["lm_head.weight"] = table.detach().clone()
    model.save_pretrained(tmp_path / "same", state_dict=tensors)
    expected = load_pretrained(base, tokenizers=None).model.get_weights()
    found = load_pretrained(tmp_path / "same", tokenizers=None).model.get_weights()
    assert all(map(np.array_equal, found, expected))
    tensors["lm_head.weight"] += 1
    model.save_pretrained(tmp_path / "other", state_dict=tensors)
    with pytest.raises(ValueError, match=r"lm_head\.weight"):
        load_pretrained(tmp_path / "other", tokenizers=None)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("rows", [70, 400])
@pytest.mark.parametrize("name", ["marian", "t5", "bart", "mbart"])
def test_a_table_of_another_size(name, rows, tmp_path):
    """Trimmed and enlarged ones; fewer rows than the tokenizer has pieces are named."""
    folder = make_random_folder(name, tmp_path / "base", **SMALL)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.resize_token_embeddings(rows, mean_resizing=False)
    for field in ("pad_token_id", "decoder_start_token_id"):
        if (getattr(model.config, field, 0) or 0) >= rows:  # as Marian's padding, the last id
            setattr(model.config, field, rows - 1)
            setattr(model.generation_config, field, rows - 1)
    model.save_pretrained(tmp_path / "other")
    ours = load_pretrained(tmp_path / "other", tokenizers=None)
    assert ours.model.config.target_vocabulary_size == rows
    source, target = np.array([[5, 6, 7]]), np.array([[ours.model.config.start_id, 9]])
    with torch.no_grad():
        expected = model.eval()(
            input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)
        ).logits.numpy()
    found = to_numpy(ours.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
    for file in folder.iterdir():
        if not (tmp_path / "other" / file.name).exists():
            (tmp_path / "other" / file.name).write_bytes(file.read_bytes())
    if rows == 400:
        assert load_pretrained(tmp_path / "other").tokenizers.target.vocabulary_size == rows
    else:
        with pytest.raises(ValueError, match=r"table|rows|pieces"):
            load_pretrained(tmp_path / "other")


def test_madlad_400_is_a_t5_told_by_a_token(tmp_path):
    """Padding is `<s>`, the start `<unk>`, as in google/madlad400-3b-mt; `<2de>` is one token."""
    folder = make_random_folder("t5_v1_1", tmp_path / "madlad", **SMALL)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["A dog runs.", "The cat sleeps in the house."] * 9),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=24,
        user_defined_symbols=["<2de>", "<2fr>"],
        minloglevel=2,
    )
    shutil.copy(tmp_path / "spiece.model", folder)
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    change(folder, **ids)
    change(folder, "generation_config.json", **ids)
    change(folder, "tokenizer_config.json", pad_token="<s>", extra_ids=0)
    ours = load_pretrained(folder)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    text = "<2de> A dog sleeps."
    source = ours.tokenizers.source.encode(text)
    assert source == pieces.encode(text) and pieces.piece_to_id("<2de>") in source
    ids = {"source": np.array([[*source, 2]]), "target": np.array([[0, 9, 10]])}
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(ids["source"]), decoder_input_ids=torch.tensor(ids["target"])
        ).logits.numpy()
    found = to_numpy(ours.model(ids))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
    assert len(ours.translate([text], max_length=5).texts) == 1
