"""Marian itself, and Bergamot's engine under Node, read what we write. Both are optional.

`pymarian` 1.12.42 (600 MB) is looked for in this Python. Of the npm package
`@browsermt/bergamot-translator` 0.4.9 the folder `node_modules` is: in the working directory, or in
a folder that `NODE_PATH` names; `node` runs it.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import make_marian_students
import marian_formula
import numpy as np
import pytest
from bergamot_models import engine_folder, our_model, simulated

from keras_addnorm import cli
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.decoding import Greedy, Lexicon
from keras_addnorm.interop import (
    GenerationSettings,
    Pretrained,
    export_bergamot,
    families,
    load_pretrained,
    save_pretrained,
)

pytestmark = pytest.mark.release

STUDENTS = Path(__file__).parent / "students"
HERE = Path(__file__).parent


@pytest.fixture
def marian():
    if importlib.util.find_spec("_pymarian") is None:
        pytest.skip("pymarian 1.12.42 is not installed")

    def run(*arguments):
        program = [sys.executable, make_marian_students.__file__, *map(str, arguments)]
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.fixture(scope="module")
def translate_in_engine(tmp_path_factory):
    """Translates lines with a folder that `export_bergamot` wrote."""
    package = engine_folder()
    if shutil.which("node") is None:
        pytest.skip("Node is missing")
    # Node takes the worker for what its package says, and it is not.
    worker = shutil.copytree(package / "worker", tmp_path_factory.mktemp("engine") / "worker")
    (worker / "package.json").write_text('{"type": "commonjs"}')

    def translate(folder, lines):
        program = ["node", str(HERE / "bergamot.cjs"), str(worker / "translator-worker.js")]
        text = "\n".join(lines) + "\n"
        ran = subprocess.run(
            [*program, str(folder)], input=text, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return [line.strip() for line in ran.stdout.removesuffix("\n").split("\n")]

    return translate


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_marian_students.corpus_in(tmp_path_factory.mktemp("corpus"))


def lines_of(corpus, name, count):
    """Single sentences: the engine would split others."""
    lines = (corpus / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if ". " not in line][:count]


def test_the_test_data_can_be_made_again(marian, tmp_path):
    marian(tmp_path)
    said = json.loads((tmp_path / "marian.json").read_text(encoding="utf-8"))
    for kind in ("ssru", "average_attention"):
        pretrained = load_pretrained(tmp_path / f"{kind}.npz")
        found = pretrained.translate(said["sources"], num_beams=1, batch_size=200).texts
        assert [each.strip() for each in found] == [each.strip() for each in said[kind]["outputs"]]


@pytest.mark.parametrize("kind", ["ssru", "average_attention"])
def test_marian_reads_its_model_from_us(marian, tmp_path, kind):
    """Trained by Marian, read and written here: its scores are the same, digit for digit."""
    said = json.loads((STUDENTS / "marian.json").read_text(encoding="utf-8"))
    folder = save_pretrained(load_pretrained(STUDENTS / f"{kind}.npz"), tmp_path / "ours")
    lines = said["sources"][:20]
    places = folder / "model.npz", folder / "vocab.spm"
    found = json.loads(marian(*places, json.dumps(lines)).splitlines()[-1])
    assert [scores for _, scores in found] == said[kind]["scores"]


@pytest.mark.parametrize(
    ("cell", "scheme"),
    [
        ("multi_head_attention", "post_ln"),
        ("multi_head_attention", "pre_ln"),
        ("ssru", "pre_ln"),
        ("average_attention", "post_ln"),
    ],
)
def test_marian_reads_models_of_our_own(marian, corpus, tmp_path, cell, scheme):
    lines = lines_of(corpus, "test.en", 20)
    tokenizer = Tokenizer.train(lines_of(corpus, "train.en", 999), vocabulary_size=211)
    model = our_model(tokenizer, self_attention=cell, scheme=scheme)
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(to_numpy(weight) + generator.normal(0, 0.1, weight.shape))
    made = Pretrained(
        model,
        TokenizerPair.of(tokenizer),
        GenerationSettings(Greedy(), 96),
        families.get("marian_npz"),
    )
    folder = save_pretrained(made, tmp_path / "ours")
    places = folder / "model.npz", folder / "vocab.spm"
    found = json.loads(marian(*places, json.dumps(lines)).splitlines()[-1])
    assert len(found) == len(lines)
    if scheme == "pre_ln":  # It is read, names and all; the formula is of Post-LN.
        return
    read = load_pretrained(folder)
    formula = marian_formula.Formula(marian_formula.tensors_of(folder / "model.npz"), heads=4)
    pieces = read.tokenizers.source
    sources = [pieces.encode(line) for line in lines]
    targets = formula.greedy(sources, [len(scores) for _, scores in found])
    pad = read.model.config.pad_id
    for source, target, (text, scores) in zip(sources, targets, found, strict=True):
        assert pieces.decode(target).strip() == text.strip()
        ids = {"source": np.array([[*source, 0]]), "target": np.array([[pad, *target]])}
        ours = marian_formula.log_softmax(to_numpy(read.model(ids))[0].astype("float64"))
        ours = ours[range(len(target) + 1), [*target, 0]][: len(scores)]
        # Random numbers and over a hundred steps; Marian writes five decimals.
        np.testing.assert_allclose(ours, scores, rtol=0, atol=1e-4)


def test_the_engine_does_what_eight_bits_do(translate_in_engine, corpus, tmp_path):
    """A student that was trained here on 5,000 pairs; 1,000 sentences, token for token."""
    settings = {
        "model.preset": "micro",
        "model.hidden_dim": 64,
        "model.intermediate_dim": 128,
        "model.scheme": "post_ln",
        "model.activation": "relu",
        "model.self_attention": "ssru",
        "model.start_embedding": "zeros",
        "model.logits_bias": True,
        "model.share_embeddings": True,
        "model.dropout": 0.0,
        "model.positions": {
            "name": "sinusoidal",
            "layout": "halves",
            "timescales": "half_minus_one",
        },
        "tokenizer.vocabulary_size": 403,
        "tokenizer.joint": True,
        "training.epochs": 16,
    }
    run = tmp_path / "run"
    places = ["--data", str(corpus), "--source", "en", "--target", "de"]
    flags = [each for name, value in settings.items() for each in ("--set", _setting(name, value))]
    assert cli.main(["train", str(run), *places, *flags]) == 0
    folder = tmp_path / "engine"
    assert cli.main(["export", str(run), str(folder), "--format", "bergamot"]) == 0
    (folder / "engine.json").write_text('{"gemm-precision": "int8shiftAlphaAll"}')
    lines = lines_of(corpus, "train.en", 1000)
    found = translate_in_engine(folder, lines)
    expected = simulated(folder, lines, 128)
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= 0.99 * len(lines)
    assert len({*found}) > len(lines) / 2  # They are translations, and not one text.

    # A shortlist leaves tokens out; what it has, the engine still finds.
    shorter = tmp_path / "shorter"
    flags = ["--format", "bergamot", "--shortlist", "200"]
    assert cli.main(["export", str(run), str(shorter), *flags]) == 0
    (shorter / "engine.json").write_text((folder / "engine.json").read_text())
    same = sum(a == b for a, b in zip(translate_in_engine(shorter, lines), found, strict=True))
    assert same >= 0.95 * len(lines)


def test_without_samples_the_engine_measures_each_batch(translate_in_engine, corpus, tmp_path):
    lines = lines_of(corpus, "test.en", 20)
    tokenizer = Tokenizer.train(lines_of(corpus, "train.en", 999), vocabulary_size=211)
    model = our_model(tokenizer, self_attention="average_attention", scheme="post_ln")
    lexicon = Lexicon(np.zeros((211, 1), int), np.zeros((211, 1)), np.full(211, 1e6))
    folder = export_bergamot(model, tokenizer, tmp_path / "engine", lexicon=lexicon)
    (folder / "engine.json").write_text('{"gemm-precision": "int8shiftAll"}')
    found = translate_in_engine(folder, lines)
    assert len(found) == len(lines)


def _setting(name, value):
    return f"{name}={json.dumps(value) if not isinstance(value, dict) else _table(value)}"


def _table(value):
    return "{" + ", ".join(f"{key} = {json.dumps(each)}" for key, each in value.items()) + "}"
