import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from exported import MAX_LENGTH, OPTIONS, make_model

from keras_addnorm.basics import atomic_folder
from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import translate
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.serving import export, export_saved_model, load_translator
from keras_addnorm.serving.signatures import TranslationModule
from keras_addnorm.serving.versions import choose_version, existing_versions


@pytest.fixture(scope="module")
def tokenizers(toy):
    return toy.tokenizers


@pytest.fixture(scope="module")
def model(toy):
    return toy.model


@pytest.fixture(scope="module")
def directory(toy):
    assert toy.path.name == "1"
    return toy.path.parent


@pytest.fixture(scope="module")
def expected(model, tokenizers, inputs):
    return translate(model, tokenizers, inputs, **OPTIONS, jit_compile=False)


@pytest.fixture(scope="module")
def inputs(texts):
    long = "Schävei mon " * 40
    return [*texts[:13], "", "  \t", "日本", "ｂａ ﬁ", long, "a\nb"]


def test_equals_translate(translator, expected, inputs):
    translations = translator(inputs)
    assert [translation.text for translation in translations] == expected.texts
    np.testing.assert_allclose(
        [translation.score for translation in translations], expected.scores, atol=1e-5
    )
    assert len(set(expected.texts)) > 4, "the toy model must tell texts apart"


def test_blank_texts_give_nothing_with_score_zero(translator):
    for batch in (["", " ", "\n"], ["", "ba", "\t\n"]):
        translations = translator(batch)
        assert translations[0] == translations[2] == ("", 0.0)
    assert translator([]) == []


def test_a_batch_neighbour_changes_nothing(translator, inputs):
    (alone,) = translator(inputs[3:4])
    together = translator(inputs)[3]
    assert alone.text == together.text
    assert alone.score == pytest.approx(together.score, abs=1e-5)


def test_u1_long_texts_are_divided(translator, tokenizers):
    longest = MAX_LENGTH - 1
    assert tokenizers.source.encode("mon " * longest) == longest * tokenizers.source.encode("mon")
    (long, part, rest) = translator(["mon " * (2 * longest + 3), "mon " * longest, "mon mon mon"])
    assert long.text == f"{part.text} {part.text} {rest.text}"
    (endless,) = translator(["ba" * 1_000])
    assert np.isfinite(endless.score)


def test_an_empty_batch_of_the_signature(module):
    out = module.signatures["serving_default"](texts=tf.zeros([0], tf.string))
    assert out["translations"].shape == out["scores"].shape == (0,)


def test_signature(module):
    signature = module.signatures["serving_default"]
    arguments = signature.structured_input_signature[1]
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in arguments.items()} == {
        "texts": ([None], tf.string)
    }
    outputs = signature.structured_outputs
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in outputs.items()} == {
        "translations": ([None], tf.string),
        "scores": ([None], tf.float32),
    }


SERVER = """
    import ctypes, json, pathlib, sys

    BLOCKED = "keras", "tf_keras", "keras_addnorm", "sentencepiece"
    sys.modules.update(dict.fromkeys(BLOCKED))  # importing one raises ModuleNotFoundError
    import tensorflow as tf

    # As TensorFlow Serving does before it loads anything.
    library = next(pathlib.Path(tf.__file__).parent.glob("libtensorflow_cc.so.*"))
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    texts = json.load(sys.stdin)
    translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
    out = translate(texts=tf.constant(texts))
    assert not any(name.split(".")[0] in BLOCKED and sys.modules[name] for name in sys.modules)
    print(json.dumps([[t.decode() for t in out["translations"].numpy()],
                      out["scores"].numpy().tolist()]))
"""


@pytest.mark.slow
def test_it_answers_in_a_process_without_keras_and_without_xla(directory, expected, inputs):
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SERVER), str(directory / "1")],
        input=json.dumps(inputs),
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    texts, scores = json.loads(answer.stdout.splitlines()[-1])
    assert texts == expected.texts
    np.testing.assert_allclose(scores, expected.scores, atol=1e-5)


