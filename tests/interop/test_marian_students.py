"""Students that Marian trained: its scores, its outputs, its bytes; and files that are damaged.

`make_marian_students.py` made the files of `students/`.
"""

import contextlib
import dataclasses
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import marian_formula
import numpy as np
import pytest
from make_marian_students import (
    BEST,
    FIRST,
    HEADS,
    VOCABULARY,
    hash_of_numbers,
    translations_of,
)

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.decoding import Greedy, Lexicon, translate
from keras_addnorm.decoding.constraints import MaxLength
from keras_addnorm.interop import (
    GenerationSettings,
    Pretrained,
    export_bergamot,
    families,
    load_pretrained,
    save_pretrained,
)
from keras_addnorm.interop.families import marian_shortlist
from keras_addnorm.interop.families.marian_shortlist import read_shortlist, write_shortlist
from keras_addnorm.interop.tensor_files import (
    DamagedFileError,
    EightBitMatrix,
    StoredEightBitMatrix,
    read_marian_bin,
    read_npz,
    write_marian_bin,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora
from keras_addnorm.runs.export import export
from keras_addnorm.runs.pretrained_run import import_pretrained
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.serving import Client, load_translator

STUDENTS = Path(__file__).parent / "students"
SAID = json.loads((STUDENTS / "marian.json").read_text(encoding="utf-8"))
KINDS = ("ssru", "average_attention")
SETTINGS = "special:model.yml"


@pytest.fixture(scope="module", params=KINDS)
def student(request):
    return request.param, load_pretrained(STUDENTS / f"{request.param}.npz")


def padded(rows, pad):
    width = max(map(len, rows))
    return np.array([[*row, *[pad] * (width - len(row))] for row in rows], "int32")


def test_log_probabilities_are_those_of_marian(student):
    """Marian writes them with five decimals, so 5e-6 of a difference are its rounding."""
    kind, pretrained = student
    formula = marian_formula.Formula(
        marian_formula.tensors_of(STUDENTS / f"{kind}.npz"), HEADS[kind]
    )
    scores = SAID[kind]["scores"]
    lines = SAID["sources"][: len(scores)]
    sources = [pretrained.tokenizers.source.encode(line) for line in lines]
    targets = formula.greedy(sources, list(map(len, scores)))
    texts = [pretrained.tokenizers.target.decode(target).strip() for target in targets]
    assert texts == [text.strip() for text in SAID[kind]["outputs"][: len(scores)]]

    pad = pretrained.model.config.pad_id
    logits = pretrained.model(
        {
            "source": padded([[*source, 0] for source in sources], pad),
            "target": padded([[pad, *target] for target in targets], pad),
        }
    )
    ours = marian_formula.log_softmax(to_numpy(logits).astype("float64"))
    assert np.all(ours[..., pad] < -50)
    for row, target, expected in zip(ours, targets, scores, strict=True):
        found = row[range(len(expected)), [*target, 0][: len(expected)]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1.5e-5)


@pytest.mark.slow
def test_outputs_are_those_of_marian(student):
    kind, pretrained = student
    found = pretrained.translate(SAID["sources"], num_beams=1, batch_size=200).texts
    assert [text.strip() for text in found] == [text.strip() for text in SAID[kind]["outputs"]]


def test_a_model_goes_back_with_marians_numbers(student, tmp_path):
    kind, pretrained = student
    folder = save_pretrained(pretrained, tmp_path / "again")
    before, after = (
        marian_formula.tensors_of(STUDENTS / f"{kind}.npz"),
        marian_formula.tensors_of(folder / "model.npz"),
    )
    assert {*before} == {*after}
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert (folder / "vocab.spm").read_bytes() == (STUDENTS / "vocab.spm").read_bytes()
    again = load_pretrained(folder)
    assert again.model.config == pretrained.model.config
    # Its shortlist would hold nearly all tokens, and is not written.
    assert again.generation == dataclasses.replace(pretrained.generation, not_followed=())
    assert again.tokenizers == pretrained.tokenizers


def test_a_bin_is_what_marian_makes_of_the_npz(tmp_path):
    tensors = {name: each.read() for name, each in read_npz(STUDENTS / "ssru.npz").items()}
    tensors[SETTINGS] = tensors[SETTINGS].tobytes()
    path = tmp_path / "model.bin"
    write_marian_bin(path, tensors)
    assert hash_of_numbers(path) == SAID["sha256 of ssru.bin"]
    shutil.copy(STUDENTS / "vocab.spm", tmp_path)
    npz, binary = load_pretrained(STUDENTS / "ssru.npz"), load_pretrained(tmp_path)
    for weight, expected in zip(binary.model.weights, npz.model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(expected), err_msg=weight.path)
    # Such a file is made for an engine that searches so.
    assert isinstance(binary.generation.strategy, Greedy)
    assert MaxLength(1, source_factor=2.0) in binary.generation.constraints


def test_eight_bits_come_back_bit_for_bit(tmp_path):
    generator = np.random.default_rng(0)
    tensors = {
        "Wemb": EightBitMatrix.of(generator.normal(size=(11, 7))),
        "decoder_l1_rnn_W": EightBitMatrix.of(generator.normal(size=(7, 5))),
        "nothing": EightBitMatrix.of(np.zeros((2, 3))),
        "b": generator.normal(size=(1, 13)).astype("float32"),
        SETTINGS: b"type: transformer\n\0",
    }
    path = tmp_path / "model.bin"
    write_marian_bin(path, tensors)
    found = read_marian_bin(path)
    assert found.keys() == tensors.keys()
    for name in ("Wemb", "decoder_l1_rnn_W", "nothing"):
        matrix, expected = found[name].matrix(), tensors[name]
        np.testing.assert_array_equal(matrix.integers, expected.integers)
        assert matrix.multiplier == expected.multiplier
        np.testing.assert_array_equal(found[name].floats(), expected.integers / expected.multiplier)
    np.testing.assert_array_equal(found["b"].read(), tensors["b"])
    assert found[SETTINGS].read().tobytes() == tensors[SETTINGS]
    # In the file a column stands side by side, but in the table of tokens a row.
    content = path.read_bytes()
    assert tensors["Wemb"].integers.tobytes() in content
    assert tensors["decoder_l1_rnn_W"].integers.T.tobytes() in content


def test_a_binary_shortlist_is_marians(tmp_path):
    lexicon = read_shortlist(STUDENTS / "lex.bin", VOCABULARY + 1, VOCABULARY + 1)
    assert lexicon.candidates.shape == (VOCABULARY + 1, BEST)
    for token in range(VOCABULARY):
        listed = lexicon.candidates[token][lexicon.probabilities[token] > 0]
        assert {*listed} <= {*translations_of(token)[:BEST]}, token
    assert np.flatnonzero(lexicon.frequencies).tolist() == list(range(FIRST))
    ids = range(VOCABULARY)
    write_shortlist(tmp_path / "lex.bin", lexicon, ids, ids, VOCABULARY)
    assert (tmp_path / "lex.bin").read_bytes() == (STUDENTS / "lex.bin").read_bytes()
    write_shortlist(tmp_path / "all.bin", None, ids, ids, VOCABULARY)
    every = read_shortlist(tmp_path / "all.bin", VOCABULARY + 1, VOCABULARY + 1)
    assert np.count_nonzero(every.frequencies) == VOCABULARY


def test_one_long_list_does_not_take_the_memory_of_all(tmp_path):
    """One list of 1,024 among 30,000 tokens: 0.25 MB on the disk, 245 MB of arrays."""
    size = 30_000
    offsets = np.full(size + 1, 1024, "<u8")
    offsets[0] = 0
    path = tmp_path / "lex.bin"
    marian_shortlist._write(path, 100, 1024, offsets, np.arange(1024, dtype="<u4"))
    with pytest.raises(ValueError, match="far more memory than the file has bytes") as refusal:
        read_shortlist(path, size + 1, size + 1)
    assert len(str(refusal.value)) < 500
    short = np.minimum(offsets, 100)
    marian_shortlist._write(path, 100, 100, short, np.arange(100, dtype="<u4"))
    assert read_shortlist(path, size + 1, size + 1).candidates.shape == (size + 1, 100)


def test_a_shortlist_is_in_our_ids_and_goes_out_in_marians(tmp_path):
    """Ours begin with padding, start, end and unknown: 2 and 3 are Marian's 0 and 1."""
    candidates, probabilities = np.array([[4, 5]] * 6), np.ones((6, 2))
    probabilities[4, 1] = 0
    lexicon = Lexicon(candidates, probabilities, np.zeros(6))
    write_shortlist(tmp_path / "lex.bin", lexicon, [2, 3, 4, 5], [2, 3, 4, 5], 8)
    found = read_shortlist(tmp_path / "lex.bin", 9, 9)
    rows = zip(found.candidates, found.probabilities, strict=True)
    lists = [row[kept > 0].tolist() for row, kept in rows]
    assert lists == [[2, 3], [2, 3], [2], [2, 3], [], [], [], [], []]


BIN = "model.bin"


@pytest.fixture
def binary(tmp_path):
    tensors = {
        "Wemb": EightBitMatrix.of(np.arange(12.0).reshape(4, 3)),
        "b": np.ones((1, 5)),
        SETTINGS: b"type: transformer\0",
    }
    write_marian_bin(tmp_path / BIN, tensors)
    return tmp_path / BIN


@pytest.mark.parametrize("kept", [0, 7, 16, 40, 130, 300, 0.5, 0.99])
def test_a_bin_that_is_cut_off_is_named(binary, kept):
    content = binary.read_bytes()
    binary.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(DamagedFileError, match=r"model.bin'.*(Copy or download|again)"):
        read_marian_bin(binary)


@pytest.mark.parametrize(
    ("place", "number", "message"),
    [
        (0, 2, "its version is 2"),
        (8, 1 << 60, "it ends within its headers"),
        (8, (1 << 64) - 1, "it ends within its headers"),
        (16, 1 << 62, "it ends within its names"),
        (24, 0x10001, "type that is not known.*Received: 0x10001"),
        (32, 1 << 61, "it ends within its shapes"),
        (40, 3, "needs 16 bytes"),
        (40, 1 << 62, "is cut off"),
    ],
)
def test_a_header_of_a_bin_without_sense_is_named(binary, place, number, message):
    content = bytearray(binary.read_bytes())
    content[place : place + 8] = struct.pack("<Q", number)
    binary.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_marian_bin(binary)


def test_a_matrix_without_a_multiplier_is_named(binary):
    stored = read_marian_bin(binary)["Wemb"]
    assert isinstance(stored, StoredEightBitMatrix)
    content = bytearray(binary.read_bytes())
    content[stored.end - 4 : stored.end] = struct.pack("<f", float("nan"))
    binary.write_bytes(content)
    with pytest.raises(DamagedFileError, match="no multiplier"):
        stored.read()


@pytest.mark.parametrize(
    ("place", "message"),
    [(0, "begins with"), (8, "the checksum"), (32, "bytes, as its head says"), (-1, "checksum")],
)
def test_a_damaged_shortlist_is_named(tmp_path, place, message):
    content = bytearray((STUDENTS / "lex.bin").read_bytes())
    content[place if place >= 0 else 500] ^= 1
    path = tmp_path / "lex.bin"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=message):
        read_shortlist(path, VOCABULARY + 1, VOCABULARY + 1)
    path.write_bytes(content[:20])
    with pytest.raises(DamagedFileError, match="Received: 20"):
        read_shortlist(path, VOCABULARY + 1, VOCABULARY + 1)


