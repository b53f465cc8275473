"""A folder of an export whose files are not what was written is refused by the name of the file."""

import json
import shutil
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from keras_addnorm import cli
from keras_addnorm.basics.integrity import IN_EXPORTS, DamagedFileError, Manifest
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import TokenizerPair
from keras_addnorm.interop import (
    load_pretrained,
    make_random_folder,
    require_intact,
    save_pretrained,
)
from keras_addnorm.interop.families.marian_files import read_decoder_settings, read_vocabulary
from keras_addnorm.interop.folders import write_manifest

LISTED = {
    *("config.json", "generation_config.json", "model.safetensors"),
    *("source.spm", "target.spm", "vocab.json"),
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A folder that another toolkit has written."""
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    path = make_random_folder("marian", tmp_path_factory.mktemp("marian") / "marian", **sizes)
    (path / "README.md").write_text("---\nlicense: mit\n---\n")
    return path


@pytest.fixture(scope="module")
def ours(foreign, tmp_path_factory):
    return save_pretrained(load_pretrained(foreign), tmp_path_factory.mktemp("saved") / "ours")


@pytest.fixture
def copy(ours, tmp_path):
    return shutil.copytree(ours, tmp_path / "copy")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_every_file_that_a_reader_needs_is_listed(ours):
    assert Manifest(ours, IN_EXPORTS).read().keys() == LISTED
    require_intact(ours)


@pytest.mark.parametrize("name", [*sorted(LISTED), IN_EXPORTS])
def test_a_damaged_file_is_named_before_it_is_read(copy, name):
    flip(copy / name)
    with pytest.raises(DamagedFileError, match=rf"copy/{name}' is damaged"):
        load_pretrained(copy)
    if name == "model.safetensors":
        with pytest.raises(DamagedFileError, match=rf"copy/{name}' is damaged"):
            load_pretrained(copy / name, "marian", tokenizers=None)
    if name != IN_EXPORTS:
        (copy / name).unlink()
        with pytest.raises(DamagedFileError, match=rf"copy/{name}' is missing.*export it again"):
            load_pretrained(copy)


def test_the_command_names_it_and_takes_it_if_told_to(copy, tmp_path, capsys):
    flip(copy / "model.safetensors")
    command = ["import", str(copy), "--run-dir", str(tmp_path / "run")]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "model.safetensors' is damaged" in said and "--no-verify" in said
    assert not (tmp_path / "run").exists()
    assert cli.main([*command, "--no-verify"]) == 0
    assert (tmp_path / "run" / "best.weights.h5").is_file()


def test_a_model_card_may_be_written(copy):
    (copy / "README.md").write_text("---\nlicense: mit\n---\nA model of court rulings.\n")
    assert load_pretrained(copy).licence == "mit"


def test_what_others_wrote_has_no_digests(foreign, copy):
    """Nor has what we wrote once. A manifest of others is none of ours."""
    assert not (foreign / IN_EXPORTS).exists()
    require_intact(foreign)
    (copy / IN_EXPORTS).unlink()
    (copy / "manifest.json").write_text('{"files": ["a.html"], "digest": 7}')
    again, whole = load_pretrained(copy), load_pretrained(foreign)
    for weight, expected in zip(again.model.weights, whole.model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(expected))


def test_the_tokenizers_beside_a_graph_are_compared(ours, tmp_path):
    """Folders for runtimes that know no texts; their own files are compared by `require_intact`."""
    load_pretrained(ours).tokenizers.save(tmp_path)
    (tmp_path / "encoder.onnx").write_bytes(b"graph")
    write_manifest(tmp_path)
    flip(tmp_path / "encoder.onnx")
    tokenizers = TokenizerPair.load(tmp_path)
    with pytest.raises(DamagedFileError, match=r"encoder.onnx' is damaged"):
        require_intact(tmp_path)
    # In the text of a piece: another tokenizer, which can be read.
    path = tmp_path / "tokenizer.model"
    path.write_bytes(path.read_bytes().replace(b"dog", b"dig"))
    with pytest.raises(DamagedFileError, match=r"tokenizer.model' is damaged"):
        TokenizerPair.load(tmp_path)
    assert TokenizerPair.load(tmp_path, verify=False) != tokenizers


DEEP = b"[" * 100_000
NO_TEXT = b"\xff\xfe\xfd"


@pytest.mark.parametrize("content", [DEEP, NO_TEXT, b"[]", b"{"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "vocab.json"])
def test_without_digests_json_that_cannot_be_read_is_named(copy, name, content):
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=name if content != b"[]" else "Expected a"):
        load_pretrained(copy, verify=False)


def test_layers_that_the_weights_do_not_have_are_refused(copy):
    path = copy / "config.json"
    settings = json.loads(path.read_text())
    for count, words in (
        (10**12, "has to be at most 10000"),
        (999, r"num_encoder_layers = 999 \(at"),
    ):
        path.write_text(json.dumps({**settings, "encoder_layers": count}))
        with pytest.raises(ValueError, match=words):
            load_pretrained(copy, verify=False)


@pytest.mark.parametrize("names", [["d_model"], ["vocab_size", "decoder_vocab_size"]])
def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_made(copy, names):
    path = copy / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, **dict.fromkeys(names, 10**12)}))
    with pytest.raises(ValueError, match=r"sizes that its weights do not have.*hidden_dim x voc"):
        load_pretrained(copy, verify=False)


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("bart", "max_position_embeddings", 10**12),
        ("marian", "max_position_embeddings", 10**12),
        ("t5", "n_positions", 10**12),
        ("t5", "relative_attention_num_buckets", 10**12),
        ("t5", "d_kv", 10**12),
    ],
)
def test_numbers_without_a_table_are_bounded(family, name, value, tmp_path):
    folder = make_random_folder(
        family, tmp_path / "base", num_encoder_layers=1, num_decoder_layers=1
    )
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(
        ValueError,
        match=r"sizes that its weights do|buckets of T5|other sh|has to be at most",
    ):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("config.json", {"model_type": []}, r"names no family.*Received: \[\]"),
        ("config.json", {"d_model": -1}, "positive integer"),
        ("config.json", {"decoder_start_token_id": {}}, "A special id is a whole number"),
        ("generation_config.json", {"num_beams": 10**9}, "num_beams = 1000000000; expected at mo"),
        ("generation_config.json", {"length_penalty": 10**400}, "of another kind.*OverflowError"),
        ("generation_config.json", {"eos_token_id": "x"}, "A special id is a whole number"),
    ],
)
def test_values_without_sense_are_refused_with_the_folder(copy, name, value, message):
    path = copy / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **value}))
    with pytest.raises(ValueError, match=message) as error:
        load_pretrained(copy, verify=False)
    assert str(copy) in str(error.value) or name in str(error.value)


def sparse(path, size=3 << 30):
    with path.open("wb") as file:
        file.truncate(size)


def test_files_that_nothing_is_made_of_are_neither_read_nor_copied(foreign, tmp_path):
    """Neither large ones nor what a link leads to; of a card the beginning is read."""
    folder = shutil.copytree(foreign, tmp_path / "copy")
    for name in ("spiece.model", "model.onnx"):
        sparse(folder / name)
    with (folder / "README.md").open("r+b") as file:
        file.truncate(3 << 30)
    secret = tmp_path / "secret"
    secret.write_text("a b\n")
    (folder / "merges.txt").symlink_to(secret)
    tracemalloc.start()
    try:
        loaded = load_pretrained(folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loaded.licence == "mit" and peak < 1 << 27
    assert loaded.text_files.keys() == {"source.spm", "target.spm", "vocab.json"}
    saved = save_pretrained(loaded, tmp_path / "saved")
    assert not {"merges.txt", "spiece.model"} & {file.name for file in saved.iterdir()}


@pytest.mark.parametrize(
    "name", ["vocab.json", "source.spm", "config.json", "tokenizer_config.json"]
)
def test_files_that_are_too_large_are_named_before_they_are_read(name, foreign, tmp_path):
    folder = shutil.copytree(foreign, tmp_path / "copy")
    sparse(folder / name)
    with pytest.raises(ValueError, match=rf"{name}' is too large.*Received: 3221225472"):
        load_pretrained(folder)


@pytest.mark.parametrize("name", ["encoder_ffn_dim", "decoder_ffn_dim", "both"])
def test_shapes_without_sense_are_compared_and_not_made(copy, name):
    path = copy / "config.json"
    settings = json.loads(path.read_text())
    names = ["encoder_ffn_dim", "decoder_ffn_dim"] if name == "both" else [name]
    path.write_text(json.dumps({**settings, **dict.fromkeys(names, 10**12)}))
    with pytest.raises(ValueError, match=r"ffn_dim|other shapes than the config says"):
        load_pretrained(copy, verify=False)
    path.write_text(json.dumps(settings))
    load_pretrained(copy, verify=False)


def test_an_id_that_no_vocabulary_has(copy):
    """Rows are made for all ids below it."""
    path = copy / "vocab.json"
    ids = json.loads(path.read_text())
    ids[max(ids, key=ids.get)] = 10**12
    path.write_text(json.dumps(ids))
    with pytest.raises(ValueError, match=r"numbers its pieces with few gaps.*Received: 10{12} for"):
        load_pretrained(copy, verify=False)


@pytest.fixture(scope="module")
def joey(tmp_path_factory):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return make_random_folder("joey_nmt", tmp_path_factory.mktemp("joey") / "joey", **sizes)


@pytest.mark.parametrize("content", [DEEP, NO_TEXT, b"- a\n- b\n", b"a: [", b"a: \x00"])
def test_yaml_that_cannot_be_read_is_named(joey, tmp_path, content):
    folder = shutil.copytree(joey, tmp_path / "joey")
    (folder / "config.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"joey/config\.yaml' (is no|holds no settings)"):
        load_pretrained(folder, "joey_nmt")


@pytest.mark.parametrize("content", [DEEP, NO_TEXT, b"- a\n- b\n", b"a: ["])
def test_settings_of_marian_that_cannot_be_read_are_named(tmp_path, content):
    path = tmp_path / "decoder.yml"
    path.write_bytes(content)
    checkpoint = SimpleNamespace(folder=tmp_path, path=tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"decoder\.yml' (is no|holds no settings)"):
        read_decoder_settings(checkpoint)


def test_lists_of_pieces_of_marian(tmp_path):
    path = tmp_path / "vocab.yml"
    path.write_text('"\\"a": 0\nb: 1\n\'c\': 2\n')
    assert read_vocabulary(path) == {'"a': 0, "b": 1, "c": 2}
    (tmp_path / "vocab.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"vocab\.json' is no list of pieces.*Received: \[1\]"):
        read_vocabulary(tmp_path / "vocab.json")
    path.write_text("""'it''s': 0\n'a': 1\n"b": 2\n"\\x41": 3\n"c'": 4\n""")
    assert read_vocabulary(path) == {"it's": 0, "a": 1, "b": 2, "A": 3, "c'": 4}
    # All that YAML can escape, as PyYAML reads it.
    escapes = [*'0abtnvfre "/\\N_LP', "xe9", "u2581", "U0001f600"]
    path.write_text("".join(f'"{n}\\{one}z": {n}\n' for n, one in enumerate(escapes)))
    assert read_vocabulary(path) == yaml.safe_load(path.read_text())
    for content, reason in (
        *((b'"a%s": 0\n' % wrong, "is no list") for wrong in (b"\\q", b"\\", b"\\ud800", b'"')),
        (b"'a'b': 0\n", "is no list"),
        (NO_TEXT, "is no text in UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"vocab\.yml' {reason}"):
            read_vocabulary(path)


def test_a_path_without_anything_is_no_whole_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing at '.*none'\. Expected the folder of an"):
        require_intact(tmp_path / "none")