@pytest.mark.slow
def test_a_joint_tokenizer_and_greedy_search(texts, tmp_path):
    tokenizer = Tokenizer.train(texts, vocabulary_size=101, kind="bpe")
    model = make_model(
        101,
        101,
        share_embeddings=True,
        positions="learned",
        embedding_norm="layer_norm",
        logits_bias=True,
        head_dim=5,
        scheme="pre_ln",
        max_length=16,
    )
    export_saved_model(model, tokenizer, tmp_path, num_beams=1, length_penalty=0.0)
    expected = translate(model, tokenizer, texts[:5], jit_compile=False)
    translator = load_translator(tmp_path)
    translations = translator(texts[:5])
    assert [translation.text for translation in translations] == expected.texts
    np.testing.assert_allclose(
        [translation.score for translation in translations], expected.scores, atol=1e-5
    )
    # Clients find a list of hypotheses in `translate_nbest`, even where it has one.
    found = translator._module.signatures["translate_nbest"](texts=tf.constant(texts[:5]))
    assert [text.decode() for (text,) in found["translations"].numpy()] == expected.texts
    np.testing.assert_allclose(found["scores"][:, 0], expected.scores, atol=1e-5)
    assert found["alignments"].shape == found["pieces"].shape
    assert found["pieces"].shape[:2] == (5, 1) and found["pieces"].shape[2] >= 16
    # One hypothesis needs no beam.
    strategies = translator.card["decoding"]["strategies"].values()
    assert {strategy["name"] for strategy in strategies} == {"greedy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["ssru", pytest.param("average_attention", marks=pytest.mark.release)]
)
def test_a_decoder_with_a_state_of_fixed_size(kind, texts, tmp_path):
    """With XLA and without: beams whose states are reordered."""
    tokenizer = Tokenizer.train(texts, vocabulary_size=101, kind="bpe")
    model = make_model(101, 101, self_attention=kind, scheme="rezero", max_length=16)
    path = export_saved_model(model, tokenizer, tmp_path, num_beams=3, length_penalty=0.0)
    # Searches without XLA have their single-threaded loop for few rows.
    assert b"_of_few_rows" in (path / "saved_model.pb").read_bytes()
    expected = translate(model, tokenizer, texts[:5], num_beams=3, length_penalty=0.0)
    translator = load_translator(tmp_path)
    for signature in ("serving_default", "translate_xla"):
        found = translator._module.signatures[signature](texts=tf.constant(texts[:5]))
        assert [text.decode() for text in found["translations"].numpy()] == expected.texts
        np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-4)


def end_tapers(model):
    """As if `TAPERED` had been trained."""
    for weight in model.weights:
        if weight.path.endswith(("/step", "/mean_size", "/mean_square")):
            weight.assign(2.0 if weight.path.endswith("/step") else 0.5)


TAPERED = {"name": "taper_norm", "calibration_steps": 1, "taper_steps": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {
            "scheme": {"name": "pro_res", "of": "deep_delta", "warmup_steps": 3},
            "norm": {"encoder": TAPERED, "decoder": "bhyt"},
        },
        *(
            pytest.param({"scheme": name}, marks=pytest.mark.release)
            for name in ("siamese_norm", "krom_hc", "dlcl")
        ),
    ],
    ids=str,
)
def test_schemes_and_norms_of_2026_with_xla_and_without(choices, texts, tmp_path):
    tokenizer = Tokenizer.train(texts, vocabulary_size=101, kind="bpe")
    model = make_model(101, 101, **choices, max_length=16)
    end_tapers(model)
    export_saved_model(model, tokenizer, tmp_path, num_beams=3, length_penalty=0.0)
    expected = translate(model, tokenizer, texts[:5], num_beams=3, length_penalty=0.0)
    translator = load_translator(tmp_path)
    for signature in ("serving_default", "translate_xla"):
        found = translator._module.signatures[signature](texts=tf.constant(texts[:5]))
        assert [text.decode() for text in found["translations"].numpy()] == expected.texts
        np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-4)