def test_a_shortlist_of_another_model_is_named():
    with pytest.raises(ValueError, match=r"does not belong to the model.*lists of 100 source"):
        read_shortlist(STUDENTS / "lex.bin", 101, 101)


WIDTH = 64


def our_model(tokenizer, **fields):
    """A model of our own as Marian can have it, with random numbers everywhere."""
    size = tokenizer.vocabulary_size
    config = Seq2SeqConfig(
        size,
        size,
        num_encoder_layers=1,
        num_decoder_layers=2,
        hidden_dim=WIDTH,
        intermediate_dim=2 * WIDTH,
        num_heads=4,
        **{
            "scheme": "post_ln",
            "activation": "relu",
            "positions": {"name": "sinusoidal", "layout": "halves", "timescales": "half_minus_one"},
            "share_embeddings": True,
            "start_embedding": "zeros",
            "self_attention": "ssru",
            **fields,
        },
    )
    model = Seq2SeqTransformer(config)
    generator = np.random.default_rng(0)
    for weight in model.weights:
        noise = generator.normal(0, 0.1, weight.shape).astype("float32")
        weight.assign(to_numpy(weight) + noise)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(SAID["sources"], vocabulary_size=93)


@pytest.mark.slow
def test_an_export_for_the_engine_is_the_model_on_the_grid(tokenizer, tmp_path):
    """Its multipliers are 127 / (mean + 1.1 deviations) of the largest inputs of each product."""
    model = our_model(tokenizer)
    samples = SAID["sources"][:3]
    folder = export_bergamot(model, tokenizer, tmp_path / "engine", samples=samples)
    stored = read_marian_bin(folder / BIN)
    read = load_pretrained(folder)
    assert read.generation.shortlist is None
    assert read.generation.not_followed == (
        "the shortlist lex.bin, which would hold nearly all tokens",
    )

    order = [tokenizer.end_id, tokenizer.unknown_id, *range(4, tokenizer.vocabulary_size)]
    table = to_numpy(model.decoder_embedding.embeddings)[order]
    matrix = stored["Wemb"].matrix()
    assert matrix.integers.shape == (96, WIDTH)  # a multiple of eight
    np.testing.assert_array_equal(matrix.integers[:91], np.rint(table * 127 / np.abs(table).max()))
    assert not matrix.integers[91:].any()
    np.testing.assert_allclose(stored["Wemb"].floats()[:91], table, atol=np.abs(table).max() / 254)

    formula = marian_formula.Formula(
        {
            name: each.floats()
            for name, each in stored.items()
            if name != SETTINGS and not name.endswith("QuantMultA")
        },
        heads=4,
    )
    lines = SAID["sources"][5:9]
    theirs = [read.tokenizers.source.encode(line) for line in lines]
    # The pieces of a text are the same ones, by Marian's ids.
    assert theirs == [[order.index(token) for token in tokenizer.encode(line)] for line in lines]
    source, target = [*theirs[0], 0], theirs[1]
    pad = read.model.config.pad_id
    logits = read.model({"source": np.array([source]), "target": np.array([[pad, *target]])})
    expected = formula.log_probabilities(theirs[0], target)
    found = marian_formula.log_softmax(to_numpy(logits)[0].astype("float64"))
    np.testing.assert_allclose(
        found[range(len(target) + 1), [*target, 0]], expected, rtol=0, atol=2e-5
    )

    names = {name.removesuffix("_QuantMultA") for name in stored if name.endswith("QuantMultA")}
    matrices = {name for name, each in stored.items() if isinstance(each, StoredEightBitMatrix)}
    assert names == matrices | {"none"}
    # Measured on the model itself, before it is rounded.
    exact = save_pretrained(
        dataclasses.replace(read, model=model, tokenizers=TokenizerPair.of(tokenizer)),
        tmp_path / "npz",
    )
    formula = marian_formula.Formula(marian_formula.tensors_of(exact / "model.npz"), heads=4)
    found = translate(model, tokenizer, samples, num_beams=1, max_length=64).texts
    for line, text in zip(samples, found, strict=True):
        target = [order.index(token) for token in tokenizer.encode(text)]
        formula.log_probabilities([order.index(token) for token in tokenizer.encode(line)], target)
    for name in names:
        values = formula.largest["none" if name == "Wemb" else name]
        expected = 127 / (np.mean(values) + 1.1 * np.std(values))
        np.testing.assert_allclose(stored[f"{name}_QuantMultA"].read(), [[expected]], rtol=1e-4)


