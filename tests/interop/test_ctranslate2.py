"""The exported model translates as ours does: the same tokens, the same scores."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import ctranslate2
import keras
import numpy as np
import pretrained_vocabularies as families
import pytest

from keras_addnorm import schemes
from keras_addnorm.basics.integrity import IN_EXPORTS, Manifest
from keras_addnorm.data import TextFormat, Tokenizer, TokenizerPair
from keras_addnorm.decoding import translate
from keras_addnorm.interop import export_ctranslate2, require_intact
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora, merge_lora
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

MAX_LENGTH = 23


def sentences(count, seed, syllables):
    generator = np.random.default_rng(seed)
    words = ["".join(generator.choice(syllables, generator.integers(1, 4))) for _ in range(60)]
    return [" ".join(generator.choice(words, generator.integers(1, 6))) for _ in range(count)]


SOURCES = sentences(500, 1, ["ba", "di", "ku", "ler", "mon", "schä", "tö", "un"])
TARGETS = sentences(200, 2, ["ra", "mi", "no", "ssel", "pfe", "ß", "ü", "ga"])


@pytest.fixture(scope="module")
def joint():
    return TokenizerPair.joint(Tokenizer.train(SOURCES + TARGETS, vocabulary_size=61))


@pytest.fixture(scope="module")
def separate():
    return TokenizerPair(
        Tokenizer.train(SOURCES, vocabulary_size=43),
        Tokenizer.train(TARGETS, vocabulary_size=47, kind="bpe"),
    )


def make_model(tokenizers, **fields):
    config = Seq2SeqConfig(
        **{
            "source_vocabulary_size": tokenizers.source.vocabulary_size,
            "target_vocabulary_size": tokenizers.target.vocabulary_size,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "hidden_dim": 22,
            "intermediate_dim": 29,
            "num_heads": 2,
            "max_length": 31,
            "dropout": 0.0,
        }
        | fields
    )
    model = Seq2SeqTransformer(config)
    generator = np.random.default_rng(5)
    for weight in model.weights:
        # Norms' gains, biases and branch scales start at constants: a swap would not be seen.
        noise = generator.normal(size=weight.shape)
        is_table = weight.path.endswith("embeddings")
        weight.assign(1.5 * weight + (0.0 if is_table else 0.2) * noise)
    # As training does: a beam sees the difference between masking before and after a softmax.
    if config.tie_embeddings:
        bias = model.decoder_embedding.logits_bias
    else:
        bias = model.vocabulary_projection.bias
    if bias is not None:
        bias.assign(np.where(np.arange(bias.shape[0]) < 2, -30.0, bias))
    return model


def source_rows(model, tokenizers, texts):
    rows = [[*tokens, 2] for tokens in tokenizers.source.encode_batch(texts)]
    length = max(map(len, rows))
    return np.array([row + [0] * (length - len(row)) for row in rows])


def ours(model, tokenizers, texts, num_beams, length_penalty=0.0):
    ids, scores = model.generate(
        source_rows(model, tokenizers, texts),
        num_beams=num_beams,
        length_penalty=length_penalty,
        max_length=MAX_LENGTH,
        jit_compile=False,
    )
    return [[int(token) for token in row if token] for row in ids], scores


def theirs(directory, tokenizers, texts, num_beams, **options):
    translator = ctranslate2.Translator(
        str(directory), compute_type="float32", intra_threads=1, inter_threads=1
    )
    pieces = [
        [tokenizers.source.pieces[token].text for token in row]
        for row in tokenizers.source.encode_batch(texts)
    ]
    results = translator.translate_batch(
        pieces,
        beam_size=num_beams,
        max_decoding_length=MAX_LENGTH,
        min_decoding_length=0,
        return_end_token=True,
        return_scores=True,
        # Zero changes when it stops, too: when nothing better can come, not after `num_beams` ends.
        **({"length_penalty": 0} | options),
    )
    id_of = {piece.text: token for token, piece in enumerate(tokenizers.target.pieces)}
    tokens = [[id_of[piece] for piece in result.hypotheses[0]] for result in results]
    return tokens, np.array([result.scores[0] for result in results])


def log_share_of_the_allowed(model, tokenizers, texts, rows):
    """Sums log(1 - p(padding) - p(start)) over the steps of each output."""
    targets = np.zeros((len(rows), MAX_LENGTH), "int32")
    for target, row in zip(targets, rows, strict=True):
        target[: len(row)] = [1, *row[:-1]]
    logits = model({"source": source_rows(model, tokenizers, texts), "target": targets})
    logits = keras.ops.convert_to_numpy(logits)
    everything = np.logaddexp.reduce(logits, axis=-1)
    allowed = np.logaddexp.reduce(logits[..., 2:], axis=-1)
    return np.sum((allowed - everything) * (targets != 0), axis=1)


CASES = {
    "post_ln": {"scheme": "post_ln", "num_encoder_layers": 2, "num_decoder_layers": 2},
    "pre_ln": {"scheme": "pre_ln", "activation": "gelu"},
    "sandwich_ln": {"scheme": "sandwich_ln", "activation": "swish"},
    "deep_norm": {"scheme": "deep_norm", "num_decoder_layers": 2, "activation": "tanh"},
    "layer_scale": {"scheme": "layer_scale", "activation": "glu"},
    "rms_norm": {"scheme": "pre_ln", "norm": "rms_norm", "activation": "swiglu"},
    "rms_norm, sandwich": {"scheme": "peri_ln", "norm": "rms_norm", "activation": "reglu"},
    "learned positions": {"positions": "learned", "activation": "geglu"},
    "a norm for each side": {"norm": {"encoder": {"name": "rms_norm"}, "decoder": "layer_norm"}},
    "attention said as a dict": {"attention": {}, "scheme": "pre_ln"},
    "another epsilon": {"epsilon": 0.25, "activation": "sigmoid"},
    "post_ln, final norm": {
        "scheme": {"name": "post_ln", "final_norm": True},
        "activation": "gelu_tanh",
    },
    "norm and scale of embeddings, head_dim": {
        "scheme": "pre_ln",
        "activation": "geglu_tanh",
        "embedding_norm": "layer_norm",
        "embedding_scale": 2.5,
        "head_dim": 7,
    },
    "halves, tied bias, no other": {
        "positions": {
            "name": "sinusoidal",
            "layout": "halves",
            "timescales": "half_minus_one",
            "offset": 2,
        },
        "activation": "gelu_sigmoid",
        "tie_embeddings": True,
        "logits_bias": True,
        "use_bias": False,
    },
    "ds_init, which is Post-LN once it is made": {"scheme": "ds_init", "num_encoder_layers": 2},
}


def check(model, tokenizers, directory, texts, num_beams):
    tokens, scores = ours(model, tokenizers, texts, num_beams)
    their_tokens, their_scores = theirs(directory, tokenizers, texts, num_beams)
    assert their_tokens == tokens
    assert len({tuple(row) for row in tokens}) > len(texts) / 4, "too few different outputs"
    # Ours are shares of the whole vocabulary, theirs of what may be generated.
    difference = log_share_of_the_allowed(model, tokenizers, texts, tokens)
    np.testing.assert_allclose(their_scores, scores - difference, atol=1e-3)


@pytest.fixture(scope="module")
def untrained(joint):
    return make_model(joint, scheme="pre_ln", share_embeddings=True)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("case", CASES)
def test_same_tokens_and_scores(case, separate, tmp_path):
    model = make_model(separate, **{"tie_embeddings": False} | CASES[case])
    directory = export_ctranslate2(model, separate, tmp_path / "model")
    check(model, separate, directory, SOURCES[:40], num_beams=4)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "ids",
    [{"start_id": 2}, {"start_id": 0}, {"pad_id": 5, "start_id": 5}],
    ids=["start is end", "start is pad", "start is another pad"],
)
def test_a_start_that_is_the_end_or_padding(ids, joint, tmp_path):
    """Only what the search never generates is switched off; the start is read all the same."""
    model = make_model(joint, num_decoder_layers=1, tie_embeddings=False, **ids)
    bias = model.vocabulary_projection.bias
    # Else their shares, of the vocabulary and of what may be generated, differ.
    bias.assign(np.where(np.isin(np.arange(61), [0, 1, 5]), -30.0, bias))
    pad_id = model.config.pad_id
    encoded = joint.source.encode_batch(SOURCES)
    texts = [text for text, row in zip(SOURCES, encoded, strict=True) if pad_id not in row][:20]
    directory = export_ctranslate2(model, joint, tmp_path / "model")
    rows = source_rows(model, joint, texts)
    found, scores = model.generate(
        np.where(rows == 0, pad_id, rows), num_beams=3, max_length=MAX_LENGTH, jit_compile=False
    )
    expected = [[int(token) for token in row if token != pad_id] for row in found]
    tokens, their_scores = theirs(directory, joint, texts, num_beams=3)
    assert tokens == expected
    assert {row[-1] for row in tokens if len(row) < MAX_LENGTH} <= {2}
    np.testing.assert_allclose(their_scores, scores, atol=1e-3)


def test_f1_a_lora_tuned_model_is_exported_as_it_is(untrained, joint, tmp_path):
    model = Seq2SeqTransformer(untrained.config)
    model.set_weights(untrained.get_weights())
    enable_lora(model, 2)
    for weight in model.trainable_weights:
        weight.assign(np.random.default_rng(3).normal(scale=0.3, size=tuple(weight.shape)))
    export_ctranslate2(model, joint, tmp_path / "tuned")
    export_ctranslate2(merge_lora(model), joint, tmp_path / "merged")
    tuned, merged = ((tmp_path / name / "model.bin").read_bytes() for name in ("tuned", "merged"))
    assert tuned == merged


@pytest.mark.slow
def test_f9_a_quantised_model_is_refused(untrained, joint, tmp_path):
    model = Seq2SeqTransformer(untrained.config)
    model.quantize("int8", filters="query")
    with pytest.raises(ValueError, match="quantise last"):
        export_ctranslate2(model, joint, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def trained(joint):
    """A model that has learned to copy, more or less."""
    config = make_model(joint, scheme="pre_ln", share_embeddings=True).config
    model = Seq2SeqTransformer(config)
    sources = source_rows(model, joint, SOURCES)
    starts = np.full((len(sources), 1), 1)
    model.compile(
        keras.optimizers.Adam(0.01), MaskedSparseCategoricalCrossentropy(), jit_compile=False
    )
    targets = np.concatenate([starts, sources[:, :-1]], axis=1)
    model.fit({"source": sources, "target": targets}, sources, 64, epochs=25, verbose=0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [pytest.param(1, marks=pytest.mark.release), 4])
def test_same_tokens_on_500_sentences(num_beams, trained, joint, tmp_path):
    directory = export_ctranslate2(trained, joint, tmp_path / "model")
    check(trained, joint, directory, SOURCES, num_beams)


def test_forbidden_tokens_stay_forbidden(separate, tmp_path):
    """A model that prefers padding and the start token to all others generates neither."""
    model = make_model(separate)
    table = keras.ops.convert_to_numpy(model.decoder_embedding.embeddings).copy()
    final_norm = model.decoder.layers[-1].feed_forward_add_norm.post_norm
    final_norm.beta.assign(3.0 * table[5])
    table[:2] = 3.0 * table[5]
    model.decoder_embedding.embeddings.assign(table)
    texts = SOURCES[:17]
    directory = export_ctranslate2(model, separate, tmp_path / "model")
    tokens, scores = ours(model, separate, texts, 1)
    their_tokens, their_scores = theirs(directory, separate, texts, 1)
    assert their_tokens == tokens
    difference = log_share_of_the_allowed(model, separate, texts, tokens)
    assert np.all(difference < -1)
    np.testing.assert_allclose(their_scores, scores - difference, atol=1e-3)


def test_no_position_is_missing(separate, tmp_path, monkeypatch):
    """A model may have more positions than the table has at least."""
    monkeypatch.setattr("keras_addnorm.interop.ctranslate2._NUM_SINUSOIDAL_POSITIONS", 3)
    model = make_model(separate)
    directory = export_ctranslate2(model, separate, tmp_path / "model")
    check(model, separate, directory, SOURCES[:9], num_beams=1)


@pytest.mark.slow
def test_the_average_is_their_length_penalty_of_one(trained, joint, tmp_path):
    """With the end token returned, theirs divides by the number of tokens, end token included."""
    directory = export_ctranslate2(trained, joint, tmp_path / "model")
    tokens, sums = theirs(directory, joint, SOURCES[:17], 1)
    _, averages = theirs(directory, joint, SOURCES[:17], 1, length_penalty=1)
    np.testing.assert_allclose(averages, sums / [len(row) for row in tokens], rtol=1e-5)


def test_the_folder(untrained, joint, separate, tmp_path):
    directory = export_ctranslate2(untrained, joint, tmp_path / "new" / "model")
    assert directory == tmp_path / "new" / "model"
    names = {"model.bin", "config.json", "shared_vocabulary.json", "tokenizer.model", "README.md"}
    assert {path.name for path in directory.iterdir()} == {*names, IN_EXPORTS}
    assert Manifest(directory, IN_EXPORTS).read().keys() == names - {"README.md"}
    require_intact(directory)
    assert list(directory.parent.iterdir()) == [directory], "a temporary folder was left"
    # Each weight is there once, besides the positions and the fused biases of the vocabulary.
    positions = 2048 * untrained.config.hidden_dim * 4
    assert (
        directory / "model.bin"
    ).stat().st_size < 4 * untrained.count_params() + positions + 9000
    config = json.loads((directory / "config.json").read_text())
    assert config["layer_norm_epsilon"] == untrained.config.epsilon
    assert config["add_source_eos"]
    assert TokenizerPair.load(directory) == joint

    directory = export_ctranslate2(make_model(separate), separate, tmp_path / "two")
    names = {"source_vocabulary.json", "target_vocabulary.json", "source.model", "target.model"}
    assert names < {path.name for path in directory.iterdir()}
    assert len(json.loads((directory / "target_vocabulary.json").read_text())) == 47


def test_the_readme_runs_and_translates_as_we_do(untrained, joint, tmp_path, monkeypatch, capsys):
    directory = export_ctranslate2(untrained, joint, tmp_path / "model")
    readme = (directory / "README.md").read_text(encoding="utf-8")
    code = readme.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code.replace("a text", SOURCES[3]), {})
    found = translate(untrained, joint, [SOURCES[3]], num_beams=4, jit_compile=False)
    assert capsys.readouterr().out == found.texts[0] + "\n"
    assert found.texts[0]


def test_language_tokens_stand_where_the_format_says(tmp_path, monkeypatch, capsys):
    """As NLLB has them; the start is the end."""
    own = families.FAMILIES["nllb"]()
    text_format = TextFormat(source_prefix=("{source}",), target_prefix=("{target}",))
    pair = TokenizerPair(own, own, text_format)
    keras.utils.set_random_seed(5)
    model = make_model(pair, pad_id=own.pad_id, start_id=own.start_id, end_id=own.end_id)
    directory = export_ctranslate2(model, pair, tmp_path / "model")
    assert not json.loads((directory / "config.json").read_text())["add_source_eos"]
    readme = (directory / "README.md").read_text(encoding="utf-8")
    code = readme.split("```python\n")[1].split("```")[0]
    assert ".with_languages(source='eng_Latn', target='eng_Latn')" in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace("a text", "the small dog").replace("beam_size=4", "beam_size=1"), {})
    languages = {"source_language": "eng_Latn", "target_language": "eng_Latn"}
    found = translate(model, pair, ["the small dog"], "greedy", jit_compile=False, **languages)
    assert capsys.readouterr().out == found.texts[0] + "\n"
    assert found.texts[0]


def test_a_failure_leaves_nothing(untrained, joint, tmp_path, monkeypatch):
    monkeypatch.setattr(TokenizerPair, "save", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        export_ctranslate2(untrained, joint, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    "scheme": ({"scheme": "rezero"}, "scheme.*'PreLN'.*Received: 'ReZero'"),
    "activation": ({"activation": "elu"}, "activation.*'relu'.*Received: 'elu'"),
    "norm": ({"norm": {"encoder": "layer_norm", "decoder": "scale_norm"}}, "norm in the decoder"),
    "attention": ({"attention": {"num_key_value_heads": 1}}, "attention.*num_key_value_heads=1"),
    "norm of embeddings": (
        {"embedding_norm": "rms_norm"},
        "embedding_norm in the encoder. Expected 'layer_norm'. Received: 'rms_norm'",
    ),
    "relative positions": ({"positions": "alibi"}, "positions.*Received: 'alibi'"),
    "several at once": (
        {"scheme": "rezero", "positions": "alibi"},
        "scheme.*Received: 'ReZero'.*positions.*Received: 'alibi'.*export_saved_model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_said_is_named(case, separate, tmp_path):
    fields, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        export_ctranslate2(make_model(separate, **fields), separate, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ssru", "average_attention"])
def test_another_self_attention_is_refused_by_name(kind, untrained, joint, tmp_path, monkeypatch):
    config = dataclasses.replace(untrained.config, self_attention=kind)
    monkeypatch.setattr(untrained, "config", config)
    with pytest.raises(ValueError, match=f"cannot say this model's self_attention.*'{kind}'"):
        export_ctranslate2(untrained, joint, tmp_path / "model")


SAID = ("post_ln", "ds_init", "deep_norm", "pre_ln", "layer_scale", "sandwich_ln", "peri_ln")


@pytest.mark.parametrize("scheme", [name for name in schemes.names() if name not in SAID])
def test_every_other_scheme_is_refused_by_name(scheme, untrained, joint, tmp_path, monkeypatch):
    config = dataclasses.replace(untrained.config, scheme=scheme)
    monkeypatch.setattr(untrained, "config", config)
    name = type(schemes.get(scheme)).__name__
    with pytest.raises(ValueError, match=f"cannot say this model's scheme.*Received: '{name}'"):
        export_ctranslate2(untrained, joint, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["positions", "a field of the future"])
def test_what_is_not_known_is_named(field, untrained, joint, tmp_path):
    """Also what does not exist yet: a new field of the config is refused unless it is off."""

    @dataclasses.dataclass(frozen=True)
    class Config(Seq2SeqConfig):
        novelty: str | None = None

    changes = {"novelty" if field.startswith("a ") else field: "new"}
    config = Config(**untrained.config.to_dict())
    for name, value in changes.items():
        object.__setattr__(config, name, value)
    model = Seq2SeqTransformer(untrained.config)
    model.config = config
    with pytest.raises(ValueError, match=rf"{next(iter(changes))}\. Expected.*Received: 'new'"):
        export_ctranslate2(model, joint, tmp_path / "model")


def test_every_file_is_on_the_disk_before_the_folder_has_its_name(
    untrained, joint, tmp_path, monkeypatch
):
    events, flush, rename = [], os.fsync, os.rename

    def fsync(descriptor):
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    def move(old, new):
        events.append(f"to {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", move)
    folder = export_ctranslate2(untrained, joint, tmp_path / "model")
    flushed = {path.name for path in events[: events.index("to model")]}
    assert {path.name for path in folder.iterdir()} <= flushed
    assert events[-1] == tmp_path


def test_errors(untrained, joint, separate, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer.*Received: a int"):
        export_ctranslate2(3, joint, tmp_path / "model")
    with pytest.raises(ValueError, match=r"source vocabulary of 61 pieces. Received: 43"):
        export_ctranslate2(untrained, separate, tmp_path / "model")
    with pytest.raises(FileExistsError, match="it exists"):
        export_ctranslate2(untrained, joint, tmp_path)

    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match=r"pip install .*\[ctranslate2\]"):
        export_ctranslate2(untrained, joint, tmp_path / "model")