def test_the_card_and_the_readme(directory, translator, model, tokenizers):
    card = translator.card
    assert Seq2SeqConfig.from_dict(card["config"]) == model.config
    assert card["parameters"] == model.count_params()
    assert card["tokenizer"] == {
        "joint": False,
        "source": {"kind": "unigram", "vocabulary_size": 101, "normalization": "nfc"},
        "target": {"kind": "bpe", "vocabulary_size": 89, "normalization": "nfc"},
    }
    assert card["storage"] == "float32"
    assert card["decoding"]["max_length"] == OPTIONS["max_length"]
    strategies = card["decoding"]["strategies"]
    assert {name: strategy["num_return"] for name, strategy in strategies.items()} == {
        "translate": 1,
        "translate_nbest": 3,
    }
    assert card["versions"]["tensorflow"] == tf.__version__
    readme = (directory / "1" / "assets.extra" / "README.md").read_text("utf-8")
    assert "| `serving_default` | `texts`: string [?] | `translations`: string [?]," in readme
    assert "| `score` | `source`: string [?], `target`: string [?] | `scores`: float32" in readme
    assert card["decoding"]["splitting"] == {"name": "sentences", "language": None}
    assert "toy/1" in readme and "it is split into lines and sentences" in readme
    assert not re.search(r"\{\w*\}", readme)
    assert str(Path.home()) not in readme and str(directory.parent) not in readme


@pytest.fixture
def no_functions(monkeypatch):
    """Exports trace nothing: what is written does not matter where it is about folders."""
    monkeypatch.setattr(TranslationModule, "signatures", lambda module: {})
    monkeypatch.setattr(export, "optimize_graph", lambda folder: None)
    monkeypatch.setattr(export, "write_extras", lambda *_: None)


@pytest.mark.usefixtures("no_functions")
def test_versions_count_up_and_are_never_overwritten(model, tokenizers, tmp_path, monkeypatch):
    def save(module, path, **_):
        (Path(path) / "saved_model.pb").write_bytes(b"")

    monkeypatch.setattr(tf.saved_model, "save", save)

    def export(version=None):
        return export_saved_model(model, tokenizers, tmp_path, version).name

    assert [export(), export(), export(9), export()] == ["1", "2", "9", "10"]
    (tmp_path / "77").write_text("a file")
    others = {"notes", "007", "١٢", "²", f"{2**63}"}
    for name in others:
        (tmp_path / name).mkdir()
    assert export() == "11"
    with pytest.raises(FileExistsError, match=r"Version 9 exists already.*never overwritten"):
        export(9)
    for wrong in (0, -1, "3", True, 1.0, 2**63):
        with pytest.raises(ValueError, match="A version has a positive number"):
            export(wrong)
    with pytest.raises(NotADirectoryError, match="it is a file"):
        export_saved_model(model, tokenizers, tmp_path / "77")
    (tmp_path / "78").symlink_to("nowhere")
    with pytest.raises(NotADirectoryError, match="a link that leads nowhere"):
        export_saved_model(model, tokenizers, tmp_path / "78")
    with pytest.raises(FileExistsError, match="Version 78 exists already"):
        export(78)
    assert existing_versions(tmp_path) == [1, 2, 9, 10, 11]
    versions = {"1", "2", "9", "10", "11"}
    assert {path.name for path in tmp_path.iterdir()} == versions | others | {"77", "78"}


class SeenError(Exception):
    """Ends an export with the model that would be written."""


def test_only_a_model_with_gains_is_built_anew(model, tokenizers, tmp_path, monkeypatch):
    def look(model, *_):
        raise SeenError(model)

    def written(model):
        with pytest.raises(SeenError) as seen:
            export_saved_model(model, tokenizers, tmp_path)
        return seen.value.args[0]

    monkeypatch.setattr(export, "TranslationModule", look)
    assert written(model) is model
    scaled = make_model(101, 89, scheme="layer_scale")
    assert written(scaled).config.scheme == {"name": "pre_ln"}
    tapering = make_model(101, 89, norm=TAPERED)
    end_tapers(tapering)
    folded = {**TAPERED, "is_folded": True}
    assert written(tapering).config.norm == {"encoder": folded, "decoder": folded}