@pytest.mark.parametrize(
    ("cell", "scheme"),
    [("ssru", "post_ln"), ("average_attention", "pre_ln"), ("multi_head_attention", "post_ln")],
)
def test_a_model_of_our_own_goes_out_and_comes_back(tokenizer, tmp_path, cell, scheme):
    model = our_model(tokenizer, self_attention=cell, scheme=scheme, logits_bias=None)
    enable_lora(model, rank=2)
    made = Pretrained(
        model,
        TokenizerPair.of(tokenizer),
        GenerationSettings(Greedy(), 20),
        families.get("marian_npz"),
    )
    read = load_pretrained(save_pretrained(made, tmp_path / "npz"))
    lines = SAID["sources"][:3]
    ours, theirs = (
        [each.encode(line) for line in lines] for each in (tokenizer, read.tokenizers.source)
    )
    pad = read.model.config.pad_id
    found = read.model(
        {
            "source": padded([[*row, 0] for row in theirs], pad),
            "target": padded([[pad, *row] for row in theirs], pad),
        }
    )
    expected = model(
        {
            "source": padded([[*row, tokenizer.end_id] for row in ours], tokenizer.pad_id),
            "target": padded([[tokenizer.start_id, *row] for row in ours], tokenizer.pad_id),
        }
    )
    order = [tokenizer.end_id, tokenizer.unknown_id, *range(4, tokenizer.vocabulary_size)]
    for row, (a, b) in enumerate(zip(to_numpy(found), to_numpy(expected), strict=True)):
        length = len(ours[row]) + 1
        np.testing.assert_allclose(a[:length, :-1], b[:length, order], rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheme": "deep_norm"}, "no Add & Norm like this"),
        ({"start_embedding": "learned"}, "start_embedding = 'learned'; expected 'zeros'"),
        ({"positions": "sinusoidal"}, "positions = "),
        ({"activation": "swiglu"}, "activation = 'swiglu'; expected 'silu' or 'relu'"),
        ({"share_embeddings": False}, "one table for both sides"),
        ({"intermediate_dim": 72}, "multiples of 64"),
    ],
)
def test_what_the_engine_cannot_have_is_named(tokenizer, tmp_path, fields, message):
    sizes = fields.pop("intermediate_dim", 2 * WIDTH)
    config = dataclasses.replace(our_model(tokenizer).config, intermediate_dim=sizes, **fields)
    with pytest.raises(ValueError, match=message):
        export_bergamot(Seq2SeqTransformer(config), tokenizer, tmp_path / "engine")
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dec-cell": "gru"}, "dec-cell of the decoder = 'gru'; expected 'ssru'"),
        (
            {"transformer-rnn-projection": True},
            "transformer-rnn-projection of the decoder = True",
        ),
        (
            {"transformer-decoder-autoreg": "lstm"},
            "'lstm'; expected 'self-attention' or 'rnn' or",
        ),
    ],
)
def test_cells_of_marian_that_we_have_not_are_named(tmp_path, settings, message):
    tensors = {name: each.read() for name, each in read_npz(STUDENTS / "ssru.npz").items()}
    said = tensors[SETTINGS].tobytes().rstrip(b"\0").decode()
    for name, value in settings.items():
        kept = [line for line in said.splitlines() if not line.startswith(f"{name}:")]
        said = "\n".join([*kept, f"{name}: {json.dumps(value)}"])
    tensors[SETTINGS] = np.frombuffer(said.encode() + b"\0", np.int8)
    np.savez(tmp_path / "model.npz", **tensors)
    with pytest.raises(ValueError, match=message):
        load_pretrained(tmp_path / "model.npz", tokenizers=None)


