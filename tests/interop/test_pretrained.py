"""Models of transformers, loaded and written back: their numbers, their searches, their files."""

import argparse
import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest
import torch

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.decoding import AveragePenalty, Beam, ForbiddenTokens, Greedy, MinLength, Prefix
from keras_addnorm.interop import GenerationSettings, families, load_pretrained, save_pretrained
from keras_addnorm.interop.families.bart_like import PositionTable
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LAYERS = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "vocab_size": 30}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
BART = {
    **LAYERS,
    **HEADS,
    **{"encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40},
    **{"dropout": 0.0, "attention_dropout": 0.0},
}
T5 = {
    **{"d_model": 16, "d_kv": 5, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 1},
    **{"num_heads": 3, "vocab_size": 30, "decoder_start_token_id": 0, "dropout_rate": 0.0},
}
MARIAN = {**BART, "pad_token_id": 29, "decoder_start_token_id": 29, "eos_token_id": 0}
V1_1 = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

CASES = {
    "marian": ("Marian", {**MARIAN, "scale_embedding": True, "activation_function": "swish"}),
    "marian-two-tables": (
        "Marian",
        {
            **MARIAN,
            **{"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 33},
            **{"activation_function": "gelu", "encoder_layers": 1, "decoder_layers": 2},
        },
    ),
    "m2m_100": ("M2M100", BART),
    "m2m_100-unscaled": (
        "M2M100",
        {**BART, "scale_embedding": False, "activation_function": "gelu_new"},
    ),
    "mbart": ("MBart", {**BART, "decoder_start_token_id": 2, "scale_embedding": True}),
    "mbart-unscaled": (
        "MBart",
        {**BART, "decoder_start_token_id": 25, "activation_function": "relu"},
    ),
    "bart": ("Bart", BART),
    "bart-scaled": ("Bart", {**BART, "scale_embedding": True, "activation_function": "quick_gelu"}),
    "pegasus": ("Pegasus", {**BART, "scale_embedding": True, "activation_function": "relu"}),
    "t5-1.0": ("T5", T5),
    "t5-1.1": ("T5", V1_1),
    "t5-scaled-own-head": (
        "T5",
        {**T5, "relative_attention_num_buckets": 8, "feed_forward_proj": "gated-silu"},
    ),
    "mt5": ("MT5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "mt5-tied": ("MT5", {**T5, "relative_attention_max_distance": 20}),
    "umt5": (
        "UMT5",
        {**T5, "relative_attention_num_buckets": 8, "feed_forward_proj": "gated-gelu"},
    ),
}
OWN_HEAD = ("t5-1.1", "t5-scaled-own-head", "mt5", "umt5")
CLASSES = {
    "Marian": transformers.MarianMTModel,
    "M2M100": transformers.M2M100ForConditionalGeneration,
    "MBart": transformers.MBartForConditionalGeneration,
    "Bart": transformers.BartForConditionalGeneration,
    "Pegasus": transformers.PegasusForConditionalGeneration,
    "T5": transformers.T5ForConditionalGeneration,
    "MT5": transformers.MT5ForConditionalGeneration,
    "UMT5": transformers.UMT5ForConditionalGeneration,
}


def random_model(case, **changes):
    """A model of transformers in which every number is random: gains of 1 would hide mistakes."""
    family, settings = CASES[case]
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    torch.manual_seed(0)
    model = CLASSES[family](config).eval()
    # Their defaults are too small to tell models apart: of T5's heads, or of positions.
    with torch.no_grad():
        if case in OWN_HEAD:
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn_like(parameter) / 5 + ("norm.weight" in name))
            elif "embed_positions" not in name or family in ("Bart", "MBart"):
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """A model of transformers, the folder that it wrote, and ours made of it."""
    theirs = random_model(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return request.param, theirs, folder, load_pretrained(folder, tokenizers=None)


def some_ids(config, source_length, target_length, seed=0):
    """Sources and targets, both with padding in the second row."""
    generator = np.random.default_rng(seed)
    ordinary = [i for i in range(30) if i not in (config.pad_id, config.start_id, config.end_id)]
    source = generator.choice(ordinary, (2, source_length))
    target = generator.choice(ordinary, (2, target_length))
    target[:, 0] = config.start_id
    source[1, source_length - source_length // 3 :] = config.pad_id
    return source, target


def their_logits(model, source, target, pad_id):
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != pad_id),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()


@pytest.mark.fast_cases(9)
def test_logits(case):
    _, theirs, _, ours = case
    config = ours.model.config
    for lengths in ((3, 1), (7, 9), (30, 26)):
        source, target = some_ids(config, *lengths)
        expected = their_logits(theirs, source, target, config.pad_id)
        found = to_numpy(ours.model({"source": source, "target": target}))
        assert abs(expected).max() > 0.2
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.fast_cases(5)
def test_there_and_back(case, tmp_path):
    name, theirs, _, ours = case
    save_pretrained(ours, tmp_path / "mine")
    again = load_pretrained(tmp_path / "mine", tokenizers=None)
    assert again.model.config == ours.model.config and again.family == ours.family
    assert again.generation == ours.generation
    for weight, other in zip(ours.model.weights, again.model.weights, strict=True):
        # T5's factor D^-1/2 is a power of two at this width.
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other), err_msg=weight.path)
    read, info = type(theirs).from_pretrained(tmp_path / "mine", output_loading_info=True)
    computed = {f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")}
    assert set(info["missing_keys"]) <= (computed if name == "pegasus" else set())
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    expected = theirs.state_dict()
    scaled = {"lm_head.weight"} if name == "t5-scaled-own-head" else set()
    for key, tensor in read.state_dict().items():
        # The first two rows of learned positions are never read.
        used = (
            slice(2, None)
            if "embed_positions" in key and name.removeprefix("m").startswith("bart")
            else slice(None)
        )
        if key not in scaled:
            assert torch.equal(tensor[used], expected[key][used]), key
    source, target = some_ids(ours.model.config, 7, 9)
    pad = ours.model.config.pad_id
    np.testing.assert_array_equal(
        their_logits(read, source, target, pad), their_logits(theirs, source, target, pad)
    )


@pytest.mark.fast_cases(4)
def test_old_torch_files_hold_every_name(case, tmp_path):
    name, theirs, folder, ours = case
    state = dict(theirs.state_dict())
    if name.startswith("marian"):
        for side in ("encoder", "decoder"):
            table = getattr(theirs.model, side).embed_positions.weight
            state[f"model.{side}.embed_positions.weight"] = table
    if name.startswith("t5"):
        key = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        state[key] = torch.zeros(4, 3)
    torch.save(
        {key: tensor.half() for key, tensor in state.items()}, tmp_path / "pytorch_model.bin"
    )
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    found = load_pretrained(tmp_path, tokenizers=None).model
    for weight, other in zip(ours.model.weights, found.weights, strict=True):
        np.testing.assert_allclose(to_numpy(weight), to_numpy(other), atol=2e-3)
    # What should be a copy and is none is no model of ours.
    copies = [
        key for key in state if key.endswith("embed_tokens.weight") or "embed_positions" in key
    ]
    if name in ("marian", "pegasus", "m2m_100", "t5-1.0"):
        torch.save({**state, copies[0]: state[copies[0]] + 1}, tmp_path / "pytorch_model.bin")
        with pytest.raises(ValueError, match=rf"'{copies[0]}' is no copy"):
            load_pretrained(tmp_path, tokenizers=None)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("name", ["marian", "m2m_100", "t5-1.0", "t5-1.1"])
def test_a_training_step(name, tmp_path):
    import tensorflow as tf

    theirs = random_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_pretrained(tmp_path / "theirs", tokenizers=None).model
    config = model.config
    source, target = some_ids(config, 7, 6)
    # A label that is the start token's id is a token as any other, unless it is padding.
    labels = np.roll(target, -1, axis=1)
    labels[:, -1] = config.end_id
    loss = theirs(
        input_ids=torch.tensor(source),
        attention_mask=torch.tensor(source != config.pad_id),
        decoder_input_ids=torch.tensor(target),
        labels=torch.tensor(labels),
    ).loss
    loss.backward()
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    table = model.decoder_embedding.embeddings
    with tf.GradientTape() as tape:
        ours = crossentropy(labels, model({"source": source, "target": target}))
    gradient = tf.convert_to_tensor(tape.gradient(ours, table.value))
    np.testing.assert_allclose(float(ours), loss.item(), rtol=1e-5)
    shared = theirs.get_input_embeddings().weight
    scale = 4.0 if name == "t5-1.0" else 1.0  # ours is E / sqrt(D)
    expected = scale * shared.grad.numpy()
    found = to_numpy(gradient)
    if name == "marian":  # Torch gives the row of padding no gradient; here it is the start, too.
        assert abs(found[config.pad_id] - expected[config.pad_id]).max() > 1e-3
        found[config.pad_id] = expected[config.pad_id]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


SEARCHES = {
    # The end, 0, is no bad word.
    "marian": {
        **{"num_beams": 3, "bad_words_ids": [[29], [0]], "length_penalty": 0.6},
        "early_stopping": False,  # where it is not said, ours looks on
    },
    "m2m_100": {"num_beams": 4, "forced_bos_token_id": 9, "early_stopping": True},
    "bart": {
        **{"num_beams": 3, "forced_bos_token_id": 0, "early_stopping": "never"},
        **{"length_penalty": 2.0, "min_length": 4, "no_repeat_ngram_size": 2},
    },
    "t5-1.1": {"num_beams": 1, "min_new_tokens": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_with_the_settings_of_the_folder(name, tmp_path):
    theirs = random_model(name)
    ids = theirs.config
    never = sorted({ids.pad_token_id, ids.decoder_start_token_id} - {ids.eos_token_id})
    theirs.generation_config.update(
        max_length=13, forced_eos_token_id=None, suppress_tokens=never, **SEARCHES[name]
    )
    if hasattr(theirs, "final_logits_bias"):
        theirs.final_logits_bias[0, ids.eos_token_id] += 3  # so that outputs end
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_pretrained(tmp_path / "theirs", tokenizers=None)
    source = np.concatenate([some_ids(ours.model.config, 7, 1, seed)[0] for seed in range(4)])
    found = theirs.generate(
        torch.tensor(source),
        attention_mask=torch.tensor(source != ids.pad_token_id),
        return_dict_in_generate=True,
        output_scores=True,
    )
    expected = np.full((8, 12), ids.pad_token_id)
    tokens = found.sequences[:, 1:].numpy()
    expected[:, : tokens.shape[1]] = tokens
    search = ours.generation
    prefix = search.forced_first
    got, scores = ours.model.generate(
        source,
        search.strategy,
        max_length=search.max_length,
        constraints=search.constraints,
        target_prefix=None if prefix is None else Prefix([prefix], is_free=True),
        jit_compile=False,
    )
    np.testing.assert_array_equal(got, expected)
    if not isinstance(search.strategy, Greedy):
        np.testing.assert_allclose(scores, found.sequences_scores.numpy(), atol=1e-5)


def test_settings_of_a_search_are_read_and_written():
    settings = {
        **{"num_beams": 5, "max_length": 200, "early_stopping": False, "length_penalty": 0.8},
        **{"bad_words_ids": [[7], [8, 9]], "suppress_tokens": [4], "min_length": 6},
        **{"forced_bos_token_id": 3, "repetition_penalty": 1.3, "top_k": 50, "do_sample": None},
    }
    found = GenerationSettings.of(settings, longest=64)
    assert found == GenerationSettings(
        Beam(5, AveragePenalty(0.8), early_stopping="current_length"),
        max_length=64,
        constraints=(MinLength(6), ForbiddenTokens((4, 7))),
        early_stopping="current_length",
        forced_first=3,
        not_followed=("repetition_penalty = 1.3", "bad_words_ids = [[8, 9]]", "max_length = 200"),
    )
    assert GenerationSettings.of(found.to_dict(), longest=64) == found
    greedy = GenerationSettings.of({}, longest=64)
    assert greedy == GenerationSettings(Greedy("average"), 64)
    # What is not said is at our default, and stays unsaid.
    assert greedy.with_beams(2) == Beam(2, AveragePenalty(1.0), early_stopping=False)
    beam = {"num_beams": 2, "early_stopping": None}
    assert GenerationSettings.of(beam, 64).strategy == Beam(2, AveragePenalty(1.0))
    assert GenerationSettings.of(beam, 64).to_dict() == beam
    early = dataclasses.replace(GenerationSettings.of(beam, 64), early_stopping="current_length")
    assert early.to_dict() == {"num_beams": 2, "early_stopping": False}
    assert GenerationSettings.of(greedy.to_dict(), longest=64) == greedy
    # More hypotheses are searched with as the checkpoint says, also where it says one.
    assert found.with_beams(1) == Greedy(AveragePenalty(0.8))
    stopping = GenerationSettings.of({"early_stopping": "never", "length_penalty": 2.0}, longest=9)
    assert stopping.with_beams(3) == Beam(3, AveragePenalty(2.0), early_stopping=False)
    sampled = GenerationSettings.of({"do_sample": True, "top_p": 0.9}, longest=8)
    assert GenerationSettings.of(sampled.to_dict(), longest=8) == sampled
    wrong = dataclasses.replace(found, strategy=Beam(4, 0.6))
    with pytest.raises(ValueError, match=r"divides scores by n\^alpha.*GNMTPenalty"):
        wrong.to_dict()


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    random_model("marian").save_pretrained(folder)
    return folder


def with_settings(folder, tmp_path, **changes):
    """The folder with other settings."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, **changes}))
    return tmp_path


# What configs of the last years say besides; the first ones are transformers' own.
INERT = {
    **{"tf_legacy_loss": True, "use_bfloat16": True, "_attn_implementation_autoset": True},
    **{"attn_implementation": "sdpa", "torch_dtype": "float16", "loss_type": None},
}
NOTES = {"author": "N. N.", "kobart_version": 2.0, "_my_note": [1], "use_rope": False, "idea": None}


def config_of(folder, family="marian", **fields):
    kind = families.get({"name": family, **fields})
    settings = json.loads((folder / "config.json").read_text())
    return kind, kind.config(Checkpoint(folder, settings, {}))


def test_settings_that_mean_nothing_pass(marian_folder, tmp_path):
    before = config_of(marian_folder)[1]
    folder = with_settings(marian_folder, tmp_path, **INERT)
    assert config_of(folder)[1] == before
    with_settings(marian_folder, tmp_path, **INERT, **NOTES)
    with pytest.warns(UserWarning, match="taken for a note: author = 'N. N.', kobart_version = 2"):
        kind, found = config_of(folder)
    assert found == before
    settings = json.loads((folder / "config.json").read_text())
    assert kind.settings(found, settings).items() >= NOTES.items()


@pytest.mark.parametrize("shape", [(3, 6), (1, 6), (0, 6), (3, 5), (5,)])
def test_a_table_of_positions_may_have_any_shape(shape):
    """What has not the width of the model is no copy of its positions, and said so."""
    positions = {"name": "sinusoidal", "layout": "halves", "offset": 2}
    config = Seq2SeqConfig(11, 11, 1, 1, 6, num_heads=2, intermediate_dim=5, positions=positions)
    found = PositionTable(config)(shape)
    assert (found.shape == shape) == (6 in shape)
    assert not np.any(found[1:2])  # The row of padding.


def test_an_error_lists_settings_at_moderate_length(marian_folder, tmp_path):
    many = {f"{number}_": "x" * 99 for number in range(3000)}
    folder = with_settings(
        marian_folder, tmp_path, **many, **{"0" * 10**5: 1, "d_model": "y" * 999}
    )
    with pytest.raises(ValueError, match=r"000 = 1; not known; 0_ = 'x.*--ignore 000") as error:
        config_of(folder)
    assert len(str(error.value)) < 2500


def test_any_family_passes_over_what_it_is_told(marian_folder, tmp_path):
    folder = with_settings(marian_folder, tmp_path, my_idea=7)
    with pytest.raises(ValueError, match=r"my_idea = 7; not known.*--ignore my_idea"):
        load_pretrained(folder)
    before = config_of(marian_folder)[1]
    assert config_of(folder, ignored=["my_idea"])[1] == before
    loaded = load_pretrained(folder, tokenizers=None, ignored=("my_idea",))
    assert loaded.family.settings(loaded.model.config, loaded.notes)["my_idea"] == 7
    with pytest.raises(ValueError, match=r"cannot be ignored.*Received: d_model, vocab_size"):
        config_of(folder, ignored=["vocab_size", "d_model", "my_idea"])
    with pytest.raises(ValueError, match=r"Expected a list of texts.*ignored='my_idea'"):
        families.get({"name": "marian", "ignored": "my_idea"})
    # Those that are left out have no config.
    for name in set(families.names()) - {"torch_transformer", "opennmt_tf"}:
        assert families.get({"name": name, "ignored": ["a"]}).ignored == ("a",)


def test_all_settings_that_do_not_fit_are_named_at_once(marian_folder, tmp_path):
    folder = with_settings(
        marian_folder,
        tmp_path,
        rope_theta=1e4,
        activation_function="mish",
        normalize_before=True,
        decoder_ffn_dim=32,
        tie_word_embeddings=False,
    )
    with pytest.raises(ValueError) as error:
        load_pretrained(folder)
    text = str(error.value)
    assert text.startswith("This Marian model has settings that our layers do not compute")
    assert "rope_theta = 10000.0; not known" in text
    assert "activation_function = 'mish'; expected 'relu' or 'gelu' or" in text
    assert "normalize_before = True; expected False" in text
    assert "decoder_ffn_dim = 32; expected the same as encoder_ffn_dim = 24" in text
    assert "tie_word_embeddings = False; expected True" in text


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("nllb-moe", r"'nllb-moe' cannot be loaded: it needs a mixture of experts"),
        ("fsmt", r"texts split by Moses' rules and BPE"),
        ("whisper", r"needs sound in place of text"),
        ("mvp", r"family 'mvp' are not read here\. Expected a model_type among marian, .*: 'mvp'"),
        (None, r"names no family.*Received: None"),
    ],
)
def test_other_families_are_refused_by_name(marian_folder, tmp_path, model_type, reason):
    folder = with_settings(marian_folder, tmp_path, model_type=model_type)
    with pytest.raises(ValueError, match=reason):
        load_pretrained(folder)


def test_a_family_with_code_of_its_own_is_refused(marian_folder, tmp_path):
    own = {"model_type": "IndicTrans", "auto_map": {"AutoConfig": "configuration.IndicTransConfig"}}
    folder = with_settings(marian_folder, tmp_path, **own)
    with pytest.raises(ValueError, match=r"'IndicTrans' are not read.*auto_map.*is not run here"):
        load_pretrained(folder)


def test_all_tensors_that_do_not_fit_are_named_at_once(marian_folder, tmp_path):
    folder = with_settings(marian_folder, tmp_path, decoder_layers=2, encoder_layers=1)
    with pytest.raises(ValueError) as error:
        load_pretrained(folder, tokenizers=None)
    assert "missing: model.decoder.layers.1.self_attn.q_proj.weight, " in str(error.value)
    assert "not known: model.encoder.layers.1.fc1.bias, " in str(error.value)
    folder = with_settings(marian_folder, tmp_path, vocab_size=31, decoder_vocab_size=31)
    with pytest.raises(
        ValueError,
        match=r"other shapes.*shared.weight has the shape \(30, 16\); "
        r"expected \(31, 16\), final_logits_bias has the shape \(1, 30\)",
    ):
        load_pretrained(folder, tokenizers=None)


def test_a_model_that_the_family_cannot_say_is_refused(marian_folder, tmp_path):
    marian = load_pretrained(marian_folder, tokenizers=None)
    config = dataclasses.replace(
        marian.model.config,
        scheme="pre_ln",
        norm="rms_norm",
        activation="tanh",
        end_id=5,
        self_attention="ssru",
    )
    other = dataclasses.replace(marian, model=Seq2SeqTransformer(config))
    with pytest.raises(ValueError) as error:
        save_pretrained(other, tmp_path / "no")
    text = str(error.value)
    assert text.startswith("A Marian model cannot be like this one: ")
    assert "scheme = 'pre_ln'; expected 'post_ln'" in text
    assert "norm = 'rms_norm'; expected 'layer_norm'" in text
    assert "self_attention = 'ssru'; expected 'multi_head_attention'" in text
    assert not (tmp_path / "no").exists()
    with pytest.raises(FileExistsError, match="it exists"):
        save_pretrained(marian, marian_folder)


def test_a_model_of_ours_goes_into_the_world(tmp_path):
    """A model that never was one of transformers, after LoRA, in its format."""
    settings = families.get("marian").config_file.read({**MARIAN, "model_type": "marian"})
    model = Seq2SeqTransformer(settings)
    enable_lora(model, 2, filters="query")
    for weight in model.trainable_weights:
        weight.assign(weight + 0.1)
    from keras_addnorm.interop import Pretrained

    ours = Pretrained(model, None, GenerationSettings(Greedy(), 39), families.get("marian"))
    save_pretrained(ours, tmp_path / "mine")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "mine").eval()
    source, target = some_ids(model.config, 7, 5)
    np.testing.assert_allclose(
        to_numpy(model({"source": source, "target": target})),
        their_logits(theirs, source, target, model.config.pad_id),
        atol=1e-5,
    )
    assert theirs.generation_config.num_beams == 1 and theirs.generation_config.max_length == 40


@pytest.mark.parametrize("name", ["m2m_100", "bart"])
def test_fairseq_has_the_same_mathematics_under_other_names(name, tmp_path):
    theirs = random_model(name)
    state = {
        key.removeprefix("model."): tensor
        for key, tensor in theirs.state_dict().items()
        if key not in ("lm_head.weight", "model.shared.weight", "final_logits_bias")
    }
    if name == "bart":
        theirs.final_logits_bias.zero_()
    state["decoder.output_projection.weight"] = state["decoder.embed_tokens.weight"]
    state["decoder.embed_positions._float_tensor"] = state["encoder.version"] = torch.ones(1)
    options = {
        **{f"{side}_embed_dim": 16 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_embed_dim": 24 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
        **{f"{side}_normalize_before": name == "m2m_100" for side in ("encoder", "decoder")},
        **{f"{side}_learned_pos": name == "bart" for side in ("encoder", "decoder")},
        **{"encoder_layers": 2, "decoder_layers": 1, "max_source_positions": 40},
        **{"share_all_embeddings": True, "optimizer": "adam", "activation_fn": "gelu"},
        **{"layernorm_embedding": name == "bart", "no_scale_embedding": name == "bart"},
    }
    if name == "m2m_100":
        options["activation_fn"] = "relu"
    checkpoint = {
        "model": state,
        "args": argparse.Namespace(**options),
        "extra_state": {"epoch": 3},
    }
    torch.save(checkpoint, tmp_path / "model.pt")
    ours = load_pretrained(tmp_path / "model.pt", "fairseq")
    source, target = some_ids(ours.model.config, 9, 7)
    np.testing.assert_allclose(
        to_numpy(ours.model({"source": source, "target": target})),
        their_logits(theirs, source, target, 1),
        rtol=0,
        atol=1e-5,
    )
    assert ours.generation.strategy == Beam(5, AveragePenalty(1.0), early_stopping=False)
    assert (ours.generation.max_length, ours.generation.constraints) == (40, (MinLength(2),))
    with pytest.raises(ValueError, match=r"fairseq's checkpoints are only read"):
        save_pretrained(ours, tmp_path / "mine")
    options |= {"adaptive_input": True, "decoder_learned_pos": name != "bart"}
    options |= {"my_idea": 3, "another": None, "criterion": "cross_entropy"}
    torch.save({"model": state, "args": argparse.Namespace(**options)}, tmp_path / "model.pt")
    with pytest.raises(
        ValueError, match=r"my_idea = 3.*pos.*the same.*adaptive_input = True"
    ) as info:
        load_pretrained(tmp_path / "model.pt", "fairseq")
    assert "another" not in str(info.value) and "criterion" not in str(info.value)
    with pytest.raises(ValueError, match=r"known here: decoder_learned_pos = "):
        load_pretrained(tmp_path / "model.pt", {"name": "fairseq", "ignored": ["my_idea"]})


def test_what_is_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"says nowhere what kind.*'config\.json'"):
        load_pretrained(tmp_path)
    (tmp_path / "weights.pt").touch()
    with pytest.raises(ValueError, match=r"file of weights does not say.*torch_transformer"):
        load_pretrained(tmp_path / "weights.pt")
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*/none'"):
        load_pretrained(tmp_path / "none")
    with pytest.raises(ValueError, match=r"no such family of checkpoints.*Received: 'maria'.*mari"):
        load_pretrained(tmp_path, "maria")


# As files on the hub have them, with what old converters wrote.
OLD = {
    **{"_num_labels": 3, "add_bias_logits": False, "architectures": ["X"], "bos_token_id": 0},
    **{"classif_dropout": 0.0, "classifier_dropout": 0.0, "decoder_layerdrop": 0.0},
    **{"encoder_layerdrop": 0.0, "gradient_checkpointing": False, "id2label": {"0": "LABEL_0"}},
    **{"label2id": {"LABEL_0": 0}, "init_std": 0.02, "max_length": 512, "num_beams": 4},
    **{"num_hidden_layers": 6, "transformers_version": "4.22.0.dev0", "use_cache": True},
    **{"is_encoder_decoder": True, "_name_or_path": "x", "forced_eos_token_id": 0},
}
HUB = {
    "marian": {
        **OLD,
        **{"activation_function": "swish", "add_final_layer_norm": False, "d_model": 512},
        **{"bad_words_ids": [[58100]], "decoder_start_token_id": 58100, "eos_token_id": 0},
        **{"decoder_vocab_size": 58101, "max_position_embeddings": 512, "vocab_size": 58101},
        **{"normalize_before": False, "normalize_embedding": False, "pad_token_id": 58100},
        **{"scale_embedding": True, "share_encoder_decoder_embeddings": True},
        **{"static_position_embeddings": True, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048},
        **{"encoder_attention_heads": 8, "decoder_attention_heads": 8},
        **{"encoder_layers": 6, "decoder_layers": 6},
    },
    "mbart": {
        **OLD,
        **{"add_final_layer_norm": True, "normalize_before": True, "normalize_embedding": True},
        **{"static_position_embeddings": False, "scale_embedding": True, "output_past": True},
        **{"tokenizer_class": "MBart50Tokenizer", "early_stopping": True, "vocab_size": 250054},
        **{"decoder_start_token_id": 2, "torch_dtype": "float32"},
    },
    "t5": {
        **{"architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64},
        **{"d_model": 512, "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1},
        **{"feed_forward_proj": "gated-gelu", "initializer_factor": 1.0, "num_heads": 6},
        **{"is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5"},
        **{"n_positions": 512, "num_decoder_layers": 8, "num_layers": 8, "output_past": True},
        **{"pad_token_id": 0, "relative_attention_num_buckets": 32, "vocab_size": 32128},
        **{"tie_word_embeddings": False, "use_cache": True, "dense_act_fn": "gelu_new"},
        **{"is_gated_act": True, "classifier_dropout": 0.0, "relative_attention_max_distance": 128},
    },
}


@pytest.mark.parametrize("name", HUB)
def test_configs_as_the_hub_has_them_are_read(name):
    family = families.get(name)
    config = family.config_file.read(family.newest(HUB[name], {}))
    expected = {"marian": (512, 58100), "mbart": (1024, 1), "t5": (512, 0)}
    assert (config.hidden_dim, config.pad_id) == expected[name]


def test_the_config_of_every_case_is_ours():
    """The descriptions know only fields that there are."""
    known = {field.name for field in dataclasses.fields(Seq2SeqConfig)}
    for name in ("marian", "m2m_100", "mbart", "bart", "pegasus", "t5", "mt5", "umt5"):
        file = families.get(name).config_file
        ours = {one.partition(".")[0] for field in file.fields for one in field.ours}
        assert ours | {one.partition(".")[0] for one in file.constants} <= known
        assert not {field.name for field in file.fields} & file.ignored