@pytest.mark.usefixtures("no_functions")
def test_a_failed_export_leaves_nothing(model, tokenizers, tmp_path, monkeypatch):
    def fail(module, path, **_):
        (Path(path) / "half").write_bytes(b"")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        export_saved_model(model, tokenizers, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_functions")
def test_a_version_that_appears_meanwhile_wins(model, tokenizers, tmp_path, monkeypatch):
    def save(module, path, **_):
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "theirs").write_bytes(b"")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(FileExistsError, match="1': it exists already"):
        export_saved_model(model, tokenizers, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "theirs"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_a_version_that_cannot_be_written_is_not_said_to_exist(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match=os.strerror(number)) as raised, atomic_folder(tmp_path / "1"):
        pass
    assert raised.value.errno == number and list(tmp_path.iterdir()) == []


CRASH = """
    import os, signal, sys
    from pathlib import Path
    from keras_addnorm.basics import atomic_folder

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    _, directory, moment = sys.argv
    if moment != "writing":
        setattr(os, moment, die)
    with atomic_folder(Path(directory, "2")) as folder:
        (folder / "saved_model.pb").write_bytes(b"half of it")
        if moment == "writing":
            die()
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["writing", "fsync", "rename"])
def test_an_export_that_is_killed_adds_no_version(tmp_path, moment):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "theirs").write_bytes(b"as it was")
    code = [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path), moment]
    assert subprocess.run(code, check=False).returncode == -signal.SIGKILL
    assert existing_versions(tmp_path) == [1] and choose_version(tmp_path, None) == 2
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["theirs"]
    (left,) = (path.name for path in tmp_path.iterdir() if path.name != "1")
    assert left.startswith(".2-")  # hidden: servers look for numbers
    # The next export removes it: its writer is gone, and with it the lock.
    with atomic_folder(tmp_path / "2"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}


def test_bad_arguments(model, tokenizers, tmp_path, monkeypatch):
    def export(model=model, tokenizers=tokenizers, **options):
        return export_saved_model(model, tokenizers, tmp_path / "new", **options)

    with pytest.raises(TypeError, match=r"Expected a Seq2SeqTransformer. Received: a int"):
        export(model=7)
    with pytest.raises(TypeError, match="Expected a TokenizerPair, or one Tokenizer"):
        export(tokenizers="t.model")
    with pytest.raises(ValueError, match=r"a target vocabulary of 89 pieces. Received: 101"):
        export(tokenizers=tokenizers.source)
    with pytest.raises(ValueError, match="other special ids"):
        export(model=make_model(101, 89, pad_id=2, end_id=0))
    for options in ({"num_beams": 0}, {"num_beams": 1.5}, {"max_length": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            export(**options)
    with pytest.raises(ValueError, match=r"learned positions.*max_length <= 11"):
        export(model=make_model(101, 89, positions="learned"), max_length=12)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match=r"runs on 'jax'.*KERAS_BACKEND=tensorflow"):
        export()
    assert not (tmp_path / "new").exists()


def test_the_highest_version_is_loaded(directory, translator, tmp_path):
    assert translator.version == 1 and translator.path == directory / "1"
    assert repr(translator) == f"Translator('{directory / '1'}')"
    module = tf.Module()
    module.serve = tf.function(lambda texts: texts, [tf.TensorSpec([None], tf.string)])
    for version in (3, 12):
        tf.saved_model.save(module, str(tmp_path / str(version)), module.serve)
    assert load_translator(tmp_path).version == 12
    older = load_translator(tmp_path / "3")
    assert older.version == 3 and older.card == {}


def test_bad_input_to_the_translator(translator):
    with pytest.raises(TypeError, match=r"Expected several texts. Received: one"):
        translator("one text")
    with pytest.raises(TypeError, match=r"Expected a text of type str. Received: int 7"):
        translator(["a", 7])


def test_nothing_to_load(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no exported model in .*no such folder"):
        load_translator(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"such as .*found \[\]"):
        load_translator(tmp_path)
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="holds no translation model"):
        load_translator(tmp_path)
    tf.saved_model.save(tf.Module(), str(tmp_path / "2"))
    with pytest.raises(ValueError, match="signature 'serving_default'"):
        load_translator(tmp_path)