@pytest.fixture(scope="module")
def with_shortlist(tmp_path_factory):
    """A student with a shortlist of five tokens and two for each source token, as a run."""
    folder = tmp_path_factory.mktemp("shortlist") / "student"
    folder.mkdir()
    for name in ("ssru.npz", "vocab.spm"):
        shutil.copy(STUDENTS / name, folder)
    ids = range(VOCABULARY)
    lists = np.array([translations_of(token)[:2] for token in ids])
    lexicon = Lexicon(lists, np.ones(lists.shape), np.where(np.arange(VOCABULARY) < 5, 1e6, 0))
    write_shortlist(folder / "lex.bin", lexicon, ids, ids, VOCABULARY)
    return folder, lists, import_pretrained(str(folder), folder.parent / "run")


def test_a_shortlist_comes_with_its_model_into_a_run(with_shortlist):
    """Those that are always weighed, and the lists of 32 source tokens."""
    folder, lists, pretrained = with_shortlist
    assert pretrained.generation.search.shortlist.size == 5 + 32 * 2
    run = load_run(folder.parent / "run")
    assert run.search().shortlist.size == pretrained.generation.shortlist.size
    found = run.search().shortlist.lexicon
    np.testing.assert_array_equal(found.candidates[:VOCABULARY], np.sort(lists))


@contextlib.contextmanager
def served(folder):
    """Serves a folder by the command until the end; yields the port."""
    command = [sys.executable, "-m", "keras_addnorm.cli", "serve", folder]
    with subprocess.Popen(
        [*command, "--port=0", "--grpc-port=0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = iter(process.stderr.readline, "")
            found = (re.search(r"Ready: http\D+127\.0\.0\.1:(\d+)", line) for line in lines)
            yield int(next(filter(None, found))[1])
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert process.returncode == 0, rest


@pytest.mark.release
def test_a_saved_model_of_a_student_has_the_shortlist_inside(with_shortlist):
    folder, _, _ = with_shortlist
    run = load_run(folder.parent / "run")
    lines = SAID["sources"][:3]
    search = dataclasses.replace(run.search(), strategy=Greedy(), max_length=12)
    expected = translate(run.model, run.tokenizers, lines, search=search).texts
    every = dataclasses.replace(search, shortlist=None)
    assert expected != translate(run.model, run.tokenizers, lines, search=every).texts
    run = dataclasses.replace(run, config=run.config.replace({"evaluation.max_length": 12}))
    saved = export(run, folder.parent / "saved")
    found = [each.text for each in load_translator(saved)(lines)]
    assert found == translate(run.model, run.tokenizers, lines, search=run.search()).texts
    with (
        served(saved.parent) as port,
        Client(f"http://127.0.0.1:{port}", model="saved") as client,
    ):
        assert [each.text for each in client.translate(lines)] == found
